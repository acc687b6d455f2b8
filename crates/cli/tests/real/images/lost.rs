//! What is in use but can't be reached by a name, and what can't be read without a key.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};

use super::SUM;
use crate::{
    image::{Folder, unmount},
    run::{finish, onesweep, root_test, run, text},
    tree::{sum_lines, sums},
};

/// An image of ext4 with files that were open without a name, and a folder that lost its own.
fn with_lost(folder: &Folder) -> PathBuf {
    let (file, root, image) = (folder.join("mounted.img"), folder.join("mounted"), folder.join("disk.img"));
    fs::create_dir(&root).expect("a mount point");
    fs::File::create(&file).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&file));
    run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&file).arg(&root));
    fs::create_dir_all(root.join("gone/below")).expect("folders");
    fs::write(root.join("gone/below/file"), "in the gone one").expect("a file");
    fs::write(root.join("there"), "there").expect("a file");
    fs::hard_link(root.join("there"), root.join("gone/link")).expect("a link");
    let open: Vec<fs::File> = (0..3)
        .map(|number| {
            let path = root.join(format!("{number}"));
            fs::write(&path, vec![b'0' + number; 5000]).expect("a file");
            let file = fs::File::open(&path).expect("the file");
            fs::remove_file(&path).expect("its name goes");
            file
        })
        .collect();
    fs::write(root.join("deleted"), "x").expect("a file");
    fs::remove_file(root.join("deleted")).expect("it goes");
    rustix::fs::syncfs(fs::File::open(&root).expect("the root")).expect("all is written");
    run(Command::new("cp").arg("--sparse=always").arg(&file).arg(&image));
    drop(open);
    unmount(&root);
    // The journal goes first, since debugfs writes past it, and with it the files that were open: so not here.
    let without = folder.join("clean.img");
    fs::copy(&file, &without).expect("a copy");
    run(Command::new("debugfs").args(["-w", "-R", "unlink gone"]).arg(&without));
    image
}

fn named(image: &Path, inside: &str) -> PathBuf {
    PathBuf::from(format!("{}{inside}", image.display()))
}

/// Paths that a command lists, without the name of the image.
fn listed(arguments: &[&str], image: &Path) -> Vec<String> {
    listed_with(0, arguments, image)
}

/// The same where the run ends with that code.
fn listed_with(code: i32, arguments: &[&str], image: &Path) -> Vec<String> {
    let out = finish(onesweep(arguments.iter().copied()).arg(named(image, ":/")), code).stdout;
    let prefix = format!("{}:/", image.display());
    let mut paths: Vec<String> =
        text(&out).split('\0').filter_map(|path| path.strip_prefix(&prefix)).map(str::to_owned).collect();
    paths.sort();
    paths
}

