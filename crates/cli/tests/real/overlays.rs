//! What is written through an overlay, as containers do, changes the file system that its upper directory lies on.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use onesweep_summary::summaries::Freshness;

use crate::{
    image::{Fs, Image, unmount},
    run::{not_here, root_test, run},
    timed,
    tracked::{agrees, as_du, ask, du, make_dirty, tracked, write_mapped},
    tree,
};

/// Mounted beside the image: below it GNU du would count all twice.
struct Overlay(PathBuf);

impl Overlay {
    /// With some files in the lower directory.
    fn new(image: &Image) -> Overlay {
        let merged = image.beside("merged");
        fs::create_dir(&merged).expect("a directory");
        for name in ["lower/deep/er", "upper", "work"] {
            fs::create_dir_all(image.root().join(name)).expect("directories");
        }
        for name in ["f", "gone", "deep/h", "deep/er/g"] {
            write_some(&image.root().join("lower").join(name), 40_000);
        }
        tree::sync(&image.root());
        let at = |name: &str| image.root().join(name).display().to_string();
        let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
        run(Command::new("mount").args(["-t", "overlay", "none", "-o", &options]).arg(&merged));
        Overlay(merged)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

fn are_told() -> bool {
    let release = rustix::system::uname();
    let mut numbers =
        release.release().to_str().expect("digits").split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0u32), numbers.next().unwrap_or(0u32)) >= (6, 5)
}

fn write_some(path: &Path, bytes: usize) {
    fs::write(path, vec![5; bytes]).expect("a file");
}

fn appending(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).expect("a file")
}

type Step = (&'static str, fn(&Overlay));

/// Each of them lands in the upper directory, in the working directory, or in both.
const STEPS: [Step; 14] = [
    ("a new file", |overlay| write_some(&overlay.at("new"), 50_000)),
    ("it grows", |overlay| appending(&overlay.at("new")).write_all(&[1; 30_000]).expect("a write")),
    ("it is cut", |overlay| {
        let file = OpenOptions::new().write(true).open(overlay.at("new")).expect("a file");
        file.set_len(20_000).expect("it is cut");
    }),
    ("a new directory", |overlay| {
        fs::create_dir_all(overlay.at("made/below")).expect("directories");
        write_some(&overlay.at("made/below/f"), 10_000);
    }),
    ("a file of the lower one is copied up", |overlay| {
        appending(&overlay.at("deep/er/g")).write_all(&[1; 100]).expect("a write");
    }),
    ("another, for its mode", |overlay| {
        fs::set_permissions(overlay.at("deep/h"), fs::Permissions::from_mode(0o600)).expect("its mode");
    }),
    ("a file is written at a place", |overlay| {
        let file = OpenOptions::new().write(true).open(overlay.at("f")).expect("a file");
        file.write_all_at(&[3; 70_000], 1 << 20).expect("a write");
    }),
    ("one is written through a mapping", |overlay| write_mapped(&overlay.at("new"), 200_000).expect("it is mapped")),
    ("one is renamed", |overlay| fs::rename(overlay.at("new"), overlay.at("made/new")).expect("it is renamed")),
    ("a directory is renamed", |overlay| fs::rename(overlay.at("made"), overlay.at("moved")).expect("it is renamed")),
    ("one gets another name", |overlay| {
        fs::hard_link(overlay.at("moved/new"), overlay.at("linked")).expect("a link");
    }),
    ("it is written to by that", |overlay| write_some(&overlay.at("linked"), 90_000)),
    ("one of the lower directory goes", |overlay| fs::remove_file(overlay.at("gone")).expect("it goes")),
    ("a directory goes", |overlay| fs::remove_dir_all(overlay.at("deep")).expect("it goes")),
];

/// Of an overlay nobody is told.
#[test]
fn an_overlay_that_is_read_again_is_what_du_says() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let overlay = Overlay::new(&image);
    let mut known = timed::tracked_at(&overlay.0, &image.beside("store"));
    for (step, take) in STEPS {
        take(&overlay);
        let answer = ask(&mut known, &overlay.0, Freshness::Synced);
        assert!(!answer.is_exact && answer.checked_at.is_some(), "{step}");
        assert_eq!(as_du(&answer), du(&overlay.0), "{step}");
    }
}

/// With all directories told of, and with some that the kernel says nothing of since they are dirty.
#[test]
fn what_is_written_through_an_overlay_counts_where_it_lands() {
    root_test!();
    if !are_told() {
        return not_here("before Linux 6.5 nobody tells of what is written through overlays");
    }
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        for are_dirty in [false, true] {
            let image = Image::new(fs, 512 << 20);
            let at = |name: &str| image.root().join(name);
            let overlay = Overlay::new(&image);
            let mut tracked = tracked(&image);
            agrees(&mut tracked, &image.root(), "the first harvest");
            for (step, take) in STEPS {
                if are_dirty {
                    make_dirty(&mut tracked, &at("upper"));
                }
                take(&overlay);
                let when = format!("{}, dirty {are_dirty}: {step}", fs.name());
                agrees(&mut tracked, &at("upper"), &when);
                agrees(&mut tracked, &image.root(), &when);
            }
            drop(overlay);
            agrees(&mut tracked, &image.root(), "it was unmounted");
        }
    }
}
