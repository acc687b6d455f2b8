//! ext2, ext3 and ext4 in their variants.

use std::{
    env, fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use onesweep_layout::{
    BlockRead, ImageFile,
    tables::{
        Found, Inode, Name, TableError, Tables, Wanted,
        ext4::{Ext4, Needs},
    },
};

use crate::{
    conformance::{Kept, by_kernel, by_tables, compare, names_its_place, scan},
    ext4_tree::{ALL, Amount, Random, fill},
    image::{Image, run},
    noting::Noting,
};

const MIB: u64 = 1 << 20;

fn open(image: &Image) -> Result<Ext4<ImageFile>, TableError> {
    Ext4::open(ImageFile::open(&image.path()).expect("an image"))
}

/// A sound image, filled through the kernel.
fn filled(mkfs: &[&str], block_bytes: u64, amount: Amount, options: &str) -> Option<Image> {
    let mut image = Image::new(384 * MIB, mkfs)?;
    image.mount(&["-t", "ext4"], options);
    fill(&image.root(), 1, block_bytes, amount);
    image.unmount();
    Some(image)
}

fn sum(image: &Image) -> Vec<u8> {
    run(Command::new("cksum").arg(image.path())).stdout
}

/// Compares tables and kernel; `feature` is one that this kernel may lack, and that the kernel needs not to see.
fn conforms(image: Image, feature: Option<&str>) {
    conforms_mounted(image, feature, "ro");
}

fn conforms_mounted(mut image: Image, feature: Option<&str>, options: &str) {
    let set = |image: &Image, request: &str| {
        run(Command::new("debugfs").args(["-w", "-R", request]).arg(image.path()));
    };
    if let Some(feature) = feature {
        set(&image, &format!("feature {feature}"));
    }
    let before = sum(&image);
    let tables = by_tables(&mut open(&image).expect("tables"), &[]);
    assert_eq!(sum(&image), before, "reading changed the image");
    if let Some(feature) = feature {
        set(&image, &format!("feature -{feature}"));
    }
    image.mount(&["-t", "ext4"], options);
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
    assert!(kernel.len() > 500);
}

fn all_that_a_scan_reads_is_brought_in(image: &Image) {
    let device = ImageFile::open(&image.path()).expect("an image");
    let device = Arc::new(Noting::new(device));
    let mut tables = Ext4::open_mounted(Arc::clone(&device)).expect("tables");
    device.read.lock().unwrap().clear();
    tables.bring_in(Needs { layout: true, xattrs: false }, u64::MAX, &|| true);
    let brought_in = std::mem::take(&mut *device.read.lock().unwrap());
    assert_eq!(brought_in, *device.announced.lock().unwrap());
    tables.scan(Wanted { xattrs: false, ..Wanted::default() }, &mut Kept::default()).expect("tables");
    let mut scanned = std::mem::take(&mut *device.read.lock().unwrap());
    scanned.retain(|at| !brought_in.contains(at));
    assert!(scanned.is_empty(), "not brought in: {:?}", scanned.iter().take(10).collect::<Vec<_>>());
    // With attributes only their values in inodes of their own are missing.
    tables.bring_in(Needs { layout: true, xattrs: true }, u64::MAX, &|| true);
    let with_xattrs = std::mem::take(&mut *device.read.lock().unwrap());
    tables.scan(Wanted { xattrs: true, ..Wanted::default() }, &mut Kept::default()).expect("tables");
    assert!(device.read.lock().unwrap().is_superset(&with_xattrs), "more than a scan reads");
    // No more than may be read, and hardly anything once it was ended. How much there is depends on where the kernel puts it.
    let half = brought_in.len() / 2;
    for (most, go_on) in [((half as u64) << 10, true), (u64::MAX, false)] {
        device.read.lock().unwrap().clear();
        tables.bring_in(Needs { layout: true, xattrs: true }, most, &|| go_on);
        let read = device.read.lock().unwrap().len();
        assert!(read <= half, "{read} of {} KiB were read", brought_in.len());
    }
}

/// From the root with all that is below it, it comes to the same as bringing in everything, but for tables where nothing is.
fn all_directories_are_brought_in(image: &Image) {
    let device = ImageFile::open(&image.path()).expect("an image");
    let device = Arc::new(Noting::new(device));
    let tables = Ext4::open_mounted(Arc::clone(&device)).expect("tables");
    let brought_in = |by: &dyn Fn()| {
        device.read.lock().unwrap().clear();
        by();
        std::mem::take(&mut *device.read.lock().unwrap())
    };
    let all = |xattrs| {
        let needs = Needs { layout: false, xattrs };
        brought_in(&|| tables.bring_in(needs, u64::MAX, &|| true))
    };
    let of = |number: u32, is_wanted: &dyn Fn(u32, u32) -> bool| {
        brought_in(&|| tables.bring_in_directories([number].into_iter(), is_wanted, u64::MAX, &|| true))
    };
    let chosen = of(2, &|_, _| true);
    assert!(chosen.is_subset(&all(true)), "more than all is brought in");
    for at in all(false).difference(&chosen) {
        let mut bytes = [0; 1024];
        device.read_at(&mut bytes, at * 1024).expect("a KiB");
        // An inode has 128 or 256 bytes here, of those in use the links aren't 0; what has no names is not asked for.
        let unused = bytes.chunks(256).all(|inode| inode[0x1A..0x1C] == [0, 0]);
        let special = *at < chosen.iter().next().copied().unwrap_or(0) + 64;
        assert!(unused || special, "KiB {at} is not brought in");
    }
    let root_alone = of(2, &|number, _| number == 2);
    assert!(root_alone.len() * 2 < chosen.len() && root_alone.is_subset(&chosen));
    assert!(of(u32::MAX, &|_, _| true).is_empty());
}

macro_rules! variants {
    ($($name:ident: $type:literal $block:literal [$($option:literal),*] $options:literal;)*) => {$(
        #[test]
        fn $name() {
            let block = stringify!($block);
            let mkfs = [concat!("mkfs.", $type), "-q", "-F", "-b", block, $($option),*];
            if let Some(image) = filled(&mkfs, $block, ALL, $options) {
                // The kernel reads a file of orphans when it mounts.
                all_directories_are_brought_in(&image);
                if !mkfs.iter().any(|word| word.contains("orphan_file")) {
                    all_that_a_scan_reads_is_brought_in(&image);
                }
                conforms(image, None);
            }
        }
    )*};
}

variants! {
    default_of_mkfs: "ext4" 4096 [] "";
    blocks_of_1_kib: "ext4" 1024 [] "";
    blocks_of_2_kib: "ext4" 2048 [] "";
    ext2: "ext2" 4096 [] "";
    ext2_with_blocks_of_1_kib: "ext2" 1024 [] "";
    ext3: "ext3" 4096 [] "";
    revision_0: "ext2" 1024 ["-r", "0"] "";
    short_descriptors: "ext4" 4096 ["-O", "^64bit"] "";
    meta_groups: "ext4" 1024 ["-O", "meta_bg,^resize_inode", "-g", "1024"] "";
    two_backups: "ext4" 4096 ["-O", "sparse_super2"] "";
    clusters: "ext4" 4096 ["-O", "bigalloc"] "";
    clusters_of_64_kib_in_blocks_of_1_kib: "ext4" 1024 ["-O", "bigalloc", "-C", "65536"] "";
    inline_data: "ext4" 4096 ["-O", "inline_data"] "";
    inline_data_in_large_inodes: "ext4" 4096 ["-O", "inline_data", "-I", "1024"] "";
    attributes_in_inodes: "ext4" 4096 ["-O", "ea_inode"] "";
    large_directories: "ext4" 1024 ["-O", "large_dir"] "";
    no_checksums: "ext4" 4096 ["-O", "^metadata_csum"] "";
    group_checksums: "ext4" 4096 ["-O", "^metadata_csum,uninit_bg"] "";
    group_checksums_in_short_descriptors: "ext4" 4096 ["-O", "^metadata_csum,uninit_bg,^64bit"] "";
    checksum_seed: "ext4" 4096 ["-O", "metadata_csum_seed", "-U", "00112233-4455-6677-8899-aabbccddeeff"] "";
    inodes_of_128_bytes: "ext4" 4096 ["-I", "128"] "";
    inodes_of_512_bytes: "ext4" 4096 ["-I", "512"] "";
    groups_on_their_own: "ext4" 4096 ["-O", "^flex_bg", "-g", "8192"] "";
    no_extents: "ext4" 4096 ["-O", "^extent,^64bit"] "";
    no_index: "ext4" 4096 ["-O", "^dir_index"] "";
    no_types_in_directories: "ext4" 4096 ["-O", "^filetype"] "";
    orphan_file: "ext4" 4096 ["-O", "orphan_file"] "";
    multi_mount_protection: "ext4" 4096 ["-O", "mmp"] "";
    no_journal: "ext4" 4096 ["-O", "^has_journal"] "";
    backups_in_every_group: "ext4" 1024 ["-O", "^sparse_super,^resize_inode"] "";
    one_backup: "ext4" 4096 ["-O", "sparse_super2", "-E", "num_backup_sb=1"] "";
    no_room_to_grow: "ext4" 4096 ["-O", "^resize_inode"] "";
    room_to_grow: "ext4" 4096 ["-E", "resize=4000000"] "";
    short_counters: "ext4" 4096 ["-O", "^huge_file,^large_file,^dir_nlink"] "";
    no_extra_fields: "ext4" 4096 ["-O", "^extra_isize"] "";
    stable_inodes: "ext4" 4096 ["-O", "stable_inodes"] "";
    fast_commits_that_are_over: "ext4" 4096 ["-O", "fast_commit"] "";
    tables_together: "ext4" 4096 ["-E", "packed_meta_blocks=1"] "";
    one_flexible_group: "ext4" 1024 ["-G", "64", "-E", "stride=16,stripe_width=64"] "";
    tables_that_were_filled: "ext4" 4096 ["-E", "lazy_itable_init=0,lazy_journal_init=0"] "";
    few_inodes_for_many_bytes: "ext4" 4096 ["-N", "20000"] "";
    no_attributes_at_first: "ext4" 4096 ["-O", "^ext_attr"] "";
    made_for_the_hurd: "ext4" 4096 ["-o", "hurd"] "";
    made_for_freebsd: "ext4" 4096 ["-o", "freebsd"] "";
    a_root_with_an_owner: "ext4" 4096 ["-E", "root_owner=1000:70001"] "";
    a_journal_in_a_place_of_its_own: "ext4" 4096 ["-J", "size=8,location=2000"] "";
    everything_new: "ext4" 4096
        ["-O", "inline_data,ea_inode,large_dir,metadata_csum_seed,orphan_file,stable_inodes,sparse_super2,mmp"] "";
}

#[test]
fn inodes_of_quotas_are_no_files() {
    for quota in [&["-O", "quota"][..], &["-O", "project,quota", "-Q", "usrquota,grpquota,prjquota"]] {
        // A kernel without quotas writes to no file system that has them, so they come later.
        let Some(image) = filled(&["mkfs.ext4", "-q", "-F", "-b", "4096"], 4096, ALL, "") else { return };
        run(Command::new("tune2fs").args(quota).arg(image.path()));
        conforms(image, None);
    }
}

/// The same from the start: the kernel is not to see them where it knows none.
#[test]
fn inodes_of_quotas_that_mkfs_made_are_no_files() {
    for kinds in ["quotatype=usrquota", "quotatype=usrquota:grpquota"] {
        let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "quota", "-E", kinds];
        let Some(mut image) = Image::new(384 * MIB, &mkfs) else { return };
        run(Command::new("debugfs").args(["-w", "-R", "feature -quota"]).arg(image.path()));
        image.mount(&["-t", "ext4"], "");
        fill(&image.root(), 1, 4096, ALL);
        image.unmount();
        conforms(image, Some("quota"));
    }
}

