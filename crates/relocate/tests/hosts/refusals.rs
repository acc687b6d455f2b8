//! What is not moved, each by its name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use onesweep_relocate::carry::{Ended, Settings, carry_out};
use onesweep_relocate::ext4::{Ext4, Refusal};
use onesweep_relocate::host::{Host, Stays, Trouble};
use onesweep_relocate::pack::Rules;

use crate::image::{Image, copy_program, is_root, not_here, run, text};
use crate::kinds::{READ, host};
use crate::tree::{Kept, assert_same, blocks_of, bytes, kept, pack, planned, scatter, sync, why_it_stays};

const MIB: u64 = 1 << 20;
const RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };

fn refused(mkfs: &[&str], options: &str) -> Refusal {
    let image = Image::new(256 * MIB, mkfs, options);
    Ext4::of(&image.root(), READ).unwrap_err()
}

#[test]
fn file_systems_are_refused_by_name() {
    if !is_root() {
        return;
    }
    assert!(matches!(refused(&["-O", "^has_journal"], ""), Refusal::NoJournal));
    assert!(matches!(refused(&[], "data=journal"), Refusal::DataJournal));
    assert!(matches!(refused(&[], "data=writeback"), Refusal::DataWriteback));
    assert!(matches!(refused(&[], "barrier=0"), Refusal::NoBarriers));
    assert!(matches!(refused(&[], "nobarrier"), Refusal::NoBarriers));
    assert!(matches!(refused(&["-O", "fast_commit"], ""), Refusal::FastCommits));
    assert!(matches!(refused(&[], "ro"), Refusal::ReadOnly));
    assert!(matches!(Ext4::of(Path::new("/dev/shm"), READ), Err(Refusal::NotExt4(name)) if name == "tmpfs"));
    assert!(matches!(Ext4::of(Path::new("/dev/shm/none"), READ), Err(Refusal::Unknown { .. })));
    let image = Image::new(256 * MIB, &[], "data=ordered");
    assert!(Ext4::of(&image.root(), READ).is_ok());
}

/// Errors that the kernel has found are in the superblock.
#[test]
fn a_damaged_file_system_is_left_alone() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(256 * MIB, &[], "");
    image.unmount();
    run("debugfs", &["-w", "-R", "ssv error_count 3", text(image.device())]);
    image.mount();
    let refusal = Ext4::of(&image.root(), READ).unwrap_err();
    assert!(matches!(refusal, Refusal::Damaged(3)), "{refusal}");
    assert!(refusal.to_string().contains("run e2fsck"));
}

#[test]
fn clusters_are_found_out_before_anything_moves() {
    if !is_root() {
        return;
    }
    let image = Image::new(512 * MIB, &["-O", "bigalloc", "-C", "65536"], "");
    let directory = image.root().join("d");
    scatter(&directory, 20);
    let before = kept(&directory);
    let mut mover = host(&directory);
    assert!(matches!(mover.rehearse(&directory), Err(Refusal::Bigalloc)));
    let (_, report) = pack(&mut mover, &directory, &RULES);
    let Some(Ended::Failed(failure)) = report.ended else { panic!("{report:?}") };
    assert!(failure.to_string().contains("bigalloc"), "{failure}");
    assert_eq!(report.files, 0);
    assert_same(&directory, &before);
}

/// A program that is ended with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Swapped to until this is dropped, or the test ends in any way: a shell waits for the end of its input.
pub(crate) struct Swapped(Child);

impl Swapped {
    pub(crate) fn to(path: &Path) -> Swapped {
        let script = "trap '' INT TERM HUP; swapon \"$0\" && echo on && read -r line; swapoff \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(path).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut swapped = Swapped(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(swapped.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "on\n");
        swapped
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What takes a lease on a file, for reading (0) or writing (1), and holds it until it is killed.
fn with_lease(path: &Path, kind: &str) -> Running {
    const SCRIPT: &str = r#"$SIG{IO} = "IGNORE"; $| = 1; open(F, $ARGV[1] ? "+<" : "<", $ARGV[0]) or die;
        fcntl(F, 1024, 0 + $ARGV[1]) or die $!; print "held\n"; sleep 1000;"#;
    let mut holder =
        Command::new("perl").args(["-e", SCRIPT]).arg(path).arg(kind).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    Running(holder)
}

#[test]
fn leased_files_are_left() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(256 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 30);
    let before = kept(&directory);
    let holders = [with_lease(&directory.join("file-11"), "0"), with_lease(&directory.join("file-12"), "1")];
    let (files, report) = pack(&mut host(&directory), &directory, &RULES);
    // Where the disk has put one behind its neighbour by chance, it need not move.
    assert!(report.ended.is_none() && (26..=28).contains(&report.files), "{report:?}");
    for file in &files {
        let is_leased = ["file-11", "file-12"].iter().any(|name| file.path.ends_with(name));
        assert_eq!(file.stays, is_leased.then_some(Stays::Leased), "{}", file.path.display());
    }
    drop(holders);
    image.check();
    assert_same(&directory, &before);
}

/// Kernels without fs-verity don't open such files; others may miss their hashes.
#[test]
fn files_with_hashes_are_left() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(256 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 30);
    image.unmount();
    run("debugfs", &["-w", "-R", "sif /d/file-11 flags 0x180000", text(image.device())]);
    image.mount();
    let (files, report) = pack(&mut host(&directory), &directory, &RULES);
    assert!(report.ended.is_none() && report.files == 29, "{report:?}");
    let marked = files.iter().find(|file| file.path.ends_with("file-11")).unwrap();
    assert_eq!(marked.stays, Some(Stays::Verity));
    image.unmount();
    run("debugfs", &["-w", "-R", "sif /d/file-11 flags 0x80000", text(image.device())]);
    image.mount();
    assert!(fs::read(directory.join("file-11")).unwrap() == bytes(11, blocks_of(11) as usize * 4096 - 100));
    image.check();
}

