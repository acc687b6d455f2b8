//! An honest client and an honest server.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use onesweep_peer::{
    client::{Failure, Peers, Refused, Settings},
    id::TrustDomain,
    store::{Disk, DiskSettings, Memory, Tiered},
    wire::Priority,
};

use crate::support::{LONG, block, client, counted, domain, eventually, get, hasty, listener, memory, server};

#[test]
fn blocks_come_back_and_equal_ones_are_kept_once() {
    let store = memory();
    let server = server(Arc::clone(&store));
    let peers = client(server.address());
    let blocks: Vec<_> = (0..50).map(block).collect();
    for (hash, bytes) in &blocks {
        assert_eq!(peers.get_and_wait(hash), Err(Failure::Absent));
        assert_eq!(peers.put_and_wait(hash, bytes), Ok(false));
        assert_eq!(peers.put_and_wait(hash, bytes), Ok(true));
        assert_eq!(peers.get_and_wait(hash).as_ref(), Ok(bytes));
    }
    assert_eq!(store.blocks(), 50);
    let hashes: Vec<_> = (40..60).map(|n| block(n).0).collect();
    let has = peers.has_and_wait(&hashes).unwrap();
    assert_eq!(has, (40..60).map(|n| n < 50).collect::<Vec<_>>());
    let (address, text) = peers.stat_and_wait().remove(0);
    assert_eq!(address, server.address().to_string());
    let text = text.unwrap();
    for line in ["onesweep_peer_puts_known_total 50", "onesweep_peer_blocks 50", "onesweep_peer_hits_total 50", "# EOF"]
    {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    assert_eq!(counted(&peers).hits, 50);
}

#[test]
fn very_many_requests_in_flight_are_each_answered_once() {
    let server = server(memory());
    let peers = client(server.address());
    let blocks: Vec<_> = (0..200).map(block).collect();
    for (hash, bytes) in &blocks {
        peers.put_and_wait(hash, bytes).unwrap();
    }
    let (tell, told) = mpsc::channel();
    let mut asked = 0;
    while asked < 20_000 {
        let n = asked % 250;
        let (tell, hash) = (tell.clone(), block(n as u32).0);
        let priority = if asked % 3 == 0 { Priority::Prefetch } else { Priority::Waiting };
        match peers.get(&hash, priority, LONG, move |got| tell.send((n, got.map(<[u8]>::to_vec))).unwrap()) {
            Ok(_) => asked += 1,
            Err(Refused::Full) => std::thread::yield_now(),
            Err(why) => panic!("{why}"),
        }
    }
    drop(tell);
    let mut count = 0;
    for (n, got) in told {
        count += 1;
        match got {
            Ok(bytes) => assert_eq!(bytes, blocks[n].1),
            Err(why) => assert!(why == Failure::Absent && n >= 200, "{n}: {why}"),
        }
    }
    assert_eq!(count, 20_000);
}

#[test]
fn what_is_cancelled_is_never_told_of() {
    let server = server(memory());
    let peers = client(server.address());
    let (hash, bytes) = block(1);
    peers.put_and_wait(&hash, &bytes).unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let (mut cancelled, mut asked) = (0, 0);
    for _ in 0..5000 {
        let tell = Arc::clone(&told);
        let ticket = peers.get(&hash, Priority::Waiting, LONG, move |_| {
            tell.fetch_add(1, Ordering::SeqCst);
        });
        if let Ok(ticket) = ticket {
            asked += 1;
            cancelled += usize::from(ticket.cancel());
        }
    }
    // After this answer nothing older is in flight.
    eventually("all are over", || told.load(Ordering::SeqCst) + cancelled == asked);
    peers.get_and_wait(&hash).unwrap();
    assert_eq!(told.load(Ordering::SeqCst) + cancelled, asked);
    assert!(cancelled > 0);
    assert_eq!(counted(&peers).cancelled, cancelled as u64);
}

#[test]
fn a_client_that_asks_from_within_an_answer_is_answered() {
    let server = server(memory());
    let peers = Arc::new(client(server.address()));
    let (hash, bytes) = block(1);
    peers.put_and_wait(&hash, &bytes).unwrap();
    let (tell, told) = mpsc::channel();
    let again = Arc::clone(&peers);
    peers
        .get(&hash, Priority::Waiting, LONG, move |first| {
            assert!(first.is_ok());
            again.get(&hash, Priority::Waiting, LONG, move |second| tell.send(second.is_ok()).unwrap()).unwrap();
        })
        .unwrap();
    assert!(told.recv_timeout(LONG).unwrap());
}

#[test]
fn another_key_is_refused_with_a_word() {
    let server = server(memory());
    let other = Settings { domain: TrustDomain::from_key([1; 32]), ..hasty() };
    let peers = Peers::connect([server.address().to_string()], other).unwrap();
    assert!(!peers.wait_until_usable(LONG));
    let error = peers.health().remove(0).last_error.unwrap();
    assert!(error.contains("another trust domain"), "{error}");
    assert_eq!(peers.get_and_wait(&block(1).0), Err(Failure::NotAsked(Refused::NoPeer)));
}

#[test]
fn a_server_that_comes_back_is_used_again_and_has_what_it_had_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let settings = DiskSettings { bytes_max: 64 << 20, domain: domain() };
        Arc::new(Tiered::new(Memory::new(1 << 20), Box::new(Disk::open(folder.path(), settings).unwrap())))
    };
    let first = server(open());
    let address = first.address();
    let peers = Peers::connect([address.to_string()], hasty()).unwrap();
    assert!(peers.wait_until_usable(LONG));
    let (hash, bytes) = block(1);
    peers.put_and_wait(&hash, &bytes).unwrap();
    first.stop();
    eventually("the end is seen", || !peers.is_usable());
    assert_eq!(peers.get_and_wait(&hash), Err(Failure::NotAsked(Refused::NoPeer)));
    let listener = std::net::TcpListener::bind(address).unwrap();
    let settings = onesweep_peer::serve::Settings::plain(domain());
    let _second = onesweep_peer::serve::Server::start(listener, open(), settings).unwrap();
    peers.network_changed();
    assert!(peers.wait_until_usable(LONG));
    assert_eq!(peers.get_and_wait(&hash), Ok(bytes));
    assert_eq!(counted(&peers).connections, 2);
}

