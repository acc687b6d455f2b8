//! What the race learns from what it sees.

use onesweep_peer::race::{Counts, Micros, Policy};

use crate::simulation::{BLOCK, End, Planned, Reply, Simulation, Told};

fn read(service: Micros, reply: Reply) -> Planned {
    let replies = vec![reply];
    let (disk_fails, checkable, deaf) = (false, true, false);
    Planned {
        pause: 100,
        service,
        bytes: BLOCK,
        disk_fails,
        checkable,
        replies,
        deaf,
        policy: None,
        on_another_network: false,
    }
}

/// A disk that seeks: 4 to 12 ms.
fn seek(number: usize) -> Micros {
    4000 + (number as u64 * 7919) % 8000
}

fn by_peer(told: &[Told]) -> usize {
    told.iter().filter(|told| told.end.is_some_and(|(_, end)| end == End::Remote)).count()
}

/// From the first read on the peer doesn't answer, so nothing is ever learnt from an answer. Requests stay few, and once it
/// does answer it is asked again.
#[test]
fn a_peer_that_is_dead_at_the_start_costs_little_and_is_found_when_it_lives() {
    for policy in [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst] {
        let reply = |number| if number < 1200 { Reply::Never } else { Reply::Truth(400) };
        let plan: Vec<_> = (0..3600).map(|number| read(seek(number), reply(number))).collect();
        let (race, told) = Simulation::new(policy, 1, &plan[..1200], true).run();
        assert_eq!(by_peer(&told), 0);
        let all = race.counts().extra;
        let (race, told) = Simulation::new(policy, 1, &plan[..200], true).run();
        let first = race.counts().extra;
        assert!(by_peer(&told) == 0 && all - first <= 50, "{policy:?}: {first} of 200, {all} of 1200");
        let (_, told) = Simulation::new(policy, 1, &plan, true).run();
        let helped = by_peer(&told[3000..]);
        assert!(helped > 550, "{policy:?}: {helped} of 600");
    }
}

/// What good times have saved up isn't spent on it later, however slowly it would be.
#[test]
fn a_peer_that_helps_no_more_costs_little_after_the_first_reads() {
    for policy in [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst, Policy::QuietDisk] {
        for pause in [100, 10_000, 50_000] {
            let reply = |number| Reply::Truth(if number < 200 { 400 } else { 4_000_000 });
            let planned = |number| Planned { pause, ..read(seek(number), reply(number)) };
            let plan: Vec<_> = (0..800).map(planned).collect();
            let extra = |reads: usize| Simulation::new(policy, 1, &plan[..reads], true).run().0.counts().extra;
            let (first, all) = (extra(400), extra(800));
            assert!(all - first <= 20, "{policy:?}, {pause}: {first} of 200, {all} of 600");
        }
    }
}

#[test]
fn a_peer_that_becomes_slow_is_left_and_found_again() {
    for policy in [Policy::Race, Policy::LocalFirst] {
        let slow = 600..1600;
        let reply = |number| Reply::Truth(if slow.contains(&number) { 60_000 } else { 400 });
        let plan: Vec<_> = (0..2400).map(|number| read(seek(number), reply(number))).collect();
        let (race, told) = Simulation::new(policy, 1, &plan, true).run();
        assert!(by_peer(&told[100..600]) > 450, "{policy:?}: {}", by_peer(&told[100..600]));
        assert!(by_peer(&told[2000..]) > 350, "{policy:?}: {}", by_peer(&told[2000..]));
        assert!(race.counts().extra < 64 + 8 + 2400 / 20, "{:?}", race.counts());
    }
}

/// Answers alone say that the peer takes 300 µs; that nine of ten requests are lost, only the lost ones say.
#[test]
fn requests_that_lost_are_learnt_from() {
    let reply = |number: usize| Reply::Truth(if number.is_multiple_of(10) { 300 } else { 60_000 });
    let plan: Vec<_> = (0..2000).map(|number| read(seek(number), reply(number))).collect();
    let (race, _) = Simulation::new(Policy::LocalFirst, 1, &plan, true).run();
    let counts = race.counts();
    assert!(counts.extra <= 8 + 2000 / 25 + 2 * counts.remote && counts.extra < 400, "{counts:?}");
}

