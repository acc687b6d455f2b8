//! XFS of every kind that mkfs.xfs makes, filled with all that a tree can hold.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::Read,
    ops::ControlFlow,
    path::Path,
    process::Command,
    time::Instant,
};

use onesweep_layout::{
    ImageFile,
    tables::{Found, Inode, InodeFlags, Name, TableError, Tables, Wanted, xfs::Xfs},
};

use crate::{
    conformance::{Kept, Tree, by_kernel, by_tables, compare, scan},
    image::{Image, not_here, run, skipped, unmount},
    noting::Noting,
    xfs_tree::{ATTRIBUTE_MAX, Recipe, fill},
};

pub(crate) const MIB: u64 = 1 << 20;

/// Makes and fills an image; unmounted. `None` where it can't be made, which was said then.
pub(crate) fn filled(bytes: u64, mkfs: &[&str], recipe: &Recipe) -> Option<Image> {
    let refused = |what: &str, message: &[u8]| {
        let message = String::from_utf8_lossy(message);
        not_here(&format!("{what} refuses {mkfs:?}: {}", message.lines().next().unwrap_or_default()));
        None
    };
    let folder = tempfile::tempdir().unwrap();
    let trial = folder.path().join("trial");
    File::create(&trial).unwrap().set_len(bytes).unwrap();
    let Ok(made) = Command::new("mkfs.xfs").arg("-q").args(mkfs).arg(&trial).output() else {
        skipped("there is no mkfs.xfs");
        return None;
    };
    if !made.status.success() {
        return refused("mkfs.xfs", &made.stderr);
    }
    let mut image = Image::new(bytes, &[&["mkfs.xfs", "-q"], mkfs].concat())?;
    let mounted = Command::new("mount").args(["-o", "loop,ro"]).arg(&trial).arg(image.root()).output().unwrap();
    if !mounted.status.success() {
        return refused("the kernel", &mounted.stderr);
    }
    unmount(&image.root());
    image.mount(&["-t", "xfs"], "");
    fill(&image.root(), recipe);
    image.unmount();
    Some(image)
}

