//! The power goes while files are moved.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use onesweep_relocate::carry::{Ended, Settings};
use onesweep_relocate::ext4::Ext4;
use onesweep_relocate::ext4::keep::{forget, kept, undo};
use onesweep_relocate::follow::{Follower, Moment, Policy};
use onesweep_relocate::host::{Captured, Exchange, Failure, Host, Looked, Moved, Moves, Opened, Trouble, Uncached};
use onesweep_relocate::mounted::{Mounted, Refusal};
use onesweep_relocate::pack::Rules;
use onesweep_relocate::passes::pack_until_rest;
use onesweep_relocate::places::Places;
use onesweep_relocate::survey::{Candidate, Order, files_below, survey};
use onesweep_relocate::xfs::Xfs;

use crate::place::{Place, place, skipped, succeed};
use crate::superblock::{self, EXCHANGE};

const HELPER: &str = "ONESWEEP_LAB_MOVES";
/// Before the books of the disk.
const BOOKS: &str = "the books:";
/// Before and after what was moved is settled.
const SETTLES: &str = "settles";
const SETTLED: &str = "settled";
/// Before a region comes to a donor that had another region before.
const SHARES: &str = "shares a donor";
const FILES: u64 = 40;
const BLOCK: u64 = 4096;

/// The rules of all runs: regions of which the files fill a few.
const RULES: Rules = Rules { region: 64, slack: 4, budget: 32, dearest: 32, margin: 1 };

/// By file and block of the file.
type Layout = BTreeMap<(String, u64), u64>;

/// Bytes of which each word tells its file and place.
fn bytes(file: u64) -> Vec<u8> {
    let blocks = 2 + file * 7 % 11;
    let words = (0..blocks * BLOCK / 8).map(|at| (file << 32 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(bytes.len() - 100);
    bytes
}

fn path(file: u64) -> PathBuf {
    PathBuf::from(format!("d/{file}"))
}

/// Files that grew by turns.
fn scatter() -> io::Result<()> {
    fs::create_dir("d")?;
    for block in 0..12 {
        for file in 0..FILES {
            if let Some(part) = bytes(file).chunks(BLOCK as usize).nth(block) {
                let open = File::options().create(true).write(true).truncate(false).open(path(file))?;
                open.write_all_at(part, block as u64 * BLOCK)?;
            }
        }
        succeed(&mut Command::new("sync"));
    }
    Ok(())
}

/// How files are moved.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// As by `onesweep defrag`, with a commit at the end of each batch. On ext4 the regions of a batch share donors, which have no names.
    Packed,
    /// The same, with each commit one of the journal alone, as where a run waits for room.
    Settled,
    /// As by `onesweep defrag --keep`: each region has donors of its own, which get names.
    Kept,
    /// The same, with commits of the journal alone.
    KeptSettled,
    /// As by the daemon, which waits for nothing, while somebody else has the journal commit now and then.
    Followed,
}

impl Way {
    /// What the helper is told.
    fn name(self) -> &'static str {
        match self {
            Way::Packed => "pack",
            Way::Settled => "settle",
            Way::Kept => "keep",
            Way::KeptSettled => "keep-settle",
            Way::Followed => "follow",
        }
    }

    fn keeps(self) -> bool {
        matches!(self, Way::Kept | Way::KeptSettled)
    }

    fn settles(self) -> bool {
        matches!(self, Way::Settled | Way::KeptSettled)
    }
}

/// A file system, and how it is mounted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// ext4, which is moved with `data=ordered` alone.
    Ordered,
    Reflinks,
    /// An XFS without reflinks.
    Exchange,
    /// An XFS where whole files change places.
    Whole,
    /// The same with a reverse map, where pieces do one by one.
    WholeMapped,
}

impl Kind {
    fn is_ext4(self) -> bool {
        self == Kind::Ordered
    }

    /// With a second group, which has a copy of the superblock; mkfs.xfs makes no smaller one than that.
    fn mib(self) -> u64 {
        if self.is_ext4() { 256 } else { 320 }
    }

    fn make(self, place: &Place) {
        if self.is_ext4() {
            return place.ext4();
        }
        let features = match self {
            Kind::WholeMapped => "reflink=0,rmapbt=1",
            Kind::Exchange | Kind::Whole => "reflink=0",
            Kind::Ordered | Kind::Reflinks => "reflink=1",
        };
        succeed(Command::new("mkfs.xfs").args(["-q", "-f", "-m", features]).arg(&place.image));
        self.show_features(place, true);
    }

