//! The journal: what was written to it, but not yet to its place.
//!
//! It's replayed in memory: for each block that has a newer version in the journal, its place there is kept (24 bytes a
//! block, so never more than a small part of the journal), and whoever reads the block gets that version.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    checksum::crc32c,
    extents::{Mapped, Run},
    fields::{be16, be32, be64},
    inode::RawInode,
    source::{Direct, Lack},
    superblock::Compatible,
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{Sign, TableError},
};

/// The first bytes of every block of the journal that isn't a copy. A copy that begins with them has zeros there instead.
pub(super) const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const REVOKE: u32 = 5;

/// Where a commit block has its checksum, the time when it was made, and the end of what it says.
const COMMIT_SUM: usize = 16;
const COMMIT_TIME: usize = 48;
const COMMIT_BYTES: usize = 64;

/// How far a commit block is looked for behind damage. Transactions take a quarter of a journal at most; but most are short.
const BLOCKS_LOOKED_AHEAD: u64 = 4096;

/// The longest journal that mke2fs makes, in blocks.
const BLOCKS_MAX: u64 = 10_240_000;
/// Revoked blocks that are kept in mind. A transaction revokes what it frees of metadata, so no sound journal comes near.
const REVOKED_MAX: usize = 1 << 20;

const INCOMPATIBLE_64BIT: u32 = 0x2;
const INCOMPATIBLE_ASYNC_COMMIT: u32 = 0x4;
const INCOMPATIBLE_CSUM_V2: u32 = 0x8;
const INCOMPATIBLE_CSUM_V3: u32 = 0x10;
const INCOMPATIBLE_FAST_COMMIT: u32 = 0x20;
const INCOMPATIBLE_KNOWN: u32 = 0x3F;

/// What to do where a journal isn't replayed here.
const ADVICE: &str = "e2fsck does that, or mounting it once";

/// Blocks that are newer in the journal.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    newer: BTreeMap<u64, Copied>,
}

/// Where the newer version of a block lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) block: u64,
    /// Whether its first bytes are to be [`MAGIC`].
    pub(super) escaped: bool,
}

impl Overlay {
    /// The blocks among `count` that are newer in the journal.
    pub(super) fn of(&self, block: u64, count: u64) -> impl Iterator<Item = (u64, Copied)> + '_ {
        self.newer.range(block..block.saturating_add(count)).map(|(&block, &copied)| (block, copied))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.newer.is_empty()
    }
}

/// A journal that has to be recovered, by the word of the superblock.
fn dirty(journal: &'static str) -> TableError {
    let sign = Sign::new(
        super::superblock::INCOMPATIBLE_AT,
        "no needs_recovery, or a journal that can be replayed",
        "neither",
    );
    TableError::Dirty { journal, sign, advice: ADVICE }
}

/// Replays the journal of a file system that says it has to be recovered.
pub(super) fn replay<B: BlockRead>(volume: &Volume<B>) -> Result<Overlay, TableError> {
    let Some(journal) = Journal::open(volume, places(volume)?)? else { return Ok(Overlay::default()) };
    journal.replayed()
}

/// The number of the next transaction to be replayed, and the block where it begins: 0 where there is none.
pub(super) fn position<B: BlockRead>(volume: &Volume<B>) -> Result<[u64; 2], TableError> {
    let journal =
        Journal { volume, places: places(volume)?, first: 0, end: 1, start: 0, sequence: 0, features: 0, seed: 0 };
    let bytes = volume.block(journal.place(0)?)?;
    Ok([be32(&bytes, 24).into(), be32(&bytes, 28).into()])
}

/// Where a journal lies that is in the file system; nothing where there is none.
pub(super) fn runs<B: BlockRead>(volume: &Volume<B>) -> Result<Vec<Run>, TableError> {
    let is_here =
        volume.superblock.compatible.contains(Compatible::HAS_JOURNAL) && volume.superblock.journal_inode != 0;
    if is_here { places(volume).map(|places| places.runs) } else { Ok(Vec::new()) }
}

/// Where the blocks of the journal lie.
struct Places {
    runs: Vec<Run>,
    /// The byte of the inode that says so.
    inode_at: u64,
}

