//! What tables without checksums tell twice: each contradiction is told, with a byte.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use onesweep_layout::{
    ImageFile,
    tables::{
        Indexes, TableError, Tables, Wanted,
        ext4::Ext4,
        ntfs::{Ntfs, Options},
        xfs::Xfs,
    },
};

use crate::{
    conformance::{Kept, names_its_place, scan},
    image::{Image, run},
};

const MIB: u64 = 1 << 20;

fn fill(tree: &Path) {
    fs::create_dir_all(tree.join("below/deeper")).expect("a folder");
    for number in 0..60 {
        fs::write(tree.join(format!("below/many{number:03}")), vec![b'x'; 3000]).expect("a file");
    }
    fs::write(tree.join("one"), vec![b'1'; 5000]).expect("a file");
    fs::write(tree.join("other"), vec![b'2'; 5000]).expect("a file");
    fs::hard_link(tree.join("one"), tree.join("below/deeper/link")).expect("a link");
}

fn number_of(kept: &Kept, name: &str) -> u64 {
    let found = kept.names.iter().find(|(_, _, told)| told == name.as_bytes());
    found.unwrap_or_else(|| panic!("no {name}")).1
}

/// Fails unless this is told, and its byte.
fn assert_told(kept: &Kept, expected: &str, change: &str) {
    kept.problems.iter().for_each(names_its_place);
    let told: Vec<String> = kept.problems.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|told| told.contains(expected)), "{change}: {expected} in {told:?}");
    assert!(told.len() < 10, "{change}: {told:?}");
}

fn set(bytes: &mut [u8], at: u64, new: &[u8]) {
    let at = usize::try_from(at).expect("an index");
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// Where bytes begin for the first time.
fn place_of(bytes: &[u8], wanted: &[u8]) -> u64 {
    bytes.windows(wanted.len()).position(|window| window == wanted).expect("these bytes") as u64
}

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

#[test]
fn xfs_of_version_4() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, described) = (folder.path().join("image"), folder.path().join("prototype"));
    let content = folder.path().join("content");
    fs::write(&content, [b'x'; 9000]).expect("a file");
    for (types, count) in [("ftype=1", 60), ("ftype=0", 60), ("ftype=1", 900)] {
        let source = content.display();
        let many: String = (0..count).map(|number| format!(" many{number:03} ---644 0 0 /dev/null\n")).collect();
        let one = format!("one ---644 0 0 {source}\nother ---644 0 0 {source}\n");
        fs::write(&described, format!("/\n0 0\nd--755 0 0\n{one}below d--755 0 0\n{many}$\n$\n")).expect("a prototype");
        let _ = fs::remove_file(&image);
        File::create(&image).and_then(|file| file.set_len(320 * MIB)).expect("a sparse file");
        let mkfs = ["-q", "-m", "crc=0", "-n", types, "-p"];
        run(Command::new("mkfs.xfs").args(mkfs).arg(&described).arg(&image));
        let mut sound = fs::read(&image).expect("an image");
        let kept = scan(&mut Xfs::open(sound.as_slice()).expect("tables"));
        assert!(kept.problems.is_empty(), "{types}: {:?}", kept.problems);
        let place = |name: &str| {
            let tables = Xfs::open(sound.as_slice()).expect("tables");
            tables.inode_at(number_of(&kept, name)).expect("a place")
        };
        let (one, other, below) = (place("one"), place("other"), place("below"));
        let start = usize::try_from(other).expect("an index") + 100;
        let extent_of_other = sound[start..start + 16].to_vec();
        // Its inode has an older copy.
        let first = kept.inodes[&number_of(&kept, "below")].extents[0].physical.expect("a place");
        let name = first + place_of(&sound[usize::try_from(first).expect("an index")..], b"many007");
        let mut changes: Vec<(u64, &[u8], &str)> = vec![
            (one + 19, &[3], "the link count of inode"),
            (below + 19, &[7], "the link count of inode"),
            (one + 71, &[40], "the number of blocks of inode"),
            (one + 100, &extent_of_other, "which something else has, too"),
            (name + 6, b"x", "the index of directory"),
            (one + 7, &[1], "the older link count"),
            (one + 75, &[4], "the hint for the length of extents"),
            (one + 81, &[1], "the number of extents of attributes"),
            (one + 90, &[0x80], "the flags"),
            (one + 90, &[2], "the flags"),
            (one + 91, &[1], "the flags"),
            (below + 90, &[8], "the flags"),
            (one + 98, &[0], "the next inode without links"),
        ];
        if types == "ftype=1" {
            changes.push((name + 7, &[7], "as a name says"));
        }
        for (at, new, expected) in changes {
            let start = usize::try_from(at).expect("an index");
            let before = sound[start..start + new.len()].to_vec();
            set(&mut sound, at, new);
            let kept = scan(&mut Xfs::open(sound.as_slice()).expect("tables"));
            set(&mut sound, at, &before);
            assert_told(&kept, expected, &format!("{types}, {count} names, {new:?} at {at}"));
            assert_eq!(expected == "the index of directory", !kept.incomplete.is_empty(), "{:?}", kept.incomplete);
        }
    }
}

