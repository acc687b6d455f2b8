//! A mounted NTFS by the device below it.
//!
//! `ntfs-3g`, which shows it, tells nobody where files lie. It reads and writes through the page cache of the device, and so
//! does what is here: metadata that was brought in is in memory for both, and what it has written is seen. What it holds back
//! is not: so a file is mapped only where its record accounts for each of the bytes that it has by now, and what is told is
//! good for the order of reads, and for nothing else.

use std::{io, ops::Range, os::fd::AsFd, path::Path, sync::Arc};

use onesweep_sys::{block, cache, fiemap::RawExtent, files, memory};

use super::{
    INDEX_NAME, ROOT,
    attributes::{Attributes, Value, kind},
    boot::Geometry,
    listed::read_file,
    mft::Mft,
    names::is_ascii,
    record::{Header, Record},
    runlist::Runs,
    stream::Stream,
};
use crate::{
    block_read::{BlockRead, ImageFile},
    extent::{Extent, ExtentFlags},
    source::{Checked, MapError, Mapped},
    tables::TableError,
};

/// Bytes that are brought in at once.
const READ_BYTES: u64 = 2 << 20;
/// Runs of directories that are remembered: 16 bytes each.
const RUNS_MAX: usize = 4 << 20;

/// Where the files of a mounted NTFS lie.
#[derive(Debug)]
pub struct MountedNtfs<B = Arc<ImageFile>> {
    mft: Mft<B>,
}

impl MountedNtfs {
    /// The number of the root directory, as `stat` shows it.
    pub const ROOT: u64 = ROOT;

    /// Opens the node of the device of a mounted file system, which has the number `dev`. Needs read access to it, mostly
    /// root. Costs the reads of the boot sector, the first file record and its copy.
    ///
    /// [`io::ErrorKind::Other`] where the device has another number by now, or no NTFS.
    pub fn of_mounted(node: &Path, dev: u64) -> io::Result<MountedNtfs> {
        let fd = block::open_device(node)?;
        if files::statx_fd(fd.as_fd())?.rdev != dev {
            return Err(io::Error::other("it is another device now"));
        }
        cache::random_access(fd.as_fd())?;
        let device = Arc::new(ImageFile::new(fd.into())?);
        MountedNtfs::of(device).map_err(io::Error::other)
    }

    /// Whether half of the $MFT, or more, is in memory.
    pub fn is_mostly_cached(&self) -> bool {
        let fd = self.mft.device.file().as_fd();
        let page = memory::page_bytes();
        let placed = self.mft.extents.iter().filter_map(|extent| Some((extent.physical?, extent.length)));
        let cached = placed.map(|(at, length)| cache::residency(fd, at, length).map_or(0, |found| found.cached * page));
        cached.sum::<u64>() >= self.table_bytes() / 2
    }
}

impl<B: BlockRead> MountedNtfs<B> {
    pub(crate) fn of(device: B) -> Result<MountedNtfs<B>, TableError> {
        let (geometry, _) = Geometry::read(&device)?;
        Ok(MountedNtfs { mft: Mft::open(device, geometry, &mut Vec::new())? })
    }

    /// Bytes of the $MFT.
    pub fn table_bytes(&self) -> u64 {
        self.mft.records.saturating_mul(self.mft.geometry.record_bytes.into())
    }

    /// Calls `visit` for each extent of the file that has this number, as `stat` shows it, and `size` bytes. Costs one read of
    /// a page for most files, which whoever looked at the file has just made.
    ///
    /// [`MapError::Unsupported`] where the record doesn't tell an address for each byte: the file has holes, is compressed or
    /// encrypted, or is being written.
    pub fn map(&self, number: u64, size: u64, visit: &mut dyn FnMut(Extent)) -> Result<Mapped, MapError> {
        let mut data = Stream::default();
        let taken = read_file(&self.mft, number, &mut |attribute| match attribute.kind {
            kind::DATA if attribute.name.is_empty() => data.take(attribute, &self.mft.geometry),
            _ => Ok(()),
        });
        let is_whole = taken.is_ok() && data.finish(&self.mft.geometry).is_ok();
        if !is_whole || data.size != size || !data.flags.is_empty() {
            return Err(MapError::Unsupported);
        }
        if data.resident.is_some() {
            let at = self.mft.at(number).ok_or(MapError::Unsupported)?;
            let flags = ExtentFlags::INLINE;
            data.extents = vec![Extent { logical: 0, physical: Some(at), length: size, flags }];
        }
        let mut told = 0;
        for extent in &data.extents {
            if extent.logical != told || extent.physical.is_none() || extent.is_zeros() {
                return Err(MapError::Unsupported);
            }
            told = extent.logical_end();
        }
        if told < size {
            return Err(MapError::Unsupported);
        }
        let mut map = Checked::new(size, visit);
        for Extent { logical, physical, length, flags } in data.extents {
            let physical = physical.unwrap_or_default();
            map.add(RawExtent { logical, physical, length, flags: flags.bits() })?;
        }
        Ok(map.mapped)
    }

