//! Names are bytes, and come back as the same bytes.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::PathBuf};

use onesweep::{Kind, SweptFile};
use onesweep_deliver::tar::TarOptions;

use crate::support::{
    Dice, any_name, assert_same_tree, closed_entries, entries, extractors, facts, options, remove, run, run_quietly,
    scratch, write,
};

/// Names of all lengths and alphabets, in deep directories; as files, links and link targets.
#[test]
fn any_name_is_restored_to_the_byte() {
    for seed in 1..=6 {
        let base = scratch();
        let mut dice = Dice(seed);
        let mut dirs = vec![PathBuf::from("tree")];
        fs::create_dir(base.path().join("tree")).unwrap();
        for _ in 0..60 {
            let path = dirs[dice.below(dirs.len())].join(any_name(&mut dice, 255));
            let full = base.path().join(&path);
            let longest = base.path().join(&path).as_os_str().len() < 3000;
            if full.symlink_metadata().is_ok() || !longest {
                continue;
            }
            match dice.below(5) {
                0 | 1 => {
                    fs::create_dir(&full).unwrap();
                    dirs.push(path);
                }
                2 => symlink(any_name(&mut dice, 255), &full).unwrap(),
                _ => {
                    fs::write(&full, "x").unwrap();
                    let further = base.path().join(&dirs[dice.below(dirs.len())]).join(any_name(&mut dice, 255));
                    if dice.below(3) == 0 && further.symlink_metadata().is_err() {
                        fs::hard_link(&full, further).unwrap();
                    }
                }
            }
        }
        let archive = base.path().join("a.tar");
        assert!(write(&archive, closed_entries(base.path(), "tree"), options()).is_empty());
        for extractor in extractors() {
            let (out, told) = extractor.extract_with_messages(&archive);
            // GNU tar says of long names in other encodings that it doesn't know the record, and is right all the same.
            let other: Vec<_> =
                told.lines().filter(|line| !line.contains("unknown extended header keyword 'hdrcharset'")).collect();
            assert!(other.is_empty(), "seed {seed}, {extractor:?}: {other:?}");
            let (want, got) = (facts(base.path(), "tree", extractor), facts(out.path(), "tree", extractor));
            assert_same_tree(&want, &got, &format!("seed {seed}, {extractor:?}"));
            remove(out);
        }
        remove(base);
    }
}

/// What people really have gives no message in any locale, and needs no pax header.
#[test]
fn common_names_are_silent_in_every_locale() {
    let base = scratch();
    fs::create_dir(base.path().join("d")).unwrap();
    let names = ["Übung.txt", "写真.jpg", "a b", "new\nline", "o\u{308}ffnen"];
    for name in names {
        fs::write(base.path().join("d").join(name), "").unwrap();
        crate::support::set_mtime(&base.path().join("d").join(name), 7, 0);
    }
    crate::support::set_mtime(&base.path().join("d"), 7, 0);
    let archive = base.path().join("a.tar");
    write(&archive, entries(base.path(), "d"), options());
    let bytes = fs::read(&archive).unwrap();
    assert!(!bytes.windows(10).any(|window| window == b"PaxHeaders"));
    for locale in ["LC_ALL=C", "LC_ALL=C.UTF-8"] {
        for program in ["tar", "bsdtar"] {
            let out = scratch();
            let told = run(out.path(), "env", &[locale, program, "-xf", archive.to_str().unwrap()]);
            assert!(told.status.success() && told.stderr.is_empty(), "{locale} {program}");
            let found: BTreeSet<_> =
                fs::read_dir(out.path().join("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(found, names.iter().map(Into::into).collect(), "{locale} {program}");
        }
    }
}

/// Lengths around every limit of the header.
#[test]
fn names_at_the_limits_of_the_header_are_restored() {
    let base = scratch();
    let mut items = Vec::new();
    fs::write(base.path().join("f"), "").unwrap();
    let metadata = *entries(base.path(), "f")[0].metadata();
    let mut names = BTreeSet::new();
    for (prefix, name) in [
        (0, 98),
        (0, 99),
        (0, 100),
        (0, 101),
        (0, 250),
        (50, 50),
        (50, 100),
        (153, 99),
        (154, 100),
        (155, 100),
        (156, 100),
        (155, 101),
        (200, 200),
    ] {
        let mut path = PathBuf::new();
        if prefix > 0 {
            path.push("p".repeat(prefix));
        }
        path.push("n".repeat(name));
        names.insert(path.clone());
        let target = PathBuf::from("t".repeat(name));
        let mut link = metadata;
        link.kind = Kind::Symlink;
        link.mode = 0o120_777;
        items.push(SweptFile::new(path.with_extension("l"), link).with_link_target(target));
        items.push(SweptFile::new(path, metadata));
    }
    let archive = base.path().join("a.tar");
    write(&archive, items, options());
    for program in ["tar", "bsdtar"] {
        let listed = run_quietly(base.path(), program, &["-tf", "a.tar"]);
        let files: BTreeSet<PathBuf> = listed.lines().filter(|line| !line.ends_with(".l")).map(PathBuf::from).collect();
        assert!(files == names, "{program}: {listed}");
        let out = scratch();
        run_quietly(out.path(), program, &["-xf", archive.to_str().unwrap()]);
    }
    // A third reader.
    let mut third = tar::Archive::new(fs::File::open(&archive).unwrap());
    for entry in third.entries().unwrap() {
        let entry = entry.unwrap();
        if let Some(target) = entry.link_name().unwrap() {
            let name = entry.path().unwrap().file_name().unwrap().len();
            assert_eq!(target.as_os_str().len() + 2, name);
        } else {
            assert!(names.contains(&*entry.path().unwrap()));
        }
    }
}

#[test]
fn absolute_names_are_stripped_unless_kept() {
    let base = scratch();
    let dir = base.path().join("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("one"), "").unwrap();
    fs::hard_link(dir.join("one"), dir.join("two")).unwrap();
    let root = dir.to_str().unwrap();
    let archive = base.path().join("a.tar");
    let warnings = write(&archive, entries(base.path(), root), options());
    let told: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["Removing leading `/' from member names", "Removing leading `/' from hard link targets"]);
    let inner = root.trim_start_matches('/');
    let listed = run_quietly(base.path(), "tar", &["-tvf", "a.tar"]);
    assert!(listed.contains(&format!(" {inner}/\n")), "{listed}");
    assert!(listed.contains(&format!(" {inner}/two link to {inner}/one\n")), "{listed}");

    let warnings = write(&archive, entries(base.path(), root), TarOptions { absolute_names: true, ..options() });
    assert!(warnings.is_empty());
    let listed = run_quietly(base.path(), "tar", &["-P", "-tvf", "a.tar"]);
    assert!(listed.contains(&format!(" {root}/two link to {root}/one\n")), "{listed}");
}
