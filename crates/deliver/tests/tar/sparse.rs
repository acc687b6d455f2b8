//! Holes stay holes.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use onesweep_deliver::tar::TarOptions;

use crate::support::{
    assert_same_tree, data_ranges, entries, extractors, facts, options, remove, run, run_quietly, scratch, skipped,
    to_bytes, write,
};

fn sparse_file(path: &Path, size: u64, data: &[(u64, usize)]) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for &(at, length) in data {
        let bytes: Vec<u8> = (0..length).map(|byte| (byte % 250 + 1) as u8).collect();
        file.write_all_at(&bytes, at).unwrap();
    }
}

fn build(base: &Path) {
    let tree = base.join("tree");
    fs::create_dir(&tree).unwrap();
    sparse_file(&tree.join("hole only"), 5 << 20, &[]);
    sparse_file(&tree.join("data at the end"), (3 << 20) + 17, &[((3 << 20) - 5, 22)]);
    sparse_file(&tree.join("data at the start"), 10 << 20, &[(0, 5000)]);
    let many: Vec<_> = (0..300).map(|at| (at * 65_536, 4096 + at as usize)).collect();
    sparse_file(&tree.join("many regions"), 40 << 20, &many);
    sparse_file(&tree.join("dense"), 10_000, &[(0, 10_000)]);
    let name = ["ö".repeat(50), "o\u{308}".repeat(50)].concat();
    sparse_file(&tree.join(name), 1 << 20, &[(500_000, 1)]);
    sparse_file(&tree.join("n".repeat(200)), 1 << 20, &[(500_000, 1)]);
    fs::hard_link(tree.join("hole only"), tree.join("hole only, too")).unwrap();
}

#[test]
fn holes_are_restored() {
    let base = scratch();
    build(base.path());
    if !data_ranges(&base.path().join("tree/hole only")).is_empty() {
        return skipped("the file system keeps no holes");
    }
    let archive = base.path().join("a.tar");
    let warnings = write(&archive, entries(base.path(), "tree"), TarOptions { sparse: true, ..options() });
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(fs::metadata(&archive).unwrap().len() < 3 << 20);
    for extractor in extractors() {
        let (out, told) = extractor.extract_with_messages(&archive);
        assert!(told.lines().all(|line| line.contains("'hdrcharset'")), "{told}");
        let (want, got) = (facts(base.path(), "tree", extractor), facts(out.path(), "tree", extractor));
        assert_same_tree(&want, &got, &format!("{extractor:?}"));
        for path in want.keys() {
            let blocks = |base: &Path| fs::metadata(base.join(path)).unwrap().blocks();
            let (want, got) = (blocks(base.path()), blocks(out.path()));
            assert!(got <= want + 8, "{extractor:?}: {path:?} has {got} blocks instead of {want}");
        }
        remove(out);
    }
    for program in ["tar", "bsdtar"] {
        let listed = run(base.path(), program, &["-tvf", "a.tar"]);
        assert!(listed.status.success(), "{program}");
        assert!(String::from_utf8_lossy(&listed.stdout).contains(" 5242880 "), "{program}");
    }
    // Python reads the map on its own terms.
    let script = "import tarfile,sys\nfor m in tarfile.open('a.tar'):\n  if m.isreg(): print(m.size, m.issparse())";
    if let Ok(read) = std::process::Command::new("python3").args(["-c", script]).current_dir(base.path()).output() {
        assert!(String::from_utf8_lossy(&read.stdout).contains("5242880 True"), "{read:?}");
    }
    remove(base);
}

/// Ranges that don't hold are no reason to lose data.
#[test]
fn data_in_an_alleged_hole_is_kept() {
    let base = scratch();
    let path = base.path().join("f");
    sparse_file(&path, 1 << 20, &[(700_000, 10)]);
    let wrong = entries(base.path(), "f").remove(0).with_bytes(&fs::read(&path).unwrap(), Vec::new());
    let archive = base.path().join("a.tar");
    assert!(write(&archive, [wrong], TarOptions { sparse: true, ..options() }).is_empty());
    let out = scratch();
    run_quietly(out.path(), "tar", &["-xf", archive.to_str().unwrap()]);
    assert!(fs::read(out.path().join("f")).unwrap() == fs::read(&path).unwrap());
}

/// A file of one hole comes without content; with and without the option it has its size.
#[test]
fn a_hole_without_content_is_zeros() {
    let base = scratch();
    sparse_file(&base.path().join("f"), 3 << 20, &[]);
    let metadata = *entries(base.path(), "f")[0].metadata();
    for (sparse, archive_len) in [(false, (3 << 20) + 10_240), (true, 10_240)] {
        let item = onesweep::SweptFile::new("f".into(), metadata);
        let bytes = to_bytes([item], TarOptions { sparse, ..options() });
        assert_eq!(bytes.len().next_multiple_of(10_240), bytes.len());
        assert!(bytes.len() <= archive_len, "{}", bytes.len());
        let archive = base.path().join("a.tar");
        fs::write(&archive, bytes).unwrap();
        for program in ["tar", "bsdtar"] {
            let out = scratch();
            run_quietly(out.path(), program, &["-xf", archive.to_str().unwrap()]);
            assert!(fs::read(out.path().join("f")).unwrap() == vec![0; 3 << 20], "{program}");
        }
    }
}

/// Beyond eight gigabytes, without that many bytes in the archive.
#[test]
fn huge_holes_have_their_size() {
    let base = scratch();
    let path = base.path().join("f");
    sparse_file(&path, (9 << 30) + 5, &[]);
    let metadata = *crate::support::entry_without_content(base.path(), "f").metadata();
    let archive = base.path().join("a.tar");
    write(&archive, [onesweep::SweptFile::new("f".into(), metadata)], TarOptions { sparse: true, ..options() });
    for program in ["tar", "bsdtar"] {
        let out = scratch();
        run_quietly(out.path(), program, &["-xf", archive.to_str().unwrap()]);
        let found = fs::metadata(out.path().join("f")).unwrap();
        assert!(found.len() == (9 << 30) + 5 && found.blocks() < 100, "{program}: {found:?}");
    }
}
