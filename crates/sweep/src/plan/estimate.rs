//! What a plan will cost, before it is carried out.

use std::fmt;

use super::{
    disk::DiskModel,
    merge::Requests,
    queue::DriveQueue,
    request::{Part, Request},
    schedule::{Budget, Schedule, SweepOrder},
    source::PlanSource,
};

/// The cost of a plan.
///
/// `read == useful - copied + wasted`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estimate {
    /// The disk that the time is for.
    pub disk: String,
    /// Files with at least one byte to read.
    pub files: u64,
    /// Pieces, as the source gives them.
    pub fragments: u64,
    /// Pieces whose place on the device is unknown.
    pub without_address: u64,
    /// Reads.
    pub requests: u64,
    /// Requests that don't begin where the former ended, the first among them.
    pub seeks: u64,
    /// Bytes of the blocks that files have: those that are delivered, with the rest of each last block.
    pub useful: u64,
    /// Bytes that come from the disk.
    pub read: u64,
    /// Bytes of gaps that are read through.
    pub wasted: u64,
    /// Bytes that are not read, since they are shared with bytes that are.
    pub copied: u64,
    /// Runs of rising addresses, from piece to piece.
    pub passes: u64,
    /// Passes that refused files for the next; 1 if any file is read.
    pub bins: u64,
    /// How often a bin stopped admitting files to complete those it had.
    pub clean_ups: u64,
    /// The most bytes that files hold while they wait, with memory freed behind completed requests.
    pub peak_memory: u64,
    /// What `peak_memory` would be without a budget, and with memory freed right behind each last piece.
    pub peak_unlimited: u64,
    /// The time that the disk needs for the requests, when it always holds as many of them as were said; of several disks,
    /// that of the one that needs longest.
    pub seconds: f64,
}

impl Estimate {
    /// Goes through all requests of a plan, `in_flight` of which a disk holds at a time. Costs what planning costs,
    /// twice: the second time without a budget, for [`Estimate::peak_unlimited`].
    pub fn of<S: PlanSource>(mut requests: Requests<S>, disk: &DiskModel, in_flight: usize) -> Self {
        let mut tally = Tally::new(disk, in_flight);
        let mut request = Request::default();
        while requests.next_into(&mut request) {
            let source = requests.schedule().source();
            let (disk, place) = match request.has_address() {
                true => (source.disk_of(request.address), source.place_on_disk(request.address)),
                false => (0, request.address),
            };
            tally.add_on(disk, &request, place);
        }
        let mut estimate = tally.finish();
        let schedule = requests.schedule();
        estimate.fragments = schedule.steps();
        estimate.without_address = schedule.steps_without_address();
        estimate.peak_memory = requests.peak();
        estimate.peak_unlimited = if schedule.is_whole_files() {
            schedule.peak() // one file at a time, whatever the budget
        } else {
            peak_unlimited(schedule.source())
        };
        estimate
    }

    /// Adds the cost of another plan, on the same or another disk that is read after it. Their peaks are added too: each
    /// plan has a budget of its own. A plan that runs beside it takes the longer of both `seconds`.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.fragments += other.fragments;
        self.without_address += other.without_address;
        self.requests += other.requests;
        self.seeks += other.seeks;
        self.useful += other.useful;
        self.read += other.read;
        self.wasted += other.wasted;
        self.copied += other.copied;
        self.passes += other.passes;
        self.bins += other.bins;
        self.clean_ups += other.clean_ups;
        self.peak_memory += other.peak_memory;
        self.peak_unlimited += other.peak_unlimited;
        self.seconds += other.seconds;
    }
}

impl fmt::Display for Estimate {
    /// One line for what is read, one for how, one for what it takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        writeln!(f, "{} files, {} fragments, {:.1} MB", self.files, self.fragments, mb(self.useful))?;
        let (requests, seeks, passes) = (self.requests, self.seeks, self.passes);
        write!(f, "{requests} requests, {seeks} seeks, {passes} passes, {} clean-ups, ", self.clean_ups)?;
        writeln!(f, "{:.1} MB read, {:.1} MB of it in gaps", mb(self.read), mb(self.wasted))?;
        write!(f, "{:.1} s on {}, {:.1} MB of memory", self.seconds, self.disk, mb(self.peak_memory))
    }
}

