//! One Redis server.

use crate::{
    processes::RedisServer,
    support::{Together, block, domain_name, eventually},
};

fn address(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}?timeout=2s", server.port)
}

fn key(n: u32) -> String {
    format!("onesweep:1:{}:{}", domain_name(), block(n).0)
}

fn start(options: &[&str]) -> (tempfile::TempDir, RedisServer) {
    let dir = tempfile::tempdir().unwrap();
    let server = RedisServer::start(dir.path(), options);
    (dir, server)
}

#[test]
fn blocks_outlive_the_server_of_blocks_and_are_shared_by_two() {
    let (_dir, redis) = start(&[]);
    let first = Together::above(&address(&redis));
    first.fill(0..100);
    assert_eq!(redis.keys(), 100);
    let second = Together::above(&address(&redis));
    assert_eq!(second.there(0..110), (0..100).collect::<Vec<_>>());
    let hashes: Vec<_> = (90..110).map(|n| block(n).0).collect();
    assert_eq!(second.peers.has_and_wait(&hashes).unwrap(), (90..110).map(|n| n < 100).collect::<Vec<_>>());
    // What the other one has written is known, and not written twice.
    let (hash, bytes) = block(5);
    second.peers.put_and_wait(&hash, &bytes).unwrap();
    eventually("it is written", || second.figure("store_engine_written") == 1);
    drop(first);
    second.fill(100..110);
    assert_eq!((redis.keys(), second.there(0..110).len()), (110, 110));
}

#[test]
fn bytes_that_somebody_has_planted_are_refused_and_removed() {
    let (_dir, redis) = start(&[]);
    let together = Together::above(&address(&redis));
    together.fill(0..4);
    let mut plant = redis.connect();
    let set = |key: &str, value: &[u8]| {
        ::redis::cmd("DEL").arg(key).exec(&mut redis.connect()).unwrap();
        ::redis::cmd("SET").arg(key).arg(value).exec(&mut redis.connect()).unwrap();
    };
    set(&key(0), &block(1).1);
    set(&key(1), &vec![1; 20 << 20]);
    ::redis::cmd("DEL").arg(key(2)).exec(&mut plant).unwrap();
    ::redis::cmd("RPUSH").arg(key(2)).arg("a list").exec(&mut plant).unwrap();
    eventually("all three are refused", || {
        let there = together.there(0..4);
        assert!(there.iter().all(|n| *n == 3), "{there:?}");
        together.figure("store_engine_wrong") == 3
    });
    eventually("and removed", || redis.keys() == 1);
    eventually("it is asked again", || together.figure("store_engine_shut") == 0 || together.there(3..4).len() == 1);
    together.fill(0..3);
    assert_eq!(together.there(0..4), [0, 1, 2, 3]);
}

#[test]
fn a_redis_that_is_stopped_killed_and_started_again_only_fails_to_help() {
    let (dir, mut redis) = start(&[]);
    let address = address(&redis);
    let together = Together::above(&address);
    let with_memory = Together::with(&address, 64 << 20, &|_| None);
    together.fill(0..50);
    with_memory.fill(100..120);
    redis.process.signal("-STOP");
    assert_eq!(together.there(0..50), [0; 0]);
    assert_eq!(with_memory.there(90..120), (100..120).collect::<Vec<_>>(), "its memory serves on");
    // And takes what is put.
    let (hash, bytes) = block(200);
    assert_eq!(with_memory.peers.put_and_wait(&hash, &bytes), Ok(false));
    assert_eq!(with_memory.there(200..201), [200]);
    let hashes: Vec<_> = (0..50).map(|n| block(n).0).collect();
    assert_eq!(together.peers.has_and_wait(&hashes).unwrap(), [false; 50]);
    redis.process.signal("-CONT");
    eventually("it is asked again", || together.there(0..50).len() == 50);

    redis.process.kill();
    assert_eq!(together.there(0..50), [0; 0]);
    assert_eq!(with_memory.there(100..120).len(), 20);
    // It comes back empty.
    let mut again = None;
    eventually("its port is free", || {
        again = RedisServer::try_on(redis.port, dir.path(), &[]);
        again.is_some()
    });
    eventually("it takes blocks again", || {
        let (hash, bytes) = block(300);
        together.peers.put_and_wait(&hash, &bytes).is_ok() && together.there(300..301).len() == 1
    });
    assert_eq!(together.there(0..50), [0; 0]);
    assert!(together.figure("store_engine_failures") > 0 && together.figure("store_engine_skipped") > 0);
}

