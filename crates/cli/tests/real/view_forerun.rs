//! A thread of the view goes ahead of who walks over it: nobody but for the time it saves sees that.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    image::{Fs, Image},
    run::{long, output, root_test, seed},
    tree::Rng,
    view::{View, inodes, place, until},
};

/// Folders with folders in them, each with some small files; their names.
fn folders(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for (above, below) in (0..8).flat_map(|above| (0..8).map(move |below| (above, below))) {
        let folder = format!("d{above}/d{below}");
        fs::create_dir_all(root.join(&folder)).expect("a folder");
        for file in 0..12 {
            fs::write(root.join(&folder).join(format!("f{file:02}")), format!("{folder}/{file}")).expect("a file");
        }
        names.push(folder);
    }
    names
}

fn tar(from: &Path, sort: &str) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--format=gnu", sort, "-cf", "-", "-C"]).arg(from).arg(".");
    tar
}

fn listed_ahead(said: &str) -> usize {
    let told = said.split("; ").find_map(|part| part.trim().split_once(" listed ahead")).map(|(told, _)| told);
    told.and_then(|told| told.split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn directories_are_listed_before_a_program_comes_to_them() {
    root_test!();
    for of in Fs::MAIN {
        let image = Image::new(of, 300 << 20);
        let (root, dir) = place(&image);
        let all = folders(&root).len();
        for (sort, order) in [("--sort=none", "source"), ("--sort=name", "name")] {
            // By chance the program is everywhere first.
            let is_ahead = (0..20).any(|_| {
                let view = View::show(&root, &dir, &["--verbose", "--order", order]);
                assert!(output(&mut tar(&dir, sort)) == output(&mut tar(&root, sort)), "{sort}: it is another archive");
                assert!(inodes(&dir) == inodes(&root));
                view.signal(rustix::process::Signal::INT);
                let listed = listed_ahead(&view.end(Some(0)));
                assert!(listed <= all + 8, "{listed}");
                listed > 0
            });
            assert!(is_ahead, "{}: {sort}", of.name());
        }
    }
}

/// What there is, with the bytes of files.
fn there(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        // One that has gone since it was listed is told of the next time.
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let below = path.strip_prefix(root).expect("below").to_owned();
            found.insert(below, if is_dir { None } else { Some(fs::read(&path).unwrap_or_default()) });
            if is_dir {
                waiting.push(path);
            }
        }
    }
    found
}

#[test]
fn what_changes_ahead_of_a_program_is_shown_as_it_is() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, dir) = place(&image);
    let folders = folders(&root);
    let mut rng = Rng::new(seed());
    for round in 0..if long() { 60 } else { 8 } {
        let _view = View::show(&root, &dir, &[]);
        thread::scope(|scope| {
            let walk = scope.spawn(|| {
                let mut walk = tar(&dir, "--sort=none");
                drop(walk.stdout(Stdio::piped()).stderr(Stdio::null()).output());
            });
            for turn in 0..150 {
                let folder = root.join(&folders[rng.below(64) as usize]);
                let file = folder.join(format!("f{:02}", rng.below(12)));
                let new = format!("{round} {turn} {}", rng.below(1000));
                match rng.below(5) {
                    0 => fs::write(&file, new).expect("a file"),
                    1 => drop(fs::remove_file(&file)),
                    2 => {
                        fs::write(folder.join("new"), new).expect("a file");
                        fs::rename(folder.join("new"), &file).expect("it takes a place");
                    }
                    3 => {
                        let aside = folder.with_extension("aside");
                        fs::rename(&folder, &aside).expect("it moves");
                        fs::rename(&aside, &folder).expect("it comes back");
                    }
                    _ => fs::create_dir_all(folder.join(format!("in {turn}/it"))).expect("a folder"),
                }
            }
            walk.join().expect("a walk");
        });
        let is = there(&root);
        until(&format!("round {round}: something old stays"), || there(&dir) == is);
        until(&format!("round {round}: old attributes stay"), || inodes(&dir) == inodes(&root));
    }
}

/// Reads the files of some folders one after the other, in the order in which they are listed.
fn read_some(dir: &Path, count: usize) {
    let mut folders = 0;
    for above in fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        for folder in fs::read_dir(above).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            for file in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
                fs::read(file).expect("a file");
            }
            folders += 1;
            if folders == count {
                return;
            }
        }
    }
}

#[test]
fn who_goes_ahead_keeps_nobody_from_unmounting() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, dir) = place(&image);
    folders(&root);
    for count in (1..60).step_by(3) {
        let view = View::show(&root, &dir, &[]);
        read_some(&dir, count);
        // The moment in which it begins.
        let umount = || Command::new("umount").arg(&dir).stderr(Stdio::null()).status().expect("it runs").success();
        assert!(umount() || umount(), "it is busy");
        view.end(Some(0));
    }
}

#[test]
fn a_view_that_is_killed_while_it_goes_ahead_is_gone() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, dir) = place(&image);
    folders(&root);
    for turn in 0..if long() { 100 } else { 15 } {
        let mut view = View::show(&root, &dir, &[]);
        let shown = dir.metadata().expect("a folder").dev();
        thread::scope(|scope| {
            let walk = scope.spawn(|| {
                let mut walk = tar(&dir, "--sort=none");
                drop(walk.stdout(Stdio::piped()).stderr(Stdio::null()).output());
            });
            // At another moment of the walk each time.
            thread::sleep(Duration::from_millis(turn % 20));
            let mut running = view.running.take().expect("it runs");
            running.kill().expect("it is killed");
            running.wait().expect("nothing of it waits for ever");
            walk.join().expect("who walks isn't held up");
        });
        output(Command::new("umount").arg("--lazy").arg(&dir));
        assert_ne!(dir.metadata().expect("a folder").dev(), shown);
    }
}

/// A view ends a moment after it was unmounted; by then its place may be another's.
#[test]
fn what_is_mounted_at_its_place_afterwards_stays() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, dir) = place(&image);
    folders(&root);
    for count in 1..10 {
        let mut view = View::show(&root, &dir, &[]);
        read_some(&dir, count);
        let umount = || Command::new("umount").arg(&dir).stderr(Stdio::null()).status().expect("it runs").success();
        assert!(umount() || umount(), "it is busy");
        output(Command::new("mount").args(["-t", "tmpfs", "later"]).arg(&dir));
        assert!(view.running.take().expect("it runs").wait().expect("it ends").success());
        let mounted = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
        assert!(mounted.contains(&format!(" {} ", dir.display())), "it was taken away");
    }
}
