//! Bad and slow places, and what a power cut leaves.

use super::drive::{Command, Op};
use super::model::DiskModel;
use crate::random::Random;

/// The unit in which a write is torn and a bad place mends.
pub(crate) const SECTOR: u64 = 512;

/// Revolutions that a drive spends on a sector before it gives up; usual for desktop drives.
const RETRIES: f64 = 50.0;

/// A day: nobody waits longer for a place.
const MOST_SLOW_MS: f64 = 86_400_000.0;

/// One fault, as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// Reads of these bytes fail until they are written.
    Unreadable { start: u64, end: u64 },
    /// Commands that touch these bytes take that much longer.
    Slow { start: u64, end: u64, ms: f64 },
    /// The power goes when that many writes have arrived from now on, the last one included.
    PowerCut { writes: u64, seed: u64 },
}

impl Fault {
    /// Where it ends on the disk, if it has a place there.
    pub(crate) fn end(&self) -> Option<u64> {
        match *self {
            Self::Unreadable { end, .. } | Self::Slow { end, .. } => Some(end),
            Self::PowerCut { .. } => None,
        }
    }
}

/// A write that no flush has made safe yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unsynced {
    pub(crate) start: u64,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    /// It works, but takes that much longer.
    Served { extra_ms: f64 },
    /// It fails after that time.
    Failed { extra_ms: f64 },
}

/// All faults of a disk.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    unreadable: Vec<(u64, u64)>,
    slow: Vec<(u64, u64, f64)>,
    cut: Option<PowerCut>,
    dead: bool,
}

#[derive(Debug)]
struct PowerCut {
    writes_left: u64,
    seed: u64,
    unsynced: Vec<Unsynced>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        match fault {
            Fault::Unreadable { start, end } => self.unreadable.push((start, end)),
            Fault::Slow { start, end, ms } => self.slow.push((start, end, ms)),
            Fault::PowerCut { writes, seed } => {
                self.cut = Some(PowerCut { writes_left: writes.max(1), seed, unsynced: Vec::new() });
            }
        }
    }

    /// Whether the power is gone.
    pub(crate) fn dead(&self) -> bool {
        self.dead
    }

    /// Whether the bytes before each write must be kept.
    pub(crate) fn keeps_writes(&self) -> bool {
        self.cut.is_some()
    }

    /// What becomes of the command. A write mends what it covers.
    pub(crate) fn judge(&mut self, command: &Command, model: &DiskModel) -> Fate {
        if self.dead {
            return Fate::Failed { extra_ms: 0.0 };
        }
        let (start, end) = (command.start, command.end());
        let touches = |from: u64, to: u64| from < end && start < to;
        let mut extra_ms: f64 = self.slow.iter().filter(|slow| touches(slow.0, slow.1)).map(|slow| slow.2).sum();
        match command.op {
            Op::Write => self.mend(start, end),
            Op::Read if self.unreadable.iter().any(|bad| touches(bad.0, bad.1)) => {
                extra_ms += RETRIES * model.revolution_ms();
                return Fate::Failed { extra_ms };
            }
            Op::Read | Op::Flush => {}
        }
        Fate::Served { extra_ms }
    }

    /// Whole sectors within `start..end` can be read again.
    fn mend(&mut self, start: u64, end: u64) {
        let (start, end) = (start.next_multiple_of(SECTOR), end / SECTOR * SECTOR);
        let mut left = Vec::new();
        for &(from, to) in &self.unreadable {
            if to <= start || end <= from {
                left.push((from, to));
                continue;
            }
            if from < start {
                left.push((from, start));
            }
            if end < to {
                left.push((end, to));
            }
        }
        self.unreadable = left;
    }

    /// A write was done, `before` was there. When it was the last one before the cut: what must be put back, in order.
    pub(crate) fn written(&mut self, write: Unsynced, safe: bool) -> Option<Vec<(u64, Vec<u8>)>> {
        let cut = self.cut.as_mut()?;
        if !safe {
            cut.unsynced.push(write);
        }
        cut.writes_left -= 1;
        if cut.writes_left > 0 {
            return None;
        }
        self.dead = true;
        let cut = self.cut.take()?;
        Some(survivors(&cut.unsynced, cut.seed))
    }

    /// Everything written so far is safe.
    pub(crate) fn flushed(&mut self) {
        if let Some(cut) = &mut self.cut {
            cut.unsynced.clear();
        }
    }
}

