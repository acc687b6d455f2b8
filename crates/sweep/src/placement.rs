//! Which spindle a file system lies on, and what its addresses are worth.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard},
};

use onesweep_layout::{
    AddressTrust, DeviceStack, Devices, Meaningless,
    btrfs::Lanes,
    tables::{VolumeFacts, ntfs::MountedNtfs},
};
use onesweep_sys::{features::features, files};

use crate::{
    btrfs::Btrfs,
    catalogue::{ImageFacts, Volume},
    moment::Moment,
};

/// Block sizes beyond this are transfer sizes of network file systems, no units of allocation.
const BLOCK_MAX: u64 = 64 << 10;

/// One file system.
#[derive(Debug)]
pub(crate) struct Placement {
    /// The number of its spindle when it was met; see [`Placements::spindle`].
    spindle: usize,
    pub(crate) volume: Volume,
    /// What lies under it; `None` without a block device.
    pub(crate) stack: Option<DeviceStack>,
    pub(crate) fs_type: String,
    pub(crate) trust: AddressTrust,
    /// A btrfs that tells where its addresses lie.
    pub(crate) btrfs: Option<Arc<Btrfs>>,
    /// An NTFS that a program shows, whose tables tell where its files lie.
    pub(crate) ntfs: Option<Arc<MountedNtfs>>,
    /// Data is written to the journal first (ext4 with `data=journal`), and to its place some time after.
    pub(crate) journals_data: bool,
}

impl Placement {
    /// The kernel names of the disks below, or the type of a file system that has none.
    pub(crate) fn disk_name(&self) -> String {
        match &self.stack {
            Some(stack) if !stack.disks.is_empty() => {
                stack.disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join("+")
            }
            _ => self.fs_type.clone(),
        }
    }

    /// The size of the device, where addresses are places on it.
    pub(crate) fn device_bytes(&self) -> Option<u64> {
        self.stack.as_ref().filter(|_| self.trust.is_place()).map(|stack| stack.size)
    }

    /// The size of the disk that addresses are places on; that of the device, where it can't be told what part of its disk
    /// it is.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        if let (AddressTrust::SeveralDevices { .. }, Some(btrfs)) = (&self.trust, &self.btrfs) {
            return Some(btrfs.lanes.span() / btrfs.lanes.count().max(1));
        }
        let stack = self.stack.as_ref()?;
        let whole = stack.disks.iter().map(|disk| disk.size).max().filter(|_| stack.base.is_some());
        Some(whole.unwrap_or(stack.size))
    }

    /// The lanes of a btrfs on several devices that are read side by side.
    pub(crate) fn several_lanes(&self) -> Option<&Lanes> {
        self.btrfs.as_ref().map(|btrfs| &btrfs.lanes).filter(|lanes| lanes.count() > 1)
    }

    /// Bytes that addresses are below: those of the device; of a btrfs that tells where they lie, of their order.
    pub(crate) fn span_bytes(&self) -> Option<u64> {
        match (&self.trust, &self.btrfs) {
            (AddressTrust::SeveralDevices { .. }, Some(btrfs)) => Some(btrfs.lanes.span()),
            _ => self.device_bytes(),
        }
    }

    /// True when no order of reading is quicker than another.
    pub(crate) fn is_seekless(&self) -> bool {
        match &self.stack {
            Some(stack) => stack.is_seekless(),
            None => matches!(self.trust, AddressTrust::Meaningless(Meaningless::Memory { .. })),
        }
    }

    /// Disks that can work at the same time.
    pub(crate) fn members(&self) -> usize {
        self.stack.as_ref().map_or(1, |stack| stack.members.max(1))
    }
}

/// All file systems that were met, by device number.
#[derive(Debug)]
pub(crate) struct Placements {
    devices: Devices,
    /// Snapshots that stand for file systems.
    moment: Option<Arc<Moment>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_dev: HashMap<u64, Arc<Placement>>,
    /// By device: the subvolumes of one file system have its chunks in common.
    btrfs: HashMap<u64, Option<Arc<Btrfs>>>,
    spindles: Vec<Spindle>,
    /// Devices with a range of addresses of their own.
    ranges: Vec<u64>,
    /// Images that were opened.
    images: u64,
}

#[derive(Debug)]
struct Spindle {
    disks: Vec<u64>,
    /// The number of the spindle that has its disks now.
    joined_to: Option<usize>,
}

/// A range of addresses of a device of its own, in bytes: more than any device has.
const RANGE: u64 = 1 << 48;

/// The place on its device of an address in the order of a spindle.
pub(crate) fn place_on_device(address: u64) -> u64 {
    address % RANGE
}

/// Where the range with that number begins.
pub(crate) fn range_of(number: u64) -> u64 {
    number.saturating_mul(RANGE)
}

impl Known {
    /// Where the addresses of a file system begin in the order of its spindle: its place in the range of its disk, where
    /// that is known and addresses are places; else a range of its own, since two file systems with the same addresses
    /// would be taken for shared extents. What lies on the same device (subvolumes) has the same addresses.
    fn base_of(&mut self, stack: &DeviceStack, trust: &AddressTrust, span: u64) -> u64 {
        match (stack.base, trust, stack.disks.first()) {
            (Some(base), trust, Some(disk)) if trust.is_place() => self.base_of_device(disk.dev, 0) + base,
            _ => self.base_of_device(stack.dev, span),
        }
    }

