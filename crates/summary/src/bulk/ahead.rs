//! Inodes that are told before anybody asks for them: a first harvest asks for all of them, sooner or later, and a file system that tells
//! many at a time takes little longer for it than for one.
//!
//! Directories are read as they are found, so those that lie side by side may be asked for at different times, and their files with
//! them. To ask for each by itself takes a call for each; to ask for what lies between as well has it told twice.

use std::{
    collections::BTreeMap,
    io, mem,
    ops::Bound,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{Told, by_number};

/// Inodes of one answer.
pub(super) const AT_ONCE: usize = 512;
/// So many that nobody has asked for are kept, some 80 bytes each; of several file systems that are harvested together each keeps its share of
/// them. What was kept when the share was larger stays until it is asked for. Beyond, only those are told that are asked for.
const HELD_MAX: usize = 1 << 20;
/// Where no more are kept, those whose numbers are no further apart are told in one go, with those between: to ask once more takes longer.
const NEAR: u64 = 8;
/// File systems give out numbers in chunks of so many, which rise with time: who asks for the middle of one asks for its beginning next.
const CHUNK: u64 = 64;

/// Tells the inodes in use from a number on, so many at most, by rising numbers.
pub(super) type Teller<'a> = dyn FnMut(u64, usize, &mut dyn FnMut(Told)) -> io::Result<()> + 'a;

/// What was told and not asked for yet.
#[derive(Debug)]
pub(super) struct Ahead {
    room: Room,
    /// So often an inode is going to be asked for, as far as is known.
    uses: fn(&Told) -> u64,
    ranges: Mutex<Ranges>,
    told: Condvar,
}

/// How many may be kept.
#[derive(Debug)]
enum Room {
    /// As many as each of those that have such a share.
    Share,
    #[cfg(test)]
    Of(usize),
}

/// So many have a share.
static SHARES: AtomicUsize = AtomicUsize::new(0);

impl Room {
    fn share() -> Room {
        SHARES.fetch_add(1, Ordering::Relaxed);
        Room::Share
    }

    fn most(&self) -> usize {
        match self {
            Room::Share => HELD_MAX / SHARES.load(Ordering::Relaxed).max(1),
            #[cfg(test)]
            Room::Of(most) => *most,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if matches!(self, Room::Share) {
            SHARES.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// By their first numbers. They don't overlap.
#[derive(Debug, Default)]
struct Ranges {
    by_first: BTreeMap<u64, Range>,
    held: usize,
}

/// Numbers of which all inodes in use are known.
#[derive(Debug)]
struct Range {
    last: u64,
    /// `None` while they are being told.
    told: Option<Vec<Told>>,
    /// So often one of them is still to be asked for.
    uses: u64,
}

/// Where the first of some numbers stands.
enum Place {
    /// So many of them were known, or are known not to be in use.
    Known(usize),
    BeingTold,
    /// From `first` on they may be asked for, up to `last`.
    Unknown {
        first: u64,
        last: u64,
    },
    /// So are these, but no more can be kept.
    Full {
        last: u64,
    },
}

impl Ahead {
    /// An inode has so many uses: as often it is asked for, as far as is known. Those that were asked for less often stay.
    pub(super) fn new(uses: fn(&Told) -> u64) -> Ahead {
        Ahead { room: Room::share(), uses, ranges: Mutex::default(), told: Condvar::new() }
    }

    /// Tells inodes with these numbers, which rise, those that are in use and can be told; one that is wanted twice comes twice.
    pub(super) fn look(&self, wanted: &[u64], tell: &mut Teller<'_>, found: &mut dyn FnMut(Told)) {
        let mut left = wanted;
        let mut ranges = self.ranges();
        while !left.is_empty() {
            match ranges.give(left, self.room.most(), found) {
                Place::Known(passed) => left = &left[passed..],
                Place::BeingTold => ranges = self.told.wait(ranges).unwrap_or_else(PoisonError::into_inner),
                Place::Unknown { first, last } => {
                    ranges.by_first.insert(first, Range { last, told: None, uses: 0 });
                    drop(ranges);
                    let being_told = BeingTold { ahead: self, first };
                    let count = count(first, last);
                    let mut told = Vec::with_capacity(count);
                    if tell(first, count, &mut |inode| told.push(inode)).is_ok() {
                        ranges = being_told.keep(told);
                    } else {
                        drop(being_told);
                        left = &left[left.partition_point(|&ino| ino <= last)..];
                        ranges = self.ranges();
                    }
                }
                Place::Full { last } => {
                    drop(ranges);
                    left = &left[look_near(left, last, tell, found)..];
                    ranges = self.ranges();
                }
            }
        }
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range that others wait for. Without an answer it goes, and they ask themselves.
struct BeingTold<'a> {
    ahead: &'a Ahead,
    first: u64,
}

impl<'a> BeingTold<'a> {
    fn keep(self, told: Vec<Told>) -> MutexGuard<'a, Ranges> {
        let (ahead, first) = (self.ahead, self.first);
        mem::forget(self);
        let mut ranges = ahead.ranges();
        ranges.keep(first, told, ahead.uses);
        ahead.told.notify_all();
        ranges
    }
}

impl Drop for BeingTold<'_> {
    fn drop(&mut self) {
        self.ahead.ranges().by_first.remove(&self.first);
        self.ahead.told.notify_all();
    }
}

impl Ranges {
    fn give(&mut self, wanted: &[u64], held_max: usize, found: &mut dyn FnMut(Told)) -> Place {
        let Some(&next) = wanted.first() else { return Place::Known(0) };
        let after_it = match self.by_first.range_mut(..=next).next_back() {
            Some((&first, range)) if range.last >= next => {
                let Some(told) = &range.told else { return Place::BeingTold };
                let passed = wanted.partition_point(|&ino| ino <= range.last);
                let known = wanted[..passed].iter().filter_map(|ino| by_number(told, *ino));
                let given = known.map(|inode| found(*inode)).count() as u64;
                range.uses = range.uses.saturating_sub(given);
                if range.uses == 0 {
                    self.held -= told.len();
                    self.by_first.remove(&first);
                }
                return Place::Known(passed);
            }
            Some((_, range)) => range.last + 1,
            None => 0,
        };
        if self.held + AT_ONCE > held_max {
            return Place::Full { last: self.last_before_next(next) };
        }
        let first = after_it.max(next - next % CHUNK);
        let last = first.saturating_add(AT_ONCE as u64 - 1).min(self.last_before_next(first));
        Place::Unknown { first, last }
    }

    fn last_before_next(&self, ino: u64) -> u64 {
        self.by_first.range((Bound::Excluded(ino), Bound::Unbounded)).next().map_or(u64::MAX, |(next, _)| next - 1)
    }

    /// All that is in use from there on, up to the last of these. Where there are none, none is in use up to the next range: an answer
    /// that is shorter than what was asked for says nothing about what lies behind it.
    fn keep(&mut self, first: u64, mut told: Vec<Told>, uses: fn(&Told) -> u64) {
        let most = self.last_before_next(first);
        let last = told.last().map_or(most, |inode| inode.ino.min(most));
        told.truncate(told.partition_point(|inode| inode.ino <= last));
        told.shrink_to_fit();
        let uses = told.iter().map(uses).sum();
        self.held += told.len();
        self.by_first.insert(first, Range { last, told: Some(told), uses });
    }
}

/// So many at most are told from one number to another.
fn count(first: u64, last: u64) -> usize {
    usize::try_from(last - first).map_or(AT_ONCE, |beyond| AT_ONCE.min(beyond.saturating_add(1)))
}

/// Those that lie near each other, up to `last`; how many of the numbers were passed.
fn look_near(wanted: &[u64], last: u64, tell: &mut Teller<'_>, found: &mut dyn FnMut(Told)) -> usize {
    let is_near = |pair: &&[u64]| pair[1] - pair[0] <= NEAR && pair[1] <= last;
    let near = &wanted[..=wanted.windows(2).take_while(is_near).count()];
    let (first, last) = (near[0], near[near.len() - 1]);
    let mut reached = None;
    let answer = tell(first, count(first, last), &mut |inode| {
        reached = Some(inode.ino);
        let from = near.partition_point(|&ino| ino < inode.ino);
        near[from..].iter().take_while(|&&ino| ino == inode.ino).for_each(|_| found(inode));
    });
    // What can't be told, or isn't there, is passed.
    let passed = answer.ok().and(reached).map_or(near.len(), |reached| near.partition_point(|&ino| ino <= reached));
    passed.max(1)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;

    /// As often as it has links.
    fn ahead() -> Ahead {
        Ahead::new(|told| told.links.into())
    }

    fn inode(ino: u64, links: u32) -> Told {
        Told {
            ino,
            generation: 1,
            mode: 0o100_644,
            links,
            owner: (0, 0),
            size: 4096,
            blocks: 8,
            mtime: (0, 0),
            ctime: (0, 0),
            has_xattrs: false,
        }
    }

    fn file(ino: u64) -> Told {
        inode(ino, 1)
    }

    /// A file system, and how many calls it answered, and inodes it told.
    #[derive(Default)]
    struct Disk {
        inodes: Vec<Told>,
        /// An answer ends before it, unless it begins there: then there is none.
        damaged: Option<u64>,
        calls: AtomicUsize,
        told: AtomicUsize,
    }

    impl Disk {
        fn of(inodes: impl IntoIterator<Item = Told>) -> Disk {
            Disk { inodes: inodes.into_iter().collect(), ..Disk::default() }
        }

        fn look(&self, ahead: &Ahead, wanted: &[u64]) -> Vec<u64> {
            let mut found = Vec::new();
            let mut tell = |first, count, tell: &mut dyn FnMut(Told)| {
                self.calls.fetch_add(1, Ordering::Relaxed);
                let from = self.inodes.partition_point(|inode| inode.ino < first);
                for (number, inode) in self.inodes[from..].iter().take(count).enumerate() {
                    if Some(inode.ino) == self.damaged {
                        return if number == 0 { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) };
                    }
                    self.told.fetch_add(1, Ordering::Relaxed);
                    tell(*inode);
                }
                Ok(())
            };
            ahead.look(wanted, &mut tell, &mut |told| found.push(told.ino));
            found
        }

        fn asked(&self) -> (usize, usize) {
            (self.calls.load(Ordering::Relaxed), self.told.load(Ordering::Relaxed))
        }
    }

    fn is_content(ahead: &Ahead) {
        let ranges = ahead.ranges();
        let all: Vec<_> = ranges.by_first.iter().map(|(first, range)| (*first, range.last)).collect();
        assert!(all.iter().all(|(first, last)| first <= last) && all.windows(2).all(|two| two[0].1 < two[1].0));
        let held: usize = ranges.by_first.values().map(|range| range.told.as_ref().map_or(0, Vec::len)).sum();
        assert_eq!(held, ranges.held);
    }

    #[test]
    fn each_is_told_once_however_they_are_asked_for() {
        let disk = Disk::of((0..20_000).filter(|ino| ino % 7 != 3).map(file));
        let ahead = ahead();
        let mut all = Vec::new();
        for turn in [2, 0, 4, 1, 3] {
            for from in (0..20_000).step_by(1000) {
                let wanted: Vec<u64> = (from..from + 1000).filter(|ino| (ino / 11) % 5 == turn).collect();
                all.extend(disk.look(&ahead, &wanted));
                is_content(&ahead);
            }
        }
        all.sort_unstable();
        assert!(all.iter().eq(disk.inodes.iter().map(|inode| &inode.ino)));
        let (calls, told) = disk.asked();
        assert!(calls < 50 && told < 21_000, "{calls} {told}");
        // Nobody asks for them any more, but for numbers that aren't in use.
        assert!(ahead.ranges().held <= 2 * AT_ONCE, "{}", ahead.ranges().held);
    }

    #[test]
    fn what_is_asked_for_several_times_stays_until_then() {
        let disk = Disk::of([inode(70, 2), inode(71, 4)]);
        let ahead = ahead();
        for _ in 0..2 {
            assert_eq!(disk.look(&ahead, &[70, 71]), [70, 71]);
        }
        // By two names at once.
        assert_eq!(disk.look(&ahead, &[71, 71]), [71, 71]);
        assert_eq!((disk.asked(), ahead.ranges().held), ((1, 2), 0));
        // Who asks once more than that is told once more.
        assert_eq!(disk.look(&ahead, &[71]), [71]);
    }

    #[test]
    fn no_more_is_held_than_there_is_room_for_and_all_are_told() {
        let disk = Disk::of((0..50_000).map(file));
        let ahead = Ahead { room: Room::Of(4 * AT_ONCE), ..ahead() };
        let all = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for reader in 0..4 {
                let (disk, ahead, all) = (&disk, &ahead, &all);
                scope.spawn(move || {
                    for turn in 0..10 {
                        let is_mine = |ino: &u64| (ino / 11) % 10 == turn && (ino / 110) % 4 == reader;
                        let wanted: Vec<u64> = (0..50_000).filter(is_mine).collect();
                        for some in wanted.chunks(500) {
                            let found = disk.look(ahead, some);
                            assert_eq!(found, some);
                            all.lock().expect("no panic").extend(found);
                            is_content(ahead);
                            // Each may be told one more at the same time.
                            assert!(ahead.ranges().held <= 8 * AT_ONCE);
                        }
                    }
                });
            }
        });
        let all = all.into_inner().expect("no panic");
        assert_eq!((all.len(), all.into_iter().collect::<BTreeSet<_>>().len()), (50_000, 50_000));
    }

    /// The end of the numbers, gaps that are wider than an answer, and ranges that would run into each other.
    #[test]
    fn ranges_end_where_the_next_one_begins() {
        let far = 1 << 40;
        let disk = Disk::of((0..100).map(file).chain((far..far + 2000).map(file)));
        let ahead = ahead();
        assert_eq!(disk.look(&ahead, &[far + 700, far + 1999]), [far + 700, far + 1999]);
        assert_eq!(disk.look(&ahead, &[5, 99, 100, far - 1, far + 1, far + 699]), [5, 99, far + 1, far + 699]);
        is_content(&ahead);
        assert!(disk.look(&ahead, &[far + 5000, u64::MAX]).is_empty());
        assert_eq!(disk.look(&ahead, &[far + 1998]), [far + 1998]);
        is_content(&ahead);
    }

    /// Who reads it in the ordinary way is told why.
    #[test]
    fn one_that_is_damaged_hides_none_behind_it() {
        let disk = Disk { damaged: Some(3000), ..Disk::of((0..6000).map(file)) };
        let ahead = ahead();
        let found = disk.look(&ahead, &[10, 2990, 2999, 3000, 3001, 3700, 5999]);
        assert_eq!(found, [10, 2990, 2999, 3700, 5999]);
        is_content(&ahead);
        let ahead = Ahead { room: Room::Of(0), ..super::tests::ahead() };
        assert_eq!(disk.look(&ahead, &[2999, 3000, 3100]), [2999, 3100]);
    }

    #[test]
    fn who_waits_for_one_that_fails_asks_itself() {
        let (ahead, both) = (ahead(), Barrier::new(2));
        let disk = Disk::of((0..10).map(file));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                both.wait();
                disk.look(&ahead, &[1, 2])
            });
            let mut fails = |_, _, _: &mut dyn FnMut(Told)| {
                both.wait();
                thread::yield_now();
                Err(io::ErrorKind::PermissionDenied.into())
            };
            ahead.look(&[1, 2], &mut fails, &mut |_| unreachable!("nothing was told"));
            assert_eq!(waiting.join().expect("no panic"), [1, 2]);
        });
        is_content(&ahead);
    }

    /// Chunks lie far from each other, so that an answer reaches beyond what its asker knew of.
    #[test]
    fn several_at_a_time_have_each_told_once() {
        const CHUNKS: u64 = 512;
        let place = |number: u64| number / CHUNK * 1024 + number % CHUNK;
        let disk = Disk::of((0..CHUNKS * CHUNK).map(place).map(file));
        let (ahead, given) = (ahead(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for turn in 0..4 {
                let (disk, ahead, given) = (&disk, &ahead, &given);
                scope.spawn(move || {
                    let wanted: Vec<u64> = (0..CHUNKS * CHUNK).filter(|number| number % 4 == turn).map(place).collect();
                    for some in wanted.chunks(100) {
                        let found = disk.look(ahead, some);
                        assert_eq!(found, some);
                        given.fetch_add(found.len(), Ordering::Relaxed);
                    }
                });
            }
        });
        is_content(&ahead);
        assert_eq!((given.into_inner() as u64, ahead.ranges().held), (CHUNKS * CHUNK, 0));
    }
}
