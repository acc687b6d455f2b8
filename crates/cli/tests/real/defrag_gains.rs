//! What a reader gains by `onesweep defrag` on real file systems: disk time modelled from the requests that are really made.

use std::{fs, iter, path::Path, process::Command};

use crate::{
    defrag::{check, defrag, entries, grow_by_turns, seeks},
    disk_model::Disk,
    image::{Fs, Image},
    run::{finish, long, onesweep, root_test, say, text},
    trace, tree,
};

/// What it is for: the disk time that GNU tar takes, modelled from the requests that it really makes.
#[test]
fn gnu_tar_reads_a_packed_tree_in_a_fraction() {
    root_test!();
    for (options, part) in [(&[][..], 5.0), (&["--near"], 5.0)] {
        packed_for_gnu_tar(Fs::Ext4, options, part);
    }
}

/// On XFS most of what is left is metadata, which stays where it is.
#[test]
fn gnu_tar_reads_a_packed_xfs_in_a_fraction() {
    root_test!();
    for (options, part) in [(&[][..], 3.3), (&["--region", "8M"], 3.3)] {
        packed_for_gnu_tar(Fs::Xfs, options, part);
    }
}

/// Linux reads ahead file by file: a packed directory is one run, but a request for each file. In batches it is a few, and so it is where
/// neighbours begin together.
#[test]
fn a_packed_directory_is_warmed_by_few_requests() {
    root_test!(alone);
    let bytes = 512 << 20;
    let mut image = Image::new(Fs::Ext4, bytes);
    let root = image.root().join("tree");
    grow_by_turns(&root, 256);
    grow_by_turns(&root.join("below"), 20);
    defrag(&[], &root, 0);
    let own: u64 = fs::read_dir(&root)
        .expect("a folder")
        .map(|entry| entry.expect("one").metadata().expect("facts"))
        .filter(|facts| facts.is_file())
        .map(|facts| facts.len() / 4096)
        .sum();
    let warmed = |image: &mut Image, options: &[&str]| {
        let mut warm = onesweep(["warm", "--json"]);
        warm.args(options).arg(&root);
        let requests = trace::of_command(image, warm);
        let files = |below: &Path| {
            let entries = fs::read_dir(below).expect("a folder").map(|entry| entry.expect("one").path());
            entries.filter(|path| path.is_file()).collect::<Vec<_>>()
        };
        let cached = |below| crate::cache::pages(&files(below)).values().sum::<u64>();
        let data: Vec<_> = requests.into_iter().filter(|request| !request.metadata).collect();
        (data, cached(&root), cached(&root.join("below")))
    };
    // A kernel that reclaims what lies untouched may take pages out of memory before they are counted.
    let in_memory = |image: &mut Image, options: &[&str]| {
        let mut runs = iter::repeat_with(|| warmed(image, options)).take(5);
        runs.find(|&(_, in_memory, _)| in_memory == own).expect("all of its own files are in memory after a run")
    };
    let (joined, joined_own, joined_below) = in_memory(&mut image, &[]);
    assert!(joined_own == own && joined_below > 0);
    assert!(joined.len() * 4 <= 256, "{} requests", joined.len());
    let (all, all_own, all_below) = in_memory(&mut image, &["--queue-depth", "1"]);
    assert!(all_own == own && all_below > 0);
    assert!(all.len() >= 256, "{} requests", all.len());
    let (batch, batch_own, batch_below) = in_memory(&mut image, &["--directory"]);
    let time = |requests: &[trace::Request]| Disk::of(bytes).serve(requests).total_ms();
    say(&format!(
        "256 packed files: {} requests one after the other, {:.1} ms of disk time; in a batch {} requests, {:.1} ms",
        all.len(),
        time(&all),
        batch.len(),
        time(&batch)
    ));
    assert_eq!((batch_own, batch_below), (own, 0));
    assert!(batch.len() * 8 <= all.len(), "{} requests", batch.len());
    assert!(batch.is_sorted_by_key(|request| request.start));

    // What has no files of its own, and what is no directory.
    let empty = image.root().join("empty");
    fs::create_dir(&empty).expect("a folder");
    std::os::unix::fs::symlink("tree", image.root().join("link")).expect("a link");
    for (options, path, wanted) in [
        (&["--directory"][..], &empty, "0 of 0 files warmed"),
        (&["--directory"], &root.join("f1"), "1 of 1 files warmed"),
        (&["--directory"], &image.root().join("link"), "0 of 0 files warmed"),
        (&["--directory", "-H"], &image.root().join("link"), "256 of 256 files warmed"),
    ] {
        let out = finish(onesweep(["warm"]).args(options).arg(path), 0);
        assert!(text(&out.stdout).starts_with(wanted), "{options:?} {}: {}", path.display(), text(&out.stdout));
    }
}

fn packed_for_gnu_tar(fs: Fs, options: &[&str], part: f64) {
    let (files, bytes) = if long() { (20_000, 8 << 30) } else { (3000, 1 << 30) };
    let mut image = tree::aged(fs, files, bytes);
    let root = image.root().join("tree");
    let before = entries(&root);
    let time = |image: &mut Image| {
        let mut tar = Command::new("tar");
        tar.args(["-cf", "-", "-C"]).arg(&root).arg(".");
        let requests = trace::from_cold(image, tar);
        (Disk::of(bytes).serve(&requests).total_ms(), requests.len())
    };
    let (scattered, requests) = time(&mut image);
    let told = defrag(options, &root, 0);
    let (packed, packed_requests) = time(&mut image);
    say(&format!(
        "{} {files} files {options:?}: {} seeks, {} planned, {} now, {} MB moved in {:.1} s; GNU tar {:.1} s by {requests} requests, then \
         {:.1} s by {packed_requests}",
        fs.name(),
        seeks(&told, "before"),
        seeks(&told, "planned"),
        seeks(&told, "after"),
        told["moved_bytes"].as_u64().unwrap_or_default() / 1_000_000,
        told["seconds"].as_f64().unwrap_or_default(),
        scattered / 1000.0,
        packed / 1000.0,
    ));
    assert!(packed * part <= scattered, "{told}");
    assert!(entries(&root) == before);
    check(&mut image);
}
