//! A server that fails in each of many ways, and what reads take then.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::contents::BLOCK;
use super::network::Host;
use super::outcomes::Faulty;
use super::relay::{self, Treatment};
use super::rig::{CONTENT, Rig, Shown, disk, open_to_read, plain_image};
use super::scaled;
use super::series::{Series, random_reads};
use super::site::{LIAR_PORT, PORT, Process, RELAY_PORT, Raced, Site};
use super::{liar, rounds};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

const IMAGE: u64 = 32 << 20;
/// Reads before the fault, and after it.
const BEFORE: u64 = 100;
const AFTER: u64 = 200;
/// Reads behind those, among which extra requests are counted, or what a server that is back has answered.
const COUNTED: u64 = 400;
const ROUNDS: usize = 5;
/// Reads that go by before a server that was killed comes back.
const AWAY: u64 = 50;
/// Policies that promise times.
const TIMED: [&str; 2] = ["race", "local-first"];
/// Those that wait for the server by design. Of them extra requests are counted alone.
const COUNTED_ALONE: [&str; 2] = ["remote-first", "quiet-disk"];
const MBIT: u64 = 1000;
/// Twenty years: no certificate is valid then, nor was then.
const CLOCK_DAYS: i64 = 7300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Stopped,
    Killed,
    Restarted,
    /// With the blocks that it had on disk.
    Resumed,
    HalfOpen,
    Dripping,
    Garbage,
    Wrong,
    Clock(Host),
}

impl Fault {
    const ALL: [Self; 10] = [
        Self::Stopped,
        Self::HalfOpen,
        Self::Dripping,
        Self::Garbage,
        Self::Wrong,
        Self::Clock(Host::Client),
        Self::Clock(Host::Server),
        // These leave a server that has to be filled again.
        Self::Resumed,
        Self::Restarted,
        Self::Killed,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped (SIGSTOP)",
            Self::Killed => "killed",
            Self::Restarted => "killed, and back with nothing",
            Self::Resumed => "killed, and back with its store",
            Self::HalfOpen => "half-open",
            Self::Dripping => "1 KB/s",
            Self::Garbage => "garbage",
            Self::Wrong => "wrong bytes",
            Self::Clock(Host::Client) => "the client's clock moved, then the link cut",
            Self::Clock(Host::Server) => "the server's clock moved, then the link cut",
        }
    }

    /// Where the client looks for the server.
    fn port(self) -> u16 {
        match self {
            Self::HalfOpen | Self::Dripping | Self::Garbage | Self::Clock(_) => RELAY_PORT,
            Self::Wrong => LIAR_PORT,
            _ => PORT,
        }
    }

    /// Whether the server is killed and comes back while reads go on.
    fn comes_back(self) -> bool {
        matches!(self, Self::Restarted | Self::Resumed)
    }

    /// Whether the server is of no use from then on.
    fn is_for_good(self) -> bool {
        !matches!(self, Self::Clock(_) | Self::Resumed)
    }

    fn treatment(self) -> Option<Treatment> {
        match self {
            Self::HalfOpen => Some(Treatment::Hold),
            Self::Dripping => Some(Treatment::Drip),
            Self::Garbage => Some(Treatment::Garbage),
            // So that both have to look at certificates again.
            Self::Clock(_) => Some(Treatment::Cut),
            _ => None,
        }
    }
}

/// A server that fails in some way, by some policy, and what is measured of it.
pub(super) struct Case {
    fault: Fault,
    pub(super) policy: &'static str,
    /// How long reads take.
    pub(super) is_timed: bool,
    /// Requests without use: where the server can't help any more.
    pub(super) is_counted: bool,
    /// Whether the server has to help again.
    pub(super) helps_again: bool,
}

impl Case {
    pub(super) fn fault(&self) -> &'static str {
        self.fault.name()
    }
}

/// All of them.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    let of = |policy| {
        let is_timed = is_timed(policy);
        let case = move |fault: Fault| {
            let helps_again = is_timed && fault == Fault::Resumed;
            Case { fault, policy, is_timed, is_counted: fault.is_for_good(), helps_again }
        };
        Fault::ALL.into_iter().map(case).filter(|case| case.is_timed || case.is_counted)
    };
    TIMED.into_iter().chain(COUNTED_ALONE).flat_map(of)
}

/// Whether how long reads take is measured by that policy.
pub(super) fn is_timed(policy: &str) -> bool {
    TIMED.contains(&policy)
}

/// Says a word to a program of ours, which tells when it has followed.
fn tell(process: &mut Process, word: &str, told: &str) -> Result<(), String> {
    let input = process.input().ok_or("it doesn't listen")?;
    writeln!(input, "{word}").map_err(|error| error.to_string())?;
    process.wait_for(told)
}

fn treat(relay: &mut Process, treatment: Treatment) -> Result<(), String> {
    tell(relay, treatment.word(), &treatment.told())
}

