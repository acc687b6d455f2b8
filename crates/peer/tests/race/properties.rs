//! Every schedule of delays, errors and lies on both sides.

use onesweep_peer::race::{Micros, Policy, Race};
use proptest::prelude::*;

use crate::simulation::{End, Planned, Reply, Simulation, Told};

const POLICIES: [Policy; 4] = [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst, Policy::QuietDisk];

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
    let cancel = prop::option::weighted(0.05, time());
    let flags = (prop::bool::weighted(0.8), prop::bool::weighted(0.3));
    (prop_oneof![Just(0), time()], disk, prop::collection::vec(reply(), 0..3), cancel, flags).prop_map(
        |(pause, (service, disk_fails), replies, cancel_after, (checkable, deaf))| Planned {
            pause,
            service,
            disk_fails,
            checkable,
            replies,
            cancel_after,
            deaf,
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

fn check_times(plan: &[Planned], told: &[Told]) {
    for (number, (planned, told)) in plan.iter().zip(told).enumerate() {
        let (at, end) = told.end.expect("every read ends");
        if !planned.disk_fails && end != End::Cancelled {
            assert!(at <= told.bound, "read {number}, asked at {}, took until {at}, not {}", told.asked, told.bound);
        }
    }
}

proptest! {
    /// Readers that don't wait for each other: however many reads are under way, each is as quick as by the local disk, but
    /// for the rest of one abandoned read.
    #[test]
    fn no_read_takes_longer_than_by_the_local_disk(plan in plans(), policy in 0..2_usize) {
        let (race, told) = Simulation::new(POLICIES[policy], 1, &plan, false).run();
        check(&plan, &race, &told);
        check_times(&plan, &told);
    }

    /// One reader, any policy: the deadline comes on top where the peer is asked first.
    #[test]
    fn no_single_reader_waits_longer_than_by_the_local_disk(plan in plans(), policy in 0..4_usize) {
        let (race, told) = Simulation::new(POLICIES[policy], 1, &plan, true).run();
        check(&plan, &race, &told);
        check_times(&plan, &told);
    }

    /// Whatever the policy and the device: the right bytes, once, and nothing is left.
    #[test]
    fn every_read_ends_once_with_the_right_bytes(plan in plans(), policy in 0..4_usize, lanes in 1..4_usize) {
        let (race, told) = Simulation::new(POLICIES[policy], lanes, &plan, false).run();
        check(&plan, &race, &told);
    }
}
