//! What is known of a peer.

use super::{
    breaker::Breaker,
    latency::{Latency, Micros},
    policy,
};

/// Reads of more bytes have a distribution of their own: over a slow link it is another one.
const SMALL: u64 = 16 << 10;
/// Fewer samples of large reads say nothing.
const SAMPLES_LEAST: u32 = 4;
/// What most small reads are of.
const BLOCK: u64 = 4096;

#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) breaker: Breaker,
    round_trip: Option<Micros>,
    small: Latency,
    large: Latency,
}

impl Peer {
    /// It answered something that is no block.
    pub(super) fn seed(&mut self, round_trip: Micros) {
        self.round_trip = Some(round_trip);
        self.small.answered(round_trip);
    }

    pub(super) fn latency_of(&self, bytes: u64) -> &Latency {
        if bytes > SMALL { &self.large } else { &self.small }
    }

    pub(super) fn latency(&mut self, bytes: u64) -> &mut Latency {
        if bytes > SMALL { &mut self.large } else { &mut self.small }
    }

    /// A request of so many bytes was given up after so long.
    pub(super) fn given_up(&mut self, now: Micros, bytes: u64, waited: Micros) {
        let latency = self.latency_of(bytes);
        // One that answers small reads isn't silent because the link takes long for a large one.
        let is_silent = policy::is_silent(latency, waited) && (latency.has_answers() || !self.small.has_answers());
        self.breaker.given_up(now, is_silent);
        self.latency(bytes).given_up(waited);
    }

    /// How long it seems to need for so many bytes.
    pub(super) fn needs(&self, bytes: u64) -> Micros {
        let small = policy::time_of_peer(&self.small);
        match self.round_trip {
            // As if each block took the link as long as a single one does.
            Some(round_trip) if bytes > SMALL && self.large.samples() < SAMPLES_LEAST => {
                // Buckets tell their end, which is up to an eighth more.
                let block = (small - small.div_ceil(8)).saturating_sub(round_trip);
                round_trip + block * (bytes / BLOCK)
            }
            _ => policy::time_of_peer(self.latency_of(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 128 << 10;

    /// Before the first large read, what the link takes for a block tells what it takes for many.
    #[test]
    fn what_a_large_read_needs_is_guessed_from_small_ones_and_then_known() {
        let mut peer = Peer::default();
        peer.seed(300);
        assert_eq!(peer.needs(LARGE), 300);
        for _ in 0..100 {
            peer.latency(4096).answered(3600);
        }
        assert!((3600..4200).contains(&peer.needs(4096)), "{}", peer.needs(4096));
        assert!((90_000..120_000).contains(&peer.needs(LARGE)), "{}", peer.needs(LARGE));
        for _ in 0..SAMPLES_LEAST {
            peer.latency(LARGE).answered(9000);
        }
        assert!((9000..10_200).contains(&peer.needs(LARGE)), "{}", peer.needs(LARGE));
        assert!((3600..4200).contains(&peer.needs(4096)), "{}", peer.needs(4096));
    }
}
