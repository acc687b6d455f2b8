//! Files are moved side by side when they were written, by the mover of `onesweep serve`.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    image::{Fs, Image},
    run::{onesweep, output, root_test, run, text},
    summaries::Serving,
    tree,
};

const FILES: u64 = 60;

/// Files of 6 blocks that grew by turns, so that each lies in as many pieces, and its map in a block of its own.
fn scatter(root: &Path) {
    fs::create_dir_all(root).expect("a folder");
    for block in 0..6 {
        for number in 0..FILES {
            let path = root.join(format!("f{number}"));
            let file = File::options().create(true).truncate(false).write(true).open(path).expect("a file");
            file.write_all_at(&[number as u8; 4096], block * 4096).expect("growth");
        }
        tree::sync(root);
    }
}

fn seeks(root: &Path) -> u64 {
    let told = output(onesweep(["defrag", "--dry-run", "--json"]).arg(root));
    let told: Value = serde_json::from_slice(&told).expect("JSON");
    told["before"]["seeks"].as_u64().expect("a number")
}

fn serving(image: &Image, relocate: &str) -> Serving {
    // Whatever else this machine does meanwhile.
    let at_once = "--relocate-after 1s --relocate-budget 0 --relocate-pressure 100 --log debug";
    let options: Vec<&OsStr> = ["--relocate", relocate].into_iter().chain(at_once.split(' ')).map(OsStr::new).collect();
    Serving::start_with(&[image], &options)
}

fn blocks(du: &mut Command) -> String {
    text(&output(du)).split('\t').next().expect("a number").to_owned()
}

fn a_written_directory_is_put_in_order(fs: Fs) {
    let image = Image::new(fs, 512 << 20);
    let directory = image.root().join("d");
    scatter(&directory);
    let (sums, before) = (tree::sums(&[&directory]), seeks(&directory));
    let serving = serving(&image, "always");
    run(&mut serving.du(&["-s"], &image.root()));
    while seeks(&directory) * 4 > before {
        // Others may have emptied the page cache of the whole machine, and only what is in it is moved.
        tree::sums(&[&directory]);
        let file = OpenOptions::new().write(true).open(directory.join("f7"));
        file.and_then(|mut file| file.write_all(&[7])).expect("a write");
        tree::sync(&directory);
        thread::sleep(Duration::from_secs(3));
    }
    // A last region may be on its way.
    let ours = || blocks(&mut serving.du(&["-s"], &directory));
    let theirs = || blocks(Command::new("du").arg("-s").arg(&directory));
    while ours() != theirs() {
        thread::sleep(Duration::from_millis(100));
    }
    let said = serving.end();
    assert!(said.contains("directories are put in order when files in them were written"), "{said}");
    assert!(said.contains("files moved side by side"), "{said}");
    assert_eq!(tree::sums(&[&directory]), sums);
}

#[test]
fn a_written_directory_is_put_in_order_on_ext4() {
    root_test!();
    a_written_directory_is_put_in_order(Fs::Ext4);
}

#[test]
fn a_written_directory_is_put_in_order_on_xfs() {
    root_test!();
    a_written_directory_is_put_in_order(Fs::Xfs);
}

#[test]
fn what_can_not_be_moved_is_told_and_tracked_all_the_same() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 256 << 20);
    let serving = serving(&image, "always");
    run(&mut serving.du(&["-s"], &image.root()));
    let said = serving.end();
    assert!(said.contains("nothing is moved there: its file system is btrfs"), "{said}");
}