#[test]
fn a_server_begins_without_its_engine_and_uses_it_once_it_is_there() {
    let (dir, mut redis) = start(&[]);
    redis.process.kill();
    let together = Together::above(&address(&redis));
    assert_eq!(together.there(0..20), [0; 0]);
    let mut again = None;
    eventually("its port is free", || {
        again = RedisServer::try_on(redis.port, dir.path(), &[]);
        again.is_some()
    });
    eventually("it takes blocks", || {
        let (hash, bytes) = block(1);
        together.peers.put_and_wait(&hash, &bytes).is_ok() && together.there(1..2).len() == 1
    });
}

#[test]
fn a_password_comes_from_the_environment_and_a_wrong_one_only_fails_to_help() {
    // The test's own look at the server would need it too, so it is set after the start.
    let (_dir, redis) = start(&[]);
    ::redis::cmd("CONFIG").arg(&["SET", "requirepass", "rosebud"]).exec(&mut redis.connect()).unwrap();
    let right =
        Together::with(&address(&redis), 0, &|name| (name == "ONESWEEP_REDIS_PASSWORD").then(|| "rosebud".to_owned()));
    right.fill(0..10);
    assert_eq!(right.there(0..10).len(), 10);
    for wrong in [None, Some("wrong")] {
        let wrong = Together::with(&address(&redis), 0, &|name| {
            wrong.filter(|_| name == "ONESWEEP_REDIS_PASSWORD").map(str::to_owned)
        });
        assert_eq!(wrong.there(0..10), [0; 0]);
    }
}

#[test]
fn a_full_redis_drops_what_is_oldest_or_takes_no_more() {
    for (policy, takes_more) in [("allkeys-lru", true), ("noeviction", false)] {
        let (_dir, redis) = start(&["--maxmemory", "8mb", "--maxmemory-policy", policy]);
        let together = Together::with(&address(&redis), 1 << 20, &|_| None);
        for n in 0..3000 {
            let (hash, bytes) = block(n);
            assert_eq!(together.peers.put_and_wait(&hash, &bytes), Ok(false), "memory takes it");
        }
        eventually("nothing waits", || together.figure("store_engine_waiting_bytes") == 0);
        let lost = together.figure("store_engine_unwritten") + together.figure("store_engine_skipped");
        assert_eq!(lost == 0, takes_more, "{policy}: {lost}");
        // Which ones are there is its own affair.
        eventually("it gives what it has", || !together.there(0..2700).is_empty());
        assert!(redis.keys() < 3000, "{policy}: {}", redis.keys());
    }
}

#[test]
fn what_is_not_read_for_long_goes_by_its_time() {
    let (_dir, redis) = start(&[]);
    let together = Together::above(&format!("{}&ttl=1d", address(&redis)));
    together.fill(0..2);
    let ttl = |n| ::redis::cmd("PTTL").arg(key(n)).query::<i64>(&mut redis.connect()).unwrap();
    assert!((86_000_000..=86_400_000).contains(&ttl(0)), "{}", ttl(0));
    ::redis::cmd("PEXPIRE").arg(key(0)).arg(50_000_000).exec(&mut redis.connect()).unwrap();
    assert_eq!(together.there(0..1), [0]);
    assert!(ttl(0) > 86_000_000, "it was read, and stays as long again: {}", ttl(0));
}
