//! Each recipe on each file system, small: the files are those of its operations, and its own figures hold.
//!
//! The images are made once and kept packed in cargo's folder for temporary files of tests, under a name that holds what
//! they depend on. Needs root, loop devices, `/dev/fuse` and the four mkfs; says so and passes where one is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onesweep-lab");

/// Recipe, scale and further arguments of `age`.
type Small = (&'static str, &'static str, &'static [&'static str]);

const SMALL: [Small; 13] = [
    ("random", "0.01", &[]),
    ("source", "0.02", &[]),
    ("daft-4k", "0.003", &[]),
    ("daft-16k", "0.003", &[]),
    ("daft-64k", "0.01", &[]),
    ("mixed", "0.02", &[]),
    ("mail", "0.003", &[]),
    ("dfs", "0.01", &[]),
    // All of its steps would fill so small an image, journal and all.
    ("dfs-small", "0.01", &["--steps", "400"]),
    ("dfs-short", "0.01", &["--steps", "400"]),
    ("fragmented", "0.02", &[]),
    ("days-a", "0.002", &[]),
    DAYS_B,
];

/// Directories with an index, and without one.
const INDEXED: Small = ("daft-4k", "0.003", &[]);
const UNINDEXED: Small = ("daft-4k", "0.003", &["--mkfs=-O", "--mkfs=^dir_index"]);

/// The first day alone.
const DAYS_B: Small = ("days-b", "0.005", &["--steps", "0"]);

fn may_mount() -> bool {
    let missing = |program: &&&str| Command::new("which").arg(program).output().is_ok_and(|out| !out.status.success());
    let programs = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkntfs", "ntfs-3g", "losetup", "filefrag"];
    let reason = if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
        Some("not root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse".to_owned())
    } else {
        programs.iter().find(missing).map(|program| format!("no {program}"))
    };
    if let Some(reason) = &reason {
        // Past the test harness, which would keep it back: a run as root must not leave tests out unseen.
        let thread = std::thread::current();
        let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
    }
    reason.is_none()
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {complaint}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn age(small: Small, fs: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["age", small.0, "--scale", small.1, "--fs", fs]).args(small.2);
    command
}

/// The operations, one a line.
fn operations(small: Small, fs: &str) -> String {
    succeed(age(small, fs).arg("--list"))
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A copy of the small image of a recipe, with its label.
struct Aged {
    fs: &'static str,
    operations: String,
    label: serde_json::Value,
    image: PathBuf,
    home: TempDir,
}

impl Aged {
    fn new(small: Small, fs: &'static str) -> Self {
        let operations = operations(small, fs);
        let hash = sha256(&operations);
        let mkfs = if fs == "ntfs" { "mkntfs".into() } else { format!("mkfs.{fs}") };
        let version = Command::new(mkfs).arg("-V").output().unwrap();
        let version = sha256(&String::from_utf8_lossy(&[version.stdout, version.stderr].concat()));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aged");
        fs::create_dir_all(&folder).unwrap();
        let mkfs: String = small.2.iter().filter(|option| option.starts_with("--mkfs")).copied().collect();
        let name = format!("lab-{}-{}-{fs}-{}-{}{mkfs}", small.0, small.1, &hash[..8], &version[..8]);
        let [kept, packed, label, lock] =
            ["img", "img.zst", "img.json", "lock"].map(|ending| folder.join(format!("{name}.{ending}")));
        // Another test process may be making the same one.
        let lock = File::create(lock).unwrap();
        lock.lock().unwrap();
        if !packed.exists() {
            succeed(age(small, fs).arg("--out").arg(&kept));
            succeed(Command::new(PROGRAM).arg("pack").arg(&kept));
            fs::remove_file(&kept).unwrap();
        }
        let home = tempfile::Builder::new().prefix("onesweep-lab-test-").tempdir().unwrap();
        let image = home.path().join("aged.img");
        fs::copy(&packed, home.path().join("aged.img.zst")).unwrap();
        fs::copy(&label, home.path().join("aged.img.json")).unwrap();
        succeed(Command::new(PROGRAM).arg("unpack").arg(home.path().join("aged.img.zst")));
        let label: serde_json::Value = serde_json::from_str(&fs::read_to_string(&label).unwrap()).unwrap();
        assert_eq!(label["operations_sha256"], hash.as_str(), "the label is that of the operations");
        Self { fs, operations, label, image, home }
    }

    fn mounted(&self, options: &str) -> Mounted {
        let root = self.home.path().join("mount");
        fs::create_dir(&root).unwrap();
        let fs = if self.fs == "ntfs" { "ntfs-3g" } else { self.fs };
        let options = format!("loop,noatime,{options}");
        succeed(Command::new("mount").args(["-t", fs, "-o", &options]).arg(&self.image).arg(&root));
        Mounted(root)
    }
}

/// Unmounts at the end.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Others who look at all that is mounted keep it busy for a moment.
        for _ in 0..100 {
            let said = Command::new("umount").arg(&self.0).output();
            if said.is_ok_and(|said| said.status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// Paths and sizes of the files below a directory.
fn files_below(root: &Path) -> BTreeMap<String, u64> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let facts = entry.metadata().unwrap();
            if facts.is_dir() {
                dirs.push(entry.path());
            } else {
                files.insert(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned(), facts.len());
            }
        }
    }
    files
}

