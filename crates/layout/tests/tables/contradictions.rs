//! What tables without checksums tell twice: each contradiction is told, with a byte.

use std::{fs, path::Path};

use crate::conformance::{Kept, names_its_place};

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn fill(tree: &Path) {
    fs::create_dir_all(tree.join("below/deeper")).expect("a folder");
    for number in 0..60 {
        fs::write(tree.join(format!("below/many{number:03}")), vec![b'x'; 3000]).expect("a file");
    }
    fs::write(tree.join("one"), vec![b'1'; 5000]).expect("a file");
    fs::write(tree.join("other"), vec![b'2'; 5000]).expect("a file");
    fs::hard_link(tree.join("one"), tree.join("below/deeper/link")).expect("a link");
}

pub(crate) fn number_of(kept: &Kept, name: &str) -> u64 {
    let found = kept.names.iter().find(|(_, _, told)| told == name.as_bytes());
    found.unwrap_or_else(|| panic!("no {name}")).1
}

/// Fails unless this is told, and its byte.
pub(crate) fn assert_told(kept: &Kept, expected: &str, change: &str) {
    kept.problems.iter().for_each(names_its_place);
    let told: Vec<String> = kept.problems.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|told| told.contains(expected)), "{change}: {expected} in {told:?}");
    assert!(told.len() < 10, "{change}: {told:?}");
}

pub(crate) fn set(bytes: &mut [u8], at: u64, new: &[u8]) {
    let at = usize::try_from(at).expect("an index");
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// Where bytes begin for the first time.
pub(crate) fn place_of(bytes: &[u8], wanted: &[u8]) -> u64 {
    bytes.windows(wanted.len()).position(|window| window == wanted).expect("these bytes") as u64
}
