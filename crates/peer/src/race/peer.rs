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
/// Times of large reads are kept as of one of so many bytes: what the link takes beyond a round trip grows with them. Kept as they are,
/// answers to reads of 32 KiB would make those of 512 KiB look as quick.
const LARGE: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) breaker: Breaker,
    delays: Delays,
}

/// How long it takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Delays {
    round_trip: Option<Micros>,
    small: Latency,
    large: Latency,
}

impl Peer {
    /// It answered something that is no block.
    pub(super) fn seed(&mut self, round_trip: Micros) {
        self.delays.round_trip = Some(round_trip);
        self.delays.small.answered(round_trip);
    }

    /// Whether anything was learnt of how long it takes.
    pub(super) fn has_samples(&self) -> bool {
        self.delays.round_trip.is_some() || self.delays.small.samples() + self.delays.large.samples() > 0
    }

    /// What was learnt of that.
    pub(super) fn delays(&self) -> Delays {
        self.delays.clone()
    }

    /// It is taken to be as quick as another one.
    pub(super) fn begin_as(&mut self, delays: Delays) {
        self.delays = delays;
    }

    /// The network is another one: it is tried at once, and how long it took before says nothing.
    pub(super) fn begin_anew(&mut self, now: Micros) {
        self.breaker.renew(now);
        self.delays = Delays::default();
    }

    /// It answered so many bytes after so long.
    pub(super) fn answered(&mut self, bytes: u64, took: Micros) {
        let sample = self.sample(bytes, took);
        self.latency(bytes).answered(sample);
    }

    /// It failed, or nobody waited any longer.
    pub(super) fn unanswered(&mut self, bytes: u64, waited: Micros) {
        let sample = self.sample(bytes, waited);
        self.latency(bytes).given_up(sample);
    }

    /// A request of so many bytes was given up after so long.
    pub(super) fn given_up(&mut self, now: Micros, bytes: u64, waited: Micros) {
        let has_answers = self.latency_of(bytes).has_answers();
        // One that answers small reads isn't silent because the link takes long for a large one.
        let is_silent = policy::is_silent(self.usual_most(bytes), has_answers, waited)
            && (has_answers || !self.delays.small.has_answers());
        self.breaker.given_up(now, is_silent);
        self.unanswered(bytes, waited);
    }

    /// How long it seems to need for so many bytes.
    pub(super) fn needs(&self, bytes: u64) -> Micros {
        let known = self.time(bytes, policy::time_of_peer(self.latency_of(bytes)));
        match self.delays.round_trip {
            Some(_) if bytes > SMALL && self.delays.large.samples() < SAMPLES_LEAST => self.guess(bytes),
            // That nobody has waited for long says little.
            Some(_) if bytes > SMALL && self.delays.large.median().is_none() => known.max(self.guess(bytes)),
            _ => known,
        }
    }

    /// Nearly all answers to so many bytes come within it, where that is known.
    pub(super) fn usual_most(&self, bytes: u64) -> Option<Micros> {
        self.latency_of(bytes).quantile(0.95).map(|most| self.time(bytes, most))
    }

    /// As if each block took the link as long as a single one does.
    fn guess(&self, bytes: u64) -> Micros {
        let small = policy::time_of_peer(&self.delays.small);
        let round_trip = self.delays.round_trip.unwrap_or(0);
        // Buckets tell their end, which is up to an eighth more.
        let block = (small - small.div_ceil(8)).saturating_sub(round_trip);
        round_trip + block * (bytes / BLOCK)
    }

    fn latency_of(&self, bytes: u64) -> &Latency {
        if bytes > SMALL { &self.delays.large } else { &self.delays.small }
    }

    fn latency(&mut self, bytes: u64) -> &mut Latency {
        if bytes > SMALL { &mut self.delays.large } else { &mut self.delays.small }
    }

    /// What is kept of the time that a read took.
    fn sample(&self, bytes: u64, took: Micros) -> Micros {
        self.scaled(took, bytes, |beyond| beyond * LARGE / bytes)
    }

    /// The time of a read, from what is kept.
    fn time(&self, bytes: u64, sample: Micros) -> Micros {
        self.scaled(sample, bytes, |beyond| beyond * bytes / LARGE)
    }

    /// By the part beyond a round trip; small reads are what they are.
    fn scaled(&self, micros: Micros, bytes: u64, scale: impl Fn(Micros) -> Micros) -> Micros {
        if bytes <= SMALL {
            return micros;
        }
        let round_trip = self.delays.round_trip.unwrap_or(0).min(micros);
        round_trip + scale(micros - round_trip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPIED: u64 = 128 << 10;

    /// Before the first large read, what the link takes for a block tells what it takes for many.
    #[test]
    fn what_a_large_read_needs_is_guessed_from_small_ones_and_then_known() {
        let mut peer = Peer::default();
        peer.seed(300);
        assert_eq!(peer.needs(COPIED), 300);
        for _ in 0..100 {
            peer.answered(4096, 3600);
        }
        assert!((3600..4200).contains(&peer.needs(4096)), "{}", peer.needs(4096));
        assert!((90_000..120_000).contains(&peer.needs(COPIED)), "{}", peer.needs(COPIED));
        for _ in 0..SAMPLES_LEAST {
            peer.answered(COPIED, 9000);
        }
        assert!((9000..10_200).contains(&peer.needs(COPIED)), "{}", peer.needs(COPIED));
        assert!((3600..4200).contains(&peer.needs(4096)), "{}", peer.needs(4096));
    }

    /// A server that is quick enough for 32 KiB is not for half a megabyte, over a link of 10 Mbit/s.
    #[test]
    fn what_a_large_read_needs_grows_with_it() {
        let mut peer = Peer::default();
        peer.seed(300);
        for _ in 0..50 {
            peer.answered(32 << 10, 27_000);
        }
        for (bytes, expected) in [(32 << 10, 27_000), (128 << 10, 107_100), (512 << 10, 427_500)] {
            let needs = peer.needs(bytes);
            assert!((expected..expected * 9 / 8 + 1000).contains(&needs), "{bytes}: {needs}");
            let most = peer.usual_most(bytes).unwrap();
            assert!((expected..expected * 9 / 8 + 1000).contains(&most), "{bytes}: {most}");
        }
    }

    /// Requests that were taken back early, time and again, make no server look quicker than what its blocks take.
    #[test]
    fn what_nobody_waited_for_says_little() {
        let mut peer = Peer::default();
        peer.seed(300);
        for _ in 0..100 {
            peer.answered(4096, 3600);
            peer.unanswered(512 << 10, 7000);
        }
        let needs = peer.needs(512 << 10);
        assert!((380_000..480_000).contains(&needs), "{needs}");
    }
}