/// Nine of ten reads come from memory: the peer is asked for the others only.
#[test]
fn reads_from_memory_ask_nobody() {
    let service = |number: usize| if number.is_multiple_of(10) { 8000 } else { 15 };
    let plan: Vec<_> = (0..2000).map(|number| read(service(number), Reply::Truth(400))).collect();
    let (race, told) = Simulation::new(Policy::LocalFirst, 1, &plan, true).run();
    let counts = race.counts();
    assert!(by_peer(&told) > 180 && counts.extra <= 20, "{counts:?}");
}

/// The device is quicker than any peer: after 200 reads hardly a request is sent.
#[test]
fn a_fast_device_is_left_alone() {
    for policy in [Policy::Race, Policy::LocalFirst] {
        let plan: Vec<_> = (0..2200).map(|number| read(70 + number % 20, Reply::Truth(250))).collect();
        let (race, told) = Simulation::new(policy, 1, &plan, true).run();
        let (early, _) = Simulation::new(policy, 1, &plan[..200], true).run();
        assert_eq!(told.len(), 2200);
        let extra = race.counts().extra - early.counts().extra;
        assert!(extra <= 20, "{policy:?}: {extra} of 2000 reads");
    }
}

/// A quick device that is held up now and then, on a busy machine: the peer wins sometimes, and gains little by it.
#[test]
fn a_fast_device_on_a_busy_machine_is_left_alone() {
    let busy = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    for policy in [Policy::Race, Policy::LocalFirst] {
        let read = |number: u64| {
            let service =
                if busy(number) % 10 == 0 { 100 + busy(number + 1) % 900 } else { 60 + busy(number + 2) % 80 };
            read(service, Reply::Truth(250 + busy(number + 3) % 500))
        };
        let plan: Vec<_> = (0..2200).map(read).collect();
        let (race, _) = Simulation::new(policy, 8, &plan, true).run();
        let (early, _) = Simulation::new(policy, 8, &plan[..200], true).run();
        let extra = race.counts().extra - early.counts().extra;
        assert!(extra <= 20, "{policy:?}: {extra} of 2000 reads, {} won", race.counts().remote);
    }
}

/// A drive whose buffer has two of three reads: the others come from the peer, by `race` as well.
#[test]
fn what_a_drive_has_not_in_its_buffer_comes_from_a_peer() {
    for policy in [Policy::Race, Policy::LocalFirst] {
        let service = |number: usize| if number.is_multiple_of(3) { 8000 } else { 90 };
        let plan: Vec<_> = (0..3000).map(|number| read(service(number), Reply::Truth(300))).collect();
        let (race, told) = Simulation::new(policy, 1, &plan, true).run();
        assert!(by_peer(&told[300..]) > 850 && race.counts().extra <= 150, "{policy:?}: {:?}", race.counts());
    }
}

/// Over a link of 10 Mbit/s a block comes before a disk that seeks has it, but not what is copied from start to end.
#[test]
fn large_reads_over_a_slow_link_are_left_to_the_disk() {
    for policy in [Policy::Race, Policy::LocalFirst] {
        let small = |number| read(seek(number), Reply::Truth(3600));
        let large = || Planned { bytes: 32 * BLOCK, ..read(1300, Reply::Truth(110_000)) };
        let plan: Vec<_> = (0..100).map(small).chain((0..320).map(|_| large())).chain((0..300).map(small)).collect();
        let (race, told) = Simulation::new(policy, 1, &plan, true).seeded(300).run();
        let (before, _) = Simulation::new(policy, 1, &plan[..100], true).seeded(300).run();
        let (between, _) = Simulation::new(policy, 1, &plan[..420], true).seeded(300).run();
        let lost = between.counts().extra - before.counts().extra;
        assert!(lost <= 12, "{policy:?}: {lost} of 320");
        let left = |counts: &Counts| (counts.no_chance, counts.no_chance + counts.no_budget);
        let (no_chance, all) = left(between.counts());
        let (earlier, all_earlier) = left(before.counts());
        assert!(no_chance - earlier > 100, "{policy:?}: {no_chance} of 320");
        assert!((300..=320).contains(&(all - all_earlier)), "{policy:?}: {all} of 320");
        assert!(by_peer(&told[520..]) > 120, "{policy:?}: {} of 200", by_peer(&told[520..]));
        assert!(race.is_idle());
    }
}

