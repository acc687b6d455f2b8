//! Running programs: the one under test, and the machine's own tools.

use std::{
    ffi::OsString,
    io::Write,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output},
    sync::{Once, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
    time::{Duration, Instant},
};

/// The program under test: the one that cargo has just built, or an installed one named by `ONESWEEP_TEST_BIN`.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("ONESWEEP_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_onesweep").into(), PathBuf::from)
}

pub(crate) fn onesweep<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env_remove("ONESWEEP_HIDE");
    command
}

/// The same, heeding signals also where the tests themselves were put into the background by a script, which has some
/// ignored.
pub(crate) fn interruptible<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,HUP,QUIT").arg(program()).args(arguments).env_remove("ONESWEEP_HIDE");
    command
}

/// Runs a tool that has to succeed.
pub(crate) fn run(command: &mut Command) {
    output(command);
}

/// Runs a tool that has to succeed, and returns what it wrote.
pub(crate) fn output(command: &mut Command) -> Vec<u8> {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; try `make deps`"));
    assert!(out.status.success(), "{command:?}: {}\n{}", out.status, short(&out.stderr));
    out.stdout
}

/// Runs the program and insists on its exit code.
pub(crate) fn finish(command: &mut Command, code: i32) -> Output {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert_eq!(out.status.code(), Some(code), "{command:?}: {}\n{}", out.status, short(&out.stderr));
    out
}

/// Waits for what is sure to come. What doesn't come after all fails then, and keeps no other test.
pub(crate) fn wait_until(what: &str, mut has_come: impl FnMut() -> bool) {
    let given_up_at = Instant::now() + Duration::from_secs(600);
    while !has_come() {
        assert!(Instant::now() < given_up_at, "it never came: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a program that is sure to come.
pub(crate) fn ended(running: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the end of a program", || {
        status = running.try_wait().expect("its state");
        status.is_some()
    });
    status.expect("it has ended")
}

/// A copy to be run. This process must never have it open for writing: what another test starts just then would, too, until it is
/// a program of its own, and the kernel runs nothing that is being written ("text file busy").
pub(crate) fn copy_program(program: &Path, to: &Path) {
    run(Command::new("cp").args([program, to]));
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The object that `--json` prints, whatever was said before it.
pub(crate) fn summary(said: &[u8]) -> serde_json::Value {
    let line = said.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"{"));
    let line = line.unwrap_or_else(|| panic!("no JSON in {}", short(said)));
    serde_json::from_slice(line).unwrap_or_else(|e| panic!("{}: {e}", text(line)))
}

/// A number of a summary: `"errors"`, or `"reread.files"`.
pub(crate) fn figure(summary: &serde_json::Value, name: &str) -> u64 {
    let value = name.split('.').fold(summary, |value, name| &value[name]);
    value.as_u64().unwrap_or_else(|| panic!("{name} is no number in {summary}"))
}

/// What a process has read from disks so far.
pub(crate) fn disk_bytes_read(running: &Child) -> u64 {
    let told = std::fs::read_to_string(format!("/proc/{}/io", running.id())).unwrap_or_default();
    told.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()).unwrap_or(0)
}

/// A process that stands still until this is dropped, so that what is done meanwhile comes at no other moment, however busy
/// the machine is.
pub(crate) struct Held(rustix::process::Pid);

pub(crate) fn hold(running: &Child) -> Held {
    let pid = rustix::process::Pid::from_child(running);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is a child of ours");
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", running.id())).expect("its state");
    // The name, in parentheses, may hold any byte.
    loop {
        let state = state();
        match state.rsplit(')').next().map(str::trim_start) {
            Some(rest) if rest.starts_with('T') => break,
            Some(rest) if rest.starts_with('Z') => panic!("it ended before it could be held"),
            _ => {}
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Held(pid)
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

/// The start of a message, for one that may be long.
pub(crate) fn short(bytes: &[u8]) -> String {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let count = lines.len();
    lines.truncate(12);
    let more = if count > 12 { format!("\n… {} lines more", count - 12) } else { String::new() };
    text(&lines.join(&b'\n')) + &more
}

pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

/// Names of the members of an archive, as GNU tar lists them, sorted. A folder may come twice: once before its files,
/// and once when it is complete, so that its times hold.
pub(crate) fn members(archive: &Path) -> Vec<Vec<u8>> {
    let listed = output(Command::new("tar").args(["--null", "--quoting-style=literal", "-tf"]).arg(archive));
    let mut names: Vec<Vec<u8>> =
        listed.split(|b| *b == b'\n').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    names.sort();
    names.dedup_by(|a, b| a == b && a.ends_with(b"/"));
    names
}

/// True when the long set of tests was asked for (`make test-long`).
pub(crate) fn long() -> bool {
    std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// The seed of all that is random here. A failure is replayed with the same seed.
pub(crate) fn seed() -> u64 {
    static TOLD: Once = Once::new();
    let seed = match std::env::var("ONESWEEP_TEST_SEED") {
        Ok(text) => text.parse().expect("ONESWEEP_TEST_SEED is a number"),
        Err(_) => 1,
    };
    TOLD.call_once(|| say(&format!("seed {seed} (ONESWEEP_TEST_SEED)")));
    seed
}

/// A line on the terminal, which the capturing of test output doesn't hide.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Tests that need root begin with this. Without root they end here, and a line says so; `.ci/run` looks for it.
/// `root_test!(alone)` also keeps all other root tests out while it runs.
macro_rules! root_test {
    () => {
        root_test!(@ $crate::run::beside_others());
    };
    (alone) => {
        root_test!(@ $crate::run::alone());
    };
    (@ $guard:expr) => {
        if let Err(reason) = $crate::image::may_mount() {
            $crate::run::skipped(&reason.to_string());
            return;
        }
        let _machine = $guard;
    };
}
pub(crate) use root_test;

/// Says that the running test is left out, and why.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    say(&format!("skipped: {}: {reason}", thread.name().unwrap_or("a test")));
}

/// The same of what the machine can't do whoever asks, so that no privilege would help.
pub(crate) fn not_here(reason: &str) {
    let thread = std::thread::current();
    say(&format!("not on this machine: {}: {reason}", thread.name().unwrap_or("a test")));
}

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by tests that look at nothing of the machine as a whole.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Held by tests that look at the machine's memory, so that no other test fills it.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}
