//! What no disk is needed for: questions where nothing has changed, memory, and a start after a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use onesweep_summary::service::{client::Client, protocol::Question};
use onesweep_summary::store::Store;

use super::outcomes::{Closed, Homes, Many, Still};
use super::peers::{DU, PEERS, first_word};
use super::served::Served;
use super::volume::{Files, Volume};
use super::wide::looks;
use crate::bench::calibration;
use crate::bench::pipe;
use crate::bench::statistics;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;

const DIRECTORIES: f64 = 100_000.0;
const MANY: f64 = 1_000_000.0;
/// With files in each, as many inodes.
const FILLED: f64 = 170_000.0;
const FILES_EACH: u64 = 5;
const HOMES: f64 = 3000.0;
const QUESTIONS: usize = 10_000;
const CONNECTIONS: usize = 4;
/// Questions for the root of many directories.
pub(super) const QUESTIONS_OF_MANY: usize = 1000;
/// Questions, each asked when a file was closed just now.
const CLOSES: usize = 1000;
/// Directories that change while no server runs.
const CHANGES: usize = 100;
/// Rounds where a program is started for each.
const ROUNDS: usize = 11;
/// How often a server starts anew after its end, and after it was killed.
const RESTARTS: usize = 5;
const KILLS: usize = 3;
/// How often each walks, the first time to bring everything there.
const WALKS: usize = 4;
/// The user that asks among closed homes.
const USER: u32 = 20_000;

pub(super) fn scaled(number: f64, scale: f64) -> u64 {
    (number * scale).round().max(1.0) as u64
}

pub(super) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Asks so often by one connection; the time of each.
pub(super) fn ask(socket: &Path, tree: &Path, times: usize) -> Result<Vec<Duration>, String> {
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
    volume.fill(directories, Files::Seldom, interrupt)?;
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
    let after_close = Some(after_closes(socket, tree)?);
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
        after_close,
    })
}

/// A file grows and is closed; then its directory is asked for. All bytes have to be in the answer.
fn after_closes(socket: &Path, tree: &Path) -> Result<Closed, String> {
    let said = |error: std::io::Error| format!("{}: {error}", tree.display());
    let path = tree.join("d1");
    let directory = File::open(&path).map_err(said)?;
    let mut client = Client::connect(socket).map_err(said)?;
    let bytes = |client: &mut Client| {
        let mut bytes = None;
        match client.ask(directory.as_fd(), &Question::plain(), |row| bytes = Some(row.total.bytes)).map_err(said)? {
            Ok(head) if head.exact => bytes.ok_or_else(|| "no answer".to_owned()),
            other => Err(format!("not an exact answer: {other:?}")),
        }
    };
    let (mut expected, mut exact, mut times) = (bytes(&mut client)?, 0, Vec::new());
    for more in 1..=CLOSES {
        let mut file = OpenOptions::new().append(true).create(true).open(path.join("grows")).map_err(said)?;
        file.write_all(&vec![1; more]).map_err(said)?;
        drop(file);
        expected += more as i64;
        let began = Instant::now();
        exact += u64::from(bytes(&mut client)? == expected);
        times.push(began.elapsed());
    }
    Ok(Closed { asked: CLOSES as u64, exact, median_us: median(times).as_secs_f64() * 1e6 })
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
    let by_the_user = |argv: Vec<String>| -> Result<(Duration, BTreeSet<String>), String> {
        let user = USER.to_string();
        let prefix = ["setpriv", "--reuid", &user, "--clear-groups"].map(str::to_owned);
        let (mut times, mut figures) = (Vec::new(), BTreeSet::new());
        for _ in 0..ROUNDS {
            let ended = pipe::run(&[&prefix[..], &argv].concat(), interrupt)?;
            times.push(Duration::from_secs_f64(ended.wall_s));
            figures.insert(first_word(&ended.output));
        }
        Ok((median(times), figures))
    };
    let (ours, our_figures) = by_the_user(served.question(&volume.tree))?;
    let (du, figures) = by_the_user(DU.argv(programs, &volume.tree, Path::new("")).ok_or("no du")?)?;
    if our_figures != figures || figures.len() != 1 {
        return Err(format!("to a user onesweep says {our_figures:?}, du {figures:?}"));
    }
    served.stop(interrupt)?;
    volume.end()?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Homes { homes, median_ms: ms(ours), du_ms: ms(du) })
}

