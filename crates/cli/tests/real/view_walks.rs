//! Which of several walks over a view is helped.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    held_back::{self, in_memory},
    image::{Fs, Image},
    run::{onesweep, root_test, text},
    tree::{self, Rng},
    view::{WAYS, brought_in, place},
};

/// Files that are read of the first walk.
const READ: usize = 40;
/// Bytes of each file.
const SIZE: usize = 20_000;

/// A program may leave a walk without ending it, so one that stands still is not helped for good.
#[test]
fn a_walk_that_stands_still_gives_way_to_another_one() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 200 << 20);
    let (root, dir) = place(&image);
    let mut rng = Rng::new(5);
    let [left, other] = ["left", "other"].map(|walk| -> Vec<_> {
        (0..200).map(|number| root.join(format!("{walk}/d{}/f{number:03}", number / 50))).collect()
    });
    for path in left.iter().chain(&other) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, rng.bytes(SIZE)).expect("a file");
    }
    tree::sync(&root);
    fs::create_dir_all(&dir).expect("a place");
    for way in WAYS {
        image.cold();
        gives_way(way, &root, &dir, &left, &other);
    }
}

fn gives_way(way: &[&str], root: &Path, dir: &Path, left: &[PathBuf], other: &[PathBuf]) {
    // Two fifths of a walk fit. The first one is left when its first part is there, and nothing is asked for until it gives way.
    let script = "cat $(find \"$1\"/left -type f | head -n \"$2\") > /dev/null; sleep 8; find \"$1\"/other -type f -exec cat {} +";
    let mut command = onesweep(["view", "--verbose", "--limit", "2M"]);
    command.args(way).args([root, dir]).args(["--", "sh", "-c", script, "sh"]).arg(dir).arg(READ.to_string());
    let out = held_back::until(|| in_memory(other) > 2 * READ, &mut command);
    let (brought, sweeps) = brought_in(&out.stderr);
    let first = in_memory(left);
    assert!((1..200).contains(&first), "{first} of the first walk: {}", text(&out.stderr));
    // What lies behind the files that the first walk has read was brought in; on a busy machine it may have read them before it was known to
    // be a walk.
    let of_the_first = first.saturating_sub(READ);
    let sweeps_min = if of_the_first > 0 { 2 } else { 1 };
    assert!(
        brought >= of_the_first + other.len() - READ && sweeps >= sweeps_min,
        "{first} of the first walk: {}",
        text(&out.stderr)
    );
    // Where the kernel shows the tree, so much may have been read before it was told that one part was all.
    let is_one_part = way.is_empty() && sweeps == 2;
    assert!(is_one_part || in_memory(other) < 200, "no more than fits is kept: {}", text(&out.stderr));
}
