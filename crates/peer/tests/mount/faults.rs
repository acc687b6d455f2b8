//! Servers that fail in each of many ways and come back, while the device is read and written.

use std::time::{Duration, Instant};

use onesweep_peer::{mount, race::Policy, wire::Priority};

use crate::{
    BLOCKS, Setup, counted,
    relay::{Relay, Treatment},
    setup_behind, setup_with, start_server,
};

const POLICIES: [Policy; 4] = [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst, Policy::QuietDisk];
/// What a disk takes that is slower than a server on the loopback.
const SLOW: Duration = Duration::from_millis(4);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn is_long() -> bool {
    std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Each with each in the long set; else each treatment once, and each policy at least twice.
fn pairs() -> Vec<(Policy, Treatment)> {
    let all = Treatment::BAD.iter().enumerate().flat_map(|(number, &treatment)| {
        POLICIES.iter().enumerate().map(move |(turn, &policy)| (is_long() || turn == number % 4, policy, treatment))
    });
    all.filter(|(is_asked, ..)| *is_asked).map(|(_, policy, treatment)| (policy, treatment)).collect()
}

/// With something before the server that can be told to spoil what it says.
fn setup_with_relay(settings: mount::Settings) -> (Setup, Relay) {
    let mut relay = None;
    let setup = setup_behind(settings, SLOW, |server| {
        let placed = relay.insert(Relay::before(server));
        placed.address.clone()
    });
    (setup, relay.unwrap())
}

fn reads_are_right(setup: &Setup, expected: &[u8], blocks: impl Iterator<Item = usize>) {
    for block in blocks {
        let at = block % BLOCKS * 4096;
        let read = setup.device.read_and_wait(at as u64, 4096).unwrap();
        assert!(read == expected[at..][..4096], "block {block} has other bytes than the disk");
    }
}

/// Reads until a server answers again.
fn comes_back(setup: &Setup, expected: &[u8]) {
    let (before, until) = (counted(&setup.device, "reads_remote"), Instant::now() + PATIENCE);
    let mut block = 0;
    while counted(&setup.device, "reads_remote") == before {
        assert!(Instant::now() < until, "no server is asked any more: {}", setup.device.metrics());
        reads_are_right(setup, expected, block..block + 8);
        block += 8;
    }
}

#[test]
fn whatever_becomes_of_a_server_reads_are_the_disks_and_it_is_asked_again() {
    for (policy, treatment) in pairs() {
        let (setup, relay) = setup_with_relay(mount::Settings::new(policy));
        let expected = setup.disk.bytes.lock().unwrap().clone();
        comes_back(&setup, &expected);
        relay.treat(treatment);
        reads_are_right(&setup, &expected, 0..24);
        assert_eq!(counted(&setup.device, "reads_failed"), 0, "{policy:?} {treatment:?}");
        relay.treat(Treatment::Pass);
        // As when a link comes back; else it would be probed some time later.
        setup.device.network_changed();
        comes_back(&setup, &expected);
        let (index, flushed) = setup.device.end();
        flushed.unwrap();
        assert!(index.is_some(), "{policy:?} {treatment:?}");
    }
}

/// A place is mended after the server has answered: nobody waits for what is asked for that. Somebody does for all else.
#[test]
fn only_what_nobody_waits_for_is_asked_behind_others() {
    let (setup, relay) = setup_with_relay(mount::Settings { reclaim: true, ..mount::Settings::new(Policy::Race) });
    let expected = setup.disk.bytes.lock().unwrap().clone();
    reads_are_right(&setup, &expected, 0..8);
    setup.disk.bad.lock().unwrap().insert(20 * 8);
    let bad = setup.domain.hash(&expected[20 * 4096..21 * 4096]);
    let is_behind = |relay: &Relay| relay.gets().iter().any(|(priority, _)| *priority == Priority::Prefetch);
    let until = Instant::now() + PATIENCE;
    while !is_behind(&relay) {
        assert!(Instant::now() < until, "{}", setup.device.metrics());
        // The disk may have been seen to fail before the server answered; then that answer has mended it.
        setup.disk.bad.lock().unwrap().insert(20 * 8);
        reads_are_right(&setup, &expected, 19..22);
    }
    let gets = relay.gets();
    assert!(gets.iter().all(|(priority, hash)| *priority == Priority::Waiting || *hash == bad), "{gets:?}");
    assert!(gets.contains(&(Priority::Waiting, bad)), "{gets:?}");
}

/// A block that a server has wrong is neither served nor written over a bad place.
#[test]
fn what_neither_the_disk_nor_a_server_has_right_is_an_error() {
    for treatment in [Treatment::Flip, Treatment::Garbage, Treatment::Cut] {
        let settings = mount::Settings { reclaim: true, ..mount::Settings::new(Policy::LocalFirst) };
        let (setup, relay) = setup_with_relay(settings);
        let expected = setup.disk.bytes.lock().unwrap().clone();
        setup.disk.bad.lock().unwrap().extend([5 * 8, 6 * 8 + 3]);
        relay.treat(treatment);
        for block in [5, 6] {
            let read = setup.device.read_and_wait(block * 4096, 4096);
            assert_eq!(read.unwrap_err().raw_os_error(), Some(5), "{treatment:?}");
        }
        assert_eq!(counted(&setup.device, "reclaimed"), 0, "{treatment:?}");
        assert_eq!(setup.disk.bad.lock().unwrap().len(), 2, "{treatment:?}");
        relay.treat(Treatment::Pass);
        setup.device.network_changed();
        let until = Instant::now() + PATIENCE;
        // Whoever is quicker, the disk or the server.
        while !setup.disk.bad.lock().unwrap().is_empty() {
            assert!(Instant::now() < until, "{treatment:?}: {}", setup.device.metrics());
            for block in [5, 6] {
                if let Ok(read) = setup.device.read_and_wait(block * 4096, 4096) {
                    assert!(read == expected[block as usize * 4096..][..4096], "{treatment:?}");
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(*setup.disk.bytes.lock().unwrap() == expected, "{treatment:?}");
    }
}

/// Of a read's blocks those of one server come, and those of the other don't; then the disk has them all.
#[test]
fn what_came_of_a_request_that_lost_has_used_the_link() {
    let (quick, held) = (start_server(), start_server());
    let relay = Relay::before(held.address().to_string());
    let addresses = [quick.address().to_string(), relay.address.clone()];
    // Long enough for what comes by the loopback.
    let takes = Duration::from_secs(1);
    let setup = setup_with(mount::Settings::new(Policy::Race), takes, quick, &addresses);
    let expected = setup.disk.bytes.lock().unwrap().clone();
    relay.treat(Treatment::Hold);
    let read = setup.device.read_and_wait(0, 32 * 4096).unwrap();
    assert!(read == expected[..32 * 4096]);
    assert_eq!(counted(&setup.device, "reads_local"), 1, "{}", setup.device.metrics());
    let told = setup.device.metrics();
    let hits = told.lines().filter(|line| line.starts_with("onesweep_peer_mount_server_hits_total{"));
    let came: u64 = hits.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap() * 4096).sum();
    let late = counted(&setup.device, "answer_bytes_late");
    assert!(came > 0 && late >= came, "{late} of {came}: {told}");
}

/// Writes go to the disk whatever servers do, and what a server has of before is never read again.
#[test]
fn writes_are_not_held_up_and_old_bytes_do_not_come_back() {
    for treatment in Treatment::BAD {
        let settings = mount::Settings {
            write_through: Some(mount::Unsent::default()),
            share: true,
            ..mount::Settings::new(Policy::QuietDisk)
        };
        let (setup, relay) = setup_with_relay(settings);
        let mut expected = setup.disk.bytes.lock().unwrap().clone();
        comes_back(&setup, &expected);
        relay.treat(treatment);
        for block in 0..12 {
            let new = vec![0x80 | block as u8; 4096];
            setup.device.write_and_wait(block * 4096, &new).unwrap();
            expected[block as usize * 4096..][..4096].copy_from_slice(&new);
        }
        setup.device.flush_and_wait().unwrap();
        assert!(*setup.disk.bytes.lock().unwrap() == expected, "{treatment:?}");
        reads_are_right(&setup, &expected, 0..16);
        relay.treat(Treatment::Pass);
        setup.device.network_changed();
        comes_back(&setup, &expected);
        reads_are_right(&setup, &expected, 0..BLOCKS);
        assert_eq!(counted(&setup.device, "writes_failed"), 0, "{treatment:?}");
    }
}