    /// mkfs.xfs and xfs_repair may be too old to know exchange-range.
    fn show_features(self, place: &Place, are_shown: bool) {
        if self == Kind::Exchange {
            superblock::switch(&place.image, EXCHANGE, are_shown);
        }
    }

    /// Has the journal replayed where mounting doesn't, and the file system checked.
    fn replay(self, place: &Place, cut: u64) {
        if !self.is_ext4() {
            return;
        }
        let check = |how: &str| Command::new("e2fsck").arg(how).arg(&place.image).output().unwrap();
        let mut replay = check("-fp");
        // ext4 writes its superblock in place. One that was torn is taken from its copy, which nobody does unasked.
        let said = String::from_utf8_lossy(&[&replay.stdout[..], &replay.stderr].concat()).into_owned();
        let is_torn = said.contains("superblock could not be read");
        if is_torn {
            replay = check("-fy");
        }
        let said = String::from_utf8_lossy(&replay.stdout).into_owned();
        assert!(matches!(replay.status.code(), Some(0 | 1)), "cut at {cut}, {is_torn}: {said}");
        self.check(place);
    }

    fn check(self, place: &Place) {
        if self.is_ext4() {
            succeed(Command::new("e2fsck").arg("-fn").arg(&place.image));
            return;
        }
        self.show_features(place, false);
        succeed(Command::new("xfs_repair").arg("-n").arg(&place.image));
        self.show_features(place, true);
    }
}

fn is_ext4() -> bool {
    Xfs::of(Path::new("d"), Uncached::Read).is_err()
}

fn ext4() -> Ext4 {
    Ext4::of(Path::new("d"), Uncached::Read).unwrap()
}

fn xfs() -> Xfs {
    Xfs::of(Path::new("d"), Uncached::Read).unwrap()
}

fn files(host: &mut impl Host) -> Vec<Candidate> {
    let paths = files_below(Path::new("d"), Order::Name, &mut |path, error| panic!("{}: {error}", path.display()));
    survey(host, paths.unwrap()).unwrap()
}

fn tell(word: &str, path: &Path, places: &Places) {
    for run in places.runs() {
        println!("{word} {} {} {} {}", path.display(), run.logical, run.place, run.blocks);
    }
}

fn tell_layout(word: &str) {
    let files = if is_ext4() { files(&mut ext4()) } else { files(&mut xfs()) };
    for file in files {
        tell(word, &file.path, &file.places);
    }
}

/// A host that tells where files are to lie, before they are moved, and when what was moved is settled: each time that it is
/// committed, in the way that is about that.
struct Telling<H> {
    host: H,
    way: Way,
    /// Where the donors are in memory to which something has come since the last commit; they stay there until then.
    used: BTreeSet<usize>,
}

impl<H> Telling<H> {
    fn new(host: H, way: Way) -> Self {
        Telling { host, way, used: BTreeSet::new() }
    }
}

impl<H: Host> Host for Telling<H> {
    type File = H::File;
    type Donor = H::Donor;

    fn unit(&self) -> u64 {
        self.host.unit()
    }

    fn shares_donors(&self) -> bool {
        self.host.shares_donors()
    }

    fn look(&mut self, path: &Path) -> Result<Looked, Trouble> {
        self.host.look(path)
    }

    fn look_in_memory(&mut self, path: &Path) -> Result<Option<Looked>, Trouble> {
        self.host.look_in_memory(path)
    }

    fn announce(&mut self, path: &Path) {
        self.host.announce(path);
    }

    fn open(&mut self, path: &Path, inode: u64) -> Result<Opened<H::File>, Trouble> {
        self.host.open(path, inode)
    }

    fn places(&mut self, file: &H::File) -> Result<Places, Trouble> {
        self.host.places(file)
    }

    fn free_blocks(&mut self) -> io::Result<u64> {
        self.host.free_blocks()
    }

    fn capture(&mut self, directory: &Path, blocks: u64) -> Captured<H::Donor> {
        self.host.capture(directory, blocks)
    }

    fn capture_for(&mut self, directory: &Path, parts: &[u64]) -> Option<Captured<H::Donor>> {
        self.host.capture_for(directory, parts)
    }

    fn donor_places(&mut self, donor: &H::Donor) -> io::Result<Places> {
        self.host.donor_places(donor)
    }

