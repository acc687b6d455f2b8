//! A disk that is shown until it is told to end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::place::succeed;

/// A disk that is shown until it is told to end.
pub(crate) struct Shown(pub(crate) Child);

impl Shown {
    /// Starts it and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if !line.contains("is ready") {
            let _ = child.kill();
            let mut complaint = String::new();
            child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
            let _ = child.wait();
            panic!("not ready: {line}{complaint}");
        }
        Self(child)
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }

    /// The process that serves.
    pub(crate) fn server(&self) -> u32 {
        let id = self.0.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.signal("TERM");
            let _ = self.0.wait();
        }
    }
}

pub(crate) fn signal(process: u32, name: &str) {
    succeed(Command::new("kill").arg(format!("-{name}")).arg(process.to_string()));
}

/// Waits for something that happens soon, and fails when it never does.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
