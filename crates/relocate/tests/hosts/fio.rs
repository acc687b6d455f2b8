//! Movers beside fio, which reads back and verifies all that it writes: buffered, direct, asynchronous and mapped. Among its files others
//! are cut, removed, renamed and cloned meanwhile.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use onesweep_relocate::pack::Rules;

use crate::image::{is_root, text};
use crate::kinds::{Kind, OnBtrfs, OnExt4, OnXfs, OnXfsExchange, OnXfsWhole};
use crate::tree::{assert_same, kept, pack, scatter, sync};
use crate::writers::Writer;

const MIB: u64 = 1 << 20;
/// Each writes all its files and verifies them, so often.
const ROUNDS: u32 = 12;

/// Ways to write, by fio's names.
const WAYS: [(&str, &[&str]); 4] = [
    ("buffered", &["--ioengine=psync", "--fsync=16"]),
    ("direct", &["--ioengine=psync", "--direct=1"]),
    ("asynchronous", &["--ioengine=libaio", "--direct=1", "--iodepth=8"]),
    ("mapped", &["--ioengine=mmap", "--fsync=16"]),
];

#[test]
fn what_fio_writes_on_ext4_is_what_it_reads() {
    fio_and_two_movers::<OnExt4>(80);
}

#[test]
fn what_fio_writes_on_xfs_is_what_it_reads() {
    fio_and_two_movers::<OnXfs>(80);
}

#[test]
fn what_fio_writes_on_btrfs_is_what_it_reads() {
    fio_and_two_movers::<OnBtrfs>(80);
}

/// There files stay while anybody has them open for writing.
#[test]
fn what_fio_writes_on_xfs_without_reflinks_is_what_it_reads() {
    fio_and_two_movers::<OnXfsExchange>(1);
}

#[test]
fn what_fio_writes_on_xfs_of_wholes_is_what_it_reads() {
    fio_and_two_movers::<OnXfsWhole>(1);
}

/// Ends the movers, also when a writer fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Files of 4 to 12 blocks, written block by block, so that they come to lie apart.
fn fio(directory: &str, (name, way): (&str, &[&str])) -> Child {
    Command::new("fio")
        .args([&format!("--name={name}"), &format!("--directory={directory}"), &format!("--loops={ROUNDS}")])
        .args(["--rw=randwrite", "--bs=4k", "--nrfiles=24", "--filesize=16k-48k", "--openfiles=24"])
        // What is preallocated stays where it is.
        .args(["--fallocate=none", "--file_service_type=random"])
        .args([
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--output-format=terse",
        ])
        .args(way)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("fio runs (make deps installs it)")
}

fn fio_and_two_movers<K: Kind>(least: u64) {
    if !is_root() {
        return;
    }
    let mut image = K::image(1024 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 40);
    sync(&directory);
    let (goes_on, moved) = (AtomicBool::new(true), AtomicU64::new(0));
    let (writer, steps) = thread::scope(|scope| {
        for mover in 0..2_usize {
            let (directory, goes_on, moved) = (&directory, &goes_on, &moved);
            scope.spawn(move || {
                let mut host = K::host(directory);
                let mut round = mover;
                while goes_on.load(Ordering::Relaxed) {
                    let rules =
                        Rules { region: [512, 16, 64][round % 3], slack: 0, budget: 1000, dearest: 1000, margin: 0 };
                    let (_, report) = pack(&mut host, directory, &rules);
                    assert!(report.ended.is_none(), "{report:?}");
                    moved.fetch_add(report.files, Ordering::Relaxed);
                    round += 1;
                }
            });
        }
        let ends = Ends(&goes_on);
        let among_them = scope.spawn(|| {
            let (mut writer, mut steps) = (Writer::new(&directory, 0, K::CLONES), 0);
            while goes_on.load(Ordering::Relaxed) {
                writer.step();
                steps += 1;
            }
            (writer, steps)
        });
        let writers = WAYS.map(|way| (way.0, fio(text(&directory), way)));
        let said = writers.map(|(name, writer)| (name, writer.wait_with_output().expect("it ends")));
        drop(ends);
        for (name, out) in said {
            let said = [&out.stdout[..], &out.stderr].concat();
            assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&said));
        }
        among_them.join().unwrap()
    });
    let moved = moved.load(Ordering::Relaxed);
    eprintln!("{moved} moves beside fio and {steps} steps of a writer");
    assert!(moved > least, "files were moved meanwhile: {moved}");
    assert!(steps > 100, "{steps}");
    writer.check();
    let before = kept(&directory);
    image.check();
    assert_same(&directory, &before);
}
