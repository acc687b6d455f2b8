//! Identical blocks are stored once, whoever puts them.

use std::sync::Arc;

use onesweep_peer::{
    client::Failure,
    id::BlockSize,
    push::{PushError, Pushed, Pusher},
    store::{BlockStore, Disk, DiskSettings},
};

use crate::support::{block, client, domain, memory, server};

const BLOCKS: u32 = 1000;

/// A client's image: nine of ten blocks are everybody's.
fn image(of: u32) -> Vec<Vec<u8>> {
    let number = |n: u32| if n.is_multiple_of(10) { of * 1_000_000 + n } else { n };
    (0..BLOCKS).map(|n| block(number(n) + 1).1).collect()
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
                let mut pusher = Pusher::new(&peers, domain(), BlockSize::default());
                pusher.push(&mut &image(of).concat()[..], || true).unwrap();
                let pushed = pusher.finish().unwrap();
                assert_eq!(pushed.blocks, u64::from(BLOCKS));
                assert_eq!(pushed.known + pushed.sent, pushed.blocks);
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

#[test]
fn zeros_are_not_sent_and_nothing_is_sent_twice() {
    let store = memory();
    let server = server(Arc::clone(&store));
    let peers = client(server.address());
    let push = |bytes: &[u8], size: u64| {
        let mut pusher = Pusher::new(&peers, domain(), BlockSize::new(size).unwrap());
        pusher.push(&mut &bytes[..], || true).unwrap();
        pusher.finish().unwrap()
    };
    // Two equal blocks, one of zeros, many others, and a short one at the end.
    let mut bytes = [block(1).1, block(1).1, vec![0; 4096]].concat();
    (2..2000).for_each(|n| bytes.extend(block(n).1));
    bytes.extend([7; 100]);
    let all = Pushed { blocks: 2002, bytes: bytes.len() as u64, zero: 1, ..Pushed::default() };
    assert_eq!(push(&bytes, 4096), Pushed { known: 1, sent: 2000, sent_bytes: 1999 * 4096 + 100, ..all });
    assert_eq!(push(&bytes, 4096), Pushed { known: 2001, ..all });
    assert_eq!(store.blocks(), 2000);
    assert_eq!(peers.get_and_wait(&domain().hash(&[7; 100])), Ok(vec![7; 100]));
    assert_eq!(push(&bytes, 65536).sent, 2002_u64.div_ceil(16));
    assert_eq!(push(&[], 4096), Pushed::default());
}

#[test]
fn a_server_that_goes_ends_the_push_with_a_word() {
    let server = server(memory());
    let peers = client(server.address());
    let mut pusher = Pusher::new(&peers, domain(), BlockSize::default());
    let bytes: Vec<u8> = (0..5000).flat_map(|n| block(n).1).collect();
    let mut server = Some(server);
    // Between the first part and the next.
    let mut parts = 0;
    let pushed = pusher.push(&mut &bytes[..], || {
        parts += 1;
        if parts == 2 {
            server.take().unwrap().stop();
        }
        true
    });
    assert!(matches!(pushed, Err(PushError::Peer(Failure::Disconnected | Failure::NotAsked(_)))), "{pushed:?}");
}
