//! Memory that the helper shares with programs. `preload/board.h` is the other side of it, and says what each word is.

use std::{
    fmt,
    fs::File,
    io,
    os::fd::AsFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use onesweep_sys::{
    files::{allocate_part, file_system, magic},
    memfd,
    memory::page_bytes,
    shared_words::{self, SharedWords},
};

use crate::names::{self, Kind, Name};

const MAGIC: u32 = 0x4f53_5741;
const VERSION: u32 = 1;

const WORD_MAGIC: usize = 0;
const WORD_VERSION: usize = 1;
const WORD_PHASE: usize = 2;
const WORD_BELL: usize = 3;
const WORD_TIDE: usize = 4;
const WORD_PULSE: usize = 5;
const WORD_WANTED: usize = 6;
const WORD_LAST: usize = 7;
const WORD_DEVICES: usize = 8;
const WORD_CAPACITY: usize = 9;
const WORD_WAITS: usize = 10;
const WORD_DEVICE: usize = 16;
const WORD_TABLE: usize = 32;
const DEVICES_MAX: usize = 8;

const SLOT_WORDS: usize = 4;
const SLOT_INO_LOW: usize = 0;
const SLOT_INO_HIGH: usize = 1;
const SLOT_DEVICE: usize = 2;
const SLOT_STATE: usize = 3;

const STATE_MASK: u32 = 3;
const STATE_OPENED: u32 = 4;

/// Slots of the largest table: 256 MiB of addresses, of which those are memory that are used.
const CAPACITY_MAX: u32 = 24;
const WORDS: usize = WORD_TABLE + (SLOT_WORDS << CAPACITY_MAX);

/// Other processes of this user, and of root, may write to it.
const KIND: Kind = Kind { prefix: "board-", suffix: "", mode: 0o600, fill: keeps_its_place, in_memory: memfd::empty };

/// File systems on which a page whose place was taken can always be written to. On btrfs every change needs place anew, and where there is
/// none a program that writes to its mapping is killed.
const PLACE_IS_KEPT: [u32; 4] = [magic::TMPFS, magic::EXT, magic::XFS, magic::OVERLAYFS];

/// Whether programs wait, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    /// Until the trees have been looked at.
    Looking = 0,
    /// For each file.
    Guided = 1,
    /// For nothing, for good.
    Over = 2,
    /// For nothing, while the trees are being looked at.
    Aside = 3,
}

/// Where a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// On the disk.
    Later = 0,
    /// It comes with this sweep.
    Coming = 1,
    /// In the page cache.
    In = 2,
    /// Left to the program.
    Left = 3,
}

/// The place of a file in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u32);

/// Called whenever something has changed for those who wait.
pub(crate) type News = Arc<dyn Fn() + Send + Sync>;

/// The helper's side, and that of a program that is this process itself.
pub(crate) struct Board {
    words: SharedWords,
    /// Where programs find it.
    name: Option<Name>,
    news: Option<News>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("words", &self.words).finish_non_exhaustive()
    }
}

impl Board {
    /// An empty one that other processes find, in the phase [`Phase::Looking`]: whoever opens something on one of the devices waits.
    pub(crate) fn named(devices: &[u64]) -> io::Result<Self> {
        let (file, name) = names::create(&KIND)?;
        Self::over(file, Some(name), devices, None)
    }

    /// The same for this process alone.
    pub(crate) fn new(devices: &[u64], news: Option<News>) -> io::Result<Self> {
        Self::over(memfd::empty()?, None, devices, news)
    }

    fn over(file: File, name: Option<Name>, devices: &[u64], news: Option<News>) -> io::Result<Self> {
        let words = SharedWords::over(file, WORDS)?;
        let set = |at: usize, value: u32| words[at].store(value, Ordering::Release);
        for (at, device) in devices.iter().take(DEVICES_MAX).enumerate() {
            set(WORD_DEVICE + 2 * at, *device as u32);
            set(WORD_DEVICE + 2 * at + 1, (device >> 32) as u32);
        }
        set(WORD_DEVICES, devices.len().min(DEVICES_MAX) as u32);
        set(WORD_VERSION, VERSION);
        set(WORD_MAGIC, MAGIC);
        Ok(Self { words, name, news })
    }

