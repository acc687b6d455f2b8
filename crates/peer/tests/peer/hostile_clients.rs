//! Clients that send what they like.

use std::{io::Write, net::Shutdown, sync::atomic::Ordering, time::Duration};

use onesweep_peer::{
    id::DomainName,
    wire::{Closing, Greeting, MAGIC, Priority, Request},
};

use crate::{
    limits::{Rude, closing},
    support::{block, client, domain, eventually, memory, server},
};

#[test]
fn garbage_ends_that_connection_and_no_other() {
    let server = server(memory());
    let peers = client(server.address());
    let (hash, bytes) = block(1);
    peers.put_and_wait(&hash, &bytes).unwrap();
    let mut long = vec![0xff; 4];
    long.push(4);
    let mut wrong_magic = Vec::new();
    Greeting { lowest: 1, highest: 1, domain: domain().name() }.encode(&mut wrong_magic);
    wrong_magic[5 + MAGIC.len() - 1] ^= 1;
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let tls = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc].to_vec();
    let mut get = Vec::new();
    Request::get(&mut get, 0, Priority::Waiting, &[hash]);
    let before = [http, tls, wrong_magic, get, vec![0; 64], vec![0xff; 100_000], long.clone()];
    for (count, bytes) in before.iter().enumerate() {
        let mut rude = Rude::connect(&server);
        let _ = rude.stream.write_all(bytes);
        let said = rude.hear();
        // With bytes that nobody read, the end may overtake the word.
        assert!(said == closing(Closing::Frame) || (said == "end" && bytes.len() > 64), "{bytes:?}: {said}");
        eventually("it is counted", || server.counters().broken.load(Ordering::Relaxed) == count as u64 + 1);
    }
    let count = before.len() as u64;
    for bytes in [long, vec![9; 5], vec![0; 1000]] {
        let mut rude = Rude::greeted(&server);
        rude.stream.write_all(&bytes).unwrap();
        assert!([closing(Closing::Frame), "end".into()].contains(&rude.hear()));
    }
    eventually("they are counted", || server.counters().broken.load(Ordering::Relaxed) == count + 3);
    assert_eq!(peers.get_and_wait(&hash), Ok(bytes));
}

#[test]
fn other_versions_and_domains_are_told_so() {
    let server = server(memory());
    let domain = domain().name();
    for (greeting, why) in [
        (Greeting { lowest: 2, highest: 9, domain }, Closing::Version),
        (Greeting { lowest: 1, highest: 1, domain: DomainName([1; 16]) }, Closing::Domain),
    ] {
        let mut rude = Rude::connect(&server);
        rude.say(|out| greeting.encode(out));
        assert_eq!((rude.hear(), rude.hear()), (closing(why), "end".into()));
    }
    eventually("it is counted", || server.counters().refused.load(Ordering::Relaxed) == 2);
}

#[test]
fn who_closes_in_the_middle_leaves_nothing_behind() {
    let store = memory();
    let (hash, bytes) = block(1);
    store.put(&hash, &bytes).unwrap();
    let server = server(store);
    let (other, other_bytes) = block(2);
    let mut frames = Vec::new();
    Request::get(&mut frames, 0, Priority::Waiting, &[hash; 100]);
    Request::put(&mut frames, 200, &other, &other_bytes);
    for end in (0..frames.len()).step_by(307) {
        let mut rude = Rude::greeted(&server);
        rude.stream.write_all(&frames[..end]).unwrap();
        let _ = rude.stream.shutdown(if end % 2 == 0 { Shutdown::Both } else { Shutdown::Write });
    }
    eventually("all have gone", || server.counters().open.load(Ordering::Relaxed) == 0);
    // Half a block is none.
    assert_eq!(client(server.address()).get_and_wait(&hash), Ok(bytes));
    assert_eq!(server.counters().wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn a_lie_is_not_kept() {
    let server = server(memory());
    let peers = client(server.address());
    let ((hash, bytes), (_, lie)) = (block(1), block(2));
    peers.put_and_wait(&hash, &lie).unwrap_err();
    assert_eq!(peers.has_and_wait(&[hash]), Ok(vec![false]));
    peers.put_and_wait(&hash, &bytes).unwrap();
    peers.put_and_wait(&hash, &lie).unwrap_err();
    assert_eq!(peers.get_and_wait(&hash), Ok(bytes));
    assert_eq!(server.counters().wrong.load(Ordering::Relaxed), 2);
}

#[test]
fn a_flood_of_cancels_and_questions_ends() {
    let server = server(memory());
    let mut rude = Rude::greeted(&server);
    rude.say(|out| {
        for n in 0..20_000 {
            Request::cancel(out, n, 1000);
        }
        Request::ping(out, 77);
    });
    assert_eq!(rude.hear(), "Pong { id: 77 }");
    std::thread::sleep(Duration::from_millis(1));
    assert!(client(server.address()).is_usable());
}
