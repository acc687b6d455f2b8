//! A program through a view that stands already, with everything in memory: once, and once more when the kernel has kept what the
//! view has told it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onesweep_sys::process;

use super::pipe::{self, Ended};
use crate::interrupt::Interrupt;
use crate::mount;

/// How long it may take until the tree is shown.
const PATIENCE: Duration = Duration::from_secs(60);

/// What stands between the words of `onesweep view` and the program.
const BETWEEN: &str = "--";

/// Runs the program of `argv`, which begins with `onesweep view` and its words, twice in one view at `view`, behind the words of
/// `by_whom`, since a user's view is his alone. What it writes into `copies` goes between the two. Gives how it ended, and how long it
/// took the second time.
pub(crate) fn run_twice(
    argv: &[String],
    by_whom: &[String],
    view: &Path,
    copies: &Path,
    interrupt: &Interrupt,
) -> Result<(Ended, f64), String> {
    let between = argv.iter().position(|word| word == BETWEEN).ok_or("no program through the view")?;
    let (words, program) = (&argv[..between], &[by_whom, &argv[between + 1..]].concat()[..]);
    let shown = Shown::begin(words, view, interrupt)?;
    let ended = twice(program, copies, interrupt);
    shown.end()?;
    ended
}

/// The same of a program without a view.
pub(crate) fn twice(program: &[String], copies: &Path, interrupt: &Interrupt) -> Result<(Ended, f64), String> {
    let first = pipe::run(program, interrupt)?;
    empty(copies)?;
    let again = pipe::run(program, interrupt)?;
    match again.code == first.code {
        true => Ok((first, again.wall_s)),
        false => Err(format!("{} ended with {} and then with {}", program[0], first.code, again.code)),
    }
}

fn empty(dir: &Path) -> Result<(), String> {
    let said = |error| format!("{}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(said)? {
        let entry = entry.map_err(said)?;
        let is_dir = entry.file_type().map_err(said)?.is_dir();
        let removed = if is_dir { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        removed.map_err(said)?;
    }
    Ok(())
}

/// A view that stands until this goes.
struct Shown {
    daemon: Child,
}

impl Shown {
    fn begin(argv: &[String], dir: &Path, interrupt: &Interrupt) -> Result<Self, String> {
        let [program, words @ ..] = argv else { return Err("no view".into()) };
        let mut command = Command::new(program);
        let command = command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shown = Self { daemon: command.spawn().map_err(|error| format!("can't run {program}: {error}"))? };
        let began = Instant::now();
        while !mount::is_mounted(dir) {
            interrupt.check()?;
            if let Some(status) = shown.daemon.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("{program} view ended: {status}"));
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{}: nothing is shown", dir.display()));
            }
            // Nobody tells when something is mounted; it isn't a part of what is measured.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(shown)
    }

    fn end(mut self) -> Result<(), String> {
        let status = self.stop().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the view ended: {status}")) }
    }

    fn stop(&mut self) -> std::io::Result<std::process::ExitStatus> {
        if let Some(status) = self.daemon.try_wait()? {
            return Ok(status);
        }
        process::terminate(self.daemon.id())?;
        self.daemon.wait()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_shows_nothing_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let run =
            |argv: &[&str]| run_twice(&words(argv), &[], dir.path(), dir.path(), &Interrupt::default()).unwrap_err();
        assert!(run(&["true", "--", "true"]).starts_with("true view ended: "));
        assert!(run(&["/no/such/program", "--", "true"]).starts_with("can't run /no/such/program: "));
        assert_eq!(run(&["true"]), "no program through the view");
    }

    /// By a stand-in that shows a tree with a bind mount.
    #[test]
    fn a_program_runs_twice_in_one_view() {
        if onesweep_sys::user::effective_uid() != 0 {
            let _ = writeln!(std::io::stderr(), "skipped: a_program_runs_twice_in_one_view: no mounts here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let [tree, view, copies, began] = ["tree", "view", "copies", "began"].map(|name| dir.path().join(name));
        for dir in [&tree, &view, &copies] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(tree.join("file"), "bytes").unwrap();
        // A signal may come as soon as it is mounted.
        let shows =
            "trap 'umount \"$2\"; exit' TERM; echo >> \"$3\"; mount --bind \"$1\" \"$2\"; while :; do sleep 0.01; done";
        // It fails where there is a copy already.
        let copy = "test ! -e \"$2\"/file && cp \"$1\"/file \"$2\"";
        let argv = |program: &str| {
            let text = |path: &Path| path.display().to_string();
            let shown = ["sh".into(), "-c".into(), shows.into(), "sh".into(), text(&tree), text(&view), text(&began)];
            let run = ["--".into(), "sh".into(), "-c".into(), program.into(), "sh".into(), text(&view), text(&copies)];
            shown.into_iter().chain(run).collect::<Vec<String>>()
        };
        let by_whom = words(&["env", "BY_WHOM=user"]);
        let by_user = format!("test \"$BY_WHOM\" = user && {copy}");
        let (ended, again_s) = run_twice(&argv(&by_user), &by_whom, &view, &copies, &Interrupt::default()).unwrap();
        assert_eq!((ended.code, ended.complaint.as_str()), (0, ""));
        assert!(ended.wall_s > 0.0 && again_s > 0.0);
        assert_eq!(fs::read(copies.join("file")).unwrap(), b"bytes");
        assert_eq!(fs::read_to_string(&began).unwrap().lines().count(), 1, "one view");
        assert!(!mount::is_mounted(&view));
        empty(&copies).unwrap();
        // Once it ends so, and once otherwise.
        let fickle = format!("test -e \"$1\"/../fell && exit 3; touch \"$1\"/../fell; {copy}");
        let error = run_twice(&argv(&fickle), &[], &view, &copies, &Interrupt::default()).unwrap_err();
        assert_eq!(error, "sh ended with 0 and then with 3");
        assert!(!mount::is_mounted(&view));
    }

    #[test]
    fn a_program_runs_twice_without_a_view() {
        let dir = tempfile::tempdir().unwrap();
        let copies = dir.path().join("copies");
        fs::create_dir(&copies).unwrap();
        let program = |what: &str| words(&["sh", "-c", what, "sh", &copies.display().to_string()]);
        let run = |what: &str| twice(&program(what), &copies, &Interrupt::default());
        // It fails where there is a copy already.
        let (ended, again_s) = run("test ! -e \"$1\"/file && touch \"$1\"/file").unwrap();
        assert!(ended.code == 0 && ended.wall_s > 0.0 && again_s > 0.0);
        let error = run("test -e \"$1\"/../fell && exit 3; touch \"$1\"/../fell").unwrap_err();
        assert_eq!(error, "sh ended with 0 and then with 3");
    }

    #[test]
    fn copies_go_between() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/c"), "").unwrap();
        fs::write(dir.path().join("d"), "").unwrap();
        empty(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(empty(&dir.path().join("none")).is_err());
    }
}
