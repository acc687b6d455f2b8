//! Named images that can't be read are refused in words, and never delivered as one file without any.

use std::{
    fs,
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use super::SUM;
use crate::{
    image::{Folder, Fs, Image, unmount},
    run::{finish, members, onesweep, output, root_test, run, text},
    tree::sum_lines,
};

/// An empty file system in a file that nobody has mounted.
fn empty(folder: &Folder, fs: Fs) -> PathBuf {
    let file = folder.join("b.img");
    fs::File::create(&file).and_then(|file| file.set_len(320 << 20)).expect("a sparse file");
    run(&mut fs.mkfs(&file));
    file
}

fn change(file: &Path, at: u64, change: impl FnOnce(&mut [u8; 4])) {
    let file = fs::File::options().read(true).write(true).open(file).expect("the image");
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).expect("its bytes");
    change(&mut bytes);
    file.write_all_at(&bytes, at).expect("a change");
}

fn cut(file: &Path) {
    fs::File::options().write(true).open(file).and_then(|file| file.set_len(100 << 20)).expect("it gets shorter");
}

/// What the commands say that deliver files; all end with this code.
fn told(named: &Path, options: &[&str], code: i32) -> Vec<String> {
    let command = |words: &[&str]| {
        let out = finish(onesweep(words).args(options).arg(named), code);
        assert!(code == 0 || out.stdout.is_empty(), "{words:?} {}", named.display());
        text(&out.stderr)
    };
    [&["tar", "-Pcf", "/dev/null"][..], &["list"], &["sum"]].map(command).into()
}

fn refused(named: &Path, why: &str) {
    for told in told(named, &[], 2) {
        assert!(told.contains(why) && told.contains("; --metadata walk takes it as one file"), "{told}");
        assert!(!told.contains("the files in it are read"), "{told}");
    }
    told(named, &["--metadata", "walk"], 0);
}

/// Without a hint at a copy of the superblock, which says the same.
const CUT_SHORT: &str = ": the image is cut short, or this number is damaged; --metadata walk";

