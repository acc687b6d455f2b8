//! When each side is asked.

use super::latency::{Latency, Micros};

/// Who is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Both at once, unless the device mostly answers at once, or the peer would be the last in any case.
    Race,
    /// The local disk; the peer as well once it is likelier to win than not.
    LocalFirst,
    /// The peer; the local disk at once on any error, otherwise after the local median.
    RemoteFirst,
    /// The peer, so that a disk in standby isn't woken; the local disk at once on any error, otherwise after
    /// [`QUIET_DISK_DEADLINE`].
    QuietDisk,
}

/// How long a disk is left in peace while a peer was asked.
pub const QUIET_DISK_DEADLINE: Micros = 300_000;

/// How long a peer is taken to need of which nothing is known.
const UNKNOWN_PEER: Micros = 1000;
/// The deadline of `remote-first` while nothing is known of the local disk.
const UNKNOWN_DISK: Micros = 2000;
/// Fewer samples of the local disk say nothing.
const SAMPLES_LEAST: u32 = 8;
/// A device whose reads mostly take less seldom gains from a peer.
const FAST_DEVICE: Micros = 500;
/// One whose reads take less may gain as seldom, but one that takes more seeks.
const NEARLY_FAST_DEVICE: Micros = 2000;

/// How long a peer seems to need: the half of its answers come within it.
pub(super) fn time_of_peer(peer: &Latency) -> Micros {
    match (peer.median(), peer.longest()) {
        (Some(median), _) => median,
        // Fewer than half came at all: longer than anybody has waited.
        (None, Some(longest)) => longest * 2,
        (None, None) => UNKNOWN_PEER,
    }
}

/// How long the local disk is waited for before a peer is asked: until the peer is likelier to be the first from then on
/// than the disk, which [needs](time_of_peer) so long. `None` where that never happens.
///
/// While little is known of the disk, it is as long as the peer needs: then at worst twice the shorter time is waited.
pub(super) fn delay(local: &Latency, needs: Micros) -> Option<Micros> {
    if local.samples() < SAMPLES_LEAST {
        return Some(needs);
    }
    let mut steps = std::iter::once((0, 1.0)).chain(local.longer()).take_while(|(_, longer)| *longer > 0.0);
    // Both go on together: this is worked out for each read, while others wait.
    let (mut later, mut longer_then) = (local.longer().peekable(), 1.0);
    steps.find_map(|(after, longer)| {
        while let Some((_, share)) = later.next_if(|(end, _)| *end <= after + needs) {
            longer_then = share;
        }
        (longer_then / longer >= 0.5).then_some(after)
    })
}

/// After so long the local disk is unusually late, whatever the peer needs.
pub(super) fn tail(local: &Latency) -> Micros {
    local.quantile(0.99).or(local.longest()).unwrap_or(UNKNOWN_DISK)
}

/// How long a peer that was asked first is waited for.
pub(super) fn deadline(policy: Policy, local: &Latency) -> Micros {
    match policy {
        Policy::QuietDisk => QUIET_DISK_DEADLINE,
        // Buckets tell their end, which is up to an eighth more.
        _ => local.median().map_or(UNKNOWN_DISK, |end| end - end.div_ceil(8)),
    }
}

/// After so long the answer of a peer, of which most come within `most_of_peer`, is late, and a local read no longer waits for it.
pub(super) fn late(local: &Latency, most_of_peer: Option<Micros>) -> Micros {
    let expected = most_of_peer.map(|most| 2 * most);
    expected.or(local.median()).unwrap_or(UNKNOWN_DISK).clamp(UNKNOWN_PEER, 100_000)
}

/// Whether a peer that hasn't answered for so long should have, if it is as it was: most answers came within `most`.
pub(super) fn is_silent(most: Option<Micros>, has_answers: bool, waited: Micros) -> bool {
    match most {
        Some(most) => waited >= 2 * most,
        // One that answers now and then may be about to; one that never did isn't waited for.
        None => !has_answers && waited >= UNKNOWN_PEER,
    }
}

/// Whether the device is so quick that a peer seldom helps.
pub(super) fn is_fast(local: &Latency) -> bool {
    local.samples() >= SAMPLES_LEAST && local.median().is_some_and(|median| median < FAST_DEVICE)
}

