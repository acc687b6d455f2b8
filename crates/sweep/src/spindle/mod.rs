//! The sweep of one spindle: walk, survey, plan, read, window by window.

mod image;
mod links;
mod planning;
mod ready;
mod sequence;
mod surveying;

use std::{collections::HashMap, ops::Range, path::PathBuf, sync::Arc};

use self::links::FirstName;
use onesweep_sys::buffer::BufferPool;

use crate::{
    ahead::ReadAhead,
    at_once::ReaderAtOnce,
    btrfs::Manner,
    budget::Share,
    catalogue::{Catalogue, EntryId, Flags},
    delivery::Item,
    device::DeviceCheck,
    error::{FileError, SweepError},
    handover,
    image::{Filling, ImageDevice},
    opener::Opener,
    order::Order,
    outlet::{Counters, Outlet},
    placement::{Placement, Placements},
    preload::Preload,
    progress::Progress,
    read::{Engine, Halt, PlannedFiles, Reader},
    settings::{Entries, Settings},
    survey::{Aim, Surveyed, Surveyor},
    throttle::Throttle,
    walk::{Foreign, Place, Rule, WalkOrder, Walker, Window},
};

/// The share of the catalogue limit that names may take; the rest is for fragments.
const WALK_SHARE: (u64, u64) = (3, 4);

/// A survey goes on to at least so many files before it is cut for want of memory.
const BATCH_MIN: usize = 4096;

/// Directories read ahead where nothing is gained by an order and so nothing is lost by a window.
const SEEKLESS_DIRECTORIES: usize = 256;

/// Entries that are looked at ahead of the survey.
const AHEAD: usize = 16384;

/// Inodes with numbers that differ only in the last bits lie in one block, or in blocks side by side.
const NEIGHBOURS: u64 = 32;

/// What a stream is taken to be read by: the file system's read-ahead goes on between its reads.
const STREAM_READ: u64 = 1 << 20;

/// Events between two progress reports of walk and survey.
const EVERY: usize = 1024;

/// A named path, or a directory of another spindle that a walk came to.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) shown: PathBuf,
    pub(crate) opened: PathBuf,
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) placement: Arc<Placement>,
}

/// Files of one plan.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// To be handed over without a read from the disk.
    ready: Vec<EntryId>,
    pub(crate) planned: Vec<EntryId>,
    streamed: Vec<EntryId>,
}

/// Entries of a window that are still to be surveyed: names of one inode in a row.
#[derive(Debug, Default)]
struct Pending {
    entries: Vec<EntryId>,
    next: usize,
    /// Entries before this one were looked at ahead of the survey.
    ahead: usize,
}

pub(crate) struct SpindleSweep {
    settings: Arc<Settings>,
    placements: Arc<Placements>,
    /// The file system of the first root.
    first: Arc<Placement>,
    pub(crate) name: String,
    pub(crate) order: Order,
    walk_order: WalkOrder,
    pub(crate) remark: Option<String>,
    catalog_limit: u64,
    /// Bytes of the catalogue that nothing could be done about.
    floor: u64,
    share: Share,
    throttle: Arc<Throttle>,
    pool: BufferPool,
    members: usize,
    /// The size of what addresses are places on, where that is known.
    disk_bytes: Option<u64>,
    seekless: bool,
    pub(crate) catalogue: Catalogue,
    walker: Walker,
    opener: Opener,
    ahead: ReadAhead,
    surveyor: Surveyor,
    at_once: ReaderAtOnce,
    device: Option<DeviceCheck>,
    first_names: HashMap<(u64, u64), FirstName>,
    /// Directories that were handed over and will be once more, when they are complete.
    to_close: Vec<EntryId>,
    /// Found while the plan was made; handed over when the sweep runs.
    pub(crate) held: Held,
    pending: Pending,
    walked_entries: u64,
    surveyed_files: u64,
    surveyed_bytes: u64,
    /// To be read instead of a walk.
    image: Option<Filling>,
    image_device: Option<Arc<ImageDevice>>,
}