/// The most bytes that the files of `source` hold in one sweep by fragments without a budget: the largest sum of costs
/// over all files whose range on the device covers one place (DAFT II.C).
pub fn peak_unlimited<S: PlanSource>(source: &S) -> u64 {
    match Schedule::new(source, SweepOrder::Fragment, Budget::unlimited()) {
        Ok(mut schedule) => {
            schedule.by_ref().for_each(drop);
            schedule.peak()
        }
        Err(_) => 0, // a source that can't be planned reads nothing
    }
}

/// Where the head is after a request.
#[derive(Clone, Copy)]
enum Head {
    Unknown,
    At(u64),
    /// Somewhere on the device, behind this byte of this file.
    InFile(u32, u64),
}

/// Counts requests as they come, those of a plan or those that an engine issued.
#[derive(Clone)]
pub struct Tally<'a> {
    disk: &'a DiskModel,
    sums: Estimate,
    in_flight: usize,
    /// By their numbers.
    drives: Vec<(DriveQueue, Head)>,
    /// The address of the last piece that was read.
    former: u64,
    bin: Option<u32>,
    epoch: u32,
}

impl<'a> Tally<'a> {
    /// Nothing counted yet. The disk holds `in_flight` requests at a time.
    #[must_use]
    pub fn new(disk: &'a DiskModel, in_flight: usize) -> Self {
        let sums = Estimate { disk: disk.name.clone(), ..Estimate::default() };
        Self { disk, sums, in_flight, drives: Vec::new(), former: 0, bin: None, epoch: 0 }
    }

    /// Counts the next request, whose address is that place on the disk.
    pub fn add(&mut self, request: &Request, place: u64) {
        self.add_on(0, request, place);
    }

    /// The same where several disks work side by side, each with its own head.
    pub fn add_on(&mut self, disk: usize, request: &Request, place: u64) {
        self.count_passes(request);
        self.move_head(disk, request, place);
        self.sums.requests += 1;
        self.sums.files += request.admits.len() as u64;
        self.sums.read += request.length;
        for part in &request.parts {
            match part {
                Part::Read(piece) => self.sums.useful += piece.length,
                Part::Gap { length } => self.sums.wasted += length,
                Part::Copy { to, .. } => {
                    self.sums.useful += to.length;
                    self.sums.copied += to.length;
                }
            }
        }
    }

    /// The sums so far. What requests don't tell is 0: fragments, pieces without address, and both peaks.
    #[must_use]
    pub fn finish(self) -> Estimate {
        let clean_ups = self.sums.clean_ups + u64::from(self.epoch);
        let longest_ms = self.drives.into_iter().map(|(drive, _)| drive.finish()).fold(0.0, f64::max);
        Estimate { clean_ups, seconds: longest_ms / 1000.0, ..self.sums }
    }

    fn count_passes(&mut self, request: &Request) {
        if self.bin != Some(request.bin) {
            self.sums.bins += 1;
            self.sums.clean_ups += u64::from(self.epoch);
            self.epoch = 0;
        }
        self.bin = Some(request.bin);
        self.epoch = self.epoch.max(request.epoch);
        if self.sums.requests == 0 || request.address < self.former {
            self.sums.passes += 1;
        }
        self.former = request.reads().last().map_or(request.address, |piece| piece.address);
    }

    fn move_head(&mut self, disk: usize, request: &Request, place: u64) {
        while self.drives.len() <= disk {
            self.drives.push((DriveQueue::new(self.disk, self.in_flight), Head::Unknown));
        }
        let (drive, head) = &mut self.drives[disk];
        let length = request.length;
        let first = request.reads().next();
        let goes_on = match (*head, first) {
            (Head::At(end), _) if request.has_address() => end == place,
            (Head::InFile(file, end), Some(piece)) if !request.has_address() => {
                (file, end) == (piece.file, piece.offset)
            }
            _ => false,
        };
        self.sums.seeks += u64::from(!goes_on);
        if request.has_address() {
            drive.push(place, length);
        } else if goes_on {
            drive.pass(self.disk.transfer_ms(length));
        } else {
            drive.pass(self.disk.random_ms(length));
        }
        *head = match first {
            _ if request.has_address() => Head::At(place.saturating_add(length)),
            Some(piece) => Head::InFile(piece.file, piece.offset + piece.length),
            None => Head::Unknown,
        };
    }
}
