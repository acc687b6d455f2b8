//! What is known of peers: of single servers, and of sets of them.
//!
//! A read of several blocks can be one request to several servers together. Of sixteen there are 65,519 such sets, so only those that
//! were asked lately are kept.

use std::collections::HashMap;

use super::{events::PeerId, latency::Micros, peer::Peer};

/// So many sets are kept, of a few KB each.
const SETS_MOST: usize = 128;

/// Peers, by who they are.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Each with when it was used last.
    peers: HashMap<PeerId, (u64, Peer)>,
    uses: u64,
}

impl Known {
    /// A peer of which something is known.
    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(&id).map(|(_, peer)| peer)
    }

    /// A peer, known or not. A set whose delays aren't known begins as the slowest of its servers is, since that one has to answer, too.
    pub(super) fn entry(&mut self, id: PeerId) -> &mut Peer {
        self.uses += 1;
        let slowest = if is_set(id) && !self.get(id).is_some_and(Peer::has_samples) {
            self.make_room_for(id);
            self.slowest_in(id).map(Peer::delays)
        } else {
            None
        };
        let (used, peer) = self.peers.entry(id).or_default();
        *used = self.uses;
        if let Some(slowest) = slowest {
            peer.begin_as(slowest);
        }
        peer
    }

    /// The network is another one.
    pub(super) fn begin_anew(&mut self, now: Micros) {
        self.peers.values_mut().for_each(|(_, peer)| peer.begin_anew(now));
    }

    /// Of the servers of a set of which something is known.
    fn slowest_in(&self, set: PeerId) -> Option<&Peer> {
        let members = self.peers.iter().filter(|(id, _)| !is_set(**id) && id.0 & set.0 != 0).map(|(_, (_, peer))| peer);
        members.filter(|peer| peer.has_samples()).max_by_key(|peer| peer.needs(0))
    }

    /// Forgets the set that was used the longest ago, where a new one would be one too many.
    fn make_room_for(&mut self, new: PeerId) {
        let sets = || self.peers.iter().filter(|(id, _)| is_set(**id));
        if self.peers.contains_key(&new) || sets().count() < SETS_MOST {
            return;
        }
        let oldest = sets().min_by_key(|(_, (used, _))| *used).map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.peers.remove(&oldest);
        }
    }
}

/// Whether it is more than one server.
fn is_set(id: PeerId) -> bool {
    id.0.count_ones() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    /// However many sets of sixteen servers are asked: the servers themselves are all known, and the sets of late.
    #[test]
    fn sets_that_were_not_asked_for_long_are_forgotten() {
        let mut known = Known::default();
        for server in 0..16 {
            known.entry(PeerId(1 << server)).answered(BLOCK, 500);
        }
        let often = PeerId(0b11);
        known.entry(often).answered(BLOCK, 700);
        for set in 1..=u16::MAX {
            known.entry(PeerId(set)).answered(BLOCK, 600);
            known.entry(often);
            assert!(known.peers.len() <= 16 + SETS_MOST, "{set}: {}", known.peers.len());
        }
        for kept in (0..16).map(|server| 1 << server).chain([often.0]).chain(u16::MAX - SETS_MOST as u16 + 2..=u16::MAX)
        {
            assert!(known.get(PeerId(kept)).is_some(), "{kept}");
        }
    }

    #[test]
    fn a_new_set_is_as_slow_as_the_slowest_of_its_servers() {
        let mut known = Known::default();
        for (server, took) in [(0b1, 400), (0b10, 60_000), (0b1000, 90_000)] {
            (0..20).for_each(|_| known.entry(PeerId(server)).answered(BLOCK, took));
        }
        let needs = |known: &mut Known, set| known.entry(PeerId(set)).needs(BLOCK);
        let of = [0b1, 0b10].map(|server| needs(&mut known, server));
        // Of the third nothing is known.
        assert_eq!([0b11, 0b111, 0b101].map(|set| needs(&mut known, set)), [of[1], of[1], of[0]]);
        // From then on it is what it is, and its servers are what they are.
        (0..40).for_each(|_| known.entry(PeerId(0b11)).answered(BLOCK, 2000));
        assert!((2000..2300).contains(&needs(&mut known, 0b11)));
        assert_eq!([0b1, 0b10].map(|server| needs(&mut known, server)), of);
        // By another network all begin anew, and sets with their servers.
        known.begin_anew(0);
        assert_eq!([0b1, 0b10, 0b11].map(|id| needs(&mut known, id)), [Peer::default().needs(BLOCK); 3]);
        (0..20).for_each(|_| known.entry(PeerId(0b10)).answered(BLOCK, 3000));
        assert_eq!(needs(&mut known, 0b11), needs(&mut known, 0b10));
    }

    /// That a set has failed isn't what its servers took.
    #[test]
    fn a_set_that_is_left_alone_stays_so_when_it_begins_as_its_servers_are() {
        let mut known = Known::default();
        known.entry(PeerId(0b11)).breaker.lied(0);
        known.entry(PeerId(0b10)).answered(BLOCK, 400);
        assert!(!known.entry(PeerId(0b11)).breaker.allows(1));
        assert_eq!(known.entry(PeerId(0b11)).needs(BLOCK), known.entry(PeerId(0b10)).needs(BLOCK));
    }
}
