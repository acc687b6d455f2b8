//! What changes about a device when somebody else writes to it.
//!
//! Marks are taken when an index is closed and compared when it is opened again. They tell of file systems that were mounted
//! elsewhere meanwhile, and of image files that were written. They don't tell of bytes written to a device past its file
//! system.

use std::{fs::Metadata, os::unix::fs::MetadataExt};

use onesweep_layout::{
    block_read::BlockRead,
    tables::change_marks::{ChangeMarks, change_marks},
};

/// The kinds of marks, as they are in the file.
const FILE: u8 = 1;
const EXT4: u8 = 2;
const XFS: u8 = 3;
const BTRFS: u8 = 4;
const NTFS: u8 = 5;

/// The marks of a device or an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks(Vec<(u8, Vec<u64>)>);

impl Marks {
    /// The marks of a device, or of an image whose file has this metadata.
    ///
    /// `None` for a device whose file system is none that is known, or is in a state that tells nothing: then nobody can say
    /// whether it has changed.
    pub fn read(device: &impl BlockRead, image: Option<&Metadata>) -> Option<Marks> {
        let tables = change_marks(device).and_then(|marks| match marks {
            ChangeMarks::Ext4(numbers) => Some((EXT4, numbers)),
            ChangeMarks::Xfs(numbers) => Some((XFS, numbers)),
            ChangeMarks::Btrfs(numbers) => Some((BTRFS, numbers)),
            ChangeMarks::Ntfs(numbers) => Some((NTFS, numbers)),
            _ => None,
        });
        let file = image.map(|file| {
            let times = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
            Marks::of_file(file.size(), times.0, times.1).0
        });
        let marks: Vec<_> = file.into_iter().flatten().chain(tables).collect();
        (!marks.is_empty()).then_some(Marks(marks))
    }

    /// The marks of an image file alone: its size, mtime and ctime.
    pub fn of_file(size: u64, mtime: (i64, i64), ctime: (i64, i64)) -> Marks {
        let numbers = [size as i64, mtime.0, mtime.1, ctime.0, ctime.1];
        Marks(vec![(FILE, numbers.map(|number| number as u64).to_vec())])
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, numbers) in &self.0 {
            bytes.extend([*kind, numbers.len() as u8]);
            numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        bytes
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Marks> {
        let mut marks = Vec::new();
        while let [kind, count, rest @ ..] = bytes {
            let (numbers, rest) = rest.split_at_checked(usize::from(*count) * 8)?;
            let numbers =
                numbers.chunks_exact(8).filter_map(<[u8]>::first_chunk).map(|number| u64::from_le_bytes(*number));
            marks.push((*kind, numbers.collect()));
            bytes = rest;
        }
        (bytes.is_empty() && !marks.is_empty()).then_some(Marks(marks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back() {
        let marks = Marks(vec![(FILE, vec![1, 2, u64::MAX]), (XFS, vec![7])]);
        let bytes = marks.encode();
        assert_eq!(Marks::decode(&bytes), Some(marks));
        for cut in 0..bytes.len() {
            // Between two marks there is an end as well.
            assert!(Marks::decode(&bytes[..cut]).is_none() || cut == 26, "{cut}");
        }
    }

    #[test]
    fn what_has_no_known_file_system_has_no_marks() {
        assert_eq!(Marks::read(&vec![0_u8; 1 << 20], None), None);
    }
}
