//! The content of an attribute: its bytes, or the extents where they lie, put together from its pieces.

use super::{
    attributes::{Attribute, COMPRESSED, ENCRYPTED, NonResident, Value},
    boot::Geometry,
    runlist::Runs,
};
use crate::{
    block_read::BlockRead,
    extent::{Extent, ExtentFlags},
    tables::TableError,
};

/// More extents of one file than NTFS has room for in records of 1024 bytes; 40 bytes each.
pub(super) const EXTENTS_MAX: usize = 4 << 20;
/// How far the last extent may reach beyond the end of the content.
const TAIL_BYTES: u64 = 4096;
/// What is encrypted at once.
pub(super) const CIPHER_BYTES: u64 = 512;
/// The only size of compression units, as a power of two in clusters.
pub(super) const COMPRESSION_UNIT: u8 = 4;

/// The content of an attribute.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Whether there is such an attribute.
    pub(super) present: bool,
    /// Bytes of content.
    pub(super) size: u64,
    /// Bytes that are allocated; 0 when it's in the record.
    pub(super) allocated: u64,
    /// The content, when it's in the record.
    pub(super) resident: Option<Vec<u8>>,
    /// Where it lies else, in the order of the content.
    pub(super) extents: Vec<Extent>,
    /// What holds for all extents.
    pub(super) flags: ExtentFlags,
    /// Bytes that were written; the others read as zeros.
    initialized: u64,
    /// Bytes of all clusters, holes counted, as the first piece says.
    span: u64,
    /// The cluster that the next piece has to begin with.
    next_vcn: u64,
    /// The last piece, for messages.
    pub(super) at: u64,
    /// The first piece.
    first_at: u64,
    /// A piece was damaged; those behind it can't be believed.
    broken: bool,
}

impl Stream {
    /// Begins anew; what was allocated stays so.
    pub(super) fn clear(&mut self) {
        let mut extents = std::mem::take(&mut self.extents);
        extents.clear();
        *self = Stream { extents, ..Stream::default() };
    }

    /// Adds the attribute, or its next piece.
    pub(super) fn take(&mut self, attribute: &Attribute<'_>, geometry: &Geometry) -> Result<(), TableError> {
        let taken = match attribute.value {
            Value::Resident(value) => self.take_resident(attribute, value),
            Value::NonResident(piece) => self.take_piece(attribute, &piece, geometry),
        };
        self.broken |= taken.is_err();
        taken
    }

    fn take_resident(&mut self, attribute: &Attribute<'_>, value: &[u8]) -> Result<(), TableError> {
        if self.present {
            return Err(TableError::damaged("an attribute", attribute.at, "one of its name", "a second one"));
        }
        self.present = true;
        self.at = attribute.at;
        self.size = value.len() as u64;
        self.initialized = self.size;
        self.resident = Some(value.to_vec());
        Ok(())
    }

    fn take_piece(
        &mut self,
        attribute: &Attribute<'_>,
        piece: &NonResident<'_>,
        geometry: &Geometry,
    ) -> Result<(), TableError> {
        let damaged = |what: &str, offset: u64, expected: &dyn ToString, found: &dyn ToString| {
            let what = format!("an attribute's {what}");
            Err(TableError::damaged(what, attribute.at + offset, expected.to_string(), found.to_string()))
        };
        if self.broken {
            return Ok(()); // It was told already.
        }
        if piece.lowest_vcn != self.next_vcn || self.resident.is_some() || (self.present && piece.lowest_vcn == 0) {
            return damaged("first cluster", 16, &self.next_vcn, &piece.lowest_vcn);
        }
        self.at = attribute.at;
        if !self.present {
            self.present = true;
            if piece.size > i64::MAX as u64 || piece.initialized > piece.size {
                let found = format!("{} with {} initialized", piece.size, piece.initialized);
                return damaged("size", 48, &"a size, and no more initialized", &found);
            }
            self.size = piece.size;
            self.initialized = piece.initialized;
            self.span = piece.allocated;
            self.first_at = attribute.at;
            self.allocated = piece.compressed.unwrap_or(piece.allocated);
            if attribute.flags & COMPRESSED != 0 {
                self.flags |= ExtentFlags::ENCODED;
                if piece.compression_unit != COMPRESSION_UNIT {
                    return damaged("compression unit", 34, &COMPRESSION_UNIT, &piece.compression_unit);
                }
            }
            if attribute.flags & ENCRYPTED != 0 {
                self.flags |= ExtentFlags::ENCRYPTED;
                // What lies there are whole blocks of the cipher.
                self.initialized = self.initialized.next_multiple_of(CIPHER_BYTES);
            }
        }
        // The last compression unit is needed as a whole.
        let tail_bytes = match self.flags.contains(ExtentFlags::ENCODED) {
            true => u64::from(geometry.cluster_bytes) << COMPRESSION_UNIT,
            false => TAIL_BYTES,
        };
        let end = self.size.next_multiple_of(tail_bytes);
        let mut runs = Runs::new(piece.runlist, piece.lowest_vcn, geometry.clusters());
        for run in &mut runs {
            let run = run.map_err(|bad| {
                let at = attribute.at + (piece.runlist_at + bad.offset) as u64;
                TableError::damaged("a runlist", at, bad.expected, bad.found)
            })?;
            let cluster_bytes = u64::from(geometry.cluster_bytes);
            if let Some(physical) = run.lcn.and_then(|lcn| geometry.cluster_at(lcn)) {
                if self.extents.len() >= EXTENTS_MAX {
                    return damaged("runlist", 0, &format!("up to {EXTENTS_MAX} extents"), &"more");
                }
                match (run.vcn.checked_mul(cluster_bytes), run.clusters.checked_mul(cluster_bytes)) {
                    (Some(logical), Some(length)) if logical.checked_add(length).is_some() => {
                        self.push(logical, physical, length, end);
                    }
                    _ => return damaged("runlist", 0, &"an end below 2^64 bytes", &run.vcn),
                }
            }
        }
        let highest = runs.next_vcn().cast_signed() - 1;
        if piece.highest_vcn != highest {
            return damaged("last cluster", 24, &highest, &piece.highest_vcn);
        }
        self.next_vcn = runs.next_vcn();
        Ok(())
    }

