//! Names by which programs open files of this process, and behind which nobody else can ever put a file.
//!
//! A program's environment outlasts this process: what the program left behind (daemons, shells, jobs of at(1)) hands it on. A name
//! below `/proc/PID` would then be that of whoever has the number next, and root may open what anybody has open. So the files
//! lie in a folder on whose whole way only root and this user can write, and a name that is free again stays theirs.
//!
//! Whoever may not look into processes of others can have files in memory where there is no such folder: the kernel refuses
//! to open those of another user.

use std::{
    env,
    ffi::OsStr,
    fs::{self, DirBuilder, File, Permissions},
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
    process,
};

use onesweep_sys::user;

const FOLDER: &str = "onesweep-run";
/// Programs that have given up root's rights may load the library. The folder itself they can't list.
const FOLDER_MODE: u32 = 0o711;
const TRIES: usize = 16;

/// A kind of file.
pub(crate) struct Kind {
    /// What the names begin with.
    pub(crate) prefix: &'static str,
    pub(crate) suffix: &'static str,
    pub(crate) mode: u32,
    /// Fills a file in a folder, or tells why the folder won't do.
    pub(crate) fill: fn(&File) -> io::Result<()>,
    /// Makes one in memory.
    pub(crate) in_memory: fn() -> io::Result<File>,
}

/// The name of a file. What it names goes with it.
#[derive(Debug)]
pub(crate) struct Name {
    path: PathBuf,
    is_in_folder: bool,
}