#[test]
fn casefold() {
    if let Some(image) = filled(&["mkfs.ext4", "-q", "-F", "-b", "4096"], 4096, ALL, "") {
        conforms(image, Some("casefold"));
    }
}

#[test]
fn verity() {
    if let Some(image) = filled(&["mkfs.ext4", "-q", "-F", "-b", "4096"], 4096, ALL, "") {
        conforms(image, Some("verity"));
    }
}

#[test]
fn encrypted_names_are_those_without_the_key() {
    let Some(mut image) = Image::new(256 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "encrypt"]) else {
        return;
    };
    image.mount(&["-t", "ext4"], "test_dummy_encryption");
    let folder = image.root().join("folder");
    fs::create_dir(&folder).unwrap();
    fill(&folder, 2, 4096, Amount { files: 300, names: 3000, pieces: 100 });
    image.unmount();
    let kept = scan(&mut open(&image).unwrap());
    assert!(kept.names.iter().any(|(_, _, name)| name.len() == 252), "no long name");
    conforms(image, None);
}

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
fn commit(image: &Image) {
    fs::File::create(image.root().join("marker")).and_then(|file| file.sync_all()).expect("a commit");
}

/// A copy of an image, beside it, as a crash would leave it now.
fn copied(image: &Image) -> PathBuf {
    let copy = image.path().with_extension("copy");
    run(Command::new("cp").arg("--sparse=always").arg(image.path()).arg(&copy));
    copy
}