/// The same after operations, by what their names say.
fn files_after<'a>(operations: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut files: BTreeMap<String, u64> = BTreeMap::new();
    for line in operations {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["create" | "rewrite" | "resize", path, size] => {
                files.insert(path.to_owned(), size.parse().unwrap());
            }
            ["append" | "append-apart", path, more] => *files.get_mut(path).unwrap() += more.parse::<u64>().unwrap(),
            ["remove", path] => assert!(files.remove(path).is_some(), "{line}"),
            ["dir" | "read" | "sync", _] | ["overwrite" | "time", _, _] | ["sync"] | ["day", _] => {}
            _ => panic!("{line}"),
        }
    }
    files
}

fn median(files: &BTreeMap<String, u64>) -> u64 {
    let mut sizes: Vec<u64> = files.values().copied().collect();
    sizes.sort_unstable();
    sizes[sizes.len() / 2]
}

/// Every recipe on a file system.
fn all_on(fs: &'static str) {
    if !may_mount() {
        return;
    }
    for small in SMALL {
        let aged = Aged::new(small, fs);
        let mounted = aged.mounted("ro");
        let files = files_below(&mounted.0);
        assert_eq!(files, files_after(aged.operations.lines()), "{} on {fs}", small.0);
        assert_eq!(aged.label["files"], files.len());
        assert_eq!(aged.label["file_bytes"], files.values().sum::<u64>());
        figures(small.0, &aged, &files, &mounted.0);
    }
}

/// What the recipe says of itself.
fn figures(recipe: &str, aged: &Aged, files: &BTreeMap<String, u64>, root: &Path) {
    let (count, bytes) = (files.len(), files.values().sum::<u64>());
    match recipe {
        "random" => assert_eq!(count, 225),
        "source" => {
            // 24 versions with one in a hundred more files each.
            assert!((500..650).contains(&count), "{count}");
            assert!((3500..7000).contains(&median(files)), "{}", median(files));
        }
        "daft-4k" => one_size(files, 4096, 3000, aged, root),
        "daft-16k" => one_size(files, 16_384, 3000, aged, root),
        "daft-64k" => one_size(files, 65_536, 1000, aged, root),
        "mixed" => assert_eq!(bytes, ((2_u64 << 30) as f64 * 0.02).round() as u64),
        "mail" => {
            assert_eq!(count, 3000);
            assert!((3500..4500).contains(&median(files)), "{}", median(files));
        }
        "dfs" | "dfs-small" | "dfs-short" => ratios(&aged.operations, aged.label["image_bytes"].as_u64().unwrap()),
        "fragmented" => classes(files, aged, root),
        // A thirteenth day, and on the eleventh 8 % more.
        "days-a" => assert!((3510..3600).contains(&count), "{count}"),
        "days-b" => assert_eq!(count, 1700),
        _ => panic!("no figures for {recipe}"),
    }
}