/// A read by itself, and when it began and ended.
struct Timed {
    began: Instant,
    ended: Instant,
    read: Series,
}

/// What a thread has read throughout, parted by a fault that began and was there at those times: what had ended before it, the first
/// read that began when it was there, and all others that it may have met.
fn parted(reads: Vec<Timed>, struck: Instant, gone: Instant) -> (Series, Series, Series) {
    let (mut before, mut first, mut after) = (Series::default(), Series::default(), Series::default());
    for Timed { began, ended, read } in reads {
        if ended <= struck {
            before.add(read);
        } else if began >= gone && first.us.is_empty() {
            first.add(read);
        } else {
            after.add(read);
        }
    }
    (before, first, after)
}

/// The server is killed and comes back while one thread reads all the time: what it has read by [`parted`], at least `count` reads
/// of it once the server is back.
fn killed_and_back(
    site: &mut Site,
    block: &File,
    fault: Fault,
    (seed, away, count): (u64, u64, u64),
) -> Result<(Series, Series, Series), String> {
    let (interrupt, done, is_over) = (site.interrupt, AtomicU64::new(0), AtomicBool::new(false));
    let read = || {
        let (mut places, mut reads) = (Random::new(seed), Vec::new());
        while !is_over.load(Ordering::Acquire) {
            let began = Instant::now();
            let read = random_reads(block, IMAGE, 1, &mut places, CONTENT, interrupt)?;
            reads.push(Timed { began, ended: Instant::now(), read });
            done.fetch_add(1, Ordering::AcqRel);
        }
        Ok::<_, String>(reads)
    };
    thread::scope(|scope| {
        let reading = scope.spawn(read);
        let wait_for = |reads: u64| {
            while done.load(Ordering::Acquire) < reads && !reading.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        let mut strike = || {
            wait_for(1);
            let struck = Instant::now();
            site.kill_server();
            let gone = Instant::now();
            wait_for(done.load(Ordering::Acquire) + away);
            if fault == Fault::Resumed {
                site.serve_with_store()?
            } else {
                site.serve()?
            }
            wait_for(done.load(Ordering::Acquire) + count);
            Ok::<_, String>((struck, gone))
        };
        let times = strike();
        is_over.store(true, Ordering::Release);
        let reads = reading.join().map_err(|_| "who reads has failed".to_owned())??;
        let (struck, gone) = times?;
        Ok(parted(reads, struck, gone))
    })
}

pub(super) fn measure(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Vec<Faulty>, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let image = plain_image(&site, IMAGE)?;
    let rig = Rig::new(&mut site, image, disk().real(1.0))?;
    site.network.limit(MBIT)?;
    let (alone, below) = (rig.shown(&site, "alone")?, rig.shown(&site, "raced")?);
    let mut all = Vec::new();
    for Case { fault, policy, is_timed, .. } in cases() {
        let mut faulty = Faulty { fault: fault.name().into(), policy: policy.into(), ..Faulty::default() };
        for round in 0..if is_timed { rounds(scale, ROUNDS) } else { 1 } {
            round_of(&mut site, &rig, (&alone, &below), fault, &mut faulty, (round as u64, scale))?;
        }
        let Faulty { fault, raced, extra_percent, helped_percent, .. } = &faulty;
        eprintln!("  {policy}, {fault}: {:?}, {extra_percent:?} % extra, {helped_percent:?} % helped", raced.first());
        all.push(faulty);
    }
    below.end()?;
    alone.end()?;
    Ok(all)
}

fn round_of(
    site: &mut Site,
    rig: &Rig,
    (alone, below): (&Shown, &Shown),
    fault: Fault,
    faulty: &mut Faulty,
    (round, scale): (u64, f64),
) -> Result<(), String> {
    if let Fault::Clock(host) = fault {
        site.clock = Some(Clock::new(host, &site.scratch)?);
        if host == Host::Server {
            anew(site, rig)?;
        }
    }
    if fault == Fault::Resumed {
        // One at a time, before there is a store.
        site.kill_server();
        site.remove_store()?;
        site.serve_with_store()?;
        site.push(&rig.image)?;
    }
    let host = Host::Server.address();
    let (listen, server) = (format!("{host}:{RELAY_PORT}"), format!("{host}:{PORT}"));
    let mut relay = site.helper(Host::Server, &["peer-relay", &listen, &server], relay::READY)?;
    let mut liar = if fault == Fault::Wrong { Some(honest(site)?) } else { None };
    let words = ["--read-only", "--policy", &faulty.policy.clone()].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let raced = site.mount(fault.port(), &rig.index, &below.file, &words)?;
    raced.wait_for_server(site.interrupt)?;

    let (plain, block) = (open_to_read(&alone.file)?, open_to_read(&raced.block())?);
    let interrupt = site.interrupt;
    let reads = |file, reads, seed| random_reads(file, IMAGE, reads, &mut Random::new(seed), CONTENT, interrupt);
    let mut before = reads(&block, scaled(BEFORE, scale), round)?;
    let (seed, count) = (round + 200, scaled(AFTER, scale));
    let (first, after) = if fault.comes_back() {
        let (more, first, after) = killed_and_back(site, &block, fault, (seed, scaled(AWAY, scale), count))?;
        before.add(more);
        (first, after)
    } else {
        strike(site, fault, &raced, &mut relay, liar.as_mut())?;
        let first = reads(&block, 1, round + 100)?;
        let mut after = Series::default();
        if let Fault::Clock(_) = fault {
            // Whoever connects again meets the clock: one that is ahead, and one that is behind.
            treat(&mut relay, Treatment::Pass)?;
            after.add(reads(&block, count / 2, seed)?);
            site.clock.as_ref().map_or(Ok(()), |clock| clock.put(-CLOCK_DAYS))?;
            after.add(reads(&block, count - count / 2, seed + 1)?);
        } else {
            after.add(reads(&block, count, seed)?);
        }
        (first, after)
    };
    let mut counted = Series::default();
    let of_reads = match fault {
        _ if fault.is_for_good() => Some(("requests_extra", &mut faulty.extra_percent)),
        Fault::Resumed => Some(("reads_remote", &mut faulty.helped_percent)),
        _ => None,
    };
    if let Some((name, percent)) = of_reads {
        let (before, count) = (raced.counted(name)?, scaled(COUNTED, scale));
        counted = reads(&block, count, round + 300)?;
        percent.push((raced.counted(name)? - before) as f64 * 100.0 / count as f64);
    }
    if is_timed(&faulty.policy) {
        faulty.raced.push(after.taken());
        faulty.disk.push(reads(&plain, after.us.len() as u64, seed)?.taken());
        faulty.first_us.extend(&first.us);
    }
    faulty.wrong += before.wrong + first.wrong + after.wrong + counted.wrong;
    faulty.failed += before.failed + first.failed + after.failed + counted.failed;
    if fault == Fault::Stopped {
        site.server()?.hold(false)?;
    }
    // What is held up is let go, so that the mount can end.
    treat(&mut relay, Treatment::Pass)?;
    drop((plain, block));
    if let Some(clock) = &site.clock {
        // Nothing that was seen meanwhile lasts.
        clock.put(0)?;
        raced.wait_for_server(site.interrupt)?;
    }
    raced.end()?;
    let is_gone = matches!(fault, Fault::Killed | Fault::Restarted | Fault::Resumed | Fault::Clock(Host::Server));
    site.clock = None;
    if is_gone { anew(site, rig) } else { Ok(()) }
}

/// A server with the same blocks that is honest until it is told to lie.
fn honest(site: &Site) -> Result<Process, String> {
    let (listen, blocks) = (format!("{}:{LIAR_PORT}", Host::Server.address()), (IMAGE / BLOCK as u64).to_string());
    let (key, identity, seed) = (site.key(), site.identity(Host::Server), CONTENT.to_string());
    site.helper(Host::Server, &["peer-liar", &listen, &key, &identity, &seed, &blocks], liar::READY)
}

/// The server fails from then on.
fn strike(
    site: &mut Site,
    fault: Fault,
    raced: &Raced,
    relay: &mut Process,
    liar: Option<&mut Process>,
) -> Result<(), String> {
    match fault {
        Fault::Stopped => site.server()?.hold(true)?,
        Fault::Killed | Fault::Restarted | Fault::Resumed => site.kill_server(),
        Fault::HalfOpen | Fault::Dripping | Fault::Garbage => {}
        Fault::Wrong => tell(liar.ok_or("nobody lies")?, liar::LIE, liar::LYING)?,
        Fault::Clock(host) => {
            let seen_by = if host == Host::Server { vec![site.server()?.id()] } else { raced.serving() };
            let clock = site.clock.as_ref().ok_or("no clock")?;
            if seen_by.is_empty() {
                return Err("no process serves".into());
            }
            seen_by.into_iter().try_for_each(|process| clock.is_seen_by(process))?;
            clock.put(CLOCK_DAYS)?;
        }
    }
    fault.treatment().map_or(Ok(()), |treatment| treat(relay, treatment))
}

/// The server begins again, in memory alone, and gets all.
fn anew(site: &mut Site, rig: &Rig) -> Result<(), String> {
    site.serve()?;
    site.push(&rig.image).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_parted_by_what_they_met() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let read = |began: u64, ended: u64| {
            let read = Series { us: vec![began as f64], ..Series::default() };
            Timed { began: at(began), ended: at(ended), read }
        };
        // Struck at 25, gone at 33: one was at work, one began while the server died.
        let reads = [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50), (50, 60)];
        let reads = reads.map(|(began, ended)| read(began, ended)).into();
        let (before, first, after) = parted(reads, at(25), at(33));
        assert_eq!((before.us, first.us, after.us), (vec![0.0, 10.0], vec![40.0], vec![20.0, 30.0, 50.0]));
    }
}
