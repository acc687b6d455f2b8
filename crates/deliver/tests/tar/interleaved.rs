//! Directories that are delivered in pieces must come out exactly, with links of all sorts in them.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use crate::support::{
    Dice, assert_same_tree, entries, extractors, facts, interleave, options, remove, run_quietly, scratch, set_mtime,
    set_xattr, write,
};
use onesweep_deliver::tar::TarOptions;

/// Directories of all modes, some deep, with files in each.
fn build(base: &Path, seed: u64) {
    let mut dice = Dice(seed);
    let mut dirs = vec![base.join("tree")];
    for at in 0..60 {
        let above = dice.below(dirs.len());
        dirs.push(dirs[above].join(format!("{}{at}", ["a", "m", "z"][dice.below(3)])));
    }
    for dir in &dirs {
        fs::create_dir(dir).unwrap();
        for file in 0..dice.below(4) {
            let path = dir.join(format!("f{file}"));
            fs::write(&path, vec![b'.'; dice.below(2000)]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode([0o644, 0o400, 0o777][dice.below(3)])).unwrap();
            set_mtime(&path, 1_000_000_000 + dice.below(1_000_000) as i64, dice.below(1_000_000_000) as u32);
        }
    }
    let mut leading_out = Vec::new();
    let mut lead_out = |path: PathBuf, target: &Path| {
        symlink(target, &path).unwrap();
        leading_out.push(path.parent().unwrap().to_path_buf());
    };
    // Links last, so that all directories exist.
    for at in 0..30 {
        let path = dirs[dice.below(dirs.len())].join(format!("link{at}"));
        let other = &dirs[dice.below(dirs.len())];
        match dice.below(4) {
            0 => lead_out(path, Path::new(["../..", "a/../b"][dice.below(2)])),
            1 => lead_out(path, other),
            2 => symlink("plain", path).unwrap(),
            _ if other.join("f0").exists() => fs::hard_link(other.join("f0"), path).unwrap(),
            _ => {}
        }
    }
    for dir in dirs.iter().rev() {
        if dice.below(4) == 0 {
            let acl = ["-d", "-m", "u:1000:rwx,g:1:r-x,o::---"];
            run_quietly(dir, "setfacl", &[&acl[..], &[dir.to_str().unwrap()]].concat());
        }
        let mode = [0o755, 0o700, 0o555, 0o500, 0o2775, 0o1777, 0o2555, 0o711, 0o000][dice.below(9)];
        // GNU tar makes links that lead out at its end, when such a directory is closed to an ordinary user.
        let is_above = leading_out.iter().any(|below| below != dir && below.starts_with(dir));
        let mode = if is_above { mode | 0o100 } else { mode };
        // Only root can read what he may not.
        let mode = if crate::support::is_root() { mode } else { mode | 0o500 };
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
        // GNU tar sets attributes after the mode, so that an ordinary user's fails on read-only directories.
        if mode & 0o200 != 0 && dice.below(2) == 0 {
            set_xattr(dir, b"user.note", b"on a directory");
        }
        if dice.below(4) == 0 {
            run_quietly(base, "setfacl", &["-m", "u:2000:rwx,g:7:--x", dir.to_str().unwrap()]);
        }
        set_mtime(dir, 900_000_000 + dice.below(1_000_000) as i64, dice.below(1_000_000_000) as u32);
    }
}

#[test]
fn directories_are_restored_exactly() {
    for seed in 1..=6 {
        let base = scratch();
        build(base.path(), seed);
        let archive = base.path().join("a.tar");
        let options = TarOptions { interleaved: true, ..options() };
        let warnings = write(&archive, interleave(base.path(), "tree", seed), options);
        assert!(warnings.is_empty(), "{warnings:?}");
        for extractor in extractors() {
            let out = extractor.extract(&archive);
            let (want, got) = (facts(base.path(), "tree", extractor), facts(out.path(), "tree", extractor));
            assert_same_tree(&want, &got, &format!("seed {seed}, {extractor:?}"));
            remove(out);
        }
        for program in ["tar", "bsdtar"] {
            run_quietly(base.path(), program, &["-tvf", "a.tar"]);
        }
        remove(base);
    }
}

fn has_default_acl(item: &onesweep::SweptFile) -> bool {
    item.xattrs().iter().any(|(name, _)| name == b"system.posix_acl_default")
}

/// Without interleaving, a directory is one member, and it is the first.
#[test]
fn without_interleaving_a_directory_is_written_once() {
    let base = scratch();
    build(base.path(), 9);
    let archive = base.path().join("a.tar");
    let mut names: Vec<String> = Vec::new();
    for interleaved in [false, true] {
        write(&archive, interleave(base.path(), "tree", 9), TarOptions { interleaved, ..options() });
        names = run_quietly(base.path(), "tar", &["-tf", "a.tar"]).lines().map(str::to_owned).collect();
        let directories = names.iter().filter(|name| name.ends_with('/')).count();
        let with_default_acl = entries(base.path(), "tree").iter().filter(|item| has_default_acl(item)).count();
        assert!(with_default_acl > 0);
        assert_eq!(directories, if interleaved { 2 * 61 + with_default_acl } else { 61 });
    }
    assert_eq!((names[0].as_str(), names[names.len() - 1].as_str()), ("tree/", "tree/"));
    remove(base);
}
