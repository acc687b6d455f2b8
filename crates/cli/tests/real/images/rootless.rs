//! Images of which inodes are gone that names lead to, the root directory among them: what is left comes, and what is missing is
//! told, by `find` as by the sweep.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::SUM;
use crate::{
    image::Folder,
    run::{finish, onesweep, output, root_test, run, text},
};

/// Paths and contents of what is in each image.
const FILES: [(&str, &str); 4] =
    [("a", "in the root"), ("dir/b", "below"), ("dir/in/c", "further below"), ("other/d", "beside")];

struct Made {
    folder: Folder,
    image: PathBuf,
}

impl Made {
    fn debugfs(&self, request: &str) -> String {
        text(&output(Command::new("debugfs").args(["-w", "-R", request]).arg(&self.image)))
    }

    fn ran(&self, words: &[&str], more: &[&str], code: i32) -> Output {
        finish(onesweep(words).args(more).arg(&self.image), code)
    }

    /// Paths inside of files that were summed.
    fn summed(&self, out: &Output) -> Vec<String> {
        let prefix = format!("{}:/", self.image.display());
        let mut paths: Vec<String> = text(&out.stdout)
            .lines()
            .map(|line| line[66..].strip_prefix(&prefix).expect("a path of the image").to_owned())
            .collect();
        paths.sort();
        paths
    }

    fn found(&self, out: &Output) -> Vec<String> {
        let prefix = format!("{}:/", self.image.display());
        text(&out.stdout).lines().map(|line| line.strip_prefix(&prefix).expect("a path").to_owned()).collect()
    }
}

/// The files of [`FILES`] as their file system, which mkfs fills.
fn ext4() -> Made {
    let folder = Folder::new();
    let image = folder.join("disk.img");
    for (path, content) in FILES {
        let path = folder.join("tree").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }
    File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("a sparse file");
    // Four inodes in a block, so that the root has one for itself and its like.
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "4096", "-I", "1024", "-d"])
        .arg(folder.join("tree"))
        .arg(&image));
    Made { folder, image }
}

fn tells(out: &Output, what: &str) {
    let told = text(&out.stderr);
    assert!(told.contains(what), "{what:?} is not in {told}");
}

/// All memory there is, and hardly any, in which tables are gone over part by part.
const LIMITS: [&[&str]; 2] = [&[], &["--catalog-limit", "1K"]];

#[test]
fn names_of_inodes_that_are_gone_are_told() {
    root_test!();
    let made = ext4();
    // "Inode 12 is part of block group 0 / located at block 7, offset 0x0b00".
    let place = made.debugfs("imap dir/in/c");
    let block = place.split("block ").last().and_then(|rest| rest.split(',').next()).expect("a block").trim();
    let block: u64 = block.parse().expect("a number");
    let all = made.found(&made.ran(&["find"], &[], 0)).len();
    run(Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "count=1", "conv=notrunc", "status=none"])
        .args([format!("of={}", made.image.display()), format!("seek={block}")]));
    for limit in LIMITS {
        let found = made.ran(&["find"], limit, 1);
        assert!(made.found(&found).len() < all);
        tells(&found, "names, at byte");
        tells(&found, "expected an inode in use, found none");
        tells(&made.ran(&SUM, limit, 1), "expected an inode in use, found none");
    }

    let made = ext4();
    made.debugfs("clri dir");
    for limit in LIMITS {
        let (found, summed) = (made.ran(&["find"], limit, 1), made.ran(&SUM, limit, 1));
        assert_eq!(made.summed(&summed), ["a", "other/d"]);
        for out in [found, summed] {
            tells(&out, "which directory 2 names, at byte");
        }
        let lost = made.summed(&made.ran(&SUM, &[limit, &["--lost"]].concat(), 1));
        assert_eq!(lost.len(), 4, "{lost:?}");
        assert!(lost.iter().any(|path| path.starts_with("lost/") && path.ends_with("/c")), "{lost:?}");
    }
}

fn without_root(made: &Made, told: &str) {
    for limit in LIMITS {
        for words in [&["find"][..], &SUM] {
            let out = made.ran(words, limit, if words == ["find"] { 2 } else { 1 });
            assert_eq!(text(&out.stdout), "");
            tells(&out, told);
            tells(&out, "--lost");
        }
        let with_lost = [limit, &["--lost"]].concat();
        let (found, summed) = (made.ran(&["find"], &with_lost, 1), made.ran(&SUM, &with_lost, 1));
        let (found, summed) = (made.found(&found), made.summed(&summed));
        assert_eq!(summed.len(), FILES.len(), "{summed:?}");
        for path in summed {
            assert!(found.contains(&path), "{path} is not in {found:?}");
        }
        tells(&made.ran(&["find"], &with_lost, 1), told);
    }
}

#[test]
fn what_is_left_without_a_root_directory_is_lost() {
    root_test!();
    let told = "inode 2, the root directory, at byte";
    let made = ext4();
    made.debugfs("clri <2>");
    without_root(&made, told);
    let mut inside = made.image.clone().into_os_string();
    inside.push(":/dir");
    tells(&finish(onesweep(SUM).arg(&inside), 1), told);

    // In use, and no directory.
    let made = ext4();
    made.debugfs("sif <2> mode 0100644");
    without_root(&made, told);

    let made = ext4();
    xfs(&made.folder.join("prototype"), &made);
    without_root(&made, "the root directory, at byte");
}

/// Puts an XFS in the place of the image whose root directory is no more.
fn xfs(prototype: &Path, made: &Made) {
    let source = |path: &str| made.folder.join("tree").join(path).display().to_string();
    let file = |name: &str, path: &str| format!("{name} ---644 0 0 {}\n", source(path));
    let [a, b, c, d] = [file("a", "a"), file("b", "dir/b"), file("c", "dir/in/c"), file("d", "other/d")];
    let dirs = format!("dir d--755 0 0\n{b}in d--755 0 0\n{c}$\n$\nother d--755 0 0\n{d}$\n");
    fs::write(prototype, format!("/\n0 0\nd--755 0 0\n{a}{dirs}$\n")).expect("a prototype");
    fs::remove_file(&made.image).expect("the other one");
    File::create(&made.image).and_then(|file| file.set_len(320 << 20)).expect("a sparse file");
    run(Command::new("mkfs.xfs").args(["-q", "-p"]).arg(prototype).arg(&made.image));
    run(Command::new("xfs_db").args(["-x", "-c", "inode 128", "-c", "write -d core.mode 0"]).arg(&made.image));
}
