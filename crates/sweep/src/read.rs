//! The read engine: carries out a plan.
//!
//! Many reads are in flight, in the order of the plan; bytes land where they belong in the buffers of their files; a file
//! whose last byte has arrived is checked and handed over. What the plan promises about memory is in
//! [`crate::plan::request`].

mod completion;
mod landing;
mod open_files;
mod runs;
mod ways;

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use onesweep_sys::{
    buffer::{BufferPart, BufferPool, FileBuffer},
    cache, files,
    read_queue::{ReadOp, ReadPart, ReadQueue, best_queue, copies_queue, joins_neighbours},
};

use self::{open_files::OpenFiles, runs::Runs, ways::Ways};
use crate::{
    budget::{Loan, Share},
    catalogue::{Catalogue, EntryId, Flags},
    device::DeviceCheck,
    error::FileError,
    footprint::{Footprint, was_cached},
    opener::{Opener, descriptors},
    outlet::Outlet,
    plan::{NO_ADDRESS, Part, Piece, PlanSource, Request},
    settings::CachePolicy,
    several::Several,
    stream::StreamRules,
    throttle::{Throttle, sleep_until},
};

/// The files of a plan: numbers of the plan stand for entries of the catalogue.
pub(crate) struct PlannedFiles<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) files: &'a [EntryId],
    pub(crate) device: bool,
    pub(crate) several: &'a Several,
}

impl PlanSource for PlannedFiles<'_> {
    fn files(&self) -> u32 {
        self.files.len() as u32
    }

    fn cost(&self, file: u32) -> u64 {
        self.catalogue.cost(self.files[file as usize])
    }

    fn place_on_disk(&self, address: u64) -> u64 {
        self.several.on_disk(address).1
    }

    fn disk_of(&self, address: u64) -> usize {
        self.several.on_disk(address).0
    }

    fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
        let id = self.files[file as usize];
        let through = self.device && self.catalogue.get(id).flags.has(Flags::THROUGH_FILE_SYSTEM);
        for piece in self.catalogue.pieces(id, file) {
            let address = match piece.address {
                _ if through => NO_ADDRESS,
                NO_ADDRESS => NO_ADDRESS,
                address => self.several.in_plan(address),
            };
            visit(Piece { address, ..piece });
        }
    }
}

/// What the engine works with.
pub(crate) struct Engine<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) files: &'a [EntryId],
    pub(crate) opener: &'a mut Opener,
    pub(crate) outlet: &'a Outlet,
    pub(crate) share: &'a Share,
    pub(crate) throttle: &'a Arc<Throttle>,
    pub(crate) pool: &'a BufferPool,
    pub(crate) device: Option<&'a mut DeviceCheck>,
    pub(crate) cache: CachePolicy,
    /// With each file it is told whether it was cached.
    pub(crate) notes_cached: bool,
    pub(crate) stream_rules: StreamRules,
    pub(crate) xattrs: bool,
    pub(crate) queue_depth: usize,
    /// File systems on several disks.
    pub(crate) several: &'a Several,
    /// Reads begin together, when the queue is full.
    pub(crate) in_batches: bool,
    /// Neighbours on the disk are read by one request of it, where the kernel joins them.
    pub(crate) joins: bool,
}

/// A file that waits for bytes.
struct Waiting {
    buffer: FileBuffer,
    loan: Loan,
    missing: u64,
    state: Trust,
    /// Direct reads of it were refused.
    not_direct: bool,
    /// Something was read through its file system.
    through: bool,
    /// What is to be dropped of a file that was partly cached before.
    footprint: Footprint,
    /// All that was read so far was cached before, where that is noted and can be told.
    was_cached: Option<bool>,
}

enum Trust {
    Good,
    /// What arrived can't be trusted: to be read again, through the file system.
    Doubtful,
    Failed(FileError),
}

/// A read in flight.
struct Flight {
    request: u64,
    target: Target,
    offset: u64,
    left: usize,
    /// The copy that is to be read.
    copy: Option<u16>,
    /// The run of neighbours that it is of, once it has begun.
    run: u64,
}

#[derive(Clone, Copy)]
enum Target {
    /// Bytes of one file, through the file system.
    File { file: u32, direct: bool, dont_cache: bool },
    /// Bytes of a volume, from its device.
    Device { volume: u16 },
}

/// What follows from a read that is over.
enum Verdict {
    Arrived,
    Again,
    Doubtful,
    Failed(io::Error),
}

/// A request of which something is in flight.
struct Begun {
    request: Rc<Request>,
    flights: u32,
}

