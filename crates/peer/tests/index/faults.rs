//! Whatever is done and whatever fails: a block that the index calls valid has the hash of the bytes on the device.

use onesweep_peer::{
    id::TrustDomain,
    index::{Block, DeviceIndex, Geometry, WriteTicket, device::ReadTicket},
    marks::Marks,
};
use proptest::prelude::*;

use crate::simulated::{Content, Random, Simulated};

const BLOCK: u64 = 4096;
/// Three regions, and a last block of 1000 bytes.
const DEVICE_BYTES: u64 = (3 << 20) + 1000;
/// Blocks at the borders of regions, where all operations are.
const BLOCKS: [u64; 12] = [0, 1, 2, 254, 255, 256, 257, 511, 512, 513, 767, 768];

#[derive(Clone, Debug)]
enum Step {
    BeginWrite {
        at: usize,
        shift: u64,
        len: u64,
        fill: u8,
    },
    EndWrite {
        which: usize,
        done: bool,
    },
    Write {
        at: usize,
        blocks: u64,
        fill: u8,
    },
    BeginRead {
        at: usize,
    },
    EndRead {
        which: usize,
    },
    Read {
        at: usize,
    },
    Flush,
    Tidy,
    /// Closed in good order, then changed elsewhere or not, and opened again.
    Reopen {
        elsewhere: Option<(usize, u8)>,
    },
    Kill {
        elsewhere: Option<(usize, u8)>,
    },
    PowerCut {
        seed: u64,
    },
    /// The power goes at the k-th operation of closing the index.
    CutWhileClosing {
        after: u64,
        seed: u64,
    },
    /// The index fails from the k-th operation on.
    Fail {
        after: u64,
        for_ever: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly few places, so that writes and reads overlap.
    let at = || prop_oneof![3 => 0..3_usize, 1 => 0..BLOCKS.len()];
    // Few values, so that bytes often are what they were before, and often zeros.
    let fill = || 0..4_u8;
    let shift = || prop_oneof![Just(0), 0..BLOCK];
    let len = || prop_oneof![Just(BLOCK), 1..3 * BLOCK];
    prop_oneof![
        4 => (at(), shift(), len(), fill()).prop_map(|(at, shift, len, fill)| Step::BeginWrite { at, shift, len, fill }),
        5 => (0..2_usize, prop::bool::weighted(0.8)).prop_map(|(which, done)| Step::EndWrite { which, done }),
        3 => (at(), 1..3_u64, fill()).prop_map(|(at, blocks, fill)| Step::Write { at, blocks, fill }),
        2 => at().prop_map(|at| Step::BeginRead { at }),
        2 => (0..4_usize).prop_map(|which| Step::EndRead { which }),
        4 => at().prop_map(|at| Step::Read { at }),
        3 => Just(Step::Flush),
        1 => Just(Step::Tidy),
        2 => prop::option::of((at(), fill())).prop_map(|elsewhere| Step::Reopen { elsewhere }),
        1 => prop::option::of((at(), fill())).prop_map(|elsewhere| Step::Kill { elsewhere }),
        1 => any::<u64>().prop_map(|seed| Step::PowerCut { seed }),
        2 => (0..8_u64, any::<u64>()).prop_map(|(after, seed)| Step::CutWhileClosing { after, seed }),
        1 => (0..12_u64, any::<bool>()).prop_map(|(after, for_ever)| Step::Fail { after, for_ever }),
    ]
}

struct World {
    file: Simulated,
    device: Content,
    domain: TrustDomain,
    /// What the marks tell: how often somebody else had the device.
    version: u64,
    index: Option<DeviceIndex<Simulated>>,
    writes: Vec<(WriteTicket, u64, Vec<u8>)>,
    reads: Vec<(ReadTicket, u64, Vec<u8>)>,
    valid_seen: u64,
}

impl World {
    fn new() -> World {
        let domain = TrustDomain::from_key([5; 32]);
        let file = Simulated::default();
        let geometry = Geometry::new(BLOCK as u32, DEVICE_BYTES).unwrap();
        let index = DeviceIndex::create(file.clone(), geometry, &domain).unwrap();
        let mut device = Content::default();
        device.write(0, &vec![1; DEVICE_BYTES as usize]);
        device.sync();
        let (writes, reads) = (Vec::new(), Vec::new());
        World { file, device, domain, version: 0, index: Some(index), writes, reads, valid_seen: 0 }
    }

