//! What a client can take of a server is bounded.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use onesweep_peer::{
    serve::{Limits, Server},
    wire::{Answer, Closing, Greeting, Priority, Refusal, Request, answer},
};

use crate::support::{LONG, block, client, domain, eventually, memory, server, server_with};

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
