//! What is planned for a spindle, and what that will cost.

use onesweep_layout::{AddressTrust, BlockRead};

use super::{Batch, STREAM_READ, SpindleSweep, sequence};
use crate::{
    catalogue::EntryId,
    directories::{Laid, LaidDirectory, ReaderOrder},
    order::Order,
    plan::{self, Estimate, PlanError, PlanSource, RequestShape, Requests, Schedule},
    read::PlannedFiles,
    settings::{Entries, Reassembly, Settings, Strategy},
    several::Several,
    walk::WalkOrder,
};

/// Of what a sweep without a limit holds, one part in so many is the least for which files are deferred.
const DEFERRED_LEAST_SHARE: u64 = 6;

impl SpindleSweep {
    pub(super) fn in_flight(&self) -> usize {
        if self.settings.one_at_a_time { 1 } else { self.settings.queue_depth * self.members }
    }

    /// The disk to predict with, its stroke stretched over the disk that there is.
    fn disk_model(&self) -> plan::DiskModel {
        let model = self.settings.disk_model.clone();
        match self.disk_bytes {
            Some(bytes) => model.with_capacity(bytes),
            None => model,
        }
    }

    pub(crate) fn strategy(&self) -> Strategy {
        match self.image_device() {
            Some(_) => self.settings.strategy.unwrap_or(Strategy::Merged),
            None => self.settings.strategy(),
        }
    }

    pub(super) fn plan_budget(&self, files: &PlannedFiles<'_>, order: Order) -> plan::Budget {
        let bytes = self.share.limit();
        match self.settings.reassembly {
            Reassembly::Auto => {
                let is_tight = || (0..files.files()).map(|file| files.cost(file)).sum::<u64>() > bytes;
                // In less memory the second pass is one of clean-ups over most of the files: then one pass of them is shorter.
                let is_enough = || plan::peak_unlimited(files) / DEFERRED_LEAST_SHARE <= bytes;
                let defers = order == Order::Fragment && is_tight() && is_enough();
                if defers { plan::Budget::deferring(bytes) } else { plan::Budget::on_demand(bytes) }
            }
            Reassembly::FirstFit => plan::Budget::first_fit(bytes),
            Reassembly::OnDemand => plan::Budget::on_demand(bytes),
            Reassembly::Deferred => plan::Budget::deferring(bytes),
            Reassembly::Threshold(threshold) => plan::Budget::batched(bytes, threshold),
        }
    }

    /// What reading a batch would cost: the sweep, and the streams after it.
    pub(crate) fn estimate(&self, batch: &Batch, order: Order, strategy: Strategy) -> Estimate {
        let several = self.several(&batch.planned);
        let files = self.files_of_plan(&batch.planned, &several);
        let budget = self.plan_budget(&files, order);
        let each = self.in_flight().div_ceil(several.disks());
        let mut estimate = requests(&self.settings, files, (order, self.walk_order), strategy, budget)
            .map(|requests| Estimate::of(requests, &self.disk_model(), each))
            .unwrap_or_default();
        if !batch.streamed.is_empty() {
            estimate.add(&self.estimate_streams(&batch.streamed));
        }
        estimate
    }

    /// What streaming these files one after the other would cost. They take no memory of the budget.
    fn estimate_streams(&self, streamed: &[EntryId]) -> Estimate {
        let mut streamed = streamed.to_vec();
        self.sort_streams(&mut streamed);
        let order = plan::SweepOrder::WholeFiles((0..streamed.len() as u32).collect());
        let several = Several::default();
        let files = PlannedFiles { catalogue: &self.catalogue, files: &streamed, device: false, several: &several };
        let schedule = Schedule::new(files, order, plan::Budget::unlimited());
        let cost = schedule.map(|schedule| {
            let requests = Requests::new(schedule, RequestShape::vanilla().max_request(STREAM_READ));
            Estimate::of(requests, &self.disk_model(), 1)
        });
        Estimate { peak_memory: 0, peak_unlimited: 0, ..cost.unwrap_or_default() }
    }

    /// What reading the files of the held plan would cost.
    pub(crate) fn estimate_planned(&self, order: Order, strategy: Strategy) -> Estimate {
        self.held.batch.as_ref().map(|batch| self.estimate(batch, order, strategy)).unwrap_or_default()
    }

