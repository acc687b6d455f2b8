//! Reads of 4 KiB from a server's memory by the client library, over the loopback, many in flight.
//!
//! `cargo bench -p onesweep-peer [-- BLOCKS ROUNDS]`. The client and the server have a thread each. Beside each round stand, made in
//! the same seconds, what the machine can do: bytes over a socket of the loopback in the same portions, words over it back
//! and forth, and a copy in memory. Processor time is that of each thread, so that other work on the machine shows as the
//! difference to the time of the clock.

use std::{
    fs,
    hint::black_box,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_peer::{
    client::{Peers, Settings},
    id::{Hash, TrustDomain},
    serve::{self, Server},
    store::{BlockStore, Memory},
    wire::Priority,
};

/// Blocks that the server has: 64 MiB, more than caches of processors hold.
const BLOCKS: u32 = 16_384;
const BLOCK_BYTES: usize = 4096;
/// Requests in flight.
const IN_FLIGHT: u64 = 256;
const LONG: Duration = Duration::from_secs(60);

fn main() {
    // What cargo passes is no number.
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let (reads, rounds): (u64, u64) = (numbers.next().unwrap_or(300_000), numbers.next().unwrap_or(5));
    let domain = TrustDomain::generate().expect("a key");
    let store = Arc::new(Memory::new(512 << 20));
    let hashes: Arc<Vec<Hash>> = Arc::new((0..BLOCKS).map(|n| put(&domain, store.as_ref(), n)).collect());
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback");
    let server = Server::start(listener, store, serve::Settings::plain(domain.clone())).expect("a server");
    let peers = Peers::connect([server.address().to_string()], Settings::plain(domain)).expect("a client");
    assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
    let peers = Arc::new(peers);
    println!(
        "reads/s  client-cpu-us/read  server-cpu-us/read  | loopback-MB/s  ping-pong-us  memcpy-GB/s  | one-at-a-time-us"
    );
    for _ in 0..rounds {
        let before = (thread_seconds("peer-talk"), thread_seconds("peer-client"));
        let seconds = run(&peers, &hashes, reads);
        let client = (thread_seconds("peer-talk") - before.0) * 1e6 / reads as f64;
        let server = (thread_seconds("peer-client") - before.1) * 1e6 / reads as f64;
        let single = one_at_a_time(&peers, &hashes, 5000);
        let (stream, ping, copy) = (stream_rate(), ping_pong(), copy_rate());
        println!(
            "{:>7.0}  {client:>18.2}  {server:>18.2}  | {:>13.0}  {:>12.1}  {:>11.1}  | {:>16.1}",
            reads as f64 / seconds,
            stream / 1e6,
            ping * 1e6,
            copy / 1e9,
            single * 1e6
        );
    }
}

fn put(domain: &TrustDomain, store: &Memory, n: u32) -> Hash {
    let mut block = vec![0_u8; BLOCK_BYTES];
    block.chunks_mut(4).enumerate().for_each(|(at, word)| {
        word.copy_from_slice(&n.wrapping_mul(2_654_435_761).wrapping_add(at as u32).to_le_bytes());
    });
    let hash = domain.hash(&block);
    store.put(&hash, &block).expect("memory");
    hash
}

/// What several requests share: each answer asks for the next block.
struct Run {
    peers: Arc<Peers>,
    hashes: Arc<Vec<Hash>>,
    asked: AtomicU64,
    answered: AtomicU64,
    reads: u64,
    done: mpsc::Sender<()>,
}

fn next(run: &Arc<Run>) {
    let n = run.asked.fetch_add(1, Ordering::Relaxed);
    if n >= run.reads {
        return;
    }
    // In an order that caches don't foresee.
    let hash = run.hashes[(n.wrapping_mul(7919) % run.hashes.len() as u64) as usize];
    let again = Arc::clone(run);
    let asked = run.peers.get(&hash, Priority::Waiting, LONG, move |got| {
        black_box(got.expect("a block"));
        if again.answered.fetch_add(1, Ordering::Relaxed) + 1 == again.reads {
            again.done.send(()).expect("somebody waits");
        }
        next(&again);
    });
    asked.expect("room for a request");
}

fn run(peers: &Arc<Peers>, hashes: &Arc<Vec<Hash>>, reads: u64) -> f64 {
    let (done, is_done) = mpsc::channel();
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = Arc::new(Run { peers: Arc::clone(peers), hashes: Arc::clone(hashes), asked, answered, reads, done });
    let began = Instant::now();
    (0..IN_FLIGHT).for_each(|_| next(&run));
    is_done.recv().expect("an end");
    began.elapsed().as_secs_f64()
}

/// Seconds that one read takes when nothing else is in flight; the median.
fn one_at_a_time(peers: &Peers, hashes: &[Hash], reads: usize) -> f64 {
    let mut seconds: Vec<f64> = (0..reads)
        .map(|n| {
            let began = Instant::now();
            black_box(peers.get_and_wait(&hashes[n * 131 % hashes.len()]).expect("a block"));
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[reads / 2]
}

/// Seconds of processor time of this process's threads of a name.
fn thread_seconds(name: &str) -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("threads");
    let seconds = |task: fs::DirEntry| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        (comm.trim() == name).then(|| schedstat.split(' ').next()?.parse::<f64>().ok()).flatten()
    };
    tasks.filter_map(|task| seconds(task.ok()?)).sum::<f64>() / 1e9
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback");
    let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (other, _) = listener.accept().expect("a connection");
    one.set_nodelay(true).expect("an option");
    other.set_nodelay(true).expect("an option");
    (one, other)
}

/// Bytes a second over a socket, written 256 KiB at a time.
fn stream_rate() -> f64 {
    const TOTAL: usize = 512 << 20;
    let (mut one, mut other) = pair();
    let writer = thread::spawn(move || {
        let bytes = vec![1; 256 << 10];
        (0..TOTAL / bytes.len()).for_each(|_| one.write_all(&bytes).expect("a reader"));
    });
    let (began, mut bytes, mut read) = (Instant::now(), vec![0; 256 << 10], 0);
    while read < TOTAL {
        read += other.read(&mut bytes).expect("a writer");
    }
    writer.join().expect("the writer's end");
    TOTAL as f64 / began.elapsed().as_secs_f64()
}

/// Seconds of a byte there and a byte back; the median.
fn ping_pong() -> f64 {
    const ROUNDS: usize = 5000;
    let (mut one, mut other) = pair();
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while other.read_exact(&mut byte).is_ok() && other.write_all(&byte).is_ok() {}
    });
    let mut seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            one.write_all(&[1]).expect("an echo");
            one.read_exact(&mut [0]).expect("an echo");
            began.elapsed().as_secs_f64()
        })
        .collect();
    drop(one);
    echo.join().expect("the echo's end");
    seconds.sort_by(f64::total_cmp);
    seconds[ROUNDS / 2]
}

/// Bytes a second from memory to memory, in blocks.
fn copy_rate() -> f64 {
    const TOTAL: usize = 64 << 20;
    let (from, mut to) = (vec![1_u8; TOTAL], vec![0_u8; TOTAL]);
    let began = Instant::now();
    for _ in 0..8 {
        for (from, to) in from.chunks(BLOCK_BYTES).zip(to.chunks_mut(BLOCK_BYTES)) {
            to.copy_from_slice(black_box(from));
        }
        black_box(&to);
    }
    8.0 * TOTAL as f64 / began.elapsed().as_secs_f64()
}
