//! XFS with files on a realtime device, which `--rtdev` names. Kernels may be made without; so mkfs.xfs fills the image, xfs_db
//! gives some of its files to the realtime device, and xfs_repair says whether that is how such a file is told.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::SUM;
use crate::{
    image::Folder,
    run::{figure, finish, onesweep, output, root_test, run, summary, text},
};

const BLOCK: u64 = 4096;
/// By their paths: those that come to lie on the realtime device. `d/e` has its number from the second group of the data device.
const MOVED: [&str; 3] = ["b", "c", "d/e"];

struct Made {
    folder: Folder,
    image: PathBuf,
    realtime: PathBuf,
}

/// Each file, as `sha256sum` has it.
fn expected(made: &Made, is_there: impl Fn(&str) -> bool) -> String {
    let sources = [("a", "small"), ("b", "large"), ("c", "small"), ("d/e", "large"), ("d/f", "small")];
    let mut lines: Vec<_> = sources
        .into_iter()
        .filter(|(name, _)| is_there(name))
        .map(|(name, source)| {
            let sum = text(&output(Command::new("sha256sum").arg(made.folder.join(source))));
            format!("{}  {}:/{name}\n", &sum[..64], made.image.display())
        })
        .collect();
    lines.sort();
    lines.concat()
}

fn sorted(listed: &[u8]) -> String {
    let listed = text(listed);
    let mut lines: Vec<_> = listed.lines().collect();
    lines.sort_unstable();
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// With a realtime device of so many MiB; none of the files lies there.
fn made(mebibytes: u64) -> Made {
    let folder = Folder::new();
    let (image, realtime) = (folder.join("disk.img"), folder.join("realtime.img"));
    let content =
        |seed: u64, length: u64| (0..length).map(|at| ((at + seed) * 0x9e37_79b9).to_be_bytes()[4]).collect::<Vec<_>>();
    fs::write(folder.join("small"), content(1, 5_000)).expect("a file");
    fs::write(folder.join("large"), content(2, 3_000_000)).expect("a file");
    let (small, large) = (folder.join("small"), folder.join("large"));
    let (small, large) = (small.display(), large.display());
    let files = format!("a ---640 1 2 {small}\nb ---640 1 2 {large}\nc ---640 1 2 {small}\n");
    let below = format!("d d--755 0 0\ne ---600 0 0 {large}\nf ---600 0 0 {small}\n$\n");
    let prototype = folder.join("prototype");
    fs::write(&prototype, format!("/\n0 0\nd--755 3 4\n{files}{below}$\n")).expect("a prototype");
    for (file, mebibytes) in [(&image, 320), (&realtime, mebibytes)] {
        File::create(file).and_then(|file| file.set_len(mebibytes << 20)).expect("a sparse file");
    }
    let device = format!("rtdev={}", realtime.display());
    run(Command::new("mkfs.xfs").arg("-q").arg("-p").arg(&prototype).args(["-r", &device]).arg(&image));
    Made { folder, image, realtime }
}

/// The blocks keep their numbers, which on the realtime device count from its start, and other bytes come to their old places.
fn give_to_realtime(image: &Path, realtime: &Path, name: &str) {
    let xfs_db = |commands: &[&str]| {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        text(&output(Command::new("xfs_db").arg("-x").args(commands).arg(image)))
    };
    let path = format!("path /{name}");
    let map = xfs_db(&[&path, "bmap"]);
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        words.map(|word| word.parse().expect("a number")).collect()
    };
    let (from, to) = (File::options().read(true).write(true).open(image), File::options().write(true).open(realtime));
    let (from, to) = (from.expect("the image"), to.expect("the device"));
    let facts = xfs_db(&["sb 0", "print agblocks"]);
    let group_blocks = numbers(&facts)[0];
    for line in map.lines().filter(|line| line.contains("startblock")) {
        let [_, number, group, block, count, _] = numbers(line)[..] else { panic!("xfs_db says {line}") };
        let mut bytes = vec![0; (count * BLOCK) as usize];
        let place = (group * group_blocks + block) * BLOCK;
        from.read_exact_at(&mut bytes, place).expect("content");
        to.write_all_at(&bytes, number * BLOCK).expect("content");
        from.write_all_at(&vec![0xee; bytes.len()], place).expect("other content");
    }
    xfs_db(&[&path, "write core.realtime 1"]);
}

