//! FastDu 3.2: a question for the whole after each day's changes, with everything on the disk and nothing in memory.
//!
//! The server runs all the time, and its store lies elsewhere: what is measured is the disk that is asked about. GNU du runs
//! on the same mount after the same preparation, and both must say the same. At the end the server ends, and another starts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onesweep_summary::reading::Directories as _;
use onesweep_summary::volume::Volume;

use super::outcomes::{Cost, Day, Days};
use super::passes;
use super::peers::{DU, PEERS};
use super::served::Served;
use super::stage::{self, Stage};
use crate::age::day;
use crate::age::recipe::Amount;
use crate::bench::images::{Facts, Images};
use crate::bench::run::Subject;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;
use crate::random::Random;
use crate::scratch::Scratch;

const DAYS: u32 = 13;
/// One directory in so many gets a file.
const SCATTERED: u64 = 100;

/// Measures all days of a server of the paper.
pub(super) fn measure(
    subject: &Subject,
    images: &mut Images,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Days, String> {
    let (image, facts) = images.take(subject, interrupt)?;
    let copy = Images::copy(&image)?;
    let (scratch, disk) = (Scratch::new("du")?, stage::disk());
    let mut stage = Stage::up(&disk, &copy.0, subject.fs()?.mount_type(), &scratch)?;
    let mut on = On { stage: &stage, scratch: &scratch, programs, interrupt };
    let measured = on.all(subject, &facts);
    let ended = stage.end();
    let _ = fs::remove_dir_all(scratch.file("store"));
    let mut days = measured?;
    ended?;
    if subject.fs == "ext4" {
        days.pass_ms = Some(passes::over_inode_tables(&copy.0, &disk)?);
    }
    Ok(days)
}

struct On<'a> {
    stage: &'a Stage,
    scratch: &'a Scratch,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
}

impl On<'_> {
    fn all(&mut self, subject: &Subject, facts: &Facts) -> Result<Days, String> {
        // Small ones are there to try.
        if subject.scale >= 1.0 {
            settle(&self.stage.tree, self.interrupt)?;
        }
        let (served, first) = self.started()?;
        eprintln!("  first harvest: {:.2} s of disk", first.busy_ms / 1000.0);
        let walks = self.walks()?;
        let amount = Amount { seed: subject.seed, scale: subject.scale, steps: None, image_bytes: facts.image_bytes };
        let mut days = Vec::new();
        for number in 1..=DAYS {
            let done = day::apply(subject.recipe()?, &amount, number, &self.stage.tree, self.interrupt)?;
            days.push(self.both(&served, (number, done.operations))?);
        }
        let directories = directories(&self.stage.tree)?;
        let operations = scatter(&directories, subject.seed)?;
        let scattered = self.both(&served, (DAYS + 1, operations))?;
        served.stop(self.interrupt)?;
        let (served, restart) = self.started()?;
        eprintln!("  another start: {:.2} s of disk", restart.busy_ms / 1000.0);
        // Not cold: what is asked is whether it is right.
        self.both(&served, (DAYS + 2, 0))?;
        served.stop(self.interrupt)?;
        Ok(Days {
            image_sha256: facts.image_sha256.clone(),
            files: facts.files,
            directories: directories.len() as u64,
            first,
            walks,
            days,
            scattered,
            restart: Some(restart),
            pass_ms: None,
        })
    }

    /// A server from cold, with what its start costs the disk.
    fn started(&self) -> Result<(Served, Cost), String> {
        self.stage.cold()?;
        let served = Served::start(self.programs, self.scratch, &self.stage.tree)?;
        let cost = self.stage.books(served.started_in.as_secs_f64())?;
        Ok((served, cost))
    }

    /// What others cost it. One that fails is left out.
    fn walks(&self) -> Result<BTreeMap<String, Cost>, String> {
        let index = self.scratch.file("index");
        let mut walks = BTreeMap::new();
        for peer in PEERS {
            let Some(argv) = peer.argv(self.programs, &self.stage.tree, &index) else { continue };
            match self.stage.cost(&argv, self.interrupt) {
                Ok((cost, _)) => {
                    eprintln!("  {}: {:.2} s of disk", peer.name, cost.busy_ms / 1000.0);
                    walks.insert(peer.name.to_owned(), cost);
                }
                Err(complaint) => {
                    self.interrupt.check()?;
                    eprintln!("  {complaint}");
                }
            }
        }
        Ok(walks)
    }

    /// Asks the server and du, who must agree.
    fn both(&self, served: &Served, (day, operations): (u32, u64)) -> Result<Day, String> {
        let (tree, interrupt) = (&self.stage.tree, self.interrupt);
        let (ours, our_total) = self.stage.cost(&served.question(tree), interrupt)?;
        let argv = DU.argv(self.programs, tree, Path::new("")).ok_or("no du")?;
        let (du, total) = self.stage.cost(&argv, interrupt)?;
        if our_total != total {
            return Err(format!("onesweep says {our_total}, du {total}"));
        }
        eprintln!("  day {day}: {:.2} s of disk, du {:.2} s", ours.busy_ms / 1000.0, du.busy_ms / 1000.0);
        Ok(Day { day, operations, ours, du })
    }
}

