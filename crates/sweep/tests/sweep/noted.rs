//! Files that tell whether they were in memory before they were read.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, PermissionsExt},
    },
    path::Path,
};

use onesweep::{BulkRead, CachePolicy};
use onesweep_sys::{acting, cache, files, user};

const BYTES: usize = 300 << 10;
const NOBODY: u32 = 65_534;

/// One file that is in memory, one that is in part, and one that isn't. False where they can't be had.
fn prepare(root: &Path) -> bool {
    for (name, there) in [("all", BYTES), ("half", BYTES / 2), ("none", 0)] {
        let path = root.join(name);
        fs::write(&path, vec![7; BYTES]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let file = File::open(&path).unwrap();
        files::sync_data(file.as_fd()).unwrap();
        cache::drop_cached(file.as_fd(), 0, 0).unwrap();
        cache::random_access(file.as_fd()).unwrap();
        if cache::residency(file.as_fd(), 0, 0).unwrap().cached > 0 || !cache::has_trial(file.as_fd()) {
            return false;
        }
        file.read_exact_at(&mut vec![0; there], 0).unwrap();
    }
    true
}

fn told(root: &Path, notes: bool) -> BTreeMap<String, Option<bool>> {
    let files = BulkRead::new([root]).cache(CachePolicy::Fill).notes_cached(notes).start().unwrap();
    let told = files.map(|file| {
        let file = file.unwrap();
        assert_eq!(file.bytes().map(<[u8]>::len), Some(BYTES));
        (file.path().file_name().unwrap().to_str().unwrap().to_owned(), file.was_cached())
    });
    told.collect()
}

#[test]
fn what_was_in_memory_is_told_to_owners_and_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
    let expected = |all, others| {
        [("all", all), ("half", others), ("none", others)].map(|(name, told)| (name.to_owned(), told)).into()
    };
    if !prepare(root) {
        return eprintln!("left out: this file system keeps its pages, or has no reads that may not wait");
    }
    assert_eq!(told(root, true), expected(Some(true), Some(false)));
    // By now all of them are.
    assert_eq!(told(root, true), expected(Some(true), Some(true)));
    prepare(root);
    assert_eq!(told(root, false), expected(Some(true), None));
    if user::effective_uid() != 0 {
        return eprintln!("left out: only root can become somebody else");
    }
    prepare(root);
    let by_stranger = |notes| acting::lend_to(NOBODY, || Ok(told(root, notes))).unwrap();
    assert_eq!(by_stranger(true), expected(Some(true), Some(false)));
    assert_eq!(by_stranger(true), expected(Some(true), Some(true)));
}