    /// Adds a run, cut off at `end` and divided where the bytes end that were written.
    fn push(&mut self, logical: u64, physical: u64, length: u64, end: u64) {
        let end = (logical + length).min(end);
        // Where all is written, the rest of the last cluster doesn't matter.
        let written_end = if self.initialized < self.size { self.initialized.min(end) } else { end };
        let unwritten = self.flags | ExtentFlags::UNWRITTEN;
        for (start, end, flags) in [(logical, written_end, self.flags), (logical.max(written_end), end, unwritten)] {
            if start < end {
                let extent =
                    Extent { logical: start, physical: Some(physical + (start - logical)), length: end - start, flags };
                match self.extents.last_mut() {
                    Some(last)
                        if last.logical_end() == start
                            && last.physical_end() == extent.physical
                            && last.flags == flags =>
                    {
                        last.length += extent.length;
                    }
                    _ => self.extents.push(extent),
                }
            }
        }
    }

    /// Ends it after the last piece. Where pieces are missing, the rest of the content gets an extent without an address, so
    /// that nobody takes it for a hole; the error tells it, unless the piece's own error did.
    pub(super) fn finish(&mut self, geometry: &Geometry) -> Result<(), TableError> {
        if !self.present || self.resident.is_some() {
            return Ok(());
        }
        let told = self.next_vcn.saturating_mul(u64::from(geometry.cluster_bytes));
        if self.broken || told < self.size {
            let start = self.extents.last().map_or(0, Extent::logical_end);
            if let Some(length) = self.size.checked_sub(start).filter(|length| *length > 0) {
                let flags = self.flags | ExtentFlags::UNKNOWN;
                self.extents.push(Extent { logical: start, physical: None, length, flags });
            }
        }
        if !self.broken && told < self.size {
            return Err(TableError::damaged("an attribute's runlist", self.at, format!("{} bytes", self.size), told));
        }
        match !self.broken && told != self.span {
            true => {
                let what = "the allocated size of an attribute";
                Err(TableError::damaged(what, self.first_at + 40, format!("{told}, as its runs have"), self.span))
            }
            false => Ok(()),
        }
    }

    /// The first bytes of the content, at most `limit`, as they lie on the device: not decompressed.
    pub(super) fn read(&self, device: &impl BlockRead, limit: u64) -> Result<Vec<u8>, TableError> {
        let length = usize::try_from(self.size.min(limit)).unwrap_or(usize::MAX);
        if let Some(resident) = &self.resident {
            return Ok(resident[..length.min(resident.len())].to_vec());
        }
        let mut bytes = vec![0; length];
        for extent in &self.extents {
            let Some(start) = usize::try_from(extent.logical).ok().filter(|start| *start < length) else {
                break;
            };
            let end = usize::try_from(extent.logical_end()).map_or(length, |end| end.min(length));
            let Some(at) = extent.physical else {
                let what = "an attribute's runlist";
                return Err(TableError::damaged(what, self.at, "all of its content", format!("{start} bytes of it")));
            };
            if !extent.is_zeros() {
                let to = &mut bytes[start..end];
                device.read_at(to, at).map_err(|source| TableError::Io { at, length: to.len() as u64, source })?;
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::attributes::kind, *};

    const GEOMETRY: Geometry =
        Geometry { cluster_bytes: 1024, record_bytes: 1024, bytes: 1 << 30, mft_lcn: 4, mirror_lcn: 8, serial: 0 };

    fn piece<'a>(lowest_vcn: u64, runlist: &'a [u8], clusters: i64, size: u64, initialized: u64) -> Attribute<'a> {
        let allocated = size.next_multiple_of(1024);
        let highest_vcn = lowest_vcn.cast_signed() + clusters - 1;
        let (compressed, compression_unit) = (None, 0);
        let value = NonResident {
            lowest_vcn,
            highest_vcn,
            runlist,
            runlist_at: 64,
            allocated,
            size,
            initialized,
            compressed,
            compression_unit,
        };
        Attribute { kind: kind::DATA, id: 0, flags: 0, name: &[], at: 0, value_at: 0, value: Value::NonResident(value) }
    }