/// Unmounts it, but leaves it as a crash would have left it before.
fn unmount_without_writing(image: &mut Image) {
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
    let copy = image.path().with_extension("damaged");
    fs::write(&copy, bytes).unwrap();
    let mounted = Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&copy).arg(image.root()).output();
    let is_mounted = mounted.expect("mount runs").status.success();
    if is_mounted {
        run(Command::new("umount").arg(image.root()));
    }
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

#[test]
fn orphans_are_told_without_links() {
    for options in [&["-O", "^orphan_file"][..], &["-O", "orphan_file"]] {
        let mkfs = [&["mkfs.ext4", "-q", "-F", "-b", "4096"], options].concat();
        let Some(mut image) = Image::new(64 * MIB, &mkfs) else { return };
        image.mount(&["-t", "ext4"], "");
        let open_files: Vec<_> = (0..5)
            .map(|index| {
                let path = image.root().join(format!("{index}"));
                fs::write(&path, vec![7; 5000]).unwrap();
                let file = fs::File::open(&path).unwrap();
                fs::remove_file(&path).unwrap();
                file
            })
            .collect();
        fs::write(image.root().join("gone"), "x").unwrap();
        fs::remove_file(image.root().join("gone")).unwrap();
        run(&mut Command::new("sync"));
        let copy = copied(&image);
        drop(open_files);
        image.unmount();
        fs::rename(&copy, image.path()).unwrap();
        let kept = scan(&mut open(&image).unwrap());
        assert!(kept.problems.is_empty(), "{:?}", kept.problems);
        let orphans: Vec<_> = kept.inodes.values().filter(|inode| inode.links == 0).collect();
        assert_eq!(orphans.len(), 5, "{options:?}");
        assert!(orphans.iter().all(|inode| inode.size == 5000 && inode.extents.len() == 1));
    }
}

