//! The index of a device or an image: a hash for each block.
//!
//! What the index calls valid has the hash of the bytes on the device, whatever happens:
//!
//! * Before bytes are written, their blocks become unknown, and the bit of their region of 1 MiB is made durable, with those of
//!   more and more regions around it. Bits are kept until nothing has been written for a while, so that a busy region costs one
//!   flush, and a busy device a few.
//! * A block becomes valid again when it is read locally or was written whole, and all bytes of its region are durable.
//! * While an index is open, its header says so, durably. One that was not closed, or whose device has other marks than when
//!   it was closed, is not believed: each block is suspect until one local read has confirmed its hash.
//! * Once writing the index has failed, it knows nothing more until it is opened again, and then all is suspect. Writing to
//!   the device never fails for that.

use std::collections::HashMap;

use super::{
    IndexError, IndexFile,
    fill::Pass,
    header::{self, Geometry, Header},
    regions::{Moment, Regions},
    states::{State, States},
};
use crate::{
    id::{Hash, TrustDomain},
    marks::Marks,
};

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Nothing.
    Unknown,
    /// It had this hash once. It must not be asked of a peer before one local read has confirmed that.
    Suspect(Hash),
    /// The hash of its bytes.
    Valid(Hash),
    /// It is all zeros.
    Zero,
}

/// So many times tidying is put off by writes that don't cease.
const PUT_OFF_MOST: u32 = 11;

/// A write under way.
#[derive(Debug)]
#[must_use = "a region whose writes never end is never known again"]
pub struct WriteTicket {
    at: u64,
    len: u64,
    began: Moment,
}

/// When a local read began.
#[derive(Clone, Copy, Debug)]
pub struct ReadTicket(Moment);

/// When a flush of the device began.
#[derive(Clone, Copy, Debug)]
pub struct FlushTicket(Moment);

/// What local reads told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Blocks whose hash was not known.
    pub new: u64,
    /// Suspect blocks that are as they were.
    pub confirmed: u64,
    /// Suspect blocks that are not.
    pub changed: u64,
}

/// A block that was read, and what the index had for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) is_zero: bool,
    pub(super) was_unknown: bool,
    pub(super) was_suspect: bool,
    /// It has another hash.
    pub(super) differs: bool,
}

/// The index of a device or an image.
#[derive(Debug)]
pub struct DeviceIndex<F> {
    file: F,
    header: Header,
    domain: TrustDomain,
    states: States,
    regions: Regions,
    /// Hashes of bytes that aren't durable yet.
    pending: HashMap<u64, Hash>,
    /// Something was written since somebody asked last whether it is to be tidied.
    is_busy: bool,
    put_off: u32,
    /// Of a whole block of zeros.
    zero: Hash,
    is_believed: bool,
    is_broken: bool,
}

impl<F: IndexFile> DeviceIndex<F> {
    /// Makes an index that knows nothing yet, in an empty file.
    pub fn create(mut file: F, geometry: Geometry, domain: &TrustDomain) -> Result<Self, IndexError> {
        let header = Header { geometry, domain: domain.name(), closed: None };
        let empty = vec![0; 1 << 16];
        let mut at = geometry.bitmap_at();
        while at < geometry.hashes_at() {
            let len = (geometry.hashes_at() - at).min(empty.len() as u64);
            file.write_at(&empty[..len as usize], at)?;
            at += len;
        }
        file.write_at(&header.encode(), 0)?;
        file.sync()?;
        Ok(Self::with(file, header, domain, States::unknown(geometry.blocks()), false))
    }

