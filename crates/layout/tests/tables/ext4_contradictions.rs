//! Contradictions of ext4 without checksums.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};

use onesweep_layout::tables::{Tables, ext4::Ext4};

use crate::{
    conformance::{Kept, scan},
    contradictions::{MIB, assert_told, fill, number_of, place_of, set},
    image::run,
};

#[test]
fn ext4_without_checksums() {
    for features in
        ["^has_journal,^metadata_csum", "^metadata_csum,uninit_bg", "^metadata_csum,^uninit_bg,^extent,^64bit,^flex_bg"]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
        fill(&tree);
        let pieces = File::create(tree.join("pieces")).expect("a file");
        (0..20).for_each(|piece| pieces.write_all_at(&[b'p'; 4096], piece * 8192).expect("a piece"));
        File::create(&image).and_then(|file| file.set_len(16 * MIB)).expect("a sparse file");
        let mkfs = ["-q", "-F", "-b", "1024", "-N", "512", "-O", features, "-d"];
        run(Command::new("mkfs.ext4").args(mkfs).arg(&tree).arg(&image));
        let sound = fs::read(&image).expect("an image");
        let kept = scan(&mut Ext4::open(sound.as_slice()).expect("tables"));
        assert!(kept.problems.is_empty(), "{features}: {:?}", kept.problems);
        let place = |name: &str| {
            let tables = Ext4::open(sound.as_slice()).expect("tables");
            tables.inode_at(number_of(&kept, name)).expect("a place")
        };
        let first = |name: &str| kept.inodes[&number_of(&kept, name)].extents[0].physical.expect("a place") / 1024;
        let (one, other) = (place("one"), first("other").to_le_bytes());
        // Where the first block of content is told.
        let pointer = if features.contains("^extent") { 0x28 } else { 0x28 + 12 + 8 };
        let entry = place_of(&sound, b"many007") - 1;
        let by_bytes: [(u64, &[u8], &str); 7] = [
            (one + 0x1A, &[3], "the link count of inode"),
            (place("below") + 0x1A, &[7], "the link count of inode"),
            (one + 0x1C, &[40], "the number of blocks of inode"),
            (place("below") + 4, &[0, 0x10], "the size of inode"),
            (one + pointer, &other[..4], "which something else has, too"),
            (entry, &[7], "as a name says"),
            (one + 0x21, &[8], "the flags of inode"),
        ];
        for (at, new, expected) in by_bytes {
            let mut bytes = sound.clone();
            set(&mut bytes, at, new);
            let kept = scan(&mut Ext4::open(bytes.as_slice()).expect("tables"));
            assert_told(&kept, expected, &format!("{features}, {new:?} at {at}"));
        }
        for (command, expected) in [
            (format!("freeb {}", first("one")), "which is free"),
            ("freei <13>".to_owned(), "the use of inode 13"),
            ("seti <200>".to_owned(), "inode 200"),
            ("unlink below/many003".to_owned(), "the link count of inode"),
        ] {
            fs::write(&image, &sound).expect("an image");
            run(Command::new("debugfs").args(["-w", "-R", &command]).arg(&image));
            let kept = scan(&mut Ext4::open(fs::read(&image).expect("an image").as_slice()).expect("tables"));
            assert_told(&kept, expected, &format!("{features}, {command}"));
        }
        // Its map of blocks in a place that nobody has: as good as the one that it was copied from.
        let pieces = place("pieces");
        let pointer = pieces + if features.contains("^extent") { 0x28 + 48 } else { 0x28 + 12 + 4 };
        let map = u32::from_le_bytes(sound[pointer as usize..][..4].try_into().expect("a number"));
        let unused = 16_000_u32;
        let mut bytes = sound.clone();
        assert!(bytes[unused as usize * 1024..][..1024].iter().all(|&byte| byte == 0));
        bytes.copy_within(map as usize * 1024..map as usize * 1024 + 1024, unused as usize * 1024);
        set(&mut bytes, pointer, &unused.to_le_bytes());
        let kept = scan(&mut Ext4::open(bytes.as_slice()).expect("tables"));
        assert_told(&kept, "has its map of blocks", &format!("{features}, another node"));
        // In place of a sound one that is mounted, where all of this may be so for a moment.
        let mut bytes = sound.clone();
        set(&mut bytes, one + 0x1A, &[3]);
        let kept = scan(&mut Ext4::open_mounted(bytes.as_slice()).expect("tables"));
        assert!(kept.problems.is_empty(), "{features}: {:?}", kept.problems);
    }
}

