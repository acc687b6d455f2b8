//! Journals of ext4: replayed, refused, or on another device.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use onesweep_layout::{
    ImageFile,
    tables::{TableError, Tables, Wanted, ext4::Ext4},
};

use crate::{
    conformance::{Kept, by_kernel, by_tables, compare, names_its_place, scan},
    ext4::{MIB, conforms_mounted, open},
    ext4_tree::{Amount, fill, fill_small},
    image::{Image, run, unmount},
};

/// A device in a loop, which goes when this goes.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Loop {
        let out = run(Command::new("losetup").args(["--find", "--show"]).arg(file)).stdout;
        Loop(String::from_utf8_lossy(&out).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A journal on a device of its own is no file system; the file system it belongs to is read as long as it was closed.
#[test]
fn a_journal_on_another_device_is_named() {
    let Some(mut image) = Image::new(64 * MIB, &["mke2fs", "-q", "-F", "-b", "4096", "-O", "journal_dev"]) else {
        return;
    };
    let error = open(&image).err().expect("a journal alone").to_string();
    assert!(error.contains("uses journal_dev, which is not supported (byte 1120: expected no bits but "), "{error}");
    assert!(error.contains("name the device of the file system, not that of its journal"), "{error}");

    let journal = image.path().with_extension("journal");
    fs::rename(image.path(), &journal).unwrap();
    fs::File::create(image.path()).and_then(|file| file.set_len(64 * MIB)).unwrap();
    let (journal, device) = (Loop::new(&journal), Loop::new(&image.path()));
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-J", &format!("device={}", journal.0), &device.0]));
    image.mount(&["-t", "ext4"], "");
    fill_small(&image.root(), 6, 4096, Amount { files: 120, names: 600, pieces: 100 });
    commit(&image);
    let copy = copied(&image);
    image.unmount();
    let refused = Ext4::open(ImageFile::open(&copy).unwrap()).err().expect("what was not closed");
    assert!(matches!(refused, TableError::Dirty { .. }), "{refused}");
    names_its_place(&refused);
    assert!(refused.to_string().contains("the journal on another device has to be recovered first"), "{refused}");
    let tables = by_tables(&mut open(&image).expect("tables"), &[]);
    image.mount(&["-t", "ext4"], "ro");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
    drop((journal, device));
}

/// Has everything written to the journal, but not yet to its place, which `sync` would do.
pub(crate) fn commit(image: &Image) {
    fs::File::create(image.root().join("marker")).and_then(|file| file.sync_all()).expect("a commit");
}

/// A copy of an image, beside it, as a crash would leave it now.
pub(crate) fn copied(image: &Image) -> PathBuf {
    let copy = image.path().with_extension("copy");
    run(Command::new("cp").arg("--sparse=always").arg(image.path()).arg(&copy));
    copy
}

/// Unmounts it, but leaves it as a crash would have left it before.
pub(crate) fn unmount_without_writing(image: &mut Image) {
    let copy = copied(image);
    image.unmount();
    fs::rename(&copy, image.path()).unwrap();
}

#[test]
fn fast_commits_are_refused() {
    let Some(mut image) = Image::new(128 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "fast_commit"]) else {
        return;
    };
    image.mount(&["-t", "ext4"], "commit=300");
    let file = fs::File::create(image.root().join("a")).unwrap();
    commit(&image);
    // Only what follows a whole commit can be a fast one.
    for _ in 0..3 {
        io::Write::write_all(&mut &file, b"more").unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    unmount_without_writing(&mut image);
    let refused = open(&image).err();
    assert!(matches!(refused, Some(TableError::Dirty { .. })), "{refused:?}");
}

#[test]
fn a_journal_is_replayed() {
    for options in [&["-O", "metadata_csum"][..], &["-O", "^metadata_csum"], &["-O", "^metadata_csum,^64bit"]] {
        let mkfs = [&["mkfs.ext4", "-q", "-F", "-b", "4096"], options].concat();
        let Some(mut image) = Image::new(256 * MIB, &mkfs) else { return };
        image.mount(&["-t", "ext4"], "commit=300");
        let amount = Amount { files: 200, names: 2000, pieces: 500 };
        fill(&image.root(), 3, 4096, amount);
        commit(&image);
        // Blocks of directories that are freed and used again are revoked.
        fs::remove_dir_all(image.root().join("many names")).unwrap();
        commit(&image);
        fs::create_dir(image.root().join("again")).unwrap();
        fill(&image.root().join("again"), 4, 4096, amount);
        for index in 0..50 {
            fs::remove_file(image.root().join(format!("folder 1/1/file {}", 1 + 85 * index))).unwrap_or_default();
        }
        commit(&image);
        unmount_without_writing(&mut image);
        let header = run(Command::new("dumpe2fs").arg("-h").arg(image.path())).stdout;
        assert!(String::from_utf8_lossy(&header).contains("needs_recovery"), "{options:?}");
        if options[1].starts_with('^') {
            // Without its journal it's another one, so there is something to replay.
            let mut bytes = fs::read(image.path()).unwrap();
            let replayed = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
            bytes[1024 + 0x60] &= !4;
            let mut old = Kept::default();
            Ext4::open(bytes.as_slice()).unwrap().scan(Wanted::default(), &mut old).unwrap();
            assert_ne!(old.names.len(), replayed.names.len());
        }
        // To replay it, the kernel has to write.
        conforms_mounted(image, None, "");
    }
}

/// A closed-over journal of two transactions and more, of 1 KiB blocks.
fn crashed(mkfs: &[&str]) -> Option<Image> {
    let mut image = Image::new(24 * MIB, mkfs)?;
    image.mount(&["-t", "ext4"], "commit=300");
    for number in 0..3 {
        let folder = image.root().join(format!("transaction {number}"));
        fs::create_dir(&folder).unwrap();
        (0..40).for_each(|file| fs::write(folder.join(file.to_string()), "content").unwrap());
        commit(&image);
    }
    unmount_without_writing(&mut image);
    Some(image)
}

/// Where the blocks of this type (1: descriptors, 2: commits) begin, of the transactions that are to be replayed.
fn in_journal(bytes: &[u8], kind: u32) -> Vec<usize> {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let heads = |kind| move |&at: &usize| word(at) == 0xC03B_3998 && word(at + 4) == kind;
    let superblock = (0..bytes.len()).step_by(1024).find(heads(4)).expect("a journal");
    let (length, first) = (word(superblock + 16) as usize * 1024, word(superblock + 24));
    let blocks = (superblock..superblock + length).step_by(1024).filter(heads(kind));
    blocks.filter(|at| word(at + 8) >= first).collect()
}

fn is_mounted_by_kernel(image: &Image, bytes: &[u8]) -> bool {
    // Another file each time: a loop device of the last one may not have gone yet, and would show what that one had.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let copy = image.path().with_extension(format!("damaged-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::write(&copy, bytes).unwrap();
    let mounted = Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&copy).arg(image.root()).output();
    let is_mounted = mounted.expect("mount runs").status.success();
    if is_mounted {
        unmount(&image.root());
    }
    fs::remove_file(&copy).unwrap();
    is_mounted
}

