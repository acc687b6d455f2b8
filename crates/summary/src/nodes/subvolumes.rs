//! The column of subvolumes: empty while all directories are in the first.

/// Which subvolume each is in.
#[derive(Debug, Default)]
pub(super) struct Subvolumes {
    known: Vec<u64>,
    /// Where that of each stands in the list; none while all are in the first.
    places: Vec<u16>,
}

impl Subvolumes {
    /// All of which there are directories.
    pub(super) fn known(&self) -> &[u64] {
        &self.known
    }

    /// The one that a directory is in.
    pub(super) fn of(&self, slot: u32) -> u64 {
        let place = self.places.get(slot as usize).copied().unwrap_or(0);
        self.known.get(usize::from(place)).copied().unwrap_or(0)
    }

    /// Where a subvolume stands in the list, from now on if not before; `None` where the list is full.
    pub(super) fn place(&mut self, subvolume: u64) -> Option<u16> {
        let known = self.known.iter().position(|&known| known == subvolume);
        let place = known.unwrap_or_else(|| {
            self.known.push(subvolume);
            self.known.len() - 1
        });
        u16::try_from(place).ok()
    }

    /// A directory is in the one that stands there.
    pub(super) fn put(&mut self, slot: u32, place: u16) {
        let at = slot as usize;
        if place != 0 && self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        if let Some(there) = self.places.get_mut(at) {
            *there = place;
        }
    }
}
