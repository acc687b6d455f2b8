//! Partition tables by sfdisk, held against what libblkid's partx says of them.

use std::{
    fs::File,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use onesweep_layout::{
    ImageFile,
    partitions::{Partition, partitions},
};

use crate::images::skipped;

const SECTOR: u64 = 512;
const DISK_SECTORS: u64 = 256 << 11;

/// Lets sfdisk write a table by its script; false where there is no such tool.
fn made(disk: &Path, script: &str) -> bool {
    File::create(disk).and_then(|file| file.set_len(DISK_SECTORS * SECTOR)).expect("a sparse file");
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(disk).stdin(Stdio::piped());
    let Ok(mut running) = sfdisk.spawn() else {
        skipped("no sfdisk");
        return false;
    };
    running.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("a script");
    assert!(running.wait().expect("it ends").success(), "{script}");
    true
}

/// Number, first byte and bytes of each partition, by partx.
fn by_partx(disk: &Path) -> Vec<Partition> {
    let columns = ["--noheadings", "--output", "NR,START,SECTORS"];
    let out = Command::new("partx").args(columns).arg(disk).output().expect("partx runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    let lines = text.lines().map(|line| {
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [number, start, sectors] = numbers[..] else { panic!("{line}") };
        Partition { number: number as u32, start: start * SECTOR, len: sectors * SECTOR }
    });
    lines.collect()
}

fn sorted(mut partitions: Vec<Partition>) -> Vec<Partition> {
    partitions.sort_by_key(|partition| partition.number);
    partitions
}

#[test]
fn a_gpt_of_a_real_tool_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    for (script, expected) in [
        ("x1 : start=2048, size=100\nx3 : start=8192, size=8192\nx2 : start=20000, size=777\n", 3),
        ("table-length: 256\nx7 : start=4096, size=1\nx200 : start=8192, size=300000\n", 2),
    ] {
        if !made(&disk, &format!("label: gpt\n{script}")) {
            return;
        }
        let read = || sorted(partitions(&ImageFile::open(&disk).expect("a disk")).expect("a table"));
        assert_eq!(read(), by_partx(&disk), "{script}");
        assert_eq!(read().len(), expected);
        // Without its first table, by the copy that sfdisk has put at the end.
        let sound = read();
        File::options()
            .write(true)
            .open(&disk)
            .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, &[0; 512], SECTOR))
            .expect("a lost header");
        assert_eq!(read(), sound, "{script}");
    }
}

#[test]
fn logical_partitions_of_a_real_tool_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    let script =
        "label: dos\nx1 : start=2048, size=100\nx3 : start=8192, size=100000, type=5\nx4 : start=110000, size=9\n";
    let logical: String = (0..20)
        .map(|index| format!("x{} : start={}, size={}\n", 5 + index, 9000 + 4000 * index, 700 + index))
        .collect();
    if !made(&disk, &format!("{script}{logical}")) {
        return;
    }
    let agree = |expected: usize| {
        let read = sorted(partitions(&ImageFile::open(&disk).expect("a disk")).expect("a table"));
        // The extended one, which holds the logical ones, is nothing to be read.
        let told: Vec<_> = by_partx(&disk).into_iter().filter(|partition| partition.number != 3).collect();
        assert_eq!(read, told);
        assert_eq!(read.len(), expected);
    };
    agree(22);
    // What is deleted leaves a gap in the chain, and those behind it get new numbers.
    let deleted = Command::new("sfdisk").args(["--quiet", "--delete"]).arg(&disk).args(["24", "9", "5"]).status();
    assert!(deleted.expect("sfdisk runs").success());
    agree(19);
}

/// A device in a loop whose sectors have 4096 bytes, which goes when this goes.
struct Loop(std::path::PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// By the device as the kernel has it, and by its file, in which only a file system tells how long the sectors are.
#[test]
fn an_mbr_counts_by_the_sectors_of_its_disk() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root makes loop devices");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    File::create(&disk).and_then(|file| file.set_len(DISK_SECTORS * SECTOR)).expect("a sparse file");
    let out = Command::new("losetup").args(["--find", "--show", "--sector-size", "4096"]).arg(&disk).output();
    let out = out.expect("losetup runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let device = Loop(String::from_utf8(out.stdout).expect("a path").trim().into());
    let script =
        "label: dos\nx1 : start=256, size=100\nx2 : start=1000, size=9000, type=5\nx5 : start=2000, size=5000\n";
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(&device.0).stdin(Stdio::piped());
    let mut running = sfdisk.spawn().expect("sfdisk runs");
    running.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("a script");
    assert!(running.wait().expect("it ends").success());
    let read = |from: &Path| sorted(partitions(&ImageFile::open(from).expect("a disk")).expect("a table"));
    let told: Vec<_> = by_partx(&device.0).into_iter().filter(|partition| partition.number != 2).collect();
    assert_eq!(told.iter().map(|partition| partition.start).collect::<Vec<_>>(), [256 * 4096, 2000 * 4096]);
    assert_eq!(read(&device.0), told);
    drop(device);
    let offset = format!("offset={}", 2000 * 4096);
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-E", &offset]).arg(&disk).arg("20000k").status();
    assert!(made.expect("mkfs.ext4 runs").success());
    assert_eq!(read(&disk), told);
}
