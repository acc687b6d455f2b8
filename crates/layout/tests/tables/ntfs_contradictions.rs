//! Contradictions of NTFS.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::Duration,
};

use onesweep_layout::{
    ImageFile,
    tables::{
        Indexes, TableError, Tables, Wanted,
        ntfs::{Ntfs, Options},
    },
};

use crate::{
    conformance::{Kept, scan},
    contradictions::{MIB, assert_told, fill, number_of, place_of, set},
    image::Image,
};

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
