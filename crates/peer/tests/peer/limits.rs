//! What a client can take of a server is bounded.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use onesweep_peer::{
    client::{self, Peers},
    serve::{self, Limits, Server},
    tls::Identity,
    wire::{Answer, Closing, Greeting, Priority, Refusal, Request, answer},
};

use crate::{
    networks::in_own_network,
    support::{LONG, block, client, domain, eventually, hasty, listener, memory, server, server_with},
    tls::authority,
};

/// A client that speaks frames as it likes.
pub(crate) struct Rude {
    pub(crate) stream: TcpStream,
    heard: Vec<u8>,
}

impl Rude {
    pub(crate) fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self { stream, heard: Vec::new() }
    }

    pub(crate) fn greeted(server: &Server) -> Self {
        let mut rude = Self::connect(server);
        rude.say(|out| Greeting { lowest: 1, highest: 1, domain: domain().name() }.encode(out));
        assert!(rude.hear().starts_with("Welcome"));
        rude
    }

    pub(crate) fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// The next frame as text, blocks by their length; `end` where the connection has ended.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            if let Some((answer, used)) = answer(&self.heard).unwrap() {
                let text = match answer {
                    Answer::Block { id, bytes } => format!("block {id} of {}", bytes.len()),
                    other => format!("{other:?}"),
                };
                self.heard.drain(..used);
                return text;
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return "end".into(),
                Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came"),
                Err(_) => return "end".into(),
            }
        }
    }
}

pub(crate) fn closing(why: Closing) -> String {
    format!("{:?}", Answer::Closing(why))
}

#[test]
fn requests_beyond_the_limit_are_refused_and_the_others_answered() {
    let store = memory();
    let (hash, bytes) = block(1);
    store.put(&hash, &bytes).unwrap();
    let server = server_with(store, Limits { in_flight: 10, queued_bytes: 1, ..Limits::default() });
    let mut rude = Rude::greeted(&server);
    rude.say(|out| Request::get(out, 0, Priority::Waiting, &[hash; 30]));
    let said: Vec<_> = (0..30).map(|_| rude.hear()).collect();
    let busy = said.iter().filter(|said| said.contains(&format!("{:?}", Refusal::Busy))).count();
    assert_eq!((busy, said.iter().filter(|said| said.starts_with("block")).count()), (20, 10), "{said:?}");
}

#[test]
fn who_does_not_read_costs_little_and_is_let_go() {
    let store = memory();
    for n in 0..1000 {
        let (hash, bytes) = block(n);
        store.put(&hash, &bytes).unwrap();
    }
    let limits = Limits { stalled: Duration::from_millis(300), ..Limits::default() };
    let server = server_with(store, limits);
    let mut rude = Rude::greeted(&server);
    let hashes: Vec<_> = (0..1000).map(|n| block(n).0).collect();
    // Far more than sockets hold, so that the server has to stop.
    let mut out = Vec::new();
    for round in 0..100 {
        Request::get(&mut out, round * 1000, Priority::Waiting, &hashes);
    }
    rude.stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = rude.stream.write_all(&out);
    eventually("it is let go", || server.counters().broken.load(Ordering::Relaxed) == 1);
    let sent = server.counters().hits.load(Ordering::Relaxed) * 4096;
    // What sockets of the loopback hold at most, and the limit.
    assert!(sent < 30 << 20, "{sent}");
    eventually("and gone", || server.counters().open.load(Ordering::Relaxed) == 0);
    // Others are served.
    assert!(client(server.address()).get_and_wait(&hashes[5]).is_ok());
}

#[test]
fn connections_are_counted_and_there_is_room_again() {
    let server = server_with(memory(), Limits { connections: 3, ..Limits::default() });
    let mut three: Vec<_> = (0..3).map(|_| Rude::greeted(&server)).collect();
    let mut fourth = Rude::connect(&server);
    assert_eq!(fourth.hear(), closing(Closing::Busy));
    assert_eq!(fourth.hear(), "end");
    three.pop().unwrap().stream.shutdown(Shutdown::Both).unwrap();
    eventually("one has gone", || server.counters().open.load(Ordering::Relaxed) == 2);
    Rude::greeted(&server);
}

/// A server that asks for certificates, and gives everybody an hour to show them.
fn patient_server(keys: &Path, listener: TcpListener, limits: Limits) -> Server {
    let tls = Identity::read(&keys.join("server")).unwrap().into_server().unwrap();
    let limits = Limits { greeting: Duration::from_secs(3600), ..limits };
    let settings = serve::Settings { limits, ..serve::Settings::encrypted(domain(), tls) };
    Server::start(listener, memory(), settings).unwrap()
}

fn certified(keys: &Path, address: String) -> Peers {
    let tls = Identity::read(&keys.join("client")).unwrap().into_client().unwrap();
    Peers::connect([address], client::Settings { tls: Some(tls), ..hasty() }).unwrap()
}