#[test]
fn attributes_of_ext4_are_as_they_were_hashed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    fill(&tree);
    // Too long for the inode, where attributes have no hash.
    let value = [b'v'; 300];
    rustix::fs::setxattr(tree.join("one"), "user.told", &value, rustix::fs::XattrFlags::empty()).expect("a value");
    File::create(&image).and_then(|file| file.set_len(16 * MIB)).expect("a sparse file");
    let mkfs = ["-q", "-F", "-b", "1024", "-N", "512", "-O", "^metadata_csum", "-d"];
    run(Command::new("mkfs.ext4").args(mkfs).arg(&tree).arg(&image));
    let sound = fs::read(&image).expect("an image");
    assert!(scan(&mut Ext4::open(sound.as_slice()).expect("tables")).problems.is_empty());
    let mut bytes = sound.clone();
    set(&mut bytes, place_of(&sound, &value), b"w");
    let kept = scan(&mut Ext4::open(bytes.as_slice()).expect("tables"));
    assert_told(&kept, "the hash of an extended attribute", "another value");
}

/// An image of an ext4 without checksums, with this tree, and with indexes of its directories where `is_indexed` says so.
fn plain_ext4(tree: &Path, mebibytes: u64, features: &str, is_indexed: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    File::create(&image).and_then(|file| file.set_len(mebibytes * MIB)).expect("a sparse file");
    let features = format!("^metadata_csum{features}");
    let mkfs = ["-q", "-F", "-b", "1024", "-N", "8192", "-O", &features, "-J", "size=1", "-d"];
    run(Command::new("mkfs.ext4").args(mkfs).arg(tree).arg(&image));
    if is_indexed {
        // It says that it changed something.
        let indexed = Command::new("e2fsck").args(["-fyD"]).arg(&image).output().expect("e2fsck runs");
        assert!(indexed.status.code() <= Some(1), "{indexed:?}");
    }
    fs::read(&image).expect("an image")
}

fn scanned_ext4(bytes: &[u8]) -> Kept {
    scan(&mut Ext4::open(bytes).expect("tables"))
}

fn word(bytes: &[u8], at: u64) -> u32 {
    u32::from_le_bytes(bytes[at as usize..][..4].try_into().expect("a number"))
}

/// The byte where each block of a directory begins.
fn blocks_of(kept: &Kept, name: &str) -> Vec<u64> {
    let extents = &kept.inodes[&number_of(kept, name)].extents;
    let blocks = extents.iter().flat_map(|extent| {
        let at = extent.physical.expect("a place");
        (at..at + extent.length).step_by(1024)
    });
    blocks.collect()
}

