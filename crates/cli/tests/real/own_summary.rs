//! A summary as a type of Rust, over a mounted file system: the example of the documentation, held against a walk.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use crate::{
    image::{Fs, Image},
    run::root_test,
    tree::sync,
};

#[path = "../../../summary/examples/who_may_write.rs"]
#[allow(dead_code)] // It is a program, too.
mod who_may_write;

use who_may_write::Kept;

type Told = BTreeMap<String, [i64; 3]>;

/// The same by a walk; a file with several names counts once.
fn walked(path: &Path) -> Told {
    let (mut told, mut seen, mut left) = (Told::new(), Vec::new(), vec![path.to_owned()]);
    while let Some(path) = left.pop() {
        let stat = fs::symlink_metadata(&path).expect("its stat");
        if stat.is_dir() {
            left.extend(fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()));
        } else if seen.contains(&stat.ino()) {
            continue;
        }
        seen.push(stat.ino());
        let key = match stat.mode() {
            _ if stat.is_symlink() => "(symbolic link)",
            mode if mode & 0o002 != 0 => "everybody",
            mode if mode & 0o020 != 0 => "group",
            mode if mode & 0o200 != 0 => "owner",
            _ => "nobody",
        };
        let sum = told.entry(key.to_owned()).or_default();
        *sum = [sum[0] + 1, sum[1] + stat.size() as i64, sum[2] + stat.blocks() as i64 * 512];
    }
    told
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn agrees_with_a_walk(fs: Fs) {
    let image = Image::new(fs, 512 << 20);
    let (root, store) = (image.root(), image.beside("own"));
    for (at, mode) in [0o444, 0o644, 0o664, 0o666].into_iter().enumerate() {
        let folder = root.join(format!("d{at}/inner"));
        fs::create_dir_all(&folder).expect("folders");
        for file in 0..5 {
            fs::write(folder.join(format!("f{file}")), vec![b'x'; 700 * (at + file)]).expect("a file");
            set_mode(&folder.join(format!("f{file}")), mode);
        }
    }
    fs::hard_link(root.join("d0/inner/f4"), root.join("d3/also")).expect("a name");
    symlink("f1", root.join("d1/inner/link")).expect("a link");
    sync(&root);
    let mut kept = Kept::open(&root, &store).expect("it is kept");
    let agrees = |kept: &mut Kept, when: &str| {
        for path in [root.clone(), root.join("d1"), root.join("d3/inner")] {
            assert_eq!(kept.told(&path).expect("it is told"), walked(&path), "{} {when}", path.display());
        }
    };
    agrees(&mut kept, "at first");
    let before = kept.readings();
    set_mode(&root.join("d1/inner/f2"), 0o666);
    set_mode(&root.join("d3/also"), 0o640);
    fs::remove_file(root.join("d2/inner/f1")).expect("it goes");
    agrees(&mut kept, "after changes");
    let read = kept.readings() - before;
    assert!((1..8).contains(&read), "{read} of 9 directories were read again");
    kept.close().expect("a good end");
    // While nobody tracks it.
    set_mode(&root.join("d3/inner/f3"), 0o444);
    sync(&root);
    let mut kept = Kept::open(&root, &store).expect("it is kept");
    agrees(&mut kept, "after another start");
    kept.close().expect("a good end");
}

#[test]
fn a_type_of_rust_is_a_summary_of_ext4() {
    root_test!();
    agrees_with_a_walk(Fs::Ext4);
}

#[test]
fn a_type_of_rust_is_a_summary_of_xfs() {
    root_test!();
    agrees_with_a_walk(Fs::Xfs);
}

#[test]
fn a_type_of_rust_is_a_summary_of_btrfs() {
    root_test!();
    agrees_with_a_walk(Fs::Btrfs);
}