#[test]
fn strangers_who_say_nothing_keep_nobody_out() {
    let keys = tempfile::tempdir().unwrap();
    authority(keys.path());
    let limits = Limits { connections: 8, strangers: 3, ..Limits::default() };
    let server = patient_server(keys.path(), listener(), limits);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counters = server.counters();
    let mut strangers = Vec::new();
    for number in 1..=20 {
        strangers.push(Rude::connect(&server));
        eventually("it was taken", || count(&counters.connections) == number);
        eventually("and another one went", || count(&counters.open) == number.min(3));
    }
    assert_eq!((count(&counters.displaced), count(&counters.refused)), (17, 0));
    let peers = certified(keys.path(), server.address().to_string());
    assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
    // Who was greeted stays, however many come.
    for number in 22..=40 {
        strangers.push(Rude::connect(&server));
        eventually("it was taken", || count(&counters.connections) == number);
        eventually("and another one went", || count(&counters.open) <= 4);
    }
    let (hash, bytes) = block(1);
    assert_eq!(peers.put_and_wait(&hash, &bytes), Ok(false));
    assert_eq!(peers.health()[0].counted.connections, 1);
    assert!(server.exposition().contains("onesweep_peer_connections_displaced_total 36\n"), "{}", server.exposition());
}

#[test]
fn few_connections_are_mostly_for_those_who_greet() {
    let server = server_with(memory(), Limits::of(8));
    let (mut first, _second) = (Rude::connect(&server), Rude::connect(&server));
    let _third = Rude::connect(&server);
    assert_eq!((first.hear(), first.hear()), (closing(Closing::Busy), "end".into()));
    let _greeted: Vec<_> = (0..6).map(|_| Rude::greeted(&server)).collect();
    assert_eq!((Limits::of(1).strangers, Limits::of(256).strangers, Limits::of(4096).strangers), (1, 64, 64));
}

#[test]
fn one_address_cannot_have_all_connections() {
    in_own_network("limits::one_address_cannot_have_all_connections", || {
        for words in [&["link", "set", "lo", "up"][..], &["address", "add", "10.9.0.1/32", "dev", "lo"]] {
            assert!(Command::new("ip").args(words).status().unwrap().success(), "{words:?}");
        }
        let keys = tempfile::tempdir().unwrap();
        authority(keys.path());
        let limits = Limits { of_address: 2, ..Limits::default() };
        let server = patient_server(keys.path(), TcpListener::bind("0.0.0.0:0").unwrap(), limits);
        let port = server.address().port();
        // Who comes there comes from there.
        let from_there = || certified(keys.path(), format!("10.9.0.1:{port}"));
        let (first, second) = (from_there(), from_there());
        assert!(first.wait_until_usable(LONG) && second.wait_until_usable(LONG), "{:?}", first.health());
        let third = from_there();
        eventually("it is refused", || server.counters().crowded.load(Ordering::Relaxed) >= 2);
        assert!(!third.is_usable() && first.is_usable() && second.is_usable());
        let own: Vec<_> = (0..4).map(|_| certified(keys.path(), format!("127.0.0.1:{port}"))).collect();
        assert!(own.iter().all(|own| own.wait_until_usable(LONG)), "{:?}", own[0].health());
        drop(first);
        assert!(third.wait_until_usable(LONG), "{:?}", third.health());
    });
}

#[test]
fn who_says_nothing_is_let_go() {
    let limits = Limits { idle: Duration::from_secs(1), greeting: Duration::from_secs(1), ..Limits::default() };
    let server = server_with(memory(), limits);
    let mut idle = Rude::greeted(&server);
    assert_eq!(idle.hear(), closing(Closing::Idle));
    let mut silent = Rude::connect(&server);
    assert_eq!(silent.hear(), closing(Closing::Idle));
    // A greeting that comes byte by byte doesn't come in time, either.
    let mut slow = Rude::connect(&server);
    let mut greeting = Vec::new();
    Greeting { lowest: 1, highest: 1, domain: domain().name() }.encode(&mut greeting);
    for byte in greeting {
        if slow.stream.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(60));
    }
    assert_ne!(slow.hear(), "Welcome");
    assert_eq!(server.counters().broken.load(Ordering::Relaxed), 3);
}

#[test]
fn a_server_that_ends_says_so_and_ends() {
    let server = server(memory());
    let mut rude = Rude::greeted(&server);
    let waiting = std::thread::spawn(move || (rude.hear(), rude.hear()));
    server.stop();
    assert_eq!(waiting.join().unwrap(), (closing(Closing::Stopping), "end".into()));
}

#[test]
fn frames_may_come_in_any_pieces() {
    let store = memory();
    let (hash, bytes) = block(1);
    store.put(&hash, &bytes).unwrap();
    let server = server(Arc::clone(&store));
    let mut rude = Rude::greeted(&server);
    let (other, other_bytes) = block(2);
    let mut out = Vec::new();
    Request::ping(&mut out, 1);
    Request::get(&mut out, 2, Priority::Waiting, &[hash]);
    Request::put(&mut out, 3, &other, &other_bytes);
    for piece in out.chunks(997) {
        rude.stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut said: Vec<_> = (0..3).map(|_| rude.hear()).collect();
    said.sort();
    assert_eq!(said, ["Pong { id: 1 }", "Stored { id: 3, was_known: false }", "block 2 of 4096"]);
}