    /// Opens an index for a device that has these marks now. From then on it counts as not closed, durably.
    ///
    /// The device has been flushed before: what an earlier process wrote may not be durable yet.
    /// `marks` is `None` where nobody can tell whether the device has changed.
    pub fn open(
        mut file: F,
        device_bytes: u64,
        domain: &TrustDomain,
        marks: Option<&Marks>,
    ) -> Result<Self, IndexError> {
        let header = read_header(&file)?;
        let geometry = header.geometry;
        if geometry.device_bytes != device_bytes {
            return Err(IndexError::Size { index: geometry.device_bytes, device: device_bytes });
        }
        if header.domain != domain.name() {
            return Err(IndexError::Domain);
        }
        if file.len()? < geometry.hashes_at() {
            return Err(IndexError::Damaged { what: "its length" });
        }
        let is_believed = header.closed.is_some() && header.closed.as_ref() == marks;
        let mut states = States::unknown(geometry.blocks());
        file.read_at(states.bytes_mut(), geometry.states_at())?;
        let mut bitmap = vec![0; geometry.regions().div_ceil(8) as usize];
        file.read_at(&mut bitmap, geometry.bitmap_at())?;
        let written = Regions::new(&geometry, bitmap);
        if !is_believed {
            states.suspect_all();
        }
        for region in (0..geometry.regions()).filter(|region| written.is_set(*region)) {
            blocks_of(&geometry, region).for_each(|block| states.set(block, State::Unknown));
        }
        let header = Header { closed: None, ..header };
        file.write_at(&header.encode(), 0)?;
        file.sync()?;
        let mut index = Self::with(file, header, domain, states, is_believed);
        // What was being written is written no more; its blocks are unknown, and must be so on the disk before the bits go.
        if written.bitmap().iter().any(|eight| *eight != 0) {
            index.save_states(0, geometry.blocks())?;
            index.file.sync()?;
            let bitmap = index.regions.bitmap().to_vec();
            index.file.write_at(&bitmap, geometry.bitmap_at())?;
        }
        Ok(index)
    }

    fn with(file: F, header: Header, domain: &TrustDomain, states: States, is_believed: bool) -> Self {
        let geometry = header.geometry;
        let bitmap = vec![0; geometry.regions().div_ceil(8) as usize];
        let zero = domain.hash(&vec![0; geometry.block_bytes as usize]);
        let regions = Regions::new(&geometry, bitmap);
        let domain = domain.clone();
        Self {
            file,
            header,
            domain,
            states,
            regions,
            pending: HashMap::new(),
            is_busy: false,
            put_off: 0,
            zero,
            is_believed,
            is_broken: false,
        }
    }

    /// What it is of.
    pub fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    /// From then on no more than so many regions get their bit by one flush. For whoever has to look at all that have one after a
    /// kill.
    pub fn mark_at_most(&mut self, regions: u64) {
        self.regions.reach_at_most(regions);
    }

    /// Whether it was closed, and the device has the marks that it had then.
    pub fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// Whether writing it has failed, so that it knows nothing any more.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// What is known of a block.
    pub fn block(&self, block: u64) -> Block {
        if self.is_broken {
            return Block::Unknown;
        }
        match self.states.get(block) {
            State::Unknown => Block::Unknown,
            State::Zero => Block::Zero,
            State::Valid => self.hash(block).map_or(Block::Unknown, Block::Valid),
            State::Suspect => self.hash(block).map_or(Block::Unknown, Block::Suspect),
        }
    }

    /// What is known of some blocks that follow each other, read at once.
    pub fn blocks(&self, blocks: std::ops::Range<u64>) -> Vec<Block> {
        let count = blocks.end.saturating_sub(blocks.start);
        if count == 1 || self.is_broken {
            return blocks.map(|block| self.block(block)).collect();
        }
        let mut bytes = vec![0; 32 * count as usize];
        if self.file.read_at(&mut bytes, self.hash_at(blocks.start)).is_err() {
            // The file ends with the last hash that was ever written.
            return blocks.map(|block| self.block(block)).collect();
        }
        let hashes = bytes.chunks_exact(32).filter_map(<[u8]>::first_chunk).map(|hash| Hash::from_bytes(*hash));
        let known = |(block, hash)| match self.states.get(block) {
            State::Unknown => Block::Unknown,
            State::Zero => Block::Zero,
            State::Valid => Block::Valid(hash),
            State::Suspect => Block::Suspect(hash),
        };
        blocks.zip(hashes).map(known).collect()
    }

    /// The hash that the file has for a block, however it stands; `None` where it can't be read.
    fn hash(&self, block: u64) -> Option<Hash> {
        let mut bytes = [0; 32];
        self.file.read_at(&mut bytes, self.hash_at(block)).ok()?;
        Some(Hash::from_bytes(bytes))
    }

    fn hash_at(&self, block: u64) -> u64 {
        self.header.geometry.hashes_at() + 32 * block
    }

    /// To be called before bytes are written to the device; they must not be written before it has returned. May wait for
    /// one flush of the index.
    pub fn begin_write(&mut self, at: u64, len: u64) -> WriteTicket {
        let regions = Regions::of(at, len);
        for block in self.blocks_touched(at, len) {
            self.states.set(block, State::Unknown);
            self.pending.remove(&block);
        }
        self.is_busy = true;
        if !self.is_broken
            && let Some(marked) = self.regions.mark(&regions)
        {
            let (first, sectors) = self.regions.sectors(&marked);
            let written = self.file.write_durably_at(sectors, self.header.geometry.bitmap_at() + first);
            // Where that fails, the header still says that the index is open, so nothing is believed after a crash.
            self.is_broken |= written.is_err();
        }
        WriteTicket { at, len, began: self.regions.begin_write(regions) }
    }