    /// Reads the $MFT, then the blocks of the directories that it tells of, each in rising order and at most `most` bytes of
    /// them, while `go_on` says so. Nothing comes of it but that it lies in memory then, where the device reads through the
    /// page cache. What is damaged is left out.
    ///
    /// Takes 2 MiB, and 16 bytes for each run of a directory, 64 MiB at most.
    pub fn bring_in(&self, most: u64, go_on: &dyn Fn() -> bool) {
        let mut runs = self.runs_of_directories(go_on);
        runs.sort_unstable_by_key(|run| run.start);
        let mut left = most.saturating_sub(self.table_bytes());
        let mut buffer = Vec::new();
        let mut runs = runs.into_iter().peekable();
        while let Some(mut run) = runs.next() {
            while let Some(next) = runs.next_if(|next| next.start <= run.end) {
                run.end = run.end.max(next.end);
            }
            while !run.is_empty() {
                let length = (run.end - run.start).min(READ_BYTES);
                if length > left || !go_on() {
                    return;
                }
                buffer.resize(usize::try_from(length).unwrap_or(0), 0);
                let _ = self.mft.read_device(&mut buffer, run.start);
                left -= length;
                run.start += length;
            }
        }
    }

    /// Reads all records, and tells where the blocks of directories lie that have outgrown their records.
    fn runs_of_directories(&self, go_on: &dyn Fn() -> bool) -> Vec<Range<u64>> {
        let mut runs = Vec::new();
        let record_bytes = self.mft.geometry.record_bytes as usize;
        let mut buffer = vec![0; usize::try_from(READ_BYTES).unwrap_or(0).next_multiple_of(record_bytes)];
        let mut number = 0;
        while number < self.mft.records && go_on() {
            let covered = self.mft.covered(number, (buffer.len() / record_bytes) as u64);
            if covered == 0 {
                number = self.mft.next_placed(number);
                continue;
            }
            let bytes = &mut buffer[..usize::try_from(covered).unwrap_or(0) * record_bytes];
            if self.mft.read(bytes, number).is_ok() {
                for (number, record) in (number..).zip(bytes.chunks_exact_mut(record_bytes)) {
                    self.add_directory(record, number, &mut runs);
                }
            }
            number += covered;
        }
        runs
    }