#[test]
fn ntfs() {
    let Some(mut image) = Image::new(8 * MIB, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c1024"]) else {
        return;
    };
    image.mount_ntfs("");
    fill(&image.root());
    image.unmount();
    let sound = fs::read(image.path()).expect("an image");
    let open = |bytes: &[u8]| scan(&mut Ntfs::open(bytes.to_vec(), Options::default()).expect("tables"));
    let kept = open(&sound);
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    let tables = Ntfs::open(sound.clone(), Options::default()).expect("tables");
    let place = |name: &str| tables.inode_at(number_of(&kept, name)).expect("a place");
    let (one, other) = (place("one"), place("other"));
    // The attribute with the content, by its type and that it lies in clusters of its own.
    let data = |record: u64| {
        let start = usize::try_from(record).expect("an index");
        let within = sound[start..start + 1024].chunks_exact(8).position(|part| part[..4] == [0x80, 0, 0, 0]);
        record + 8 * within.expect("content") as u64
    };
    let runs = |record: u64| data(record) + 64;
    let from = usize::try_from(runs(other)).expect("an index");
    let runs_of_other = sound[from..from + 8].to_vec();
    // The records of the system, of which the first four have copies.
    let record = |number: u64| place_of(&sound, b"FILE0") + number * 1024;
    let capitals = data(record(10));
    let by_bytes: [(u64, &[u8], &str); 6] = [
        (record(1) + 300, &[!sound[record(1) as usize + 300]], "$MFTMirr"),
        (record(9) + 56, &[0x11], "an attribute's type"),
        (capitals + 48, &[2], "the size of $UpCase"),
        (one + 18, &[3], "the link count of file"),
        (data(one) + 41, &[0x20], "the allocated size of an attribute"),
        (runs(one), &runs_of_other, "which something else has, too"),
    ];
    for (at, new, expected) in by_bytes {
        let mut bytes = sound.clone();
        set(&mut bytes, at, new);
        assert_told(&open(&bytes), expected, &format!("{new:?} at {at}"));
    }
    // A name that the file and the index of its directory tell: changed in either, the byte in the index is told.
    let deeper = place("deeper");
    let utf16: Vec<u8> = "link".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let name_in = |record: u64| {
        let start = usize::try_from(record).expect("an index");
        record + place_of(&sound[start..start + 1024], &utf16)
    };
    for record in [one, deeper] {
        let mut bytes = sound.clone();
        set(&mut bytes, name_in(record) + 6, b"x");
        let kept = open(&bytes);
        assert_told(&kept, "the name of file", &format!("a name in record {record}"));
        assert_eq!(kept.problems[0].at(), Some(name_in(deeper)), "{}", kept.problems[0]);
        assert!(!kept.incomplete.is_empty());
    }
    // A cluster that nobody has: behind the last that is in use.
    let mut free = 0;
    tables.free(&mut |at, _| free = at / 1024).expect("a bitmap");
    let mut bytes = sound.clone();
    let cluster = u32::try_from(free).expect("a cluster").to_le_bytes();
    set(&mut bytes, runs(one), &[0x31, 5, cluster[0], cluster[1], cluster[2], 0]);
    assert_told(&open(&bytes), "which is free", "a run of free clusters");
}