fn places<B: BlockRead>(volume: &Volume<B>) -> Result<Places, TableError> {
    let superblock = &volume.superblock;
    if superblock.journal_inode == 0 {
        // It lies on another device.
        return Err(dirty("the journal on another device"));
    }
    let dirty = || dirty("the journal");
    let (block, byte) = volume.inode_place(superblock.journal_inode).ok_or_else(dirty)?;
    let table = volume.block(block)?;
    let bytes = table.get(byte..byte + superblock.inode_bytes).ok_or_else(dirty)?;
    let inode = RawInode { number: superblock.journal_inode, bytes };
    inode.check(volume, volume.byte_of(block) + byte as u64)?;
    let Mapped { runs, lack, .. } = inode.runs(volume, &mut Direct::new(volume));
    match lack {
        Some(Lack::Damaged(error)) => Err(error),
        Some(Lack::Blocks) => Err(dirty()),
        None => {
            let inode_at = volume.byte_of(block) + byte as u64;
            each_block_once(volume, &runs, inode_at)?;
            Ok(Places { runs, inode_at })
        }
    }
}

/// Verifies that no block of the device is named twice: a short journal could look as long as one likes.
fn each_block_once<B>(volume: &Volume<B>, runs: &[Run], inode_at: u64) -> Result<(), TableError>
where
    B: BlockRead,
{
    let mut by_place: Vec<&Run> = runs.iter().collect();
    by_place.sort_unstable_by_key(|run| run.physical);
    match by_place.windows(2).find(|pair| pair[0].physical.saturating_add(pair[0].count) > pair[1].physical) {
        None => Ok(()),
        Some(pair) => {
            let found = format!("block {}, at byte {}, twice", pair[1].physical, volume.byte_of(pair[1].physical));
            Err(TableError::damaged("the inode of the journal", inode_at, "each block once", found))
        }
    }
}

/// A part of the journal that isn't what it must be. Neither it nor what comes behind it is replayed by anybody but e2fsck.
fn broken(what: &str, at: u64, expected: String, found: String) -> TableError {
    TableError::damaged(format!("{what} of the journal, which e2fsck has to recover,"), at, expected, found)
}

/// Whether a block of the journal is one of a transaction, and no copy.
fn is_of(bytes: &[u8], sequence: u32) -> bool {
    bytes[..4] == MAGIC && be32(bytes, 8) == sequence
}

/// What was committed.
#[derive(Default)]
struct Log {
    written: Vec<Written>,
    /// Blocks whose older copies don't count any more, and since which transaction.
    revoked: HashMap<u64, u32>,
    /// The transaction that comes next.
    sequence: u32,
}

/// What a transaction has before its commit block is met.
#[derive(Default)]
struct Pending {
    written: Vec<Written>,
    revoked: HashSet<u64>,
    wrong: Option<Wrong>,
}

/// The first block of a transaction that isn't what it must be, in which there is no knowing what it says of those behind it.
struct Wrong {
    what: TableError,
    block: u64,
    /// Blocks of the log from there on.
    left: u64,
}

/// A copy of a block.
struct Written {
    block: u64,
    sequence: u32,
    copied: Copied,
    checksum: Option<u32>,
}

struct Journal<'a, B> {
    volume: &'a Volume<B>,
    places: Places,
    /// The ring of blocks: its first and the one behind its last.
    first: u64,
    end: u64,
    /// Where the oldest transaction begins.
    start: u64,
    sequence: u32,
    features: u32,
    seed: u32,
}