    /// The entries of the held plan, with all their names, in the order in which they will be handed over.
    pub(crate) fn planned_files(&self) -> impl Iterator<Item = crate::PlannedFile> + '_ {
        let directories = match self.settings.entries {
            Entries::All => &self.held.directories[..],
            Entries::Files => &[],
        };
        let (ready, rest) = match &self.held.batch {
            Some(batch) => (&batch.ready[..], self.in_reading_order(batch)),
            None => (&[][..], Vec::new()),
        };
        let named = directories
            .iter()
            .chain(ready)
            .copied()
            .chain(rest)
            .flat_map(|id| self.catalogue.links(id).map(move |name| (id, name)));
        named.map(|(id, name)| {
            let entry = self.catalogue.get(id);
            let (disk, address) = self.place_on_device(id);
            crate::PlannedFile {
                path: self.catalogue.path(name),
                disk,
                address,
                fragments: entry.fragments,
                size: entry.size,
                marks: self.catalogue.marks(id),
            }
        })
    }

    /// The files of the held plan, directory by directory.
    pub(crate) fn laid_directories(&self, order: ReaderOrder) -> impl Iterator<Item = LaidDirectory> + '_ {
        let batch = self.held.batch.iter();
        let files = batch.flat_map(|batch| batch.planned.iter().chain(&batch.streamed).chain(&batch.ready));
        let files = files.copied().filter(|&id| self.catalogue.get(id).is_file()).collect();
        let laid = Laid {
            catalogue: &self.catalogue,
            placements: &self.placements,
            disk: &self.name,
            disk_bytes: self.disk_bytes,
            first: &self.first,
            image_bytes: self.image_device().map(|device| device.start() + device.bytes().len()),
        };
        laid.directories(files, order)
    }

    /// Where an entry lies, by the address that gives it its place in the order.
    fn place_on_device(&self, id: EntryId) -> (String, Option<u64>) {
        let volume = self.catalogue.volume(self.catalogue.get(id).device);
        let Some(address) = self.place_in_order(id).map(|address| address - volume.base) else {
            return (self.name.clone(), None);
        };
        let placement = self.placements.known(volume.dev);
        match placement.as_ref().map(|placement| (&placement.trust, &placement.btrfs)) {
            Some((AddressTrust::SeveralDevices { .. }, Some(btrfs))) => match btrfs.on_device(address) {
                Some((device, byte)) => (device, Some(byte)),
                None => (self.name.clone(), None),
            },
            _ => (self.name.clone(), Some(address)),
        }
    }

    /// The address that gives an entry its place in the order.
    fn place_in_order(&self, id: EntryId) -> Option<u64> {
        match self.order {
            Order::FirstExtent | Order::FirstExtentPerDirectory => self.catalogue.first_block_address(id),
            _ => self.catalogue.lowest_address(id),
        }
    }

    /// What of a plan lies on several disks that seek.
    pub(super) fn several(&self, planned: &[EntryId]) -> Several {
        if self.seekless {
            return Several::default();
        }
        Several::of(&self.catalogue, planned, &self.placements, self.settings.disk_model.break_even_gap())
    }

    pub(super) fn files_of_plan<'a>(&'a self, files: &'a [EntryId], several: &'a Several) -> PlannedFiles<'a> {
        PlannedFiles { catalogue: &self.catalogue, files, device: self.device.is_some(), several }
    }

    /// The files of a batch that come from the disk, in the order of their first reads.
    pub(super) fn in_reading_order(&self, batch: &Batch) -> Vec<EntryId> {
        let by_address = |list: &[EntryId]| {
            let several = self.several(list);
            let files = self.files_of_plan(list, &several);
            let first = |file: u32| {
                let mut first = u64::MAX;
                files.pieces(file, &mut |piece| first = first.min(piece.address));
                first
            };
            let mut sorted: Vec<u32> = (0..files.files()).collect();
            sorted.sort_by_cached_key(|&file| first(file));
            sorted.into_iter().map(|file| list[file as usize]).collect()
        };
        let mut all: Vec<EntryId> =
            match sequence::sweep_order(&self.catalogue, &batch.planned, self.order, self.walk_order) {
                plan::SweepOrder::Fragment => by_address(&batch.planned),
                plan::SweepOrder::WholeFiles(list) => {
                    list.into_iter().map(|file| batch.planned[file as usize]).collect()
                }
            };
        let mut streamed = batch.streamed.clone();
        self.sort_streams(&mut streamed);
        all.extend(streamed);
        all
    }
}

pub(super) fn requests<'a>(
    settings: &Settings,
    files: PlannedFiles<'a>,
    (order, walked): (Order, WalkOrder),
    strategy: Strategy,
    budget: plan::Budget,
) -> Result<Requests<PlannedFiles<'a>>, PlanError> {
    let order = sequence::sweep_order(files.catalogue, files.files, order, walked);
    let shape = match strategy {
        Strategy::Vanilla => RequestShape::vanilla(),
        Strategy::Unmerged => RequestShape::unmerged(),
        Strategy::Merged => RequestShape::merged(settings.gap.unwrap_or_else(|| settings.disk_model.break_even_gap())),
    };
    Ok(Requests::new(Schedule::new(files, order, budget)?, shape.max_request(settings.max_request)))
}