/// A device that has to wait for the next read of a file misses its turn: some that no peer has a chance to answer are there at
/// once. Those that one may answer go there one at a time.
#[test]
fn reads_that_no_peer_may_win_are_not_kept_from_the_disk() {
    let small = |number| Planned { pause: 20_000, ..read(seek(number), Reply::Truth(3600)) };
    // One of the former is a trial, now and then: wherever it comes.
    for before in 60..92 {
        for (bytes, answer, at_once) in [(32 * BLOCK, 110_000, 8), (BLOCK, 3600, 1)] {
            for policy in [Policy::Race, Policy::LocalFirst] {
                let learnt = |number| Planned { bytes, pause: 20_000, ..read(seek(number), Reply::Truth(answer)) };
                let asked = |number| Planned {
                    bytes,
                    pause: if number == 0 { 200_000 } else { 0 },
                    ..read(6000, Reply::Truth(answer))
                };
                let plan: Vec<_> =
                    (0..100).map(small).chain((0..before).map(learnt)).chain((0..8).map(asked)).collect();
                let (_, told) = Simulation::new(policy, 1, &plan, false).seeded(300).run();
                let all = &told[100 + before..];
                let started = all.iter().filter(|told| told.started == Some(all[0].asked)).count();
                assert_eq!(started, at_once, "{policy:?}, {bytes} bytes behind {before}: {all:?}");
            }
        }
    }
}

/// What the disk can't read comes from the peer, though the budget is used up and the peer is slow.
#[test]
fn what_the_disk_cannot_read_comes_from_a_peer() {
    let mut plan: Vec<_> = (0..300).map(|number| read(seek(number), Reply::Never)).collect();
    for number in 0..20 {
        plan.push(Planned { disk_fails: true, ..read(seek(number), Reply::Truth(900_000)) });
    }
    for policy in [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst, Policy::QuietDisk] {
        let (race, told) = Simulation::new(policy, 1, &plan, true).run();
        assert_eq!(by_peer(&told[300..]), 20, "{policy:?}");
        assert_eq!(race.counts().failed, 0);
    }
}

/// A notebook whose server was far away is docked: that no request had a chance before doesn't count, nor does what is still out
/// of before.
#[test]
fn a_quick_link_is_found_at_once_by_another_network() {
    const SLOW: usize = 400;
    let docked = |number| Planned { on_another_network: number == SLOW, ..read(seek(number), Reply::Truth(400)) };
    for policy in [Policy::Race, Policy::LocalFirst] {
        let slow = (0..SLOW).map(|number| read(seek(number), Reply::Truth(60_000)));
        let plan: Vec<_> = slow.chain((SLOW..SLOW + 100).map(docked)).collect();
        let (_, told) = Simulation::new(policy, 1, &plan, true).seeded(50_000).run();
        assert_eq!((by_peer(&told[..SLOW]), by_peer(&told[SLOW..])), (0, 100), "{policy:?}");

        // The disk is known, and one request is out while the network changes.
        let alone = |number| Planned { checkable: false, pause: 20_000, ..read(seek(number), Reply::Never) };
        let change = Planned { on_another_network: true, pause: 1000, ..alone(0) };
        for reply in [Reply::Truth(60_000), Reply::Truth(9000), Reply::Error(9000)] {
            let out = Planned { pause: 20_000, ..read(10_000, reply) };
            let between = [out, change.clone()].into_iter().chain((0..2).map(alone));
            let quick = (0..50).map(|number| Planned { pause: 20_000, ..read(seek(number), Reply::Truth(400)) });
            let plan: Vec<_> = (0..40).map(alone).chain(between).chain(quick).collect();
            let (race, told) = Simulation::new(policy, 1, &plan, false).run();
            assert_eq!(race.counts().requests, 51, "{policy:?} {reply:?}: it was out");
            assert_eq!(by_peer(&told[44..]), 50, "{policy:?} {reply:?}");
        }
    }
}

/// By `quiet-disk` the disk hears of no read that the peer answers within the deadline.
#[test]
fn a_quiet_disk_is_not_asked_for_what_a_peer_has() {
    let plan: Vec<_> = (0..1000).map(|number| read(seek(number), Reply::Truth(seek(number) * 24))).collect();
    for is_closed in [true, false] {
        let (race, told) = Simulation::new(Policy::QuietDisk, 1, &plan, is_closed).run();
        assert_eq!(told.iter().filter(|told| told.started.is_some()).count(), 0);
        assert_eq!((by_peer(&told), race.counts().extra), (1000, 0));
    }
}
