//! FastDu 3.2: two file servers at a tenth of the paper's table 1, and 13 days of changes.
//!
//! As in the paper, each file is made with 8 KB and gets its size and time by `truncate` and `utime`, so that large files
//! take no room. The mean sizes follow from table 1 (104 KB and 4.4 MB); that they are log-normal is an assumption, as
//! are the files for each directory (evenly random shares), their ages (up to five years, half of them under eight
//! months), and what changes: each day a thousandth of the directories, any as likely as any other, with one to five
//! changes in each, of which six in ten give a file a new size and time, three add one and one removes one. On day 11
//! four projects with 8 % new files in 8 % new directories come to server A.

use std::collections::{BTreeSet, VecDeque};

use super::log_normal;
use crate::age::recipe::{Amount, Op, Steps};
use crate::random::Random;

const DAYS: u32 = 13;
const FILE_BYTES: u64 = 8192;

/// The first snapshot: 2010-09-01, 3 o'clock.
const FIRST_DAY_S: u64 = 1_283_310_000;
const DAY_S: u64 = 86_400;
const OLDEST_S: f64 = 5.0 * 365.0 * 86_400.0;

const CHANGED_DIRS: f64 = 0.001;
const IMPORT: f64 = 0.08;
const PROJECTS: usize = 4;

/// Directories whose files are handed out at once.
const BATCH: usize = 500;

/// A server.
pub(crate) struct Server {
    files: u64,
    dirs: u64,
    median: f64,
    deviation: f64,
    import_day: Option<u32>,
}

pub(crate) const A: Server =
    Server { files: 1_630_000, dirs: 140_000, median: 4096.0, deviation: 2.65, import_day: Some(11) };
pub(crate) const B: Server =
    Server { files: 340_000, dirs: 30_000, median: 65_536.0, deviation: 3.05, import_day: None };

/// No file is larger: the least of what the file systems take.
const SIZE_MOST: u64 = 1 << 40;

struct Dir {
    path: String,
    /// The numbers in the names of its files.
    files: Vec<u32>,
    next: u32,
}

pub(crate) struct Days {
    random: Random,
    server: &'static Server,
    days: u32,
    day: u32,
    dirs: Vec<Dir>,
    /// How many there are to be on this day.
    dirs_wanted: usize,
    /// Files that are still to come into those of the wanted directories that aren't there yet.
    files_left: u64,
    /// Below which new directories may lie: from there on, all.
    parents_from: usize,
    scaled: (u64, u64),
}

impl Days {
    pub(crate) fn new(amount: &Amount, server: &'static Server) -> Self {
        let (files, dirs) = (amount.of(server.files), amount.of(server.dirs));
        Self {
            random: amount.random(),
            server,
            days: amount.steps_or(DAYS),
            day: 0,
            dirs: Vec::new(),
            dirs_wanted: dirs as usize,
            files_left: files,
            parents_from: 0,
            scaled: (files, dirs),
        }
    }

    /// The moment of this day's snapshot.
    fn now(&self) -> u64 {
        FIRST_DAY_S + u64::from(self.day) * DAY_S
    }

    /// Some moment since yesterday's snapshot, or of the years before the first one.
    fn time(&mut self) -> u64 {
        if self.day > 0 {
            return self.now() - self.random.below(DAY_S);
        }
        let (age, again, third) = (self.random.unit(), self.random.unit(), self.random.unit());
        self.now() - (OLDEST_S * age * again * third) as u64
    }

    fn attributes(&mut self, path: String, out: &mut VecDeque<Op>) {
        let size = log_normal(&mut self.random, self.server.median, self.server.deviation, 1, SIZE_MOST);
        out.push_back(Op::Resize(path.clone(), size));
        let time = self.time();
        out.push_back(Op::Time(path, time));
    }

    fn add_file(&mut self, dir: usize, out: &mut VecDeque<Op>) {
        let dir = &mut self.dirs[dir];
        let path = format!("{}/f{}", dir.path, dir.next);
        dir.files.push(dir.next);
        dir.next += 1;
        out.push_back(Op::Create(path.clone(), FILE_BYTES));
        self.attributes(path, out);
    }