/// A directory of NTFS whose index lies in blocks of its own, and what the system itself lies in.
#[test]
fn indexes_of_ntfs() {
    let Some(mut image) = Image::new(16 * MIB, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c1024"]) else {
        return;
    };
    image.mount_ntfs("");
    fill(&image.root());
    let large = image.root().join("large");
    fs::create_dir(&large).expect("a folder");
    (0..900).for_each(|name| fs::write(large.join(format!("a name of many {name:03}")), "").expect("a file"));
    image.unmount();
    let sound = fs::read(image.path()).expect("an image");
    let open = |bytes: &[u8]| scan(&mut Ntfs::open(bytes.to_vec(), Options::default()).expect("tables"));
    let kept = open(&sound);
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    let tables = Ntfs::open(sound.clone(), Options::default()).expect("tables");
    let record = |number: u64| tables.inode_at(number).expect("a place");
    let (directory, file) = (number_of(&kept, "large"), number_of(&kept, "a name of many 456"));
    // A name is in its file's record, and in a block of the index.
    let utf16: Vec<u8> = "a name of many 456".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let in_record = record(file) + place_of(&sound[record(file) as usize..][..1024], &utf16);
    let places = |bytes: &[u8]| (0..sound.len() - bytes.len()).filter(|&at| sound[at..].starts_with(bytes)).collect();
    let all: Vec<usize> = places(&utf16);
    // Blocks that were divided in two keep what was in them behind their end, so the index may have it more than once.
    let mut bytes = sound.clone();
    set(&mut bytes, in_record, b"A");
    let in_index = open(&bytes).problems[0].at().expect("a byte");
    assert!(in_index != in_record && all.contains(&(in_index as usize)), "{in_index} in {all:?}");
    let block =
        (0..4).map(|back| (in_index / 1024 - back) * 1024).find(|&at| sound[at as usize..].starts_with(b"INDX"));
    let block = block.unwrap_or_else(|| panic!("no block around byte {in_index}"));
    // What of the index lies in the directory's record: its blocks, and which of them are in use.
    let attribute = |number: u64, kind: u8| {
        let start = record(number);
        let bytes = &sound[start as usize..][..1024];
        start + 8 * bytes.chunks_exact(8).position(|part| part[..4] == [kind, 0, 0, 0]).expect("an attribute") as u64
    };
    let bitmap = attribute(directory, 0xb0);
    let bits = bitmap + u64::from(sound[bitmap as usize + 20]);
    assert_eq!(sound[bits as usize], 0xff, "a bitmap of many blocks");
    let name = "the name of file";
    let expected: [(u64, &[u8], &str, Option<u64>); 8] = [
        (in_index + 6, b"x", name, Some(in_index)),
        (in_record + 6, b"x", name, Some(in_index)),
        // It becomes one that DOS programs alone see.
        (in_record - 1, &[2], name, Some(in_index)),
        (record(file) + 16, &[99], "the sequence number of file", Some(in_index - 82 + 6)),
        (block, b"x", "the index of directory", Some(block)),
        (block + 16, &[0xfe], "the own number of a block of the index", Some(block + 16)),
        (bits, &[0xf7], "each name that files say to have there", Some(attribute(directory, 0x90))),
        (bits + 7, &[0x80], "no place for its block 63", None),
    ];
    for (at, new, expected, told_at) in expected {
        let mut bytes = sound.clone();
        set(&mut bytes, at, new);
        let kept = open(&bytes);
        assert_told(&kept, expected, &format!("{new:?} at {at}"));
        let told: Vec<_> = kept.problems.iter().map(TableError::at).collect();
        assert!(told_at.is_none_or(|at| told == [Some(at)]), "{:?} at {at}", kept.problems);
        // Who doesn't ask for it is told nothing of it, unless it's in what is read in any case.
        let mut kept = Kept::default();
        Ntfs::open(bytes, Options::default()).expect("tables").scan(Wanted::default(), &mut kept).expect("a scan");
        assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    }
    // Where it's only to be done where that is cheap, this tree has too little content.
    let mut bytes = sound.clone();
    set(&mut bytes, in_index, b"A");
    for (indexes, is_told) in [(Indexes::Left, false), (Indexes::WhereCheap, false), (Indexes::All, true)] {
        let (mut kept, wanted) = (Kept::default(), Wanted { indexes, ..Wanted::default() });
        Ntfs::open(bytes.clone(), Options::default()).expect("tables").scan(wanted, &mut kept).expect("a scan");
        assert_eq!(!kept.problems.is_empty(), is_told, "{indexes:?}: {:?}", kept.problems);
    }
    // A file that leads to what the file system itself has.
    let data = attribute(number_of(&kept, "one"), 0x80);
    let mft = u64::from_le_bytes(sound[48..56].try_into().expect("eight bytes"));
    let mirror = u64::from_le_bytes(sound[56..64].try_into().expect("eight bytes"));
    let first_of = |number: u64| {
        let runs = attribute(number, 0x80) + 64;
        let runs = &sound[runs as usize..];
        let (lengths, places) = (usize::from(runs[0] & 15), usize::from(runs[0] >> 4));
        (0..places).map(|byte| u64::from(runs[1 + lengths + byte]) << (8 * byte)).sum::<u64>()
    };
    for (cluster, of) in [
        (mft, "the $MFT"),
        (mirror, "$MFTMirr"),
        (first_of(2), "$LogFile"),
        (first_of(6), "$Bitmap"),
        (0, "$Boot"),
        (block / 1024, "the index"),
    ] {
        let mut bytes = sound.clone();
        let lcn = u32::try_from(cluster).expect("a cluster").to_le_bytes();
        set(&mut bytes, data + 64, &[0x31, 5, lcn[0], lcn[1], lcn[2], 0]);
        let kept = open(&bytes);
        assert_told(&kept, "which something else has, too", of);
        let blamed = kept.problems[0].to_string();
        let is_of_index = of == "the index" && blamed.contains("where the index of directory");
        assert!(is_of_index || kept.problems[0].at() == Some(data + 64), "{of}: {blamed}");
        let found = format!("found byte {}", cluster * 1024);
        assert!(blamed.contains(&found), "{of}: {found} in {blamed}");
    }
}

