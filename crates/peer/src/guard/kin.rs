//! Who opens files for the guard itself: its own process, the programs that it starts, and the engine with those that the engine starts.
//! They have to get everything at once, or the guard would wait for itself.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

/// More ancestors nobody has; a process that is moved meanwhile must not lead in circles.
const ANCESTORS_MAX: usize = 64;
const INIT: u32 = 1;

/// A program that is the engine, where its process can't be told by its socket: systemd listens there in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineProgram {
    /// Its file.
    pub path: PathBuf,
    /// The users that it runs as: whoever else starts it is somebody else.
    pub users: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Kin {
    own: u32,
    program: Option<EngineProgram>,
}

impl Kin {
    pub(super) fn new(program: Option<EngineProgram>) -> Self {
        Self { own: std::process::id(), program }
    }

    pub(super) fn is_own(&self, pid: i32) -> bool {
        u32::try_from(pid).is_ok_and(|pid| pid == self.own)
    }

    /// Whether a process, which waits meanwhile, is one of them. `engine` is the engine's, where that is known.
    pub(super) fn has(&self, pid: i32, engine: Option<u32>) -> bool {
        let Ok(mut pid) = u32::try_from(pid) else { return false };
        for _ in 0..ANCESTORS_MAX {
            if pid <= INIT {
                return false;
            }
            if pid == self.own || engine == Some(pid) || self.runs_program(pid) {
                return true;
            }
            let Some(parent) = parent(pid) else { return false };
            pid = parent;
        }
        false
    }

    fn runs_program(&self, pid: u32) -> bool {
        let Some(program) = &self.program else { return false };
        let file = |path: PathBuf| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let running = file(format!("/proc/{pid}/exe").into());
        running.is_some()
            && running == file(program.path.clone())
            && fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
                users(&status).is_some_and(|all| all.iter().all(|user| program.users.contains(user)))
            })
    }
}

/// The real, effective, saved and file-system user of a process, by what its status says.
fn users(status: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().map(|user| user.parse().ok()).collect::<Option<Vec<u32>>>().filter(|users| users.len() == 4)
}

fn parent(pid: u32) -> Option<u32> {
    parent_in(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// `PID (NAME) STATE PARENT …`; a name may hold anything.
fn parent_in(stat: &[u8]) -> Option<u32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn names_of_processes_do_not_confuse() {
        assert_eq!(parent_in(b"12 (a) R 1 (b) S 77 12 12"), Some(77));
        assert_eq!(parent_in(b"12 (sh) S 5 12 12 0"), Some(5));
        assert_eq!(parent_in(b"12 sh"), None);
        assert_eq!(users("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t0"), Some(vec![1, 2, 3, 4]));
        assert_eq!(users("Uid:\t1\n"), None);
    }

    #[test]
    fn children_and_theirs_are_kin_and_others_are_not() {
        let kin = Kin::new(None);
        let mut child = Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 & echo $!; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut line = || {
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            line
        };
        let grandchild: i32 = line().trim().parse().unwrap();
        // Until it answers it may still be the shell that it was forked from.
        to.write_all(b"running\n").unwrap();
        assert_eq!(line(), "running\n");
        assert!(kin.has(grandchild, None) && kin.has(child.id() as i32, None));
        let stranger = Kin { own: u32::MAX, program: None };
        assert!(!stranger.has(grandchild, None));
        assert!(stranger.has(grandchild, Some(child.id())), "the engine's child");
        assert!(!kin.has(1, Some(1)) && !kin.has(0, None) && !kin.has(-1, None), "systemd is not the engine");
        let own = onesweep_sys::user::effective_uid();
        let path = fs::canonicalize("/bin/cat").unwrap();
        let runs = |users: &[u32]| {
            let program = EngineProgram { path: path.clone(), users: users.to_vec() };
            Kin { own: u32::MAX, program: Some(program) }.has(grandchild, None)
        };
        assert!(runs(&[own]) && !runs(&[own + 1]), "of somebody else it is somebody else");
        onesweep_sys::process::terminate(grandchild as u32).unwrap();
        child.wait().unwrap();
    }
}