    /// Several devices in one order may need more than one range: addresses are below `span`.
    fn base_of_device(&mut self, dev: u64, span: u64) -> u64 {
        let number = self.ranges.iter().position(|&known| known == dev).unwrap_or_else(|| {
            let number = self.ranges.len();
            self.ranges.extend((0..=span / RANGE).map(|_| dev));
            number
        });
        (number as u64 + 1) * RANGE
    }

    /// The spindle that has any of these disks; a new one where none has. Spindles that a stripe over their disks joins are
    /// one from then on.
    fn spindle_of(&mut self, disks: Vec<u64>) -> usize {
        let shares = |spindle: &Spindle| disks.iter().any(|disk| spindle.disks.contains(disk));
        let sharing: Vec<usize> = (0..self.spindles.len()).filter(|&number| shares(&self.spindles[number])).collect();
        let Some((&first, others)) = sharing.split_first() else {
            self.spindles.push(Spindle { disks, joined_to: None });
            return self.spindles.len() - 1;
        };
        let mut more = disks;
        for &other in others {
            self.spindles[other].joined_to = Some(first);
            more.append(&mut self.spindles[other].disks);
        }
        let own = &mut self.spindles[first].disks;
        more.retain(|disk| !own.contains(disk));
        own.append(&mut more);
        first
    }

    /// The number that a spindle goes by now.
    fn current(&self, number: usize) -> usize {
        self.spindles[number].joined_to.map_or(number, |first| self.current(first))
    }
}

impl Placements {
    pub(crate) fn of_system() -> io::Result<Self> {
        Self::at(None)
    }

    /// The same with snapshots, which are mounted by now.
    pub(crate) fn at(moment: Option<Arc<Moment>>) -> io::Result<Self> {
        Ok(Self { devices: Devices::of_system()?, moment, known: Mutex::default() })
    }

    /// What holds file systems still.
    pub(crate) fn moment(&self) -> Option<&Arc<Moment>> {
        self.moment.as_ref()
    }

    /// The number of the spindle of a file system. It changes when a stripe is met that joins two spindles.
    pub(crate) fn spindle(&self, placement: &Placement) -> usize {
        self.lock().current(placement.spindle)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The placement of the file system that `fd` lies on.
    pub(crate) fn of(&self, fd: BorrowedFd<'_>, stat: &files::Stat) -> Arc<Placement> {
        let mut known = self.lock();
        if let Some(placement) = known.by_dev.get(&stat.dev) {
            return Arc::clone(placement);
        }
        let stack = self.devices.by_stat(stat).ok();
        let mounts = self.devices.mounts();
        let mount =
            stat.mnt_id.and_then(|id| mounts.by_id(id)).or_else(|| mounts.iter().find(|mount| mount.dev == stat.dev));
        let fs_type = mount.map_or_else(|| "unknown".to_owned(), |mount| mount.fs_type.clone());
        let devices = stack.as_ref().map_or(1, |stack| stack.members);
        let btrfs = match fs_type.as_str() {
            "btrfs" => {
                let dev = stack.as_ref().map_or(stat.dev, |stack| stack.dev);
                known.btrfs.entry(dev).or_insert_with(|| Btrfs::of(fd).map(Arc::new)).clone()
            }
            _ => None,
        };
        let ntfs = match fs_type.as_str() {
            "fuseblk" if features().tables => stack.as_ref().and_then(ntfs_on),
            _ => None,
        };
        let trust = match btrfs.as_ref().map(|btrfs| btrfs.lanes.devices().max(devices)) {
            Some(0 | 1) => AddressTrust::Physical,
            Some(devices) => AddressTrust::SeveralDevices { devices },
            None if ntfs.is_some() => AddressTrust::ByTables,
            None => AddressTrust::of_file_system(&fs_type, devices),
        };
        let journals_data = match &stack {
            Some(stack) => onesweep_layout::mounts::journals_data(&fs_type, &stack.name),
            None => false,
        };
        // Without a disk of its own, a file system is a spindle of its own.
        let key = match &stack {
            Some(stack) if !stack.disks.is_empty() => stack.spindle_key(),
            _ => vec![stat.dev],
        };
        let spindle = known.spindle_of(key);
        let span = btrfs.as_ref().map_or(0, |btrfs| btrfs.lanes.span());
        let base = match &stack {
            Some(stack) => known.base_of(stack, &trust, span),
            None => known.base_of_device(stat.dev, span),
        };
        let block = files::file_system(fd.as_fd())
            .map(|facts| facts.block_size)
            .ok()
            .filter(|size| size.is_power_of_two() && (512..=BLOCK_MAX).contains(size))
            .unwrap_or(4096) as u32;
        let shown_dev = self.moment.as_ref().map_or(stat.dev, |moment| moment.shown_dev(stat.dev));
        let placement = Arc::new(Placement {
            spindle,
            volume: Volume { dev: stat.dev, shown_dev, block, base, image: None },
            stack,
            fs_type,
            trust,
            btrfs,
            ntfs,
            journals_data,
        });
        known.by_dev.insert(stat.dev, Arc::clone(&placement));
        placement
    }

    /// The placement of a file system in an image or on a device that isn't mounted; `stat` is that of the file or device.
    pub(crate) fn of_image(&self, stat: &files::Stat, facts: &VolumeFacts) -> Arc<Placement> {
        let mut known = self.lock();
        let stack = match stat.file_type() {
            files::EntryType::BlockDevice => self.devices.by_stat(stat).ok(),
            _ => None,
        };
        known.images += 1;
        // No device has such a number: an image may be swept twice, or lie on the file system of another root.
        let dev = u64::MAX - known.images;
        let key = stack.as_ref().filter(|stack| !stack.disks.is_empty()).map_or(vec![dev], DeviceStack::spindle_key);
        let spindle = known.spindle_of(key);
        let base = known.base_of_device(dev, 0);
        Arc::new(Placement {
            spindle,
            volume: Volume {
                dev,
                shown_dev: dev,
                block: facts.block_bytes,
                base,
                image: Some(ImageFacts { unit: facts.compression_unit_bytes, is_dirty: facts.is_dirty }),
            },
            stack,
            fs_type: facts.fs_type.to_owned(),
            trust: AddressTrust::Physical,
            btrfs: None,
            ntfs: None,
            journals_data: false,
        })
    }

    /// A device on which some files of an image have their content, behind the image in the order of its spindle.
    pub(crate) fn beside_image(&self, image: &Placement) -> Volume {
        let mut known = self.lock();
        known.images += 1;
        let dev = u64::MAX - known.images;
        Volume { dev, base: known.base_of_device(dev, 0), ..image.volume }
    }

    /// The placement of a file system that was met before.
    pub(crate) fn known(&self, dev: u64) -> Option<Arc<Placement>> {
        self.lock().by_dev.get(&dev).cloned()
    }
}

/// The tables of the NTFS on a device that doesn't come to all places as quickly, where they may be read.
fn ntfs_on(stack: &DeviceStack) -> Option<Arc<MountedNtfs>> {
    let tables = MountedNtfs::of_mounted(&stack.node, stack.dev).ok().filter(|_| !stack.is_seekless());
    tables.map(Arc::new)
}

#[cfg(test)]
mod tests {
    use onesweep_layout::Disk;

