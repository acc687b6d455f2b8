//! A summary that a command makes: it reads the entries of one directory as lines of JSON, and writes one object of numbers.

use std::{
    io,
    num::NonZero,
    sync::{Condvar, LazyLock, Mutex, PoisonError},
    thread,
    time::Duration,
};

use onesweep_sys::{
    confined::{Confined, Ended},
    files::Stat,
};
use serde::Serialize;

use super::{
    keys::Classes,
    tally::{Merge, Rule, Tally},
};
use crate::service::protocol::Name;

/// Bytes that a command may say of a directory.
const SAID_MAX: usize = 1 << 20;
/// Bytes of a key.
const KEY_MAX: usize = 255;
/// Numbers that are summed are at most so large, up or down: 2^53, as in all JSON. A thousand directories of such are no overflow yet.
const SUMMED_MAX: u64 = 1 << 53;

/// A command, and who it runs as.
#[derive(Debug)]
pub struct Command {
    words: Vec<String>,
    /// `None` where another process runs it.
    confined: Option<Confined>,
    /// Numbers are counted by their classes.
    classes: Option<Classes>,
    limit: Duration,
    /// Why it failed the last time that it did.
    failed: Mutex<Option<String>>,
}

/// As many commands run at the same time as there are processors: more would make each other late.
static TURNS: LazyLock<Turns> = LazyLock::new(|| Turns {
    left: Mutex::new(thread::available_parallelism().map_or(1, NonZero::get)),
    given_back: Condvar::new(),
});

struct Turns {
    left: Mutex<usize>,
    given_back: Condvar,
}

/// Given back when it is dropped.
struct Turn<'a>(&'a Turns);

impl Turns {
    fn take(&self) -> Turn<'_> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = self.given_back.wait_while(left, |left| *left == 0).unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}

/// A line that a command reads.
#[derive(Serialize)]
struct Line {
    /// In its directory, which itself is `.`: what a file adds must not depend on the names of the directories above, for nobody is
    /// told when these change.
    path: Name,
    stat: Facts,
}

#[derive(Serialize)]
struct Facts {
    ino: u64,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    mtime: i64,
    ctime: i64,
    rdev: u64,
}

/// A line of one entry.
pub(super) fn line(name: &[u8], stat: &Stat) -> Vec<u8> {
    let Stat { ino, mode, nlink, uid, gid, size, blocks, rdev, .. } = *stat;
    let (mtime, ctime) = (stat.mtime.secs, stat.ctime.secs);
    let path = Name::of(if name.is_empty() { b"." } else { name });
    let line = Line { path, stat: Facts { ino, mode, nlink, uid, gid, size, blocks, mtime, ctime, rdev } };
    // Numbers and names are always JSON.
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

impl Command {
    /// Runs as this user and group, without other groups and without a network.
    pub fn new(
        words: Vec<String>,
        (uid, gid): (u32, u32),
        classes: Option<Classes>,
        limit: Duration,
    ) -> io::Result<Command> {
        Ok(Command { confined: Some(Confined::new(uid, gid)?), ..Command::elsewhere(words, classes, limit) })
    }

    /// Run by another process, which tells what it says.
    pub fn elsewhere(words: Vec<String>, classes: Option<Classes>, limit: Duration) -> Command {
        Command { words, confined: None, classes, limit, failed: Mutex::default() }
    }

    /// Why it failed the last time that it did, as far as this process was told.
    pub fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It isn't known what it says of a directory.
    pub(crate) fn note_failure(&self, why: &str) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    /// What it says of a directory, or why that isn't known.
    pub(super) fn run(&self, lines: &[u8], rule: Rule) -> Result<Tally, String> {
        let confined = self.confined.as_ref().ok_or("it isn't run by this process")?;
        let _turn = TURNS.take();
        let ended = confined.run(&self.words, lines, self.limit, SAID_MAX);
        match ended.map_err(|error| format!("it can't be started: {error}"))? {
            Ended::Said(said) => self.tally(&said, rule),
            Ended::Failed(how) => Err(how),
            Ended::Late => Err(format!("it took longer than {} s", self.limit.as_secs_f32())),
            Ended::TooMuch => Err(format!("it said more than {SAID_MAX} bytes")),
        }
    }

    fn tally(&self, said: &[u8], rule: Rule) -> Result<Tally, String> {
        let said: serde_json::Value =
            serde_json::from_slice(said).map_err(|error| format!("it didn't say one JSON object: {error}"))?;
        let numbers = said.as_object().ok_or("it didn't say one JSON object")?;
        let mut tally = Tally::default();
        for (key, number) in numbers {
            let number = number.as_i64().ok_or_else(|| format!("{key:?}: {number} is no whole number"))?;
            if key.len() > KEY_MAX {
                return Err(format!("a key has more than {KEY_MAX} bytes"));
            }
            match &self.classes {
                None if rule.merge == Merge::Sum && number.unsigned_abs() > SUMMED_MAX => {
                    return Err(format!("{key:?}: {number} is too large to be summed: {SUMMED_MAX} at most"));
                }
                None => tally.add(key.as_bytes(), [number, 0, 0], rule.merge),
                Some(classes) => {
                    let key = format!("{key} {}", classes.of(number));
                    tally.add(key.trim_start().as_bytes(), [1, 0, 0], Merge::Sum);
                }
            }
        }
        tally.bound(rule);
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn turns_are_bounded_and_come_back() {
        let turns = Turns { left: Mutex::new(3), given_back: Condvar::new() };
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = turns.take();
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
        assert_eq!(*turns.left.lock().expect("no panic"), 3);
    }

    /// Two of them would go over the end of what is added.
    #[test]
    fn a_number_that_is_too_large_to_be_summed_is_refused() {
        let rule = |merge| Rule { merge, limit: 10 };
        let (words, limit) = (Vec::new(), Duration::ZERO);
        let command = Command { words, confined: None, classes: None, limit, failed: Mutex::default() };
        let said = |number: i64, merge| command.tally(format!("{{\"k\": {number}}}").as_bytes(), rule(merge));
        let most = i64::try_from(SUMMED_MAX).expect("it fits");
        for number in [most, -most] {
            assert!(said(number, Merge::Sum).is_ok());
        }
        for number in [most + 1, -most - 1, i64::MAX, i64::MIN] {
            let error = said(number, Merge::Sum).expect_err("it is refused");
            assert!(error.contains(&format!("{number} is too large to be summed")), "{error}");
            assert!(said(number, Merge::Max).is_ok());
        }
    }

    #[test]
    fn a_line_is_json_whatever_the_name() {
        let stat = onesweep_sys::files::statx_at(onesweep_sys::files::CURRENT_DIR, "Cargo.toml", true).expect("a file");
        for (name, path) in [
            (&b""[..], serde_json::json!(".")),
            (b"a\n\"", serde_json::json!("a\n\"")),
            (b"\xff", serde_json::json!([255])),
        ] {
            let line = line(name, &stat);
            assert!(line.ends_with(b"\n") && line.iter().filter(|&&byte| byte == b'\n').count() == 1);
            let told: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
            assert_eq!((&told["path"], &told["stat"]["size"]), (&path, &stat.size.into()));
        }
    }
}
