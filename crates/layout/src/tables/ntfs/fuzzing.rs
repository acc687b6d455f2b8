//! The parsers of NTFS with bytes that nobody has looked at before. See [`crate::fuzzing`].

use super::{
    attribute_list,
    boot::Geometry,
    compressed::Decompressor,
    index, lznt1,
    mft::Mft,
    names::{self, FileName},
    record::apply_fixups,
    reparse::Reparse,
    runlist::Runs,
    scan::Scan,
};
use crate::{
    extent::{Extent, ExtentFlags},
    fuzzing::{Checker, Counted, Repeated, Target, cut, options},
    tables::{Indexes, Wanted},
};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "ntfs_boot", run: boot, memory: 1 << 20 },
    Target { name: "ntfs_record", run: records, memory: 32 << 20 },
    Target { name: "ntfs_runlist", run: runlist, memory: 1 << 20 },
    Target { name: "ntfs_attribute_list", run: list, memory: 16 << 20 },
    Target { name: "ntfs_lznt1", run: lznt1, memory: 4 << 20 },
    Target { name: "ntfs_index", run: index_node, memory: 4 << 20 },
];

const RECORD: usize = 1024;
/// Where the made-up $MFT begins, and its records.
const MFT_AT: u64 = 4096;
const RECORDS: u64 = 32;

/// A boot sector, which is the backup at the end, too, unless the first byte says otherwise.
fn boot(input: &[u8]) {
    let (options, sector) = options(input);
    let (sector, _) = cut::<512>(sector);
    let mut bytes = vec![0; 64 << 10];
    let start = if options & 1 == 0 { 0 } else { bytes.len() - 512 };
    bytes[start..start + 512].copy_from_slice(&sector);
    let device = Counted::new(bytes, 16);
    match Geometry::read(&device) {
        Ok((geometry, _)) => {
            assert!(geometry.cluster_bytes.is_power_of_two() && geometry.record_bytes.is_power_of_two());
            assert!(geometry.clusters().checked_mul(geometry.cluster_bytes.into()).is_some());
            let at = geometry.cluster_at(geometry.mft_lcn).expect("a cluster of the volume");
            assert!(at < geometry.bytes);
            let _ = geometry.cluster_at(geometry.mirror_lcn);
            assert!(geometry.cluster_at(geometry.clusters()).is_none());
        }
        Err(error) => assert!(error.to_string().len() < 4096),
    }
}

/// Makes the fixups of a record right, as if the bytes were what they keep, and its number.
fn seal(record: &mut [u8], magic: [u8; 4], number: Option<u32>) {
    let array = if number.is_some() { 48 } else { 40 };
    let parts = record.len() / 512;
    if parts == 0 {
        return;
    }
    record[..4].copy_from_slice(&magic);
    record[4..6].copy_from_slice(&(array as u16).to_le_bytes());
    record[6..8].copy_from_slice(&(parts as u16 + 1).to_le_bytes());
    if let Some(number) = number {
        record[44..48].copy_from_slice(&number.to_le_bytes());
    }
    let mark = [record[array], record[array + 1]];
    for part in 1..=parts {
        record.copy_within(part * 512 - 2..part * 512, array + 2 * part);
        record[part * 512 - 2..part * 512].copy_from_slice(&mark);
    }
}

/// Up to eight file records, from number 24 on, and the root directory; what else there is on the device are their bytes again,
/// in some variants those that begin as blocks of an index with their fixups made right.
fn records(input: &[u8]) {
    let (options, bytes) = options(input);
    let bytes = &bytes[..bytes.len().min(8 * RECORD)];
    let mut table = vec![0; RECORDS as usize * RECORD];
    // The root directory: sequence 5, in use, a directory, no attributes.
    let root = &mut table[5 * RECORD..6 * RECORD];
    for (at, value) in [(16, 5), (18, 1), (20, 56), (22, 3), (24, 64), (28, 0), (29, 4)] {
        root[at] = value;
    }
    root[56..60].fill(0xff);
    seal(root, *b"FILE", Some(5));
    table[24 * RECORD..24 * RECORD + bytes.len()].copy_from_slice(bytes);
    for number in 24..24 + bytes.len().div_ceil(RECORD) {
        if options & 1 != 0 {
            seal(&mut table[number * RECORD..][..RECORD], *b"FILE", Some(number as u32));
        }
    }
    let len = 4 << 20;
    let mut rest = bytes.to_vec();
    let blocks = rest.chunks_exact_mut(RECORD).filter(|block| options & 32 != 0 && block.starts_with(b"INDX"));
    blocks.for_each(|block| seal(block, *b"INDX", None));
    let device = Repeated { first: table, first_at: MFT_AT, rest: &rest, block_bytes: RECORD, len };
    let cluster_bytes = [512, 1024, 4096, 65536][usize::from(options >> 1 & 3)];
    let geometry = Geometry { cluster_bytes, record_bytes: 1024, bytes: len, mft_lcn: 1, mirror_lcn: 1, serial: 0 };
    let length = RECORDS * RECORD as u64;
    let place = Extent { logical: 0, physical: Some(MFT_AT), length, flags: ExtentFlags::empty() };
    // A divided block of an index takes a read for each of its pieces, once for all and once where names contradict.
    let mft = Mft {
        device: Counted::new(device, if options & 16 == 0 { 4096 } else { 16384 }),
        geometry,
        extents: vec![place],
        records: RECORDS,
    };
    let mut checker = Checker::default();
    let indexes = [Indexes::Left, Indexes::All][usize::from(options >> 4 & 1)];
    let wanted = Wanted { xattrs: options & 8 == 0, indexes, ..Wanted::default() };
    let mut scan = Scan::new(&mft, wanted, true, &mut checker);
    scan.read_bytes = 16 << 10;
    assert!(scan.run().is_continue());
    checker.finish(len);
    for file in &checker.packed {
        let mut decompressor = Decompressor::new(&mft.device, &file.extents, file.size, cluster_bytes << 4);
        let _ = decompressor.read(0, &mut [0; 4096]);
    }
}

