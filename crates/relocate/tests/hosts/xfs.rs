//! A real XFS.

use std::fs;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

use onesweep_relocate::host::{Exchange, Host, Stays};
use onesweep_relocate::pack::Rules;
use onesweep_relocate::xfs::{Refusal, Xfs};
use onesweep_sys::files::{clone_file, set_xattr_fd};
use onesweep_sys::sharing::{Part, share_equal};

use crate::conformance::conforms;
use crate::helper::{NOBODY, as_somebody_else};
use crate::image::{Image, XFS, copy_program, is_root, run, text};
use crate::kinds::{Kind, Mounted, OnXfs, READ};
use crate::packing;
use crate::refusals::{Running, Swapped};
use crate::tree::{assert_same, breaks, bytes, kept, pack, planned, scatter, sync, why_it_stays};

const MIB: u64 = 1 << 20;
const RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };

#[test]
fn xfs_conforms() {
    conforms_with_any_block::<OnXfs>();
}

pub(crate) fn conforms_with_any_block<K: Kind<Host = Xfs>>() {
    if !is_root() {
        return;
    }
    conforms(&mut Mounted::<K>::new(K::image(512 * MIB, "")));
    conforms(&mut Mounted::<K>::new(Image::of(K::TOOLS, 0, &["-b", "size=1024"], "")));
}

#[test]
fn a_scattered_directory_comes_to_lie_side_by_side() {
    packing::a_scattered_directory_comes_to_lie_side_by_side::<OnXfs>();
}

#[test]
fn odd_files_are_packed_or_left() {
    packing::odd_files_are_packed_or_left::<OnXfs>();
}

#[test]
fn only_what_is_in_memory_is_moved_when_that_is_asked_for() {
    packing::only_what_is_in_memory_is_moved_when_that_is_asked_for::<OnXfs>();
}

#[test]
fn a_full_disk_and_a_read_only_one_change_nothing() {
    packing::a_full_disk_and_a_read_only_one_change_nothing::<OnXfs>();
}

#[test]
fn free_space_in_pieces_is_used_where_it_is_better() {
    packing::free_space_in_pieces_is_used_where_it_is_better::<OnXfs>();
}

#[test]
fn file_systems_are_refused_by_name() {
    if !is_root() {
        return;
    }
    let refused = |mkfs: &[&str], options: &str| {
        let image = Image::of(&XFS, 0, mkfs, options);
        Xfs::of(&image.root(), READ).unwrap_err()
    };
    assert!(matches!(refused(&[], "ro"), Refusal::ReadOnly));
    assert!(matches!(Xfs::of(Path::new("/dev/shm"), READ), Err(Refusal::NotXfs(name)) if name == "tmpfs"));
    assert!(matches!(Xfs::of(Path::new("/dev/shm/none"), READ), Err(Refusal::Unknown { .. })));
}

#[test]
fn files_are_left_by_name() {
    files_are_left_by_name_on::<OnXfs>(Stays::Swap);
}

pub(crate) fn files_are_left_by_name_on<K: Kind<Host = Xfs>>(swapped_to: Stays) {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 30);
    for (name, flag) in [("file-3", "+i"), ("file-5", "+a")] {
        run("chattr", &[flag, text(&directory.join(name))]);
    }
    run("fallocate", &["-l", "40000", text(&directory.join("preallocated"))]);
    let program = directory.join("running");
    copy_program(Path::new("/bin/sleep"), &program);
    let swap = directory.join("swap");
    fs::write(&swap, vec![0; 1 << 20]).unwrap();
    run("chmod", &["600", text(&swap)]);
    run("mkswap", &[text(&swap)]);
    image.cold();
    let running = Running(Command::new(&program).arg("1000").spawn().unwrap());
    let swapped = Swapped::to(&swap);

    let mut mover = K::host(&directory);
    let (files, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files > 20, "{report:?}");
    let stays = |name: &str| files.iter().find(|file| file.path.ends_with(name)).unwrap().stays;
    assert_eq!(stays("file-3"), Some(Stays::Immutable));
    assert_eq!(stays("file-5"), Some(Stays::AppendOnly));
    assert_eq!(stays("preallocated"), Some(Stays::Preallocated));
    // These lie in one piece, and so nobody has tried to move them.
    let places = |mover: &mut Xfs| [&program, &swap].map(|path| mover.look(path).unwrap().places);
    let before = places(&mut mover);
    let mut alone = |path: &Path| why_it_stays(&mut mover, &directory, path);
    assert_eq!(alone(&program), Stays::Running);
    assert_eq!(alone(&swap), swapped_to);
    assert_eq!(places(&mut mover), before);
    drop((running, swapped, mover));
    for (name, flag) in [("file-3", "-i"), ("file-5", "-a")] {
        run("chattr", &[flag, text(&directory.join(name))]);
    }
    image.check();
}

