//! How old what is stored becomes, where directories change all the time and nobody asks for what is exact.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onesweep_summary::service::client::Client;
use onesweep_summary::service::protocol::Question;
use onesweep_summary::summaries::Freshness;

use super::outcomes::Ages;
use super::peers::{DU, first_word};
use super::served::Served;
use super::volume::{Files, Volume};
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const DIRECTORIES: f64 = 20_000.0;
/// After which all that has changed is harvested.
const TIMEOUT_S: u64 = 10;
const LENGTH: Duration = Duration::from_secs(180);
/// Between two changes, each of another directory.
const CHANGE_EVERY: Duration = Duration::from_millis(5);
/// Directories are met in an order that has nothing to do with their places.
const STRIDE: usize = 7_919;
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The root is asked for what is stored of it while its directories change.
pub(super) fn measure(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Ages, String> {
    let directories = ((DIRECTORIES * scale) as u64).max(100);
    let volume = Volume::new("ext4", directories * 2)?;
    let paths = volume.fill(directories, Files::Seldom, interrupt)?;
    let timeout = format!("{TIMEOUT_S}s");
    let served = Served::start_with(programs, &volume.scratch, &volume.tree, &["--harvest-after", &timeout])?;
    let length = LENGTH.mul_f64(scale.clamp(0.1, 1.0));
    let ended = AtomicBool::new(false);
    let (changes, ages) = thread::scope(|scope| {
        let writer = scope.spawn(|| change(&paths, &ended));
        let ages = ask(&served, &volume, length, interrupt);
        ended.store(true, Ordering::Relaxed);
        let changes = writer.join().map_err(|_| "the writer failed".to_owned())?;
        Ok::<_, String>((changes?, ages?))
    })?;
    let ours = pipe::run(&served.question(&volume.tree), interrupt)?;
    let du = pipe::run(&DU.argv(programs, &volume.tree, "".as_ref()).ok_or("no du")?, interrupt)?;
    let (ours, du) = (first_word(&ours.output), first_word(&du.output));
    if ours != du {
        return Err(format!("behind the changes onesweep says {ours}, du {du}"));
    }
    served.stop(interrupt)?;
    volume.end()?;
    let greatest_s = ages.iter().copied().max().ok_or("nothing was asked")?;
    Ok(Ages {
        directories,
        changes,
        seconds: length.as_secs_f64(),
        timeout_s: TIMEOUT_S,
        asked: ages.len() as u64,
        greatest_s,
    })
}

/// Writes into one directory after the other until that is over; how often.
fn change(paths: &[PathBuf], ended: &AtomicBool) -> Result<u64, String> {
    let mut changes = 0;
    while !ended.load(Ordering::Relaxed) {
        let path = paths[(changes as usize).wrapping_mul(STRIDE) % paths.len()].join("changed");
        fs::write(&path, vec![1; 1 + changes as usize % 8192])
            .map_err(|error| format!("{}: {error}", path.display()))?;
        changes += 1;
        thread::sleep(CHANGE_EVERY);
    }
    Ok(changes)
}

fn ask(served: &Served, volume: &Volume, length: Duration, interrupt: &Interrupt) -> Result<Vec<u64>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", served.socket().display());
    let directory = fs::File::open(&volume.tree).map_err(said)?;
    let mut client = Client::connect(served.socket()).map_err(said)?;
    let question = Question { freshness: Freshness::Cached, ..Question::plain() };
    let (began, mut ages) = (Instant::now(), Vec::new());
    while began.elapsed() < length {
        interrupt.check()?;
        match client.ask(directory.as_fd(), &question, |_| {}).map_err(said)? {
            Ok(head) => ages.push(head.age.ok_or("an answer doesn't say how old it is")?),
            Err(refusal) => return Err(format!("refused: {refusal:?}")),
        }
        thread::sleep(ASK_EVERY);
    }
    Ok(ages)
}
