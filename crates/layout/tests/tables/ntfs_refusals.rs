//! NTFS that is not read: not closed, hibernating, or none.

use std::{fs, process::Command};

use onesweep_layout::{
    ImageFile,
    tables::{
        TableError, Tables,
        ntfs::{Ntfs, Options},
    },
};

use crate::{
    conformance,
    image::{self, Image},
    ntfs::{CLOSED, make, number},
    ntfs_damage::small_image,
};

/// Where an attribute of a record has its value.
fn value_at(bytes: &[u8], record: usize, kind: usize) -> usize {
    let mut at = record + number(bytes, record + 20, 2);
    while number(bytes, at, 4) != kind {
        at += number(bytes, at + 4, 4);
    }
    at + number(bytes, at + 20, 2)
}

#[test]
fn a_volume_that_was_not_closed_is_refused() {
    let Some(sound) = small_image() else { return };
    let mft = number(&sound, 48, 8) * 1024;
    let dirty = |bytes: &[u8]| {
        let error = Ntfs::open(bytes, CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::Dirty { .. }), "{error}");
        assert!(error.to_string().contains("--force-dirty"));
        let mut forced = Ntfs::open(bytes, Options { force_dirty: true }).unwrap();
        let kept = conformance::scan(&mut forced);
        assert!(kept.inodes.len() > 150 && kept.problems.is_empty(), "{:?}", kept.problems);
    };
    let mut bytes = sound.clone();
    bytes[value_at(&sound, mft + 3 * 1024, 0x70) + 10] |= 1;
    dirty(&bytes);

    // A journal that somebody has open.
    let journal = mft + 2 * 1024;
    let mut at = journal + number(&sound, journal + 20, 2);
    while number(&sound, at, 4) != 0x80 {
        at += number(&sound, at + 4, 4);
    }
    let runs = at + number(&sound, at + 32, 2);
    let (length, place) = (usize::from(sound[runs] & 15), usize::from(sound[runs] >> 4));
    let log = 1024 * number(&sound, runs + 1 + length, place);
    let mut bytes = sound.clone();
    let page = &mut bytes[log..log + 4096];
    page.fill(0);
    page[..8].copy_from_slice(&[b'R', b'S', b'T', b'R', 30, 0, 9, 0]);
    page[16..20].copy_from_slice(&4096_u32.to_le_bytes());
    page[24] = 48;
    dirty(&bytes);

    // A torn record of the root hides whether there is a hiberfil.sys, and no other sign.
    let root = mft + 5 * 1024 + 510;
    for (bytes, expected) in [(&bytes, "$LogFile"), (&sound, "nobody can tell whether it was closed")] {
        let mut torn = bytes.clone();
        torn[root] = !torn[root];
        let error = Ntfs::open(&torn, CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::Dirty { .. }) && error.to_string().contains(expected), "{error}");
        let forced = Ntfs::open(&torn, Options { force_dirty: true }).unwrap();
        assert!(forced.facts().is_dirty);
    }
}

#[test]
fn a_volume_that_hibernates_is_refused() {
    let Some(mut image) = make(4096, 512, &[]) else { return };
    let mut with = |content: &[u8]| {
        image.mount_ntfs("");
        fs::write(image.root().join("HiberFil.sys"), content).unwrap();
        for i in 0..100 {
            fs::write(image.root().join(format!("{i} beside it, so that the index has blocks")), "").unwrap();
        }
        image.unmount();
        let forced = Ntfs::open(ImageFile::open(&image.path()).unwrap(), Options { force_dirty: true }).unwrap();
        (Ntfs::open(ImageFile::open(&image.path()).unwrap(), CLOSED).map(|_| ()), forced.facts().is_dirty)
    };
    for content in [&[b"HIBR", &[0; 8188][..]].concat()[..], b"short"] {
        let (refused, is_flagged) = with(content);
        assert!(matches!(refused, Err(TableError::Dirty { .. })) && is_flagged, "{refused:?}");
    }
    for content in [&[0; 8192][..], &[b"wake", &[0; 8188][..]].concat()] {
        let (closed, is_flagged) = with(content);
        assert!(closed.is_ok() && !is_flagged, "{closed:?}");
    }
}

#[test]
fn what_is_no_ntfs_is_told() {
    for bytes in [vec![0; 1 << 20], vec![0x5a; 1 << 20], b"XFSB".repeat(1000)] {
        let error = Ntfs::open(&bytes, CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::NotHere { fs_type: "ntfs", .. }), "{error}");
    }
}

/// The backup of the boot sector stays at the end of a device when another file system is made on it.
#[test]
fn what_was_an_ntfs_is_told() {
    for mkfs in [&["mkfs.ext4", "-qF"][..], &["mkfs.xfs", "-qf"], &["mkfs.btrfs", "-qf"]] {
        let Some(mut image) = Image::new(320 << 20, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0"]) else { return };
        image::run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(image.path()));
        image.mount(&[], "");
        fs::write(image.root().join("file"), "content").unwrap();
        image.unmount();
        let error = Ntfs::open(ImageFile::open(&image.path()).unwrap(), CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::NotHere { .. }), "{mkfs:?}: {error}");
    }
}
