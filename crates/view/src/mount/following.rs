//! Which files of a directory a program reads next: pure.
//!
//! Programs that walk read the files of a directory in one of few orders. Whoever has read two files that follow each other in one
//! of them will read the next ones, and in the next directory, too. What was foreseen is given to the kernel and isn't asked for any
//! more; so one file in each window is left out: when it is asked for, the program has come so far, and more is foreseen. As the
//! kernel's read-ahead does it, with files in place of pages.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use onesweep_sys::files::EntryType;

use super::nodes::NodeId;
use crate::order::Listed;

/// Files that are foreseen at first, and at most.
const WINDOW_MIN: usize = 4;
const WINDOW_MAX: usize = 64;
/// Directories whose entries are known have so many, at most: some 20 MB. `find -exec` lists many before the first file is read.
const KNOWN_MAX: usize = 1 << 17;
/// Directories with more entries are not followed: to sort them takes longer than a walk may wait.
const ENTRIES_MAX: usize = 1 << 16;
/// Directories whose first files are foreseen, beyond the one in which a program is.
pub(super) const DIRECTORIES_AHEAD: usize = 12;

/// An order in which programs read the files of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Listed,
    Inode,
    Name,
}

const KINDS: [Kind; 3] = [Kind::Listed, Kind::Inode, Kind::Name];

/// Entries by their ranks, and ranks by the entries, of files alone.
#[derive(Debug)]
struct Ranks {
    entries: Vec<u32>,
    /// Of each entry; none of those that are no files.
    ranks: Vec<Option<u32>>,
}

impl Ranks {
    fn new(listed: &[Listed], kind: Kind) -> Self {
        let is_file = |at: &u32| matches!(listed[*at as usize].kind, EntryType::File | EntryType::Unknown);
        let mut entries: Vec<u32> = (0..listed.len() as u32).filter(is_file).collect();
        match kind {
            Kind::Listed => {}
            Kind::Inode => entries.sort_by_key(|at| listed[*at as usize].ino),
            Kind::Name => entries.sort_by(|one, other| listed[*one as usize].name.cmp(&listed[*other as usize].name)),
        }
        let mut ranks = vec![None; listed.len()];
        (0..).zip(&entries).for_each(|(rank, at)| ranks[*at as usize] = Some(rank));
        Self { entries, ranks }
    }

    fn of(&self, entry: u32) -> Option<usize> {
        self.ranks[entry as usize].map(|rank| rank as usize)
    }
}

/// How the files of a directory are read.
#[derive(Debug)]
struct Course {
    listed: Arc<Vec<Listed>>,
    /// How many directories were listed before.
    place: u64,
    /// The walk in which its files were foreseen last.
    walk: u64,
    by_ino: Option<HashMap<u64, u32>>,
    ranks: [Option<Ranks>; KINDS.len()],
    /// The entry that was asked for last.
    last: Option<u32>,
    foreseen: Option<Foreseen>,
}

/// Ranks in one order.
#[derive(Debug)]
struct Foreseen {
    kind: Kind,
    /// Of what was asked for.
    first: usize,
    /// Of what isn't given: that it is asked for tells that the program has come so far.
    left_out: usize,
    /// Behind what is given.
    end: usize,
    /// Nobody has asked for a file of the directory: it was foreseen that somebody comes to it.
    is_ahead: bool,
}

impl Course {
    fn new(listed: Arc<Vec<Listed>>, place: u64) -> Self {
        Self { listed, place, walk: 0, by_ino: None, ranks: [const { None }; KINDS.len()], last: None, foreseen: None }
    }

    /// What it takes: an empty directory counts, too.
    fn weight(&self) -> usize {
        self.listed.len() + 1
    }

    fn entry(&mut self, ino: u64) -> Option<u32> {
        let listed = &self.listed;
        let by_ino = self.by_ino.get_or_insert_with(|| listed.iter().map(|entry| entry.ino).zip(0..).collect());
        by_ino.get(&ino).copied()
    }

    fn ranks(&mut self, kind: Kind) -> &Ranks {
        let listed = &self.listed;
        self.ranks[kind as usize].get_or_insert_with(|| Ranks::new(listed, kind))
    }

