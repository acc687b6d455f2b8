//! Contradictions of XFS of version 4.

use std::{
    fs::{self, File},
    process::Command,
};

use onesweep_layout::tables::{Tables, xfs::Xfs};

use crate::{
    conformance::scan,
    contradictions::{MIB, assert_told, number_of, place_of, set},
    image::run,
};

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
