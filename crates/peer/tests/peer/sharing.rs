//! Identical blocks are stored once, whoever puts them.

use std::sync::Arc;

use onesweep_peer::{
    id::is_zero,
    store::{BlockStore, Disk, DiskSettings},
};

use crate::support::{client, domain, server};

const BLOCKS: u32 = 1000;

/// A client's image: nine of ten blocks are everybody's.
fn image(of: u32) -> Vec<Vec<u8>> {
    let number = |n: u32| if n.is_multiple_of(10) { of * 1_000_000 + n } else { n };
    (0..BLOCKS).map(|n| crate::support::block(number(n) + 1).1).collect()
}

#[test]
fn ten_clients_whose_images_share_nine_tenths_take_two_images_of_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), DiskSettings { bytes_max: 64 << 20, domain: domain() }).unwrap();
    let store: Arc<dyn BlockStore> = Arc::new(disk);
    let server = server(Arc::clone(&store));
    std::thread::scope(|scope| {
        for of in 0..10 {
            let server = &server;
            scope.spawn(move || {
                let peers = client(server.address());
                for part in image(of).chunks(100) {
                    let hashes: Vec<_> = part.iter().map(|block| domain().hash(block)).collect();
                    let are_there = peers.has_and_wait(&hashes).unwrap();
                    for ((block, hash), is_there) in part.iter().zip(&hashes).zip(are_there) {
                        assert!(!is_zero(block));
                        if !is_there {
                            peers.put_and_wait(hash, block).unwrap();
                        }
                    }
                }
            });
        }
    });
    let one = u64::from(BLOCKS) * 4096;
    assert_eq!(store.bytes(), (900 + 10 * 100) * 4096);
    let on_disk: u64 =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk as f64 <= 2.1 * one as f64, "{on_disk} bytes on disk for images of {one}");
    // And each image is there, whole.
    let peers = client(server.address());
    for of in [0, 9] {
        for block in image(of).iter().step_by(7) {
            assert_eq!(peers.get_and_wait(&domain().hash(block)).as_ref(), Ok(block));
        }
    }
}