#[test]
fn an_image_that_cannot_be_read_is_not_taken_as_one_file() {
    root_test!();
    type Damage = (Fs, &'static str, fn(&Path));
    let damages: [Damage; 6] = [
        (Fs::Ext4, "dirdata", |file| change(file, 1024 + 0x60, |bytes| bytes[1] |= 0x10)),
        (Fs::Ext4, "the checksum of the superblock", |file| change(file, 1024 + 0x3FC, |bytes| bytes[0] ^= 1)),
        (Fs::Ext4, CUT_SHORT, cut),
        (Fs::Xfs, "is damaged", |file| change(file, 8, |bytes| bytes[3] ^= 7)),
        (Fs::Xfs, "is damaged", |file| change(file, 100, |bytes| bytes[2] ^= 7)),
        (Fs::Xfs, CUT_SHORT, cut),
    ];
    for (fs, why, damage) in damages {
        let folder = Folder::new();
        let file = empty(&folder, fs);
        damage(&file);
        refused(&file, why);
    }
    let image = Image::new(Fs::Ext4, 64 << 20);
    refused(&image.file(), "it is mounted at");
}

#[test]
fn a_magic_by_chance_makes_no_image() {
    root_test!();
    let folder = Folder::new();
    let file = folder.join("any");
    for (at, magic) in [(1080, &b"\x53\xef"[..]), (0, b"XFSB"), (3, b"NTFS    ")] {
        let mut bytes = b"nothing of a file system ".repeat(4000);
        bytes[at..at + magic.len()].copy_from_slice(magic);
        fs::write(&file, &bytes).expect("a file");
        for said in told(&file, &[], 0) {
            assert_eq!(said, "");
        }
        let sum = finish(onesweep(SUM).arg(&file), 0);
        assert_eq!(text(&sum.stdout), text(&output(Command::new("sha256sum").arg(&file))));
    }
}

/// A boot record with the second partition from 1 MiB on.
fn divide(disk: &Path, bytes: u64) {
    let mut record = [0; 512];
    for (slot, first, sectors) in [(0, 64, 1000), (1, 2048, (bytes / 512) as u32 - 2048)] {
        let entry: &mut [u8] = &mut record[446 + 16 * slot..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&u32::to_le_bytes(first));
        entry[12..].copy_from_slice(&u32::to_le_bytes(sectors));
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(disk, record).expect("a disk");
    fs::File::options().write(true).open(disk).and_then(|file| file.set_len(bytes)).expect("its end");
}

#[test]
fn what_holds_files_and_is_taken_as_one_is_told() {
    root_test!();
    let folder = Folder::new();
    let file = folder.join("b.img");
    let say = |makes: &dyn Fn(), what: &str| {
        makes();
        for said in told(&file, &[], 0) {
            assert!(said.contains(what) && said.contains("as one file") && said.lines().count() == 1, "{said}");
        }
        for said in told(&file, &["-q"], 0) {
            assert_eq!(said, "");
        }
        assert_eq!(sum_lines(&finish(onesweep(SUM).arg(&file), 0).stdout).len(), 1);
    };
    say(&|| divide(&file, 8 << 20), "b.img@2");
    say(&|| fs::write(&file, [b"QFI\xfb\0\0\0\x03", &[0; 65_536][..]].concat()).expect("a file"), "qemu-nbd");
    let found = finish(onesweep(["find"]).arg(&file), 2);
    assert!(text(&found.stderr).contains("a qcow2 image: attach it by qemu-nbd"), "{}", text(&found.stderr));
    say(&|| drop(empty(&folder, Fs::Btrfs)), "an image of btrfs");
}

#[test]
fn an_ntfs_without_its_boot_sector_is_read_by_the_backup() {
    root_test!();
    let made = super::ntfs(40);
    fs::File::options().write(true).open(made.file()).and_then(|file| file.write_all_at(&[0; 512], 0)).expect("zeros");
    let found = finish(onesweep(["find"]).arg(made.file()), 1);
    assert_eq!(text(&found.stdout).lines().count(), made.paths.len());
    for said in told_of_damage(&made.file()).into_iter().chain([text(&found.stderr)]) {
        assert!(said.contains("the boot sector at byte 3 is damaged") && said.contains("the backup at byte"), "{said}");
    }
    let sum = finish(onesweep(SUM).arg(made.file()), 1);
    assert_eq!(sum_lines(&sum.stdout).len(), made.sums.len());
}

fn told_of_damage(file: &Path) -> Vec<String> {
    let commands = [&["tar", "-cf", "/dev/null"][..], &["list"], &["sum"]];
    commands.map(|words| text(&finish(onesweep(words).arg(file), 1).stderr)).into()
}

/// A loop device, detached at the end.
struct Attached(PathBuf);

/// Major and minor number, as `/sys` has them.
fn number(told: &str) -> Vec<&str> {
    told.trim().split(':').collect()
}

impl Attached {
    fn new(file: &Path) -> Self {
        let device = text(&output(Command::new("losetup").args(["-f", "--show"]).arg(file)));
        Self(device.trim().into())
    }

    fn named(&self, behind: &str) -> PathBuf {
        format!("{}{behind}", self.0.display()).into()
    }

    /// Makes a node for the second partition, which not every kernel looks for by itself.
    fn second_partition(&self, sectors: u64, node: &Path) {
        // A killed run leaves its own behind.
        self.delete_second_partition();
        run(Command::new("addpart").arg(&self.0).args(["2", "2048", &sectors.to_string()]));
        let name = self.0.file_name().and_then(|name| name.to_str()).expect("a name");
        let told = format!("/sys/block/{name}/{name}p2/dev");
        for _ in 0..100 {
            if let Ok(told) = fs::read_to_string(&told) {
                return run(Command::new("mknod").arg(node).arg("b").args(number(&told)));
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{told} does not come");
    }

    /// Partitions outlive the detaching of their loop device.
    fn delete_second_partition(&self) {
        let _ = Command::new("delpart").arg(&self.0).arg("2").output();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.delete_second_partition();
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

#[test]
fn a_partition_that_is_mounted_for_writing_is_refused_by_every_name() {
    root_test!();
    let folder = Folder::new();
    let (disk, root) = (folder.join("disk.img"), folder.join("mounted"));
    fs::create_dir(&root).expect("a mount point");
    divide(&disk, 64 << 20);
    let device = Attached::new(&disk);
    let partition = folder.join("partition");
    device.second_partition((63 << 20) / 512, &partition);
    run(&mut Fs::Ext4.mkfs(&partition));
    run(Command::new("mount").arg(&partition).arg(&root));
    fs::write(root.join("file"), "content").expect("a file");
    let image = PathBuf::from(format!("{}@2", disk.display()));
    let names = [image, device.named("@2"), partition];
    for name in &names {
        for command in ["find", "sum", "list"] {
            let out = finish(onesweep([command]).arg(name), 2);
            assert!(text(&out.stderr).contains("it is mounted at"), "{}", text(&out.stderr));
        }
    }
    // The other one, and the whole disk, are nobody's.
    let out = finish(onesweep(["find"]).arg(device.named("@1")), 2);
    assert!(text(&out.stderr).contains("no ext2"), "{}", text(&out.stderr));
    for command in ["find", "list"] {
        let out = finish(onesweep([command]).arg(&device.0), 2);
        let all = format!("name one of {0}@1, {0}@2", device.0.display());
        assert!(text(&out.stderr).contains(&all), "{}", text(&out.stderr));
    }
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(&root));
    for name in &names {
        assert_eq!(sum_lines(&finish(onesweep(SUM).arg(name), 0).stdout).len(), 1, "{}", name.display());
    }
    // By the place in the file alone.
    unmount(&root);
    drop(device);
    run(Command::new("mount").args(["-o", "loop,offset=1048576"]).arg(&disk).arg(&root));
    let out = finish(onesweep(["find"]).arg(&names[0]), 2);
    assert!(text(&out.stderr).contains("it is mounted at"), "{}", text(&out.stderr));
    unmount(&root);
    finish(onesweep(["find"]).arg(&names[0]), 0);
}

#[test]
fn an_image_that_is_mounted_in_user_space_is_refused() {
    root_test!();
    let made = super::ntfs(10);
    let root = made.folder.join("mounted");
    run(Command::new("ntfs-3g").arg(made.file()).arg(&root));
    for command in ["find", "sum"] {
        let out = finish(onesweep([command]).arg(made.named(":/")), 2);
        assert!(text(&out.stderr).contains("it is mounted at"), "{}", text(&out.stderr));
    }
    unmount(&root);
    finish(onesweep(["find"]).arg(made.file()), 0);
}

#[test]
fn a_link_to_a_device_is_told() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    fs::write(image.root().join("file"), "content").expect("a file");
    image.unmount();
    let link = image.beside("devlink");
    symlink(image.device(), &link).expect("a link");
    let archive = image.beside("archive.tar");
    let tar = finish(onesweep(["tar", "-cf"]).arg(&archive).arg(&link), 0);
    let copy = finish(onesweep(["copy"]).arg(&link).arg(image.beside("copied")), 0);
    let list = finish(onesweep(["list"]).arg(&link), 0);
    let sum = onesweep(["sum"]).arg(&link).output().expect("it runs");
    for said in [tar.stderr, copy.stderr, list.stderr, sum.stderr] {
        assert!(
            text(&said).contains("use --follow-roots, or name") && text(&said).contains("devlink:/"),
            "{}",
            text(&said)
        );
    }
    let inside = PathBuf::from(format!("{}:/", link.display()));
    for named in [["--follow-roots".into(), link], ["--".into(), inside]] {
        let sum = finish(onesweep(SUM).args(&named), 0);
        assert_eq!(sum_lines(&sum.stdout).len(), 1);
        finish(onesweep(["tar", "-cf"]).arg(&archive).args(&named), 0);
        let members = members(&archive);
        assert!(members.contains(&b"./file".to_vec()), "{members:?}");
    }
    image.mount();
}
