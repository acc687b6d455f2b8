//! Which server has a block: rendezvous hashing. Each server has a score for each block, and the highest wins; when one goes,
//! only its blocks go elsewhere. Pure.

use crate::id::Hash;

/// What stands for a server: made from its address as it was written, so all clients should write it alike.
pub(super) fn seed(address: &str) -> u64 {
    let hash = blake3::hash(address.as_bytes());
    Hash::from_bytes(*hash.as_bytes()).prefix()
}

/// A server's score for a block.
fn score(seed: u64, hash: &Hash) -> u64 {
    // The mixer of SplitMix64.
    let mut mixed = seed ^ hash.prefix();
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The best of the servers for a block.
pub(super) fn best<T>(servers: impl Iterator<Item = T>, seed: impl Fn(&T) -> u64, hash: &Hash) -> Option<T> {
    servers.max_by_key(|server| score(seed(server), hash))
}

/// Puts servers in the order in which they are the best for a block.
pub(super) fn sort<T>(servers: &mut [T], seed: impl Fn(&T) -> u64, hash: &Hash) {
    servers.sort_by_key(|server| std::cmp::Reverse(score(seed(server), hash)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes() -> impl Iterator<Item = Hash> {
        (0..10_000_u32).map(|n| Hash::from_bytes(*blake3::hash(&n.to_le_bytes()).as_bytes()))
    }

    #[test]
    fn each_server_has_its_share_and_when_one_goes_only_its_blocks_move() {
        let servers: Vec<u64> = ["a:1", "b:1", "c:1", "d:1"].map(seed).to_vec();
        let mut counts = [0; 4];
        for hash in hashes() {
            let before = best(servers.iter(), |server| **server, &hash).unwrap();
            counts[servers.iter().position(|server| server == before).unwrap()] += 1;
            let after = best(servers[1..].iter(), |server| **server, &hash).unwrap();
            assert!(before == &servers[0] || before == after);
        }
        assert!(counts.iter().all(|count| (2200..2800).contains(count)), "{counts:?}");
        assert_eq!(best(servers[..0].iter(), |server| **server, &hashes().next().unwrap()), None);
    }
}
