//! Movers beside programs that use the same files, and beside each other, and an undo beside them all.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use onesweep_relocate::ext4::keep::{forget, undo};
use onesweep_relocate::pack::Rules;
use onesweep_sys::files::clone_file;

use crate::image::{is_root, run, text};
use crate::kinds::{Kind, OnBtrfs, OnExt4, OnXfs, OnXfsExchange, OnXfsWhole, OnXfsWholeMapped, host};
use crate::tree::{Kept, bytes, kept, pack, scatter, sync};

const MIB: u64 = 1 << 20;
/// Of each writer, at least.
const STEPS: u64 = 4000;

/// A xorshift: a writer's steps.
struct Steps(u64);

impl Steps {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// One thread's files, and what must be in them.
pub(crate) struct Writer {
    directory: PathBuf,
    name: String,
    files: Vec<Vec<u8>>,
    /// Files share blocks with others now and then.
    clones: bool,
    steps: Steps,
}

impl Writer {
    pub(crate) fn new(directory: &Path, number: u64, clones: bool) -> Writer {
        let name = format!("w{number}");
        let files = (0..20).map(|file| bytes(1000 * (number + 1) + file, 20_000)).collect();
        let writer = Writer { directory: directory.to_owned(), name, files, clones, steps: Steps(number + 77) };
        for (file, bytes) in writer.files.iter().enumerate() {
            fs::write(writer.path(file), bytes).unwrap();
        }
        writer
    }

    fn path(&self, file: usize) -> PathBuf {
        self.directory.join(format!("{}-{file}", self.name))
    }

    pub(crate) fn step(&mut self) {
        let file = self.steps.below(self.files.len() as u64) as usize;
        let path = self.path(file);
        let own = bytes(self.steps.0 >> 32, 1 + self.steps.below(12_000) as usize);
        match self.steps.below(8) {
            // In the middle or beyond the end, so that there may be a hole.
            0..=2 => {
                let at = self.steps.below(45_000) as usize;
                OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&own, at as u64).unwrap();
                let wanted = &mut self.files[file];
                wanted.resize(wanted.len().max(at + own.len()), 0);
                wanted[at..at + own.len()].copy_from_slice(&own);
            }
            3 => {
                let size = self.steps.below(30_000);
                File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
                self.files[file].resize(size as usize, 0);
            }
            4 => {
                fs::remove_file(&path).unwrap();
                fs::write(&path, &own).unwrap();
                self.files[file] = own;
            }
            5 => {
                let beside = self.directory.join(format!("{}-beside", self.name));
                fs::write(&beside, &own).unwrap();
                fs::rename(&beside, &path).unwrap();
                self.files[file] = own;
            }
            6 if self.clones && self.steps.below(2) == 0 => {
                let other = self.steps.below(self.files.len() as u64) as usize;
                let clone = self.directory.join(format!("{}-clone", self.name));
                let target = File::create(&clone).unwrap();
                clone_file(File::open(self.path(other)).unwrap().as_fd(), target.as_fd()).unwrap();
                fs::rename(&clone, &path).unwrap();
                self.files[file] = self.files[other].clone();
            }
            6 => File::open(&path).unwrap().sync_all().unwrap(),
            _ => assert!(fs::read(&path).unwrap() == self.files[file], "{}", path.display()),
        }
    }

    pub(crate) fn check(&self) {
        for (file, wanted) in self.files.iter().enumerate() {
            let path = self.path(file);
            assert!(fs::read(&path).unwrap() == *wanted, "{}", path.display());
        }
    }
}

/// Writes blocks past the page cache, as a database does.
fn write_directly(directory: &Path, source: &Path, blocks: u64, goes_on: &AtomicBool) -> Vec<u64> {
    let path = directory.join("direct");
    let mut wanted = vec![0; blocks as usize];
    let mut steps = Steps(9);
    while goes_on.load(Ordering::Relaxed) {
        let (to, from) = (steps.below(blocks), steps.below(64));
        let out = Command::new("dd")
            .args(["bs=4096", "count=1", "conv=notrunc", "oflag=direct"])
            .args([format!("if={}", text(source)), format!("of={}", text(&path))])
            .args([format!("seek={to}"), format!("skip={from}")])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        wanted[to as usize] = from;
    }
    wanted
}

/// Writes blocks through mappings, each one by a program of its own.
fn write_through_mappings(path: &Path, blocks: u64, goes_on: &AtomicBool) -> Vec<u8> {
    let mut wanted = vec![0; blocks as usize];
    let mut steps = Steps(11);
    while goes_on.load(Ordering::Relaxed) {
        let (block, byte) = (steps.below(blocks), steps.below(256));
        let map = format!("mmap -rw 0 {}", blocks * 4096);
        let write = format!("mwrite -S {byte} {} 4096", block * 4096);
        run("xfs_io", &["-c", &map, "-c", &write, text(path)]);
        wanted[block as usize] = byte as u8;
    }
    wanted
}

#[test]
fn writers_and_two_movers_do_each_other_no_harm() {
    writers_and_two_movers::<OnExt4>();
}

/// What was moved goes back while it is written, cut, renamed, removed, and moved by others.
#[test]
fn writers_two_movers_and_an_undo_do_each_other_no_harm() {
    writers_and_two_movers_and::<OnExt4>(|directory, goes_on, is_enough| {
        let (mut back, mut left) = (0, 0);
        while goes_on.load(Ordering::Relaxed) {
            let mut mover = host(directory);
            let id = mover.keep_old_places().unwrap().to_owned();
            let (_, report) = pack(&mut mover, directory, &rules(64));
            assert!(report.ended.is_none(), "{report:?}");
            let is_kept = mover.kept_run().is_some();
            drop(mover);
            if is_kept {
                let undone = undo(&mut host(directory), &id, &mut |_| true).unwrap();
                assert!(undone.ended.is_none() && undone.unread.is_empty(), "{undone:?}");
                (back, left) = (back + undone.files, left + undone.left.len());
                forget(&mut host(directory), &id).unwrap();
            }
            is_enough.store(back > 100 && left > 0, Ordering::Relaxed);
        }
        eprintln!("{back} files went back, {left} were left");
        assert!(back > 100 && left > 0, "{back} went back, {left} were left");
    });
}