#[test]
fn a_journal_that_is_damaged_is_not_cut_short() {
    let Some(image) = crashed(&["mkfs.ext4", "-q", "-F", "-b", "1024"]) else { return };
    let sound = fs::read(image.path()).unwrap();
    let all = scan(&mut Ext4::open(sound.as_slice()).unwrap());
    let (descriptors, commits) = (in_journal(&sound, 1), in_journal(&sound, 2));
    assert!(descriptors.len() >= 3 && commits.len() >= 3, "{descriptors:?}, {commits:?}");
    let last = commits.len() - 1;
    // The kernel looks at checksums where its log goes on: it takes a block that names no transaction for the end.
    for (what, at, refused_by_kernel) in [
        ("descriptor", descriptors[0] + 100, true),
        ("descriptor", descriptors[1] + 1000, true),
        ("commit block", commits[0] + 40, true),
        ("commit block", commits[1] + 20, true),
        ("commit block", commits[last] + 57, true),
        ("block", descriptors[0] + 1, false),
        ("block", descriptors[1] + 11, false),
        ("block", commits[0] - 1024 + 1, true),
        ("block", commits[0] + 1, false),
        ("block", commits[1] + 11, false),
        // Behind it there is nothing that would show that it was written.
        ("the head of a block", commits[last] + 1, false),
        ("the head of a block", commits[last] + 6, false),
        ("the head of a block", commits[last] + 7, false),
        ("the head of a block", commits[last] + 11, false),
    ] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        let error = Ext4::open(bytes.as_slice()).err().unwrap_or_else(|| panic!("{what} {at} goes unnoticed"));
        let TableError::Damaged { at: told, .. } = error else { panic!("{error}") };
        assert_eq!(told as usize / 1024, at / 1024, "{error}");
        let message = error.to_string();
        assert!(message.contains(what) && message.contains("e2fsck"), "{message}");
        assert_eq!(!is_mounted_by_kernel(&image, &bytes), refused_by_kernel, "{message}");
    }
    // Nor does an older time end it, which ends it for the kernel, where a sound transaction shows that it's wrong.
    let older = |commit: usize| {
        let mut bytes = sound.clone();
        bytes[commit + 48..][..8].copy_from_slice(&1_u64.to_be_bytes());
        bytes
    };
    for commit in [commits[1], commits[last]] {
        let error = Ext4::open(older(commit).as_slice()).err().expect("a wrong commit block");
        assert!(error.to_string().contains("commit block"), "{error}");
        assert!(is_mounted_by_kernel(&image, &older(commit)));
    }
    let mut bytes = older(commits[0]);
    bytes[descriptors[0] + 100] ^= 1;
    assert!(Ext4::open(bytes.as_slice()).is_err(), "later transactions are sound");
    // A descriptor that tells of blocks which it doesn't have leads past the commit. Its first tag is its last by a flag.
    let mut bytes = sound.clone();
    let descriptor = *descriptors.iter().rfind(|at| **at < commits[last]).expect("one of the last transaction");
    let tags = (descriptor + 12..descriptor + 1020).step_by(16);
    let end = tags.into_iter().find(|at| bytes[at + 7] & 8 != 0).expect("a last tag");
    bytes[end + 7] &= !8;
    let error = Ext4::open(bytes.as_slice()).err().expect("a wrong descriptor");
    assert!(error.to_string().contains("a descriptor"), "{error}");
    // Nor does it help when the commit is damaged too, be it in its head, where only its checksum says what it is, or elsewhere.
    for at in [1, 11, 20, 40, 57].map(|at| commits[last] + at) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let error = Ext4::open(bytes.as_slice()).err().unwrap_or_else(|| panic!("goes unnoticed with {at}"));
        assert!(error.to_string().contains("of the journal, which e2fsck has to recover"), "{error}");
    }
    // A transaction that is wrong in all its parts and older than the log before it isn't damage, but its end.
    let mut bytes = older(commits[last]);
    let descriptor = descriptors.iter().rfind(|at| **at < commits[last]).expect("one of the last transaction");
    bytes[descriptor + 100] ^= 1;
    let kept = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
    assert!(kept.problems.is_empty() && kept.names.len() < all.names.len());
    assert!(is_mounted_by_kernel(&image, &bytes));
}