    /// Adds the runs that a record tells of; of a directory with a list of attributes, those that its records tell of are found
    /// as these are come to.
    fn add_directory(&self, bytes: &mut [u8], number: u64, runs: &mut Vec<Range<u64>>) {
        let is_wanted = |header: Header| header.is_in_use() && (header.is_directory() || !header.is_base());
        if !Header::parse(bytes).is_some_and(is_wanted) {
            return;
        }
        let Ok(record) = Record::open(bytes, number, self.mft.at(number).unwrap_or(0)) else { return };
        let geometry = &self.mft.geometry;
        for attribute in Attributes::of(record).map_while(Result::ok) {
            if attribute.kind == kind::INDEX_ALLOCATION && is_ascii(attribute.name, INDEX_NAME) {
                let Value::NonResident(piece) = attribute.value else { continue };
                let all = Runs::new(piece.runlist, piece.lowest_vcn, geometry.clusters()).map_while(Result::ok);
                let placed = all.filter_map(|run| Some((geometry.cluster_at(run.lcn?)?, run.clusters)));
                let bytes = placed.map(|(at, clusters)| at..at + clusters * u64::from(geometry.cluster_bytes));
                runs.extend(bytes.take(RUNS_MAX - runs.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::{
        super::{
            attributes::tests::{non_resident, resident},
            mft::tests::volume,
            record::tests::on_disk,
        },
        *,
    };

    const FILE: u16 = 1;
    const DIRECTORY: u16 = 3;
    /// Where the record of the $MFT itself lies; the others follow.
    const MFT_AT: u64 = 4096;

    fn mounted<B: BlockRead>(device: impl FnOnce(Vec<u8>) -> B, records: Vec<Vec<u8>>) -> MountedNtfs<B> {
        let (bytes, geometry) = volume(records);
        MountedNtfs { mft: Mft::open(device(bytes), geometry, &mut Vec::new()).unwrap() }
    }

    fn mapped(ntfs: &MountedNtfs<Vec<u8>>, number: u64, size: u64) -> Option<Vec<(u64, Option<u64>, u64)>> {
        let mut extents = Vec::new();
        let mapped = ntfs.map(number, size, &mut |extent| {
            extents.push((extent.logical, extent.physical, extent.length));
        });
        mapped.ok().map(|_| extents)
    }

    #[test]
    fn a_file_is_mapped_where_each_byte_has_a_place() {
        let data =
            |runs: &[u8], clusters, size| on_disk(1, FILE, &non_resident(kind::DATA, 1, 0, runs, clusters, size));
        let whole = data(&[0x11, 2, 100, 0x11, 2, 16, 0], 4, 4096);
        let sparse = data(&[0x11, 2, 100, 0x01, 2, 0], 4, 4096);
        let short = data(&[0x11, 2, 100, 0], 2, 4096);
        let of = |record: &Vec<u8>, size| mapped(&mounted(|bytes| bytes, vec![record.clone()]), 1, size);
        let expected = vec![(0, Some(100 << 10), 2048), (2048, Some(116 << 10), 2048)];
        assert_eq!(of(&whole, 4096), Some(expected));
        assert_eq!(of(&whole, 4097), None, "it was written meanwhile");
        assert_eq!((of(&sparse, 4096), of(&short, 4096)), (None, None), "a hole may be one no more");
        let compressed = {
            let mut attribute = non_resident(kind::DATA, 1, 0, &[0x11, 4, 100, 0], 4, 4096);
            attribute[12] = 1;
            attribute[34] = 4;
            on_disk(1, FILE, &attribute)
        };
        assert_eq!(of(&compressed, 4096), None);
        let torn = {
            let mut torn = whole.clone();
            torn[1023] ^= 1;
            torn
        };
        assert_eq!(of(&torn, 4096), None);
        let inline = on_disk(1, FILE, &resident(kind::DATA, 1, "", b"content"));
        assert_eq!(of(&inline, 7), Some(vec![(0, Some(MFT_AT + 1024), 7)]));
        assert_eq!(mapped(&mounted(|bytes| bytes, vec![inline]), 9, 7), None, "beyond the $MFT");
    }

    /// A device that keeps where it was read.
    struct Watched(Vec<u8>, Mutex<Vec<Range<u64>>>);

    impl BlockRead for Watched {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
            self.1.lock().unwrap().push(at..at + buffer.len() as u64);
            self.0.read_at(buffer, at)
        }

        fn len(&self) -> u64 {
            self.0.len() as u64
        }
    }

    #[test]
    fn directories_come_in_the_order_of_their_blocks() {
        let index = |number, flags, runs: &[u8], clusters| {
            let mut attribute = vec![0; 8]; // Room for the name, before the runs.
            attribute.extend(runs);
            let mut attribute = non_resident(kind::INDEX_ALLOCATION, 1, 0, &attribute, clusters, clusters * 1024);
            attribute[9] = 4;
            attribute[10] = 64;
            attribute[32] = 72;
            for (place, letter) in attribute[64..72].chunks_exact_mut(2).zip(INDEX_NAME) {
                place[0] = *letter;
            }
            on_disk(number, flags, &attribute)
        };
        let records = vec![
            index(1, DIRECTORY, &[0x21, 1, 0xf4, 1, 0], 1),
            index(2, DIRECTORY, &[0x11, 2, 100, 0x11, 1, 50, 0], 3),
            index(3, DIRECTORY, &[0x11, 1, 102, 0], 1),
            index(4, 2, &[0x11, 1, 120, 0], 1),
        ];
        let ntfs = mounted(|bytes| Watched(bytes, Mutex::default()), records);
        let read = |most| {
            ntfs.mft.device.1.lock().unwrap().clear();
            ntfs.bring_in(most, &|| true);
            let read = std::mem::take(&mut *ntfs.mft.device.1.lock().unwrap());
            read.iter().map(|range| (range.start >> 10, range.end >> 10)).collect::<Vec<_>>()
        };
        let all = [(4, 9), (100, 103), (150, 151), (500, 501)];
        assert_eq!(read(1 << 20), all, "the $MFT, then what is in use, neighbours at once");
        assert_eq!(read(ntfs.table_bytes() + 4096), all[..3]);
        ntfs.bring_in(1 << 20, &|| false);
        assert!(ntfs.mft.device.1.lock().unwrap().is_empty());
    }
}