#[test]
fn writers_and_two_movers_of_xfs_do_each_other_no_harm() {
    writers_and_two_movers::<OnXfs>();
}

#[test]
fn writers_and_two_movers_of_xfs_without_reflinks_do_each_other_no_harm() {
    writers_and_two_movers::<OnXfsExchange>();
}

#[test]
fn writers_and_two_movers_of_xfs_of_wholes_do_each_other_no_harm() {
    writers_and_two_movers::<OnXfsWhole>();
}

#[test]
fn writers_and_two_movers_of_xfs_of_wholes_with_a_reverse_map_do_each_other_no_harm() {
    writers_and_two_movers::<OnXfsWholeMapped>();
}

#[test]
fn writers_and_two_movers_of_btrfs_do_each_other_no_harm() {
    writers_and_two_movers::<OnBtrfs>();
}

fn rules(region: u64) -> Rules {
    Rules { region, slack: 0, budget: 1000, dearest: 1000, margin: 0 }
}

fn writers_and_two_movers<K: Kind>() {
    writers_and_two_movers_and::<K>(|_, _, is_enough| is_enough.store(true, Ordering::Relaxed));
}

/// Whatever becomes of who holds it, nobody waits for him any longer.
struct Enough<'a>(&'a AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// With somebody else beside them: while the first goes on; the writers don't end before he says by the second that it is enough.
fn writers_and_two_movers_and<K: Kind>(somebody: impl Fn(&Path, &AtomicBool, &AtomicBool) + Sync) {
    if !is_root() {
        return;
    }
    let mut image = K::image(1024 * MIB, "");
    let directory = image.root().join("d");
    let still = scatter(&directory, 80);
    let source = image.root().join("source");
    fs::write(&source, bytes(4242, 64 * 4096)).unwrap();
    const DIRECT: u64 = 11;
    fs::write(directory.join("direct"), fs::read(&source).unwrap()[..4096].repeat(DIRECT as usize)).unwrap();
    const MAPPED: u64 = 7;
    let mapped = directory.join("mapped");
    fs::write(&mapped, [0; MAPPED as usize * 4096]).unwrap();
    sync(&directory);
    let only_still = |mut all: BTreeMap<PathBuf, Kept>| {
        all.retain(|path, _| still.contains(path));
        all
    };
    let before = only_still(kept(&directory));

    let (goes_on, is_enough) = (AtomicBool::new(true), AtomicBool::new(false));
    let (moved, steps) = (AtomicU64::new(0), AtomicU64::new(0));
    let (writers, direct, through_mappings) = thread::scope(|scope| {
        let movers: Vec<_> = (0..2_u64)
            .map(|mover| {
                let (directory, goes_on, moved) = (&directory, &goes_on, &moved);
                scope.spawn(move || {
                    let mut host = K::host(directory);
                    let mut round = mover;
                    while goes_on.load(Ordering::Relaxed) {
                        let region = [512, 16, 64][round as usize % 3];
                        let (_, report) = pack(&mut host, directory, &rules(region));
                        assert!(report.ended.is_none(), "{report:?}");
                        moved.fetch_add(report.files, Ordering::Relaxed);
                        round += 1;
                    }
                })
            })
            .collect();
        let somebody = scope.spawn(|| {
            let _enough = Enough(&is_enough);
            somebody(&directory, &goes_on, &is_enough);
        });
        let direct = scope.spawn(|| write_directly(&directory, &source, DIRECT, &goes_on));
        let through_mappings = scope.spawn(|| write_through_mappings(&mapped, MAPPED, &goes_on));
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let (directory, steps, is_enough) = (&directory, &steps, &is_enough);
                scope.spawn(move || {
                    let (mut writer, mut done) = (Writer::new(directory, number, K::CLONES), 0);
                    while done < STEPS || !is_enough.load(Ordering::Relaxed) {
                        writer.step();
                        done += 1;
                    }
                    steps.fetch_add(done, Ordering::Relaxed);
                    writer
                })
            })
            .collect();
        let writers: Vec<Writer> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        goes_on.store(false, Ordering::Relaxed);
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        somebody.join().unwrap();
        (writers, direct.join().unwrap(), through_mappings.join().unwrap())
    });
    let steps = steps.load(Ordering::Relaxed);
    eprintln!("{} moves beside {steps} steps of writers", moved.load(Ordering::Relaxed));
    assert!(moved.load(Ordering::Relaxed) > 100);

    let check = || {
        writers.iter().for_each(Writer::check);
        let blocks = fs::read(&source).unwrap();
        let wanted: Vec<u8> =
            direct.iter().flat_map(|&from| &blocks[from as usize * 4096..][..4096]).copied().collect();
        assert!(fs::read(directory.join("direct")).unwrap() == wanted, "what was written directly");
        let wanted: Vec<u8> = through_mappings.iter().flat_map(|&byte| [byte; 4096]).collect();
        assert!(fs::read(&mapped).unwrap() == wanted, "what was written through mappings");
        assert!(only_still(kept(&directory)) == before, "what nobody wrote");
    };
    check();
    image.check();
    check();
}
