//! A process that is killed at each step of a write: between the mark in the index, the bytes on the disk, and the acknowledgement.

use std::{
    fs::{self, File},
    io,
    os::unix::{
        fs::FileExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use onesweep_peer::{
    client::{Peers, Settings},
    id::TrustDomain,
    index::{Block, DeviceIndex, Geometry},
    marks::Marks,
    mount::{self, Device, Storage},
    race::Policy,
};
use onesweep_sys::process::kill_group;

use crate::{BLOCKS, counted, faults::is_long, start_server};

/// Where the process is killed, in the order of a write.
const STEPS: [&str; 5] = ["marked", "half written", "written", "acknowledged", "flushed"];
const DIR: &str = "ONESWEEP_PEER_KILLED_DIR";
const SERVER: &str = "ONESWEEP_PEER_KILLED_SERVER";
const STEP: &str = "ONESWEEP_PEER_KILLED_STEP";
const AT: &str = "ONESWEEP_PEER_KILLED_AT";
const TURN: &str = "ONESWEEP_PEER_KILLED_TURN";

/// Regions of 1 MiB: more than a process marks for its first two writes in new ones, so that a kill leaves some of which something is known.
const REGIONS: u64 = 128;
const DISK_BYTES: u64 = REGIONS << 20;
/// Blocks that are used lie in so many regions, as far from each other as can be.
const USED_REGIONS: u64 = 8;

/// Where a block that is used lies.
fn place(number: u64) -> u64 {
    let each = BLOCKS as u64 / USED_REGIONS;
    ((number / each * (REGIONS / USED_REGIONS)) << 20) + number % each * 4096
}

/// The first writes go to the first half, and all of it gets its marks before the other has any.
fn written(write: u64) -> u64 {
    let half = BLOCKS as u64 / 2;
    write * 29 % half + write / 24 % 2 * half
}

/// Nobody else writes to the disk.
fn marks() -> Marks {
    Marks::of_file(DISK_BYTES, (1, 2), (3, 4))
}

/// Kills this process when a step is taken for the n-th time.
struct Fate {
    step: String,
    left: AtomicU64,
}

impl Fate {
    fn comes(&self, step: &str) {
        if self.step == step && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            kill_group(process::id()).expect("a process group of its own");
            // The signal is on its way.
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

/// A disk in a file.
struct OnFile {
    file: File,
    fate: Option<Arc<Fate>>,
}

impl OnFile {
    fn of(dir: &Path, fate: Option<Arc<Fate>>) -> Arc<Self> {
        let file = File::options().read(true).write(true).open(dir.join("disk")).unwrap();
        Arc::new(Self { file, fate })
    }
}

impl Storage for OnFile {
    fn len(&self) -> u64 {
        DISK_BYTES
    }

    fn sector_bytes(&self) -> u64 {
        512
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let Some(fate) = &self.fate else { return self.file.write_all_at(bytes, at) };
        fate.comes("marked");
        // Half of it may be there, too.
        let (begin, end) = bytes.split_at(bytes.len() / 2 / 512 * 512);
        self.file.write_all_at(begin, at)?;
        fate.comes("half written");
        self.file.write_all_at(end, at + begin.len() as u64)?;
        fate.comes("written");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()?;
        if let Some(fate) = &self.fate {
            fate.comes("flushed");
        }
        Ok(())
    }
}

fn domain() -> TrustDomain {
    TrustDomain::from_key([7; 32])
}

fn block(version: u64, number: u64) -> Vec<u8> {
    (0..4096_u64).map(|at| (version * 31 + number * 7 + at % 251) as u8 | 1).collect()
}

fn open(dir: &Path, server: &str, fate: Option<Arc<Fate>>) -> Device {
    let peers = Peers::connect([server.to_owned()], Settings::plain(domain())).unwrap();
    assert!(peers.wait_until_usable(Duration::from_secs(30)));
    let file = File::options().read(true).write(true).open(dir.join("index")).unwrap();
    let index = DeviceIndex::open(file, DISK_BYTES, &domain(), Some(&marks())).unwrap();
    // The server gets all that is ever written, and so has what is old.
    let settings = mount::Settings {
        share: true,
        write_through: Some(mount::Unsent::default()),
        ..mount::Settings::new(Policy::RemoteFirst)
    };
    Device::start(OnFile::of(dir, fate), index, peers, domain(), settings).unwrap()
}

/// The process that is killed. No test of its own.
#[test]
fn as_victim() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let told = |name: &str| std::env::var(name).unwrap();
    let number = |name: &str| told(name).parse::<u64>().unwrap();
    let fate = Arc::new(Fate { step: told(STEP), left: AtomicU64::new(number(AT)) });
    let device = open(&dir, &told(SERVER), Some(Arc::clone(&fate)));
    for write in 0.. {
        let (version, number) = (number(TURN) * 1000 + write, written(write));
        device.write_and_wait(place(number), &block(version, number)).unwrap();
        // From now on it has to be there.
        let line = format!("{number} {version}\n");
        let acknowledged = File::options().append(true).create(true).open(dir.join("acknowledged"));
        io::Write::write_all(&mut acknowledged.unwrap(), line.as_bytes()).unwrap();
        fate.comes("acknowledged");
        if write % 3 == 2 {
            device.flush_and_wait().unwrap();
        }
        if write % 5 == 4 {
            // What was read is believed again.
            device.read_and_wait(place(number), 4096).unwrap();
        }
    }
}

/// Every block is read twice: first it is suspect and the disk's, then a server may answer.
fn is_the_disks(device: &Device, dir: &Path, what: &str) {
    for number in (0..BLOCKS as u64).chain(0..BLOCKS as u64) {
        let read = device.read_and_wait(place(number), 4096).unwrap();
        assert!(read == on_disk(dir, number), "{what}: block {number} has other bytes than the disk");
    }
}

fn on_disk(dir: &Path, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    File::open(dir.join("disk")).unwrap().read_exact_at(&mut bytes, place(number)).unwrap();
    bytes
}

/// All that the index has for a block, suspect or not, is the hash of what the disk has: nobody else has written. Of how many blocks it
/// has none, some suspect, some valid. It is looked at in a copy, since opening it changes it.
fn what_is_known_is_true(dir: &Path, what: &str) -> [usize; 3] {
    fs::copy(dir.join("index"), dir.join("copy")).unwrap();
    let file = File::options().read(true).write(true).open(dir.join("copy")).unwrap();
    let index = DeviceIndex::open(file, DISK_BYTES, &domain(), Some(&marks())).unwrap();
    let mut counts = [0; 3];
    for number in 0..BLOCKS as u64 {
        let (kind, known) = match index.block(place(number) / 4096) {
            Block::Unknown => (0, None),
            Block::Suspect(hash) => (1, Some(hash)),
            Block::Valid(hash) => (2, Some(hash)),
            Block::Zero => panic!("{what}: block {number} was never one of zeros"),
        };
        counts[kind] += 1;
        let is_true = known.is_none_or(|known| known == domain().hash(&on_disk(dir, number)));
        assert!(is_true, "{what}: the index has another hash for block {number} than the disk's bytes have");
    }
    counts
}

#[test]
fn at_whatever_step_of_a_write_it_is_killed_no_old_byte_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_server();
    let address = server.address().to_string();
    let disk = File::create_new(dir.path().join("disk")).unwrap();
    disk.set_len(DISK_BYTES).unwrap();
    (0..BLOCKS as u64).for_each(|number| disk.write_all_at(&block(0, number), place(number)).unwrap());
    let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("index")).unwrap();
    let geometry = Geometry::new(4096, DISK_BYTES).unwrap();
    drop(DeviceIndex::create(file, geometry, &domain()).unwrap());
    let (mut remote, mut survived, kills) = (0, 0, if is_long() { 200 } else { 10 });
    for turn in 1..=kills {
        let step = STEPS[turn as usize % STEPS.len()];
        let at = turn / STEPS.len() as u64 % 40 + 1;
        let what = format!("kill {turn}, {step} for the {at}. time");
        let _ = fs::remove_file(dir.path().join("acknowledged"));
        let mut victim = Command::new(std::env::current_exe().unwrap());
        victim.args(["--exact", "killed::as_victim"]).process_group(0);
        victim.env(DIR, dir.path()).env(SERVER, &address).env(STEP, step);
        victim.env(AT, at.to_string()).env(TURN, turn.to_string());
        let ended = victim.output().unwrap();
        assert_eq!(ended.status.signal(), Some(9), "{what}: {}", String::from_utf8_lossy(&ended.stdout));
        // The next write goes to another block, so what was acknowledged last is there.
        let acknowledged = fs::read_to_string(dir.path().join("acknowledged")).unwrap_or_default();
        if let Some((number, version)) = acknowledged.lines().next_back().and_then(|line| line.split_once(' ')) {
            let (number, version): (u64, u64) = (number.parse().unwrap(), version.parse().unwrap());
            assert!(on_disk(dir.path(), number) == block(version, number), "{what}: an acknowledged write is lost");
        }
        let [_, suspect, valid] = what_is_known_is_true(dir.path(), &what);
        assert_eq!(valid, 0, "{what}: it was not closed");
        survived += suspect;
        let device = open(dir.path(), &address, None);
        is_the_disks(&device, dir.path(), &what);
        remote += counted(&device, "reads_remote");
        let (index, flushed) = device.end();
        flushed.unwrap();
        assert!(index.unwrap().close(Some(marks())).unwrap(), "{what}");
        assert_eq!(what_is_known_is_true(dir.path(), &what), [0, 0, BLOCKS], "{what}: all of it was read");
    }
    assert!(remote > 0, "no server was ever quicker");
    assert!(survived > 0, "nothing was known after any kill");
}
