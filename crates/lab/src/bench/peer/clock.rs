//! A clock of the day that can be moved under a program while it runs: by libfaketime, which is loaded before its libraries.
//!
//! The kernel's time namespaces don't cover that clock. The clocks by which delays are measured stay as they are.

use std::fs;
use std::path::{Path, PathBuf};

use super::network::Host;
use super::series::said;
use crate::mount;
use crate::scratch::Scratch;

/// That of Debian's package faketime, for programs of many threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
const LIBRARIES: [&str; 2] = ["/usr/lib", "/usr/local/lib"];
const DAY: i64 = 24 * 3600;

/// The clock that programs on one of the hosts see.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) host: Host,
    library: PathBuf,
    /// By how much it is wrong.
    file: PathBuf,
}

fn library() -> Result<PathBuf, String> {
    let folders = |dir: &str| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = LIBRARIES.iter().flat_map(|dir| folders(dir).chain([PathBuf::from(dir)]));
    all.map(|dir| dir.join(LIBRARY)).find(|path| path.exists()).ok_or_else(|| "no libfaketime; try `make deps`".into())
}

impl Clock {
    /// One that is right.
    pub(super) fn new(host: Host, scratch: &Scratch) -> Result<Self, String> {
        let clock = Self { host, library: library()?, file: scratch.file("clock") };
        clock.put(0).map(|()| clock)
    }

    /// What stands before the words of a program that sees it.
    pub(super) fn words(&self) -> Vec<String> {
        let words = ["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1"].map(str::to_owned);
        let load = format!("LD_PRELOAD={}", self.library.display());
        let from = format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display());
        ["env".to_owned(), load, from].into_iter().chain(words).collect()
    }

    /// From now on it is wrong by so many days.
    pub(super) fn put(&self, days: i64) -> Result<(), String> {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{:+}\n", days * DAY)).map_err(said(&new))?;
        // A program never sees half of it.
        fs::rename(&new, &self.file).map_err(said(&self.file))?;
        let words = [self.words(), ["date", "+%s"].map(str::to_owned).into()].concat();
        let [told, right] = [&words[..], &words[words.len() - 2..]].map(seconds);
        let by = told? - right?;
        let is_moved = (by - days * DAY).abs() < 60;
        is_moved.then_some(()).ok_or_else(|| format!("the clock was moved by {} s, and went by {by} s", days * DAY))
    }

    /// Whether a program looks at it.
    pub(super) fn is_seen_by(&self, process: u32) -> Result<(), String> {
        let maps = PathBuf::from(format!("/proc/{process}/maps"));
        let is_there = fs::read_to_string(&maps).map_err(said(&maps))?.contains(LIBRARY);
        is_there
            .then_some(())
            .ok_or_else(|| format!("{} is not loaded by process {process}", Path::new(LIBRARY).display()))
    }
}

fn seconds(words: &[String]) -> Result<i64, String> {
    let output = mount::run(&words[0], &words[1..])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().parse().map_err(|_| format!("date said {text:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn it_is_moved_for_those_who_see_it() {
        if library().is_err() {
            // Past the test harness, which would keep it back.
            let _ = writeln!(std::io::stderr(), "skipped: it_is_moved_for_those_who_see_it: no libfaketime");
            return;
        }
        let scratch = Scratch::new("clock").unwrap();
        let clock = Clock::new(Host::Client, &scratch).unwrap();
        for days in [7300, -7300, 0] {
            clock.put(days).unwrap();
        }
        assert!(clock.is_seen_by(std::process::id()).is_err());
    }
}