#[test]
fn what_has_no_name_is_listed_when_asked_for() {
    root_test!();
    let folder = Folder::new();
    let image = with_lost(&folder);
    for limit in [&[][..], &["--catalog-limit", "4K"]] {
        let list = [&["list", "-0"][..], limit].concat();
        assert_eq!(listed(&list, &image), ["gone/below/file", "gone/link", "there"]);
        let lost = listed(&[&list[..], &["--lost"]].concat(), &image);
        let orphans: Vec<&String> = lost.iter().filter(|path| path.starts_with("lost/")).collect();
        assert_eq!((lost.len(), orphans.len()), (6, 3), "{lost:?}");
    }
    assert_eq!(listed(&["find", "-0", "--lost", "--name", "lost"], &image), ["lost"]);
    assert_eq!(listed(&["find", "-0", "--lost"], &image).len(), listed(&["find", "-0"], &image).len() + 4);
    for made in [&image, &folder.join("clean.img")] {
        let limited = listed(&["find", "-0", "--lost", "--catalog-limit", "1K"], made);
        assert_eq!(limited, listed(&["find", "-0", "--lost"], made));
    }
    // Delivered deleted.
    let archive = folder.join("archive.tar");
    finish(onesweep(["tar", "--lost", "-cf"]).arg(&archive).arg(&image), 0);
    let extracted = folder.join("extracted");
    fs::create_dir(&extracted).expect("a folder");
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&extracted));
    let copied = folder.join("copied");
    finish(onesweep(["copy", "--lost"]).arg(named(&image, ":/")).arg(&copied), 0);
    for root in [extracted, copied] {
        let mut contents: Vec<Vec<u8>> = fs::read_dir(root.join("lost"))
            .expect("a folder")
            .map(|entry| fs::read(entry.expect("an entry").path()).expect("a file"))
            .collect();
        contents.sort();
        assert_eq!(contents, [vec![b'0'; 5000], vec![b'1'; 5000], vec![b'2'; 5000]]);
        assert_eq!(fs::read(root.join("there")).expect("a file"), b"there");
    }

    let clean = folder.join("clean.img");
    for limit in [&[][..], &["--catalog-limit", "4K"]] {
        let list = [&["list", "-0"][..], limit].concat();
        assert_eq!(listed(&list, &clean), ["there"]);
        let lost = listed(&[&list[..], &["--lost"]].concat(), &clean);
        let number = lost[0].split('/').nth(1).expect("a number").to_owned();
        let below = |name: &str| format!("lost/{number}/{name}");
        assert_eq!(lost, [below("below/file"), below("link"), "there".to_owned()]);
    }
    let found = listed(&["find", "-0", "--lost"], &clean);
    assert!(found.iter().any(|path| path.starts_with("lost/") && path.ends_with("/below/file")), "{found:?}");
    let of_one = |options: &[&str]| {
        let lost = listed(&["list", "-0", "--lost"], &clean);
        let inside = named(&clean, &format!(":/{}", lost[0]));
        sum_lines(&finish(onesweep(SUM).args(["--lost"]).args(options).arg(inside), 0).stdout)[0].1.clone()
    };
    assert_eq!(of_one(&[]), of_one(&["--catalog-limit", "4K"]));
}

/// Makes and fills an image: a directory `gone` with a file and a link below, and the file `there` that is linked. The inodes of
/// both.
fn with_gone(image: &Path, root: &Path, mkfs: &mut Command, mount: &mut Command) -> (u64, u64) {
    fs::create_dir(root).expect("a mount point");
    fs::File::create(image).and_then(|file| file.set_len(320 << 20)).expect("a sparse file");
    run(mkfs.arg(image));
    run(mount.arg(image).arg(root));
    fs::create_dir_all(root.join("gone/below")).expect("folders");
    fs::write(root.join("gone/below/file"), "in the gone one").expect("a file");
    fs::write(root.join("there"), "there").expect("a file");
    fs::hard_link(root.join("there"), root.join("gone/link")).expect("a link");
    let inode = |name: &str| fs::metadata(root.join(name)).expect("an inode").ino();
    let inodes = (inode("gone"), inode("there"));
    unmount(root);
    inodes
}

/// What comes of the file below `gone` when it is delivered.
fn delivers_what_was_lost(code: i32, image: &Path, path: &str, folder: &Folder) {
    let copied = folder.join("copied");
    finish(onesweep(["copy", "--lost"]).arg(named(image, ":/")).arg(&copied), code);
    assert_eq!(fs::read(copied.join(path)).expect("the lost file"), b"in the gone one");
    assert_eq!(fs::read(copied.join("there")).expect("a file"), b"there");
}

/// An entry of the root leads elsewhere, so nothing leads to the directory that it named.
#[test]
fn what_xfs_has_lost_is_listed_when_asked_for() {
    root_test!();
    let folder = Folder::new();
    let (image, root) = (folder.join("disk.img"), folder.join("mounted"));
    let (mut mkfs, mut mount) = (Command::new("mkfs.xfs"), Command::new("mount"));
    let (gone, there) = with_gone(&image, &root, mkfs.arg("-q"), mount.args(["-t", "xfs", "-o", "loop"]));
    let entry = format!("write u3.sfdir3.list[0].inumber.i4 {there}");
    run(Command::new("xfs_db").args(["-x", "-c", "sb 0", "-c", "addr rootino", "-c", &entry]).arg(&image));
    for limit in [&[][..], &["--catalog-limit", "4K"]] {
        let list = [&["list", "-0"][..], limit].concat();
        assert_eq!(listed(&list, &image), ["gone", "there"]);
        let lost = listed(&[&list[..], &["--lost"]].concat(), &image);
        let below = |name: &str| format!("lost/{gone}/{name}");
        assert_eq!(lost, ["gone".to_owned(), below("below/file"), below("link"), "there".to_owned()]);
    }
    assert!(listed(&["find", "-0", "--lost"], &image).contains(&format!("lost/{gone}/below")));
    delivers_what_was_lost(0, &image, &format!("lost/{gone}/below/file"), &folder);
}

