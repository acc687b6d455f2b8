//! Files that are nearly all hole: what is not there costs no read.

use std::{fs::File, os::unix::fs::FileExt, path::Path, process::Command};

use crate::{
    image::{Fs, Image},
    run::{figure, finish, output, program, root_test, run, summary},
    tree::Rng,
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

/// A tebibyte with one piece of data goes into an archive, and into a copy, by reading the piece.
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
        image.cold();
        let archive = image.beside("a.tar");
        let mut tar = frugal(&["tar", "--json", "-S", "-cf"]);
        let out = finish(tar.arg(&archive).arg("-C").arg(&root).arg("."), 0);
        let told = summary(&[out.stdout, out.stderr].concat());
        assert_eq!(figure(&told, "bytes"), SIZE, "{}", fs.name());
        let size = std::fs::metadata(&archive).expect("the archive").len();
        assert!(size < 1 << 20, "{}: an archive of {size} bytes", fs.name());
        // The machine's own disk may hold no file of that size.
        let out = Image::new(Fs::Xfs, 400 << 20);
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(out.root()));
        assert!(data_of(&out.root().join("sparse")) == data, "{}: other bytes in the archive", fs.name());
        image.cold();
        let copy = out.root().join("copy");
        finish(frugal(&["copy"]).arg(&root).arg(&copy), 0);
        assert!(data_of(&copy.join("sparse")) == data, "{}: other bytes in the copy", fs.name());
        let used = output(Command::new("du").args(["--block-size=1", "--summarize"]).arg(copy.join("sparse")));
        let used: u64 =
            String::from_utf8_lossy(&used).split_whitespace().next().expect("bytes").parse().expect("number");
        assert!(used < 1 << 20, "{}: the copy takes {used} bytes", fs.name());
    }
}
