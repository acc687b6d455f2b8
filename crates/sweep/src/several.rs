//! File systems of a plan that lie on several disks: in which order all disks work on them, which disk has a place in that
//! order, and which copy is read there.

use std::{collections::HashMap, sync::Arc};

use onesweep_layout::btrfs::{Lanes, UNIT};

use crate::{
    catalogue::{Catalogue, EntryId},
    placement::{Placement, Placements, place_on_device},
    plan::{NO_ADDRESS, Pace},
};

/// The file systems on several disks.
#[derive(Debug, Default)]
pub(crate) struct Several {
    systems: Vec<System>,
}

#[derive(Debug)]
struct System {
    /// Where its addresses begin in the order of the spindle.
    base: u64,
    placement: Arc<Placement>,
    pace: Pace,
}

/// What a plan reads of a file system: the placement, and where pieces lie, with their lengths.
type Found = (u64, Arc<Placement>, Vec<(u64, u64)>);

impl Several {
    /// Those that the files of a plan lie on. A way of the head over at most `gap` bytes takes as long as reading them.
    pub(crate) fn of(catalogue: &Catalogue, files: &[EntryId], placements: &Placements, gap: u64) -> Self {
        let mut found: Vec<Found> = Vec::new();
        // By the number of the volume: subvolumes have the devices of their file system in common.
        let mut volumes: HashMap<u16, Option<usize>> = HashMap::new();
        for &id in files {
            let number = catalogue.get(id).device;
            let volume = catalogue.volume(number);
            let system = *volumes.entry(number).or_insert_with(|| {
                let placement = placements.known(volume.dev).filter(|placement| placement.several_lanes().is_some())?;
                Some(found.iter().position(|(base, ..)| *base == volume.base).unwrap_or_else(|| {
                    found.push((volume.base, placement, Vec::new()));
                    found.len() - 1
                }))
            });
            let Some(system) = system else { continue };
            let fragments = catalogue.fragments(id).filter(|fragment| fragment.address() != NO_ADDRESS);
            let places = fragments.map(|fragment| {
                (fragment.address() - volume.base, u64::from(fragment.length()) * u64::from(volume.block))
            });
            found[system].2.extend(places);
        }
        let systems = found.into_iter().map(|(base, placement, places)| {
            let (lanes, stages) =
                placement.several_lanes().map_or((1, [].as_slice()), |lanes| (lanes.count(), lanes.stages()));
            System { base, pace: Pace::new((lanes, stages), UNIT, gap, places.into_iter()), placement }
        });
        Self { systems: systems.collect() }
    }

    /// Where an address of the catalogue comes in the plan.
    pub(crate) fn in_plan(&self, address: u64) -> u64 {
        match self.system(address) {
            Some(System { base, pace, .. }) => base + pace.of_place(address - base),
            None => address,
        }
    }

    /// The number of the disk of an address in the plan, and where it lies on it, both for the prediction of times.
    pub(crate) fn on_disk(&self, address: u64) -> (usize, u64) {
        let in_lane = self.place(address).and_then(|(lanes, place)| lanes.in_lane(place));
        in_lane.map_or((0, place_on_device(address)), |(lane, at)| (lane as usize, at))
    }

    /// Which copy of what lies at an address of the plan is to be read; `None` where there is no choice.
    pub(crate) fn copy(&self, address: u64) -> Option<u16> {
        self.place(address).and_then(|(lanes, place)| lanes.copy(place))
    }

    /// How many copies there are to choose from, if the same everywhere; else one.
    pub(crate) fn copies(&self) -> u16 {
        let mut counts = self.lanes().map(|lanes| lanes.map().copies()).filter(|&copies| copies > 1);
        let first = counts.next().unwrap_or(1);
        if counts.all(|copies| copies == first) { first } else { 1 }
    }

    /// How many disks, or groups of them, have an order of their own.
    pub(crate) fn disks(&self) -> usize {
        self.lanes().map(|lanes| lanes.count() as usize).max().unwrap_or(1)
    }

    fn lanes(&self) -> impl Iterator<Item = &Lanes> {
        self.systems.iter().filter_map(|system| system.placement.several_lanes())
    }

    /// The lanes that have an address of the plan, and its place among them.
    fn place(&self, address: u64) -> Option<(&Lanes, u64)> {
        let System { base, placement, pace } = self.system(address)?;
        Some((placement.several_lanes()?, pace.place(address - base)))
    }

    fn system(&self, address: u64) -> Option<&System> {
        let is_of = |system: &&System| {
            let span = system.placement.span_bytes().unwrap_or(0);
            (system.base..system.base.saturating_add(span)).contains(&address)
        };
        self.systems.iter().find(is_of)
    }
}