/// Blocks may be smaller than pages.
#[test]
fn small_blocks_are_packed_too() {
    small_blocks_are_packed_too_on::<OnXfs>();
}

pub(crate) fn small_blocks_are_packed_too_on<K: Kind<Host = Xfs>>() {
    if !is_root() {
        return;
    }
    let mut image = Image::of(K::TOOLS, 0, &["-b", "size=1024"], "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    // Ends everywhere in a page.
    for number in 0..40 {
        fs::write(directory.join(format!("odd-{number}")), bytes(number, 1 + number as usize * 333)).unwrap();
    }
    image.cold();
    let before = kept(&directory);
    let mut mover = K::host(&directory);
    assert_eq!(mover.block_bytes(), 1024);
    mover.set_unit(2048);
    let rules = Rules { region: 2048, slack: 0, budget: 128, dearest: 128, margin: 1 };
    let (_, made) = planned(&mut mover, &directory, &rules);
    let (after, report) = pack(&mut mover, &directory, &rules);
    assert!(report.ended.is_none() && report.stayed.is_empty() && report.torn.is_empty(), "{report:?}");
    assert!(breaks(&after) < 8 && made.before.breaks() > 200, "{} of {}", breaks(&after), made.before.breaks());
    assert_same(&directory, &before);
    drop(mover);
    image.check();
    assert_same(&directory, &before);
}

#[test]
fn shared_files_stay_shared() {
    shared_files_stay_shared_on::<OnXfs>();
}

/// What is shared stays, with what it is shared with; all else comes to share nothing.
pub(crate) fn shared_files_stay_shared_on<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    let paths = scatter(&directory, 40);
    let clone = |from: &Path, name: &str| {
        let target = File::create(directory.join(name)).unwrap();
        clone_file(File::open(from).unwrap().as_fd(), target.as_fd()).unwrap();
    };
    clone(&paths[3], "clone-3");
    clone(&paths[17], "clone-17");
    sync(&directory);
    image.cold();
    let before = kept(&directory);
    let used = || {
        // What is being let go of in the background counts until then.
        sync(&directory);
        paths.iter().map(|path| fs::metadata(path).unwrap().blocks()).sum::<u64>()
    };
    let blocks = used();
    let mut mover = K::host(&directory);
    let (files, _) = planned(&mut mover, &directory, &RULES);
    let shared = files.iter().filter(|file| file.stays == Some(Stays::Shared));
    let mut names: Vec<_> = shared.map(|file| file.path.file_name().unwrap().to_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["clone-17", "clone-3", "file-17", "file-3"]);
    let (after, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files > 30, "{report:?}");
    for (was, now) in files.iter().zip(&after) {
        if was.stays.is_some() {
            assert_eq!(was.places, now.places, "{}", was.path.display());
        } else {
            assert_eq!(mover.look(&now.path).unwrap().stays, None);
        }
    }
    assert_eq!(used(), blocks);
    assert_same(&directory, &before);
    drop(mover);
    image.check();
    assert_same(&directory, &before);
}

/// What a file was cut to or has grown by since it was opened is in it afterwards.
#[test]
fn what_is_cut_or_grows_meanwhile_keeps_its_bytes() {
    what_is_cut_or_grows_meanwhile_keeps_its_bytes_on::<OnXfs>();
}

pub(crate) fn what_is_cut_or_grows_meanwhile_keeps_its_bytes_on<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    let paths = scatter(&directory, 3);
    let mut mover = K::host(&directory);
    let captured = mover.capture(&directory, mover.unit());
    let donor = &captured.donors[0];
    let mut to = 0;
    for (number, path) in paths.iter().enumerate() {
        let looked = mover.look(path).unwrap();
        let opened = mover.open(path, looked.inode).unwrap();
        let blocks = looked.places.blocks();
        let file = File::options().write(true).open(path).unwrap();
        let size = file.metadata().unwrap().len();
        // It has become shorter, longer within its block, or longer by far since it was planned for.
        let now = [size - 4096, size + 50, size + 9000][number];
        file.set_len(now).unwrap();
        drop(file);
        let moved = mover.exchange(&opened.file, donor, Exchange { from: 0, to, blocks });
        assert!(moved.blocks <= blocks, "{moved:?}");
        let mut wanted = bytes(number as u64, size as usize);
        wanted.resize(now as usize, 0);
        assert!(fs::read(path).unwrap() == wanted);
        to += blocks;
    }
    drop((captured, mover));
    image.check();
}

