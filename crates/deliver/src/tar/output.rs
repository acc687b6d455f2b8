//! The file that the archive becomes.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep::Cancel;
use onesweep_sys::files;
use tempfile::NamedTempFile;

use super::error::TarError;
use crate::temporary::Temporary;

/// Tapes keep the size of each write; GNU tar expects 20 blocks.
const TAPE_RECORD: usize = 20 * 512;

/// Links that are followed one after another, as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// The mode of an archive that replaces none, before the umask.
const NEW_MODE: u32 = 0o666;
/// The mode of one that replaces another, until it gets the mode of that: who may not read the old one may not open the
/// new one meanwhile.
const REPLACEMENT_MODE: u32 = 0o600;

/// Where an archive goes: a file that gets its name when it is complete, or something that takes bytes as they come.
///
/// A file is written beside its place, as `.NAME.XXXXXX.partial`, and [`Output::commit`] renames it. Dropping the
/// output removes it, and so does [`remove_all`](crate::temporary::remove_all), for a caller that ends without dropping
/// it; only SIGKILL or a power cut leaves it behind.
/// A file that is replaced hands its mode, and if possible its owner, down to the new one, but not its further names
/// (hard links), ACLs or extended attributes. Symbolic links are followed.
#[derive(Debug)]
pub struct Output {
    place: Place,
    name: PathBuf,
    identities: Vec<(u64, u64)>,
    largest_write: usize,
    cancel: Option<Cancel>,
}

#[derive(Debug)]
enum Place {
    Beside { file: NamedTempFile, temporary: Temporary, target: PathBuf, replaces: bool },
    Direct(File),
}

impl Output {
    /// Opens the output at `path` (`tar -f`). Devices, pipes and `/dev/stdout` are written directly.
    pub fn create(path: &Path) -> Result<Self, TarError> {
        let failed = |source| TarError::Create { path: path.to_path_buf(), source };
        let existing = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        match existing {
            Some(found) if found.is_dir() => Err(failed(io::ErrorKind::IsADirectory.into())),
            Some(found) if !found.is_file() || names_descriptor(path) => {
                let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
                Self::direct(file, path.to_path_buf()).map_err(failed)
            }
            existing => Self::beside(path, existing.as_ref()).map_err(failed),
        }
    }

    /// Takes no more bytes once `cancel` is set: a member of which a part can't be read is filled up with zeros, which may
    /// be very many.
    #[must_use]
    pub fn until(self, cancel: Cancel) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// Takes over the standard output.
    pub fn stdout() -> Result<Self, TarError> {
        let name = PathBuf::from("standard output");
        io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .and_then(|fd| Self::direct(fd.into(), name.clone()))
            .map_err(|source| TarError::Create { path: name, source })
    }

    fn direct(file: File, name: PathBuf) -> io::Result<Self> {
        let found = file.metadata()?;
        let identities = if found.is_file() { vec![(found.dev(), found.ino())] } else { Vec::new() };
        let largest_write = if found.file_type().is_char_device() { TAPE_RECORD } else { usize::MAX };
        Ok(Self { place: Place::Direct(file), name, identities, largest_write, cancel: None })
    }

