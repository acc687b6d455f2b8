//! A device whose reads are raced, over a disk in memory that has bad sectors.

mod faults;
mod killed;
mod relay;
mod trees;

use std::{
    collections::BTreeSet,
    io,
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onesweep_peer::{
    client::{Peers, Settings},
    id::TrustDomain,
    index::{Block, DeviceIndex, Geometry},
    mount::{self, Device, Storage},
    race::Policy,
    serve::{self, Server},
    store::Memory,
};

const BLOCKS: usize = 64;

/// A disk in memory. Sectors that can't be read are mended by writing them.
struct Disk {
    bytes: Mutex<Vec<u8>>,
    bad: Mutex<BTreeSet<u64>>,
    written: Mutex<BTreeSet<u64>>,
    /// How long each read takes.
    takes: Duration,
    reads: AtomicU64,
}

impl Storage for Disk {
    fn len(&self) -> u64 {
        (BLOCKS * 4096) as u64
    }

    fn sector_bytes(&self) -> u64 {
        512
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        assert!(at.is_multiple_of(512) && buffer.len().is_multiple_of(512));
        self.reads.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.takes);
        let sectors = at / 512..(at + buffer.len() as u64) / 512;
        if self.bad.lock().unwrap().range(sectors).next().is_some() {
            return Err(io::Error::from_raw_os_error(5));
        }
        buffer.copy_from_slice(&self.bytes.lock().unwrap()[at as usize..][..buffer.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        assert!(at.is_multiple_of(512) && bytes.len().is_multiple_of(512));
        self.bytes.lock().unwrap()[at as usize..][..bytes.len()].copy_from_slice(bytes);
        let end = (at + bytes.len() as u64) / 512;
        self.bad.lock().unwrap().retain(|sector| !(at / 512..end).contains(sector));
        self.written.lock().unwrap().extend(at / 512..end);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Setup {
    disk: Arc<Disk>,
    device: Device,
    domain: TrustDomain,
    server: Server,
}

/// A disk whose blocks the index and a server know.
fn setup(settings: mount::Settings) -> Setup {
    setup_behind(settings, Duration::ZERO, |address| address)
}

/// The same with a disk whose reads take so long, and with something that stands before the server.
fn setup_behind(settings: mount::Settings, takes: Duration, before: impl FnOnce(String) -> String) -> Setup {
    let server = start_server();
    let addresses = [before(server.address().to_string())];
    setup_with(settings, takes, server, &addresses)
}

fn start_server() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = serve::Settings::plain(TrustDomain::from_key([7; 32]));
    Server::start(listener, Arc::new(Memory::new(16 << 20)), settings).unwrap()
}

/// The same with servers at these addresses, of which this is one.
fn setup_with(settings: mount::Settings, takes: Duration, server: Server, addresses: &[String]) -> Setup {
    setup_as(Settings::plain(TrustDomain::from_key([7; 32])), settings, takes, server, addresses)
}

/// The same by a client like this.
fn setup_as(
    client: Settings,
    settings: mount::Settings,
    takes: Duration,
    server: Server,
    addresses: &[String],
) -> Setup {
    let domain = client.domain.clone();
    let bytes: Vec<u8> = (0..BLOCKS * 4096).map(|at| (at / 4096 * 3 + at % 253) as u8 | 1).collect();
    let peers = Peers::connect(addresses.iter().cloned(), client).unwrap();
    assert!(peers.wait_until_usable(Duration::from_secs(30)));
    for block in bytes.chunks(4096) {
        peers.put_and_wait(&domain.hash(block), block).unwrap();
    }
    let geometry = Geometry::new(4096, bytes.len() as u64).unwrap();
    let mut index = DeviceIndex::create(tempfile::tempfile().unwrap(), geometry, &domain).unwrap();
    let ticket = index.begin_read();
    index.learn(ticket, 0, &bytes);
    let disk = Disk {
        bytes: Mutex::new(bytes),
        bad: Mutex::default(),
        written: Mutex::default(),
        takes,
        reads: AtomicU64::new(0),
    };
    let disk = Arc::new(disk);
    let storage: Arc<dyn Storage> = disk.clone();
    let device = Device::start(storage, index, peers, domain.clone(), settings).unwrap();
    Setup { disk, device, domain, server }
}

fn counted(device: &Device, name: &str) -> u64 {
    figure(&device.metrics(), &format!("{name}_total "))
}

/// What a mount has told of something.
fn figure(told: &str, name: &str) -> u64 {
    let name = format!("onesweep_peer_mount_{name}");
    told.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn the_bytes_are_those_of_the_disk_by_each_policy_and_at_each_place() {
    for policy in [Policy::Race, Policy::LocalFirst, Policy::RemoteFirst, Policy::QuietDisk] {
        let Setup { disk, device, server: _kept, .. } = setup(mount::Settings::new(policy));
        for (at, len) in [(0, 4096), (5, 1), (4000, 200), (8192, 65536), (511, 100_000), (BLOCKS as u64 * 4096 - 7, 99)]
        {
            let expected = disk.bytes.lock().unwrap().clone();
            let end = expected.len().min(at as usize + len);
            assert!(device.read_and_wait(at, len).unwrap() == expected[at as usize..end], "{policy:?} {at} {len}");
            // Beside the sectors' ends, too; what a server has is old from then on.
            let new = vec![policy as u8 + 2; (end - at as usize).min(5000)];
            device.write_and_wait(at, &new).unwrap();
            assert!(device.read_and_wait(at, new.len()).unwrap() == new, "{policy:?} {at} {len}");
            let mut expected = expected;
            expected[at as usize..][..new.len()].copy_from_slice(&new);
            assert!(*disk.bytes.lock().unwrap() == expected, "{policy:?} {at} {len}");
        }
        let (index, flushed) = device.end();
        flushed.unwrap();
        let (index, bytes) = (index.unwrap(), disk.bytes.lock().unwrap());
        for (block, bytes) in (0..).zip(bytes.chunks(4096)) {
            let hash = TrustDomain::from_key([7; 32]).hash(bytes);
            assert!(matches!(index.block(block), Block::Unknown | Block::Valid(_)));
            assert!(!matches!(index.block(block), Block::Valid(known) if known != hash), "{block} is stale");
        }
    }
}

#[test]
fn what_the_disk_cannot_read_is_served_and_written_again_when_asked() {
    for reclaim in [false, true] {
        let Setup { disk, device, domain, server: _kept } =
            setup(mount::Settings { reclaim, ..mount::Settings::new(Policy::Race) });
        let expected = disk.bytes.lock().unwrap().clone();
        // One that was written is known to nobody else.
        device.write_and_wait(4096 * 9, &[2; 512]).unwrap();
        *disk.bad.lock().unwrap() = [3 * 8 + 1, 20 * 8, 9 * 8 + 3].into();
        assert!(device.read_and_wait(0, 4096 * 8).unwrap() == expected[..4096 * 8]);
        assert!(device.read_and_wait(20 * 4096, 100).unwrap() == expected[20 * 4096..][..100]);
        assert_eq!(device.read_and_wait(4096 * 9, 4096).unwrap_err().raw_os_error(), Some(5));
        if reclaim {
            let until = Instant::now() + Duration::from_secs(30);
            while disk.bad.lock().unwrap().len() > 1 {
                assert!(Instant::now() < until, "{}", device.metrics());
                // The server may have been quicker than the disk, which then was not seen to fail.
                device.read_and_wait(0, 4096 * 8).unwrap();
                device.read_and_wait(20 * 4096, 100).unwrap();
            }
        } else {
            assert_eq!(counted(&device, "reclaimed"), 0);
            assert_eq!(disk.bad.lock().unwrap().len(), 3);
        }
        let (index, _) = device.end();
        if reclaim {
            let bytes = disk.bytes.lock().unwrap();
            assert!(bytes[..4096 * 8] == expected[..4096 * 8]);
            let block = index.unwrap().block(3);
            assert_eq!(block, Block::Valid(domain.hash(&bytes[4096 * 3..4096 * 4])));
        }
    }
}

/// Of a block that can't be read no sector is written but the bad ones, and none at all where somebody has changed a good one past
/// the index.
#[test]
fn only_bad_sectors_are_written_again() {
    let settings = mount::Settings { reclaim: true, ..mount::Settings::new(Policy::Race) };
    let Setup { disk, device, domain, server: _kept } = setup(settings);
    let (changed, mended) = (3 * 4096, 20 * 4096);
    disk.bytes.lock().unwrap()[changed + 5 * 512] ^= 0xff;
    let expected = disk.bytes.lock().unwrap().clone();
    let bad = |block: u64| [block * 8 + 1, block * 8 + 2, block * 8 + 7];
    disk.bad.lock().unwrap().extend(bad(3).into_iter().chain(bad(20)));
    let until = Instant::now() + Duration::from_secs(30);
    while counted(&device, "reclaim_failures") == 0 || counted(&device, "reclaimed") == 0 {
        assert!(Instant::now() < until, "{}", device.metrics());
        // The server may have been quicker than the disk, which then was not seen to fail.
        let _ = device.read_and_wait(changed as u64, 4096);
        let _ = device.read_and_wait(mended as u64, 4096);
    }
    assert_eq!(*disk.written.lock().unwrap(), bad(20).into());
    assert_eq!(*disk.bad.lock().unwrap(), bad(3).into());
    assert!(*disk.bytes.lock().unwrap() == expected);
    // What the index said of the other one is no more.
    assert_eq!(device.read_and_wait(changed as u64, 4096).unwrap_err().raw_os_error(), Some(5));
    let (index, _) = device.end();
    let index = index.unwrap();
    assert_eq!(index.block(3), Block::Unknown);
    assert_eq!(index.block(20), Block::Valid(domain.hash(&expected[mended..][..4096])));
}

/// Where it can't start, nothing that is known is lost.
#[test]
fn what_does_not_start_gives_its_index_back() {
    let domain = TrustDomain::from_key([7; 32]);
    let bytes = vec![5; BLOCKS * 4096];
    let geometry = Geometry::new(4096, bytes.len() as u64).unwrap();
    let mut index = DeviceIndex::create(tempfile::tempfile().unwrap(), geometry, &domain).unwrap();
    let ticket = index.begin_read();
    index.learn(ticket, 0, &bytes);
    let written = Mutex::default();
    let disk =
        Disk { bytes: Mutex::new(bytes), bad: Mutex::default(), written, takes: Duration::ZERO, reads: 0.into() };
    // More than there can be.
    let peers = Peers::connect((1..=17).map(|port| format!("127.0.0.1:{port}")), Settings::plain(domain.clone()));
    let started = Device::start(Arc::new(disk), index, peers.unwrap(), domain, mount::Settings::new(Policy::Race));
    let told = started.unwrap_err();
    assert_eq!(told.to_string(), "there can be 16 servers, and here are 17");
    assert!(matches!(told.index.unwrap().block(9), Block::Valid(_)));
}

/// Places larger than a block, and reads that are larger than both: only what nobody has is an error.
#[test]
fn large_bad_places_in_large_reads_are_served() {
    const READ: usize = 128 << 10;
    for (reclaim, policy) in
        [(false, Policy::Race), (false, Policy::LocalFirst), (false, Policy::QuietDisk), (true, Policy::LocalFirst)]
    {
        let Setup { disk, device, server: _kept, .. } =
            setup(mount::Settings { reclaim, ..mount::Settings::new(policy) });
        let expected = disk.bytes.lock().unwrap().clone();
        // From the middle of a block to the middle of another, all of a read, and across the border of two reads.
        let bad = (3 * 8 + 1..6 * 8 + 3).chain(30 * 8..34 * 8).chain(40 * 8 + 5..62 * 8);
        disk.bad.lock().unwrap().extend(bad);
        let read_all = || {
            for at in (0..BLOCKS * 4096).step_by(READ) {
                let read = device.read_and_wait(at as u64, READ).unwrap();
                assert!(read == expected[at..at + READ], "{policy:?} {at}");
            }
        };
        read_all();
        assert_eq!(counted(&device, "reads_failed"), 0);
        if reclaim {
            let until = Instant::now() + Duration::from_secs(30);
            while !disk.bad.lock().unwrap().is_empty() {
                assert!(Instant::now() < until, "{}", device.metrics());
                read_all();
            }
            assert!(*disk.bytes.lock().unwrap() == expected);
        }
        // One of its blocks is known to nobody else any more.
        device.write_and_wait(50 * 4096, &[2; 512]).unwrap();
        disk.bad.lock().unwrap().insert(50 * 8 + 3);
        let read = device.read_and_wait(32 * 4096, READ);
        assert_eq!(read.unwrap_err().raw_os_error(), Some(5), "{policy:?}");
        assert!(device.read_and_wait(51 * 4096, 4096).unwrap() == expected[51 * 4096..][..4096], "{policy:?}");
    }
}

#[test]
fn a_server_that_ends_is_not_missed() {
    let Setup { disk, device, server, .. } = setup(mount::Settings::new(Policy::RemoteFirst));
    let expected = disk.bytes.lock().unwrap().clone();
    assert!(device.read_and_wait(0, 65536).unwrap() == expected[..65536]);
    server.stop();
    for block in 0..BLOCKS {
        let at = block * 4096;
        assert!(device.read_and_wait(at as u64, 4096).unwrap() == expected[at..][..4096]);
    }
    assert_eq!(counted(&device, "reads_failed"), 0);
}