/// The kernel compares: whoever writes between the reading and the sharing keeps what was written, where it is.
#[test]
fn only_equal_bytes_come_to_be_shared() {
    if !is_root() {
        return;
    }
    let image = OnXfs::image(512 * MIB, "");
    let made = |name: &str, bytes: &[u8]| {
        let path = image.root().join(name);
        fs::write(&path, bytes).unwrap();
        sync(&image.root());
        File::options().read(true).write(true).open(path).unwrap()
    };
    let ours = made("ours", &bytes(1, 13_000));
    let part = Part { offset: 4096, bytes: 13_000 - 4096 };
    let theirs = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes(1, 13_000)[4096..].to_vec();
        change(&mut bytes);
        let file = made("theirs", &bytes);
        let told = share_equal(ours.as_fd(), part, file.as_fd(), 0);
        assert!(fs::read(image.root().join("theirs")).unwrap() == bytes);
        told.map_err(|error| error.raw_os_error())
    };
    assert_eq!(theirs(&|_| ()), Ok(Some(part.bytes)));
    assert_eq!(theirs(&|bytes| bytes[5000] ^= 1), Ok(None));
    assert_eq!(theirs(&|bytes| *bytes.last_mut().unwrap() ^= 1), Ok(None));
    assert_eq!(theirs(&|bytes| bytes.truncate(5000)), Err(Some(22)));
}

#[test]
fn a_read_error_ends_it_and_nothing_is_lost() {
    packing::a_read_error_ends_it_and_nothing_is_lost::<OnXfs>();
}

/// Files of others could be read, but not without a trace.
#[test]
fn files_of_others_stay() {
    files_of_others_stay_on::<OnXfs>("xfs-others");
}

pub(crate) fn files_of_others_stay_on<K: Kind>(does: &str) {
    if !is_root() {
        return;
    }
    let image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    for path in scatter(&directory, 20) {
        run("chmod", &["666", text(&path)]);
    }
    chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
    sync(&directory);
    let before = kept(&directory);
    as_somebody_else(does, "", &directory, &image.root());
    assert_same(&directory, &before);
}

/// Between the time that a mapping or a direct write sets and its bytes, nothing tells of the change. Who reads hinders nobody.
pub(crate) fn who_has_it_open_for_writing_keeps_it_on<K: Kind<Host = Xfs>>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    let paths = scatter(&directory, 30);
    let before = kept(&directory);
    let mut mover = K::host(&directory);
    let writer = File::options().write(true).open(&paths[7]).unwrap();
    let reader = File::open(&paths[8]).unwrap();
    let (files, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files == 29, "{report:?}");
    for file in &files {
        let stays = file.path.ends_with("file-7").then_some(Stays::Busy);
        assert_eq!(file.stays, stays, "{}", file.path.display());
    }
    drop((writer, reader));

    // Who comes later, too, after it was opened for moving.
    let looked = mover.look(&paths[7]).unwrap();
    let opened = mover.open(&paths[7], looked.inode).unwrap();
    let captured = mover.capture(&directory, mover.unit());
    let all = Exchange { from: 0, to: 0, blocks: looked.places.blocks() };
    let writer = File::options().write(true).open(&paths[7]).unwrap();
    let moved = mover.exchange(&opened.file, &captured.donors[0], all);
    assert!(moved.blocks == 0 && format!("{moved:?}").contains("Busy"), "{moved:?}");
    drop(writer);
    let moved = mover.exchange(&opened.file, &captured.donors[0], all);
    assert!(moved.trouble.is_none() && moved.blocks == all.blocks, "{moved:?}");
    assert_same(&directory, &before);
    drop((opened, captured, mover));
    image.check();
    assert_same(&directory, &before);
}

/// Makes a file run as its owner, one as its group, and one with a capability (`cap_net_raw=p`).
pub(crate) fn give_rights(owner: &Path, group: &Path, capable: &Path) {
    run("chmod", &["4755", text(owner)]);
    run("chmod", &["2755", text(group)]);
    let capability = [&[0, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat();
    set_xattr_fd(File::open(capable).unwrap().as_fd(), c"security.capability", &capability).unwrap();
}
