//! Alone in its process: after [`remove_all`] nothing more can be made there.

use std::{fs, mem};

use onesweep_deliver::{tar::Output, temporary::remove_all};

#[test]
fn a_process_that_ends_without_dropping_leaves_no_half_archive() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old.tar"), "old").unwrap();
    let outputs = ["old.tar", "new.tar"].map(|name| Output::create(&dir.path().join(name)).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    remove_all();
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["old.tar"]);
    assert_eq!(fs::read(dir.path().join("old.tar")).unwrap(), b"old");
    mem::forget(outputs);
}
