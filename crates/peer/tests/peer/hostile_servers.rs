//! Servers that answer what they like, or nothing: whoever asks is told in time, and never gets wrong bytes.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use onesweep_peer::{
    client::{Failure, Peers, Refused, Settings},
    wire::{Answer, Closing, FRAME_BYTES_MAX, Request, Welcome, request},
};

use crate::support::{LONG, block, counted, eventually, get, hasty, listener};

/// What a server says to a request; none to end the connection.
type Says = Box<dyn FnMut(&Request<'_>) -> Option<Vec<u8>> + Send>;

fn welcome() -> Vec<u8> {
    encoded(&Answer::Welcome(Welcome { version: 1, in_flight: 64, batch: 16, block_bytes: 65536, put_bytes: 1 << 20 }))
}

fn encoded(answer: &Answer<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    answer.encode(&mut out);
    out
}

/// A server that welcomes, answers pings, and says else what `says` says.
fn liar(mut make: impl FnMut() -> Says + Send + 'static) -> SocketAddr {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let says = make();
            thread::spawn(move || converse(stream.unwrap(), says));
        }
    });
    address
}

fn converse(mut stream: TcpStream, mut says: Says) {
    let (mut heard, mut bytes) = (Vec::new(), vec![0; FRAME_BYTES_MAX]);
    loop {
        while let Ok(Some((request, used))) = request(&heard) {
            let said = match request {
                Request::Greeting(_) => Some(welcome()),
                Request::Ping { id } => Some(encoded(&Answer::Pong { id })),
                _ => says(&request),
            };
            let Some(said) = said else { return };
            if stream.write_all(&said).is_err() {
                return;
            }
            heard.drain(..used);
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => heard.extend_from_slice(&bytes[..count]),
        }
    }
}

fn connected(address: SocketAddr) -> Peers {
    let peers = Peers::connect([address.to_string()], hasty()).unwrap();
    assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
    peers
}

/// Each block of a request gets an answer.
fn each(request: &Request<'_>, mut answer: impl FnMut(u32) -> Vec<u8>) -> Option<Vec<u8>> {
    match request {
        Request::Get { first, hashes, .. } => Some((*first..).take(hashes.len()).flat_map(&mut answer).collect()),
        _ => Some(Vec::new()),
    }
}

#[test]
fn wrong_bytes_are_never_handed_over_and_the_server_is_not_asked_again_soon() {
    let address = liar(|| {
        Box::new(|request| {
            let (_, lie) = block(2);
            each(request, |id| encoded(&Answer::Block { id, bytes: &lie }))
        })
    });
    let peers = connected(address);
    assert_eq!(get(&peers, &block(1).0, LONG), Err(Failure::WrongBytes));
    assert_eq!(get(&peers, &block(1).0, LONG), Err(Failure::NotAsked(Refused::NoPeer)));
    // A probe is answered, and one more lie shuts it for longer.
    eventually("a probe was answered", || peers.is_usable());
    assert_eq!(get(&peers, &block(1).0, LONG), Err(Failure::WrongBytes));
    assert_eq!(counted(&peers).wrong, 2);
    assert_eq!(counted(&peers).hits, 0);
}

#[test]
fn an_answer_that_never_comes_is_late_in_time_and_then_nobody_is_asked() {
    let address = liar(|| Box::new(|_| Some(Vec::new())));
    let peers = connected(address);
    let mut late = 0;
    while get(&peers, &block(1).0, Duration::from_millis(5)) == Err(Failure::Late) {
        late += 1;
        assert!(late < 100, "the breaker opens");
    }
    assert!(!peers.is_usable());
    assert_eq!(counted(&peers).late, late);
}

#[test]
fn a_server_that_never_welcomes_is_given_up_and_tried_again() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let peers = Peers::connect([address.to_string()], hasty()).unwrap();
    eventually("it was tried twice", || counted(&peers).refused >= 2);
    assert!(!peers.is_usable());
    drop(listener);
    eventually("nobody is there", || peers.health()[0].last_error.as_ref().is_some_and(|why| why.contains("refused")));
}

#[test]
fn garbage_half_frames_and_huge_lengths_end_the_connection_and_all_are_told() {
    let (_, bytes) = block(1);
    let half = encoded(&Answer::Block { id: 0, bytes: &bytes })[..2000].to_vec();
    let mut huge = (u32::MAX).to_le_bytes().to_vec();
    huge.push(0x82);
    for (said, ends) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), false),
        (huge, false),
        (vec![0; 5], false),
        (encoded(&Answer::Closing(Closing::Stopping)), false),
        (welcome(), false),
        // A number that nobody has.
        (encoded(&Answer::Pong { id: 4_000_000_000 }), false),
        (half, true),
        (Vec::new(), true),
    ] {
        let has_said = Arc::new(AtomicBool::new(false));
        let address = liar(move || {
            let (said, has_said) = (said.clone(), Arc::clone(&has_said));
            Box::new(move |_| {
                if has_said.swap(true, Ordering::SeqCst) {
                    return if ends { None } else { Some(Vec::new()) };
                }
                if said.is_empty() { None } else { Some(said.clone()) }
            })
        });
        let peers = connected(address);
        let told = get(&peers, &block(1).0, Duration::from_millis(400));
        if ends {
            // Half a frame is waited for, up to the deadline.
            assert!(matches!(told, Err(Failure::Disconnected | Failure::Late)), "{told:?}");
        } else {
            assert_eq!(told, Err(Failure::Disconnected));
        }
        assert_eq!(counted(&peers).hits, 0);
    }
}

