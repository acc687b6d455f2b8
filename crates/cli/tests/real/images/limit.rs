//! What is kept of an image's names stays within the limit, and is told completely all the same.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    image::{Folder, unmount},
    run::{finish, long, program, root_test, run, say, text},
};

const LIMIT: u64 = 2 << 20;
/// What a reader has in memory: requests of at most 4 MiB for inodes and for directories, and what the allocator keeps of them.
const READ: u64 = 12 << 20;

/// An ext4 with so many empty files of long names.
fn with_files(folder: &Folder, name: &str, files: u64) -> PathBuf {
    let (image, root) = (folder.join(name), folder.join(&format!("{name} mounted")));
    fs::create_dir(&root).expect("a mount point");
    fs::File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-N", "300000"]).arg(&image));
    run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(&root));
    for number in 0..files {
        let folder = root.join(format!("folder {}", number % 16));
        if number < 16 {
            fs::create_dir(&folder).expect("a folder");
        }
        fs::File::create(folder.join(format!("{number} {}", "long ".repeat(38)))).expect("a file");
    }
    unmount(&root);
    image
}

/// What a command writes, and the most memory that it had.
fn peak(arguments: &[&str], image: &Path) -> (Vec<u8>, u64) {
    let mut command = Command::new("time");
    command.args(["--quiet", "--format", "peak %M"]).arg(program()).args(arguments).arg(image);
    let out = finish(&mut command, 0);
    let said = text(&out.stderr);
    let kib = said.lines().find_map(|line| line.strip_prefix("peak ")).expect("a figure");
    (out.stdout, kib.parse::<u64>().expect("a number") << 10)
}

/// Beside what the program takes when there are no files.
#[test]
fn names_of_an_image_stay_within_the_limit() {
    root_test!();
    let folder = Folder::new();
    let files = if long() { 250_000 } else { 40_000 };
    let (empty, full) = (with_files(&folder, "empty.img", 16), with_files(&folder, "full.img", files));
    let limit = LIMIT.to_string();
    let (_, floor) = peak(&["find", "-0"], &empty);
    let (told, within) = peak(&["find", "-0", "--catalog-limit", &limit], &full);
    let (all, without) = peak(&["find", "-0"], &full);
    let beside = |peak: u64| peak.saturating_sub(floor);
    say(&format!("{} bytes of {} within the limit", beside(within), beside(without)));
    assert!(beside(without) > LIMIT + READ * 3 / 2, "it says something");
    assert!(beside(within) < LIMIT + READ, "{}", beside(within));
    let paths = |told: &[u8]| told.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<HashSet<_>>();
    assert_eq!(told.len(), all.len());
    assert_eq!(paths(&told), paths(&all));
}