    use super::*;

    /// Two disks that a stripe joins, each with a partition at the same place.
    #[test]
    fn file_systems_on_two_disks_have_no_address_in_common() {
        let disk = |dev| Disk { dev, name: "sd".into(), rotational: None, size: 1 << 40, seekless: false };
        let partition = |dev, on| DeviceStack {
            dev,
            name: "sd3".into(),
            node: "/dev/sd3".into(),
            mapper_node: None,
            size: 1 << 39,
            logical_block: 512,
            disks: vec![disk(on)],
            base: Some(1 << 30),
            through: Vec::new(),
            members: 1,
        };
        let mut known = Known::default();
        let mut base = |dev, on| known.base_of(&partition(dev, on), &AddressTrust::Physical, 0);
        let (one, other) = (base(13, 10), base(23, 20));
        assert!(one.abs_diff(other) >= RANGE, "{one} {other}");
        assert_eq!([one, other].map(place_on_device), [1 << 30; 2]);
        assert_eq!(base(14, 10), one, "places on one disk stay what they are");
    }

    #[test]
    fn a_wide_order_has_as_many_ranges_as_it_needs() {
        let mut known = Known::default();
        let [wide, next] = [(1, 2 * RANGE), (2, 0)].map(|(dev, span)| known.base_of_device(dev, span));
        assert!(next >= wide + 2 * RANGE, "{wide} {next}");
        assert_eq!(known.base_of_device(1, 2 * RANGE), wide);
    }

    #[test]
    fn what_shares_a_disk_shares_a_spindle() {
        let mut known = Known::default();
        assert_eq!(known.spindle_of(vec![1]), 0);
        assert_eq!(known.spindle_of(vec![2]), 1);
        assert_eq!(known.spindle_of(vec![2, 3]), 1, "a stripe over a disk that was met");
        assert_eq!(known.spindle_of(vec![3]), 1);
        assert_eq!(known.spindle_of(vec![1]), 0);
    }

    #[test]
    fn a_stripe_joins_the_spindles_of_its_disks() {
        let mut known = Known::default();
        let [a, b, c] = [vec![1], vec![2], vec![3]].map(|disks| known.spindle_of(disks));
        let stripe = known.spindle_of(vec![2, 3]);
        assert_eq!([b, c].map(|number| known.current(number)), [stripe; 2]);
        assert_ne!(known.current(a), stripe);
        let all = known.spindle_of(vec![3, 1]);
        assert_eq!([a, b, c, stripe].map(|number| known.current(number)), [all; 4]);
        assert_eq!(known.spindle_of(vec![2]), all);
    }
}
