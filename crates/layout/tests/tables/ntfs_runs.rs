//! Where files of an NTFS lie by the word of ntfs-3g's `ntfsinfo`, which decodes runlists with code of its own.

use std::{path::Path, process::Command};

use onesweep_layout::{
    Extent, ExtentFlags,
    tables::{Inode, InodeFlags},
};

use crate::{
    conformance::{Run, runs},
    image,
};

/// The unnamed $DATA of a file, as `ntfsinfo -v` prints it.
#[derive(Debug, Default)]
struct Printed {
    /// Bytes that were written, where the content isn't in the record.
    initialized: Option<u64>,
    /// Runs that are no holes: logical cluster, physical cluster, clusters.
    runs: Vec<(u64, u64, u64)>,
}

fn printed(image: &Path, number: u64) -> Printed {
    let out = image::run(Command::new("ntfsinfo").args(["-v", "-i", &number.to_string()]).arg(image));
    let mut printed = Printed::default();
    let mut is_content = false;
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        if let Some(attribute) = line.strip_prefix("Dumping attribute ") {
            is_content = attribute.starts_with("$DATA ");
        }
        let Some((name, value)) = line.trim().split_once(':') else {
            let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
            let numbers: Vec<Option<u64>> = line.split_whitespace().map(hexadecimal).collect();
            if let ([Some(logical), Some(physical), Some(clusters)], true) = (&numbers[..], is_content) {
                printed.runs.push((*logical, *physical, *clusters));
            }
            continue;
        };
        let value = || value.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        match name {
            "Name length" => is_content &= value() == Some(0),
            // Further pieces of it say 0.
            "Initialized size" if is_content && printed.initialized.is_none() => printed.initialized = value(),
            _ => {}
        }
    }
    printed
}

/// Fails where the extents of a regular file with content are not what `ntfsinfo` prints; how many runs it has, with those
/// of zeros.
pub(crate) fn compare_runs(image: &Path, inode: &Inode, cluster_bytes: u64, unit_bytes: u64) -> usize {
    let printed = printed(image, inode.number);
    assert_eq!(printed.initialized.is_none(), inode.inline.is_some(), "whether {} lies in its record", inode.number);
    let is_compressed = inode.flags.contains(InodeFlags::COMPRESSED);
    // Of what is compressed, the last unit is needed as a whole.
    let end = if is_compressed { inode.size.next_multiple_of(unit_bytes) } else { inode.size };
    let initialized = printed.initialized.unwrap_or(0);
    let written = if initialized < inode.size { initialized } else { end };
    let mut expected = Vec::new();
    for (logical, physical, clusters) in printed.runs {
        let (start, at) = (logical * cluster_bytes, physical * cluster_bytes);
        let behind = start + clusters * cluster_bytes;
        for (from, to, flags) in
            [(start, behind.min(written), ExtentFlags::empty()), (start.max(written), behind, ExtentFlags::UNWRITTEN)]
        {
            if from < to {
                expected.push(Extent { logical: from, physical: Some(at + (from - start)), length: to - from, flags });
            }
        }
    }
    let plain = |extent: &Extent| Extent { flags: extent.flags - ExtentFlags::ENCODED, ..*extent };
    let told: Vec<Extent> = inode.extents.iter().map(plain).collect();
    let expected: Vec<Run> = runs(&expected, end).expect("addresses");
    assert_eq!(runs(&told, end).as_ref(), Some(&expected), "runs of {}", inode.number);
    expected.len()
}