/// What was written within minutes is read once more when its blocks have settled: the first days would pay for how lately the
/// image was made, and no server's files are all so new.
pub(super) fn settle(tree: &Path, interrupt: &Interrupt) -> Result<(), String> {
    let volume = Volume::of(tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    let settled = Duration::from_secs(volume.settling_seconds().unsigned_abs()) + newest_change(tree)?;
    loop {
        interrupt.check()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(left) = settled.checked_sub(now).filter(|left| !left.is_zero()) else { return Ok(()) };
        thread::sleep(left.min(Duration::from_secs(1)));
    }
}

fn directories(tree: &Path) -> Result<Vec<PathBuf>, String> {
    let found = mount::run("find", [tree.as_os_str(), "-type".as_ref(), "d".as_ref()])?.stdout;
    let mut paths: Vec<PathBuf> = String::from_utf8_lossy(&found).lines().map(PathBuf::from).collect();
    paths.sort();
    Ok(paths)
}

/// Since 1970.
fn newest_change(tree: &Path) -> Result<Duration, String> {
    let found = mount::run("find", [tree.as_os_str(), "-printf".as_ref(), "%C@\n".as_ref()])?.stdout;
    let seconds = String::from_utf8_lossy(&found).lines().filter_map(|line| line.parse().ok()).fold(0.0, f64::max);
    Ok(Duration::from_secs_f64(seconds))
}

/// Makes a file in every hundredth directory, of those in random order.
fn scatter(directories: &[PathBuf], seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let mut made = 0;
    for directory in directories {
        if random.below(SCATTERED) == 0 {
            let path = directory.join("scattered");
            fs::write(&path, "x").map_err(|error| format!("{}: {error}", path.display()))?;
            made += 1;
        }
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_newest_change_is_that_of_any_entry() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("directory");
        fs::create_dir(&below).unwrap();
        std::os::unix::fs::symlink("nowhere", below.join("link")).unwrap();
        fs::write(below.join("file"), "").unwrap();
        let changed = |path: &Path| {
            use std::os::unix::fs::MetadataExt as _;
            let told = fs::symlink_metadata(path).unwrap();
            told.ctime() as f64 + told.ctime_nsec() as f64 / 1e9
        };
        // What was changed last is neither the top nor a directory.
        while changed(&below.join("file")) <= changed(&below) {
            fs::set_permissions(below.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let newest = newest_change(folder.path()).unwrap().as_secs_f64();
        assert!((newest - changed(&below.join("file"))).abs() < 1e-6, "{newest}");
        assert!(newest_change(&folder.path().join("missing")).is_err());
    }
}