impl<'a, B: BlockRead> Journal<'a, B> {
    /// Reads its superblock; `None` where nothing is to be replayed.
    fn open(volume: &'a Volume<B>, places: Places) -> Result<Option<Journal<'a, B>>, TableError> {
        let mut journal = Journal { volume, places, first: 0, end: 1, start: 0, sequence: 0, features: 0, seed: 0 };
        let place = journal.place(0)?;
        let bytes = volume.block(place)?;
        let at = volume.byte_of(place);
        let damaged = |field: u64, expected: String, found: String| {
            Err(TableError::damaged("the superblock of the journal", at + field, expected, found))
        };
        let kind = be32(&bytes, 4);
        if bytes[..4] != MAGIC || !matches!(kind, 3 | 4) {
            return damaged(0, "its magic number and type 3 or 4".into(), format!("{:02x?}", &bytes[..8]));
        }
        if be32(&bytes, 12) != volume.superblock.block_bytes {
            return damaged(12, volume.superblock.block_bytes.to_string(), be32(&bytes, 12).to_string());
        }
        journal.features = if kind == 4 { be32(&bytes, 40) } else { 0 };
        let unknown = journal.features & !INCOMPATIBLE_KNOWN;
        if unknown != 0 {
            let feature = format!("feature {unknown:#x} of the journal");
            let found = format!("{:#x}", journal.features);
            let sign = Some(Sign::new(at + 40, format!("no bits but {INCOMPATIBLE_KNOWN:#x}"), found));
            return Err(TableError::Unsupported { feature, sign, advice: ADVICE });
        }
        if journal.is_checksummed() {
            let crc = crc32c(crc32c(crc32c(!0, &bytes[..0xFC]), &[0; 4]), &bytes[0x100..1024]);
            if crc != be32(&bytes, 0xFC) {
                return damaged(0xFC, format!("checksum {crc:#010x}"), format!("{:#010x}", be32(&bytes, 0xFC)));
            }
        }
        journal.seed = crc32c(!0, &bytes[48..64]);
        (journal.first, journal.end) = (be32(&bytes, 20).into(), be32(&bytes, 16).into());
        let quick = u64::from(match be32(&bytes, 0x54) {
            0 => 256,
            blocks => blocks,
        });
        if journal.features & INCOMPATIBLE_FAST_COMMIT != 0 {
            journal.end = journal.end.saturating_sub(quick);
        }
        (journal.start, journal.sequence) = (be32(&bytes, 28).into(), be32(&bytes, 24));
        if journal.end > BLOCKS_MAX {
            return damaged(16, format!("at most {BLOCKS_MAX} blocks"), journal.end.to_string());
        }
        if journal.first == 0 || journal.first >= journal.end {
            return damaged(16, "room for blocks".into(), format!("{} to {}", journal.first, journal.end));
        }
        let empty = journal.start == 0;
        if !empty && !(journal.first..journal.end).contains(&journal.start) {
            let expected = format!("{} to {}", journal.first, journal.end);
            return damaged(28, expected, journal.start.to_string());
        }
        Ok((!empty).then_some(journal))
    }

    fn is_checksummed(&self) -> bool {
        self.features & (INCOMPATIBLE_CSUM_V2 | INCOMPATIBLE_CSUM_V3) != 0
    }

    /// The block of the device for one of the journal.
    fn place(&self, block: u64) -> Result<u64, TableError> {
        let Places { runs, inode_at } = &self.places;
        let index = runs.partition_point(|run| run.logical + run.count <= block);
        let run = runs.get(index).filter(|run| run.logical <= block);
        run.map(|run| run.physical + block - run.logical).ok_or_else(|| {
            TableError::damaged("the inode of the journal", *inode_at, format!("a block {block}"), "a hole")
        })
    }

    fn next(&self, block: u64) -> u64 {
        if block + 1 >= self.end { self.first } else { block + 1 }
    }

    /// What is wrong with a descriptor or revoke block by its checksum.
    fn wrong_tail(&self, what: &str, place: u64, bytes: &[u8]) -> Option<TableError> {
        let end = bytes.len() - 4;
        let right = crc32c(crc32c(self.seed, &bytes[..end]), &[0; 4]);
        self.wrong_checksum(what, place, end, right, be32(bytes, end))
    }

    /// What is wrong with a commit block by its checksum.
    fn wrong_commit(&self, place: u64, bytes: &[u8]) -> Option<TableError> {
        let checksum = |rest: &[u8]| crc32c(crc32c(crc32c(self.seed, &bytes[..COMMIT_SUM]), &[0; 4]), rest);
        let found = be32(bytes, COMMIT_SUM);
        // Behind its header, disks that write less than a block may leave what was there before.
        let mut header_alone = bytes[COMMIT_SUM + 4..].to_vec();
        header_alone[COMMIT_BYTES - COMMIT_SUM - 4..].fill(0);
        if checksum(&header_alone) == found {
            return None;
        }
        self.wrong_checksum("a commit block", place, COMMIT_SUM, checksum(&bytes[COMMIT_SUM + 4..]), found)
    }

    /// Whether a block commits a transaction but for its first bytes, which ought to say so. Without a look at that, a last transaction
    /// would seem to have come to the disk in part.
    fn is_commit_but_for_its_head(&self, place: u64, bytes: &[u8], sequence: u32) -> bool {
        let mut whole = bytes.to_vec();
        let head = [MAGIC, COMMIT.to_be_bytes(), sequence.to_be_bytes()].concat();
        whole[..head.len()].copy_from_slice(&head);
        self.is_checksummed() && self.wrong_commit(place, &whole).is_none()
    }

    fn wrong_checksum(&self, what: &str, place: u64, at: usize, right: u32, found: u32) -> Option<TableError> {
        let at = self.volume.byte_of(place) + at as u64;
        let shown = |checksum: u32| format!("checksum {checksum:#010x}");
        (self.is_checksummed() && right != found).then(|| broken(what, at, shown(right), shown(found)))
    }

    fn replayed(&self) -> Result<Overlay, TableError> {
        if self.features & INCOMPATIBLE_ASYNC_COMMIT != 0 && !self.is_checksummed() {
            // Whether all of a transaction was written only its old checksum tells.
            let at = self.volume.byte_of(self.place(0)?) + 40;
            let sign = Sign::new(at, "no async_commit without checksums", format!("{:#x}", self.features));
            return Err(TableError::Dirty { journal: "the journal", sign, advice: ADVICE });
        }
        let log = self.log()?;
        self.refuse_fast_commits(log.sequence)?;
        let mut overlay = Overlay::default();
        for &Written { block, sequence, copied, checksum } in &log.written {
            let is_revoked = log.revoked.get(&block).is_some_and(|&by| by.wrapping_sub(sequence) as i32 >= 0);
            if is_revoked || !self.volume.holds(block, 1) {
                continue;
            }
            self.check_copy(sequence, copied, checksum)?;
            overlay.newer.insert(block, copied);
        }
        Ok(overlay)
    }

    /// Reads the log from its start to its end, which is where no block of the next transaction lies.
    ///
    /// A block of that transaction with a wrong checksum isn't the end. As in the kernel, it's damage if the transaction was
    /// committed, and else what a crash left unfinished, or what lies there from a file system before. The kernel takes an older
    /// time for a sign of the latter, and a block that names no transaction for the end; here neither counts where a sound commit
    /// of this transaction or of one that came later lies behind, nor the time where all else of the transaction is sound.
    fn log(&self) -> Result<Log, TableError> {
        let mut log = Log { sequence: self.sequence, ..Log::default() };
        let (mut block, mut left, mut committed_at) = (self.start, self.end - self.first, 0);
        let mut pending = Pending::default();
        while left > 0 {
            let place = self.place(block)?;
            let bytes = self.volume.block(place)?;
            let kind = if is_of(&bytes, log.sequence) { be32(&bytes, 4) } else { 0 };
            if kind != COMMIT && self.is_commit_but_for_its_head(place, &bytes, log.sequence) {
                let expected = format!("the commit of transaction {}, as its checksum says", log.sequence);
                let (at, found) = (self.volume.byte_of(place), format!("{:02x?}", &bytes[..12]));
                return Err(broken("the head of a block", at, expected, found));
            }
            let wrong = |what| Wrong { what, block, left };
            let mut steps = 1;
            match kind {
                DESCRIPTOR => {
                    pending.wrong = pending.wrong.or_else(|| self.wrong_tail("a descriptor", place, &bytes).map(wrong));
                    for tag in self.tags(&bytes) {
                        block = self.next(block);
                        let copied = Copied { block: self.place(block)?, escaped: tag.escaped };
                        let (block, sequence, checksum) = (tag.block, log.sequence, tag.checksum);
                        pending.written.push(Written { block, sequence, copied, checksum });
                        steps += 1;
                    }
                }
                REVOKE => {
                    let tail = || self.wrong_tail("a block of revocations", place, &bytes).map(wrong);
                    pending.wrong = pending.wrong.or_else(tail);
                    pending.revoked.extend(self.revocations(&bytes).filter(|&block| self.volume.holds(block, 1)));
                    if pending.revoked.len() + log.revoked.len() > REVOKED_MAX {
                        let (expected, found) = (format!("{REVOKED_MAX} revoked blocks at most"), "more");
                        let sign = Sign::new(self.volume.byte_of(place), expected, found);
                        return Err(TableError::Dirty { journal: "the journal", sign, advice: ADVICE });
                    }
                }
                COMMIT => {
                    let time = be64(&bytes, COMMIT_TIME);
                    let is_old = time < committed_at;
                    // Written together with what it commits, it may be all that came to the disk.
                    let is_early = self.features & INCOMPATIBLE_ASYNC_COMMIT != 0;
                    match (pending.wrong.take().map(|wrong| wrong.what), self.wrong_commit(place, &bytes)) {
                        (None, None) => {}
                        (Some(wrong), _) if !is_old => return Err(wrong),
                        (None, Some(wrong)) if !(is_early || is_old && pending.written.is_empty()) => {
                            return Err(wrong);
                        }
                        (Some(wrong), _) | (None, Some(wrong)) => {
                            let is_committed = self.commits_behind(block, left, &log, committed_at)?;
                            return if is_committed { Err(wrong) } else { Ok(log) };
                        }
                    }
                    committed_at = time;
                    log.written.append(&mut pending.written);
                    log.revoked.extend(pending.revoked.drain().map(|block| (block, log.sequence)));
                    log.sequence = log.sequence.wrapping_add(1);
                }
                _ => {
                    let ended = || {
                        let expected = format!("one of transaction {}, which was committed", log.sequence);
                        wrong(broken("a block", self.volume.byte_of(place), expected, format!("{:02x?}", &bytes[..12])))
                    };
                    pending.wrong = pending.wrong.or_else(|| Some(ended()));
                    break;
                }
            }
            block = self.next(block);
            left = left.saturating_sub(steps);
        }
        // A descriptor that says too much leads past the commit: so looked for from the first wrong block on.
        match pending.wrong {
            Some(Wrong { what, block, left }) if self.commits_behind(block, left, &log, committed_at)? => Err(what),
            _ => Ok(log),
        }
    }

    /// Whether the transaction, or one that came later, is committed behind the block where the log seems to end. What lies there may be
    /// old: so a later one counts by a sound checksum alone. The transaction itself is committed by a block that says so and isn't older
    /// than the log, for it's written when all else has been; damage of that block doesn't make it a transaction that a crash cut short.
    fn commits_behind(&self, mut block: u64, left: u64, log: &Log, committed_at: u64) -> Result<bool, TableError> {
        if !self.is_checksummed() || self.features & INCOMPATIBLE_ASYNC_COMMIT != 0 {
            return Ok(false);
        }
        for _ in 1..left.min(BLOCKS_LOOKED_AHEAD) {
            block = self.next(block);
            let place = self.place(block)?;
            let bytes = self.volume.block(place)?;
            // Each transaction has at least a block. What is numbered lower lies there from a turn of the ring before.
            let number = be32(&bytes, 8);
            let is_later = u64::from(number.wrapping_sub(log.sequence)) <= left;
            let is_commit = is_of(&bytes, number) && be32(&bytes, 4) == COMMIT;
            let says_so =
                is_commit && is_later && (number == log.sequence || self.wrong_commit(place, &bytes).is_none());
            let is_new = be64(&bytes, COMMIT_TIME) >= committed_at;
            let is_committed = is_new && (says_so || self.is_commit_but_for_its_head(place, &bytes, log.sequence));
            if is_committed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What a block of revocations names.
    fn revocations<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = u64> + use<'b, B> {
        let wide = self.features & INCOMPATIBLE_64BIT != 0;
        let end = (be32(bytes, 12) as usize).min(bytes.len());
        let numbers = bytes.get(16..end).unwrap_or_default().chunks_exact(if wide { 8 } else { 4 });
        numbers.map(move |number| if wide { be64(number, 0) } else { be32(number, 0).into() })
    }

    /// Compares the checksum of a copy with that in its tag.
    fn check_copy(&self, sequence: u32, copied: Copied, checksum: Option<u32>) -> Result<(), TableError> {
        let Some(checksum) = checksum else { return Ok(()) };
        let bytes = self.volume.block(copied.block)?;
        let mut crc = crc32c(crc32c(self.seed, &sequence.to_be_bytes()), &bytes);
        if self.features & INCOMPATIBLE_CSUM_V3 == 0 {
            crc &= 0xFFFF;
        }
        if crc == checksum {
            return Ok(());
        }
        let (expected, found) = (format!("checksum {checksum:#010x}"), format!("{crc:#010x}"));
        Err(broken("a copied block", self.volume.byte_of(copied.block), expected, found))
    }

    /// Fast commits say what was done, not what blocks have become; they aren't replayed here.
    fn refuse_fast_commits(&self, sequence: u32) -> Result<(), TableError> {
        if self.features & INCOMPATIBLE_FAST_COMMIT == 0 {
            return Ok(());
        }
        // One block between the two areas is left free.
        let Ok(place) = self.place(self.end + 1) else { return Ok(()) };
        let bytes = self.volume.block(place)?;
        // The head: tag 9 of 8 bytes, little-endian, features and the transaction that it follows.
        const HEAD: [u8; 4] = [9, 0, 8, 0];
        let follows = super::fields::le32(&bytes, 8);
        if bytes[..4] == HEAD && follows == sequence {
            let found = format!("one that follows transaction {sequence}");
            let sign = Sign::new(self.volume.byte_of(place), "no fast commit", found);
            return Err(TableError::Dirty { journal: "a fast commit in the journal", sign, advice: ADVICE });
        }
        Ok(())
    }

    fn tags(&self, bytes: &[u8]) -> Vec<Tag> {
        const ESCAPED: u32 = 1;
        const SAME_UUID: u32 = 2;
        const LAST: u32 = 8;
        let wide = self.features & INCOMPATIBLE_64BIT != 0;
        let (v2, v3) = (self.features & INCOMPATIBLE_CSUM_V2 != 0, self.features & INCOMPATIBLE_CSUM_V3 != 0);
        let tag_bytes = if v3 { 16 } else { 8 + if wide { 4 } else { 0 } + if v2 { 2 } else { 0 } };
        let end = bytes.len() - if self.is_checksummed() { 4 } else { 0 };
        let (mut tags, mut at) = (Vec::new(), 12);
        while at + tag_bytes <= end {
            let tag = &bytes[at..at + tag_bytes];
            let flags = if v3 { be32(tag, 4) } else { be16(tag, 6).into() };
            let high = if wide { be32(tag, 8) } else { 0 };
            let checksum = match (v3, v2) {
                (true, _) => Some(be32(tag, 12)),
                (_, true) => Some(be16(tag, 4).into()),
                _ => None,
            };
            let block = u64::from(be32(tag, 0)) | u64::from(high) << 32;
            tags.push(Tag { block, escaped: flags & ESCAPED != 0, checksum });
            at += tag_bytes + if flags & SAME_UUID != 0 { 0 } else { 16 };
            if flags & LAST != 0 {
                break;
            }
        }
        tags
    }
}

/// What a descriptor says of one of the copies behind it.
struct Tag {
    block: u64,
    escaped: bool,
    checksum: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::{super::superblock::Superblock, *};

    #[test]
    fn a_journal_that_names_a_block_twice_is_damaged() {
        let superblock = Superblock::for_tests(900);
        let overlay = Overlay::default();
        let volume = Volume { device: Vec::new(), superblock, groups: Vec::new(), overlay, gap_bytes: 0 };
        let run = |logical, physical, count| Run { logical, physical, count, unwritten: false };
        let apart = [run(0, 300, 10), run(10, 100, 200), run(210, 310, 1)];
        assert!(each_block_once(&volume, &apart, 77).is_ok());
        for wrong in [run(211, 310, 1), run(211, 90, 11), run(211, 150, 500)] {
            let runs = [&apart[..], &[wrong]].concat();
            let error = each_block_once(&volume, &runs, 77).unwrap_err().to_string();
            assert!(error.contains("at byte 77 is damaged") && error.contains("twice"), "{error}");
        }
    }
}