    fn prepare(&mut self, moves: &[Moves<'_, H::File, H::Donor>]) -> Result<(), Failure> {
        let donors = moves.iter().flat_map(|file| &file.steps).map(|(donor, _)| std::ptr::from_ref(*donor).addr());
        let donors: BTreeSet<usize> = donors.collect();
        if !self.used.is_disjoint(&donors) {
            println!("{SHARES}");
        }
        self.used.extend(donors);
        for file in moves {
            for (donor, step) in &file.steps {
                let held = self.host.donor_places(donor).unwrap();
                tell("to", file.path, &held.within(step.to..step.to + step.blocks).shifted(step.from));
            }
        }
        self.host.prepare(moves)
    }

    fn exchange(&mut self, file: &H::File, donor: &H::Donor, exchange: Exchange) -> Moved {
        self.host.exchange(file, donor, exchange)
    }

    fn exchange_all(&mut self, file: &H::File, steps: &[(&H::Donor, Exchange)]) -> Moved {
        self.host.exchange_all(file, steps)
    }

    fn settle(&mut self, near: &Path) -> io::Result<()> {
        println!("{SETTLES}");
        self.host.settle(near)?;
        println!("{SETTLED}");
        Ok(())
    }

    fn commit(&mut self) -> io::Result<()> {
        self.used.clear();
        if self.way.settles() {
            return self.settle(Path::new("d"));
        }
        self.host.commit()
    }
}

impl<H: Mounted> Mounted for Telling<H> {
    fn block_bytes(&self) -> u64 {
        self.host.block_bytes()
    }

    fn get_ready(&mut self, directory: &Path, region: u64, near: bool) -> Result<(), Refusal> {
        self.host.get_ready(directory, region, near)
    }

    fn set_back(&mut self) {
        self.host.set_back();
    }

    fn keep_old_places(&mut self, directory: &Path) -> Result<(), Failure> {
        self.host.keep_old_places(directory)
    }

    fn kept_run(&self) -> Option<&str> {
        self.host.kept_run()
    }

    fn kept_below(&self, directory: &Path) -> Option<PathBuf> {
        self.host.kept_below(directory)
    }

