//! Files that lie directly behind each other come from a disk that turns by few requests.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    image::{Fs, Image},
    quick_disks::reads_of,
    run::{finish, onesweep, root_test, text},
    tree,
};

const FILES: u64 = 400;

/// Sums of all files, in any order.
fn sums(root: &Path, options: &[&str]) -> BTreeSet<String> {
    let out = finish(onesweep(["sum"]).args(options).arg(root), 0);
    text(&out.stdout).lines().map(str::to_owned).collect()
}

/// What the kernel joins has to be handed over at once. Where one request at a time is asked for, each file is one, and where memory is
/// short, nothing waits for what doesn't fit.
#[test]
fn neighbours_on_the_disk_are_one_request() {
    root_test!();
    let mut image = Image::in_memory(Fs::Ext4, 64 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    for number in 0..FILES {
        fs::write(root.join(format!("f{number:03}")), number.to_le_bytes().repeat(1000)).expect("a file");
    }
    tree::sync(&root);
    // What was written a moment ago would be read again.
    (0..3).for_each(|_| tree::until_another_second());
    let told = [&[][..], &["--budget", "64K", "--large", "64K"], &["--queue-depth", "1"]].map(|options| {
        image.cold();
        let before = reads_of(&image);
        let sums = sums(&root, options);
        (reads_of(&image) - before, sums)
    });
    let requests = told.each_ref().map(|(requests, _)| *requests);
    assert!(told.iter().all(|(_, sums)| sums.len() as u64 == FILES && *sums == told[0].1), "{requests:?}");
    // Beside those for names and inodes.
    assert!(requests[0] < FILES / 5, "{requests:?}");
    assert!(requests[2] > FILES, "{requests:?}");
}
