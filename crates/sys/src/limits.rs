//! How many files this process may have open.
#![allow(unsafe_code)]

use std::{io, os::unix::process::CommandExt, process::Command, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit with which this process was started, once it has raised it.
static FIRST: OnceLock<Rlimit> = OnceLock::new();

/// The limits on open files: `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// What holds now.
    pub soft: Option<u64>,
    /// What [`raise_open_files`] may raise it to.
    pub hard: Option<u64>,
}

/// The limits on open files.
#[doc(alias = "RLIMIT_NOFILE")]
pub fn open_files() -> OpenFiles {
    let limit = getrlimit(Resource::Nofile);
    OpenFiles { soft: limit.current, hard: limit.maximum }
}

/// Raises the soft limit on open files to the hard one, and gives what then holds. Needs no privilege.
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised)?;
        FIRST.get_or_init(|| limit);
    }
    Ok(open_files())
}

/// Has a program begin with the soft limit that this process was started with: some close all descriptors up to it, or use
/// `select(2)`, which knows 1,024.
pub fn give_back_open_files(command: &mut Command) -> &mut Command {
    let Some(&first) = FIRST.get() else { return command };
    let lower = move || Ok(setrlimit(Resource::Nofile, first)?);
    // SAFETY: the closure runs in the forked child, and makes a system call alone: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(lower) }
}

#[cfg(test)]
mod tests {
    use std::{env, sync::atomic::AtomicBool, time::Duration};

    use super::*;
    use crate::confined::{Ended, run_within};

    /// This test once more in a process of its own: in this one others open files just now.
    const ALONE: &str = "ONESWEEP_TEST_LIMITS_ALONE";

    #[test]
    fn soft_limit_reaches_the_hard_one_and_programs_get_it_as_it_was() {
        if env::var_os(ALONE).is_none() {
            let name = "limits::tests::soft_limit_reaches_the_hard_one_and_programs_get_it_as_it_was";
            let mut again = Command::new(env::current_exe().unwrap());
            let out = again.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        // So that there is something to raise, whoever has started the tests.
        let (hard, before) = (open_files().hard, 256);
        assert!(hard.is_none_or(|hard| hard > before), "{hard:?}");
        setrlimit(Resource::Nofile, Rlimit { current: Some(before), maximum: hard }).unwrap();
        let raised = raise_open_files().unwrap();
        assert_eq!(raised.soft, raised.hard);
        assert_eq!(open_files(), raised);
        let mut shell = Command::new("sh");
        let out = give_back_open_files(shell.args(["-c", "ulimit -Sn"])).output().unwrap();
        assert_eq!(out.stdout, before.to_string().as_bytes().iter().copied().chain(*b"\n").collect::<Vec<u8>>());
        raise_open_files().unwrap();
        let out = give_back_open_files(&mut shell).output().unwrap();
        assert!(out.stdout.starts_with(before.to_string().as_bytes()), "{out:?}");
        // So do the commands that are run for a bounded time.
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -Sn"]);
        let (ended, _) = run_within(shell, Duration::from_secs(60), 100, &AtomicBool::new(false), None).unwrap();
        assert!(matches!(&ended, Ended::Said(said) if *said == out.stdout), "{ended:?}");
    }
}