    fn new_ctime_files(&self) -> u64 {
        self.host.new_ctime_files()
    }
}

/// Moves all, and keeps the old places where that is asked for. When the power goes, this fails.
fn move_all(way: Way) {
    if is_ext4() {
        let mut host = ext4();
        if way.keeps() {
            host.keep_old_places().unwrap();
        }
        move_on(Telling::new(host, way));
    } else {
        move_on(Telling::new(xfs(), way));
    }
}

fn move_on(mut host: impl Host) {
    let mut files = files(&mut host);
    // XFS has nothing on the disk of what was moved before a commit, which comes after a batch at the earliest. Where donors are shared, a batch
    // is three regions.
    let batch = if host.shares_donors() { 160 } else { 64 };
    let settings = Settings { commit: 40, batch, ..Settings::new(RULES) };
    let done = pack_until_rest(&mut host, &mut files, &settings, 1, &mut |_| true);
    if let Some(Ended::Failed(failure)) = done.report.ended {
        panic!("{failure}");
    }
    assert!(done.report.regions > 2, "{done:?}");
}

/// Puts the directory in order as the daemon does, just after its files were used. It waits for nothing to be on the disk; somebody
/// else, who has a file of his own written, has the journal commit between two regions. When the power goes, this fails.
fn follow(mut host: impl Mounted) {
    (0..FILES).for_each(|file| drop(fs::read(path(file)).unwrap()));
    let beside = File::create("beside").unwrap();
    let mut follower =
        Follower::new(Policy { settle: Duration::from_secs(2), rules: RULES, largest: 12, percent: None });
    let mut regions = 0;
    loop {
        follower.written((), Duration::ZERO);
        let now = follower.next().expect("it waits");
        follower.take(now).expect("its time has come");
        let mut goes_on = || {
            beside.write_all_at(b"bytes", 0).and_then(|()| beside.sync_all()).unwrap();
            true
        };
        let moment = Moment { now, written: 0 };
        let told = follower.put_in_order(&mut host, ((), Path::new("d")), moment, &mut goes_on).unwrap();
        if let Some(Ended::Failed(failure)) = told.report.ended {
            panic!("{failure}");
        }
        assert_eq!(told.report.commits, 0);
        regions += told.report.regions;
        // What was moved is clean after that.
        goes_on();
        if told.report.regions == 0 {
            break;
        }
    }
    assert!(regions > 2, "{regions}");
}

/// All bytes are right, and what was moved goes back, where old places are kept.
fn check_and_undo() {
    for file in 0..FILES {
        assert!(fs::read(path(file)).unwrap() == bytes(file), "{file} has other bytes");
    }
    tell_layout("is");
    if !is_ext4() {
        return;
    }
    let mut host = ext4();
    for id in kept(&host).unwrap() {
        let undone = undo(&mut host, &id, &mut |_| true).unwrap();
        assert!(undone.ended.is_none() && undone.left.is_empty(), "{undone:?}");
        forget(&mut host, &id).unwrap();
    }
    tell_layout("back");
    for file in 0..FILES {
        assert!(fs::read(path(file)).unwrap() == bytes(file), "{file} has other bytes after the undo");
    }
}

/// The test that is no test: what [`helped`] runs, in the mount.
#[test]
fn as_helper() {
    // The harness has begun a line.
    println!();
    match std::env::var(HELPER).as_deref() {
        Ok("scatter") => scatter().unwrap(),
        Ok("pack") => move_all(Way::Packed),
        Ok("settle") => move_all(Way::Settled),
        Ok("keep") => move_all(Way::Kept),
        Ok("keep-settle") => move_all(Way::KeptSettled),
        Ok("follow") if is_ext4() => follow(Telling::new(ext4(), Way::Followed)),
        Ok("follow") => follow(Telling::new(xfs(), Way::Followed)),
        Ok("check") => check_and_undo(),
        _ => {}
    }
}

/// Runs a part of this very binary on the disk, after a line to it.
fn helped(place: &Place, order: &str, does: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let line = if order.is_empty() { String::new() } else { format!("echo {order} > ../disk/stats && ") };
    let script = format!(
        "{line}{HELPER}={does} {} --exact relocation::as_helper --nocapture --test-threads=1; code=$?; \
         echo {BOOKS}; cat ../disk/stats; exit $code",
        program.display()
    );
    place.script(&[], &script)
}

/// Each block of each file that such lines tell of, with its place.
fn places(said: &str, word: &str) -> Vec<((String, u64), u64)> {
    let mut all = Vec::new();
    for line in said.lines() {
        if let [told, path, numbers @ ..] = &line.split(' ').collect::<Vec<_>>()[..]
            && *told == word
            && let Ok(numbers) = numbers.iter().map(|number| number.parse()).collect::<Result<Vec<u64>, _>>()
            && let [logical, place, blocks] = numbers[..]
        {
            all.extend((0..blocks).map(|block| (((*path).to_owned(), logical + block), place + block)));
        }
    }
    all
}

fn has(said: &str, line: &str) -> bool {
    said.lines().any(|told| told == line)
}

fn layout(out: &Output, word: &str) -> Layout {
    places(&String::from_utf8_lossy(&out.stdout), word).into_iter().collect()
}

#[track_caller]
fn assert_well(out: &Output) {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()));
}

/// The power goes at the k-th write of a relocation, for each k (for some of them in the quick test): after the journal was
/// replayed, each block lies where it lay or where it was to lie, and all bytes are right.
#[test]
fn a_power_cut_leaves_every_block_at_its_old_or_new_place() {
    cut_at_writes(Kind::Ordered, Way::Packed);
}

/// The same where old places are kept; an undo then brings all back.
#[test]
fn a_power_cut_while_old_places_are_kept_leaves_every_block_at_its_old_or_new_place() {
    cut_at_writes(Kind::Ordered, Way::Kept);
}

#[test]
fn a_power_cut_leaves_every_block_at_its_old_or_new_place_on_xfs() {
    cut_at_writes(Kind::Reflinks, Way::Packed);
}

#[test]
fn a_power_cut_leaves_every_block_at_its_old_or_new_place_on_xfs_without_reflinks() {
    cut_at_writes(Kind::Exchange, Way::Packed);
}

#[test]
fn a_power_cut_leaves_every_block_at_its_old_or_new_place_on_xfs_of_wholes() {
    cut_at_writes(Kind::Whole, Way::Packed);
}

#[test]
fn a_power_cut_leaves_every_block_at_its_old_or_new_place_on_xfs_of_wholes_with_a_reverse_map() {
    cut_at_writes(Kind::WholeMapped, Way::Packed);
}

/// The same where commits are those of the journal alone: what was moved before one is at its new place.
#[test]
fn a_power_cut_among_commits_of_the_journal_alone_leaves_every_block_at_its_old_or_new_place() {
    cut_at_writes(Kind::Ordered, Way::Settled);
}

