//! ext2, ext3 and ext4 in their variants.

use std::{fs, ops::ControlFlow, process::Command, sync::Arc};

use onesweep_layout::{
    BlockRead, ImageFile,
    tables::{
        Found, Inode, Name, TableError, Tables, Wanted,
        ext4::{Ext4, Needs},
    },
};

use crate::{
    conformance::{Kept, by_kernel, by_tables, compare, scan},
    ext4_journal::copied,
    ext4_tree::{ALL, Amount, fill},
    image::{Image, run},
    noting::Noting,
};

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn open(image: &Image) -> Result<Ext4<ImageFile>, TableError> {
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

pub(crate) fn conforms_mounted(mut image: Image, feature: Option<&str>, options: &str) {
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
fn a_damaged_file_of_orphans_is_told() {
    const TAIL: usize = 8;
    let Some(mut image) = Image::new(64 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "orphan_file"]) else {
        return;
    };
    image.mount(&["-t", "ext4"], "");
    let path = image.root().join("file");
    fs::write(&path, "content").unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    // Nothing of it is left in the journal.
    run(Command::new("fsfreeze").arg("-f").arg(image.root()));
    let bytes = fs::read(image.path());
    run(Command::new("fsfreeze").arg("-u").arg(image.root()));
    drop(file);
    image.unmount();
    let bytes = bytes.unwrap();
    let orphans = |bytes: &[u8]| {
        let kept = scan(&mut Ext4::open(bytes).unwrap());
        let problems: Vec<String> = kept.problems.iter().map(ToString::to_string).collect();
        (kept.inodes.values().filter(|inode| inode.links == 0).count(), problems)
    };
    assert_eq!(orphans(&bytes), (1, Vec::new()));
    let is_used = |block: &[u8]| {
        let (numbers, tail) = block.split_at(4096 - TAIL);
        tail.starts_with(&0x0b10_ca04_u32.to_le_bytes()) && numbers.iter().any(|byte| *byte != 0)
    };
    // In its place, and what the journal has left of it.
    let used = || (0..).step_by(4096).zip(bytes.chunks_exact(4096)).filter(|(_, block)| is_used(block));
    for (place, at, expected) in [
        (4096 - TAIL, 4096 - TAIL, "the magic number of the orphan file"),
        (100, 4096 - TAIL / 2, "the checksum of the orphan file"),
    ] {
        let mut damaged = bytes.clone();
        used().for_each(|(block, _): (usize, _)| damaged[block + place] ^= 0x10);
        let (left, problems) = orphans(&damaged);
        assert!(left == 0 && problems.len() == 1 && problems[0].contains(expected), "{left} {problems:?}");
        assert!(used().any(|(block, _)| problems[0].contains(&(block + at).to_string())), "{problems:?}");
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