    /// A directory with its share of the files that are left.
    fn add_dir(&mut self, out: &mut VecDeque<Op>) {
        let number = self.dirs.len();
        let among = (number - self.parents_from).min(self.scaled.1.div_ceil(50) as usize) as u64;
        let path = if number < self.parents_from + PROJECTS {
            format!("d{number}")
        } else {
            let parent = &self.dirs[self.parents_from + self.random.below(among) as usize];
            format!("{}/d{number}", parent.path)
        };
        out.push_back(Op::Dir(path.clone()));
        self.dirs.push(Dir { path, files: Vec::new(), next: 0 });
        let dirs_left = (self.dirs_wanted - number) as u64;
        let files = match dirs_left {
            1 => self.files_left,
            // The product of two even numbers is a quarter in the mean.
            _ => {
                let share = 4.0 * self.random.unit() * self.random.unit();
                ((self.files_left as f64 / dirs_left as f64 * share).round() as u64).min(self.files_left)
            }
        };
        self.files_left -= files;
        for _ in 0..files {
            self.add_file(number, out);
        }
    }

    /// The day's changes to what is there.
    fn change(&mut self, out: &mut VecDeque<Op>) {
        let dirs = self.dirs.len() as u64;
        let wanted = ((dirs as f64 * CHANGED_DIRS).round() as usize).max(1);
        let mut chosen = BTreeSet::new();
        while chosen.len() < wanted {
            chosen.insert(self.random.below(dirs) as usize);
        }
        for dir in chosen {
            for _ in 0..1 + self.random.below(5) {
                self.change_in(dir, out);
            }
        }
    }

    fn change_in(&mut self, dir: usize, out: &mut VecDeque<Op>) {
        let kind = self.random.below(10);
        let files = self.dirs[dir].files.len() as u64;
        if files == 0 || (6..9).contains(&kind) {
            return self.add_file(dir, out);
        }
        let victim = self.random.below(files) as usize;
        let path = format!("{}/f{}", self.dirs[dir].path, self.dirs[dir].files[victim]);
        if kind < 6 {
            self.attributes(path, out);
        } else {
            self.dirs[dir].files.swap_remove(victim);
            out.push_back(Op::Remove(path));
        }
    }

    /// Makes room for the projects that come on this day.
    fn import(&mut self) {
        self.parents_from = self.dirs.len();
        self.dirs_wanted = self.dirs.len() + ((self.scaled.1 as f64 * IMPORT).round() as usize).max(1);
        self.files_left = (self.scaled.0 as f64 * IMPORT).round() as u64;
    }
}

impl Steps for Days {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        for _ in 0..BATCH {
            if self.dirs.len() == self.dirs_wanted {
                break;
            }
            self.add_dir(out);
        }
        if self.dirs.len() < self.dirs_wanted {
            return true;
        }
        out.push_back(Op::Sync);
        if self.day == self.days {
            return false;
        }
        self.day += 1;
        out.push_back(Op::Day(self.day));
        self.change(out);
        if self.server.import_day == Some(self.day) {
            self.import();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::tree::Tree;

    fn ops(server: &'static Server, scale: f64) -> Vec<Op> {
        let mut ops = VecDeque::new();
        let mut days = Days::new(&Amount { seed: 1, scale, steps: None, image_bytes: 0 }, server);
        while days.more(&mut ops) {}
        ops.into()
    }

    #[test]
    fn the_first_day_is_that_of_the_paper() {
        for (server, mean) in [(&A, 104e3), (&B, 4.44e6)] {
            let ops = ops(server, 0.1);
            let (mut dirs, mut tree) = (0, Tree::default());
            for op in ops.iter().take_while(|op| !matches!(op, Op::Day(_))) {
                dirs += u64::from(matches!(op, Op::Dir(_)));
                tree.follow(op);
            }
            assert_eq!((tree.files(), dirs), (server.files / 10, server.dirs / 10));
            let found = tree.bytes() as f64 / tree.files() as f64;
            assert!((0.6..1.6).contains(&(found / mean)), "{found}, should be about {mean}");
        }
    }

    #[test]
    fn a_day_changes_a_thousandth_of_the_directories() {
        let ops = ops(&A, 0.1);
        let days: Vec<&[Op]> = ops.split(|op| matches!(op, Op::Day(_))).collect();
        assert_eq!(days.len(), 14);
        for (day, ops) in days.iter().enumerate().skip(1) {
            let new = ops.iter().filter(|op| matches!(op, Op::Create(..))).count();
            if day == 11 {
                assert!((13_040..13_100).contains(&new), "{new}");
                assert_eq!(ops.iter().filter(|op| matches!(op, Op::Dir(_))).count(), 1120);
                continue;
            }
            let mut changed = BTreeSet::new();
            for op in *ops {
                if let Op::Create(path, _) | Op::Resize(path, _) | Op::Remove(path) = op {
                    changed.insert(path.rsplit_once('/').unwrap().0);
                }
            }
            assert!((14..=16).contains(&changed.len()), "day {day}: {}", changed.len());
        }
    }
}
