//! Directories that were seen, and names that wait for theirs.

use std::collections::HashSet;

use super::{EXTEND, record::Reference};
use crate::tables::Name;

/// Memory for names whose directory comes later in the $MFT.
const EARLY_BYTES_MAX: usize = 64 << 20;

/// Which directories there are: two bytes for each record up to the last directory.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// Their sequence numbers, which are never 0.
    sequences: Vec<u16>,
    /// Those below $Extend; a dozen, made with the volume, before anything that lies in them.
    hidden: HashSet<u64>,
}

impl Directories {
    pub(super) fn add(&mut self, directory: Reference) {
        let Ok(index) = usize::try_from(directory.number) else { return };
        if self.sequences.len() <= index {
            self.sequences.resize(index + 1, 0);
        }
        self.sequences[index] = directory.sequence;
    }

    pub(super) fn has(&self, directory: Reference) -> bool {
        let sequence = usize::try_from(directory.number).ok().and_then(|index| self.sequences.get(index));
        // A reference without a sequence number means whatever is there.
        sequence.is_some_and(|sequence| *sequence != 0 && [*sequence, 0].contains(&directory.sequence))
    }

    pub(super) fn hide(&mut self, number: u64) {
        self.hidden.insert(number);
    }

    pub(super) fn is_hidden(&self, directory: Reference) -> bool {
        (directory.number == EXTEND || self.hidden.contains(&directory.number)) && self.has(directory)
    }
}

/// Names whose directory comes later in the $MFT, so that nothing is known of it yet.
#[derive(Debug, Default)]
pub(super) struct EarlyNames {
    /// The directory, the file, and how many bytes of the names are its.
    names: Vec<(Reference, u64, u16)>,
    bytes: Vec<u8>,
}

impl EarlyNames {
    /// Keeps a name; not when there's no room left, so it's told as it is.
    pub(super) fn keep(&mut self, directory: Reference, name: Name<'_>) -> bool {
        let taken = self.bytes.len() + self.names.len() * size_of::<(Reference, u64, u16)>();
        if taken + name.name.len() > EARLY_BYTES_MAX {
            return false;
        }
        let Ok(length) = u16::try_from(name.name.len()) else { return false };
        self.names.push((directory, name.inode, length));
        self.bytes.extend_from_slice(name.name);
        true
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (Reference, u64, &[u8])> {
        let mut rest = &self.bytes[..];
        self.names.iter().map(move |&(directory, inode, length)| {
            let (name, behind) = rest.split_at(usize::from(length).min(rest.len()));
            rest = behind;
            (directory, inode, name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ROOT, *};

    #[test]
    fn early_names_come_back_in_order() {
        let mut early = EarlyNames::default();
        let directory = |number| Reference { number, sequence: 1 };
        let long = vec![b'x'; 765];
        assert!(early.keep(directory(70), Name { directory: 70, inode: 64, name: b"one" }));
        assert!(early.keep(directory(80), Name { directory: 80, inode: 65, name: &long }));
        assert!(early.keep(directory(70), Name { directory: 70, inode: 66, name: b"two" }));
        let names: Vec<_> = early.names().collect();
        let expected = [(directory(70), 64, &b"one"[..]), (directory(80), 65, &long), (directory(70), 66, b"two")];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_directory_of_another_time_is_not_meant() {
        let mut directories = Directories::default();
        directories.add(Reference { number: 70, sequence: 3 });
        assert!(directories.has(Reference { number: 70, sequence: 3 }));
        assert!(directories.has(Reference { number: 70, sequence: 0 }));
        for (number, sequence) in [(70, 2), (69, 0), (71, 3), (u64::MAX, 3)] {
            assert!(!directories.has(Reference { number, sequence }));
        }
    }

    #[test]
    fn what_lies_below_the_system_is_hidden() {
        let mut directories = Directories::default();
        let directory = |number| Reference { number, sequence: 11 };
        [EXTEND, ROOT, 70, 80].into_iter().for_each(|number| directories.add(directory(number)));
        directories.hide(80);
        assert!(directories.is_hidden(directory(EXTEND)) && directories.is_hidden(directory(80)));
        assert!(!directories.is_hidden(directory(ROOT)) && !directories.is_hidden(directory(70)));
        // Another time's, or damaged.
        assert!(!directories.is_hidden(Reference { number: EXTEND, sequence: 3 }));
    }
}