/// The fragments of files by filefrag, which prints none of files on NTFS.
fn extents(files: &BTreeMap<String, u64>, aged: &Aged, root: &Path) -> Option<HashMap<String, u64>> {
    if aged.fs == "ntfs" {
        return None;
    }
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    let mut found = HashMap::new();
    for some in paths.chunks(1000) {
        for line in succeed(Command::new("filefrag").args(some).current_dir(root)).lines() {
            let (path, rest) = line.split_once(": ").unwrap();
            found.insert(path.to_owned(), rest.split(' ').next().unwrap().parse().unwrap());
        }
    }
    Some(found)
}

fn one_size(files: &BTreeMap<String, u64>, size: u64, count: usize, aged: &Aged, root: &Path) {
    assert_eq!(files.len(), count);
    assert!(files.values().all(|&found| found == size));
    for extents in extents(files, aged, root).iter().flat_map(HashMap::iter) {
        assert_eq!(*extents.1, 1, "{} on {}", extents.0, aged.fs);
    }
    if aged.fs != "ntfs" {
        assert_eq!(aged.label["found"]["made_again"], 0, "{}", aged.label);
    }
}

/// DAFT's table III, within 5 %.
fn classes(files: &BTreeMap<String, u64>, aged: &Aged, root: &Path) {
    assert_eq!(files.len(), 600);
    let extents = extents(files, aged, root);
    let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.05, "{found}, not {wanted}");
    for (index, (most, percent, fragments)) in
        [(128, 87.9, 1.11), (512, 95.1, 1.21), (1024, 97.3, 1.28)].into_iter().enumerate()
    {
        let class: Vec<&String> = files.iter().filter(|file| *file.1 <= most << 10).map(|file| file.0).collect();
        near(100.0 * class.len() as f64 / files.len() as f64, percent);
        near(aged.label["found"]["classes"][index]["fragments_per_file"].as_f64().unwrap(), fragments);
        if let Some(extents) = &extents {
            let sum: u64 = class.iter().map(|path| extents[*path].max(1)).sum();
            near(sum as f64 / class.len() as f64, fragments);
        }
    }
}

/// DFS's table 2: what is done before and after three quarters of the disk are used.
fn ratios(operations: &str, image_bytes: u64) {
    let mut sizes: HashMap<&str, u64> = HashMap::new();
    let mut used = 0;
    let mut counts = [HashMap::new(), HashMap::new()];
    for line in operations.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        if ["dir", "sync"].contains(&kind) {
            continue;
        }
        *counts[usize::from(used * 4 > image_bytes * 3)].entry(kind).or_insert(0.0) += 1.0;
        match rest.split_once(' ') {
            Some((path, size)) if kind == "create" => {
                sizes.insert(path, size.parse().unwrap());
                used += sizes[path];
            }
            _ if kind == "remove" => used -= sizes.remove(rest).unwrap(),
            _ => {}
        }
    }
    for (count, wanted) in counts.iter().zip([[10.0, 5.0, 65.0, 20.0], [10.0, 10.0, 60.0, 20.0]]) {
        let all: f64 = count.values().sum();
        // A large image of a small recipe isn't filled.
        if all < 2000.0 {
            continue;
        }
        for (kind, wanted) in ["create", "remove", "read", "overwrite"].iter().zip(wanted) {
            let found = 100.0 * count.get(kind).copied().unwrap_or(0.0) / all;
            assert!((found - wanted).abs() < 3.0, "{kind}: {found} %, not {wanted} %; {count:?}");
        }
    }
}

/// The names in a directory as readdir gives them, and where the content of each begins.
fn listed(dir: &Path) -> Vec<u64> {
    let names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let text = succeed(Command::new("filefrag").arg("-v").args(&names).current_dir(dir));
    let first = |line: &&str| line.trim_start().starts_with("0:");
    let block = |line: &str| line.split(':').nth(2).unwrap().split("..").next().unwrap().trim().parse().unwrap();
    let blocks: Vec<u64> = text.lines().filter(first).map(block).collect();
    assert_eq!(blocks.len(), names.len());
    blocks
}

/// In how few rising sequences numbers come: each goes on with the one that ends closest below it.
fn rising_sequences(numbers: &[u64]) -> usize {
    let mut ends: BTreeSet<u64> = BTreeSet::new();
    for &number in numbers {
        if let Some(&below) = ends.range(..number).next_back() {
            ends.remove(&below);
        }
        ends.insert(number);
    }
    ends.len()
}

