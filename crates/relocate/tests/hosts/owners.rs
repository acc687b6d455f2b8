//! Owners, who pack their own files without any privilege.

use crate::helper::{NOBODY, as_somebody_else};
use crate::image::is_root;
use crate::kinds::{Kind, OnBtrfs, OnExt4, OnXfs, OnXfsExchange, OnXfsWhole};
use crate::tree::{assert_equal, assert_same, kept, scatter, sync, without_ctime};

const MIB: u64 = 1 << 20;

/// Files of one's own can be packed without any privilege.
#[test]
fn owners_pack_their_own_files() {
    owners_pack::<OnExt4>("owner");
}

#[test]
fn owners_pack_their_own_files_of_xfs() {
    owners_pack::<OnXfs>("xfs-owner");
}

#[test]
fn owners_pack_their_own_files_of_xfs_without_reflinks() {
    owners_pack::<OnXfsExchange>("xfs-owner-exchange");
}

#[test]
fn owners_pack_their_own_files_of_xfs_of_wholes() {
    owners_pack::<OnXfsWhole>("xfs-owner");
}

#[test]
fn owners_pack_their_own_files_of_btrfs() {
    owners_pack::<OnBtrfs>("btrfs-owner");
}

fn owners_pack<K: Kind>(does: &str) {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    // What is dirty isn't known before Linux 6.5.
    for hidden in ["", "cachestat"] {
        let directory = image.root().join(format!("d{hidden}"));
        for path in scatter(&directory, 60).iter().chain([&directory]) {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        sync(&directory);
        let before = kept(&directory);
        as_somebody_else(does, hidden, &directory, &image.root());
        match K::KEEPS_CTIME_OF_OWNERS {
            true => assert_same(&directory, &before),
            false => assert_equal(&without_ctime(before), &without_ctime(kept(&directory))),
        }
    }
    image.check();
}