/// Why a plan was not carried out to its end.
#[derive(Debug)]
pub(crate) enum Halt {
    Cancelled,
    /// The machine refused to read at all.
    Broken(io::Error),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

pub(crate) struct Reader<'a> {
    engine: Engine<'a>,
    queue: Box<dyn ReadQueue>,
    runs: Runs,
    waiting: HashMap<u32, Waiting>,
    flights: HashMap<u64, Flight>,
    begun: HashMap<u64, Begun>,
    /// Pieces that could not be copied from another file after all.
    extra: VecDeque<Piece>,
    next_number: u64,
    open: OpenFiles,
    /// By volume.
    ways: HashMap<u16, Ways>,
    failed: Vec<EntryId>,
    /// Takes what is tried.
    tried: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(engine: Engine<'a>) -> Self {
        let reads_max = descriptors(u64::MAX, 4);
        let depth = engine.queue_depth.min(reads_max);
        let copies = engine.several.copies();
        let (runs, reads) =
            Runs::new(depth, engine.joins && !engine.in_batches && copies < 2 && joins_neighbours(), reads_max);
        Self {
            queue: match copies {
                0 | 1 => best_queue(reads),
                copies => copies_queue(reads, copies),
            },
            runs,
            waiting: HashMap::new(),
            flights: HashMap::new(),
            begun: HashMap::new(),
            extra: VecDeque::new(),
            next_number: 0,
            open: OpenFiles::new(),
            ways: HashMap::new(),
            failed: Vec::new(),
            tried: Vec::new(),
            engine,
        }
    }

    /// Carries out all requests and hands over all their files; gives those that failed.
    pub(crate) fn run(mut self, requests: impl Iterator<Item = Request>) -> Result<Vec<EntryId>, Halt> {
        let mut requests = requests.peekable();
        while let Some(request) = requests.next() {
            if self.engine.outlet.is_cancelled() {
                return Err(Halt::Cancelled);
            }
            for &file in &request.admits {
                self.admit(file)?;
            }
            self.runs.meet(&request, requests.peek());
            self.begin(request)?;
            if !self.is_held() {
                self.queue.submit()?;
            }
        }
        while self.advance()? {}
        debug_assert!(self.waiting.is_empty(), "every file of a plan is completed by it");
        let left: Vec<u32> = self.waiting.keys().copied().collect();
        for file in left {
            // A fault of the program must not lose a file in silence.
            self.mark(file, Trust::Failed(FileError::Changed { path: self.path(file), attempts: 1 }));
            self.complete(file)?;
        }
        Ok(std::mem::take(&mut self.failed))
    }