#[test]
fn what_is_unknown_is_refused_by_its_name() {
    let Some(image) = Image::new(64 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^metadata_csum"]) else {
        return;
    };
    let bytes = fs::read(image.path()).unwrap();
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[1024 + at..][..4].copy_from_slice(&value.to_le_bytes());
        Ext4::open(bytes).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(with(0x60, 1 << 12).contains("dirdata"));
    assert!(with(0x60, 1 << 29 | 1 << 5).contains("FEATURE_I5, FEATURE_I29"));
    assert!(with(0x60, 1 << 3).contains("journal_dev"));
    assert_eq!(with(0x64, !0x410), "", "features for reading alone are no hindrance");
    assert!(with(0x18, 9).contains("block size"), "{}", with(0x18, 9));
    assert!(matches!(Ext4::open(vec![0; 5000]), Err(TableError::NotHere { .. })));
    assert!(matches!(Ext4::open(vec![]), Err(TableError::NotHere { .. })));
}

#[test]
fn a_copy_of_the_superblock_is_named() {
    let Some(image) = Image::new(256 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "4096"]) else { return };
    let mut bytes = fs::read(image.path()).unwrap();
    bytes[1024 + 0x78] ^= 1;
    let error = Ext4::open(bytes.as_slice()).err().unwrap().to_string();
    assert!(error.contains("e2fsck -b 32768 -B 4096"), "{error}");
    bytes[1024..2048].fill(0);
    let error = Ext4::open(bytes.as_slice()).err().unwrap().to_string();
    assert!(error.contains("e2fsck -b 32768 -B 4096"), "{error}");
}

/// Ends the scan after some calls.
struct Ending(u32);