/// What to write over the image, in this order, so that of the unsynced writes a part remains: each is kept whole, lost,
/// or torn, one third each; of a torn one each sector is kept or lost by itself.
pub(crate) fn survivors(unsynced: &[Unsynced], seed: u64) -> Vec<(u64, Vec<u8>)> {
    let mut random = Random::new(seed);
    let mut result: Vec<(u64, Vec<u8>)> =
        unsynced.iter().rev().map(|write| (write.start, write.before.clone())).collect();
    for write in unsynced {
        match random.below(3) {
            0 => result.push((write.start, write.after.clone())),
            1 => {}
            _ => {
                let mut at = 0;
                for sector in write.after.chunks(SECTOR as usize) {
                    if random.below(2) == 0 {
                        result.push((write.start + at, sector.to_vec()));
                    }
                    at += sector.len() as u64;
                }
            }
        }
    }
    result
}

/// `START+LEN` with sizes such as 4096, 64K or 1M.
fn range(text: &str) -> Result<(u64, u64), String> {
    let (start, len) = text.split_once('+').ok_or_else(|| format!("{text:?} is not START+LENGTH"))?;
    let (start, len) = (crate::size::bytes(start)?, crate::size::bytes(len)?);
    let end = start.checked_add(len).filter(|_| len > 0).ok_or_else(|| format!("{text:?} is no range"))?;
    Ok((start, end))
}

impl std::str::FromStr for Fault {
    type Err = String;

