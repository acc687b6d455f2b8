//! Directories that were told as entries, until they are read themselves.

use crate::{bulk::Told, mixing::mixed};

/// Inodes that lie side by side on the disk, as XFS lays them.
const CHUNK: usize = 64;
/// Chunks that are kept; some 100 bytes for each inode.
const CHUNKS: usize = 1 << 10;

/// Where it is full, one is lost for another: it is asked for again. Neighbours lie side by side, as they are told and asked for: in a map
/// by hashes each of them took a place of memory of its own.
pub(super) struct Kept {
    /// Of this process alone: nobody can make inodes that take each other's places.
    key: u64,
    places: Vec<Option<Told>>,
}

impl Kept {
    pub(super) fn new(key: u64) -> Kept {
        Kept { key, places: Vec::new() }
    }

    pub(super) fn put(&mut self, told: Told) {
        if self.places.is_empty() {
            self.places.resize(CHUNKS * CHUNK, None);
        }
        let [one, other] = self.places_of(told.ino);
        let is_free = |place: usize| self.places[place].is_none_or(|there| there.ino == told.ino);
        let place = if is_free(one) { one } else { other };
        self.places[place] = Some(told);
    }

    pub(super) fn take(&mut self, ino: u64) -> Option<Told> {
        let places = self.places_of(ino);
        let is_it = |there: &mut Told| there.ino == ino;
        places.into_iter().find_map(|place| self.places.get_mut(place)?.take_if(is_it))
    }

    /// Either of two.
    fn places_of(&self, ino: u64) -> [usize; 2] {
        let (chunk, within) = (mixed(self.key ^ (ino / CHUNK as u64)), ino as usize % CHUNK);
        [chunk, chunk >> 32].map(|chunk| chunk as usize % CHUNKS * CHUNK + within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ino: u64, generation: u32) -> Told {
        Told { ino, generation, ..Told::default() }
    }

    #[test]
    fn each_is_taken_once_and_the_last_that_was_told() {
        let mut kept = Kept::new(7);
        assert!(kept.take(3).is_none());
        (0..5000).for_each(|ino| kept.put(told(ino, 1)));
        kept.put(told(9, 2));
        let taken: Vec<_> = (0..5000).filter_map(|ino| kept.take(ino)).collect();
        assert!(taken.len() > 4900 && taken.iter().all(|told| told.generation == if told.ino == 9 { 2 } else { 1 }));
        assert!((0..5000).all(|ino| kept.take(ino).is_none()));
    }

    /// Half as many as there is room for, of groups that are far apart.
    #[test]
    fn few_are_lost_and_none_is_taken_for_another() {
        let inodes = || (0..4_u64).flat_map(|group| (0..1 << 13).map(move |number| (group << 31) + 64 * 100 + number));
        let mut kept = Kept::new(11);
        inodes().for_each(|ino| kept.put(told(ino, ino as u32)));
        let taken: Vec<_> = inodes().filter_map(|ino| Some((ino, kept.take(ino)?))).collect();
        assert!(taken.iter().all(|(ino, told)| told.ino == *ino && told.generation == *ino as u32));
        assert!(taken.len() > (1 << 15) * 3 / 4, "{}", taken.len());
    }
}