/// A number that changes with the bytes of a file (FNV-1a, of 8 bytes at once).
fn hash(path: &Path) -> u64 {
    let mut file = File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    loop {
        let length = file.read(&mut buffer).unwrap();
        if length == 0 {
            return sum;
        }
        for word in buffer[..length].as_chunks::<8>().0 {
            sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

pub(crate) fn open(image: &Image) -> Xfs<ImageFile> {
    Xfs::open(ImageFile::open(&image.path()).unwrap()).unwrap()
}

fn different_inodes(tree: &Tree) -> usize {
    tree.values().map(|facts| facts.inode).collect::<HashSet<_>>().len()
}

/// Holds the tables of an image against the kernel.
fn conforms_to(mkfs: &[&str], names: u32, reflink: bool) {
    let Some(mut image) = filled(320 * MIB, mkfs, &Recipe { names, reflink, attribute: ATTRIBUTE_MAX }) else { return };
    let before = hash(&image.path());
    let begin = Instant::now();
    let tables = by_tables(&mut open(&image), &[]);
    let took = begin.elapsed();
    assert_eq!(hash(&image.path()), before, "reading changed the image");
    image.mount(&["-t", "xfs"], "ro,nouuid");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    assert!(kernel.len() > names as usize);
    assert_eq!(scan(&mut open(&image)).inodes.len(), different_inodes(&kernel), "some have no name");
    compare(&kernel, &tables);
    println!("{mkfs:?}: {} names in {took:?}", tables.len());
}

macro_rules! conformance {
    ($($name:ident: $mkfs:expr, $names:expr, $reflink:expr;)*) => {
        $(#[test]
        fn $name() {
            conforms_to(&$mkfs, $names, $reflink);
        })*
    };
}

conformance! {
    defaults_conform: [], 20_000, true;
    version_4_conforms: ["-m", "crc=0"], 20_000, false;
    version_4_without_types_conforms: ["-m", "crc=0", "-n", "ftype=0"], 500, false;
    version_4_with_old_attributes_conforms: ["-m", "crc=0", "-i", "attr=1"], 500, false;
    without_reflink_conforms: ["-m", "reflink=0"], 500, false;
    with_reflink_conforms: ["-m", "reflink=1"], 500, true;
    with_reverse_mapping_conforms: ["-m", "rmapbt=1"], 500, true;
    with_big_times_conforms: ["-m", "bigtime=1"], 500, true;
    without_big_times_conforms: ["-m", "bigtime=0"], 500, true;
    with_inode_counts_conforms: ["-m", "inobtcount=1"], 500, true;
    without_free_inode_trees_conforms: ["-m", "finobt=0,inobtcount=0,rmapbt=0,reflink=0"], 500, false;
    without_sparse_inodes_conforms: ["-i", "sparse=0"], 500, true;
    with_sparse_inodes_conforms: ["-i", "sparse=1"], 20_000, true;
    with_large_counters_conforms: ["-i", "nrext64=1"], 500, true;
    without_large_counters_conforms: ["-i", "nrext64=0"], 500, true;
    inodes_of_1024_conform: ["-i", "size=1024"], 500, true;
    inodes_of_2048_conform: ["-i", "size=2048"], 500, true;
    blocks_of_1024_conform: ["-b", "size=1024"], 20_000, true;
    blocks_of_4096_conform: ["-b", "size=4096"], 500, true;
    directory_blocks_of_8192_conform: ["-n", "size=8192"], 20_000, true;
    directory_blocks_of_65536_conform: ["-n", "size=65536"], 20_000, true;
    directory_blocks_of_many_blocks_conform: ["-b", "size=1024", "-n", "size=65536"], 20_000, true;
    names_without_case_conform: ["-n", "version=ci"], 500, true;
    blocks_of_8192_conform: ["-b", "size=8192"], 500, true;
    blocks_of_32768_conform: ["-b", "size=32768"], 500, true;
    sectors_of_1024_conform: ["-s", "size=1024"], 500, true;
    sectors_of_2048_conform: ["-s", "size=2048"], 500, true;
    sectors_of_8192_conform: ["-s", "size=8192", "-b", "size=8192"], 500, true;
    extent_sizes_that_are_inherited_conform: ["-d", "extszinherit=16"], 500, true;
    extent_sizes_of_copies_that_are_inherited_conform: ["-d", "cowextsize=16"], 500, true;
    direct_access_that_is_inherited_conforms: ["-m", "reflink=0", "-d", "daxinherit=1"], 500, false;
    projects_that_are_inherited_conform: ["-d", "projinherit=7"], 500, true;
    sectors_of_4096_conform: ["-s", "size=4096"], 500, true;
    two_groups_conform: ["-d", "agcount=2"], 500, true;
    stripes_conform: ["-d", "su=64k,sw=4,agcount=2", "-l", "size=64m"], 500, true;
    unaligned_data_conforms: ["-d", "noalign"], 500, true;
    a_log_in_the_first_group_conforms: ["-l", "agnum=0"], 500, true;
    a_log_with_stripes_conforms: ["-l", "su=64k"], 500, true;
    two_inodes_in_a_block_conform: ["-i", "perblock=2"], 500, true;
    few_inodes_conform: ["-i", "maxpct=1"], 500, true;
    without_a_free_inode_tree_conforms: ["-m", "finobt=0,inobtcount=0"], 500, true;
    everything_new_conforms:
        ["-m", "rmapbt=1,reflink=1,bigtime=1,inobtcount=1,finobt=1", "-i", "nrext64=1,sparse=1"], 500, true;
    blocks_of_2048_conform: ["-b", "size=2048"], 500, true;
    blocks_of_16384_conform: ["-b", "size=16384"], 500, true;
    blocks_of_65536_conform: ["-b", "size=65536"], 500, true;
}

/// Another UUID leaves that of the metadata as it is.
#[test]
fn a_changed_uuid_conforms() {
    let Some(mut image) = filled(320 * MIB, &[], &Recipe { names: 500, reflink: true, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    run(Command::new("xfs_admin").args(["-U", "generate"]).arg(image.path()));
    let tables = by_tables(&mut open(&image), &[]);
    image.mount(&["-t", "xfs"], "ro");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
}

/// The inodes of quotas belong to the file system itself.
#[test]
fn quotas_are_not_told() {
    let Some(mut image) = filled(320 * MIB, &[], &Recipe { names: 100, reflink: true, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    let options = ["-o", "loop,noatime,uquota,gquota,pquota"];
    let mounted = Command::new("mount").args(options).arg(image.path()).arg(image.root()).output().unwrap();
    if !mounted.status.success() {
        return not_here("the kernel has no quotas for XFS");
    }
    unmount(&image.root());
    let (before, tables) = (open(&image).facts().inodes_used.unwrap(), by_tables(&mut open(&image), &[]));
    image.mount(&["-t", "xfs"], "ro");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
    let told = scan(&mut open(&image)).inodes.len();
    assert_eq!(told, different_inodes(&kernel));
    // The bitmap and the summary of a realtime device, three kinds of quotas.
    assert!(before >= told as u64 + 3, "{before}, {told}");
}

/// What the kernel leaves behind only by accident is written by xfs_db.
#[test]
fn orphans_and_files_of_a_realtime_device_are_told() {
    let Some(mut image) = Image::new(320 * MIB, &["mkfs.xfs", "-q"]) else { return };
    image.mount(&["-t", "xfs"], "");
    let number = |name: &str| {
        fs::write(image.root().join(name), [1; 5000]).unwrap();
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(image.root().join(name)).unwrap())
    };
    let (orphan, elsewhere) = (number("orphan"), number("elsewhere"));
    image.unmount();
    for (inode, write) in [(orphan, "write core.nlinkv2 0"), (elsewhere, "write core.realtime 1")] {
        let at = format!("inode {inode}");
        run(Command::new("xfs_db").args(["-x", "-c", &at, "-c", write]).arg(image.path()));
    }
    let kept = scan(&mut open(&image));
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    assert_eq!((kept.inodes[&orphan].links, kept.inodes[&orphan].flags), (0, InodeFlags::empty()));
    assert_eq!((kept.inodes[&elsewhere].links, kept.inodes[&elsewhere].flags), (1, InodeFlags::ELSEWHERE));
    assert_eq!(kept.inodes[&orphan].extents.len(), 1);
    assert!(kept.inodes[&elsewhere].extents.iter().all(|extent| extent.physical.is_none() && !extent.is_plain()));
    assert_eq!(kept.inodes[&elsewhere].extents.len(), 1);
}

#[test]
fn the_volume_tells_its_label_and_numbers() {
    let Some(mut image) =
        filled(320 * MIB, &["-L", "twelve bytes"], &Recipe { names: 10, reflink: true, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    let facts = open(&image).facts().clone();
    image.mount(&["-t", "xfs"], "ro");
    let of_kernel = rustix::fs::statvfs(image.root()).unwrap();
    let root = std::os::unix::fs::MetadataExt::ino(&fs::metadata(image.root()).unwrap());
    image.unmount();
    assert_eq!((facts.fs_type, &*facts.label, facts.root), ("xfs", "twelve bytes", root));
    assert_eq!(u64::from(facts.block_bytes), of_kernel.f_bsize);
    assert_eq!(facts.inodes_used, Some(of_kernel.f_files - of_kernel.f_ffree));
    assert_eq!(facts.bytes, 320 * MIB);
}

/// Fails unless an image is refused since its log is dirty.
fn refused_as_dirty(path: &Path) {
    match Xfs::open(ImageFile::open(path).unwrap()) {
        Err(error @ TableError::Dirty { .. }) => assert!(error.to_string().contains("xfs_repair -L"), "{error}"),
        other => panic!("{:?}", other.map(|xfs| xfs.facts().clone())),
    }
}

#[test]
fn a_dirty_log_is_refused_and_a_recovered_one_is_read() {
    for mkfs in [&["mkfs.xfs", "-q"][..], &["mkfs.xfs", "-q", "-l", "su=32k"], &["mkfs.xfs", "-q", "-l", "su=256k"]] {
        let Some(mut image) = Image::new(320 * MIB, mkfs) else { return };
        assert!(scan(&mut open(&image)).problems.is_empty(), "fresh from mkfs.xfs");
        image.mount(&["-t", "xfs"], "");
        for round in 0..4 {
            for number in 0..300 {
                fs::write(image.root().join(format!("file {round} {number}")), b"content").unwrap();
            }
            run(Command::new("sync").arg("-f").arg(image.root()));
            let copy = image.path().with_extension("copy");
            run(Command::new("cp").arg("--sparse=always").arg(image.path()).arg(&copy));
            refused_as_dirty(&copy);
        }
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(image.root()));
        image.unmount();
        refused_as_dirty(&image.path());
        image.mount(&["-t", "xfs"], "");
        image.unmount();
        let tables = by_tables(&mut open(&image), &[]);
        image.mount(&["-t", "xfs"], "ro");
        let kernel = by_kernel(&image.root(), &[]);
        image.unmount();
        compare(&kernel, &tables);
    }
}

/// A disk chooses among what it knows of. Only headers and trees of groups are read without being announced.
#[test]
fn a_scan_announces_inodes_and_directories() {
    let Some(image) = filled(320 * MIB, &[], &Recipe { names: 20_000, reflink: false, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    let device = Noting::new(ImageFile::open(&image.path()).unwrap());
    let mut tables = Xfs::open(&device).unwrap();
    device.read.lock().unwrap().clear();
    tables.scan(Wanted { xattrs: false, ..Wanted::default() }, &mut Kept::default()).unwrap();
    let (read, announced) = (device.read.lock().unwrap(), device.announced.lock().unwrap());
    let alone = read.difference(&announced).count();
    assert!(announced.is_subset(&read), "announced in vain");
    assert!(announced.len() > 20 * alone, "{} KiB were announced, {alone} were not", announced.len());
}

#[test]
fn the_caller_ends_a_scan() {
    struct Few(u32);
    impl Few {
        fn one_more(&mut self) -> ControlFlow<()> {
            assert!(self.0 > 0, "called again after the end");
            self.0 -= 1;
            if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    impl Found for Few {
        fn inode(&mut self, _: Inode) -> ControlFlow<()> {
            self.one_more()
        }
        fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
            self.one_more()
        }
        fn incomplete(&mut self, _: Option<u64>) {}

        fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
            panic!("{problem}")
        }
    }
    let Some(image) = filled(320 * MIB, &[], &Recipe { names: 100, reflink: true, attribute: ATTRIBUTE_MAX }) else {
        return;
    };
    let mut tables = open(&image);
    for calls in 1..1200 {
        tables.scan(Wanted { xattrs: calls % 2 == 0, ..Wanted::default() }, &mut Few(calls)).unwrap();
    }
}
