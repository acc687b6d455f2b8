//! ext4 as a crash leaves it: what its journal holds is read from there, metadata and content.

use std::{
    fs,
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{SUM, below};
use crate::{
    equality::differences,
    image::{Folder, mounts_below, unmount},
    run::{finish, onesweep, output, root_test, run, seed, text},
    tree::{Rng, sum_lines, sums},
};

/// The first bytes of the blocks of a journal: it has to keep a copy of a block with them in another form.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// A mounted image, and the copy of it that a crash would have left.
struct Crashed {
    folder: Folder,
    /// What the file system held.
    held: Vec<(Vec<u8>, String)>,
}

impl Crashed {
    fn new(mkfs: &[&str], options: &str, write: impl FnOnce(&Path)) -> Self {
        let folder = Folder::new();
        let (file, root) = (folder.join("mounted.img"), folder.join("mounted"));
        fs::create_dir(&root).expect("a mount point");
        fs::File::create(&file).and_then(|file| file.set_len(256 << 20)).expect("a sparse file");
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).args(mkfs).arg(&file));
        let options = format!("loop,commit=300,{options}");
        run(Command::new("mount").args(["-t", "ext4", "-o", &options]).arg(&file).arg(&root));
        write(&root);
        let held = sums(&[&root]).into_iter().map(|(path, sum)| (below(&root, &path), sum)).collect();
        let crashed = Self { folder, held };
        run(Command::new("cp").arg("--sparse=always").arg(&file).arg(crashed.image()));
        unmount(&root);
        crashed
    }

    fn image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    fn root(&self) -> PathBuf {
        let mut name = self.image().into_os_string();
        name.push(":");
        name.into()
    }

    /// What we deliver, by the path inside.
    fn delivered(&self, options: &[&str]) -> Vec<(Vec<u8>, String)> {
        let mut named = self.root().into_os_string();
        named.push("/");
        let out = finish(onesweep(SUM).args(options).arg(named), 0);
        let root = self.root();
        let mut sums: Vec<_> =
            sum_lines(&out.stdout).into_iter().map(|(path, sum)| (below(&root, &path), sum)).collect();
        sums.sort();
        sums
    }

    /// What the kernel shows, which replays the journal on the device.
    fn replayed_by_the_kernel(&self) -> Vec<(Vec<u8>, String)> {
        let root = self.folder.join("replayed");
        fs::create_dir(&root).expect("a mount point");
        run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(self.image()).arg(&root));
        let mut sums: Vec<_> = sums(&[&root]).into_iter().map(|(path, sum)| (below(&root, &path), sum)).collect();
        unmount(&root);
        assert!(mounts_below(&root).is_empty());
        sums.sort();
        sums
    }
}

/// Files that are written, overwritten, cut and deleted, each step in the journal.
fn write(root: &Path) {
    let mut rng = Rng::new(seed());
    let path = |number: u64| root.join(format!("file {number}"));
    let synced = |file: &fs::File| file.sync_all().expect("a commit");
    for number in 0..120 {
        let size = [0, 1, 4096, 5000, 70_000, 300_000][rng.below(6) as usize];
        fs::write(path(number), rng.bytes(size)).expect("a file");
    }
    synced(&fs::File::open(root).expect("the root"));
    rustix::fs::syncfs(fs::File::open(root).expect("the root")).expect("all of it at its place");
    for number in (0..120).step_by(3) {
        let file = fs::File::options().write(true).open(path(number)).expect("a file");
        file.write_all_at(&rng.bytes(9000), rng.below(50_000)).expect("new bytes over old ones");
        synced(&file);
    }
    for number in (0..120).step_by(7) {
        let file = fs::File::options().write(true).open(path(number)).expect("a file");
        file.set_len(rng.below(5000)).expect("a shorter file");
        synced(&file);
    }
    for number in (1..120).step_by(10) {
        fs::remove_file(path(number)).expect("it goes");
    }
    let mut magic = fs::File::create(root.join("magic")).expect("a file");
    for block in 0..5 {
        let bytes = [&MAGIC[..], &rng.bytes(4092)].concat();
        magic.write_all(if block == 2 { &bytes[1..] } else { &bytes }).expect("a block");
    }
    synced(&magic);
    fs::create_dir(root.join("folder")).expect("a folder");
    fs::rename(path(2), root.join("folder/moved")).expect("a move");
    let last = fs::File::create(root.join("folder/last")).expect("a file");
    last.write_all_at(&rng.bytes(20_000), 100_000).expect("a hole and bytes");
    synced(&last);
}