#[test]
fn files_are_left_by_name() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &["-O", "inline_data"], "");
    let directory = image.root().join("d");
    scatter(&directory, 30);
    let made = |name: &str| {
        let path = directory.join(name);
        fs::write(&path, bytes(5, 3 * 4096)).unwrap();
        path
    };
    for name in ["immutable", "append-only", "journaled", "dax"] {
        made(name);
    }
    let program = directory.join("running");
    copy_program(Path::new("/bin/sleep"), &program);
    fs::write(directory.join("inline"), b"a few bytes").unwrap();
    let swap = directory.join("swap");
    fs::write(&swap, vec![0; 1 << 20]).unwrap();
    run("chmod", &["600", text(&swap)]);
    run("mkswap", &[text(&swap)]);
    std::os::unix::fs::symlink("file-1", directory.join("link")).unwrap();
    image.unmount();
    // Not every root may set all of these while it is mounted. All of them with extents.
    for (name, flags) in [("journaled", "0x84000"), ("dax", "0x2080000")] {
        run("debugfs", &["-w", "-R", &format!("sif /d/{name} flags {flags}"), text(image.device())]);
    }
    image.mount();
    for (name, flag) in [("immutable", "+i"), ("append-only", "+a")] {
        run("chattr", &[flag, text(&directory.join(name))]);
    }
    let before = kept(&directory);

    let running = Running(Command::new(&program).arg("1000").spawn().unwrap());
    let swapped = Swapped::to(&swap);
    let mut mover = host(&directory);
    let (files, report) = pack(&mut mover, &directory, &RULES);
    // One between two that stay may not be worth it: the order of the directory is drawn.
    assert!(report.ended.is_none() && report.files >= 25, "{report:?}");
    let stays = |name: &str| files.iter().find(|file| file.path.ends_with(name)).unwrap().stays;
    assert_eq!(stays("immutable"), Some(Stays::Immutable));
    assert_eq!(stays("append-only"), Some(Stays::AppendOnly));
    assert_eq!(stays("journaled"), Some(Stays::Journaled));
    assert_eq!(stays("dax"), Some(Stays::Dax));
    assert_eq!(stays("inline"), Some(Stays::Inline));
    assert!(files.iter().all(|file| !file.path.ends_with("link")));

    // These lie in one piece, and so nobody has tried to move them.
    let mut alone = |path: &Path| why_it_stays(&mut mover, &directory, path);
    assert_eq!(alone(&program), Stays::Running);
    assert_eq!(alone(&swap), Stays::Swap);
    drop((running, swapped));
    let swap_bytes = fs::read(&swap).unwrap();
    assert_eq!(swap_bytes.len(), 1 << 20);
    // The program was run and the swap file used: their times may be others.
    let others = |mut all: BTreeMap<PathBuf, Kept>| {
        all.retain(|path, _| *path != swap && *path != program);
        all
    };
    assert!(others(before) == others(kept(&directory)));
    for (name, flag) in [("immutable", "-i"), ("append-only", "-a")] {
        run("chattr", &[flag, text(&directory.join(name))]);
    }
    drop(mover);
    image.check();
}

#[test]
fn files_without_extents_are_left() {
    if !is_root() {
        return;
    }
    let image = Image::new(256 * MIB, &["-O", "^extent,^64bit"], "");
    let directory = image.root().join("d");
    scatter(&directory, 20);
    let before = kept(&directory);
    let (files, made) = planned(&mut host(&directory), &directory, &RULES);
    assert!(files.iter().all(|file| file.stays == Some(Stays::NoExtents)), "{:?}", files[0]);
    assert_eq!((files.len(), made.regions.len()), (20, 0));
    assert_same(&directory, &before);
}