#[test]
fn files_of_a_realtime_device_are_read_where_it_is_named() {
    root_test!();
    let made = made(256);
    for name in MOVED {
        give_to_realtime(&made.image, &made.realtime, name);
    }
    let repair = |mode: &[&str]| {
        finish(Command::new("xfs_repair").args(mode).arg("-r").arg(&made.realtime).arg(&made.image), 0);
    };
    // The bitmap of the realtime device comes to know of the files; then nothing is wrong.
    repair(&[]);
    repair(&["-n"]);
    let states = || [&made.image, &made.realtime].map(|file| text(&output(Command::new("sha256sum").arg(file))));
    let before = states();
    let with = |words: &[&str]| {
        let mut command = onesweep(words);
        command.arg("--rtdev").arg(&made.realtime).arg(&made.image);
        command
    };

    let ways: [&[&str]; 5] =
        [&[], &["--order", "fragment"], &["--order", "inode"], &["--large", "64K"], &["--budget", "1M"]];
    for way in ways {
        let out = finish(&mut with(&[&SUM, way].concat()), 0);
        assert_eq!(sorted(&out.stdout), expected(&made, |_| true), "{way:?}");
        assert_eq!(figure(&summary(&out.stderr), "errors"), 0);
    }
    finish(with(&["copy"]).arg(made.folder.join("copy")), 0);
    let copied = made.folder.join("copy");
    run(Command::new("cmp").arg(made.folder.join("large")).arg(copied.join("d/e")));
    run(Command::new("cmp").arg(made.folder.join("small")).arg(copied.join("d/f")));
    finish(with(&["tar"]).arg("-cf").arg(made.folder.join("archive")), 0);
    let mut extract = Command::new("tar");
    extract.arg("-xOf").arg(made.folder.join("archive")).args(["--wildcards", "*c"]);
    assert_eq!(output(&mut extract), fs::read(made.folder.join("small")).expect("a file"));
    for words in [&["plan"][..], &["find"], &["list", "-l"], &["layout"]] {
        finish(&mut with(words), 0);
    }

    // Without it, each of these files is told, and all others come.
    let out = finish(onesweep(SUM).arg(&made.image), 1);
    assert_eq!(sorted(&out.stdout), expected(&made, |name| !MOVED.contains(&name)));
    let told = text(&out.stderr);
    for name in MOVED {
        assert!(
            told.lines().any(|line| line.contains(&format!("disk.img:/{name}:")) && line.contains("--rtdev")),
            "{told}"
        );
    }

    let small = made.folder.join("small");
    for (named, says) in [(small.as_path(), "5000 bytes"), (Path::new("/none"), "cannot open")] {
        let told = text(&finish(onesweep(SUM).arg("--rtdev").arg(named).arg(&made.image), 2).stderr);
        let name = named.display().to_string();
        assert!(told.contains("its realtime device ") && told.contains(says) && told.contains(&name), "{told}");
    }
    assert_eq!(states(), before, "the image and its realtime device are what they were");
}

#[test]
fn a_place_beyond_a_realtime_device_is_told() {
    root_test!();
    // Numbers of the second group are beyond.
    let made = made(64);
    give_to_realtime(&made.image, &made.realtime, "d/e");
    let out = finish(onesweep(SUM).arg("--rtdev").arg(&made.realtime).arg(&made.image), 1);
    assert_eq!(sorted(&out.stdout), expected(&made, |name| name != "d/e"));
    assert!(text(&out.stderr).contains("expected blocks of the realtime device"), "{}", text(&out.stderr));
}