    fn beside(path: &Path, existing: Option<&fs::Metadata>) -> io::Result<Self> {
        let target = resolve(path, existing.is_some())?;
        let (temporary, file) = make_beside(&target, existing.is_some())?;
        let made = file.as_file().metadata()?;
        let mut identities = vec![(made.dev(), made.ino())];
        if let Some(old) = existing {
            identities.push((old.dev(), old.ino()));
            // Only root can give files away; an ordinary user's archive is then his own.
            if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
                let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
            }
            file.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        }
        let place = Place::Beside { file, temporary, target, replaces: existing.is_some() };
        Ok(Self { place, name: path.to_path_buf(), identities, largest_write: usize::MAX, cancel: None })
    }

    /// The path as it was given, for messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// True for the file that is written, and for the one that it will replace.
    pub fn is_archive(&self, dev: u64, ino: u64) -> bool {
        self.identities.contains(&(dev, ino))
    }

    /// The names in their directory: that of the file that is written, and the final one.
    pub(super) fn file_names(&self) -> Option<(&OsStr, &OsStr)> {
        match &self.place {
            Place::Beside { temporary, target, .. } => Some((temporary.name(), target.file_name()?)),
            Place::Direct(_) => None,
        }
    }

    pub(super) fn identities(&self) -> &[(u64, u64)] {
        &self.identities
    }

    /// Gives the complete archive its name.
    ///
    /// When it replaces another, it is synced first, so that a power cut leaves one of the two.
    pub fn commit(self) -> Result<(), TarError> {
        let Place::Beside { file, temporary: _temporary, target, replaces } = self.place else { return Ok(()) };
        let synced = if replaces { file.as_file().sync_data() } else { Ok(()) };
        synced
            .and_then(|()| file.persist(&target).map_err(|failed| failed.error))
            .map(drop)
            .map_err(|source| TarError::Commit { path: self.name, source })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(io::Error::other("the archive was cancelled"));
        }
        let now = &bytes[..bytes.len().min(self.largest_write)];
        match &mut self.place {
            Place::Beside { file, .. } => file.as_file_mut().write(now),
            Place::Direct(file) => file.write(now),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file for the time until the archive is complete.
fn make_beside(target: &Path, replaces: bool) -> io::Result<(Temporary, NamedTempFile)> {
    let directory = match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mode = if replaces { REPLACEMENT_MODE } else { NEW_MODE };
    let mut prefix = OsString::from(".");
    // The name may be as long as names get; the temporary one is longer.
    prefix.push(target.file_name().filter(|name| name.len() < 200).unwrap_or_default());
    prefix.push(".");
    let handle = Arc::new(files::open_dir_handle(directory)?);
    let mut temporary = None;
    let make = |path: &Path| {
        let open = || OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path);
        let (made, file) = Temporary::make(Arc::clone(&handle), path.file_name().unwrap_or_default(), open)?;
        temporary = Some(made);
        Ok(file)
    };
    // Relative paths are made absolute there, and there may be no way from the root to the current directory.
    let is_reachable = directory.is_absolute() || std::env::current_dir().and_then(fs::metadata).is_ok();
    let by_handle = files::through_proc(handle.as_fd());
    let directory = if is_reachable { directory } else { &by_handle };
    // By itself it would put the temporary name into the error.
    let file = tempfile::Builder::new().prefix(&prefix).suffix(".partial").make_in(directory, make)?;
    temporary.map(|temporary| (temporary, file)).ok_or_else(|| io::ErrorKind::Other.into())
}

/// True for names of an open file, which must not be replaced by another.
fn names_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter().any(|prefix| path.starts_with(prefix))
}

/// Follows symbolic links, so that the link stays and its target is replaced, or made at the end of a chain of links.
fn resolve(path: &Path, exists: bool) -> io::Result<PathBuf> {
    if exists {
        return fs::canonicalize(path);
    }
    let mut target = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("too many symbolic links lead from one to the next"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_name_the_temporary_file() {
        let error = Output::create(Path::new("/nope/x")).unwrap_err().to_string();
        assert!(error.starts_with("/nope/x: cannot create the archive: No such file"), "{error}");
        assert!(!error.contains("partial"), "{error}");
    }

    #[test]
    fn what_replaces_an_archive_is_its_owners_alone_at_first() {
        let dir = tempfile::tempdir().unwrap();
        let (_temporary, made) = make_beside(&dir.path().join("a.tar"), true).unwrap();
        assert_eq!(made.as_file().metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn chains_of_links_are_followed_to_their_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for (target, name) in [("sub/two", "one"), ("../three", "sub/two"), ("sub/new.tar", "three")] {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        }
        let end = resolve(&dir.path().join("one"), false).unwrap();
        assert!(!end.is_symlink());
        assert_eq!(end.canonicalize().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(end.file_name().unwrap(), "new.tar");
        Output::create(&dir.path().join("one")).unwrap().commit().unwrap();
        assert!(dir.path().join("sub/new.tar").is_file() && dir.path().join("sub/two").is_symlink());
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        resolve(&dir.path().join("loop"), false).unwrap_err();
    }
}
