//! Every schedule of delays, errors and lies on both sides.

use onesweep_peer::race::{Micros, Policy, Race};
use proptest::prelude::*;

use crate::simulation::{BLOCK, End, Planned, Reply, Simulation, Told};

const POLICIES: [Policy; 4] = [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst, Policy::QuietDisk];

/// How long a peer may take where the disk has failed.
const RESCUE: Micros = 2_000_000;

fn time() -> impl Strategy<Value = Micros> {
    prop_oneof![1..50_u64, 50..2000_u64, 2000..20_000_u64, 20_000..400_000_u64]
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        6 => time().prop_map(Reply::Truth),
        1 => time().prop_map(Reply::Lie),
        1 => time().prop_map(Reply::Absent),
        1 => time().prop_map(Reply::Error),
        1 => Just(Reply::Never),
    ]
}

fn planned() -> impl Strategy<Value = Planned> {
    let disk = (time(), prop::bool::weighted(0.05));
    let flags = (prop::bool::weighted(0.8), prop::bool::weighted(0.3), prop_oneof![Just(BLOCK), Just(32 * BLOCK)]);
    let own = (prop::option::weighted(0.2, prop::sample::select(&POLICIES[..])), prop::bool::weighted(0.05));
    (prop_oneof![Just(0), time()], disk, prop::collection::vec(reply(), 0..=4), flags, own).prop_map(
        |(pause, (service, disk_fails), replies, flags, (policy, on_another_network))| {
            let (checkable, deaf, bytes) = flags;
            Planned { pause, service, bytes, disk_fails, checkable, replies, deaf, policy, on_another_network }
        },
    )
}

fn plans() -> impl Strategy<Value = Vec<Planned>> {
    prop::collection::vec(planned(), 1..60)
}

/// What holds for every schedule: each read ends once, nothing is left, and the disk's failures are mended.
fn check(plan: &[Planned], race: &Race, told: &[Told]) {
    assert!(race.is_idle(), "{race:?}");
    assert_eq!(told.len(), plan.len());
    for (planned, told) in plan.iter().zip(told) {
        let (_, end) = told.end.expect("every read ends");
        let peer_has = planned.checkable && planned.replies.iter().any(|reply| matches!(reply, Reply::Truth(_)));
        if end == End::Failed {
            // A peer that answers too late doesn't count.
            let in_time = |reply: &Reply| matches!(reply, Reply::Truth(after) if *after < 2_000_000);
            assert!(!(peer_has && planned.replies.iter().any(in_time)), "{planned:?}");
        }
    }
}

/// How long each read may take. The device serves `lanes` reads at the same time, and as long as a read waits for it, it is busy
/// with what was asked before: so it waits for that work, shared by the lanes, at most. That is what it would wait for by the
/// local disk alone, and the rest of one abandoned read in each lane: by all lanes together, no longer than the longest of them.
///
/// Where the peer is asked first, the read comes to the disk by its deadline, behind those that were asked before that.
fn check_times(plan: &[Planned], told: &[Told], lanes: usize) {
    for (number, (planned, own)) in plan.iter().zip(told).enumerate() {
        let (at, _) = own.end.expect("every read ends");
        let due = own.asked + own.deadline;
        let overtakes = |later: &(&Planned, &Told)| own.deadline > 0 && later.1.asked <= due;
        let later: u64 =
            plan.iter().zip(told).skip(number + 1).take_while(overtakes).map(|(planned, _)| planned.service).sum();
        let bound = due + (own.ahead + later).div_ceil(lanes as u64) + planned.service;
        // What the disk can't read is asked of each peer in turn.
        let rescue = if planned.disk_fails { RESCUE * planned.replies.len() as u64 } else { 0 };
        assert!(at <= bound + rescue, "read {number}, asked at {}, took until {at}, not {bound} + {rescue}", own.asked);
    }
}

proptest! {
    /// Readers that don't wait for each other, whatever the policy and the device: the right bytes, once, nothing is left, and
    /// however many reads are under way, each is as quick as by the local disk, but for what was abandoned and the deadline.
    #[test]
    fn no_read_takes_longer_than_by_the_local_disk(plan in plans(), policy in 0..4_usize, lanes in 1..=8_usize) {
        let (race, told) = Simulation::new(POLICIES[policy], lanes, &plan, false).run();
        check(&plan, &race, &told);
        check_times(&plan, &told, lanes);
    }

    /// One reader: nobody comes between, so the deadline alone is on top.
    #[test]
    fn no_single_reader_waits_longer_than_by_the_local_disk(plan in plans(), policy in 0..4_usize, lanes in 1..=8_usize) {
        let (race, told) = Simulation::new(POLICIES[policy], lanes, &plan, true).run();
        check(&plan, &race, &told);
        check_times(&plan, &told, lanes);
    }
}