    /// A write has ended. `bytes` are those that were written; `None` where it failed, or they aren't at hand.
    pub fn end_write(&mut self, ticket: WriteTicket, bytes: Option<&[u8]>) {
        let WriteTicket { at, len, began } = ticket;
        let alone = self.regions.end_write(Regions::of(at, len), began);
        if let Some(bytes) = bytes.filter(|bytes| alone && bytes.len() as u64 == len) {
            for (block, bytes) in self.whole_blocks(at, bytes) {
                let hash = self.domain.hash(bytes);
                self.pending.insert(block, hash);
            }
        }
    }

    /// To be called before bytes are read from the device.
    pub fn begin_read(&mut self) -> ReadTicket {
        ReadTicket(self.regions.tick())
    }

    /// Takes the hashes of bytes that were read from the device, where they are not known for sure.
    pub fn learn(&mut self, ticket: ReadTicket, at: u64, bytes: &[u8]) -> Learned {
        let mut learned = Learned::default();
        for block in self.compare(ticket, at, bytes, Pass::Fill) {
            learned.new += u64::from(block.was_unknown);
            learned.confirmed += u64::from(block.was_suspect && !block.differs);
            learned.changed += u64::from(block.was_suspect && block.differs);
        }
        learned
    }

    /// What the index had for blocks that were read from the device; from then on it has what they are.
    pub(super) fn compare(&mut self, ticket: ReadTicket, at: u64, bytes: &[u8], pass: Pass) -> Vec<Compared> {
        let blocks = self.whole_blocks(at, bytes);
        blocks.map(|(block, bytes)| self.compare_block(ticket, block, bytes, pass)).collect()
    }

    fn compare_block(&mut self, ticket: ReadTicket, block: u64, bytes: &[u8], pass: Pass) -> Compared {
        let state = self.states.get(block);
        let region = self.region_of(block);
        let is_sure = matches!(state, State::Valid | State::Zero);
        let mut compared = Compared { is_zero: state == State::Zero, ..Compared::default() };
        let is_needless = is_sure && pass == Pass::Fill;
        if self.is_broken || is_needless || !self.regions.is_unchanged_since(region, ticket.0) {
            return compared;
        }
        let hash = self.domain.hash(bytes);
        let known = if state == State::Unknown { None } else { self.hash(block) };
        compared.is_zero = hash == self.zero;
        compared.was_unknown = known.is_none();
        compared.was_suspect = state == State::Suspect;
        compared.differs = known.is_some_and(|known| known != hash);
        if is_sure && !compared.differs {
            return compared;
        }
        if self.regions.is_durable(region) {
            self.settle(block, hash);
        } else {
            self.states.set(block, State::Unknown);
            self.pending.insert(block, hash);
        }
        compared
    }

    /// To be called before the device is flushed.
    pub fn begin_flush(&mut self) -> FlushTicket {
        FlushTicket(self.regions.tick())
    }

    /// The device was flushed without an error: what had been written when it began is durable.
    pub fn end_flush(&mut self, ticket: FlushTicket) {
        self.regions.flushed(ticket.0);
        let is_durable = |block: &u64| self.regions.is_durable(self.region_of(*block));
        let durable: Vec<u64> = self.pending.keys().copied().filter(is_durable).collect();
        for block in durable {
            if let Some(hash) = self.pending.remove(&block) {
                self.settle(block, hash);
            }
        }
    }

    /// The block has this hash, durably.
    fn settle(&mut self, block: u64, hash: Hash) {
        if self.is_broken {
            return;
        }
        let at = self.hash_at(block);
        self.is_broken |= self.file.write_at(hash.as_bytes(), at).is_err();
        self.states.set(block, if hash == self.zero { State::Zero } else { State::Valid });
    }

    /// Whether it should be tidied now. To be asked every few seconds: while writes don't cease it is mostly put off, since their
    /// regions would have to be marked anew.
    pub fn is_to_be_tidied(&mut self) -> bool {
        if std::mem::take(&mut self.is_busy) && self.put_off < PUT_OFF_MOST {
            self.put_off += 1;
            return false;
        }
        self.put_off = 0;
        !self.is_broken && self.regions.has_bits()
    }