impl Ending {
    fn count(&mut self) -> ControlFlow<()> {
        assert!(self.0 > 0, "told something after the end");
        self.0 -= 1;
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Found for Ending {
    fn inode(&mut self, _: Inode) -> ControlFlow<()> {
        self.count()
    }

    fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
        self.count()
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, _: TableError) -> ControlFlow<()> {
        self.count()
    }
}

#[test]
fn a_scan_ends_when_it_is_told_to() {
    let amount = Amount { files: 50, names: 100, pieces: 100 };
    let Some(image) = filled(&["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "inline_data"], 4096, amount, "") else {
        return;
    };
    for after in 1..300 {
        open(&image).unwrap().scan(Wanted { xattrs: true, ..Wanted::default() }, &mut Ending(after)).unwrap();
    }
}

/// Bytes of which some can't be read.
struct Faulty<'a> {
    bytes: &'a [u8],
    unreadable: Vec<u64>,
}

impl BlockRead for Faulty<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if self.unreadable.iter().any(|bad| (at..at + buffer.len() as u64).contains(bad)) {
            return Err(io::Error::other("a bad sector"));
        }
        self.bytes.read_at(buffer, at)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_right() {
    let Some(mut image) = Image::new(24 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "1024"]) else { return };
    image.mount(&["-t", "ext4"], "");
    fill_small(&image.root(), 5, 1024, Amount { files: 120, names: 600, pieces: 1500 });
    image.unmount();
    let bytes = fs::read(image.path()).unwrap();
    let sound = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
    let places = metadata(&bytes);
    let mut random = Random::new(5);
    let mut with_problems = 0;
    for round in 0..40 {
        let unreadable = (0..20).map(|_| places[random.below(places.len() as u64) as usize] as u64).collect();
        let Ok(mut tables) = Ext4::open(Faulty { bytes: &bytes, unreadable }) else { continue };
        let mut kept = Kept::default();
        tables.scan(Wanted { xattrs: true, ..Wanted::default() }, &mut kept).unwrap();
        with_problems += u32::from(!kept.problems.is_empty());
        unchanged(&sound, &kept, &format!("round {round}"));
    }
    assert!(with_problems > 10, "{with_problems}");
}

/// How many times as long the tests go, by `ONESWEEP_TEST_LONG`, and what to begin their numbers with.
fn length_and_seed() -> (u64, u64) {
    let seed = env::var("ONESWEEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    (if env::var_os("ONESWEEP_TEST_LONG").is_some() { 30 } else { 1 }, seed)
}

fn damaged(mkfs: &[&str], block_bytes: u64, seed: u64, crash: bool) {
    let (length, begin) = length_and_seed();
    let (seed, rounds) = (seed + 1000 * begin, 170 * length);
    let Some(mut image) = Image::new(24 * MIB, mkfs) else { return };
    image.mount(&["-t", "ext4"], if crash { "commit=300" } else { "" });
    fill_small(&image.root(), seed, block_bytes, Amount { files: 120, names: 600, pieces: 1500 });
    if crash {
        commit(&image);
        unmount_without_writing(&mut image);
    } else {
        image.unmount();
    }
    let mut bytes = fs::read(image.path()).unwrap();
    let sound = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
    assert!(sound.problems.is_empty(), "{:?}", sound.problems);
    let checksummed = bytes[1024 + 0x65] & 4 != 0;
    let places = metadata(&bytes);
    let mut random = Random::new(seed);
    let (mut opened, mut with_problems) = (0, 0);
    for round in 0..rounds {
        // Much damage is mostly refused at once, a single byte goes deeper.
        let changes = if round % 2 == 0 { 1 } else { 1 + random.below(8) };
        let changes: Vec<(usize, u8)> = (0..changes)
            .map(|_| {
                let place = places[random.below(places.len() as u64) as usize];
                (place + random.below(64) as usize, random.below(256) as u8)
            })
            .collect();
        let undo: Vec<(usize, u8)> = changes.iter().map(|&(at, _)| (at, bytes[at])).collect();
        changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
        let tables = Ext4::open(bytes.as_slice()).inspect_err(names_its_place);
        if let Ok(mut tables) = tables {
            opened += 1;
            let mut kept = Kept::default();
            tables.scan(Wanted { xattrs: true, ..Wanted::default() }, &mut kept).unwrap();
            with_problems += u32::from(!kept.problems.is_empty());
            kept.problems.iter().for_each(names_its_place);
            let all = Needs { layout: true, xattrs: true };
            Ext4::open_mounted(bytes.as_slice()).map(|tables| tables.bring_in(all, u64::MAX, &|| true)).ok();
            let most = changes.len() * 2000;
            assert!(kept.problems.len() <= most, "round {round}: {} problems", kept.problems.len());
            if checksummed {
                unchanged(&sound, &kept, &format!("round {round} after {changes:?}"));
            }
        }
        undo.iter().rev().for_each(|&(at, byte)| bytes[at] = byte);
    }
    // After a crash most of what may be damaged is the journal, whose checksums refuse it.
    let least = if crash { rounds / 20 } else { rounds / 8 };
    assert!(opened > least && (crash || with_problems > 0), "{opened} opened, {with_problems} with problems");
}

/// With checksums, whatever is told is right, but for targets of long symbolic links, which have none.
fn unchanged(sound: &Kept, kept: &Kept, round: &str) {
    for (number, inode) in &kept.inodes {
        let before = &sound.inodes[number];
        if inode.mode & 0o170_000 == 0o120_000 {
            continue;
        }
        let is_directory = inode.mode & 0o170_000 == 0o040_000;
        let partial = is_directory && !kept.problems.is_empty();
        assert!(inode == before || partial, "{round}:\n{inode:?}\n{before:?}\n{:?}", kept.problems);
    }
    let told = kept.inodes.len() + kept.problems.len() >= sound.inodes.len();
    assert!(told || !kept.problems.is_empty(), "{round}: inodes are missing in silence");
    let names: std::collections::HashSet<_> = sound.names.iter().collect();
    assert!(kept.names.iter().all(|name| names.contains(name)), "{round}");
}

/// Places of 64 bytes that have metadata, or at least something.
fn metadata(bytes: &[u8]) -> Vec<usize> {
    let places = (1024..bytes.len() - 64).step_by(64);
    // Content has one byte again and again.
    places.filter(|&at| bytes[at..at + 64].iter().any(|&byte| byte != bytes[at])).collect()
}

fn fill_small(root: &Path, seed: u64, block_bytes: u64, amount: Amount) {
    for index in 0..amount.files {
        fs::write(root.join(format!("file {index}")), vec![7; (index * 37 % 5000) as usize]).unwrap();
        let path = root.join(format!("file {index}"));
        let value = vec![index as u8; (index % 40 * 5) as usize];
        let _ = rustix::fs::setxattr(&path, "user.x", &value, rustix::fs::XattrFlags::empty());
    }
    for index in 0..amount.names {
        fs::hard_link(root.join("file 0"), root.join(format!("name {index} {seed}"))).unwrap();
    }
    let file = fs::File::create(root.join("pieces")).unwrap();
    for index in 0..amount.pieces {
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", index * 2 * block_bytes).unwrap();
    }
    for length in [5, 59, 61, 500] {
        std::os::unix::fs::symlink("t".repeat(length), root.join(format!("link {length}"))).unwrap();
    }
}

#[test]
fn damage_is_told_or_left_out() {
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "ea_inode"], 1024, 1, false);
}