/// Beside much content, the few reads of an index are done whenever files are delivered.
#[test]
fn indexes_of_ntfs_beside_much_content() {
    let Some(mut image) = Image::new(90 * MIB, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c4096"]) else {
        return;
    };
    image.mount_ntfs("");
    (0..12).for_each(|name| fs::write(image.root().join(format!("a name of some length {name}")), "").expect("a file"));
    fs::write(image.root().join("large"), vec![b'x'; 75 << 20]).expect("a file");
    image.unmount();
    let open = || Ntfs::open(ImageFile::open(&image.path()).expect("an image"), Options::default()).expect("tables");
    let record = open().inode_at(number_of(&scan(&mut open()), "a name of some length 7")).expect("a place");
    let file = File::options().write(true).open(image.path()).expect("an image");
    file.write_all_at(&[99], record + 16).expect("another sequence number");
    for (indexes, is_told) in [(Indexes::Left, false), (Indexes::WhereCheap, true)] {
        let (mut kept, wanted) = (Kept::default(), Wanted { indexes, ..Wanted::default() });
        open().scan(wanted, &mut kept).expect("a scan");
        assert_eq!(!kept.problems.is_empty(), is_told, "{indexes:?}: {:?}", kept.problems);
    }
}

/// Files that were closed just now go a moment later where a program in user space has them.
fn remove_all(folder: &Path) {
    for _ in 0..1000 {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => thread::sleep(Duration::from_millis(10)),
            gone => return gone.expect("it goes"),
        }
    }
    panic!("{} stays", folder.display());
}

