//! redb and LMDB with what the store of directory summaries does: `cargo run --release -- [RECORDS [DIRECTORY]]`.
//!
//! A first harvest (records in rising order, in commits of 8,192 that need not be on the disk, and a durable one at the
//! end), questions (records at random), days (0.1 % of the records at random, one durable commit), a kill's worth of
//! space (the file, before and after compaction), and what of it stays in memory.

mod lmdb;
mod redb_store;

use std::{
    error::Error,
    fs,
    path::Path,
    time::{Duration, Instant},
};

pub type Fallible<T> = Result<T, Box<dyn Error>>;

const PORTION: u32 = 8192;
const QUESTIONS: u32 = 200_000;
const DAYS: u32 = 20;

/// What is compared.
pub trait Store: Sized {
    const NAME: &'static str;

    fn open(dir: &Path, records: u32) -> Fallible<Self>;
    fn commit(&self, records: &mut dyn Iterator<Item = (u32, Vec<u8>)>, durable: bool) -> Fallible<()>;
    /// The length of a record.
    fn read(&self, key: u32) -> Fallible<usize>;
    /// Compacts it; its bytes then.
    fn compacted(self, dir: &Path) -> Fallible<u64>;
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }

    /// As long as those of directories are: some 100 bytes.
    fn record(&mut self) -> Vec<u8> {
        let length = 72 + self.below(64) as usize;
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Of this process: memory that isn't backed by a file, and memory that is, in KiB.
fn resident() -> Fallible<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Ok((kib("RssAnon:"), kib("RssFile:")))
}

fn measure<S: Store>(records: u32, dir: &Path) -> Fallible<()> {
    let dir = tempfile::tempdir_in(dir)?;
    let (mut random, before) = (Random(1), resident()?);
    let store = S::open(dir.path(), records)?;

    let began = Instant::now();
    for first in (0..records).step_by(PORTION as usize) {
        let keys = first..records.min(first + PORTION);
        let is_last = keys.end == records;
        store.commit(&mut keys.map(|key| (key, random.record())), is_last)?;
    }
    let load = began.elapsed();

    let began = Instant::now();
    let mut bytes = 0;
    for _ in 0..QUESTIONS {
        bytes += store.read(random.below(records))?;
    }
    let question = began.elapsed() / QUESTIONS;
    assert!(bytes > 0);

    let mut days: Vec<Duration> = Vec::new();
    for _ in 0..DAYS {
        let mut changed: Vec<u32> = (0..records / 1000).map(|_| random.below(records)).collect();
        changed.sort_unstable();
        changed.dedup();
        let began = Instant::now();
        store.commit(&mut changed.into_iter().map(|key| (key, random.record())), true)?;
        days.push(began.elapsed());
    }
    days.sort_unstable();
    let (anonymous, mapped) = resident()?;

    let bytes = |path: &Path| -> Fallible<u64> { fs::read_dir(path)?.map(|entry| Ok(entry?.metadata()?.len())).sum() };
    let grown = bytes(dir.path())?;
    let began = Instant::now();
    let compacted = store.compacted(dir.path())?;
    println!(
        "| {} | {:.2} s | {:.2} µs | {:.1} ms | {} | {} in {:.2} s | {} KiB | {} KiB |",
        S::NAME,
        load.as_secs_f64(),
        question.as_secs_f64() * 1e6,
        days[days.len() / 2].as_secs_f64() * 1e3,
        grown / u64::from(records),
        compacted / u64::from(records),
        began.elapsed().as_secs_f64(),
        anonymous.saturating_sub(before.0),
        mapped.saturating_sub(before.1),
    );
    Ok(())
}

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let records = args.next().map_or(Ok(1_000_000), |records| records.parse())?;
    let dir = args.next().unwrap_or_else(|| ".".into());
    println!("{records} records");
    println!("| | load | a question | a day | bytes a record | compacted | memory | mapped |");
    println!("|---|---|---|---|---|---|---|---|");
    measure::<redb_store::Redb>(records, dir.as_ref())?;
    measure::<lmdb::Lmdb>(records, dir.as_ref())
}
