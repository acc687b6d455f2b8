//! Owners, times, compression, and that the same entries give the same bytes.

use std::fs;

use onesweep::Timestamp;
use onesweep_deliver::tar::{Compression, Owner, TarOptions, TarWriter, parse_mtime};

use crate::support::{Dice, entries, interleave, options, run_quietly, scratch, set_mtime, to_bytes, write};

#[test]
fn owners_and_times_are_replaced() {
    let base = scratch();
    fs::write(base.path().join("f"), "").unwrap();
    let listed = |options: TarOptions, args: &[&str]| {
        write(&base.path().join("a.tar"), entries(base.path(), "f"), options);
        run_quietly(base.path(), "tar", &[&["--utc", "--full-time", "-tvf", "a.tar"], args].concat())
    };
    let replaced = TarOptions {
        owner: Some(Owner::user("someone:4321").unwrap()),
        group: Some(Owner::group("a-group-with-a-name-too-long-for-its-field:3000000").unwrap()),
        mtime: Some(parse_mtime("2001-02-03T04:05:06.5Z").unwrap()),
        ..TarOptions::default()
    };
    let line = listed(replaced.clone(), &[]);
    assert!(line.contains("someone/a-group-with-a-name-too-long-for-its-field "), "{line}");
    assert!(line.contains("2001-02-03 04:05:06.5"), "{line}");
    let line = listed(replaced, &["--numeric-owner"]);
    assert!(line.contains("4321/3000000"), "{line}");
    let numeric = TarOptions {
        numeric_owner: true,
        owner: Some(Owner::user("0").unwrap()),
        group: Some(Owner::group("0").unwrap()),
        ..TarOptions::default()
    };
    assert!(listed(numeric, &[]).contains(" 0/0 "));
    let named = TarOptions { owner: Some(Owner::user("0").unwrap()), ..TarOptions::default() };
    assert!(listed(named, &[]).contains(" root/"));
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    let base = scratch();
    for dir in ["one", "two"] {
        fs::create_dir_all(base.path().join(dir).join("tree/sub")).unwrap();
        for file in 0..20 {
            let path = base.path().join(dir).join(format!("tree/{}f{file}", if file % 2 == 0 { "sub/" } else { "" }));
            fs::write(path, format!("content {file}")).unwrap();
        }
    }
    let archive = |dir: &str, compression| {
        let options = TarOptions {
            interleaved: true,
            mtime: Some(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 }),
            compression,
            ..options()
        };
        to_bytes(interleave(&base.path().join(dir), "tree", 5), options)
    };
    for compression in [Compression::None, Compression::Gzip(None), Compression::Zstd(None)] {
        assert!(archive("one", compression) == archive("two", compression), "{compression:?}");
    }
}

#[test]
fn both_extractors_read_every_compression() {
    let base = scratch();
    fs::create_dir(base.path().join("d")).unwrap();
    let mut dice = Dice(1);
    let bytes: Vec<u8> = (0..3 << 20).map(|_| dice.below(40) as u8).collect();
    fs::write(base.path().join("d/f"), &bytes).unwrap();
    let archive = base.path().join("a.tar");
    let mut sizes = Vec::new();
    for compression in [
        Compression::None,
        Compression::Gzip(Some(1)),
        Compression::Gzip(Some(9)),
        Compression::Zstd(Some(1)),
        Compression::Zstd(Some(19)),
    ] {
        let file = fs::File::create(&archive).unwrap();
        let mut writer = TarWriter::new(file, TarOptions { compression, ..TarOptions::default() }).unwrap();
        for item in entries(base.path(), "d") {
            writer.append(item).unwrap();
        }
        let (file, totals) = writer.finish().unwrap();
        assert_eq!(file.metadata().unwrap().len(), totals.written_bytes);
        assert_eq!((totals.members, totals.content_bytes), (2, 3 << 20));
        assert_eq!(totals.archive_bytes % 10_240, 0);
        sizes.push(totals.written_bytes);
        for program in ["tar", "bsdtar"] {
            let out = scratch();
            run_quietly(out.path(), program, &["-xf", archive.to_str().unwrap()]);
            assert!(fs::read(out.path().join("d/f")).unwrap() == bytes, "{program}, {compression:?}");
        }
    }
    assert!(sizes[1..].iter().all(|size| *size < sizes[0]), "{sizes:?}");
}

/// A plain file needs one header and its data, as in GNU tar's own archives.
#[test]
fn plain_members_take_no_extended_header() {
    let base = scratch();
    fs::write(base.path().join("f"), "x").unwrap();
    set_mtime(&base.path().join("f"), 1_000_000_000, 0);
    let bytes = to_bytes(entries(base.path(), "f"), options());
    run_quietly(base.path(), "tar", &["--format=ustar", "-cf", "gnu.tar", "f"]);
    let gnu = fs::read(base.path().join("gnu.tar")).unwrap();
    let differs: Vec<_> = (0..gnu.len()).filter(|&at| bytes.get(at) != gnu.get(at)).collect();
    assert!(differs.is_empty() && bytes.len() == gnu.len(), "{differs:?}");
}