    /// How programs open it, where they can.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.name.as_ref().map(Name::path)
    }

    /// Makes the table for that many files, once, before the phase is [`Phase::Guided`]. More than three quarters of the
    /// largest one's slots are not given. Fails where there is no place for it.
    pub(crate) fn make_room(&self, files: usize) -> io::Result<()> {
        let wanted = (files.max(1) * 4 / 3).next_power_of_two().ilog2() + 1;
        let capacity = wanted.min(CAPACITY_MAX);
        if self.name.as_ref().is_some_and(Name::is_in_folder) {
            take_place(self.words.file(), WORD_TABLE + (SLOT_WORDS << capacity))?;
        }
        self.words[WORD_CAPACITY].store(capacity, Ordering::Release);
        Ok(())
    }

    /// Enters a file, on the device of that number, as [`State::Later`]. One that is there already keeps its slot. `None` when
    /// there is no room, or no such device.
    pub(crate) fn enter(&self, device: usize, ino: u64) -> Option<Slot> {
        if device >= DEVICES_MAX {
            return None;
        }
        let device = device as u32 + 1;
        let mask = (1_u64 << self.words[WORD_CAPACITY].load(Ordering::Acquire)) - 1;
        let mut at = (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(device)) & mask;
        for _ in 0..=mask / 4 * 3 {
            let slot = Slot(at as u32);
            let there = self.word(slot, SLOT_DEVICE).load(Ordering::Acquire);
            let ino_there = u64::from(self.word(slot, SLOT_INO_LOW).load(Ordering::Acquire))
                | u64::from(self.word(slot, SLOT_INO_HIGH).load(Ordering::Acquire)) << 32;
            if there == device && ino_there == ino {
                return Some(slot);
            }
            if there == 0 {
                self.word(slot, SLOT_INO_LOW).store(ino as u32, Ordering::Release);
                self.word(slot, SLOT_INO_HIGH).store((ino >> 32) as u32, Ordering::Release);
                self.word(slot, SLOT_DEVICE).store(device, Ordering::Release);
                return Some(slot);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn word(&self, slot: Slot, at: usize) -> &AtomicU32 {
        &self.words[WORD_TABLE + SLOT_WORDS * slot.0 as usize + at]
    }

    /// Sets where a file is. Whoever waits for it has to be told ([`Board::tell`]).
    pub(crate) fn set(&self, slot: Slot, state: State) {
        let word = self.word(slot, SLOT_STATE);
        // Programs set the other bit meanwhile.
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(old & !STATE_MASK | state as u32));
    }

    /// Whether the file is on the disk, and nobody has opened it.
    pub(crate) fn is_due(&self, slot: Slot) -> bool {
        self.word(slot, SLOT_STATE).load(Ordering::SeqCst) == State::Later as u32
    }

    /// Whether the file comes with the sweep that is under way, and nobody has opened it.
    pub(crate) fn is_coming(&self, slot: Slot) -> bool {
        self.word(slot, SLOT_STATE).load(Ordering::SeqCst) == State::Coming as u32
    }

    /// Whether the file was brought in, and nobody has opened it.
    pub(crate) fn is_in(&self, slot: Slot) -> bool {
        self.word(slot, SLOT_STATE).load(Ordering::SeqCst) == State::In as u32
    }

    /// Whether a program has opened the file.
    pub(crate) fn was_opened(&self, slot: Slot) -> bool {
        self.word(slot, SLOT_STATE).load(Ordering::SeqCst) & STATE_OPENED != 0
    }

    /// Wakes programs that wait, to look again.
    pub(crate) fn tell(&self) {
        self.words[WORD_TIDE].fetch_add(1, Ordering::SeqCst);
        shared_words::wake_all(&self.words[WORD_TIDE]);
        if let Some(news) = &self.news {
            news();
        }
    }

    pub(crate) fn enter_phase(&self, phase: Phase) {
        self.words[WORD_PHASE].store(phase as u32, Ordering::SeqCst);
        shared_words::wake_all(&self.words[WORD_PHASE]);
        self.tell();
    }

    /// From one phase to another, unless it is another one by now.
    pub(crate) fn pass(&self, from: Phase, to: Phase) {
        let phase = &self.words[WORD_PHASE];
        if phase.compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            shared_words::wake_all(phase);
            self.tell();
        }
    }

    /// Says that the helper lives.
    pub(crate) fn beat(&self) {
        self.words[WORD_PULSE].fetch_add(1, Ordering::SeqCst);
    }

    /// Rings for the helper itself.
    pub(crate) fn ring(&self) {
        self.words[WORD_BELL].fetch_add(1, Ordering::SeqCst);
        shared_words::wake_all(&self.words[WORD_BELL]);
    }

    /// Waits until somebody wants a file, or so long.
    pub(crate) fn wait_for_wanted(&self, at_most: Duration) -> Option<Slot> {
        let seen = self.words[WORD_BELL].load(Ordering::SeqCst);
        let wanted = self.take_wanted();
        if wanted.is_some() {
            return wanted;
        }
        shared_words::wait(&self.words[WORD_BELL], seen, at_most);
        self.take_wanted()
    }

    /// The file that somebody began to wait for last, once.
    pub(crate) fn take_wanted(&self) -> Option<Slot> {
        slot_of_number(self.words[WORD_WANTED].swap(0, Ordering::SeqCst))
    }

    /// The file that was opened last.
    pub(crate) fn last(&self) -> Option<Slot> {
        slot_of_number(self.words[WORD_LAST].load(Ordering::SeqCst))
    }

    /// Whether programs wait.
    pub(crate) fn phase(&self) -> Phase {
        match self.words[WORD_PHASE].load(Ordering::SeqCst) {
            0 => Phase::Looking,
            1 => Phase::Guided,
            3 => Phase::Aside,
            _ => Phase::Over,
        }
    }

    /// For a program: the slot of a file.
    pub(crate) fn find(&self, dev: u64, ino: u64) -> Option<Slot> {
        let devices = self.words[WORD_DEVICES].load(Ordering::Acquire) as usize;
        let word = |at: usize| u64::from(self.words[at].load(Ordering::Acquire));
        let is_it = |at: &usize| word(WORD_DEVICE + 2 * at) | word(WORD_DEVICE + 2 * at + 1) << 32 == dev;
        let device = (0..devices.min(DEVICES_MAX)).find(is_it)? as u32 + 1;
        self.probe(device, ino).find_map(|(slot, there)| there.map(|is_it| is_it.then_some(slot))).flatten()
    }

    /// The slots that a file may have, up to the one that is its own (true) or is empty (false).
    fn probe(&self, device: u32, ino: u64) -> impl Iterator<Item = (Slot, Option<bool>)> {
        let mask = (1_u64 << self.words[WORD_CAPACITY].load(Ordering::Acquire)) - 1;
        let first = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(device);
        (0..=mask).map(move |step| {
            let slot = Slot((first.wrapping_add(step) & mask) as u32);
            let there = self.word(slot, SLOT_DEVICE).load(Ordering::Acquire);
            let ino_there = u64::from(self.word(slot, SLOT_INO_LOW).load(Ordering::Acquire))
                | u64::from(self.word(slot, SLOT_INO_HIGH).load(Ordering::Acquire)) << 32;
            match there {
                0 => (slot, Some(false)),
                _ => (slot, (there == device && ino_there == ino).then_some(true)),
            }
        })
    }

    /// For a program: whether it need not wait for a file. What was opened before and has gone since it reads by itself.
    pub(crate) fn is_ready(&self, slot: Slot) -> bool {
        let state = self.word(slot, SLOT_STATE).load(Ordering::SeqCst);
        state & STATE_OPENED != 0 || state & STATE_MASK >= State::In as u32 || self.phase() == Phase::Over
    }

    /// For a program: it waits for a file, so that one that is on the disk is brought in. `begins` tells that it has just begun to: then
    /// the helper hears of one that is coming, too.
    pub(crate) fn want(&self, slot: Slot, begins: bool) {
        let state = self.word(slot, SLOT_STATE).load(Ordering::SeqCst) & STATE_MASK;
        let is_later = state == State::Later as u32;
        if is_later || begins {
            self.words[WORD_WANTED].store(slot.0 + 1, Ordering::SeqCst);
        }
        if is_later {
            self.ring();
        }
    }

    /// For a program: it opens a file.
    pub(crate) fn note_opened(&self, slot: Slot) {
        self.word(slot, SLOT_STATE).fetch_or(STATE_OPENED, Ordering::SeqCst);
        self.words[WORD_LAST].store(slot.0 + 1, Ordering::SeqCst);
    }

    /// For a program: it had to wait.
    pub(crate) fn note_wait(&self) {
        self.words[WORD_WAITS].fetch_add(1, Ordering::SeqCst);
    }

    /// How many opens had to wait.
    pub(crate) fn waits(&self) -> u32 {
        self.words[WORD_WAITS].load(Ordering::SeqCst)
    }
}