    /// Does one thing that brings bytes nearer; false when nothing is left to do.
    fn advance(&mut self) -> Result<bool, Halt> {
        if self.engine.outlet.is_cancelled() {
            return Err(Halt::Cancelled);
        }
        if let Some(piece) = self.extra.pop_front() {
            let parts = vec![Part::Read(piece)];
            self.begin(Request { length: piece.length, parts, ..Request::default() })?;
            return Ok(true);
        }
        if self.queue.in_flight() > 0 {
            if self.runs.holds() {
                self.queue.submit()?;
            }
            self.reap()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// What is pushed now begins later, with what comes then.
    fn is_held(&self) -> bool {
        // Waiting for one read of a batch begins them all.
        self.engine.in_batches || self.runs.holds()
    }

    /// Reserves the memory of a file: what is in flight frees some when it arrives, and so do the consumers.
    fn admit(&mut self, file: u32) -> Result<(), Halt> {
        let cost = self.engine.catalogue.cost(self.id(file));
        let loan = loop {
            if let Some(loan) = self.engine.share.try_reserve(cost) {
                break loan;
            }
            if !self.advance()? {
                break self.engine.outlet.reserve(self.engine.share, cost).ok_or(Halt::Cancelled)?;
            }
        };
        let missing: u64 = self.engine.catalogue.pieces(self.id(file), file).map(|piece| piece.length).sum();
        // What the pieces don't cover are holes.
        let pool = self.engine.pool;
        let buffer = if missing >= cost { pool.try_uncleared(cost as usize) } else { pool.try_zeroed(cost as usize) };
        let buffer = buffer.ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?;
        let waiting = Waiting {
            buffer,
            loan,
            missing,
            state: Trust::Good,
            not_direct: false,
            through: false,
            footprint: Footprint::default(),
            was_cached: None,
        };
        self.waiting.insert(file, waiting);
        Ok(())
    }

    fn id(&self, file: u32) -> EntryId {
        self.engine.files[file as usize]
    }

    fn path(&self, file: u32) -> PathBuf {
        self.engine.catalogue.path(self.id(file))
    }

    fn mark(&mut self, file: u32, state: Trust) {
        let waiting = self.waiting.get_mut(&file).expect("a file waits until all its requests have landed");
        // The first failure is the one to tell.
        if !matches!(waiting.state, Trust::Failed(_)) {
            waiting.state = state;
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Puts the reads of a request in flight.
    fn begin(&mut self, request: Request) -> Result<(), Halt> {
        self.engine.outlet.count(|summary| {
            summary.requests += 1;
            summary.bytes_read += request.length;
        });
        let number = self.number();
        let request = Rc::new(request);
        // One flight stands for the loop below, so that the request can't land before all its reads have begun.
        self.begun.insert(number, Begun { request: Rc::clone(&request), flights: 1 });
        if self.engine.device.is_some() && request.has_address() {
            self.begin_on_device(number, &request.parts)?;
        } else {
            for piece in request.reads() {
                self.begin_on_file(number, piece)?;
            }
        }
        self.land(number)
    }

    fn begin_on_file(&mut self, number: u64, piece: &Piece) -> Result<(), Halt> {
        if !matches!(self.waiting[&piece.file].state, Trust::Good) {
            return Ok(());
        }
        match self.open_best(piece.file) {
            Ok((fd, direct)) => {
                let part = self.lend(piece);
                let dont_cache = !direct && self.ways(piece.file).dont_cache;
                let target = Target::File { file: piece.file, direct, dont_cache };
                let copy = Some(piece.address).filter(|&address| address != NO_ADDRESS);
                let copy = copy.and_then(|address| self.engine.several.copy(address));
                let flight = Flight { request: number, target, offset: piece.offset, left: part.len(), copy, run: 0 };
                self.fly(flight, fd, vec![ReadPart::Buffer(part)])
            }
            Err(error) => {
                let error = FileError::io(self.path(piece.file), "open", error);
                self.mark(piece.file, Trust::Failed(error));
                Ok(())
            }
        }
    }

    /// Reads a request from the device: one read for each volume that it touches.
    fn begin_on_device(&mut self, number: u64, parts: &[Part]) -> Result<(), Halt> {
        let mut run: Option<DeviceRun> = None;
        for part in parts {
            match part {
                Part::Read(piece) => {
                    let volume = self.engine.catalogue.get(self.id(piece.file)).device;
                    if run.as_ref().is_some_and(|run| run.volume != volume) {
                        self.fly_on_device(number, run.take())?;
                    }
                    let part = ReadPart::Buffer(self.lend(piece));
                    run.get_or_insert_with(|| DeviceRun { volume, address: piece.address, parts: Vec::new() })
                        .parts
                        .push(part);
                }
                Part::Gap { length } => {
                    if let Some(run) = &mut run {
                        run.parts.push(ReadPart::Skip(*length as usize));
                    }
                }
                Part::Copy { .. } => {}
            }
        }
        self.fly_on_device(number, run)
    }

    fn fly_on_device(&mut self, number: u64, run: Option<DeviceRun>) -> Result<(), Halt> {
        let Some(DeviceRun { volume, address, mut parts }) = run else { return Ok(()) };
        while matches!(parts.last(), Some(ReadPart::Skip(_))) {
            parts.pop();
        }
        let offset = address - self.engine.catalogue.volume(volume).base;
        let left = parts.iter().map(ReadPart::len).sum();
        let fd = self.device().node(volume);
        let target = Target::Device { volume };
        self.fly(Flight { request: number, target, offset, left, copy: None, run: 0 }, fd, parts)
    }

    fn device(&mut self) -> &mut DeviceCheck {
        self.engine.device.as_mut().expect("only device mode asks")
    }

    fn lend(&self, piece: &Piece) -> BufferPart {
        let start = piece.offset as usize;
        self.waiting[&piece.file].buffer.lend(start..start + piece.length as usize)
    }

    /// Puts one read in flight, when there is room for it.
    fn fly(&mut self, mut flight: Flight, file: Arc<OwnedFd>, parts: Vec<ReadPart>) -> Result<(), Halt> {
        self.begun.get_mut(&flight.request).expect("begun").flights += 1;
        if let Some(begin) = self.engine.throttle.turn(flight.left as u64) {
            // There is time: what is in flight is handed over instead of waiting for a full queue.
            while self.queue.in_flight() > 0 {
                self.reap()?;
            }
            self.engine.outlet.flush();
            sleep_until(begin, self.engine.outlet.cancel());
        }
        while self.runs.is_full(self.queue.in_flight(), self.queue.capacity()) {
            self.reap()?;
            while self.engine.in_batches && self.queue.in_flight() > 0 {
                self.reap()?;
            }
        }
        flight.run = self.runs.begin();
        self.push(flight, file, parts)
    }

    fn push(&mut self, flight: Flight, file: Arc<OwnedFd>, parts: Vec<ReadPart>) -> Result<(), Halt> {
        self.expect_pages(&flight, file.as_fd());
        let dont_cache = matches!(flight.target, Target::File { dont_cache: true, .. });
        let token = self.number();
        let op = ReadOp { token, file, offset: flight.offset, parts, dont_cache, copy: flight.copy };
        self.flights.insert(token, flight);
        self.queue.push(op)?;
        if !self.is_held() {
            self.queue.submit()?;
        }
        Ok(())
    }

    fn ways(&mut self, file: u32) -> &mut Ways {
        let volume = self.engine.catalogue.get(self.id(file)).device;
        self.ways.entry(volume).or_insert_with(|| Ways::of(self.engine.cache))
    }

    fn refuse_direct(&mut self, file: u32) {
        let waiting = self.waiting.get_mut(&file).expect("a file waits until all its requests have landed");
        // One file is counted once, whatever the number of its reads.
        if !std::mem::replace(&mut waiting.not_direct, true) {
            self.ways(file).learn(false);
        }
    }

    /// Opens a file for the best way of reading that it has; true for direct reads.
    fn open_best(&mut self, file: u32) -> io::Result<(Arc<OwnedFd>, bool)> {
        if !self.waiting[&file].not_direct && self.ways(file).direct && !self.is_better_buffered(file)? {
            match self.open_file(file, true) {
                // The file system has no direct reads, or a hidden switch says so.
                Err(error) if files::is_refusal(&error) => self.refuse_direct(file),
                opened => return Ok((opened?, true)),
            }
        }
        Ok((self.open_file(file, false)?, false))
    }

    /// Where some pages are to stay and others to go, it must be known where a read goes: better through the cache for
    /// certain, unless nobody could tell afterwards what it brought there.
    fn is_better_buffered(&mut self, file: u32) -> io::Result<bool> {
        let flags = self.engine.catalogue.get(self.id(file)).flags;
        if !flags.has(Flags::PARTLY_CACHED) || !flags.has(Flags::DIRECT_DOUBTFUL) {
            return Ok(false);
        }
        if !flags.has(Flags::UNTOLD) {
            return Ok(true);
        }
        if let Some(known) = self.ways(file).trial {
            return Ok(known);
        }
        let fd = self.open_file(file, false)?;
        let found = cache::has_trial(fd.as_fd());
        self.ways(file).trial = Some(found);
        Ok(found)
    }

    /// Before a read through a file system: where it leaves something in the page cache, what of it is to be dropped.
    fn expect_pages(&mut self, flight: &Flight, fd: BorrowedFd<'_>) {
        let Target::File { file, direct, dont_cache } = flight.target else { return };
        let entry = self.engine.catalogue.get(self.id(file));
        let waiting = self.waiting.get_mut(&file).expect("a file waits until all its requests have landed");
        let is_first = !std::mem::replace(&mut waiting.through, true);
        // One part that wasn't cached tells of the whole file.
        if self.engine.notes_cached && (is_first || waiting.was_cached == Some(true)) {
            let range = flight.offset..flight.offset + flight.left as u64;
            waiting.was_cached = was_cached(&entry, fd, &range, &mut self.tried);
        }
        let untouched = self.engine.cache == CachePolicy::Untouched;
        if !direct && !dont_cache && untouched && entry.flags.has(Flags::PARTLY_CACHED) {
            let range = flight.offset..flight.offset + flight.left as u64;
            waiting.footprint.expect(fd, range, entry.size);
        }
    }

    fn open_file(&mut self, file: u32, direct: bool) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = self.open.get(file, direct) {
            return Ok(fd);
        }
        let id = self.id(file);
        let opened = self.engine.opener.inode(self.engine.catalogue, id, direct)?;
        if !direct {
            // Without read-ahead, exactly what is asked for is read.
            let _ = cache::random_access(opened.as_fd());
        }
        let fd = Arc::new(opened);
        self.open.keep(file, direct, Arc::clone(&fd));
        Ok(fd)
    }
}

/// A sweep that ends early leaves files behind of which something was read.
impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // Pages on their way can't be dropped.
        while self.queue.in_flight() > 0 && self.queue.wait().is_ok() {}
        let left: Vec<u32> =
            self.waiting.iter().filter(|(_, waiting)| waiting.through).map(|(&file, _)| file).collect();
        for file in left {
            let opened = self.open_best(file);
            let waiting = self.waiting.remove(&file);
            if let (Ok((fd, _)), Some(mut waiting)) = (opened, waiting) {
                self.leave_cache(file, &mut waiting, fd.as_fd());
            }
            self.open.forget(file);
        }
    }
}

/// What one read of a device will bring.
struct DeviceRun {
    volume: u16,
    address: u64,
    parts: Vec<ReadPart>,
}