/// What a plan has prepared.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) errors: Vec<FileError>,
    pub(crate) directories: Vec<EntryId>,
    pub(crate) batch: Option<Batch>,
}

impl SpindleSweep {
    /// A sweep of roots that all lie on one spindle; there must be at least one, and each is to be added.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        placements: &Arc<Placements>,
        roots: &[Root],
        share: Share,
        throttle: &Arc<Throttle>,
        pool: &BufferPool,
    ) -> Self {
        let first = &roots[0].placement;
        let (order, remark) = sequence::choose(settings, roots);
        let share_limit = share.limit();
        let members = roots.iter().map(|root| root.placement.members()).max().unwrap_or(1);
        let large = settings.large().min(share.limit()) / 4096 * 4096;
        Self {
            settings: Arc::clone(settings),
            placements: Arc::clone(placements),
            first: Arc::clone(first),
            name: first.disk_name(),
            order,
            remark,
            catalog_limit: settings.catalog_limit(),
            floor: 0,
            share,
            throttle: Arc::clone(throttle),
            pool: pool.clone(),
            members,
            disk_bytes: roots.iter().filter_map(|root| root.placement.disk_bytes()).max(),
            seekless: roots.iter().all(|root| root.placement.is_seekless()),
            catalogue: Catalogue::new(),
            walker: Walker::new(),
            opener: Opener::new(),
            ahead: ReadAhead::new(members, settings.idle),
            surveyor: Surveyor::new(Aim {
                content: settings.content,
                layout: settings.needs_layout(order),
                device: settings.device,
                cached_first: !settings.ignore_cache && (order != Order::Directory || sequence::is_free(settings)),
                large,
                share: share_limit,
            }),
            at_once: ReaderAtOnce::new(settings.cache),
            walk_order: if order.is_per_directory() { WalkOrder::DepthFirst } else { WalkOrder::CScan },
            device: settings.device.then(DeviceCheck::default),
            first_names: HashMap::new(),
            to_close: Vec::new(),
            held: Held::default(),
            pending: Pending::default(),
            walked_entries: 0,
            surveyed_files: 0,
            surveyed_bytes: 0,
            image: None,
            image_device: None,
        }
    }

    /// Adds a root. In device mode, one that can't be read from its device is an error, unless `lenient`.
    pub(crate) fn add_root(&mut self, root: &Root, lenient: bool) -> Result<(), SweepError> {
        let volume = self.catalogue.volume_number(root.placement.volume);
        self.surveyor.meet(volume, &root.placement);
        if let Some(device) = &mut self.device
            && let Err(error) = device.admit(volume, &root.placement, &root.shown)
        {
            if !lenient {
                return Err(error);
            }
            self.surveyor.leave_to_file_system(volume);
            self.remark.get_or_insert(error.to_string());
        }
        let shown = crate::opener::path_bytes(&root.shown);
        let id = self
            .catalogue
            .add_root(shown, root.opened.clone(), volume, root.mode, root.ino)
            .ok_or_else(|| SweepError::Setting(format!("{}: the path is too long", root.shown.display())))?;
        if lenient {
            self.catalogue.mark_met(id);
        }
        if let Some(preload) = Preload::of(&root.placement, &self.settings, self.settings.needs_layout(self.order)) {
            self.walker.preload(id, preload);
        }
        if self.catalogue.get(id).is_directory() {
            self.walker.enter(&self.catalogue, id, self.walk_order);
        }
        Ok(())
    }

    /// True when nothing is left to be walked, surveyed or handed over.
    pub(crate) fn is_finished(&self) -> bool {
        let walked = match self.image_device() {
            Some(_) => self.image.is_none(),
            None => self.walker.is_finished(&self.catalogue),
        };
        self.pending.next == self.pending.entries.len() && walked
    }

    /// The number of its spindle, for now.
    pub(crate) fn spindle(&self) -> usize {
        self.placements.spindle(&self.first)
    }

    pub(crate) fn share_limit(&self) -> u64 {
        self.share.limit()
    }

    pub(crate) fn take_foreign(&mut self) -> Vec<Foreign> {
        self.walker.take_foreign()
    }

    /// Walks, surveys and plans the first window; everything found is held until the sweep runs.
    pub(crate) fn prepare(&mut self, counters: &Counters) {
        if self.image_device().is_some() {
            return self.prepare_image(counters);
        }
        while !self.is_finished()
            && self.held.batch.as_ref().is_none_or(|batch| batch.is_empty())
            && !self.settings.cancel.is_cancelled()
        {
            self.walk(counters, true);
            let mut batch = self.held.batch.take().unwrap_or_default();
            // Nothing is handed over yet, so this can't be cancelled but from outside.
            let _ = self.survey(counters, None, &mut batch);
            self.held.batch = Some(batch);
        }
    }

    /// Carries the sweep out to its end.
    pub(crate) fn run(&mut self, outlet: &Outlet) -> Result<(), Halt> {
        if self.image_device().is_some() {
            return self.run_image(outlet);
        }
        self.begin(outlet)?;
        if let Some(batch) = self.held.batch.take() {
            self.finish(outlet, batch)?;
        }
        while !self.is_finished() {
            if outlet.is_cancelled() {
                return Err(Halt::Cancelled);
            }
            if self.pending.next == self.pending.entries.len() {
                outlet.count(|summary| summary.windows += 1);
                self.walk(outlet.counters(), false);
                self.begin(outlet)?;
            }
            let mut batch = Batch::default();
            self.survey(outlet.counters(), Some(outlet), &mut batch)?;
            self.finish(outlet, batch)?;
            if self.is_window_done() && self.catalogue.bytes() >= self.walk_limit() {
                self.compact(outlet)?;
                self.floor = self.catalogue.bytes();
            }
        }
        self.close_directories(outlet, &|_| true)
    }

    fn is_window_done(&self) -> bool {
        self.pending.next == self.pending.entries.len()
    }

    /// When a window is full. Directories that wait to be read can't be left out; where they alone are near the limit,
    /// a window still has room of its own.
    fn walk_limit(&self) -> u64 {
        let limit = self.catalog_limit / WALK_SHARE.1 * WALK_SHARE.0;
        limit.max(self.floor + limit / 2)
    }

    /// Finds the entries of the next window. For a plan that is to be shown, a window is as large as it may be.
    fn walk(&mut self, counters: &Counters, planning: bool) {
        let placements = Arc::clone(&self.placements);
        let spindle = self.spindle();
        let place = |fd: std::os::fd::BorrowedFd<'_>, stat: &onesweep_sys::files::Stat| {
            let placement = placements.of(fd, stat);
            if placements.spindle(&placement) == spindle { Place::Here(placement.volume) } else { Place::Elsewhere }
        };
        let directories_max = match self.walk_order {
            WalkOrder::CScan => usize::MAX,
            WalkOrder::DepthFirst if planning => usize::MAX,
            WalkOrder::DepthFirst if self.seekless => SEEKLESS_DIRECTORIES,
            WalkOrder::DepthFirst => 1,
        };
        let rule = Rule {
            order: self.walk_order,
            one_file_system: self.settings.one_file_system,
            no_recursion: self.settings.no_recursion,
            filter: &self.settings.filter,
            gitignore: self.settings.gitignore,
            cache: self.settings.cache,
            catalog_limit: self.walk_limit(),
            directories_max,
            place: &place,
            moment: placements.moment().map(Arc::as_ref),
            cancelled: &|| self.settings.cancel.is_cancelled(),
        };
        let Window { entries, directories, errors } =
            self.walker.window(&mut self.catalogue, &mut self.opener, &mut self.ahead, &rule);
        // The catalogue begins anew with each window.
        self.walked_entries += u64::from(entries.end - entries.start);
        counters.tell(|| Progress::Walked { entries: self.walked_entries });
        self.held.directories.extend(directories);
        self.held.errors.extend(errors);
        self.meet_volumes();
        // What is not handed over need not be looked at: listings tell the type.
        let is_wanted = |&id: &EntryId| {
            let entry = self.catalogue.get(id);
            match self.settings.entries {
                Entries::Files => entry.is_file(),
                Entries::All => !entry.is_directory(),
            }
        };
        let mut entries: Vec<EntryId> = entries.map(EntryId).filter(is_wanted).collect();
        if self.order != Order::Directory {
            let catalogue = &self.catalogue;
            entries.sort_unstable_by_key(|&id| {
                let entry = catalogue.get(id);
                (catalogue.volume(entry.device).base, entry.device, entry.ino, id)
            });
        }
        self.pending = Pending { entries, next: 0, ahead: 0 };
    }

    /// Takes note of file systems that the walk came to. In device mode, what can't be read from its device goes
    /// through the file system.
    fn meet_volumes(&mut self) {
        for number in self.catalogue.volume_numbers() {
            let volume = self.catalogue.volume(number);
            let Some(placement) = self.placements.known(volume.dev) else { continue };
            self.surveyor.meet(number, &placement);
            if let Some(device) = &mut self.device
                && let Err(error) = device.admit(number, &placement, &PathBuf::from(&placement.fs_type))
            {
                self.surveyor.leave_to_file_system(number);
                self.remark.get_or_insert(error.to_string());
            }
        }
    }

    /// Hands over what comes before the content: errors of the walk, and directories.
    fn begin(&mut self, outlet: &Outlet) -> Result<(), Halt> {
        for error in std::mem::take(&mut self.held.errors) {
            send(outlet, Err(error))?;
        }
        let directories = std::mem::take(&mut self.held.directories);
        if self.settings.entries == Entries::All {
            for &id in &directories {
                let item = handover::item(&self.catalogue, &mut self.opener, id, self.settings.xattrs, None);
                send(outlet, item)?;
            }
            self.to_close.extend(directories);
        }
        Ok(())
    }

    fn report(&mut self, outlet: Option<&Outlet>, error: FileError) -> Result<(), Halt> {
        match outlet {
            Some(outlet) => send(outlet, Err(error)),
            None => {
                self.held.errors.push(error);
                Ok(())
            }
        }
    }

    /// Reads a batch as planned, then lets its large files be streamed.
    fn finish(&mut self, outlet: &Outlet, batch: Batch) -> Result<(), Halt> {
        for &id in &batch.ready {
            self.hand_over_ready(outlet, id, None)?;
        }
        if !self.settings.content {
            for id in self.in_reading_order(&batch) {
                self.hand_over_ready(outlet, id, None)?;
            }
        } else {
            if !(batch.planned.is_empty() && batch.streamed.is_empty()) {
                outlet.counters().tell(|| Progress::Planned {
                    disk: self.name.clone(),
                    estimate: Box::new(self.estimate(&batch, self.order, self.strategy())),
                    bytes: batch.planned.iter().chain(&batch.streamed).map(|&id| self.catalogue.get(id).size).sum(),
                });
            }
            self.bring_checksums();
            if !batch.planned.is_empty() {
                for id in self.read(outlet, &batch.planned)? {
                    self.fail(outlet, id)?;
                }
            }
            self.stream(outlet, batch.streamed)?;
        }
        for id in batch.planned {
            self.catalogue.get_mut(id).flags.set(Flags::DONE);
        }
        self.catalogue.drop_fragments();
        Ok(())
    }

    /// On btrfs, the checksums of what was surveyed come before it is read, so that the head need not go back for them.
    fn bring_checksums(&mut self) {
        let manner = Manner { idle: self.settings.idle, cancel: self.settings.cancel.clone() };
        for (btrfs, checksums) in self.surveyor.take_checksums() {
            if !self.seekless {
                btrfs.bring_checksums(&checksums, &manner);
            }
        }
    }

    /// Gives the files that failed.
    fn read(&mut self, outlet: &Outlet, planned: &[EntryId]) -> Result<Vec<EntryId>, Halt> {
        let through =
            |id: &&EntryId| self.settings.device && self.catalogue.get(**id).flags.has(Flags::THROUGH_FILE_SYSTEM);
        let through: Vec<u64> = planned.iter().filter(through).map(|&id| self.catalogue.get(id).size).collect();
        outlet.count(|summary| {
            summary.through_files += through.len() as u64;
            summary.through_bytes += through.iter().sum::<u64>();
        });
        let unmapped = planned.iter().filter(|&&id| self.catalogue.get(id).flags.has(Flags::UNMAPPED)).count() as u64;
        outlet.count(|summary| summary.unmapped_files += unmapped);

        let several = self.several(planned);
        let files = PlannedFiles {
            catalogue: &self.catalogue,
            files: planned,
            device: self.device.is_some(),
            several: &several,
        };
        let budget = self.plan_budget(&files, self.order);
        let requests =
            planning::requests(&self.settings, files, (self.order, self.walk_order), self.strategy(), budget)
                .map_err(|error| Halt::Broken(std::io::Error::other(error)))?;
        let (stream_rules, queue_depth) = (self.stream_rules(outlet), self.in_flight());
        let engine = Engine {
            catalogue: &self.catalogue,
            files: planned,
            opener: &mut self.opener,
            outlet,
            share: &self.share,
            throttle: &self.throttle,
            pool: &self.pool,
            device: self.device.as_mut(),
            cache: self.settings.cache,
            notes_cached: self.settings.notes_cached,
            stream_rules,
            xattrs: self.settings.xattrs,
            queue_depth,
            several: &several,
            in_batches: self.settings.in_batches,
            joins: !self.seekless && queue_depth > 1,
        };
        Reader::new(engine).run(requests)
    }

    /// Moves what is still needed to a new catalogue: the directories to be read, and what leads to them.
    fn compact(&mut self, outlet: &Outlet) -> Result<(), Halt> {
        let mut smaller = Catalogue::like(&self.catalogue);
        let mut moved = HashMap::new();
        for id in self.walker.waiting() {
            smaller.adopt(&self.catalogue, id, &mut moved);
        }
        self.close_directories(outlet, &|id| !moved.contains_key(&id))?;
        self.to_close = self.to_close.iter().map(|id| moved[id]).collect();
        self.keep_first_names();
        self.walker.renumber(&smaller, &moved);
        self.opener.clear();
        self.catalogue = smaller;
        Ok(())
    }

    /// Hands complete directories over once more, children before parents.
    fn close_directories(&mut self, outlet: &Outlet, is_complete: &dyn Fn(EntryId) -> bool) -> Result<(), Halt> {
        let (complete, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.to_close).into_iter().partition(|&id| is_complete(id));
        self.to_close = open;
        for &id in complete.iter().rev() {
            let mut item = handover::item(&self.catalogue, &mut self.opener, id, self.settings.xattrs, None);
            if let Ok(item) = &mut item {
                item.closing = true;
            }
            send(outlet, item)?;
        }
        Ok(())
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.planned.is_empty() && self.streamed.is_empty()
    }
}

/// The data ranges of a file of which no holes are known.
pub(crate) fn whole(size: u64) -> Vec<Range<u64>> {
    if size == 0 { Vec::new() } else { std::iter::once(0..size).collect() }
}

fn send(outlet: &Outlet, item: Item) -> Result<(), Halt> {
    if outlet.send(item) { Ok(()) } else { Err(Halt::Cancelled) }
}