impl Name {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether pages of the file come from a file system, which may be full.
    pub(crate) fn is_in_folder(&self) -> bool {
        self.is_in_folder
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if self.is_in_folder {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A new file of that kind with a name, which is there as long as both are.
pub(crate) fn create(kind: &Kind) -> io::Result<(File, Name)> {
    create_below(&parents(), kind, !may_look_into_others())
}

fn create_below(parents: &[PathBuf], kind: &Kind, may_be_in_memory: bool) -> io::Result<(File, Name)> {
    let mut refusals = Vec::new();
    for parent in parents {
        match folder_below(parent).and_then(|folder| create_in(&folder, kind)) {
            Ok(made) => return Ok(made),
            Err(error) => refusals.push(format!("{}: {error}", parent.display())),
        }
    }
    if may_be_in_memory {
        let file = (kind.in_memory)()?;
        let path = format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd()).into();
        return Ok((file, Name { path, is_in_folder: false }));
    }
    let refusals = refusals.join("; ");
    Err(io::Error::other(format!("no folder will do in which none but root and this user can write ({refusals})")))
}

/// Where folders may be, best first.
fn parents() -> Vec<PathBuf> {
    let told = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let is_root = user::effective_uid() == 0;
    let system = |path: &str| is_root.then(|| PathBuf::from(path));
    let cache = told("XDG_CACHE_HOME").or_else(|| told("HOME").map(|home| home.join(".cache")));
    let all = [system("/run"), told("XDG_RUNTIME_DIR"), cache, system("/var/cache"), told("TMPDIR")];
    all.into_iter().flatten().collect()
}

/// Whether this process may open what processes of other users have open: as root, or by any right beyond a user's own. In a
/// namespace of one user there is no other one.
fn may_look_into_others() -> bool {
    let told = |path| fs::read_to_string(path).unwrap_or_default();
    let users = told("/proc/self/uid_map");
    let status = told("/proc/self/status");
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let is_alone = users.split_whitespace().skip(2).eq(["1"]);
    let has_none = rights.is_some_and(|rights| rights.trim().bytes().all(|digit| digit == b'0'));
    !is_alone && (user::effective_uid() == 0 || !has_none)
}

/// The folder in `parent`, which is made where it isn't there.
fn folder_below(parent: &Path) -> io::Result<PathBuf> {
    // The name that programs are given has no link in it that may lead elsewhere later.
    let parent = match parent.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && parent.file_name() == Some(OsStr::new(".cache")) => {
            DirBuilder::new().mode(0o700).create(parent)?;
            parent.canonicalize()?
        }
        found => found?,
    };
    if parent.as_os_str().as_bytes().iter().any(|byte| *byte == b':' || *byte == b'$' || byte.is_ascii_whitespace()) {
        return Err(io::Error::other("LD_PRELOAD can't hold such a name"));
    }
    for above in parent.ancestors() {
        check(above)?;
    }
    let folder = parent.join(FOLDER);
    match DirBuilder::new().mode(FOLDER_MODE).create(&folder) {
        Ok(()) => fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    check(&folder)?;
    clear(&folder);
    Ok(folder)
}

/// Fails unless root and this user alone can make, rename and remove what is in a directory. Where all may write and a sticky bit
/// keeps them from what others have made there, a name that is free again is anybody's.
fn check(directory: &Path) -> io::Result<()> {
    let facts = fs::symlink_metadata(directory)?;
    let problem = if !facts.is_dir() {
        "is no directory"
    } else if facts.uid() != 0 && facts.uid() != user::effective_uid() {
        "belongs to another user"
    } else if facts.mode() & 0o022 != 0 {
        "can be written to by others"
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!("{} {problem}", directory.display())))
}

fn create_in(folder: &Path, kind: &Kind) -> io::Result<(File, Name)> {
    for _ in 0..TRIES {
        let chance = RandomState::new().build_hasher().finish();
        let path = folder.join(format!("{}{}-{chance:016x}{}", kind.prefix, process::id(), kind.suffix));
        let file = match File::options().read(true).write(true).create_new(true).mode(kind.mode).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        let name = Name { path, is_in_folder: true };
        file.set_permissions(Permissions::from_mode(kind.mode))?;
        file.lock()?;
        // Somebody may have cleared the folder between the making and the locking.
        if file.metadata()?.nlink() == 0 {
            continue;
        }
        (kind.fill)(&file)?;
        return Ok((file, name));
    }
    Err(io::Error::other("every name is taken"))
}

/// Removes what processes have left that were killed: nobody holds a lock on it any more.
fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(file) = File::options().read(true).custom_flags(flags).open(entry.path()) else { continue };
        if file.metadata().is_ok_and(|facts| facts.is_file()) && file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::unix::fs::{chown, symlink},
    };

    use super::*;

    const KIND: Kind = Kind {
        prefix: "test-",
        suffix: ".x",
        mode: 0o640,
        fill: |mut file| file.write_all(b"filled"),
        in_memory: || onesweep_sys::memfd::sealed(b"in memory"),
    };

    /// A folder on whose way nobody else can write; folders of tests lie where all can. Root alone has one for sure.
    fn place() -> Option<tempfile::TempDir> {
        (user::effective_uid() == 0).then(|| tempfile::tempdir_in("/run").unwrap())
    }

    fn refusal(parent: &Path) -> String {
        create_below(&[parent.to_owned()], &KIND, false).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_there_as_long_as_its_name_is_held() {
        let Some(place) = place() else { return };
        let none = place.path().join("none");
        let (file, name) = create_below(&[none.clone(), place.path().to_owned()], &KIND, true).unwrap();
        assert_eq!(fs::read(name.path()).unwrap(), b"filled");
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
        assert!(name.path().starts_with(place.path()) && name.is_in_folder());
        let path = name.path().to_owned();
        drop((file, name));
        assert!(!path.exists());
        assert!(refusal(&none).contains("none: No such file"));
    }

    #[test]
    fn what_somebody_else_can_write_to_is_no_place() {
        let Some(place) = place() else { return };
        let below = place.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        drop(create_below(std::slice::from_ref(&below), &KIND, false).unwrap());
        let above = below.parent().unwrap();
        for mode in [0o1777, 0o770, 0o702] {
            fs::set_permissions(above, Permissions::from_mode(mode)).unwrap();
            let problem = format!("{} can be written to by others", above.display());
            assert!(refusal(&below).contains(&problem), "{mode:o}");
        }
        fs::set_permissions(above, Permissions::from_mode(0o755)).unwrap();
        chown(above, Some(65_534), None).unwrap();
        assert!(refusal(&below).contains("another user"));
        chown(above, Some(0), None).unwrap();
        // A folder that somebody has put there before, and a link.
        chown(below.join(FOLDER), Some(65_534), None).unwrap();
        assert!(refusal(&below).contains("another user"));
        fs::remove_dir(below.join(FOLDER)).unwrap();
        symlink(above, below.join(FOLDER)).unwrap();
        assert!(refusal(&below).contains("no directory"));
        for odd in ["with space", "with:colon", "$LIB"] {
            fs::create_dir(place.path().join(odd)).unwrap();
            assert!(refusal(&place.path().join(odd)).contains("LD_PRELOAD"));
        }
        // A link to a folder is one to its name.
        let link = place.path().join("link");
        fs::remove_file(below.join(FOLDER)).unwrap();
        symlink(&below, &link).unwrap();
        let (_file, name) = create_below(&[link], &KIND, false).unwrap();
        assert!(name.path().starts_with(&below));
    }

    #[test]
    fn what_was_left_is_removed_and_what_is_held_stays() {
        let Some(place) = place() else { return };
        let make = || create_below(&[place.path().to_owned()], &KIND, false).unwrap();
        let (_file, held) = make();
        let (left, name) = make();
        let path = name.path().to_owned();
        // As a killed process does.
        std::mem::forget(name);
        drop(left);
        assert!(path.exists());
        let (_other_file, other) = make();
        assert!(held.path().exists() && other.path().exists() && !path.exists());
    }

    #[test]
    fn memory_is_the_last_resort_of_those_whom_the_kernel_shields() {
        let (_file, name) = create_below(&[], &KIND, true).unwrap();
        assert!(!name.is_in_folder());
        assert_eq!(fs::read(name.path()).unwrap(), b"in memory");
        assert!(create_below(&[], &KIND, false).is_err());
    }
}