/// Many directories, all in memory: harvested, held, and known again after a pause.
pub(super) fn many(fs: &str, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Many, String> {
    held(fs, (scaled(MANY, scale), Files::Seldom), programs, interrupt)
}

/// The same with files in each directory.
pub(super) fn filled(fs: &str, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Many, String> {
    held(fs, (scaled(FILLED, scale), Files::Each(FILES_EACH)), programs, interrupt)
}

fn held(
    fs: &str,
    (directories, files): (u64, Files),
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Many, String> {
    let volume = Volume::holding(fs, directories, files)?;
    let paths = volume.fill(directories, files, interrupt)?;
    // What belongs to the last that btrfs has written down may have changed since: that shall be next to nothing.
    on_disk(&volume.tree)?;
    fs::write(volume.tree.join("last"), "x").map_err(|error| format!("{}: {error}", volume.tree.display()))?;
    on_disk(&volume.tree)?;
    let walks_s = walks(&volume, programs, interrupt)?;
    let First { answered_s: first_s, stored_s, served } = first(&volume, programs, interrupt)?;
    let first_peak_kib = Some(served.peak_kib()?);
    ask(served.socket(), &volume.tree, 1)?;
    let resident_kib = served.resident_kib()?;
    let root_us = Some(median(ask(served.socket(), &volume.tree, QUESTIONS_OF_MANY)?).as_secs_f64() * 1e6);
    let mut looks_ms = looks(served.socket(), &volume.tree, ROUNDS)?;
    looks_ms.sort_unstable_by(f64::total_cmp);
    let page_ms = looks_ms.get(ROUNDS / 2).copied();
    let getppid_us = Some(calibration::getppid_ns() / 1e3);
    let of = Restarting { volume: &volume, paths: &paths, programs, interrupt };
    let (restarts, served) = of.times(served, Served::stop, RESTARTS)?;
    let restart_peak_kib = Some(served.peak_kib()?);
    let (kills, served) = of.times(served, |served, _| served.kill(), KILLS)?;
    served.stop(interrupt)?;
    let (store_bytes, index_bytes) = of_store(&volume.scratch.file("store"))?;
    volume.end()?;
    let inodes = directories + files.in_all(directories);
    Ok(Many {
        directories,
        inodes,
        first_s,
        first_stored_s: Some(stored_s),
        walks_s,
        resident_kib,
        first_peak_kib,
        restart_peak_kib,
        store_bytes,
        index_bytes,
        restart_s: median_s(&restarts),
        restarts_s: restarts.iter().map(|restart| restart.seconds).collect(),
        restart_read: restarts.last().map_or(0, |restart| restart.read),
        killed_restart_s: Some(median_s(&kills)),
        killed_restart_read: kills.last().map_or(0, |restart| restart.read),
        root_us,
        page_ms,
        getppid_us,
    })
}

/// From the start of a server that has a store to its first exact answer.
struct Restart {
    seconds: f64,
    /// Directories that it read.
    read: u64,
}

fn median_s(restarts: &[Restart]) -> f64 {
    statistics::spread(restarts.iter().map(|restart| restart.seconds).collect()).map_or(0.0, |spread| spread.median)
}

/// Servers that know what was harvested before them.
struct Restarting<'a> {
    volume: &'a Volume,
    /// Of which some change while no server runs.
    paths: &'a [PathBuf],
    programs: &'a Programs,
    interrupt: &'a Interrupt,
}

impl Restarting<'_> {
    /// One after the other, each after the one before has ended so; with the last one.
    fn times(
        &self,
        mut served: Served,
        end: impl Fn(Served, &Interrupt) -> Result<(), String>,
        times: usize,
    ) -> Result<(Vec<Restart>, Served), String> {
        let mut restarts = Vec::new();
        for _ in 0..times {
            end(served, self.interrupt)?;
            change(self.paths)?;
            let began = Instant::now();
            served = Served::start(self.programs, &self.volume.scratch, &self.volume.tree)?;
            ask(served.socket(), &self.volume.tree, 1)?;
            restarts.push(Restart { seconds: began.elapsed().as_secs_f64(), read: served.read });
            served.stored()?;
        }
        let ours = pipe::run(&served.question(&self.volume.tree), self.interrupt)?;
        let du = DU.argv(self.programs, &self.volume.tree, Path::new("")).ok_or("no du")?;
        let du = pipe::run(&du, self.interrupt)?;
        let (ours, du) = (first_word(&ours.output), first_word(&du.output));
        if ours == du {
            Ok((restarts, served))
        } else {
            Err(format!("after another start onesweep says {ours}, du {du}"))
        }
    }
}

/// A first harvest, into a new store each time, as often as others walk.
pub(super) struct First {
    /// The median of three times after the first, until who asks is answered,
    pub(super) answered_s: f64,
    /// and until all is stored.
    pub(super) stored_s: f64,
    /// The last server, which rests.
    pub(super) served: Served,
}

pub(super) fn first(volume: &Volume, programs: &Programs, interrupt: &Interrupt) -> Result<First, String> {
    let (mut answered, mut stored) = (Vec::new(), Vec::new());
    let mut start = || -> Result<Served, String> {
        let mut served = Served::start(programs, &volume.scratch, &volume.tree)?;
        answered.push(served.started_in);
        stored.push(served.stored()?);
        Ok(served)
    };
    for _ in 1..WALKS {
        start()?.stop(interrupt)?;
        let store = volume.scratch.file("store");
        fs::remove_dir_all(&store).map_err(|error| format!("{}: {error}", store.display()))?;
    }
    let served = start()?;
    let [answered_s, stored_s] = [answered, stored].map(|times| median(times[1..].to_vec()).as_secs_f64());
    Ok(First { answered_s, stored_s, served })
}

/// What others take, everything in memory: the median of three times, after one that brings it there.
pub(super) fn walks(
    volume: &Volume,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<BTreeMap<String, f64>, String> {
    let index = volume.scratch.file("index");
    let mut walks_s = BTreeMap::new();
    for peer in PEERS {
        let Some(argv) = peer.argv(programs, &volume.tree, &index) else { continue };
        let mut times = Vec::new();
        for _ in 0..WALKS {
            let ended = pipe::run(&argv, interrupt)?;
            if ended.code != 0 {
                eprintln!("  {} ended with {}: {}", peer.name, ended.code, ended.complaint);
                break;
            }
            times.push(Duration::from_secs_f64(ended.wall_s));
        }
        if times.len() == WALKS {
            walks_s.insert(peer.name.to_owned(), median(times[1..].to_vec()).as_secs_f64());
        }
    }
    Ok(walks_s)
}

/// Makes files here and there.
fn change(paths: &[PathBuf]) -> Result<(), String> {
    for path in paths.iter().step_by((paths.len() / CHANGES).max(1)) {
        fs::write(path.join("new"), "new").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    on_disk(&paths[0])
}

/// Nothing waits to be written.
pub(super) fn on_disk(tree: &Path) -> Result<(), String> {
    mount::run("sync", ["-f".as_ref(), tree.as_os_str()]).map(drop)
}

/// Bytes of the only store in there when it is as small as what it holds, and of its index for each inode in that.
pub(super) fn of_store(dir: &Path) -> Result<(u64, Option<f64>), String> {
    let said = |error: std::io::Error| format!("{}: {error}", dir.display());
    let (mut bytes, mut index) = (0, None);
    for entry in fs::read_dir(dir).map_err(said)? {
        let path = entry.map_err(said)?.path();
        let mut store = Store::open(&path).map_err(|error| error.to_string())?;
        store.compact().map_err(|error| error.to_string())?;
        bytes += fs::metadata(&path).map_err(said)?.len();
        let of_index = store.places_bytes().map_err(|error| error.to_string())?;
        index = (store.places() > 0).then(|| of_index as f64 / store.places() as f64);
    }
    Ok((bytes, index))
}
