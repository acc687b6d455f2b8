//! Runlists: which clusters of an attribute lie where, as differences of variable length.

/// A run of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first cluster of the attribute.
    pub(super) vcn: u64,
    /// The first cluster of the volume; `None` for a hole.
    pub(super) lcn: Option<u64>,
    /// How many; never 0.
    pub(super) clusters: u64,
}

/// A runlist that can't be right: the byte where the run begins, what was expected and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadRun {
    pub(super) offset: usize,
    pub(super) expected: &'static str,
    pub(super) found: String,
}

/// The runs of a runlist. Ends after an error. Each run takes at least two bytes, so their number is bounded by the record.
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    offset: usize,
    vcn: u64,
    lcn: i64,
    /// Clusters of the volume.
    clusters: u64,
    failed: bool,
}

impl<'a> Runs<'a> {
    /// The runs of an attribute's piece that begins at cluster `lowest_vcn`, on a volume of so many clusters.
    pub(super) fn new(bytes: &'a [u8], lowest_vcn: u64, clusters: u64) -> Runs<'a> {
        Runs { bytes, offset: 0, vcn: lowest_vcn, lcn: 0, clusters, failed: false }
    }

    /// The cluster of the attribute behind the last run so far.
    pub(super) fn next_vcn(&self) -> u64 {
        self.vcn
    }

    /// Where the next run begins in the runlist.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    fn step(&mut self) -> Result<Option<Run>, BadRun> {
        let start = self.offset;
        let bad = |expected, found: String| Err(BadRun { offset: start, expected, found });
        let rest = self.bytes.get(start..).unwrap_or_default();
        let Some((header, rest)) = rest.split_first().filter(|(header, _)| **header != 0) else {
            return Ok(None);
        };
        let (length_bytes, lcn_bytes) = (usize::from(header & 15), usize::from(header >> 4));
        if !(1..=8).contains(&length_bytes) || lcn_bytes > 8 || rest.len() < length_bytes + lcn_bytes {
            return bad("lengths of up to 8 bytes within the attribute", format!("a first byte of {header:#04x}"));
        }
        let (length, rest) = rest.split_at(length_bytes);
        let clusters = match u64::try_from(signed(length)) {
            Ok(clusters) if clusters > 0 => clusters,
            _ => return bad("a length above 0", signed(length).to_string()),
        };
        // What lies beyond a signed number of bytes can't be addressed either.
        let Some(end) = self.vcn.checked_add(clusters).filter(|end| *end <= i64::MAX as u64 >> 9) else {
            return bad("an end below 2^54 clusters", format!("{} and {clusters} more", self.vcn));
        };
        let lcn = match lcn_bytes {
            0 => None,
            _ => {
                let lcn = self.lcn.checked_add(signed(&rest[..lcn_bytes]));
                let first = lcn.and_then(|lcn| u64::try_from(lcn).ok());
                let end = first.and_then(|first| first.checked_add(clusters));
                if end.is_none_or(|end| end > self.clusters) {
                    let found = format!("{clusters} clusters from {}", lcn.unwrap_or(i64::MAX));
                    return bad("clusters of the volume", found);
                }
                self.lcn = lcn.unwrap_or(self.lcn);
                first
            }
        };
        let run = Run { vcn: self.vcn, lcn, clusters };
        self.vcn = end;
        self.offset = start + 1 + length_bytes + lcn_bytes;
        Ok(Some(run))
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, BadRun>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = self.step();
        self.failed = step.is_err();
        step.transpose()
    }
}

/// A little-endian number of up to eight bytes, the highest bit of which is its sign.
fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut whole = [if negative { 0xff } else { 0 }; 8];
    for (to, from) in whole.iter_mut().zip(bytes) {
        *to = *from;
    }
    i64::from_le_bytes(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(bytes: &[u8]) -> Vec<(u64, Option<u64>, u64)> {
        Runs::new(bytes, 0, 0x10_0000).map(|run| run.map(|run| (run.vcn, run.lcn, run.clusters)).unwrap()).collect()
    }

    #[test]
    fn differences_go_both_ways() {
        // 0x30 clusters at 0x20; 0x60 more at 0x100 behind that; 0x10 at 0x20 before.
        let bytes = [0x11, 0x30, 0x20, 0x21, 0x60, 0x00, 0x01, 0x11, 0x10, 0xe0, 0x00, 0xff];
        assert_eq!(runs(&bytes), [(0, Some(0x20), 0x30), (0x30, Some(0x120), 0x60), (0x90, Some(0x100), 0x10)]);
    }

    #[test]
    fn holes_leave_the_place_as_it_was() {
        let bytes = [0x11, 0x08, 0x40, 0x01, 0x08, 0x11, 0x10, 0x10, 0x00];
        assert_eq!(runs(&bytes), [(0, Some(0x40), 8), (8, None, 8), (16, Some(0x50), 0x10)]);
    }

    #[test]
    fn the_end_of_the_attribute_is_an_end() {
        assert_eq!(runs(&[0x21, 0x18, 0x34, 0x56]), [(0, Some(0x5634), 0x18)]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn what_cannot_be_is_told_once() {
        for (bytes, offset) in [
            (&[0x10_u8, 0x20, 0x30][..], 0),                                    // no length
            (&[0x11, 0x00, 0x20], 0),                                           // a length of 0
            (&[0x11, 0xff, 0x20], 0),                                           // a negative length
            (&[0x11, 0x01, 0xff], 0),                                           // before the volume
            (&[0x11, 0x01, 0x01, 0x31, 0x01, 0xff, 0xff, 0x7f], 3),             // behind it
            (&[0x19, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], 0),                         // a length of nine bytes
            (&[0x21, 0x18, 0x34], 0),                                           // cut off
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x00], 0), // longer than any attribute
        ] {
            let mut runs = Runs::new(bytes, 0, 0x1000);
            let error = runs.by_ref().find_map(Result::err).unwrap_or_else(|| panic!("{bytes:02x?}"));
            assert_eq!(error.offset, offset, "{bytes:02x?}");
            assert!(runs.next().is_none());
        }
    }
}