    fn marks(&self) -> Marks {
        Marks::of_file(self.version, (0, 0), (0, 0))
    }

    fn place(&self, at: usize, shift: u64, len: u64) -> (u64, u64) {
        let at = (BLOCKS[at] * BLOCK + shift).min(DEVICE_BYTES - 1);
        (at, len.min(DEVICE_BYTES - at))
    }

    fn block_bytes(&self, at: usize) -> (u64, Vec<u8>) {
        let (at, len) = self.place(at, 0, BLOCK);
        (at, self.device.now[at as usize..(at + len) as usize].to_vec())
    }

    fn begin_write(&mut self, at: u64, bytes: Vec<u8>) {
        let Some(index) = &mut self.index else { return };
        let ticket = index.begin_write(at, bytes.len() as u64);
        if !index.is_broken() {
            self.file.assert_marked(at, bytes.len() as u64);
        }
        // Half of it is there at once, for whoever reads meanwhile.
        self.device.write(at as usize, &bytes[..bytes.len() / 2]);
        self.writes.push((ticket, at, bytes));
    }

    fn end_write(&mut self, which: usize, done: bool) {
        let Some(index) = &mut self.index else { return };
        if which >= self.writes.len() {
            return;
        }
        let (ticket, at, bytes) = self.writes.remove(which);
        // One that fails has written something all the same.
        let written = if done { bytes.len() } else { bytes.len() / 3 };
        self.device.write(at as usize, &bytes[..written]);
        index.end_write(ticket, done.then_some(&bytes[..]));
    }

    fn end_read(&mut self, which: usize) {
        let Some(index) = &mut self.index else { return };
        if which < self.reads.len() {
            let (ticket, at, bytes) = self.reads.remove(which);
            index.learn(ticket, at, &bytes);
        }
    }

    fn begin_read(&mut self, at: usize) {
        let (at, bytes) = self.block_bytes(at);
        let Some(index) = &mut self.index else { return };
        self.reads.push((index.begin_read(), at, bytes));
    }

    /// The process is gone, and another opens the index; where that fails, without one.
    fn open(&mut self, elsewhere: Option<(usize, u8)>) {
        self.index = None;
        self.writes.clear();
        self.reads.clear();
        if let Some((at, fill)) = elsewhere {
            self.version += 1;
            let (at, len) = self.place(at, 0, 2 * BLOCK);
            self.device.write(at as usize, &vec![fill; len as usize]);
        }
        self.device.sync();
        self.index = DeviceIndex::open(self.file.clone(), DEVICE_BYTES, &self.domain, Some(&self.marks())).ok();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::BeginWrite { at, shift, len, fill } => {
                let (at, len) = self.place(at, shift, len);
                self.begin_write(at, vec![fill; len as usize]);
            }
            Step::EndWrite { which, done } => self.end_write(which, done),
            Step::Write { at, blocks, fill } => {
                let (at, len) = self.place(at, 0, blocks * BLOCK);
                self.begin_write(at, vec![fill; len as usize]);
                self.end_write(self.writes.len().wrapping_sub(1), true);
            }
            Step::BeginRead { at } => self.begin_read(at),
            Step::EndRead { which } => self.end_read(which),
            Step::Read { at } => {
                self.begin_read(at);
                self.end_read(self.reads.len().wrapping_sub(1));
            }
            Step::Flush => {
                let Some(index) = &mut self.index else { return };
                let ticket = index.begin_flush();
                self.device.sync();
                index.end_flush(ticket);
            }
            Step::Tidy => {
                if let Some(index) = &mut self.index {
                    let _ = index.tidy();
                }
            }
            Step::Reopen { elsewhere } => {
                let marks = self.marks();
                if let Some(index) = self.index.take() {
                    let _ = index.close(Some(marks));
                }
                self.open(elsewhere);
            }
            Step::Kill { elsewhere } => self.open(elsewhere),
            Step::PowerCut { seed } => {
                let mut random = Random(seed);
                self.index = None;
                self.file.0.lock().unwrap().cut(&mut random);
                self.device.cut(&mut random);
                self.open(None);
            }
            Step::CutWhileClosing { after, seed } => {
                let marks = self.marks();
                self.file.0.lock().unwrap().fail_after(Some((after, true)));
                if let Some(index) = self.index.take() {
                    let _ = index.close(Some(marks));
                }
                self.file.0.lock().unwrap().fail_after(None);
                self.take(Step::PowerCut { seed });
            }
            Step::Fail { after, for_ever } => self.file.0.lock().unwrap().fail_after(Some((after, for_ever))),
        }
        if self.index.is_none() {
            // The disk of the index is well again, and whoever starts next tries once more.
            self.file.0.lock().unwrap().fail_after(None);
            self.open(None);
        }
    }

