//! Directories and inodes that the disk can't give back.

use std::{fs, os::unix::fs::FileExt, path::Path, process::Command};

use onesweep_summary::summaries::Freshness;

use crate::{
    image::{Fs, Image},
    run::{finish, onesweep, output, root_test, run, text},
    tracked::{ask, tracked},
    tree::Rng,
};

/// With nothing of it in memory the kernel can't open it by its number, for it looks into it for the directory above, and says that it is gone.
#[test]
fn it_is_told_by_who_comes_to_it_cold() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    let broken = image.root().join("above/broken");
    fs::create_dir_all(&broken).expect("directories");
    fs::write(broken.join("file"), [1; 40_960]).expect("a file");
    let blocks = |image: &Image| {
        let told = output(Command::new("debugfs").args(["-R", "blocks /above/broken"]).arg(image.file()));
        text(&told).trim().parse::<u64>().expect("one block") * 4096
    };
    damage(&mut image, blocks, 4096);

    let mut tracked = tracked(&image);
    let answer = ask(&mut tracked, &image.root(), Freshness::Exact);
    assert_eq!(answer.unreadable, 1, "{answer:?}");
    assert_eq!(answer.totals.sums.files, 0, "{answer:?}");
}

/// Whoever does something with each name, as a scanner does, would take one of which nothing is said for done.
#[test]
fn each_name_of_a_file_that_cannot_be_read_is_told() {
    root_test!();
    let mut image = Image::new(Fs::Btrfs, 256 << 20);
    let tree = image.root().join("tree");
    let names = ["a/first", "a/second", "b/third", "b/fourth"].map(|name| tree.join(name));
    for dir in ["a", "b"] {
        fs::create_dir_all(tree.join(dir)).expect("directories");
        fs::write(tree.join(dir).join("whole"), "whole").expect("a file");
    }
    let content = Rng::new(31).bytes(40_960);
    fs::write(&names[0], &content).expect("a file");
    names[1..].iter().for_each(|name| fs::hard_link(&names[0], name).expect("a link"));
    // The checksum of what lies there is another one then.
    let place = |image: &Image| {
        let disk = fs::read(image.file()).expect("the disk");
        let mut blocks = disk.chunks(4096);
        4096 * blocks.position(|block| block == &content[..4096]).expect("its place") as u64
    };
    damage(&mut image, place, 4096);
    assert!(fs::read(&names[0]).is_err());
    for order in ["fragment", "directory"] {
        let commands: [(&[&str], i32); 3] =
            [(&["sum"], 1), (&["tar", "-cf", "/dev/null"], 1), (&["scan", "--command", "true"], 2)];
        for (words, code) in commands {
            let mut command = onesweep(words);
            let out = finish(command.args(["-q", "--order", order]).arg(&tree), code);
            let said = text(&out.stderr);
            for name in &names {
                let told = said.lines().filter(|line| line.contains(name.to_str().expect("text"))).count();
                assert_eq!(told, 1, "{words:?}, {order}, {}: {said}", name.display());
            }
            assert!(!said.contains("whole"), "{said}");
        }
    }
}

/// Overwrites bytes where the disk has them that `place` tells, with nothing of it left in memory.
fn damage(image: &mut Image, place: impl FnOnce(&Image) -> u64, bytes: usize) {
    image.unmount();
    let at = place(image);
    let device = fs::File::options().write(true).open(image.device()).expect("the device");
    device.write_all_at(&vec![0xff; bytes], at).expect("damage");
    device.sync_all().expect("damage");
    drop(device);
    run(Command::new("blockdev").arg("--flushbufs").arg(image.device()));
    image.mount();
}

/// Where the inode of a path lies.
fn inode(image: &Image, path: &str) -> u64 {
    let told = output(Command::new("debugfs").args(["-R", &format!("imap {path}")]).arg(image.file()));
    let told = text(&told);
    let (_, place) = told.split_once("located at block ").expect("a place");
    let (block, offset) = place.trim().split_once(", offset 0x").expect("a place");
    let offset = u64::from_str_radix(offset, 16).expect("an offset");
    block.parse::<u64>().expect("a block") * 4096 + offset
}

/// What a du says of the blocks of a directory of which it can't look at all, and of what it can't.
fn blocks(mut du: Command, path: &Path, broken: &str) -> i64 {
    let told = du.args(["-s", "-B512"]).arg(path).output().expect("du");
    assert_eq!(told.status.code(), Some(1), "{du:?}: {}", text(&told.stderr));
    assert!(text(&told.stderr).contains(broken), "{du:?}: {}", text(&told.stderr));
    text(&told.stdout).split('\t').next().expect("a size").parse().expect("blocks")
}

/// As GNU du leaves out that one, and what is below it where it is a directory; not all that lies beside it.
#[test]
fn what_lies_beside_a_damaged_inode_counts() {
    root_test!();
    for broken in ["file", "directory"] {
        let mut image = Image::new(Fs::Ext4, 64 << 20);
        let above = image.root().join("above");
        fs::create_dir_all(above.join("directory/below")).expect("directories");
        fs::create_dir_all(above.join("whole/below")).expect("directories");
        for name in ["file", "another", "directory/below/file", "whole/below/file"] {
            fs::write(above.join(name), [1; 40_960]).expect("a file");
        }
        damage(&mut image, |image| inode(image, &format!("/above/{broken}")), 256);

        let mut tracked = tracked(&image);
        let answer = ask(&mut tracked, &above, Freshness::Exact);
        assert_eq!(answer.unreadable, 1, "{answer:?}");
        let why: Vec<_> = tracked.unreadable(tracked.root()).map(|(_, why)| why.to_owned()).collect();
        let is_named =
            why[0].starts_with(&format!("{broken:?} in it can't be looked at: ")) && !why[0].contains("os error");
        assert!(why.len() == 1 && is_named, "{why:?}");
        let gnu = || blocks(Command::new("du"), &above, broken);
        assert_eq!(answer.totals.sums.blocks, gnu(), "{broken}: {answer:?}");
        // What changes beside it is told as ever.
        fs::write(above.join("later"), [1; 40_960]).expect("a file");
        let answer = ask(&mut tracked, &above, Freshness::Synced);
        assert_eq!((answer.totals.sums.blocks, answer.unreadable), (gnu(), 1), "{broken}: {answer:?}");
        // Without a server it is walked.
        assert_eq!(blocks(onesweep(["du", "--socket", "/nowhere"]), &above, broken), gnu(), "{broken}");
    }
}