#[test]
fn a_power_cut_among_commits_of_the_journal_alone_while_old_places_are_kept_leaves_every_block_at_its_old_or_new_place()
{
    cut_at_writes(Kind::Ordered, Way::KeptSettled);
}

/// The same of what the daemon moves.
#[test]
fn a_power_cut_beside_the_daemon_leaves_every_block_at_its_old_or_new_place() {
    cut_at_writes(Kind::Ordered, Way::Followed);
}

#[test]
fn a_power_cut_beside_the_daemon_leaves_every_block_at_its_old_or_new_place_on_xfs() {
    cut_at_writes(Kind::Reflinks, Way::Followed);
}

fn copy(from: &Path, to: &Path) {
    succeed(Command::new("cp").args(["--sparse=always"]).arg(from).arg(to));
}

/// Runs it all without a cut; gives the writes after which the power is to go.
fn uncut(place: &Place, way: Way, old: &Layout) -> Vec<u64> {
    let out = helped(place, "reset", way.name());
    assert_well(&out);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let (_, books) = said.split_once(BOOKS).expect("the books");
    let books: serde_json::Value = serde_json::from_str(books).expect("JSON");
    let writes = books["writes"]["requests"].as_u64().expect("a number of writes");
    assert!(writes > 8, "{said}");
    let out = helped(place, "", "check");
    assert_well(&out);
    assert!(old.len() as u64 > 5 * FILES && layout(&out, "is") != *old);
    assert!(!way.keeps() || layout(&out, "back") == *old);
    assert_eq!(has(&said, SETTLED), way.settles(), "{said}");

    let is_long = std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0");
    let step = if is_long { 1 } else { (writes as usize / 12).max(1) };
    eprintln!("{writes} writes when files are moved {way:?}");
    // Further than the last write of the run, for what the end of the mount writes.
    (1..=writes + writes / 4).step_by(step).collect()
}

fn cut_at_writes(kind: Kind, way: Way) {
    let Some(place) = place(kind.mib()) else { return };
    if !kind.is_ext4() && Command::new("which").arg("mkfs.xfs").output().is_ok_and(|out| !out.status.success()) {
        return skipped("no mkfs.xfs");
    }
    kind.make(&place);
    assert_well(&helped(&place, "", "scatter"));
    let fresh = place.home.path().join("fresh");
    copy(&place.image, &fresh);
    let out = helped(&place, "", "check");
    assert_well(&out);
    let old = layout(&out, "is");
    copy(&fresh, &place.image);
    let at = uncut(&place, way, &old);

    let (mut cuts, mut moved, mut partly, mut unsettled) = (0, 0, 0, 0);
    let mut shared = false;
    for cut in at {
        copy(&fresh, &place.image);
        let out = helped(&place, &format!("power-cut {cut} {cut}"), way.name());
        cuts += u64::from(!out.status.success());
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        unsettled += u64::from(said.rfind(SETTLES) > said.rfind(SETTLED));
        shared |= has(&said, SHARES);
        let settled = places(said.rfind(SETTLED).map_or("", |at| &said[..at]), "to");
        // A block may be told of more than once, where it was moved again.
        let new: BTreeSet<_> = places(&said, "to").into_iter().collect();
        let blocks = new.iter().map(|(block, _)| block).collect::<BTreeSet<_>>().len();
        place.assert_down();
        kind.replay(&place, cut);
        let out = helped(&place, "", "check");
        assert_well(&out);
        let is = layout(&out, "is");
        assert_eq!(is.len(), old.len());
        for (block, place) in settled {
            assert_eq!(is[&block], place, "cut at {cut}: {block:?} was settled");
        }
        let mut count = 0;
        for (block, now) in is {
            let is_old = old[&block] == now;
            count += usize::from(!is_old);
            let it = (block, now);
            assert!(is_old || new.contains(&it), "cut at {cut}: {:?} lies at {now}", it.0);
        }
        moved += count;
        partly += u64::from(count > 0 && count < blocks);
        assert!(!way.keeps() || layout(&out, "back") == old, "cut at {cut}");
        kind.check(&place);
    }
    eprintln!(
        "{cuts} runs were cut, {unsettled} of them while what was moved was settled; {moved} blocks had new places, \
         {partly} runs were done in part"
    );
    assert!(cuts > 3 && moved > 0);
    assert!(partly > 0);
    assert_eq!(unsettled > 0, way.settles());
    if kind.is_ext4() && way != Way::Followed {
        // Not in each run: it is ext4 that chooses where donors lie.
        assert_eq!(shared, !way.keeps());
    }
}