    fn extents(stream: &Stream) -> Vec<(u64, Option<u64>, u64, ExtentFlags)> {
        stream.extents.iter().map(|extent| (extent.logical, extent.physical, extent.length, extent.flags)).collect()
    }

    #[test]
    fn pieces_go_on_with_each_other() {
        let mut stream = Stream::default();
        stream.take(&piece(0, &[0x11, 8, 100], 8, 20_000, 20_000), &GEOMETRY).unwrap();
        stream.take(&piece(8, &[0x11, 12, 108], 12, 0, 0), &GEOMETRY).unwrap();
        stream.finish(&GEOMETRY).unwrap();
        let plain = ExtentFlags::empty();
        assert_eq!(extents(&stream), [(0, Some(102_400), 20_480, plain)]);
    }

    #[test]
    fn what_was_not_written_is_told_apart() {
        let mut stream = Stream::default();
        stream.take(&piece(0, &[0x11, 8, 100, 0x01, 4, 0x11, 8, 20], 20, 20_000, 5_000), &GEOMETRY).unwrap();
        stream.finish(&GEOMETRY).unwrap();
        let (plain, unwritten) = (ExtentFlags::empty(), ExtentFlags::UNWRITTEN);
        let expected = [
            (0, Some(102_400), 5_000, plain),
            (5_000, Some(107_400), 3_192, unwritten),
            (12_288, Some(122_880), 8_192, unwritten),
        ];
        assert_eq!(extents(&stream), expected);
    }

    #[test]
    fn what_is_compressed_or_encrypted_is_not_plain() {
        let mut encrypted = piece(0, &[0x11, 8, 100], 8, 8192, 8192);
        encrypted.flags = ENCRYPTED;
        let mut stream = Stream::default();
        stream.take(&encrypted, &GEOMETRY).unwrap();
        assert_eq!(extents(&stream), [(0, Some(102_400), 8192, ExtentFlags::ENCRYPTED)]);

        // The last unit is longer than what is left of the content, and all of it is needed.
        let mut packed = piece(0, &[0x11, 16, 100, 0x11, 5, 16, 0x01, 11], 32, 17_000, 17_000);
        packed.flags = 1;
        let mut stream = Stream::default();
        assert!(stream.take(&packed, &GEOMETRY).is_err(), "no compression unit");
        if let Value::NonResident(piece) = &mut packed.value {
            piece.compression_unit = COMPRESSION_UNIT;
            piece.compressed = Some(21_504);
        }
        stream.clear();
        stream.take(&packed, &GEOMETRY).unwrap();
        assert_eq!(extents(&stream), [(0, Some(102_400), 21_504, ExtentFlags::ENCODED)]);
        assert_eq!(stream.allocated, 21_504);
    }

    #[test]
    fn a_missing_piece_is_no_hole() {
        let mut stream = Stream::default();
        stream.take(&piece(0, &[0x11, 8, 100], 8, 20_000, 20_000), &GEOMETRY).unwrap();
        assert!(stream.take(&piece(9, &[0x11, 11, 108], 11, 0, 0), &GEOMETRY).is_err());
        stream.finish(&GEOMETRY).unwrap();
        let expected = [(0, Some(102_400), 8_192, ExtentFlags::empty()), (8_192, None, 11_808, ExtentFlags::UNKNOWN)];
        assert_eq!(extents(&stream), expected);
        assert!(stream.read(&vec![0; 1 << 20], 20_000).is_err());

        let mut stream = Stream::default();
        stream.take(&piece(0, &[0x11, 8, 100], 8, 20_000, 20_000), &GEOMETRY).unwrap();
        assert!(stream.finish(&GEOMETRY).is_err());
        assert_eq!(extents(&stream), expected);
    }

    #[test]
    fn clusters_behind_the_content_are_left_out() {
        let mut stream = Stream::default();
        stream.take(&piece(0, &[0x11, 50, 100], 50, 100, 100), &GEOMETRY).unwrap();
        assert_eq!(extents(&stream), [(0, Some(102_400), 4096, ExtentFlags::empty())]);
    }
}
