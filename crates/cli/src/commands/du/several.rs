//! Paths that are walked together, for single files or for what counts once over all of them.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    Du,
    single::{Line, Rules, Walker},
};
use crate::{
    message,
    report::{Failure, SOME_FAILED},
};

/// Tells the lines of a path, and adds it to the total; with the exit code so far.
pub(super) type AddUp<'a> = dyn FnMut(&[Line], u8) -> Result<(), Failure> + 'a;

impl Du<'_> {
    /// Walks all paths, since things may lie in more than one of them, or of what is mounted in one; false when that isn't done, for the sake of `--cached` or
    /// `--within`, so that each has to be told by itself.
    pub(super) fn once_over_all(
        &mut self,
        paths: &[PathBuf],
        rules: &Rules,
        add_up: &mut AddUp<'_>,
    ) -> Result<bool, Failure> {
        let in_each = match paths {
            [_] => "what has names in more than one of the places that are mounted in it counts in each",
            _ => "what lies in more than one of the paths counts in each",
        };
        // Where nothing is stored, all is walked anyway.
        if self.args.cached && self.client.is_some() && !self.has_walked {
            self.said.push(format!("{in_each}: with --cached nothing is read to find out what that is"));
            return Ok(false);
        }
        let until = self.max_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        if self.by_files(paths, rules, until, add_up)? {
            return Ok(true);
        }
        self.code = SOME_FAILED;
        self.said.push(format!("time is up: {in_each}"));
        // All that was to be waited has been waited.
        self.max_ms = Some(0);
        Ok(false)
    }

    /// Walks all paths; false, and nothing is told, when time is up first.
    pub(super) fn by_files(
        &mut self,
        paths: &[PathBuf],
        rules: &Rules,
        until: Option<Instant>,
        add_up: &mut AddUp<'_>,
    ) -> Result<bool, Failure> {
        let (code, said) = (self.code, self.said.len());
        let mut walker = Walker::new(rules, paths.len(), until);
        let mut waiting = Vec::new();
        for path in paths {
            let name = message::path_text(path);
            if self.args.cached {
                self.said.push(format!("{name}: walked, for nothing is stored of single files"));
            } else if self.args.verbose {
                self.said.push(format!("{name}: walked, for the sake of single files"));
            }
            if until.is_none() {
                self.say();
            }
            self.write_before(path)?;
            let mut complaints = Vec::new();
            let walked = walker.walk(path, &mut |path, error: &io::Error| {
                complaints.push(message::of_other(path, "read it", error));
            });
            if !complaints.is_empty() {
                self.code = SOME_FAILED;
                self.said.extend(complaints);
            }
            let lines = match walked {
                Ok(Some(lines)) => lines,
                Ok(None) => {
                    self.code = code;
                    self.said.truncate(said);
                    return Ok(false);
                }
                Err(error) => {
                    self.complain(path, "look at it", &error);
                    Vec::new()
                }
            };
            if until.is_some() {
                waiting.push(lines);
                continue;
            }
            self.say();
            add_up(&lines, self.code)?;
        }
        self.say();
        waiting.iter().try_for_each(|lines| add_up(lines, self.code))?;
        Ok(true)
    }

    /// With `--sync`, before something is walked or looked at.
    pub(super) fn write_before(&mut self, path: &Path) -> Result<(), Failure> {
        if !self.args.sync {
            return Ok(());
        }
        let with_mounts = !self.args.one_file_system && !self.args.freed;
        self.written.before(path, with_mounts).map_err(|error| Failure::io(path, "have everything written", &error))
    }
}