#[test]
fn indexes_of_ext4() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in 0..3500 {
        fs::create_dir_all(folder.path().join("large")).expect("a folder");
        fs::write(folder.path().join(format!("large/a name that takes some of a block {name:06}")), "")
            .expect("a file");
    }
    fs::create_dir(folder.path().join("small")).expect("a folder");
    for name in 0..200 {
        fs::write(folder.path().join(format!("small/short {name:03}")), "").expect("a file");
    }
    let sound = plain_ext4(folder.path(), 32, "", true);
    let kept = scanned_ext4(&sound);
    assert!(kept.problems.is_empty() && kept.incomplete.is_empty(), "{:?}", kept.problems);
    let (small, large) = (blocks_of(&kept, "small"), blocks_of(&kept, "large"));
    assert_eq!((sound[small[0] as usize + 30], sound[large[0] as usize + 30]), (0, 1), "levels of the indexes");
    // Entries lie behind 32 bytes of a root, and behind 8 of a node; the first one has their number in place of a hash.
    let node = large[word(&sound, large[0] + 32 + 4) as usize];
    let count = u16::from_le_bytes(sound[small[0] as usize + 34..][..2].try_into().expect("a number"));
    assert!(count > 3, "{count}");
    let first_leaf = small[word(&sound, small[0] + 32 + 4) as usize];
    let second_hash = word(&sound, small[0] + 40).to_le_bytes();
    let second_block = word(&sound, small[0] + 44).to_le_bytes();
    let end = u32::try_from(small.len()).expect("a number").to_le_bytes();
    let low = [2, 0, 0, 0];
    let name = first_leaf + place_of(&sound[first_leaf as usize..], b"short ");
    let cases: [(u64, &[u8], &str); 14] = [
        (small[0] + 36, &end, "the number of a block in the index of directory"),
        (small[0] + 36, &[0], "the number of a block in the index of directory"),
        (small[0] + 36, &second_block, "the number of a block in the index of directory"),
        (small[0] + 48, &second_hash, "names in block"),
        (small[0] + 48, &low, "a hash in the index of directory"),
        (small[0] + 32, &[3], "the entries of block 0 of the index of directory"),
        (small[0] + 34, &[0, 0], "the entries of block 0 of the index of directory"),
        (small[0] + 34, &[2, 0], "a block that its index leads to"),
        (small[0] + 24, &[1], "the first word of the index of directory"),
        (small[0] + 28, &[9], "the hash of the index of directory"),
        (small[0] + 30, &[2], "the levels of the index of directory"),
        (small[0] + 16, &[12], "the root of the index of directory"),
        (node + 10, &[200], "of the index of directory"),
        (node + 12, &end, "names in block"),
    ];
    for (at, new, expected) in cases {
        let mut bytes = sound.clone();
        set(&mut bytes, at, new);
        let kept = scanned_ext4(&bytes);
        assert_told(&kept, expected, &format!("{new:?} at {at}"));
        assert!(kept.problems.iter().all(|problem| problem.at().is_some()));
    }
    // A name that became another one belongs elsewhere: one of these at least, whatever its hash is.
    let others = (b'a'..=b'z').filter(|&letter| {
        let mut bytes = sound.clone();
        set(&mut bytes, name, &[letter]);
        let kept = scanned_ext4(&bytes);
        let is_told = kept.problems.iter().any(|problem| problem.to_string().contains("names in block"));
        assert_eq!(is_told, !kept.incomplete.is_empty(), "{:?}", kept.problems);
        is_told
    });
    assert!(others.count() > 10);
    // In place of a sound one that is mounted, where this may be so for a moment.
    let mut bytes = sound.clone();
    set(&mut bytes, small[0] + 36, &end);
    assert!(scan(&mut Ext4::open_mounted(bytes.as_slice()).expect("tables")).problems.is_empty());
}