#[test]
fn sequences_that_rise_are_counted() {
    assert_eq!([&[][..], &[1, 2, 5], &[1, 7, 2, 8, 3], &[3, 2, 1]].map(rising_sequences), [0, 1, 2, 3]);
}

/// DAFT wants a directory listed in the order in which its files lie. ext4 does that without its index alone. A small file takes the
/// next block that its processor holds ready (`mb_group_prealloc`), so the kernel's writer, where it goes from one processor to another,
/// goes on in the other's blocks: never more rising sequences than processors (330 directories on two).
#[test]
fn a_directory_without_an_index_is_listed_in_the_order_of_the_disk() {
    if !may_mount() {
        return;
    }
    let rising = |blocks: &[u64]| blocks.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let stat = fs::read_to_string("/proc/stat").unwrap();
    // By a hash there are some sixty.
    let processors = stat.lines().filter(|line| line.starts_with("cpu")).skip(1).count().min(20);
    for (small, in_order) in [(UNINDEXED, true), (INDEXED, false)] {
        let aged = Aged::new(small, "ext4");
        let mounted = aged.mounted("ro");
        let mut dirs = 0;
        for entry in fs::read_dir(&mounted.0).unwrap().map(Result::unwrap) {
            if entry.file_name() == "lost+found" {
                continue;
            }
            let blocks = listed(&entry.path());
            assert_eq!(blocks.len(), 1000);
            if in_order {
                let sequences = rising_sequences(&blocks);
                assert!(sequences <= processors, "{sequences} on {processors} processors");
            } else {
                assert!(
                    (400..600).contains(&rising(&blocks)),
                    "by a hash, about half of them rise: {}",
                    rising(&blocks)
                );
            }
            dirs += 1;
        }
        assert_eq!(dirs, 3);
    }
}

#[test]
fn all_recipes_on_ext4() {
    all_on("ext4");
}

#[test]
fn all_recipes_on_xfs() {
    all_on("xfs");
}

#[test]
fn all_recipes_on_btrfs() {
    all_on("btrfs");
}

#[test]
fn all_recipes_on_ntfs() {
    all_on("ntfs");
}

#[test]
fn days_come_one_by_one() {
    if !may_mount() {
        return;
    }
    for fs in ["ext4", "xfs", "btrfs", "ntfs"] {
        let aged = Aged::new(DAYS_B, fs);
        let mounted = aged.mounted("rw");
        let whole = operations((DAYS_B.0, DAYS_B.1, &[]), fs);
        let days: Vec<&str> = whole.split("\nday ").collect();
        let after = |day: usize| files_after(days[..=day].iter().flat_map(|day| day.lines().skip(1)));
        let age = |day: &str, seed: &str| {
            let mut age = Command::new(PROGRAM);
            age.args(["age", DAYS_B.0, "--scale", DAYS_B.1, "--day", day, "--seed", seed, "--dir"]).arg(&mounted.0);
            age
        };
        for day in 1..=3 {
            let label: serde_json::Value = serde_json::from_str(&succeed(&mut age(&day.to_string(), "1"))).unwrap();
            let files = files_below(&mounted.0);
            assert_eq!(files, after(day), "day {day} on {fs}");
            assert_eq!((&label["day"], &label["files"]), (&day.into(), &files.len().into()));
        }
        let time = days[3].lines().rev().find_map(|line| line.strip_prefix("time ")).unwrap();
        let (path, seconds) = time.split_once(' ').unwrap();
        assert_eq!(mounted.0.join(path).metadata().unwrap().mtime(), seconds.parse::<i64>().unwrap());

        for (day, seed) in [("3", "1"), ("4", "2")] {
            let refused = age(day, seed).output().unwrap();
            assert_eq!(refused.status.code(), Some(2));
            let complaint = String::from_utf8_lossy(&refused.stderr);
            assert!(complaint.contains("on the day before") || complaint.contains("this day changes"), "{complaint}");
        }
        assert_eq!(files_below(&mounted.0), after(3), "a refusal changes nothing");
    }
}
