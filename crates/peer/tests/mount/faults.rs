//! Servers that fail in each of many ways and come back, while the device is read and written.

use std::{
    sync::{atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use onesweep_peer::{
    client::{Peers, Settings},
    id::TrustDomain,
    mount,
    race::Policy,
    wire::Priority,
};

use crate::{
    BLOCKS, Setup, counted,
    relay::{Relay, Treatment},
    setup_as, setup_behind, setup_with, start_server,
};

const POLICIES: [Policy; 4] = [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst, Policy::QuietDisk];
/// What a disk takes that is slower than a server on the loopback.
const SLOW: Duration = Duration::from_millis(4);
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn is_long() -> bool {
    std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Each with each in the long set; else each treatment once, and each policy at least twice.
pub(crate) fn pairs() -> Vec<(Policy, Treatment)> {
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

/// With a server that says nothing, and a client that would wait for it for hours: whatever waited for a server would not come back.
#[test]
fn a_write_is_acknowledged_by_the_disk_alone() {
    const WRITE: usize = 32 * 4096;
    const WRITES: usize = 160;
    let plain = Settings::plain(TrustDomain::from_key([7; 32]));
    let hours = Duration::from_secs(10 * 3600);
    let client =
        Settings { connect: hours, ping: hours, quiet: hours, silence: hours, patience: hours, ..plain.clone() };
    let settings =
        mount::Settings { write_through: Some(mount::Unsent::default()), ..mount::Settings::new(Policy::Race) };
    let server = start_server();
    let direct = server.address().to_string();
    // The relay goes first, so that nobody waits for it in the end.
    let (setup, relay) = {
        let relay = Relay::before(direct.clone());
        let setup = setup_as(client, settings, Duration::ZERO, server, std::slice::from_ref(&relay.address));
        (setup, relay)
    };
    let waiting = || {
        let told = setup.device.metrics();
        told.lines().find_map(|line| line.strip_prefix("onesweep_peer_mount_offers_waiting ")).unwrap().to_owned()
    };
    let direct = Peers::connect([direct], plain).unwrap();
    assert!(direct.wait_until_usable(PATIENCE));

    relay.treat(Treatment::Hold);
    let (tell, told) = mpsc::channel::<std::io::Result<()>>();
    let is_done = |what: &str| {
        let done = told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: {}", setup.device.metrics()));
        done.unwrap_or_else(|error| panic!("{what}: {error}"));
    };
    // More than may wait for a server, and something for which a block has to be read.
    for number in 0..WRITES {
        let (at, new) = (number % 2 * WRITE, vec![0x80 | (number % 7) as u8; WRITE]);
        let tell = tell.clone();
        setup.device.write(at as u64, &new, move |done| _ = tell.send(done));
        is_done("a write");
    }
    let other = tell.clone();
    setup.device.write(9 * 4096 + 5, &[0x77; 100], move |done| _ = other.send(done));
    is_done("a write of a part of a block");
    setup.device.flush(move |done| _ = tell.send(done));
    is_done("a flush");

    let expected = setup.disk.bytes.lock().unwrap().clone();
    let hashes: Vec<_> = expected.chunks(4096).map(|block| setup.domain.hash(block)).collect();
    assert_eq!((waiting().as_str(), counted(&setup.device, "offered")), ("1", 0), "nothing is sent");
    assert!(counted(&setup.device, "offers_dropped") > 0, "all of it could wait");
    assert_eq!(direct.has_and_wait(&hashes).unwrap(), vec![false; BLOCKS], "the server has of before alone");

    relay.treat(Treatment::Pass);
    let until = Instant::now() + PATIENCE;
    // A thread of the device's own sends them, and tells nobody.
    while waiting() != "0" {
        assert!(Instant::now() < until, "{}", setup.device.metrics());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(direct.has_and_wait(&hashes).unwrap(), vec![true; BLOCKS]);
    assert_eq!(counted(&setup.device, "writes_failed"), 0);
}

/// However much waits for a server, and however long that may take: whoever unmounts has it back soon, and what was not sent is owed.
#[test]
fn the_end_does_not_wait_for_a_server() {
    let plain = Settings::plain(TrustDomain::from_key([7; 32]));
    let hours = Duration::from_secs(10 * 3600);
    let client = Settings { connect: hours, ping: hours, quiet: hours, silence: hours, patience: hours, ..plain };
    let owed = mount::Unsent::default();
    let settings = mount::Settings { write_through: Some(owed), ..mount::Settings::new(Policy::Race) };
    let server = start_server();
    let relay = Relay::before(server.address().to_string());
    let setup = setup_as(client, settings, Duration::ZERO, server, std::slice::from_ref(&relay.address));
    relay.treat(Treatment::Hold);
    for number in 0..200_u64 {
        setup.device.write_and_wait(number % 2 * 32 * 4096, &vec![0x80 | number as u8; 32 * 4096]).unwrap();
    }
    let Setup { device, server: _kept, .. } = setup;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || _ = tell.send(device.end().1));
    told.recv_timeout(PATIENCE).expect("it waits for the server").unwrap();
}

/// The disk hears of nothing that the server has, though that takes ten times as long as the disk would. On a busy machine the server
/// may be later than the deadline, so a round in which it never was is enough.
#[test]
fn a_quiet_disk_is_left_in_peace() {
    const ROUNDS: usize = 10;
    let (setup, relay) = setup_with_relay(mount::Settings::new(Policy::QuietDisk));
    let expected = setup.disk.bytes.lock().unwrap().clone();
    relay.treat(Treatment::Delay);
    let is_quiet = || {
        let counts = || (setup.disk.reads.load(Ordering::Relaxed), counted(&setup.device, "reads_remote"));
        let before = counts();
        reads_are_right(&setup, &expected, 0..BLOCKS);
        let after = counts();
        let is_quiet = after.0 == before.0;
        assert!(!is_quiet || after.1 - before.1 == BLOCKS as u64, "{}", setup.device.metrics());
        is_quiet
    };
    assert!((0..ROUNDS).any(|_| is_quiet()), "{}", setup.device.metrics());
}
