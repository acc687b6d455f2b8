//! What no disk is needed for: questions where nothing has changed, memory, and a start after a pause.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use onesweep_summary::service::{client::Client, protocol::Question};

use super::days::{WALKS, walk};
use super::outcomes::{Homes, Many, Still};
use super::served::Served;
use super::volume::{self, Volume};
use crate::bench::calibration;
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const DIRECTORIES: f64 = 100_000.0;
const MANY: f64 = 1_000_000.0;
const HOMES: f64 = 3000.0;
const QUESTIONS: usize = 10_000;
const CONNECTIONS: usize = 4;
/// Rounds where a program is started for each.
const ROUNDS: usize = 11;
/// The user that asks among closed homes.
const USER: u32 = 20_000;

fn scaled(number: f64, scale: f64) -> u64 {
    (number * scale).round().max(1.0) as u64
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Asks so often by one connection; the time of each.
fn ask(socket: &Path, tree: &Path, times: usize) -> Result<Vec<Duration>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", socket.display());
    let directory = File::open(tree).map_err(said)?;
    let mut client = Client::connect(socket).map_err(said)?;
    let question = Question::plain();
    let mut one = || {
        let began = Instant::now();
        let mut lines = 0;
        match client.ask(directory.as_fd(), &question, |_| lines += 1).map_err(said)? {
            Ok(head) if head.exact && lines == 1 => Ok(began.elapsed()),
            other => Err(format!("not an exact answer: {other:?}")),
        }
    };
    (0..times).map(|_| one()).collect()
}

/// One question after the other, then by several at once.
pub(super) fn questions(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Still, String> {
    let directories = scaled(DIRECTORIES, scale);
    let volume = Volume::new("ext4", directories)?;
    volume.fill(directories, interrupt)?;
    let served = Served::start(programs, &volume.scratch, &volume.tree)?;
    let (socket, tree) = (served.socket(), &volume.tree);
    ask(socket, tree, 100)?;
    let mut times = ask(socket, tree, QUESTIONS)?;
    times.sort_unstable();
    let began = Instant::now();
    let asked = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..CONNECTIONS).map(|_| scope.spawn(|| ask(socket, tree, QUESTIONS).map(|times| times.len()))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread failed")?).sum::<Result<usize, String>>()
    })?;
    let per_second = asked as f64 / began.elapsed().as_secs_f64();
    let getppid_us = calibration::getppid_ns() / 1e3;
    served.stop(interrupt)?;
    volume.end()?;
    let micros = |time: Option<&Duration>| time.copied().unwrap_or_default().as_secs_f64() * 1e6;
    Ok(Still {
        directories,
        questions: QUESTIONS as u64,
        median_us: micros(times.get(QUESTIONS / 2)),
        slowest_of_100_us: micros(times.get(QUESTIONS * 99 / 100)),
        per_second,
        getppid_us,
    })
}

/// Homes of mode 0700, asked for by a user who may enter one of them.
pub(super) fn homes(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Homes, String> {
    let homes = scaled(HOMES, scale);
    let volume = Volume::new("ext4", homes * 4)?;
    for number in 0..homes {
        let home = volume.tree.join(format!("home{number}"));
        let said = |error: std::io::Error| format!("{}: {error}", home.display());
        DirBuilder::new().mode(0o700).create(&home).map_err(said)?;
        fs::create_dir(home.join("documents"))
            .and_then(|()| fs::write(home.join("documents/file"), "x"))
            .map_err(said)?;
        chown(&home, Some(USER + number as u32), None).map_err(said)?;
    }
    let served = Served::start(programs, &volume.scratch, &volume.tree)?;
    let by_the_user = |argv: Vec<String>| -> Result<Duration, String> {
        let user = USER.to_string();
        let prefix = ["setpriv", "--reuid", &user, "--clear-groups"].map(str::to_owned);
        (0..ROUNDS)
            .map(|_| {
                pipe::run(&[&prefix[..], &argv].concat(), interrupt).map(|ended| Duration::from_secs_f64(ended.wall_s))
            })
            .collect::<Result<Vec<_>, _>>()
            .map(median)
    };
    let ours = by_the_user(served.question(&volume.tree))?;
    let du = by_the_user(walk("du".as_ref(), WALKS[0].1, &volume.tree))?;
    served.stop(interrupt)?;
    volume.end()?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Homes { homes, median_ms: ms(ours), du_ms: ms(du) })
}

/// Many directories, all in memory: harvested, held, and known again after a pause.
pub(super) fn many(fs: &str, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Many, String> {
    let directories = scaled(MANY, scale);
    let volume = Volume::new(fs, directories)?;
    volume.fill(directories, interrupt)?;
    let mut walks_s = BTreeMap::new();
    for (name, options) in WALKS {
        if let Some(program) = programs.find(name) {
            let argv = walk(&program, options, &volume.tree);
            // The first one brings everything into memory.
            let times = (0..4).map(|_| pipe::run(&argv, interrupt).map(|ended| Duration::from_secs_f64(ended.wall_s)));
            let times = times.collect::<Result<Vec<_>, _>>()?;
            walks_s.insert(name.to_owned(), median(times[1..].to_vec()).as_secs_f64());
        }
    }
    let served = Served::start(programs, &volume.scratch, &volume.tree)?;
    let first_s = served.started_in.as_secs_f64();
    ask(served.socket(), &volume.tree, 1)?;
    let resident_kib = served.resident_kib()?;
    served.stop(interrupt)?;
    let began = Instant::now();
    let served = Served::start(programs, &volume.scratch, &volume.tree)?;
    ask(served.socket(), &volume.tree, 1)?;
    let restart_s = began.elapsed().as_secs_f64();
    served.stop(interrupt)?;
    let store_bytes = bytes_in(&volume.scratch.file("store"))?;
    volume.end()?;
    let inodes = directories + directories / volume::FAN_OUT as u64;
    Ok(Many { directories, inodes, first_s, walks_s, resident_kib, store_bytes, restart_s })
}

fn bytes_in(dir: &Path) -> Result<u64, String> {
    let said = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::read_dir(dir)
        .map_err(said)?
        .map(|entry| Ok(entry.and_then(|entry| entry.metadata()).map_err(said)?.len()))
        .sum()
}
