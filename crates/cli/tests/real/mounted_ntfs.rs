//! An NTFS that is shown by `ntfs-3g`: that tells nobody where files lie, but the tables on its device do.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use crate::{
    disk_model::Disk,
    image::{Fs, Image},
    run::{finish, onesweep, root_test, say, seed, text},
    trace,
    tree::{self, Rng},
};

const IMAGE_BYTES: u64 = 1 << 30;
/// A machine with more to do than this test may throw out what was brought in before it is used.
const TRIES: usize = 3;

fn sums(root: &Path, options: &[&str]) -> Vec<(Vec<u8>, String)> {
    let out = finish(onesweep(["sum", "--algorithm", "sha256"]).args(options).arg(root), 0);
    let mut sums = tree::sum_lines(&out.stdout);
    sums.sort();
    sums
}

#[test]
fn files_come_in_the_order_of_the_disk() {
    root_test!();
    let mut image = Image::new(Fs::Ntfs, IMAGE_BYTES);
    tree::random(&image.root(), 1500, seed());
    let plan = finish(onesweep(["plan"]).arg(image.root()), 0);
    assert!(text(&plan.stdout).contains("by fragment"), "{}", text(&plan.stdout));
    let hidden = finish(onesweep(["plan"]).arg(image.root()).env("ONESWEEP_HIDE", "tables"), 0);
    let hidden = [hidden.stdout, hidden.stderr].concat();
    assert!(text(&hidden).contains("a program answers for the files"), "{}", text(&hidden));
    let mut disk_ms = |hidden: &str| {
        let mut tar = onesweep(["tar", "-cf", "-", "-C"]);
        tar.arg(image.root()).arg(".").env("ONESWEEP_HIDE", hidden);
        Disk::of(IMAGE_BYTES).serve(&trace::from_cold(&mut image, tar)).total_ms()
    };
    let mut tries = Vec::new();
    while tries.len() < TRIES && !tries.last().is_some_and(|(untold, told)| *told < 0.6 * untold) {
        tries.push((disk_ms("tables"), disk_ms("")));
    }
    let (untold, told) = tries[tries.len() - 1];
    say(&format!("an NTFS by ntfs-3g: {told:.0} ms of the disk, {untold:.0} ms in the order of the records"));
    assert!(told < 0.6 * untold, "in the order of the records, and by the tables: {tries:?}");
}

/// What a record tells may be behind what the file holds by now; the content comes through the file system, all of it.
#[test]
fn what_is_being_written_is_delivered() {
    root_test!();
    let image = Image::new(Fs::Ntfs, 256 << 20);
    let mut rng = Rng::new(seed());
    let root = image.root();
    let path = |name: &str| root.join(name);
    for number in 0..60 {
        let size = rng.size(8192.0, 1 << 20) as usize;
        fs::write(path(&format!("file {number}")), rng.bytes(size)).expect("a file");
    }
    fs::write(path("empty"), "").expect("a file");
    fs::write(path("resident"), "a few bytes").expect("a file");
    let sparse = File::create(path("sparse")).expect("a file");
    sparse.set_len(8 << 20).expect("a hole");
    sparse.write_all_at(&rng.bytes(70_000), 3 << 20).expect("data");
    tree::sync(&root);
    // None of these is closed before they are read.
    let mut grown = File::options().append(true).open(path("file 1")).expect("a file");
    grown.write_all(&rng.bytes(300_000)).expect("growth");
    let filled = File::options().write(true).open(path("sparse")).expect("a file");
    filled.write_all_at(&rng.bytes(1 << 20), 5 << 20).expect("a hole filled");
    let mut grown_from_inside = File::options().write(true).open(path("resident")).expect("a file");
    grown_from_inside.seek(SeekFrom::End(0)).expect("its end");
    grown_from_inside.write_all(&rng.bytes(5000)).expect("growth");
    let cut = File::options().write(true).open(path("file 2")).expect("a file");
    cut.set_len(100).expect("an end");
    let mut expected: Vec<_> = tree::sums(&[&root]).into_iter().collect();
    expected.sort();
    for options in [&["--order", "fragment"][..], &["--order", "first-extent", "--metadata", "tables"], &[]] {
        let found = sums(&root, options);
        assert_eq!(found.len(), expected.len());
        let differ = found.into_iter().zip(&expected).filter(|(found, expected)| found != *expected);
        let differ: Vec<_> = differ.map(|((path, _), _)| text(&path)).collect();
        assert!(differ.is_empty(), "{options:?}: {differ:?}");
    }
    drop((grown, filled, grown_from_inside, cut));
}

#[test]
fn its_device_is_not_read_for_content() {
    root_test!();
    let image = Image::new(Fs::Ntfs, 64 << 20);
    fs::write(image.root().join("file"), "content").expect("a file");
    let refused = finish(onesweep(["sum", "--device"]).arg(image.root()), 2);
    let said = text(&refused.stderr);
    assert!(
        said.contains("a program answers for the files (fuseblk)") && said.contains("leave out --device"),
        "{said}"
    );
}