fn keeps_its_place(file: &File) -> io::Result<()> {
    if !PLACE_IS_KEPT.contains(&file_system(file.as_fd())?.magic) {
        return Err(io::Error::other("memory can't be shared by files of this file system"));
    }
    take_place(file, WORD_TABLE)
}

/// Whole pages: one that is written to wants place for all its blocks.
fn take_place(file: &File, words: usize) -> io::Result<()> {
    let bytes = words * size_of::<AtomicU32>();
    allocate_part(file.as_fd(), 0, (bytes as u64).next_multiple_of(page_bytes()))
}

/// What programs wrote is believed in no way: a number outside of the table is none.
fn slot_of_number(number: u32) -> Option<Slot> {
    number.checked_sub(1).filter(|at| *at < 1 << CAPACITY_MAX).map(Slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_mean_the_same_words() {
        let header = include_str!("../preload/board.h");
        let told = |name: &str| {
            let line = header.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix("= "));
            let value = line.unwrap_or_else(|| panic!("{name}")).split(',').next().unwrap();
            value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| u64::from_str_radix(hex, 16)).unwrap()
        };
        for (name, value) in [
            ("BOARD_MAGIC", u64::from(MAGIC)),
            ("BOARD_VERSION", VERSION.into()),
            ("WORD_MAGIC", WORD_MAGIC as u64),
            ("WORD_VERSION", WORD_VERSION as u64),
            ("WORD_PHASE", WORD_PHASE as u64),
            ("WORD_BELL", WORD_BELL as u64),
            ("WORD_TIDE", WORD_TIDE as u64),
            ("WORD_PULSE", WORD_PULSE as u64),
            ("WORD_WANTED", WORD_WANTED as u64),
            ("WORD_LAST", WORD_LAST as u64),
            ("WORD_DEVICES", WORD_DEVICES as u64),
            ("WORD_CAPACITY", WORD_CAPACITY as u64),
            ("WORD_WAITS", WORD_WAITS as u64),
            ("WORD_DEVICE", WORD_DEVICE as u64),
            ("WORD_TABLE", WORD_TABLE as u64),
            ("DEVICES_MAX", DEVICES_MAX as u64),
            ("SLOT_WORDS", SLOT_WORDS as u64),
            ("SLOT_INO_LOW", SLOT_INO_LOW as u64),
            ("SLOT_INO_HIGH", SLOT_INO_HIGH as u64),
            ("SLOT_DEVICE", SLOT_DEVICE as u64),
            ("SLOT_STATE", SLOT_STATE as u64),
            ("PHASE_LOOKING", Phase::Looking as u64),
            ("PHASE_GUIDED", Phase::Guided as u64),
            ("PHASE_OVER", Phase::Over as u64),
            ("PHASE_ASIDE", Phase::Aside as u64),
            ("STATE_LATER", State::Later as u64),
            ("STATE_COMING", State::Coming as u64),
            ("STATE_IN", State::In as u64),
            ("STATE_LEFT", State::Left as u64),
            ("STATE_MASK", STATE_MASK.into()),
            ("STATE_OPENED", STATE_OPENED.into()),
        ] {
            assert_eq!(told(name), value, "{name}");
        }
    }

    #[test]
    fn a_file_has_one_slot_however_many_names() {
        let board = Board::new(&[7, 8], None).unwrap();
        board.make_room(3).unwrap();
        let (one, other) = (board.enter(0, 12).unwrap(), board.enter(1, 12).unwrap());
        assert_ne!(one, other);
        assert_eq!(board.enter(0, 12), Some(one));
        assert_eq!(board.enter(8, 1), None, "devices beyond those that are told");
        for ino in 0..20 {
            board.enter(0, ino << 32);
        }
        assert!((0..20).any(|ino| board.enter(0, ino << 32).is_none()), "a table that is full has no room");
    }

    #[test]
    fn this_process_may_be_the_program() {
        let told = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&told);
        let news: News = Arc::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let board = Board::new(&[7, 1 << 40], Some(news)).unwrap();
        board.make_room(100).unwrap();
        let slots: Vec<Slot> = (0..50).map(|ino| board.enter(1, ino << 33).unwrap()).collect();
        for (ino, slot) in (0..50).zip(&slots) {
            assert_eq!(board.find(1 << 40, ino << 33), Some(*slot));
            assert_eq!((board.find(7, ino << 33), board.find(8, ino << 33)), (None, None));
        }
        assert_eq!(board.phase(), Phase::Looking);
        board.enter_phase(Phase::Guided);
        let slot = slots[3];
        assert!(!board.is_ready(slot));
        board.want(slot, true);
        assert_eq!(board.wait_for_wanted(Duration::ZERO), Some(slot));
        board.set(slot, State::In);
        board.tell();
        assert!(board.is_ready(slot) && told.load(Ordering::SeqCst) >= 2);
        board.note_opened(slot);
        assert_eq!((board.last(), board.was_opened(slot)), (Some(slot), true));
        board.set(slot, State::Later);
        assert!(board.is_ready(slot), "it was opened");
        board.set(slots[4], State::Coming);
        board.want(slots[4], false);
        assert_eq!(board.take_wanted(), None);
        board.want(slots[4], true);
        assert_eq!((board.take_wanted(), board.take_wanted()), (Some(slots[4]), None));
        assert!(board.is_coming(slots[4]) && !board.is_coming(slot));
        board.enter_phase(Phase::Over);
        assert!(board.is_ready(slots[5]));
    }

    #[test]
    fn what_programs_write_leads_nowhere() {
        let board = Board::new(&[7], None).unwrap();
        board.words[WORD_WANTED].store(u32::MAX, Ordering::SeqCst);
        assert_eq!(board.wait_for_wanted(Duration::ZERO), None);
        board.words[WORD_WANTED].store(5, Ordering::SeqCst);
        assert_eq!(board.wait_for_wanted(Duration::ZERO), Some(Slot(4)));
        assert_eq!(board.wait_for_wanted(Duration::ZERO), None);
    }
}
