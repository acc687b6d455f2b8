//! What the page shows of a directory with very many in it, and what others wait for that.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onesweep_summary::service::client::Client;
use onesweep_summary::service::listing::{LARGEST_MAX, Largest};
use onesweep_summary::service::protocol::Question;

use super::outcomes::Wide;
use super::served::Served;
use super::still::{ask, scaled};
use super::volume::Volume;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const DIRECTORIES: f64 = 1_000_000.0;
const LOOKS: usize = 11;
/// Questions of somebody else where nobody looks.
const QUESTIONS: usize = 1000;
/// From one question of that one to the next.
const PAUSE: Duration = Duration::from_millis(1);

/// A million directories in one: how long a look takes, and how long somebody else waits who asks for another one meanwhile.
pub(super) fn measure(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Wide, String> {
    let directories = scaled(DIRECTORIES, scale);
    let volume = Volume::new("ext4", directories)?;
    let (wide, other) = (volume.tree.join("wide"), volume.tree.join("other"));
    let made = |path: &Path| fs::create_dir(path).map_err(|error| format!("{}: {error}", path.display()));
    made(&other)?;
    made(&wide)?;
    for number in 0..directories {
        if number % 1000 == 0 {
            interrupt.check()?;
        }
        made(&wide.join(format!("d{number}")))?;
    }
    let served = Served::start(programs, &volume.scratch, &volume.tree)?;
    let micros = |time: &Duration| time.as_secs_f64() * 1e6;
    let alone_us = ask(served.socket(), &other, QUESTIONS)?.iter().map(micros).collect();
    let are_over = AtomicBool::new(false);
    let (looks_ms, beside_us) = thread::scope(|scope| {
        let beside = scope.spawn(|| -> Result<Vec<f64>, String> {
            let mut times = Vec::new();
            while !are_over.load(Ordering::Relaxed) {
                times.extend(ask(served.socket(), &other, 1)?.iter().map(micros));
                thread::sleep(PAUSE);
            }
            Ok(times)
        });
        let looks = looks(served.socket(), &wide, LOOKS);
        are_over.store(true, Ordering::Relaxed);
        let beside = beside.join().map_err(|_| "a thread failed")?;
        Ok::<_, String>((looks?, beside?))
    })?;
    served.stop(interrupt)?;
    volume.end()?;
    Ok(Wide { directories, looks_ms, alone_us, beside_us })
}

/// Milliseconds of each look at a directory, as the page does it; all that is in it has to be in the answer.
pub(super) fn looks(socket: &Path, directory: &Path, times: usize) -> Result<Vec<f64>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", directory.display());
    let opened = File::open(directory).map_err(said)?;
    let mut client = Client::connect(socket).map_err(said)?;
    let largest = Largest { limit: LARGEST_MAX, ..Largest::default() };
    let mut one = || {
        let began = Instant::now();
        let listing = client.list(opened.as_fd(), &Question::plain(), largest).map_err(said)?;
        let took = began.elapsed();
        let listing = listing.map_err(|refusal| format!("{}: {refusal:?}", directory.display()))?;
        let parts = listing.children.iter().map(|child| child.total.allocated).sum::<i64>();
        if !listing.exact || parts + listing.rest.total.allocated + listing.own.allocated != listing.total.allocated {
            return Err(format!("{}: what was told isn't all that is in it", directory.display()));
        }
        Ok(took.as_secs_f64() * 1e3)
    };
    (0..times).map(|_| one()).collect()
}