#[test]
fn damage_without_checksums_does_no_harm() {
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^metadata_csum,inline_data"], 1024, 2, false);
}

#[test]
fn damage_to_indirect_blocks_does_no_harm() {
    damaged(&["mkfs.ext2", "-q", "-F", "-b", "1024"], 1024, 3, false);
}

/// The kernel refuses to open such a file, and nobody would see the end of its zeros.
#[test]
fn a_file_that_is_larger_than_any_is_told_and_left_out() {
    for features in ["metadata_csum", "^metadata_csum"] {
        let Some(mut image) = Image::new(24 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", features]) else {
            return;
        };
        image.mount(&["-t", "ext4"], "");
        for name in ["as large as can be", "larger"] {
            fs::write(image.root().join(name), "hello").unwrap();
        }
        image.unmount();
        for (name, size) in [("as large as can be", 4096_u64 << 32), ("larger", (4096 << 32) + 1)] {
            let set = format!("sif \"/{name}\" size {size}");
            run(Command::new("debugfs").args(["-w", "-R", &set]).arg(image.path()));
        }
        let bytes = fs::read(image.path()).unwrap();
        let kept = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
        let sizes: Vec<u64> = kept.inodes.values().map(|inode| inode.size).filter(|&size| size > 1 << 30).collect();
        assert_eq!(sizes, [4096 << 32], "{features}");
        let told: Vec<String> = kept.problems.iter().map(ToString::to_string).collect();
        let is_told =
            |told: &String| told.contains("the size of inode") && told.contains("expected 0 to 17592186044416");
        assert!(told.iter().any(is_told), "{features}: {told:?}");
    }
}

#[test]
fn damage_to_a_journal_does_no_harm() {
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024"], 1024, 4, true);
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^metadata_csum"], 1024, 5, true);
}