#[test]
fn blocks_of_attributes_of_ext4_are_claimed() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    for name in ["one", "other", "below/many003"] {
        let value = [name.as_bytes()[0]; 300];
        rustix::fs::setxattr(folder.path().join(name), "user.told", &value, rustix::fs::XattrFlags::empty())
            .expect("a value");
    }
    let sound = plain_ext4(folder.path(), 16, "", false);
    let kept = scanned_ext4(&sound);
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    let tables = Ext4::open(sound.as_slice()).expect("tables");
    let place = |name: &str| tables.inode_at(number_of(&kept, name)).expect("a place");
    let (one, other) = (place("one"), place("other"));
    let (of_one, of_other) = (word(&sound, one + 0x68), word(&sound, other + 0x68));
    let content = kept.inodes[&number_of(&kept, "other")].extents[0].physical.expect("a place") / 1024;
    let content = u32::try_from(content).expect("a number").to_le_bytes();
    let too = "which something else has, too";
    // Where mkfs.ext4 puts the descriptors, the inode table of the first group, and the journal, by their own words.
    let (bitmap, table) = (word(&sound, 2048), word(&sound, 2048 + 8));
    let journal_inode = u64::from(table) * 1024 + 7 * u64::from(u16::from_le_bytes([sound[1112], sound[1113]]));
    let journal = word(&sound, journal_inode + 0x28 + 12 + 8);
    let pointer = one + 0x28 + 12 + 8;
    let cases: [(u64, [u8; 4], &str); 9] = [
        (other + 0x68, of_one.to_le_bytes(), too),
        (pointer, of_other.to_le_bytes(), too),
        (pointer, 2_u32.to_le_bytes(), too),
        (pointer, bitmap.to_le_bytes(), too),
        (pointer, (table + 3).to_le_bytes(), too),
        (pointer, journal.to_le_bytes(), too),
        (u64::from(of_one) * 1024 + 4, 2_u32.to_le_bytes(), "the number of inodes of a block of extended attributes"),
        (u64::from(of_one) * 1024 + 8, 2_u32.to_le_bytes(), "the number of blocks of the extended attributes"),
        (u64::from(of_one) * 1024 + 32, [9, 77, 0, 0], "the kind of an extended attribute"),
    ];
    for (at, new, expected) in cases {
        let mut bytes = sound.clone();
        set(&mut bytes, at, &new[..if expected.starts_with("the kind") { 2 } else { 4 }]);
        assert_told(&scanned_ext4(&bytes), expected, &format!("{new:?} at {at}"));
    }
    // A block of both counts both.
    let mut bytes = sound.clone();
    set(&mut bytes, other + 0x68, &of_one.to_le_bytes());
    set(&mut bytes, u64::from(of_one) * 1024 + 4, &[2]);
    let kept = scanned_ext4(&bytes);
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    // Content in the place of a block of attributes that isn't read.
    let mut bytes = sound.clone();
    set(&mut bytes, place("below/many003".rsplit('/').next().expect("a name")) + 0x68, &content);
    let mut kept = Kept::default();
    let mut tables = Ext4::open(bytes.as_slice()).expect("tables");
    tables.scan(onesweep_layout::tables::Wanted::default(), &mut kept).expect("a scan");
    assert_told(&kept, too, "attributes that aren't read");
}

#[test]
fn what_ext4_leaves_empty_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    let pieces = File::create(folder.path().join("pieces")).expect("a file");
    (0..20).for_each(|piece| pieces.write_all_at(&[b'p'; 1024], piece * 8192).expect("a piece"));
    for features in ["", ",^extents,^64bit"] {
        let sound = plain_ext4(folder.path(), 16, features, false);
        let kept = scanned_ext4(&sound);
        assert!(kept.problems.is_empty(), "{:?}", kept.problems);
        let tables = Ext4::open(sound.as_slice()).expect("tables");
        let place = |name: &str| tables.inode_at(number_of(&kept, name)).expect("a place");
        let root = kept.inodes[&2].extents[0].physical.expect("a place");
        let (one, has_extents) = (place("one"), features.is_empty());
        let twin = place_of(&sound, b"many007") + 6;
        let mut cases: Vec<(u64, &[u8], &str)> = vec![
            (one + 0x14, &[1], "the time of deletion of inode"),
            (one + 0x71, &[1], "the place of a fragment of inode"),
            (root + 12, &[12], "the entry .. of the root directory"),
            (twin, b"8", "a name in directory"),
        ];
        match has_extents {
            true => {
                // The node that the inode of many pieces names.
                let node = u64::from(word(&sound, place("pieces") + 0x28 + 12 + 4)) * 1024;
                cases.push((one + 0x28 + 4, &[0, 0], "extent node"));
                cases.push((place("pieces") + 0x28 + 4, &[1], "the room of an extent node"));
                cases.push((node + 12, &[1], "the first block of an extent node"));
                cases.push((one + 0x22, &[0], "inode"));
            }
            false => cases.push((one + 0x28 + 9 * 4, &[1], "a block number behind the end of inode")),
        }
        for (at, new, expected) in cases {
            let mut bytes = sound.clone();
            set(&mut bytes, at, new);
            assert_told(&scanned_ext4(&bytes), expected, &format!("{features}, {new:?} at {at}"));
        }
        let mut bytes = sound.clone();
        set(&mut bytes, 1024 + 0x4F, &[1]);
        let error = Ext4::open(bytes.as_slice()).err().expect("an error");
        assert!(error.to_string().contains("the revision at byte 1100 is damaged: expected 0 or 1"), "{error}");
    }
}
