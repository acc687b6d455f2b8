//! Any program as an engine: it reads a content from its standard input, and its exit code is the verdict.

use std::{
    fs::File,
    io::{self, Seek},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onesweep_sys::{
    confined::{Ended, run_within},
    groups::Groups,
    memfd,
};

use super::engine::{Content, Engine, EngineError, EngineId, NAME_BYTES_MAX, Verdict};

/// What it is called.
pub const NAME: &str = "command";
/// Commands at a time: more than any machine has threads for.
const AT_ONCE_MAX: usize = 1024;

/// A line for the shell. Exit code 0 is clean, 1 is infected, and the first line of what it writes is the name; any other is
/// no verdict.
#[derive(Debug)]
pub struct Program {
    line: String,
    epoch: String,
    patience: Duration,
    stop: Arc<AtomicBool>,
    /// What runs ends with this process by it; without it, what a command has started may go on when this process is killed.
    groups: Option<Arc<Groups>>,
}

impl Program {
    /// It gets so much time for each content, and is killed then, with what it has started, as it is when this process ends. That takes a
    /// child process, so this is best made while the process is small. `epoch` is to change with its signatures, or with what else its verdicts depend on.
    #[must_use]
    pub fn new(line: impl Into<String>, epoch: Option<String>, patience: Duration) -> Self {
        let line = line.into();
        // Another line is another engine.
        let epoch = match epoch {
            Some(epoch) => format!("{} {epoch}", &blake3::hash(line.as_bytes()).to_hex()[..16]),
            None => blake3::hash(line.as_bytes()).to_hex()[..16].to_owned(),
        };
        let groups = Groups::new(AT_ONCE_MAX).ok().map(Arc::new);
        Self { line, epoch, patience, stop: Arc::default(), groups }
    }

    /// When this is set, what runs is killed, and nothing is run any more: [`EngineError::Stopped`].
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> EngineError + use<> {
        let engine = self.line.clone();
        move |source| EngineError::Io { engine: engine.clone(), step, source }
    }
}

impl Engine for Program {
    fn name(&self) -> &'static str {
        NAME
    }

    fn id(&self) -> Result<EngineId, EngineError> {
        let too_long = || EngineError::Failed("the epoch is too long".to_owned());
        EngineId::new(NAME, &self.epoch).ok_or_else(too_long)
    }

    fn scan(&self, content: Content<'_>) -> Result<Verdict, EngineError> {
        let input: File = match content {
            Content::Bytes(bytes) => memfd::sealed(bytes).map_err(self.failed("make a file in memory"))?,
            Content::File(mut file) => {
                file.rewind().and_then(|()| file.try_clone()).map_err(self.failed("read a file from its start"))?
            }
        };
        if self.stop.load(Ordering::Relaxed) {
            return Err(EngineError::Stopped);
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.line]).stdin(input).stderr(Stdio::null());
        let ran = run_within(command, self.patience, 4 * NAME_BYTES_MAX, &self.stop, self.groups.as_ref());
        let ran = ran.map_err(self.failed("run it"))?;
        match ran {
            (Ended::Said(_), status) if status.code() == Some(0) => Ok(Verdict::Clean),
            (Ended::Said(said), status) if status.code() == Some(1) => {
                let said = String::from_utf8_lossy(&said);
                Ok(Verdict::infected(said.lines().next().unwrap_or_default().trim()))
            }
            (Ended::Late, _) if self.stop.load(Ordering::Relaxed) => Err(EngineError::Stopped),
            (Ended::Late, _) => Err(EngineError::Failed(format!("{}: it has not ended in time", self.line))),
            (_, status) => Err(EngineError::Failed(format!("{}: it ended with {status}", self.line))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn exit_codes_are_verdicts() {
        let scan = |line: &str, content: &[u8]| Program::new(line, None, LONG).scan(Content::Bytes(content));
        assert_eq!(scan("! grep -q bad", b"a good one").unwrap(), Verdict::Clean);
        let names = "grep -q bad && echo ' Bad.Thing' && echo more && exit 1; exit 0";
        assert_eq!(scan(names, b"a bad one").unwrap(), Verdict::Infected("Bad.Thing".to_owned()));
        assert_eq!(scan("exit 1", b"").unwrap(), Verdict::Infected("unnamed".to_owned()));
        assert_eq!(scan("head -c 1000000 /dev/zero; exit 0", b"").unwrap(), Verdict::Clean);
        for line in ["exit 2", "kill -9 $$", "no-such-program-here"] {
            assert!(matches!(scan(line, b"x"), Err(EngineError::Failed(_))), "{line}");
        }
    }

    #[test]
    fn one_that_does_not_end_has_no_verdict() {
        let scan = |line: &str| Program::new(line, None, Duration::from_millis(100)).scan(Content::Bytes(b"x"));
        assert!(
            matches!(scan("echo Bad; sleep 1000; exit 1"), Err(EngineError::Failed(why)) if why.contains("in time"))
        );
    }

    #[test]
    fn one_that_is_stopped_has_no_verdict() {
        let stop = Arc::new(AtomicBool::new(false));
        let program = |line: &str| Program::new(line, None, LONG).stopped_by(Arc::clone(&stop));
        assert_eq!(program("exit 0").scan(Content::Bytes(b"x")).unwrap(), Verdict::Clean);
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(program("exit 0").scan(Content::Bytes(b"x")), Err(EngineError::Stopped)));
    }

    #[test]
    fn a_file_is_given_from_its_start() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"bad").unwrap();
        let found = Program::new("! grep -q bad", None, LONG).scan(Content::File(&file)).unwrap();
        assert!(found.is_infected());
    }

    #[test]
    fn another_line_or_epoch_is_another_engine() {
        let id = |line: &str, epoch: Option<&str>| Program::new(line, epoch.map(str::to_owned), LONG).id().unwrap();
        assert_eq!(id("a", None), id("a", None));
        assert_ne!(id("a", None), id("b", None));
        assert_ne!(id("a", None), id("a", Some("1")));
        assert_ne!(id("a", Some("2")), id("a", Some("1")));
        assert!(Program::new("a", Some("x".repeat(300)), LONG).id().is_err());
    }
}