#[test]
fn answers_of_another_kind_or_with_another_number_are_no_answers() {
    for which in 0..3 {
        let address = liar(move || {
            Box::new(move |request| {
                let (_, bytes) = block(1);
                each(request, |id| match which {
                    0 => encoded(&Answer::Stored { id, was_known: true }),
                    1 => encoded(&Answer::Stat { id, text: "x" }),
                    _ => encoded(&Answer::Block { id: id ^ 0x4000_0000, bytes: &bytes }),
                })
            })
        });
        let peers = connected(address);
        assert_eq!(get(&peers, &block(1).0, LONG), Err(Failure::Disconnected), "{which}");
    }
}

#[test]
fn a_block_that_comes_too_late_is_counted_by_its_bytes() {
    let address = liar(|| {
        let (_, bytes) = block(1);
        Box::new(move |request| {
            if matches!(request, Request::Get { .. }) {
                thread::sleep(Duration::from_millis(150));
            }
            each(request, |id| encoded(&Answer::Block { id, bytes: &bytes }))
        })
    });
    let peers = connected(address);
    assert_eq!(get(&peers, &block(1).0, Duration::from_millis(30)), Err(Failure::Late));
    eventually("its bytes are counted", || counted(&peers).late_bytes == 4096 + 9);
    assert_eq!(get(&peers, &block(1).0, LONG), Ok(block(1).1));
}

#[test]
fn a_server_at_one_byte_in_a_while_does_not_keep_anybody_waiting() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || drip(&listener));
    let peers = connected(address);
    assert_eq!(get(&peers, &block(1).0, Duration::from_millis(50)), Err(Failure::Late));
    // No frame comes, so the connection is given up.
    eventually("it is given up", || counted(&peers).broken >= 1);
}

/// Welcomes, answers the first ping, and then gives a byte every ten milliseconds of a block.
fn drip(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        thread::spawn(move || {
            let _ = stream.write_all(&welcome());
            let (_, bytes) = block(1);
            for byte in encoded(&Answer::Block { id: 1, bytes: &bytes }) {
                thread::sleep(Duration::from_millis(10));
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
            }
        });
    }
}

#[test]
fn a_batch_is_no_larger_than_the_server_allows() {
    let is_too_large = Arc::new(AtomicBool::new(false));
    let address = {
        let is_too_large = Arc::clone(&is_too_large);
        liar(move || {
            let is_too_large = Arc::clone(&is_too_large);
            let (_, bytes) = block(1);
            Box::new(move |request| {
                if let Request::Get { hashes, .. } = request {
                    is_too_large.fetch_or(hashes.len() > 16, Ordering::SeqCst);
                }
                each(request, |id| encoded(&Answer::Block { id, bytes: &bytes }))
            })
        })
    };
    let peers = connected(address);
    let (tell, told) = std::sync::mpsc::channel();
    let (mut asked, mut full) = (0, 0);
    while asked < 500 {
        let tell = tell.clone();
        let done = move |got: Result<&[u8], Failure>| tell.send(got.is_ok()).unwrap();
        match peers.get(&block(1).0, onesweep_peer::wire::Priority::Waiting, LONG, done) {
            Ok(_) => asked += 1,
            Err(why) => {
                assert_eq!(why, Refused::Full);
                full += 1;
                thread::yield_now();
            }
        }
    }
    drop(tell);
    assert_eq!(told.iter().filter(|is_right| *is_right).count(), 500);
    assert!(!is_too_large.load(Ordering::SeqCst));
    assert_eq!(counted(&peers).full, full);
}

/// A connection that went with the old network isn't waited for, however long a ping may take.
#[test]
fn after_a_change_of_the_network_a_silent_connection_is_made_anew() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut streams = listener.incoming().map(Result::unwrap);
        let mut silent = streams.next().unwrap();
        silent.write_all(&welcome()).unwrap();
        for stream in streams {
            thread::spawn(move || converse(stream, Box::new(|_| None)));
        }
        drop(silent);
    });
    let for_ever = Duration::from_secs(3600);
    let settings = Settings { ping: for_ever, quiet: for_ever, silence: for_ever, ..hasty() };
    let peers = Peers::connect([address.to_string()], settings).unwrap();
    assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
    peers.network_changed();
    eventually("it connects anew", || counted(&peers).connections == 2);
}