/// Whatever happened to names of directories, small ones and large ones, files and indexes tell the same of them.
#[test]
fn names_of_sound_ntfs_directories_agree() {
    let Some(mut image) = Image::new(16 * MIB, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c1024"]) else {
        return;
    };
    image.mount_ntfs("");
    let root = image.root();
    for number in 0..60 {
        let folder = root.join(format!("folder {number}"));
        fs::create_dir(&folder).expect("a folder");
        let path = |name: &str| folder.join(name);
        for name in ["first", "of two names", "which goes", "\u{1f600} \u{6f22}"] {
            fs::write(path(name), name).expect("a file");
        }
        fs::hard_link(path("of two names"), root.join(format!("link {number}"))).expect("a link");
        fs::hard_link(path("of two names"), path("second")).expect("a link");
        match number % 6 {
            0 => fs::rename(path("first"), path("FIRST")).expect("another case"),
            1 => fs::rename(path("first"), root.join(format!("moved {number}"))).expect("another place"),
            2 => fs::rename(path("which goes"), path("first")).expect("in place of another"),
            3 => fs::remove_file(path("which goes")).expect("it goes"),
            4 => {
                let value = format!("WHICH~{number}");
                let flags = rustix::fs::XattrFlags::empty();
                let set = rustix::fs::setxattr(path("which goes"), "system.ntfs_dos_name", value.as_bytes(), flags);
                set.expect("a name for DOS");
            }
            // Outgrows its record, and becomes small again.
            _ => {
                (0..40).for_each(|file| fs::write(path(&format!("one of many {file}")), "x").expect("a file"));
                (0..40).for_each(|file| fs::remove_file(path(&format!("one of many {file}"))).expect("it goes"));
            }
        }
        if number % 7 == 0 {
            remove_all(&folder);
            fs::create_dir(&folder).expect("another one");
        }
    }
    // Space in pieces, so that blocks of indexes lie in several.
    let pieces = root.join("pieces");
    fs::create_dir(&pieces).expect("a folder");
    let piece = |number: usize| pieces.join(format!("{number}"));
    let full = (0..).find(|&number| fs::write(piece(number), vec![b'x'; 1500]).is_err()).expect("a full volume");
    (0..full).step_by(2).for_each(|number| fs::remove_file(piece(number)).expect("it goes"));
    let large = root.join("large");
    fs::create_dir(&large).expect("a folder");
    let path = |number: usize| large.join(format!("one of very many names {number}"));
    (0..1200).for_each(|number| fs::write(path(number), "").expect("a file"));
    (0..1200).step_by(3).for_each(|number| fs::remove_file(path(number)).expect("it goes"));
    (1..1200).step_by(30).for_each(|number| fs::rename(path(number), large.join(number.to_string())).expect("a name"));
    (2..1200).step_by(30).for_each(|number| {
        let (value, flags) = (format!("MANY~{number}"), rustix::fs::XattrFlags::empty());
        rustix::fs::setxattr(path(number), "system.ntfs_dos_name", value.as_bytes(), flags).expect("a name for DOS");
    });
    image.unmount();
    let device = ImageFile::open(&image.path()).expect("an image");
    let kept = scan(&mut Ntfs::open(device, Options::default()).expect("tables"));
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    assert!(kept.names.len() > 200, "{}", kept.names.len());
}