    /// Clears the bits of regions that are not being written, and whose bytes are durable.
    pub fn tidy(&mut self) -> Result<(), IndexError> {
        if self.is_broken {
            return Ok(());
        }
        let tidied = self.clear_quiet();
        self.is_broken |= tidied.is_err();
        tidied
    }

    fn clear_quiet(&mut self) -> Result<(), IndexError> {
        if !self.regions.has_bits() {
            return Ok(());
        }
        let (quiet, geometry) = (self.regions.quiet(), self.header.geometry);
        for region in &quiet {
            let blocks = blocks_of(&geometry, *region);
            self.save_states(blocks.start, blocks.end)?;
        }
        // States before bits, so that a bit never goes before what it stood for.
        if !quiet.is_empty() {
            self.file.sync()?;
        }
        if let Some(changed) = self.regions.forget(&quiet) {
            let (begin, sectors) = self.regions.sectors(&changed);
            self.file.write_at(sectors, geometry.bitmap_at() + begin)?;
        }
        Ok(())
    }

    /// Closes the index, with the marks that the device has now that all is written and flushed. Whether it will be believed:
    /// not where writes or flushes are missing, or nobody knows any marks.
    pub fn close(mut self, marks: Option<Marks>) -> Result<bool, IndexError> {
        if self.is_broken {
            return Ok(false);
        }
        self.clear_quiet()?;
        // Where a write hasn't ended, or isn't durable, its region is still marked.
        if self.regions.has_bits() {
            return Ok(false);
        }
        let blocks = self.header.geometry.blocks();
        self.save_states(0, blocks)?;
        let bitmap = self.regions.bitmap().to_vec();
        self.file.write_at(&bitmap, self.header.geometry.bitmap_at())?;
        self.file.sync()?;
        let is_marked = marks.is_some();
        self.header.closed = marks;
        self.file.write_at(&self.header.encode(), 0)?;
        self.file.sync()?;
        Ok(is_marked)
    }

    /// Writes the states of these blocks, and of those that share bytes with them.
    fn save_states(&mut self, first: u64, end: u64) -> Result<(), IndexError> {
        let (first, end) = (first / 4, end.div_ceil(4));
        let bytes = self.states.bytes().get(first as usize..end as usize).unwrap_or_default();
        Ok(self.file.write_at(bytes, self.header.geometry.states_at() + first)?)
    }

    fn region_of(&self, block: u64) -> u64 {
        block / self.header.geometry.blocks_per_region()
    }

    fn blocks_touched(&self, at: u64, len: u64) -> std::ops::Range<u64> {
        let each = u64::from(self.header.geometry.block_bytes);
        at / each..at.saturating_add(len).div_ceil(each).min(self.header.geometry.blocks())
    }

    /// The blocks of which all bytes are there.
    fn whole_blocks<'a>(&self, at: u64, bytes: &'a [u8]) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a, F> {
        let geometry = self.header.geometry;
        let first = at.div_ceil(u64::from(geometry.block_bytes));
        (first..geometry.blocks()).map_while(move |block| {
            let (begin, len) = geometry.place(block);
            let begin = usize::try_from(begin - at).ok()?;
            Some((block, bytes.get(begin..begin.checked_add(len)?)?))
        })
    }
}

fn blocks_of(geometry: &Geometry, region: u64) -> std::ops::Range<u64> {
    let each = geometry.blocks_per_region();
    region * each..((region + 1) * each).min(geometry.blocks())
}

/// What an index is of, without opening it.
pub fn geometry(file: &impl IndexFile) -> Result<Geometry, IndexError> {
    Ok(read_header(file)?.geometry)
}

/// The regions of [`super::REGION_BYTES`] that were being written when the index was open last, without opening it: opening it
/// forgets them.
pub fn regions_written(file: &impl IndexFile) -> Result<Vec<u64>, IndexError> {
    let geometry = read_header(file)?.geometry;
    let mut bitmap = vec![0; geometry.regions().div_ceil(8) as usize];
    file.read_at(&mut bitmap, geometry.bitmap_at())?;
    let written = Regions::new(&geometry, bitmap);
    Ok((0..geometry.regions()).filter(|region| written.is_set(*region)).collect())
}

fn read_header(file: &impl IndexFile) -> Result<Header, IndexError> {
    if file.len()? < header::BYTES as u64 {
        return Err(IndexError::NoIndex);
    }
    let mut bytes = [0; header::BYTES];
    file.read_at(&mut bytes, 0)?;
    Header::decode(&bytes)
}
