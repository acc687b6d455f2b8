//! ext4 with blocks larger than pages. Few kernels mount it, so mke2fs fills it from a folder, and e2fsck gives its directories
//! their index; files must be as in the folder. Needs no privilege.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, symlink},
    path::Path,
    process::Command,
};

use onesweep_layout::{ImageFile, tables::ext4::Ext4};

use crate::{
    casefold::checked,
    conformance::{Facts, by_kernel, by_tables},
    image::run,
};

/// Beside the largest block, sizes of files and names that fill more than one block of a directory.
fn fill(folder: &Path) {
    for name in ["below", "below/it", "many"] {
        fs::create_dir(folder.join(name)).expect("a folder");
    }
    for size in [0, 1, 100, 8191, 8192, 65535, 65536, 65537, 300_001] {
        let bytes: Vec<u8> = (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(folder.join(format!("below/{size}")), bytes).expect("a file");
    }
    let sparse = File::create(folder.join("below/it/sparse")).expect("a file");
    for at in [0, 500_000, 900_000] {
        sparse.write_all_at(b"some bytes", at).expect("bytes");
    }
    for number in 0..1500 {
        let name = format!("many/{number} {}", "long ".repeat(number % 40));
        fs::write(folder.join(name), "").expect("a file");
    }
    for length in [5, 59, 60, 500] {
        symlink("t".repeat(length), folder.join(format!("below/link {length}"))).expect("a link");
    }
    fs::hard_link(folder.join("below/100"), folder.join("below/it/again")).expect("a further name");
}

/// What of a file mke2fs takes over.
fn taken_over(facts: &Facts) -> impl PartialEq + std::fmt::Debug {
    let is_directory = facts.mode & 0o170_000 == 0o040_000;
    let (size, links) = if is_directory { (0, 0) } else { (facts.size, facts.links) };
    (facts.mode, facts.owner, size, links, facts.mtime.seconds, facts.link_target.clone())
}

/// The bytes of a file, where its runs are.
fn content(image: &File, facts: &Facts) -> Vec<u8> {
    let mut bytes = vec![0; facts.size as usize];
    for &(logical, physical, length, is_zeros) in facts.extents.as_ref().expect("plain content") {
        let part = &mut bytes[logical as usize..][..length as usize];
        if !is_zeros {
            image.read_exact_at(part, physical).expect("bytes of a file");
        }
    }
    bytes
}

fn as_in_the_folder(image: &Path, folder: &Path) {
    let source = by_kernel(folder, &[]);
    let mut ext4 = Ext4::open(ImageFile::open(image).expect("an image")).expect("tables");
    let tables = by_tables(&mut ext4, &["lost+found"]);
    assert_eq!(tables.keys().collect::<Vec<_>>(), source.keys().collect::<Vec<_>>());
    let bytes = File::open(image).expect("an image");
    for (path, facts) in source.iter().filter(|(path, _)| !path.is_empty()) {
        let (told, path) = (&tables[path], String::from_utf8_lossy(path));
        assert_eq!(taken_over(told), taken_over(facts), "{path}");
        if facts.mode & 0o170_000 == 0o100_000 {
            assert!(content(&bytes, told) == fs::read(folder.join(&*path)).expect("a file"), "{path}");
        }
    }
    assert_eq!(tables[&b"below/100"[..]].inode, tables[&b"below/it/again"[..]].inode);
}

fn conforms(block_bytes: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, image) = (folder.path().join("source"), folder.path().join("image"));
    fs::create_dir(&source).expect("a folder");
    fill(&source);
    for features in ["metadata_csum", "^metadata_csum", "bigalloc", "^extent,^64bit", "meta_bg,^resize_inode"] {
        File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("a sparse file");
        let mkfs = ["-q", "-F", "-t", "ext4", "-b", block_bytes, "-N", "4096", "-J", "size=64", "-O", features, "-d"];
        run(Command::new("mke2fs").args(mkfs).arg(&source).arg(&image));
        as_in_the_folder(&image, &source);
        checked(&image);
        let index = run(Command::new("debugfs").args(["-R", "htree /many"]).arg(&image)).stdout;
        let is_indexed = String::from_utf8_lossy(&index).contains("Number of entries");
        assert!(is_indexed, "{features}: no index");
        as_in_the_folder(&image, &source);
        fs::remove_file(&image).expect("the image");
    }
}

#[test]
fn blocks_of_8_kib() {
    conforms("8192");
}

#[test]
fn blocks_of_16_kib() {
    conforms("16384");
}

#[test]
fn blocks_of_32_kib() {
    conforms("32768");
}

#[test]
fn blocks_of_64_kib() {
    conforms("65536");
}

/// Where e2fsck finds the superblock again, by dumpe2fs.
#[test]
fn a_copy_of_the_superblock_is_named_for_every_size_of_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    for block_bytes in [1024_u64, 2048, 4096, 8192, 16384, 32768, 65536] {
        let usual = (block_bytes * 8).min(65528);
        // Groups as mke2fs makes them, whatever stands in the superblock's place, and others, of which that tells.
        for (group_blocks, destroyed) in [(usual, 0_u64..1024), (usual, 0x78..0x79), (4096, 0x78..0x79)] {
            File::create(&image).and_then(|file| file.set_len(block_bytes * (usual + 5000))).expect("a sparse file");
            let [block, group] = [block_bytes, group_blocks].map(|number| number.to_string());
            let mkfs = ["-q", "-F", "-t", "ext4", "-b", &block, "-g", &group, "-N", "1024", "-O", "^resize_inode"];
            run(Command::new("mke2fs").args(mkfs).arg(&image));
            let told = run(Command::new("dumpe2fs").arg(&image)).stdout;
            let told = String::from_utf8_lossy(&told);
            let (_, first) = told.split_once("Backup superblock at ").expect("a copy");
            let first = first.split(',').next().expect("a number");
            let file = File::options().read(true).write(true).open(&image).expect("an image");
            let mut bytes = vec![0; (destroyed.end - destroyed.start) as usize];
            file.read_exact_at(&mut bytes, 1024 + destroyed.start).expect("bytes");
            bytes.iter_mut().for_each(|byte| *byte = if destroyed.start == 0 { 0 } else { *byte ^ 1 });
            file.write_all_at(&bytes, 1024 + destroyed.start).expect("damage");
            let error = Ext4::open(ImageFile::open(&image).expect("an image")).err().expect("damage").to_string();
            let expected = format!("there is a copy: e2fsck -b {first} -B {block_bytes}");
            assert!(error.contains(&expected), "{group_blocks}: {error}");
            fs::remove_file(&image).expect("the image");
        }
    }
}
