//! What is pushed through `peer serve --engine` comes back from another server above the same engine, and to those of the site alone.

use crate::{
    processes::{Cluster, RedisServer},
    s3,
    site::{BLOCKS, Serving, Site},
    support::{block, eventually},
};

/// What was pushed through one server comes from another one above the same engine, to those of the site alone.
fn what_is_pushed_is_in(engine: &str) {
    let site = Site::new();
    let first = Serving::start(&site, engine);
    assert_eq!(first.push(), (0, u64::from(BLOCKS)));
    eventually("all is written", || first.figure("store_engine_written") == u64::from(BLOCKS));
    drop(first);

    let second = Serving::start(&site, engine);
    let peers = second.peers();
    for n in 0..BLOCKS {
        let bytes = block(n).1;
        let hash = site.domain().hash(&bytes);
        assert!(peers.get_and_wait(&hash).as_ref() == Ok(&bytes), "{n}");
    }
    assert_eq!((second.figure("store_engine_hits"), second.figure("hits")), (u64::from(BLOCKS), u64::from(BLOCKS)));
    assert_eq!(second.push(), (u64::from(BLOCKS), 0));

    // Nobody without a certificate, nor with one of somebody else's authority.
    site.keys("others", &[]);
    site.keys("others", &["--add", "notebook", "--role", "client"]);
    for identity in [None, Some("others/notebook")] {
        let refused = second.try_ask(&["push", "--json"], identity, Some(&site.path("image")));
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{identity:?}");
    }
}

#[test]
fn blocks_that_were_pushed_come_from_a_redis_server() {
    let dir = tempfile::tempdir().unwrap();
    let redis = RedisServer::start(dir.path(), &[]);
    what_is_pushed_is_in(&format!("redis://127.0.0.1:{}?timeout=2s", redis.port));
    assert_eq!(redis.keys(), u64::from(BLOCKS));
}

#[test]
fn blocks_that_were_pushed_come_from_a_cluster() {
    let cluster = Cluster::start();
    what_is_pushed_is_in(&cluster.address());
    assert!(cluster.nodes.iter().all(|node| node.keys() > 0));
}

#[test]
fn blocks_that_were_pushed_come_from_s3() {
    let moto = s3::start();
    what_is_pushed_is_in(&s3::address(&moto, ""));
    assert_eq!(s3::objects(&moto), BLOCKS as usize);
}
