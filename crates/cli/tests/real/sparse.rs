//! Files that are nearly all hole: what is not there costs no read.

use std::{fs::File, os::unix::fs::FileExt, path::Path, process::Command};

use crate::{
    equality::{by_sum, differences},
    image::{Fs, Image},
    run::{figure, finish, onesweep, output, program, root_test, run, summary},
    tree::{Rng, sums},
};

const SIZE: u64 = 1 << 40;
const PLACE: u64 = 700 << 30;

/// A command that may take a minute of the processor's time: to read a tebibyte of zeros takes several.
fn frugal(arguments: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    command.arg("--cpu=60").arg(program()).args(arguments).env_remove("ONESWEEP_HIDE");
    command
}

fn data_of(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 65536];
    File::open(path).and_then(|file| file.read_exact_at(&mut bytes, PLACE)).expect("the data");
    bytes
}

/// A tebibyte with one piece of data goes into an archive, and into a copy, by reading the piece; also in orders that need
/// not know where it lies, as those of disks without seeks.
#[test]
fn holes_are_not_read() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let mut image = Image::new(fs, 400 << 20);
        let root = image.root().join("tree");
        std::fs::create_dir(&root).expect("a folder");
        let data = Rng::new(23).bytes(65536);
        let file = File::create(root.join("sparse")).expect("a file");
        file.set_len(SIZE).and_then(|()| file.write_all_at(&data, PLACE)).expect("a sparse file");
        drop(file);
        // The machine's own disk may hold no file of that size.
        let out = Image::new(Fs::Xfs, 400 << 20);
        for order in ["auto", "inode", "directory"] {
            let case = format!("{} by {order}", fs.name());
            image.cold();
            let archive = image.beside("a.tar");
            let mut tar = frugal(&["tar", "--json", "-S", "--order", order, "-cf"]);
            let told = finish(tar.arg(&archive).arg("-C").arg(&root).arg("."), 0);
            assert_eq!(figure(&summary(&[told.stdout, told.stderr].concat()), "bytes"), SIZE, "{case}");
            let size = std::fs::metadata(&archive).expect("the archive").len();
            assert!(size < 1 << 20, "{case}: an archive of {size} bytes");
            run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(out.root()));
            assert!(data_of(&out.root().join("sparse")) == data, "{case}: other bytes in the archive");
            image.cold();
            let copy = out.root().join(format!("copy by {order}"));
            finish(frugal(&["copy", "--order", order]).arg(&root).arg(&copy), 0);
            assert!(data_of(&copy.join("sparse")) == data, "{case}: other bytes in the copy");
            let used = output(Command::new("du").args(["--block-size=1", "--summarize"]).arg(copy.join("sparse")));
            let used: u64 =
                String::from_utf8_lossy(&used).split_whitespace().next().expect("bytes").parse().expect("number");
            assert!(used < 1 << 20, "{case}: the copy takes {used} bytes");
        }
    }
}

/// Files of holes and data that pass through the budget: their holes go into no archive, whether the file lies in the
/// page cache or not, and no byte is lost.
#[test]
fn small_holes_are_not_stored_in_any_order() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Ext4Small, Fs::Xfs, Fs::Btrfs] {
        let mut image = Image::new(fs, 400 << 20);
        let root = image.root().join("tree");
        std::fs::create_dir(&root).expect("a folder");
        let mut rng = Rng::new(29);
        for number in 0..20 {
            let file = File::create(root.join(format!("{number}"))).expect("a file");
            file.set_len(1_000_000 + number).expect("a hole");
            for _ in 0..number {
                let (at, length) = (rng.below(900_000), 1 + rng.below(9000));
                file.write_all_at(&rng.bytes(length as usize), at).expect("data");
            }
        }
        let there = sums(&[&root]);
        for order in ["fragment", "inode", "directory"] {
            for is_cold in [true, false] {
                if is_cold {
                    image.cold();
                }
                let archive = image.beside("a.tar");
                let tar = &mut onesweep(["tar", "-S", "--order", order, "-cf"]);
                finish(tar.arg(&archive).arg("-C").arg(&root).arg("."), 0);
                let size = std::fs::metadata(&archive).expect("the archive").len();
                assert!(size < 6 << 20, "{} by {order}: an archive of {size} bytes", fs.name());
                let delivered = by_sum(&[&root], &(vec!["--order", order], None));
                assert_eq!(differences(&there, &delivered), None, "{} by {order}", fs.name());
            }
        }
    }
}