/// The record of a directory isn't in use any more, so what it held is told as damage, and found when it is asked for.
#[test]
fn what_ntfs_has_lost_is_listed_when_asked_for() {
    root_test!();
    let folder = Folder::new();
    let (image, root) = (folder.join("disk.img"), folder.join("mounted"));
    let (mut mkfs, mut mount) = (Command::new("mkntfs"), Command::new("ntfs-3g"));
    let (gone, _) = with_gone(&image, &root, mkfs.args(["-QFq", "-s512", "-p0", "-H0", "-S0", "-c4096"]), &mut mount);
    let disk = fs::File::options().read(true).write(true).open(&image).expect("the image");
    let mut first_cluster = [0; 8];
    disk.read_exact_at(&mut first_cluster, 48).expect("the cluster of $MFT");
    let record = u64::from_le_bytes(first_cluster) * 4096 + gone * 1024;
    let mut start = [0; 24];
    disk.read_exact_at(&mut start, record).expect("the record");
    assert!(start.starts_with(b"FILE") && start[22] & 1 == 1, "a record in use");
    disk.write_all_at(&[start[22] & !1], record + 22).expect("a flag");
    for limit in [&[][..], &["--catalog-limit", "4K"]] {
        let list = [&["list", "-0"][..], limit].concat();
        assert_eq!(listed_with(1, &list, &image), ["there"]);
        let lost = listed_with(1, &[&list[..], &["--lost"]].concat(), &image);
        assert_eq!(lost, [format!("lost/{}/file", gone + 1), "there".to_owned()]);
    }
    delivers_what_was_lost(1, &image, &format!("lost/{}/file", gone + 1), &folder);
}

/// A whole image with everything named gains nothing.
#[test]
fn nothing_is_lost_in_a_sound_image() {
    root_test!();
    for made in
        [super::of_kernel(crate::image::Fs::Ext4, 30), super::of_kernel(crate::image::Fs::Xfs, 30), super::ntfs(30)]
    {
        let without = listed(&["find", "-0"], &made.file());
        assert_eq!(listed(&["find", "-0", "--lost"], &made.file()), without);
        let list = |options: &[&str]| listed(&[&["list", "-0", "--all"][..], options].concat(), &made.file());
        assert_eq!(list(&["--lost"]), list(&[]));
        assert_eq!(list(&["--lost", "--catalog-limit", "4K"]), list(&[]));
    }
}

/// ext4 has no use for the content without its key, so the file is an error; its name comes as the kernel shows it.
#[test]
fn encrypted_files_of_ext4_need_their_key() {
    root_test!();
    let folder = Folder::new();
    let (image, root) = (folder.join("disk.img"), folder.join("mounted"));
    fs::create_dir(&root).expect("a mount point");
    fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-O", "encrypt"]).arg(&image));
    let mount = |options: &str| {
        run(Command::new("mount").args(["-t", "ext4", "-o", &format!("loop,{options}")]).arg(&image).arg(&root));
    };
    mount("rw");
    fs::write(root.join("open"), "open").expect("a file");
    unmount(&root);
    mount("test_dummy_encryption");
    fs::create_dir(root.join("secret")).expect("a folder");
    fs::write(root.join("secret/file"), vec![b's'; 10_000]).expect("a file");
    fs::write(root.join("secret/empty"), "").expect("a file");
    unmount(&root);
    mount("ro");
    let shown: Vec<String> = fs::read_dir(root.join("secret"))
        .map(|entries| {
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    assert_eq!(shown.len(), 2, "{shown:?}");
    let open = sums(&[&root.join("open")]);
    unmount(&root);
    for large in ["256M", "4K"] {
        let out = finish(onesweep(SUM).args(["--large", large]).arg(named(&image, ":/")), 1);
        let delivered = sum_lines(&out.stdout);
        assert_eq!(delivered.len(), 1, "{}", text(&out.stderr));
        assert_eq!(Some(&delivered[0].1), open.values().next());
        assert_eq!(text(&out.stderr).matches("it is encrypted, and its key is not here").count(), 2);
        for name in &shown {
            assert!(text(&out.stderr).contains(name), "{name}: {}", text(&out.stderr));
        }
    }
}