#[test]
fn encrypted_files_are_left() {
    if !is_root() {
        return;
    }
    let features = fs::read_dir("/sys/fs/ext4/features").unwrap();
    let has_keys = features.flatten().any(|feature| feature.file_name() == "test_dummy_encryption_v2");
    if !has_keys {
        return not_here("this kernel has no encryption for tests");
    }
    let image = Image::new(256 * MIB, &["-O", "encrypt,stable_inodes"], "test_dummy_encryption");
    let directory = image.root().join("d");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("secret"), bytes(1, 20_000)).unwrap();
    sync(&directory);
    let (files, _) = planned(&mut host(&directory), &directory, &RULES);
    assert_eq!(files[0].stays, Some(Stays::Encrypted));
}

/// Files of a user who isn't there: nobody can open them, and the others are moved all the same.
#[test]
fn encrypted_files_without_their_key_are_left() {
    if !is_root() {
        return;
    }
    if !Path::new("/sys/fs/ext4/features/encryption").exists() {
        return not_here("this kernel has no encryption");
    }
    let mut image = Image::new(256 * MIB, &["-O", "encrypt"], "");
    let directory = image.root().join("d");
    let locked = directory.join("locked");
    fs::create_dir_all(&locked).unwrap();
    let key = format!("head -c 64 /dev/zero | xfs_io -c add_enckey '{}'", text(&image.root()));
    let said = run("sh", &["-c", &key]);
    let id = said.split_whitespace().last().expect("the name of the key").to_owned();
    run("xfs_io", &["-c", &format!("set_encpolicy {id}"), text(&locked)]);
    for number in 0..3 {
        fs::write(locked.join(format!("secret-{number}")), bytes(number, 20_000)).unwrap();
    }
    scatter(&directory, 30);
    // The key goes with the mount.
    image.cold();
    let (files, report) = pack(&mut host(&directory), &directory, &RULES);
    assert!(report.ended.is_none() && report.files >= 27, "{report:?}");
    let stays = files.iter().filter(|file| file.path.starts_with(&locked)).map(|file| file.stays);
    assert_eq!(stays.collect::<Vec<_>>(), [Some(Stays::Encrypted); 3]);
    image.check();
    // The daemon looks at what is in memory.
    let path = fs::read_dir(&locked).unwrap().next().unwrap().unwrap().path();
    path.metadata().unwrap();
    let told = host(&directory).look_in_memory(&path);
    assert!(matches!(told, Ok(None) | Err(Trouble::Stays(Stays::Encrypted))), "{told:?}");
}

/// By their flag alone, which kernels without encryption know, too: they don't open such files, and others miss their keys.
#[test]
fn files_with_the_flag_of_encryption_are_left() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(256 * MIB, &["-O", "encrypt"], "");
    let directory = image.root().join("d");
    scatter(&directory, 30);
    let flags = |image: &mut Image, flags: &str| {
        image.unmount();
        run("debugfs", &["-w", "-R", &format!("sif /d/file-11 flags {flags}"), text(image.device())]);
        image.mount();
    };
    flags(&mut image, "0x80800");
    let (files, report) = pack(&mut host(&directory), &directory, &RULES);
    assert!(report.ended.is_none() && report.files >= 27, "{report:?}");
    let marked = files.iter().find(|file| file.path.ends_with("file-11")).unwrap();
    assert_eq!(marked.stays, Some(Stays::Encrypted));
    flags(&mut image, "0x80000");
    assert!(fs::read(directory.join("file-11")).unwrap() == bytes(11, blocks_of(11) as usize * 4096 - 100));
    image.check();
}

/// What vanishes, or is replaced, between the plan and its turn.
#[test]
fn what_is_gone_or_written_meanwhile_is_left() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 40);
    image.cold();
    let mut mover = host(&directory);
    let (mut files, made) = planned(&mut mover, &directory, &RULES);
    let turn = |name: &str| files.iter().position(|file| file.path.ends_with(name)).unwrap();
    let (gone, replaced, cut, dirty) = (turn("file-3"), turn("file-5"), turn("file-7"), turn("file-9"));
    fs::remove_file(directory.join("file-3")).unwrap();
    fs::write(directory.join("new"), bytes(5, 9000)).unwrap();
    fs::rename(directory.join("new"), directory.join("file-5")).unwrap();
    sync(&directory);
    File::options().write(true).open(directory.join("file-7")).unwrap().set_len(4096).unwrap();
    File::options().write(true).open(directory.join("file-9")).unwrap().write_all_at(b"!", 0).unwrap();
    let before = kept(&directory);
    let settings = Settings::new(RULES);
    let report = carry_out(&mut mover, &mut files, &made, &settings, &mut |_| true);
    assert!(report.ended.is_none() && report.torn.is_empty(), "{report:?}");
    assert_eq!(report.stayed.get(&gone), Some(&Stays::Gone));
    assert_eq!(report.stayed.get(&replaced), Some(&Stays::Gone));
    assert_eq!(report.stayed.get(&dirty), Some(&Stays::Busy));
    assert!(!report.stayed.contains_key(&cut) || report.stayed[&cut] == Stays::Busy);
    assert!(report.files >= 30, "{report:?}");
    assert_same(&directory, &before);
}