    /// Whether one entry comes just behind another one.
    fn follows(&mut self, kind: Kind, one: u32, other: u32) -> bool {
        let ranks = self.ranks(kind);
        matches!((ranks.of(one), ranks.of(other)), (Some(one), Some(other)) if one + 1 == other)
    }
}

/// What programs are foreseen to read.
#[derive(Debug)]
pub(super) struct Following {
    courses: HashMap<NodeId, Course>,
    /// By their places: those that were listed last come last.
    order: BTreeMap<u64, NodeId>,
    listings: u64,
    known: usize,
    /// Walks over the same directories, as those of a program that reads all of them once more.
    walk: u64,
    /// The last place in which a program has asked for a file in this walk.
    asked_at: u64,
    /// The last place that a program has opened: before it reads there, or long before.
    opened_at: u64,
    /// Files that were foreseen in whole directories since it was seen where a program is.
    unasked: usize,
    /// How the last directory was read in which that could be told.
    kind: Kind,
    /// None: nothing is foreseen in a new directory.
    window: Option<usize>,
    /// The last directory that somebody has asked in and whose entries aren't known.
    unknown: Option<NodeId>,
}

impl Default for Following {
    fn default() -> Self {
        Self {
            courses: HashMap::new(),
            order: BTreeMap::new(),
            listings: 0,
            known: 0,
            walk: 1,
            asked_at: 0,
            opened_at: 0,
            unasked: 0,
            kind: Kind::Listed,
            window: None,
            unknown: None,
        }
    }
}