/// Six bytes of where it begins and how large the volume is, and a runlist.
fn runlist(input: &[u8]) {
    let (start, bytes) = cut::<6>(input);
    let (lowest, _) = cut::<8>(&start[..3]);
    let (clusters, _) = cut::<8>(&start[3..]);
    let (lowest, clusters) = (u64::from_le_bytes(lowest) << (start[0] & 31), u64::from_le_bytes(clusters) << 8);
    let mut runs = Runs::new(bytes, lowest, clusters);
    let (mut next, mut count) = (lowest, 0);
    for run in runs.by_ref() {
        count += 1;
        match run {
            Ok(run) => {
                assert!(run.clusters > 0 && run.vcn == next);
                next = run.vcn.checked_add(run.clusters).expect("an end below 2^64");
                assert!(run.lcn.is_none_or(|lcn| lcn.checked_add(run.clusters).is_some_and(|end| end <= clusters)));
            }
            Err(bad) => assert!(bad.offset < bytes.len()),
        }
    }
    assert!(count <= bytes.len() && runs.next_vcn() == next);
}

/// An attribute list.
fn list(input: &[u8]) {
    let input = &input[..input.len().min(attribute_list::LIST_BYTES_MAX as usize)];
    match attribute_list::entries(input) {
        Ok(entries) => assert!(entries.len() <= input.len() / 26),
        Err(at) => assert!(at < input.len()),
    }
}

/// Packed bytes, for a unit whose size the first byte tells.
fn lznt1(input: &[u8]) {
    let (options, packed) = options(input);
    let length = usize::from(options) * 65;
    let (mut first, mut second) = (vec![0x55; length], vec![0xaa; length]);
    let outcome = lznt1::decompress(packed, &mut first);
    assert_eq!(outcome, lznt1::decompress(packed, &mut second));
    match outcome {
        // All of it was written.
        Ok(()) => assert_eq!(first, second),
        Err(bad) => assert!(bad.offset <= packed.len() + 1, "{bad:?}"),
    }
}

/// A block of an index, or the values of attributes.
fn index_node(input: &[u8]) {
    let (options, bytes) = options(input);
    let mut block = bytes[..bytes.len().min(1 << 16)].to_vec();
    if options & 1 != 0 {
        let whole = block.len() / 512 * 512;
        block.truncate(whole);
        seal(&mut block, *b"INDX", None);
    }
    if apply_fixups(&mut block, *b"INDX", 0).is_ok() {
        let _ = index::look_in(block.get(24..).unwrap_or_default(), b"HIBERFIL.SYS");
    }
    let _ = index::look_in(bytes, b"HIBERFIL.SYS");
    let mut names = 0;
    let _ = index::entries(bytes, &mut |entry| {
        names += 1;
        assert!(bytes[entry.name_at..].starts_with(entry.key.name));
    });
    assert!(names <= bytes.len() / 16);
    if let Some(name) = FileName::parse(bytes) {
        let shown = names::utf8(name.name);
        assert!(shown.len() <= name.name.len() / 2 * 3);
        let _ = names::is_ascii(name.name, &shown);
        let _ = names::is_file_name(&shown);
    }
    if let Reparse::Link(target) = Reparse::parse(bytes) {
        assert!(!target.is_empty() && target.len() <= 3 * bytes.len() + 64 && !target.contains(&0));
    }
}
