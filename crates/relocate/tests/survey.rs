//! The order in which files are listed, on whatever file system there is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use onesweep_relocate::survey::{Order, files_below};

fn listed(directory: &Path, order: Order) -> Vec<PathBuf> {
    let fail = &mut |path: &Path, error: io::Error| panic!("{}: {error}", path.display());
    let files = files_below(directory, order, fail).unwrap();
    files.iter().map(|path| path.strip_prefix(directory).unwrap().to_owned()).collect()
}

#[test]
fn each_order_goes_into_directories_at_their_turn() {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    fs::create_dir_all(root.join("b/deep")).unwrap();
    for name in ["c", "a", "b/z", "b/deep/x", "b/y"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::hard_link(root.join("a"), root.join("d")).unwrap();
    std::os::unix::fs::symlink("b", root.join("link")).unwrap();

    let by_name = listed(root, Order::Name);
    assert_eq!(by_name, ["a", "b/deep/x", "b/y", "b/z", "c"].map(PathBuf::from), "each inode once");

    let inode = |path: &PathBuf| fs::metadata(root.join(path)).unwrap().ino();
    let below_b: Vec<PathBuf> = listed(&root.join("b"), Order::Inode);
    let mut entries: Vec<PathBuf> = ["deep", "y", "z"].map(PathBuf::from).into();
    entries.sort_by_key(|path| inode(&Path::new("b").join(path)));
    let turns = |path: &PathBuf| entries.iter().position(|entry| path.starts_with(entry)).unwrap();
    assert!(below_b.is_sorted_by_key(turns), "{below_b:?}");

    let listing: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    let as_listed = listed(root, Order::Readdir);
    let turns = |path: &PathBuf| listing.iter().position(|entry| path.starts_with(entry)).unwrap();
    assert!(as_listed.is_sorted_by_key(turns), "{as_listed:?}");
    assert_eq!(as_listed.len(), 5);
}

#[test]
fn what_cannot_be_listed_is_told() {
    let tree = tempfile::tempdir().unwrap();
    let none = tree.path().join("none");
    assert!(files_below(&none, Order::Name, &mut |_, _| {}).is_err());
    fs::write(&none, b"a file").unwrap();
    assert!(files_below(&none, Order::Name, &mut |_, _| {}).is_err());
}