    /// `unreadable START+LENGTH`, `slow START+LENGTH MILLISECONDS` or `power-cut WRITES SEED`.
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word:?} is not a number"));
        match words[..] {
            ["unreadable", places] => range(places).map(|(start, end)| Self::Unreadable { start, end }),
            ["slow", places, ms] => {
                let (start, end) = range(places)?;
                let ms = ms.parse().ok().filter(|ms: &f64| (0.0..=MOST_SLOW_MS).contains(ms));
                let ms = ms.ok_or_else(|| format!("slow needs milliseconds, at most {MOST_SLOW_MS}"))?;
                Ok(Self::Slow { start, end, ms })
            }
            ["power-cut", writes, seed] => Ok(Self::PowerCut { writes: number(writes)?, seed: number(seed)? }),
            _ => Err(format!(
                "{text:?}: known are \"unreadable START+LENGTH\", \"slow START+LENGTH MILLISECONDS\" and \
                 \"power-cut WRITES SEED\""
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn model() -> DiskModel {
        DiskModel::named("ssd").unwrap()
    }

    fn command(op: Op, start: u64, len: u64) -> Command {
        Command { op, start, len }
    }

    #[test]
    fn a_bad_place_fails_until_it_is_written() {
        let mut faults = Faults::default();
        faults.add("unreadable 4K+4096".parse().unwrap());
        let fine = Fate::Served { extra_ms: 0.0 };
        let bad = Fate::Failed { extra_ms: 0.0 };
        assert_eq!(faults.judge(&command(Op::Read, 0, 4096), &model()), fine);
        assert_eq!(faults.judge(&command(Op::Read, 0, 4097), &model()), bad);
        assert_eq!(faults.judge(&command(Op::Write, 5120, 512), &model()), fine);
        assert_eq!(faults.judge(&command(Op::Read, 5120, 512), &model()), fine);
        assert_eq!(faults.judge(&command(Op::Read, 4096, 512), &model()), bad);
        assert_eq!(faults.judge(&command(Op::Read, 5632, 512), &model()), bad);
        assert_eq!(faults.judge(&command(Op::Write, 0, 1 << 20), &model()), fine);
        assert_eq!(faults.judge(&command(Op::Read, 0, 1 << 20), &model()), fine);
    }

    #[test]
    fn a_slow_place_takes_longer() {
        let mut faults = Faults::default();
        faults.add("slow 0+1M 250".parse().unwrap());
        assert_eq!(faults.judge(&command(Op::Read, 0, 512), &model()), Fate::Served { extra_ms: 250.0 });
        assert_eq!(faults.judge(&command(Op::Read, 1 << 20, 512), &model()), Fate::Served { extra_ms: 0.0 });
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in [
            "",
            "unreadable",
            "unreadable 5",
            "unreadable 5+0",
            "slow 0+1",
            "slow 0+1 -3",
            "slow 0+1 1e300",
            "power-cut x 1",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    fn write(start: u64, before: u8, after: u8) -> Unsynced {
        Unsynced { start, before: vec![before; 2048], after: vec![after; 2048] }
    }

    #[test]
    fn a_cut_keeps_synced_writes_and_a_part_of_the_others() {
        let mut faults = Faults::default();
        faults.add("power-cut 40 7".parse().unwrap());
        assert_eq!(faults.written(write(0, 0, 1), false), None);
        faults.flushed();
        let mut image = vec![0_u8; 64 * 2048];
        image[..2048].fill(1);
        let mut back = None;
        for index in 1..40_u64 {
            let start = (index * 2048) as usize;
            image[start..start + 2048].fill(2);
            back = faults.written(write(index * 2048, 0, 2), false);
        }
        for (start, bytes) in back.expect("the 40th write is the last") {
            image[start as usize..start as usize + bytes.len()].copy_from_slice(&bytes);
        }
        assert!(faults.dead());
        assert_eq!(faults.judge(&command(Op::Read, 0, 512), &model()), Fate::Failed { extra_ms: 0.0 });
        assert!(image[..2048].iter().all(|&byte| byte == 1), "synced before the cut");
        let sectors: Vec<&[u8]> = image[2048..40 * 2048].chunks(512).collect();
        assert!(sectors.iter().all(|sector| sector.iter().all(|byte| byte == &sector[0])), "torn within a sector");
        let kept = sectors.iter().filter(|sector| sector[0] == 2).count();
        assert!(kept > sectors.len() / 4 && kept < sectors.len() * 3 / 4, "{kept} of {}", sectors.len());
        let torn = image[2048..40 * 2048].chunks(2048).filter(|write| write.iter().any(|byte| byte != &write[0]));
        assert!(torn.count() > 3);
    }

    #[test]
    fn the_same_seed_keeps_the_same() {
        let writes = [write(0, 0, 1), write(1024, 1, 2), write(8192, 0, 3)];
        assert_eq!(survivors(&writes, 5), survivors(&writes, 5));
        assert!((0..20).any(|seed| survivors(&writes, seed) != survivors(&writes, 5)));
    }

    /// Of two writes to the same place both may be lost, the second alone, or none; what was there before is taken back
    /// from the last to the first.
    #[test]
    fn each_of_overlapping_writes_may_be_lost() {
        let writes = [write(0, 0, 1), write(0, 1, 2)];
        let left = |seed| {
            let mut image = vec![2_u8; 2048];
            for (start, bytes) in survivors(&writes, seed) {
                image[start as usize..start as usize + bytes.len()].copy_from_slice(&bytes);
            }
            let is_whole = image.iter().all(|byte| byte == &image[0]);
            is_whole.then_some(image[0])
        };
        let whole: BTreeSet<u8> = (0..50).filter_map(left).collect();
        assert_eq!(whole, [0, 1, 2].into());
    }
}