/// The same of one that is a little slower, as on a busy machine, and still quicker than a peer that needs so long.
pub(super) fn is_nearly_fast(local: &Latency, needs: Micros) -> bool {
    let most = needs.min(NEARLY_FAST_DEVICE);
    local.samples() >= SAMPLES_LEAST && local.median().is_some_and(|median| median < most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(samples: impl IntoIterator<Item = Micros>) -> Latency {
        let mut latency = Latency::default();
        samples.into_iter().for_each(|micros| latency.answered(micros));
        latency
    }

    fn disk() -> Latency {
        latency((0..100).map(|turn| 4000 + turn * 83))
    }

    fn delay(local: &Latency, peer: &Latency) -> Option<Micros> {
        super::delay(local, time_of_peer(peer))
    }

    #[test]
    fn a_disk_that_seeks_is_raced_at_once() {
        assert_eq!(delay(&disk(), &latency([400; 50])), Some(0));
    }

    /// As it is told: the first time from which on a half of all reads takes longer than the peer needs.
    #[test]
    fn the_delay_is_the_first_one_that_is_right() {
        let mut numbers = 1_u64;
        let mut below = |most: u64| {
            numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (numbers >> 33) % most
        };
        let mut found = [0; 2];
        for _ in 0..2000 {
            let (scales, mut local) = ([1 + below(300), 1 + below(30_000)], Latency::default());
            for _ in 0..8 + below(60) {
                let scale = scales[below(2) as usize];
                let micros = below(scale);
                if below(5) == 0 { local.given_up(micros) } else { local.answered(micros) }
            }
            let needs = below(10_000);
            let mut steps = std::iter::once((0, 1.0)).chain(local.longer()).take_while(|(_, longer)| *longer > 0.0);
            let right = steps.find(|(after, longer)| local.share_longer(after + needs) / longer >= 0.5);
            assert_eq!(super::delay(&local, needs), right.map(|(after, _)| after), "{needs} {local:?}");
            found[usize::from(right.is_some())] += 1;
        }
        assert!(found.iter().all(|count| *count > 200), "{found:?}");
    }

    /// Most reads come from memory: it is enough to wait until it is plain that this one doesn't.
    #[test]
    fn hits_of_the_cache_are_waited_for() {
        let local = latency((0..200).map(|read| if read % 10 == 0 { 8000 } else { 20 }));
        let after = delay(&local, &latency([400; 50])).unwrap();
        assert!((20..30).contains(&after), "{after}");
    }

    #[test]
    fn a_device_quicker_than_the_peer_is_left_alone() {
        let local = latency((0..100).map(|read| 80 + read % 7));
        assert_eq!(delay(&local, &latency([400; 50])), None);
        assert!(is_fast(&local) && !is_fast(&disk()));
        let busy = latency((0..100).map(|read| 600 + read));
        assert!(!is_fast(&busy) && is_nearly_fast(&busy, 900));
        assert!(!is_nearly_fast(&busy, 400) && !is_nearly_fast(&disk(), 100_000));
    }

    /// A peer that is dead from the start has no answers, only requests that were given up when the disk had answered.
    #[test]
    fn a_dead_peer_is_not_taken_for_a_quick_one() {
        let mut dead = Latency::default();
        assert_eq!(delay(&disk(), &dead), Some(0), "the first is worth a try");
        for wait in 0..20 {
            dead.given_up(4000 + 300 * wait);
        }
        assert_eq!(delay(&disk(), &dead), None);
    }

    /// With answers alone the peer that lets nine of ten requests wait would be asked at once for ever.
    #[test]
    fn a_peer_that_seldom_answers_is_not_taken_for_a_quick_one() {
        let (mut all, answers_only) = (Latency::default(), latency([200; 10]));
        for round in 0..100 {
            if round % 10 == 0 { all.answered(200) } else { all.given_up(8000) }
        }
        assert_eq!(delay(&disk(), &answers_only), Some(0));
        assert_eq!(delay(&disk(), &all), None);
    }

    #[test]
    fn a_peer_that_becomes_slow_is_noticed() {
        let mut peer = latency([400; 500]);
        let mut reads = 0;
        while delay(&disk(), &peer) == Some(0) {
            peer.given_up(8000);
            reads += 1;
        }
        assert!((1..=300).contains(&reads), "{reads}");
    }

    #[test]
    fn deadlines_are_at_most_the_local_median() {
        for micros in [3, 50, 777, 8000, 123_456] {
            assert!(deadline(Policy::RemoteFirst, &latency([micros; 20])) <= micros, "{micros}");
        }
        assert_eq!(deadline(Policy::QuietDisk, &disk()), 300_000);
    }
}
