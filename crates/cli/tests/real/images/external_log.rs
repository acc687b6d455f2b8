//! XFS whose log lies on another device, which `--logdev` names.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Made, SUM, fill, made};
use crate::{
    equality::differences,
    image::{Folder, attach_loop_as},
    run::{figure, finish, onesweep, output, root_test, run, summary, text},
    tree::{sum_lines, sums},
};

/// A device of the file with the log; the kernel takes nothing else.
struct Log(PathBuf);

impl Drop for Log {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A file of this size, and a device of it.
fn log(file: &Path, bytes: u64) -> Log {
    fs::File::create(file).and_then(|file| file.set_len(bytes)).expect("a sparse file");
    Log(attach_loop_as(file, &[]))
}

fn option(log: &Log) -> OsString {
    let mut option = OsString::from("logdev=");
    option.push(&log.0);
    option
}

/// A filled file system that is unmounted; its log is the file `log`.
fn with_log(files: u64) -> (Made, Log) {
    let folder = Folder::new();
    let (file, root) = (folder.join("disk.img"), folder.join("mounted"));
    let log = log(&folder.join("log"), 64 << 20);
    fs::create_dir(&root).expect("a mount point");
    fs::File::create(&file).and_then(|file| file.set_len(400 << 20)).expect("a sparse file");
    run(Command::new("mkfs.xfs").args(["-q", "-l"]).arg(option(&log)).arg(&file));
    let mut options = OsString::from("loop,");
    options.push(option(&log));
    run(Command::new("mount").arg("-o").arg(options).arg(&file).arg(&root));
    fill(&root, files);
    fs::write(root.join("sample.jpg"), "for shards").expect("a file");
    // Where the kernel has it nothing is to be named.
    run(Command::new("sync").arg("-f").arg(&root));
    let swept = finish(onesweep(SUM).args(["--metadata", "tables"]).arg(&root), 0);
    let expected = sums(&[&root]);
    assert_eq!(differences(&expected, &sum_lines(&swept.stdout).into_iter().collect()), None);
    let found = output(onesweep(["find", "-0"]).arg(&root)).split(|byte| *byte == 0).count();
    assert_eq!(found, output(Command::new("find").arg(&root).arg("-print0")).split(|byte| *byte == 0).count());
    finish(onesweep(["layout"]).arg(&root), 0);
    (made(folder, &root), log)
}

/// The commands that read what is in an image; those that make something get a place for it.
fn reading(made: &Made, round: usize, image: &Path) -> Vec<Command> {
    let place = |name: &str| made.folder.join(&format!("{name} {round}"));
    [&["tar", "-cf", "/dev/null"][..], &["list", "-l"], &SUM, &["plan"], &["layout"], &["find"], &["copy"], &["shard"]]
        .into_iter()
        .map(|words| {
            let mut command = onesweep(words);
            command.arg(image);
            if matches!(words[0], "copy" | "shard") {
                command.arg(place(words[0]));
            }
            command
        })
        .collect()
}

#[test]
fn an_external_log_is_named() {
    root_test!();
    let (made, device) = with_log(60);
    let image = made.named(":/");
    let file = made.folder.join("log");
    let states = || [made.file(), file.clone()].map(|file| text(&output(Command::new("sha256sum").arg(file))));
    let before = states();

    for (number, mut command) in reading(&made, 0, &image).into_iter().enumerate() {
        let told = text(&finish(&mut command, 2).stderr);
        assert!(told.contains("its log is on another device") && told.contains("--logdev"), "{number}: {told}");
    }
    for (round, named) in [(1, &file), (2, &device.0)] {
        for mut command in reading(&made, round, &image) {
            finish(command.arg("--logdev").arg(named), 0);
        }
        let out = finish(onesweep(SUM).arg("--logdev").arg(named).arg(&image), 0);
        let delivered = sum_lines(&out.stdout).into_iter().collect();
        assert_eq!(differences(&made.sums_below(&made.named(":")), &delivered), None);
        assert_eq!(figure(&summary(&out.stderr), "errors"), 0);
        let whole = finish(onesweep(["list", "--logdev"]).arg(named).arg(made.file()), 0);
        assert!(text(&whole.stderr).contains("the files in it are read"), "{}", text(&whole.stderr));
    }
    assert_eq!(states(), before, "the image and its log are what they were");

    // As the second partition of a disk.
    let disk = made.folder.join("disk of the log");
    fs::File::create(&disk).and_then(|disk| disk.set_len(80 << 20)).expect("a sparse file");
    let mut record = vec![0; 512];
    for (slot, first, sectors) in [(0, 64_u32, 1000_u32), (1, 2048, (64 << 20) / 512)] {
        let entry: &mut [u8] = &mut record[446 + 16 * slot..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    let mut whole = record;
    whole.resize(1 << 20, 0);
    whole.extend(fs::read(&file).expect("the log"));
    fs::write(&disk, whole).expect("a disk");
    let part = |number: u32| format!("{}@{number}", disk.display());
    finish(onesweep(["find", "--logdev", &part(2)]).arg(&image), 0);

    let other = made.folder.join("other");
    fs::write(&other, vec![b'x'; 65 << 20]).expect("a file");
    for (named, expected) in [
        (part(1), "expected a log of 67108864 bytes"),
        (part(3), "no partition 3"),
        (format!("{}", other.display()), "it is not the log of this file system"),
        (format!("{}", made.folder.join("none").display()), "cannot open"),
    ] {
        for mut command in reading(&made, 3, &image) {
            let told = text(&finish(command.args(["--logdev", &named]), 2).stderr);
            let name = named.split('@').next().expect("a name");
            assert!(told.contains(expected) && told.contains("its log ") && told.contains(name), "{named}: {told}");
        }
    }
}