#[test]
fn several_servers_share_the_blocks_and_one_may_go() {
    let stores = [memory(), memory(), memory()];
    let mut servers: Vec<_> = stores.iter().map(|store| server(Arc::clone(store))).collect();
    let peers = Peers::connect(servers.iter().map(|server| server.address().to_string()), hasty()).unwrap();
    assert!(peers.wait_until_usable(LONG));
    let blocks: Vec<_> = (0..300).map(block).collect();
    for (hash, bytes) in &blocks {
        peers.put_and_wait(hash, bytes).unwrap();
    }
    assert_eq!(stores.iter().map(|store| store.blocks()).sum::<u64>(), 300);
    assert!(stores.iter().all(|store| store.blocks() > 50));
    servers.remove(0).stop();
    eventually("the end is seen", || !peers.health()[0].is_usable);
    let got = blocks.iter().filter(|(hash, _)| peers.get_and_wait(hash).is_ok()).count() as u64;
    assert_eq!(got, 300 - stores[0].blocks());
    let all: Vec<_> = blocks.iter().map(|(hash, _)| *hash).collect();
    assert_eq!(peers.has_and_wait(&all).unwrap().iter().filter(|is| **is).count() as u64, got);
}

#[test]
fn clients_at_the_same_time_get_their_own_answers() {
    let server = server(memory());
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let (server, barrier) = (&server, &barrier);
            scope.spawn(move || {
                let peers = client(server.address());
                barrier.wait();
                for n in 0..100 {
                    let (hash, bytes) = block(thread * 50 + n);
                    peers.put_and_wait(&hash, &bytes).unwrap();
                    assert_eq!(peers.get_and_wait(&hash), Ok(bytes));
                }
            });
        }
    });
    assert_eq!(server.counters().puts.load(Ordering::Relaxed), 800);
    eventually("all have gone", || server.counters().open.load(Ordering::Relaxed) == 0);
}

#[test]
fn nobody_is_served_or_asked_beyond_the_loopback_without_tls() {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let settings = onesweep_peer::serve::Settings::plain(domain());
    let refused = onesweep_peer::serve::Server::start(listener, memory(), settings).unwrap_err();
    assert!(refused.to_string().contains("without TLS"), "{refused}");
    // An address that nobody has (RFC 5737); it isn't even tried.
    let peers = Peers::connect(["192.0.2.1:7497"], hasty()).unwrap();
    eventually("it was refused", || {
        peers.health()[0].last_error.as_ref().is_some_and(|why| why.contains("without TLS"))
    });
}

#[test]
fn a_client_that_goes_tells_those_who_wait() {
    // Takes connections and never says a word.
    let silent = listener();
    let address = silent.local_addr().unwrap();
    let peers = Peers::connect([address.to_string()], hasty()).unwrap();
    assert_eq!(get(&peers, &block(1).0, Duration::from_secs(1)), Err(Failure::NotAsked(Refused::NoPeer)));
    drop(peers);
}
