//! A cluster of three, of which one is stopped, and another killed.

use crate::{
    processes::Cluster,
    support::{Together, block, eventually},
};

const BLOCKS: u32 = 120;

#[test]
fn blocks_are_spread_and_a_node_that_is_stopped_or_killed_only_fails_to_help() {
    let mut cluster = Cluster::start();
    let address = cluster.address();
    let together = Together::above(&address);
    together.fill(0..BLOCKS);
    let shares: Vec<u64> = cluster.nodes.iter().map(|node| node.keys()).collect();
    assert_eq!(shares.iter().sum::<u64>(), u64::from(BLOCKS));
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    assert_eq!(together.there(0..BLOCKS).len(), BLOCKS as usize);

    // Stopped: it takes connections, and says nothing.
    cluster.nodes[1].process.signal("-STOP");
    let others = (shares[0] + shares[2]) as usize;
    let there = together.there(0..BLOCKS);
    assert_eq!(there.len(), others, "those of the others come, and no more");
    assert_eq!(together.figure("store_engine_shut"), 1);
    let hashes: Vec<_> = (0..BLOCKS).map(|n| block(n).0).collect();
    let has = together.peers.has_and_wait(&hashes).unwrap();
    assert_eq!(has.iter().filter(|is_there| **is_there).count(), others);
    // A server that begins now finds the slots by the nodes that are there.
    let begun_now = Together::above(&address);
    assert_eq!(begun_now.there(0..BLOCKS), there);
    for n in BLOCKS..BLOCKS + 60 {
        let (hash, bytes) = block(n);
        // What belongs to that node can't be kept, and who puts it is told.
        let _ = together.peers.put_and_wait(&hash, &bytes);
    }
    assert!(!together.there(BLOCKS..BLOCKS + 60).is_empty());
    cluster.nodes[1].process.signal("-CONT");
    eventually("all come again", || together.there(0..BLOCKS).len() == BLOCKS as usize);

    cluster.nodes[2].process.kill();
    let there = together.there(0..BLOCKS);
    // The others may refuse for a moment, while they agree on who is gone.
    assert!(there.len() <= (shares[0] + shares[1]) as usize);
    eventually("those of the others come", || together.there(0..BLOCKS).len() == (shares[0] + shares[1]) as usize);

    // One stopped and one killed: what is left is no cluster any more, and need not help. Nobody hangs.
    cluster.nodes[1].process.signal("-STOP");
    assert!(together.there(0..BLOCKS).len() <= shares[0] as usize);
    cluster.nodes[1].process.signal("-CONT");
    eventually("two of three are back", || together.there(0..BLOCKS).len() == (shares[0] + shares[1]) as usize);
}

#[test]
fn slots_that_move_are_followed() {
    let cluster = Cluster::start();
    let together = Together::above(&cluster.address());
    together.fill(0..BLOCKS);
    let before = cluster.nodes[0].keys();
    // A slot that has a block goes from the first node to the second, as it goes when a cluster grows.
    let (hash, _) = block((0..BLOCKS).find(|n| slot_of(&cluster, *n) <= 5460).expect("some block of the first node"));
    let key = format!("onesweep:1:{}:{hash}", crate::support::domain_name());
    let [from, to] = [&cluster.nodes[0], &cluster.nodes[1]];
    let slot: u16 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(&key).query(&mut from.connect()).unwrap();
    let id = |node: &crate::processes::RedisServer| {
        redis::cmd("CLUSTER").arg("MYID").query::<String>(&mut node.connect()).unwrap()
    };
    let set_slot = |node: &crate::processes::RedisServer, how: &str, id: &str| {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SETSLOT").arg(slot).arg(how).arg(id).exec(&mut node.connect()).unwrap();
    };
    set_slot(to, "IMPORTING", &id(from));
    set_slot(from, "MIGRATING", &id(to));
    let mut keys = redis::cmd("CLUSTER");
    let keys: Vec<String> = keys.arg("GETKEYSINSLOT").arg(slot).arg(100).query(&mut from.connect()).unwrap();
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(to.port).arg("").arg(0).arg(60_000).arg("KEYS").arg(&keys);
    migrate.exec(&mut from.connect()).unwrap();
    // Half way: the first node sends whoever asks to the second, for this once.
    assert_eq!(together.there(0..BLOCKS).len(), BLOCKS as usize);
    for node in [to, from] {
        set_slot(node, "NODE", &id(to));
    }
    assert_eq!(together.there(0..BLOCKS).len(), BLOCKS as usize);
    assert_eq!(from.keys(), before - keys.len() as u64);
}

fn slot_of(cluster: &Cluster, n: u32) -> u16 {
    let key = format!("onesweep:1:{}:{}", crate::support::domain_name(), block(n).0);
    redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut cluster.nodes[0].connect()).unwrap()
}
