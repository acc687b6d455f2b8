//! Where a result goes: a file that gets its name when it is complete, or a stream.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use onesweep_sys::files;
use signal_hook::iterator::Signals;

use crate::{report::INTERRUPTED, session::heeded_signals};

/// What is written to.
pub(crate) struct Target {
    out: File,
    /// The name in the end, and the one until then.
    names: Option<(PathBuf, Unfinished)>,
}

/// A file that isn't complete; removed when it isn't wanted, also by a signal.
struct Unfinished(Arc<Mutex<State>>);

/// How far it has come.
enum State {
    /// It isn't there, or not any more.
    Nothing,
    /// It has this name.
    Begun(PathBuf),
    /// It has its own name, and took the place of what was there.
    Named,
}

impl Target {
    /// `-` is standard output. What is there and no regular file (a device, a pipe) is written to as it is.
    pub(crate) fn open(file: &Path) -> io::Result<Target> {
        if file == Path::new("-") {
            let out = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned()?;
            return Ok(Target { out: out.into(), names: None });
        }
        let place = match fs::metadata(file) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                return Ok(Target { out: OpenOptions::new().write(true).open(file)?, names: None });
            }
            // A link goes on leading to it.
            Ok(_) => fs::canonicalize(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
            Err(error) => return Err(error),
        };
        let mut name = std::ffi::OsString::from(".");
        name.push(place.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
        name.push(format!(".{}.unfinished", std::process::id()));
        let temporary = place.with_file_name(name);
        let unfinished = Unfinished(Arc::new(Mutex::new(State::Nothing)));
        unfinished.remove_at_signals()?;
        let mut kept = unfinished.0.lock().unwrap_or_else(PoisonError::into_inner);
        let out = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        *kept = State::Begun(temporary);
        drop(kept);
        Ok(Target { out, names: Some((place, unfinished)) })
    }

    pub(crate) fn writer(&self) -> io::Result<File> {
        self.out.try_clone()
    }

    /// All has been written: it gets its name, which is there after a power cut, too.
    pub(crate) fn finish(self) -> io::Result<()> {
        let Some((place, unfinished)) = self.names else { return Ok(()) };
        self.out.sync_all()?;
        unfinished.give(&place)?;
        match File::open(place.with_file_name(".")) {
            Ok(directory) => files::sync_directory(directory.as_fd()),
            // Names may be made there, and not be listed.
            Err(_) => files::sync_file_system(self.out.as_fd()),
        }
    }
}

impl Unfinished {
    /// A thread waits for signals, since an answer may be waited for just then.
    fn remove_at_signals(&self) -> io::Result<()> {
        let mut signals = Signals::new(heeded_signals())?;
        let kept = Arc::clone(&self.0);
        thread::Builder::new().name("signals".into()).spawn(move || {
            if signals.forever().next().is_some() {
                // Held to the end: nothing gets its name any more. What has it is as good as done, and is ended in order.
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.remove() {
                    let _ = io::stderr().write_all(b"onesweep: interrupted; nothing was written\n");
                    std::process::exit(INTERRUPTED.into());
                }
            }
        })?;
        Ok(())
    }

    /// Gives it its name, if it is still there.
    fn give(&self, name: &Path) -> io::Result<()> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Begun(temporary) = &*kept {
            fs::rename(temporary, name)?;
            *kept = State::Named;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove();
    }
}

impl State {
    /// Removes what isn't complete, and gives whether nothing of it is there. What has its name stays.
    fn remove(&mut self) -> bool {
        if let State::Begun(temporary) = self {
            let _ = fs::remove_file(temporary);
            *self = State::Nothing;
        }
        matches!(self, State::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table");
        let target = Target::open(&file).unwrap();
        target.writer().unwrap().write_all(b"half").unwrap();
        assert!(!file.exists());
        drop(target);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        let target = Target::open(&file).unwrap();
        target.writer().unwrap().write_all(b"whole").unwrap();
        target.finish().unwrap();
        assert_eq!((names(folder.path()), fs::read(&file).unwrap()), (vec!["table".to_owned()], b"whole".to_vec()));
        // By a link, over what was there.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("table", &link).unwrap();
        let target = Target::open(&link).unwrap();
        target.writer().unwrap().write_all(b"new").unwrap();
        target.finish().unwrap();
        assert!(link.is_symlink() && fs::read(&file).unwrap() == b"new");
        // A signal that comes behind the rename is too late to undo it, and says nothing else.
        let target = Target::open(&file).unwrap();
        let (place, unfinished) = target.names.as_ref().unwrap();
        unfinished.give(place).unwrap();
        assert!(!unfinished.0.lock().unwrap().remove());
        drop(target);
        assert_eq!(names(folder.path()).len(), 2);
        let target = Target::open(&file).unwrap();
        assert!(target.names.as_ref().unwrap().1.0.lock().unwrap().remove());
        assert_eq!(names(folder.path()).len(), 2);
        // Nothing gets its name any more.
        target.finish().unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        assert_eq!(Target::open(folder.path()).err().unwrap().kind(), io::ErrorKind::IsADirectory);
        Target::open(Path::new("/dev/null")).unwrap().finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