impl Following {
    /// A directory was listed.
    pub(super) fn listed(&mut self, directory: NodeId, listed: &Arc<Vec<Listed>>) {
        // One that is too large counts as known: nobody should list it again.
        let listed = if listed.len() > ENTRIES_MAX { Arc::default() } else { Arc::clone(listed) };
        self.listings += 1;
        let course = Course::new(listed, self.listings);
        self.known += course.weight();
        self.order.insert(course.place, directory);
        if let Some(old) = self.courses.insert(directory, course) {
            self.known -= old.weight();
            self.order.remove(&old.place);
        }
        while self.known > KNOWN_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known -= self.courses.remove(&oldest).map_or(0, |course| course.weight());
        }
    }

    /// Whether the entries of a directory are known.
    pub(super) fn knows(&self, directory: NodeId) -> bool {
        self.courses.contains_key(&directory)
    }

    /// A program has opened a directory.
    pub(super) fn opened(&mut self, directory: NodeId) {
        if let Some(course) = self.courses.get(&directory).filter(|course| course.place > self.opened_at) {
            self.opened_at = course.place;
            self.unasked = 0;
        }
    }

    /// Whether it is foreseen what programs read in a directory to which they come.
    pub(super) fn is_followed(&self) -> bool {
        self.window.is_some()
    }

    /// Brings directories of one directory, each with its name, into the order in which programs are expected to come to them.
    pub(super) fn sort(&self, directories: &mut [(&Listed, NodeId)]) {
        match self.kind {
            Kind::Listed => {}
            Kind::Inode => directories.sort_by_key(|(listed, _)| listed.ino),
            Kind::Name => directories.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name)),
        }
    }

    /// The next directory of those ahead in which nothing was foreseen in this walk.
    fn unforeseen(&self) -> Option<NodeId> {
        self.window?;
        let ahead = |of: u64| self.order.range(of + 1..).take(DIRECTORIES_AHEAD).map(|(_, id)| *id);
        let is_new = |id: &NodeId| self.courses.get(id).is_some_and(|course| course.walk != self.walk);
        ahead(self.asked_at).find(is_new).or_else(|| ahead(self.opened_at).find(is_new))
    }

    /// Whether there is one.
    pub(super) fn has_next_directory(&self) -> bool {
        self.unforeseen().is_some()
    }

    /// The next directory whose files are foreseen, though no program has asked in it: its entries, and which of them will be read
    /// first, in that order. They count as foreseen then.
    pub(super) fn next_directory(&mut self) -> Option<(NodeId, Arc<Vec<Listed>>, Vec<u32>)> {
        let next = self.unforeseen()?;
        let kind = self.kind;
        let course = self.courses.get_mut(&next)?;
        let ranks = course.ranks(kind);
        let end = ranks.entries.len().min(WINDOW_MAX);
        self.unasked += end;
        // From time to time a file is left out where no directories are opened any more: that it is asked for tells where a program is.
        let left_out = match () {
            () if ranks.entries.len() > WINDOW_MAX => WINDOW_MAX / 2,
            () if self.unasked > WINDOW_MAX => 0,
            () => end,
        };
        if left_out < end {
            self.unasked = 0;
        }
        let files = (0..end).filter(|rank| *rank != left_out).map(|rank| ranks.entries[rank]).collect();
        course.foreseen = Some(Foreseen { kind, first: 0, left_out, end, is_ahead: true });
        course.last = None;
        course.walk = self.walk;
        Some((next, Arc::clone(&course.listed), files))
    }

    /// The files that were foreseen in a directory couldn't be given.
    pub(super) fn not_given(&mut self, directory: NodeId) {
        if let Some(course) = self.courses.get_mut(&directory) {
            course.foreseen = None;
        }
    }

    /// A program is about to ask for a file of a directory. True when its entries aren't known, and that was so the last time, too:
    /// the kernel has kept them from another walk. They are worth to be listed.
    pub(super) fn lacks(&mut self, directory: NodeId) -> bool {
        if self.courses.contains_key(&directory) {
            return false;
        }
        self.unknown.replace(directory) == Some(directory)
    }

    /// A program has asked for a file of a directory. Gives the directory's entries, and which of them it will read next, in that
    /// order.
    pub(super) fn asked(&mut self, directory: NodeId, ino: u64) -> Option<(Arc<Vec<Listed>>, Vec<u32>)> {
        let course = self.courses.get_mut(&directory)?;
        let entry = course.entry(ino)?;
        let last = course.last.replace(entry);
        self.asked_at = self.asked_at.max(course.place);
        // Another program may read another directory in another order.
        let kind = course.foreseen.as_ref().map_or(self.kind, |foreseen| foreseen.kind);
        let rank = course.ranks(kind).of(entry)?;
        let last_rank = last.and_then(|last| course.ranks(kind).of(last));
        let begins_again = |foreseen: &Foreseen| match foreseen.is_ahead {
            // Both were given.
            true => (last_rank, rank) == (Some(0), 1) && foreseen.left_out > 1,
            false => (rank == 0 || rank == foreseen.first) && last.is_some(),
        };
        let from = match &course.foreseen {
            // Once more from the beginning: the kernel had to forget what it was given, as after a back-up, which has each file forgotten.
            Some(foreseen) if begins_again(foreseen) && self.window.is_some() => {
                if course.walk == self.walk {
                    self.walk += 1;
                    (self.asked_at, self.opened_at) = (course.place, course.place);
                }
                Some(rank + 1)
            }
            // What could not be given, as a large file.
            Some(Foreseen { first, left_out, .. }) if (*first..*left_out).contains(&rank) => return None,
            Some(Foreseen { left_out, end, .. }) if (*left_out..=*end).contains(&rank) => Some((*end).max(rank + 1)),
            None if last.is_none() && self.window.is_some() => Some(rank + 1),
            _ => None,
        };
        let (kind, rank, from) = match from {
            Some(from) => (kind, rank, from),
            None => {
                let last = last?;
                let Some(kind) = KINDS.into_iter().find(|kind| course.follows(*kind, last, entry)) else {
                    course.foreseen = None;
                    self.window = None;
                    return None;
                };
                self.kind = kind;
                let rank = course.ranks(kind).of(entry)?;
                (kind, rank, rank + 1)
            }
        };
        let window = self.window.map_or(WINDOW_MIN, |window| (2 * window).min(WINDOW_MAX));
        self.window = Some(window);
        course.walk = self.walk;
        let ranks = course.ranks(kind);
        let end = (from + window).min(ranks.entries.len());
        let left_out = from + window / 2;
        let next = (from..end).filter(|rank| *rank != left_out).map(|rank| ranks.entries[rank]).collect();
        course.foreseen = Some(Foreseen { kind, first: rank, left_out, end, is_ahead: false });
        Some((Arc::clone(&course.listed), next))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, ffi::CString};

    use super::*;

    /// Files whose order by name and by number differ from the one in which they are listed.
    fn listing(count: u64) -> Arc<Vec<Listed>> {
        let file = |at: u64| {
            let (name, ino) = (CString::new(format!("{:05}", at * 7919 % count)).unwrap(), 100 + at * 104_729 % count);
            Listed { name, ino, kind: EntryType::File }
        };
        Arc::new((0..count).map(file).collect())
    }

    /// Reads a directory in an order; tells how many files were asked for, and how many were foreseen that weren't read behind it.
    fn read(
        following: &mut Following,
        directory: NodeId,
        order: &[u64],
        given: impl Fn(u64) -> bool,
    ) -> (usize, usize) {
        let mut known: Vec<u64> = Vec::new();
        let (mut asked, mut in_vain) = (0, 0);
        for (at, ino) in order.iter().enumerate() {
            if known.contains(ino) {
                continue;
            }
            asked += 1;
            if let Some((listed, next)) = following.asked(directory, *ino) {
                let next = next.into_iter().map(|entry| listed[entry as usize].ino);
                let next: Vec<u64> = next.filter(|ino| given(*ino)).collect();
                in_vain += next.iter().filter(|ino| !order[at..].contains(ino)).count();
                known.extend(next);
            }
        }
        (asked, in_vain)
    }

    fn orders(listed: &[Listed]) -> [Vec<u64>; 3] {
        let as_listed: Vec<u64> = listed.iter().map(|entry| entry.ino).collect();
        let mut by_number = as_listed.clone();
        by_number.sort_unstable();
        let mut by_name: Vec<&Listed> = listed.iter().collect();
        by_name.sort_by(|one, other| one.name.cmp(&other.name));
        [as_listed, by_number, by_name.into_iter().map(|entry| entry.ino).collect()]
    }

    #[test]
    fn each_order_is_recognised_and_kept_in_the_next_directory() {
        let listed = listing(1009);
        for order in orders(&listed) {
            let mut following = Following::default();
            following.listed(1, &listed);
            let (asked, in_vain) = read(&mut following, 1, &order, |_| true);
            assert!(asked < 30 && in_vain == 0, "{asked} {in_vain}");
            following.listed(2, &listed);
            let (asked, in_vain) = read(&mut following, 2, &order, |_| true);
            assert!(asked < 20 && in_vain == 0, "{asked} {in_vain}");
        }
    }

    /// A program may have the kernel forget what it has read, as a back-up does, and read it once more.
    #[test]
    fn who_begins_again_is_followed_from_the_first_file_on() {
        for count in [30, 1009] {
            let listed = listing(count);
            for order in orders(&listed) {
                let mut following = Following::default();
                (0..20).for_each(|directory| following.listed(directory, &listed));
                let mut walk =
                    || -> usize { (0..20).map(|directory| read(&mut following, directory, &order, |_| true).0).sum() };
                let [first, again, once_more] = [walk(), walk(), walk()];
                assert!(again <= first && once_more <= again, "{count}: {first}, {again}, {once_more}");
            }
        }
    }

    /// Reads directories one after the other, and has each file forgotten then; each file that isn't foreseen by a request of its own. Tells how many were asked for.
    fn read_all(following: &mut Following, directories: std::ops::Range<u64>, order: &[u64], opens: bool) -> usize {
        let mut known: HashSet<(u64, u64)> = HashSet::new();
        let mut asked = 0;
        for directory in directories {
            if opens {
                following.opened(directory);
            }
            for ino in order {
                if !known.contains(&(directory, *ino)) {
                    asked += 1;
                    if let Some((listed, next)) = following.asked(directory, *ino) {
                        known.extend(next.iter().map(|entry| (directory, listed[*entry as usize].ino)));
                    }
                }
                while let Some((ahead, listed, files)) = following.next_directory() {
                    assert!(
                        (directory + 1..=directory + DIRECTORIES_AHEAD as u64).contains(&ahead),
                        "{directory} {ahead}"
                    );
                    known.extend(files.iter().map(|entry| (ahead, listed[*entry as usize].ino)));
                }
            }
        }
        asked
    }

    #[test]
    fn directories_to_which_a_program_comes_next_are_foreseen() {
        let listed = listing(30);
        for order in orders(&listed) {
            for opens in [true, false] {
                let mut following = Following::default();
                (0..200).for_each(|directory| following.listed(directory, &listed));
                // Of 6,000 files, without that one for each directory and more.
                let [first, again] = [(); 2].map(|()| read_all(&mut following, 0..200, &order, opens));
                // From where nobody has asked before.
                let from_there = read_all(&mut following, 50..200, &order, opens);
                assert!(first < 120 && again < 120 && from_there < 120, "{first} {again} {from_there}");
            }
        }
        let mut following = Following::default();
        (0..200).for_each(|directory| following.listed(directory, &listed));
        following.opened(5);
        assert!(following.next_directory().is_none() && !following.is_followed(), "nobody reads files");
    }

    #[test]
    fn directories_are_sorted_as_files_are_read() {
        let listed = listing(101);
        for (order, at) in orders(&listed).into_iter().zip([0, 1, 2]) {
            let mut following = Following::default();
            following.listed(1, &listed);
            read(&mut following, 1, &order, |_| true);
            let mut directories: Vec<_> = listed.iter().map(|entry| (entry, entry.ino)).collect();
            following.sort(&mut directories);
            let sorted: Vec<u64> = directories.into_iter().map(|(_, id)| id).collect();
            assert_eq!(sorted, order, "{at}");
        }
    }

    #[test]
    fn two_programs_are_followed_each_in_its_order() {
        let listed = listing(1009);
        let [as_listed, _, by_name] = orders(&listed);
        let mut following = Following::default();
        let mut asked = 0;
        let mut known: [Vec<u64>; 2] = Default::default();
        (0..2).for_each(|directory| following.listed(directory, &listed));
        for (directory, ino) in as_listed.iter().zip(&by_name).flat_map(|(one, other)| [(0, *one), (1, *other)]) {
            if !known[directory as usize].contains(&ino) {
                asked += 1;
                let next = following.asked(directory, ino).map_or_else(Vec::new, |(_, next)| next);
                known[directory as usize].extend(next.into_iter().map(|entry| listed[entry as usize].ino));
            }
        }
        assert!(asked < 60, "{asked}");
    }

    #[test]
    fn what_cannot_be_given_is_no_end() {
        let listed = listing(1009);
        for order in orders(&listed) {
            let mut following = Following::default();
            following.listed(1, &listed);
            // Every seventh is too large.
            let (asked, _) = read(&mut following, 1, &order, |ino| ino % 7 != 0);
            assert!(asked < 1009 / 7 + 40, "{asked}");
        }
    }

    #[test]
    fn who_reads_here_and_there_is_not_followed() {
        let listed = listing(1009);
        let mut following = Following::default();
        following.listed(1, &listed);
        let order: Vec<u64> = (0..1009).map(|at| listed[at * 401 % 1009].ino).collect();
        let (asked, in_vain) = read(&mut following, 1, &order, |_| true);
        assert!(asked > 900 && in_vain < 50, "{asked} {in_vain}");
        let mut following = Following::default();
        assert!(following.asked(1, 100).is_none(), "a directory that nobody has listed");
        following.listed(1, &listed);
        assert!(following.asked(1, 100).is_none(), "a single file");
        assert!(following.asked(1, 5).is_none(), "one that isn't in it");
    }

    #[test]
    fn what_is_foreseen_is_bounded() {
        let listed = listing(1009);
        let mut following = Following::default();
        let last = 3 * KNOWN_MAX as u64 / 1009;
        for directory in (0..=last).flat_map(|directory| [directory, directory / 2]) {
            following.listed(directory, &listed);
            let known: usize = following.courses.values().map(Course::weight).sum();
            assert!(following.known == known && known <= KNOWN_MAX && following.order.len() == following.courses.len());
        }
        assert!(following.courses.contains_key(&last) && following.courses.len() == KNOWN_MAX / 1010);
        let mut most = 0;
        for entry in listed.iter() {
            most = most.max(following.asked(last, entry.ino).map_or(0, |(_, next)| next.len()));
        }
        assert_eq!(most, WINDOW_MAX - 1);
        following.listed(1, &Arc::new(vec![listed[0].clone(); ENTRIES_MAX + 1]));
        assert!(following.asked(1, listed[0].ino).is_none() && !following.lacks(1));
    }

    #[test]
    fn a_directory_that_the_kernel_has_kept_is_listed_for_the_second_file() {
        let mut following = Following::default();
        assert_eq!([1, 2, 2, 2].map(|directory| following.lacks(directory)), [false, false, true, true]);
        following.listed(2, &listing(10));
        assert_eq!([2, 1, 2, 1].map(|directory| following.lacks(directory)), [false, false, false, true]);
    }
}