#[test]
fn a_journal_is_read_in_place_of_what_it_replaces() {
    root_test!();
    for (mkfs, options) in [
        (&[][..], "data=ordered"),
        (&[], "data=journal"),
        (&["-O", "^metadata_csum"], "data=journal"),
        (&["-O", "^metadata_csum,^64bit,^extent"], "data=journal"),
    ] {
        let crashed = Crashed::new(mkfs, options, write);
        let header = output(Command::new("dumpe2fs").arg("-h").arg(crashed.image()));
        assert!(text(&header).contains("needs_recovery"), "{options}");
        let before = output(Command::new("cksum").arg(crashed.image()));
        let delivered = crashed.delivered(&[]);
        for more in [&["--large", "64K"][..], &["--budget", "512K", "--order", "inode"], &["--strategy", "unmerged"]] {
            assert!(crashed.delivered(more) == delivered, "{options} {more:?}");
        }
        assert_eq!(before, output(Command::new("cksum").arg(crashed.image())), "the image is what it was");
        if options == "data=journal" {
            let mut held = crashed.held.clone();
            held.sort();
            let differing = differences(&held.into_iter().collect(), &delivered.iter().cloned().collect());
            assert_eq!(differing, None, "{mkfs:?}: every step was in the journal");
        }
        if mkfs.contains(&"^metadata_csum") {
            // Without its journal it's another one: a part of the content lies there alone.
            let other = crashed.folder.join("without.img");
            fs::copy(crashed.image(), &other).expect("a copy");
            let file = fs::File::options().read(true).write(true).open(&other).expect("a copy");
            let mut byte = [0];
            file.read_exact_at(&mut byte, 1024 + 0x60).expect("its features");
            file.write_all_at(&[byte[0] & !4], 1024 + 0x60).expect("no need to recover");
            let mut named = other.into_os_string();
            named.push(":/");
            let out = onesweep(SUM).arg(named).output().expect("it runs");
            let old: Vec<String> = sum_lines(&out.stdout).into_iter().map(|(_, sum)| sum).collect();
            // How much of it depends on what was written back meanwhile; what was synced last was not.
            assert!(delivered.iter().any(|(_, sum)| !old.contains(sum)), "{mkfs:?}");
        }
        let by_kernel = crashed.replayed_by_the_kernel();
        let differing = differences(&by_kernel.into_iter().collect(), &delivered.into_iter().collect());
        assert_eq!(differing, None, "{mkfs:?} {options}");
    }
}

/// Fast commits tell what was done, not what blocks have become.
#[test]
fn fast_commits_are_refused_with_what_to_do() {
    root_test!();
    let crashed = Crashed::new(&["-O", "fast_commit"], "data=ordered", |root| {
        let file = fs::File::create(root.join("a")).expect("a file");
        fs::File::create(root.join("marker")).and_then(|file| file.sync_all()).expect("a whole commit");
        for _ in 0..3 {
            (&file).write_all(b"more").expect("more");
            file.sync_all().expect("a fast commit");
        }
    });
    let out = finish(onesweep(["find"]).arg(crashed.image()), 2);
    let told = text(&out.stderr);
    assert!(told.contains("a fast commit in the journal") && told.contains("e2fsck"), "{told}");
    crashed.replayed_by_the_kernel();
    assert_eq!(crashed.delivered(&[]).len(), 2);
}