    fn check(&mut self) {
        let Some(index) = &self.index else { return };
        for block in BLOCKS {
            let (at, len) = index.geometry().place(block);
            let range = at as usize..at as usize + len;
            let (now, durable) = (&self.device.now[range.clone()], &self.device.durable[range]);
            match index.block(block) {
                Block::Valid(hash) => {
                    self.valid_seen += 1;
                    assert_eq!(hash, self.domain.hash(now), "block {block} is stale");
                    assert_eq!(hash, self.domain.hash(durable), "block {block} isn't durable");
                }
                Block::Zero => assert!(now.iter().chain(durable).all(|byte| *byte == 0), "block {block} is not zeros"),
                Block::Suspect(_) | Block::Unknown => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_called_valid_is_on_the_device(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}

/// A usual day: blocks become valid, stay so over a clean end, and are suspect after any other.
#[test]
fn blocks_are_valid_again_once_read_and_suspect_after_a_crash() {
    let mut world = World::new();
    (0..BLOCKS.len()).for_each(|at| world.take(Step::Read { at }));
    world.check();
    assert_eq!(world.valid_seen, BLOCKS.len() as u64);

    world.take(Step::Write { at: 0, blocks: 2, fill: 3 });
    assert_eq!(world.index.as_ref().unwrap().block(0), Block::Unknown, "its bytes aren't durable yet");
    world.take(Step::Flush);
    assert!(matches!(world.index.as_ref().unwrap().block(0), Block::Valid(_)));
    world.take(Step::Write { at: 2, blocks: 1, fill: 0 });
    world.take(Step::Flush);
    assert_eq!(world.index.as_ref().unwrap().block(2), Block::Zero);

    let count = |world: &World, wanted: fn(&Block) -> bool| {
        let index = world.index.as_ref().unwrap();
        BLOCKS.iter().filter(|block| wanted(&index.block(**block))).count()
    };
    let is_valid: fn(&Block) -> bool = |block| matches!(block, Block::Valid(_) | Block::Zero);
    let is_suspect: fn(&Block) -> bool = |block| matches!(block, Block::Suspect(_));
    world.take(Step::Reopen { elsewhere: None });
    assert_eq!(count(&world, is_valid), BLOCKS.len());
    world.take(Step::Reopen { elsewhere: Some((4, 2)) });
    assert_eq!((count(&world, is_valid), count(&world, is_suspect)), (0, BLOCKS.len()));
    (0..BLOCKS.len()).for_each(|at| world.take(Step::Read { at }));
    assert_eq!(count(&world, is_valid), BLOCKS.len());
    world.check();
    world.take(Step::Write { at: 0, blocks: 1, fill: 2 });
    world.take(Step::Kill { elsewhere: None });
    // What was written just before is not even suspect: its region was being written.
    assert_eq!((count(&world, is_valid), count(&world, is_suspect)), (0, 7));
}

/// The power goes at each operation of closing in turn, after the device was changed elsewhere: no old hash comes back.
#[test]
fn a_cut_while_closing_brings_no_old_hash_back() {
    let (mut closed, mut open) = (0, 0);
    for (after, seed, learns) in (0..8).flat_map(|after| (0..16).map(move |seed| (after, seed, seed % 2 == 0))) {
        let mut world = World::new();
        (0..4).for_each(|at| world.take(Step::Read { at }));
        world.take(Step::Reopen { elsewhere: None });
        world.take(Step::Reopen { elsewhere: Some((0, 2)) });
        if learns {
            world.take(Step::Read { at: 0 });
        }
        world.file.0.lock().unwrap().random = seed;
        world.take(Step::CutWhileClosing { after, seed });
        world.check();
        let is_believed = world.index.as_ref().unwrap().is_believed();
        closed += u32::from(is_believed);
        open += u32::from(!is_believed);
    }
    assert!(closed > 20 && open > 20, "both ends were seen: {closed}, {open}");
}

/// Two writes to one block at the same time: whichever ends last, nobody can say what the block has then.
#[test]
fn of_writes_that_overlap_nothing_is_learnt() {
    for (first, second) in [(0, 0), (1, 0)] {
        let mut world = World::new();
        world.take(Step::BeginWrite { at: 0, shift: 0, len: BLOCK, fill: 2 });
        world.take(Step::BeginWrite { at: 0, shift: 100, len: 50, fill: 3 });
        world.take(Step::EndWrite { which: first, done: true });
        world.check();
        world.take(Step::EndWrite { which: second, done: true });
        world.take(Step::Flush);
        world.check();
        assert_eq!(world.index.as_ref().unwrap().block(0), Block::Unknown);
        world.take(Step::Read { at: 0 });
        assert!(matches!(world.index.as_ref().unwrap().block(0), Block::Valid(_)));
        world.check();
    }
}

/// A read that began before a write, and ends when that is long over and tidied up, tells of bytes that are there no more.
#[test]
fn a_read_of_before_a_write_tells_nothing_after_it_is_tidied() {
    for done in [true, false] {
        let mut world = World::new();
        let write = Step::BeginWrite { at: 0, shift: 0, len: BLOCK, fill: 0 };
        let end = Step::EndWrite { which: 0, done };
        for step in [Step::BeginRead { at: 0 }, write, end, Step::Flush, Step::Tidy, Step::EndRead { which: 0 }] {
            world.take(step);
            world.check();
        }
        world.take(Step::Read { at: 0 });
        assert_ne!(world.index.as_ref().unwrap().block(0), Block::Unknown, "one that begins now does");
        world.check();
    }
}

/// A busy region costs one flush of the index, and one that is written beside it another, which marks all around.
#[test]
fn a_busy_region_costs_one_flush_and_a_busy_device_a_few() {
    let mut world = World::new();
    // Each mark is the bitmap and its sync.
    for (at, operations) in [(0, 2), (5, 2), (9, 0), (11, 0)] {
        world.file.0.lock().unwrap().fail_after(Some((operations, true)));
        for _ in 0..100 {
            world.take(Step::Write { at, blocks: 1, fill: 3 });
        }
        assert!(!world.index.as_ref().unwrap().is_broken(), "{at}");
    }
}

/// Tidying is put off while somebody writes, but not for good.
#[test]
fn an_index_is_tidied_when_writes_cease_and_now_and_then() {
    let mut world = World::new();
    let asked = |world: &mut World, writes| {
        if writes {
            world.take(Step::Write { at: 0, blocks: 1, fill: 3 });
            world.take(Step::Flush);
        }
        world.index.as_mut().unwrap().is_to_be_tidied()
    };
    assert!(!asked(&mut world, false), "nothing was written");
    assert!(!asked(&mut world, true));
    assert!(asked(&mut world, false));
    let due: Vec<usize> = (0..36).filter(|_| asked(&mut world, true)).collect();
    assert_eq!(due.len(), 3, "{due:?}");
    assert!(asked(&mut world, false));
    world.take(Step::Tidy);
    assert!(!asked(&mut world, false), "it is tidy");
}

/// Bits that were set ahead of writes go when it is tidied, and by its end: a clean end is believed.
#[test]
fn what_was_marked_ahead_of_writes_is_no_loss() {
    let mut world = World::new();
    (0..BLOCKS.len()).for_each(|at| world.take(Step::Read { at }));
    world.take(Step::Write { at: 0, blocks: 1, fill: 3 });
    world.take(Step::Write { at: 5, blocks: 1, fill: 3 });
    world.take(Step::Flush);
    world.take(Step::Reopen { elsewhere: None });
    world.check();
    let index = world.index.as_ref().unwrap();
    assert!(index.is_believed());
    assert!(BLOCKS.iter().all(|block| matches!(index.block(*block), Block::Valid(_) | Block::Zero)));
}
