//! Declared summaries of real file systems, against a walk that looks at every file.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsStr,
    fs::{self, File, Metadata},
    io::Write,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime},
};

use onesweep_summary::{
    custom::{
        declare::Declared,
        keys::Period,
        tally::{Amounts, INODE_BYTES, Tally},
        view::view,
    },
    store::Store,
    summaries::{Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::{
    image::{Fs, Image},
    openmetrics,
    run::{finish, long, onesweep, output, root_test, run, say, seed, text},
    serving::Serving,
    shuffled::Shuffled,
    tracked::{Tracked, node},
    web_server::{NOBODY, Web, du},
};

const ALL: &str = "
[owner]
by = \"owner\"
[group]
by = \"group\"
[type]
by = \"extension\"
[size]
by = \"size\"
[age]
by = \"age\"
[largest]
by = \"largest\"
count = 5
";

pub(crate) fn tracked(image: &Image, text: &str) -> Tracked {
    let declared = Arc::new(Declared::parse(text).expect("it is understood"));
    let volume = Volume::of(&image.root()).expect("a file system with handles").with_summaries(Some(declared));
    let volume = Arc::new(volume);
    let tracker = Fanotify::start(volume.clone()).expect("it is watched");
    let store = Store::open(&image.beside("store")).expect("a store");
    let root = volume.root();
    Summaries::open(store, (volume, tracker), root, b"test").expect("summaries")
}

fn ask(tracked: &mut Tracked, path: &Path, name: &str) -> Tally {
    let node = node(tracked, path);
    let answer = tracked.query(node, Freshness::Synced).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(answer.is_exact, "nobody writes");
    let slot = tracked.ledger().nodes.find(node).expect("it is known");
    let at = tracked.ledger().declared().expect("some are declared").find(name).expect("it is declared");
    view(tracked.ledger(), slot, at, None).expect("it reads").expect("it is declared").tally
}

/// All that lies in a directory, itself among it, each inode once with all its names there.
pub(crate) fn everything(path: &Path) -> Vec<(Metadata, BTreeSet<PathBuf>)> {
    let mut found: HashMap<u64, (Metadata, BTreeSet<PathBuf>)> = HashMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let facts = path.symlink_metadata().expect("its facts");
        if facts.is_dir() {
            left.extend(fs::read_dir(&path).expect("it is listed").map(|entry| entry.expect("an entry").path()));
        }
        found.entry(facts.ino()).or_insert_with(|| (facts, BTreeSet::new())).1.insert(path);
    }
    found.into_values().collect()
}

fn amounts(facts: &Metadata) -> Amounts {
    [1, facts.size() as i64, facts.blocks() as i64 * 512]
}

fn plus(sum: &mut Amounts, more: Amounts) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn kind(facts: &Metadata) -> Option<&'static str> {
    let kind = facts.file_type();
    (!kind.is_file()).then_some(if kind.is_dir() {
        "(directory)"
    } else if kind.is_symlink() {
        "(symbolic link)"
    } else {
        "(other)"
    })
}

fn size_class(facts: &Metadata) -> String {
    let class = match facts.size() {
        0 => "0",
        1..=9 => "1",
        10..=99 => "10",
        100..=999 => "100",
        1000..=9999 => "1k",
        10_000..=99_999 => "10k",
        100_000..=999_999 => "100k",
        1_000_000..=9_999_999 => "1M",
        _ => "10M",
    };
    kind(facts).unwrap_or(class).to_owned()
}

fn extension(facts: &Metadata, path: &Path) -> String {
    let extension = match path.extension().and_then(OsStr::to_str) {
        Some(extension @ ("txt" | "Jpg" | "gz")) => format!(".{}", extension.to_lowercase()),
        _ => "(none)".to_owned(),
    };
    kind(facts).map_or(extension, str::to_owned)
}

/// What the server keeps of a directory is what looking at every file tells.
fn agrees(tracked: &mut Tracked, path: &Path, after: &str) {
    let names = ["owner", "group", "size", "age"];
    let told = names.map(|name| ask(tracked, path, name));
    let (types, largest) = (ask(tracked, path, "type"), ask(tracked, path, "largest"));
    let all = everything(path);
    let keys: [&dyn Fn(&Metadata) -> String; 4] =
        [&|facts| facts.uid().to_string(), &|facts| facts.gid().to_string(), &size_class, &|facts| {
            Period::Month.of(facts.mtime())
        }];
    for ((name, told), key) in names.iter().zip(&told).zip(keys) {
        let mut expected: BTreeMap<Vec<u8>, Amounts> = BTreeMap::new();
        all.iter().for_each(|(facts, _)| plus(expected.entry(key(facts).into_bytes()).or_default(), amounts(facts)));
        assert_eq!(told.entries, expected, "{name} of {} after {after}", path.display());
    }
    // An inode counts under the key of one of its names.
    let (mut least, mut most): (BTreeMap<Vec<u8>, i64>, BTreeMap<Vec<u8>, i64>) = Default::default();
    for (facts, names) in &all {
        let keys: BTreeSet<String> = names.iter().map(|name| extension(facts, name)).collect();
        for key in &keys {
            *most.entry(key.clone().into_bytes()).or_default() += facts.size() as i64;
            if keys.len() == 1 {
                *least.entry(key.clone().into_bytes()).or_default() += facts.size() as i64;
            }
        }
    }
    let sum: i64 = types.entries.values().map(|amounts| amounts[1]).sum();
    assert_eq!(sum, all.iter().map(|(facts, _)| facts.size() as i64).sum::<i64>(), "{} after {after}", path.display());
    for (key, &[_, bytes, _]) in &types.entries {
        let range = least.get(key).copied().unwrap_or(0)..=most.get(key).copied().unwrap_or(0);
        let key = text(key);
        assert!(range.contains(&bytes), "{key}: {bytes} and not {range:?} in {} after {after}", path.display());
    }
    let mut sizes: Vec<i64> =
        all.iter().filter(|(facts, _)| facts.is_file()).map(|(facts, _)| facts.size() as i64).collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    sizes.truncate(5);
    let mut found: Vec<i64> = largest.entries.values().map(|amounts| amounts[0]).collect();
    found.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    assert_eq!(found, sizes, "the largest of {} after {after}", path.display());
    for key in largest.entries.keys() {
        let name = OsStr::from_bytes(&key[INODE_BYTES..]);
        let is_there = all.iter().any(|(_, names)| names.iter().any(|path| path.file_name() == Some(name)));
        assert!(is_there, "{name:?} of {} after {after}", path.display());
    }
}

fn random_operations(fs: Fs) {
    root_test!();
    let image = Image::new(fs, 1 << 30);
    let mut tracked = tracked(&image, ALL);
    let steps = if long() { 20_000 } else { 800 };
    let mut tree = Shuffled::new(image.root(), seed(), fs.has_reflinks());
    let mut log = Vec::new();
    for step in 0..steps {
        log.push(if step % 3 == 0 { tree.mark() } else { tree.step() });
        if step % 12 == 11 {
            let path = tree.directories[step / 12 % tree.directories.len()].clone();
            let recent = log[log.len().saturating_sub(30)..].join("\n");
            agrees(&mut tracked, &path, &format!("step {step} of seed {}:\n{recent}\n", seed()));
        }
    }
    for path in tree.directories.clone() {
        agrees(&mut tracked, &path, "all");
    }
    tracked.close().expect("it is closed");
    let (bytes, directories) = tracked.ledger().store().custom_size().expect("its size");
    say(&format!("{}: {} bytes a directory for six summaries", fs.name(), bytes / directories.max(1)));
}

#[test]
fn ext4_under_random_operations() {
    random_operations(Fs::Ext4);
}

#[test]
fn xfs_under_random_operations() {
    random_operations(Fs::Xfs);
}

#[test]
fn btrfs_under_random_operations() {
    random_operations(Fs::Btrfs);
}

/// XFS gives them another time by that, of which it tells nobody.
fn exchanged_directories_have_the_time_that_they_have(fs: Fs) {
    root_test!();
    let image = Image::new(fs, 512 << 20);
    let (one, other) = (image.root().join("a/one"), image.root().join("b/other"));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for path in [&one, &other] {
        fs::create_dir_all(path).expect("a directory");
        File::open(path).expect("it opens").set_modified(long_ago).expect("a time");
    }
    let mut tracked = tracked(&image, ALL);
    agrees(&mut tracked, &image.root(), "nothing");
    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("they change places");
    for path in ["a", "b", ""].map(|name| image.root().join(name)) {
        agrees(&mut tracked, &path, "an exchange");
    }
    fs::rename(image.root().join("a/one"), image.root().join("b/one")).expect("it moves");
    agrees(&mut tracked, &image.root(), "a rename");
}

#[test]
fn exchanged_directories_of_ext4_have_the_time_that_they_have() {
    exchanged_directories_have_the_time_that_they_have(Fs::Ext4);
}

#[test]
fn exchanged_directories_of_xfs_have_the_time_that_they_have() {
    exchanged_directories_have_the_time_that_they_have(Fs::Xfs);
}

#[test]
fn exchanged_directories_of_btrfs_have_the_time_that_they_have() {
    exchanged_directories_have_the_time_that_they_have(Fs::Btrfs);
}

/// A file of declarations.
fn declare(image: &Image, text: &str) -> PathBuf {
    let path = image.beside("summaries.toml");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    path
}

fn serve(image: &Image, text: &str) -> Serving {
    let file = declare(image, text);
    Serving::start_with(&[image], &[OsStr::new("--summaries"), file.as_os_str()])
}

fn as_user(command: &Command) -> Command {
    let mut user = Command::new("setpriv");
    user.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
    user.arg(command.get_program()).args(command.get_args());
    user
}

fn json(said: &[u8]) -> Value {
    serde_json::from_slice(said).unwrap_or_else(|error| panic!("{error}: {}", text(said)))
}

/// The values of a breakdown by their keys.
fn values(breakdown: &Value, what: &str) -> BTreeMap<String, i64> {
    let shares = breakdown["shares"].as_array().expect("a list");
    let pair = |share: &Value| Some((share["key"].as_str()?.to_owned(), share[what].as_i64()?));
    shares.iter().map(|share| pair(share).unwrap_or_else(|| panic!("no {what}: {share}"))).collect()
}

fn tree(root: &Path) {
    for (number, name) in ["a/b", "c", "private/inside"].into_iter().enumerate() {
        fs::create_dir_all(root.join(name)).expect("a directory");
        for (at, kind) in ["txt", "log", "c"].into_iter().enumerate() {
            let file = root.join(name).join(format!("f.{kind}"));
            fs::write(&file, vec![1; 10_000 * (number + 1) + at * 3000]).expect("a file");
            chown(&file, Some(1000 + at as u32), Some(100)).expect("an owner");
        }
    }
    fs::hard_link(root.join("private/inside/f.c"), root.join("c/shared.h")).expect("a link");
    fs::hard_link(root.join("a/b/f.c"), root.join("c/twice.h")).expect("a link");
    fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o700)).expect("a mode");
    crate::tree::sync(root);
}

#[test]
fn a_user_is_told_of_what_du_would_show() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let serving = serve(&image, ALL);
    let asked = |name: &str, path: &Path| json(&output(&mut serving.du(&["--json", "--by", name], path)));
    let shown = |name: &str, path: &Path| {
        let out = as_user(&serving.du(&["--json", "--by", name], path)).output().expect("it runs");
        let breakdown = json(&out.stdout);
        let is_partial = breakdown["partial"] == true;
        assert_eq!(out.status.code(), Some(is_partial.into()), "{}", text(&out.stderr));
        breakdown
    };
    for name in ["owner", "group", "type", "size", "age"] {
        for (uid, breakdown) in [(0, asked(name, &root)), (NOBODY, shown(name, &root))] {
            let sums = ["allocated", "bytes", "inodes"].map(|what| values(&breakdown, what).values().sum::<i64>());
            assert_eq!(sums, du(uid, &root), "{name} for {uid}: {breakdown}");
            assert_eq!(breakdown["partial"], uid != 0);
        }
    }
    let largest = |breakdown: &Value| values(breakdown, "bytes").into_keys().collect::<BTreeSet<_>>();
    assert!(largest(&asked("largest", &root)).contains("private/inside/f.log"));
    let seen = largest(&shown("largest", &root));
    assert!(seen.len() == 5 && seen.iter().all(|path| !path.starts_with("private")), "{seen:?}");
    // Seen, and hidden: the same inode is of the name that may be seen.
    assert_eq!(values(&shown("type", &root.join("c")), "inodes").get(".h"), Some(&2));
    let before = ["owner", "type", "largest"].map(|name| shown(name, &root)["shares"].clone());
    fs::write(root.join("private/inside/grown.iso"), vec![1; 1 << 20]).expect("a file");
    crate::tree::sync(&root);
    assert_eq!(["owner", "type", "largest"].map(|name| shown(name, &root)["shares"].clone()), before);
    assert_eq!(values(&asked("type", &root), "inodes").get(".iso"), Some(&1));
    let denied = as_user(&serving.du(&["--by", "owner"], &root.join("private"))).output().expect("it runs");
    assert_eq!(text(&denied.stdout), "4096\troot\n".replace("4096", "4"), "the directory itself");
    serving.end();
}

#[test]
fn what_stood_out_and_is_gone_is_found_again() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    fs::create_dir_all(root.join("a/b")).expect("directories");
    for number in 1..=8 {
        let below = ["", "a", "a/b"][number % 3];
        fs::write(root.join(below).join(format!("f{number}")), vec![1; number * 1000]).expect("a file");
    }
    let serving = serve(&image, "[largest]\nby = \"largest\"\ncount = 3\n");
    let asked = || {
        let said = text(&output(&mut serving.du(&["-b", "--by", "largest"], &root)));
        said.lines().map(|line| line.split_once('\t').expect("a tab").1.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(asked(), ["a/b/f8", "a/f7", "f6"]);
    fs::remove_file(root.join("a/b/f8")).expect("it goes");
    assert_eq!(asked(), ["a/f7", "f6", "a/b/f5"]);
    fs::rename(root.join("a/b"), root.join("b")).expect("a rename");
    assert_eq!(asked(), ["a/f7", "f6", "b/f5"]);
    File::options().write(true).open(root.join("a/f7")).expect("a file").set_len(10).expect("it is cut");
    assert_eq!(asked(), ["f6", "b/f5", "a/f4"]);
    fs::hard_link(root.join("f6"), root.join("b/second")).expect("a link");
    assert_eq!(asked().len(), 3, "an inode is there once");
    fs::remove_dir_all(root.join("b")).expect("it goes");
    assert_eq!(asked(), ["f6", "a/f4", "f3"]);
    serving.end();
}

/// Another declaration has everything harvested again, and the same one doesn't, also after a kill.
#[test]
fn another_declaration_is_seen() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let anew = "harvested anew: other summaries are declared";
    let asked = |serving: &Serving, name: &str| {
        let breakdown = json(&output(&mut serving.du(&["--json", "--by", name], &root)));
        assert_eq!(values(&breakdown, "allocated").values().sum::<i64>(), du(0, &root)[0], "{name}: {breakdown}");
    };
    let owner = "[owner]\nby = \"owner\"\n";
    let plain = Serving::start(&image);
    // Once it answers it has harvested everything.
    output(&mut plain.du(&["-s"], &root));
    let refused = finish(&mut plain.du(&["--by", "owner"], &root), 1);
    assert!(text(&refused.stderr).contains("no summaries are declared"), "{}", text(&refused.stderr));
    plain.end();
    let serving = serve(&image, owner);
    asked(&serving, "owner");
    let refused = finish(&mut serving.du(&["--by", "size"], &root), 1);
    assert!(text(&refused.stderr).contains("declared are owner"), "{}", text(&refused.stderr));
    let said = serving.kill_when_stored();
    assert!(said.contains(anew), "{said}");
    fs::write(root.join("c/new"), vec![1; 50_000]).expect("a file");
    crate::tree::sync(&root);
    let serving = serve(&image, owner);
    asked(&serving, "owner");
    let said = serving.end();
    assert!(!said.contains("anew"), "{said}");
    let serving = serve(&image, ALL);
    asked(&serving, "owner");
    asked(&serving, "age");
    let said = serving.end();
    assert!(said.contains(anew), "{said}");
    // Without any, and with some again: what was counted meanwhile was counted without them.
    let plain = Serving::start(&image);
    output(&mut plain.du(&["-s"], &root));
    plain.end();
    fs::remove_file(root.join("c/new")).expect("it goes");
    let serving = serve(&image, ALL);
    asked(&serving, "size");
    let said = serving.end();
    assert!(said.contains(anew), "{said}");
}

/// A script that a command runs; everybody may read it.
pub(crate) fn script(image: &Image, name: &str, text: &str) -> PathBuf {
    let path = image.beside(name);
    File::create(&path).and_then(|mut file| write!(file, "#!/bin/sh\n{text}")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    path
}

#[test]
fn a_command_tells_what_a_directory_adds() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    for (number, name) in ["a", "a/b", "c"].into_iter().enumerate() {
        fs::create_dir_all(root.join(name)).expect("a directory");
        for file in 0..=number {
            fs::write(root.join(name).join(format!("f{file}")), "x").expect("a file");
        }
    }
    let count = script(&image, "count", "n=$(grep -c '\"path\":\"f'); echo \"{\\\"files\\\": $n}\"\n");
    let who = script(
        &image,
        "who",
        "cat > /dev/null\necho \"{\\\"uid\\\": $(id -u), \\\"groups\\\": $(id -G | wc -w), \\\"net\\\": $(grep -c : /proc/net/dev)}\"\n",
    );
    let odd = script(
        &image,
        "odd",
        "all=$(cat); case $all in *slow*) sleep 1000 & sleep 1000;; *bad*) exit 3;; *words*) echo nonsense; exit;; esac\necho '{\"seen\": 1}'\n",
    );
    let table = |name: &str, program: &Path, merge: &str| {
        format!("[{name}]\nby = \"command\"\ncommand = [{program:?}]\nuser = 12345\nmerge = \"{merge}\"\n")
    };
    let text_of_all = [
        table("sum", &count, "sum"),
        table("min", &count, "min"),
        table("max", &count, "max"),
        table("top", &count, "top"),
        table("histogram", &count, "histogram"),
        table("who", &who, "max"),
        table("odd", &odd, "sum"),
    ]
    .concat();
    let serving = serve(&image, &text_of_all);
    let asked = |name: &str| json(&output(&mut serving.du(&["--json", "--by", name], &root)));
    let one = |name: &str, key: &str| values(&asked(name), "value").get(key).copied();
    assert_eq!(["sum", "min", "max", "top"].map(|name| one(name, "files")), [6, 0, 3, 3].map(Some));
    let directories = du(0, &root)[2] - 6;
    let histogram = values(&asked("histogram"), "value");
    assert_eq!(histogram.values().sum::<i64>(), directories, "{histogram:?}");
    assert_eq!(histogram.get("files 1"), Some(&3), "{histogram:?}");
    assert_eq!(["uid", "groups", "net"].map(|key| one("who", key)), [12345, 1, 1].map(Some));
    assert_eq!(one("odd", "seen"), Some(directories));
    // What can't be taken back is found again.
    fs::remove_file(root.join("c/f1")).expect("it goes");
    assert_eq!(["sum", "min", "max", "top"].map(|name| one(name, "files")), [5, 0, 2, 2].map(Some));
    // What can't be told is named, and the rest is still right.
    for (place, name) in [("a/b", "slow"), ("c", "bad"), ("a", "words")] {
        let file = root.join(place).join(name);
        fs::write(&file, "x").expect("a file");
        let out = finish(&mut serving.du(&["--json", "--by", "odd"], &root), 1);
        let breakdown = json(&out.stdout);
        assert_eq!((&breakdown["unknown"], &breakdown["unknown_in"]), (&1.into(), &vec![place].into()), "{breakdown}");
        assert_eq!(values(&breakdown, "value").get("seen"), Some(&(directories - 1)), "{breakdown}");
        let why = ["longer than 1 s", "exit status: 3", "one JSON object"];
        let why = why[["slow", "bad", "words"].iter().position(|known| *known == name).expect("known")];
        assert!(text(&out.stderr).contains(why), "{}", text(&out.stderr));
        fs::remove_file(&file).expect("it goes");
        assert_eq!(asked("odd")["unknown"], 0);
    }
    serving.end();
    // Nothing that was killed goes on; what is left of it, if anything, waits to be forgotten.
    let goes_on = || {
        let states = Command::new("ps").args(["-u", "12345", "-o", "stat="]).output().expect("ps runs").stdout;
        text(&states).lines().any(|state| !state.starts_with('Z'))
    };
    while goes_on() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn projects_are_told_apart() {
    root_test!();
    let image = Image::new(Fs::Xfs, 512 << 20);
    let root = image.root();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        fs::create_dir(root.join(name)).expect("a directory");
        for file in 0..=number {
            fs::write(root.join(name).join(format!("f{file}")), vec![1; 10_000]).expect("a file");
        }
    }
    let project = |path: &Path, number: u32| run(Command::new("chattr").args(["-p", &number.to_string()]).arg(path));
    project(&root.join("b/f0"), 42);
    project(&root.join("b"), 42);
    std::os::unix::fs::symlink("f0", root.join("b/link")).expect("a link");
    crate::tree::sync(&root);
    let serving = serve(&image, "[project]\nby = \"project\"\n");
    let asked_by = |options: &[&str]| values(&json(&output(&mut serving.du(options, &root))), "inodes");
    let asked = || asked_by(&["--json", "--by", "project"]);
    let expected = |zero: i64, other: i64| {
        let all = [("0", zero), ("42", other), ("(symbolic link)", 1)];
        all.into_iter().map(|(key, count)| (key.to_owned(), count)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(asked(), expected(4, 2));
    // The kernel doesn't tell of it, but of the new file, after which all of the directory is read.
    project(&root.join("b/f1"), 42);
    fs::write(root.join("b/new"), "").expect("a file");
    assert_eq!(asked(), expected(4, 3));
    let asked_for_sure = || asked_by(&["--sync", "--json", "--by", "project"]);
    project(&root.join("b/new"), 42);
    assert_eq!(asked_for_sure(), expected(3, 4));
    project(&root.join("b/new"), 0);
    assert_eq!(asked_for_sure(), expected(4, 3));
    serving.end();
}

#[test]
fn breakdowns_come_by_http() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let file = declare(&image, ALL);
    let web = Web::start_with(&image, &[&root], &[OsStr::new("--summaries"), file.as_os_str()]);
    let (status, listed) = web.get(&web.nobody, "/api/summaries");
    let listed = json(listed.as_bytes());
    assert_eq!((status, &listed[0]["name"], &listed[5]["by"]), (200, &"age".into(), &"extension".into()), "{listed}");
    for (uid, token) in [(0, &web.root), (NOBODY, &web.nobody)] {
        let (status, body) = web.get(token, &format!("/api/breakdown?by=owner&path={}", root.display()));
        assert_eq!(status, 200, "{body}");
        let breakdown = json(body.as_bytes());
        assert_eq!(values(&breakdown, "allocated").values().sum::<i64>(), du(uid, &root)[0], "{breakdown}");
    }
    let ask = |token: &str, query: &str| web.get(token, &format!("/api/breakdown?{query}")).0;
    let path = root.display();
    assert_eq!(ask(&web.root, &format!("path={path}")), 400);
    assert_eq!(ask(&web.root, &format!("by=colour&path={path}")), 404);
    assert_eq!(ask(&web.root, &format!("by=owner&limit=5&path={path}")), 400);
    assert_eq!(ask(&web.nobody, &format!("by=owner&path={path}/private/inside")), 404);
    assert_eq!(ask("wrong", &format!("by=owner&path={path}")), 401);
    let (_, metrics) = web.get(&web.root, "/metrics");
    let sample = |summary: &str, key: &str| {
        let name = "onesweep_directory_breakdown_inodes";
        let wanted = format!("{name}{{path=\"{path}\",summary=\"{summary}\",key=\"{key}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&wanted)?.parse::<i64>().ok())
    };
    assert_eq!([sample("type", ".txt"), sample("group", "100")], [Some(3), Some(9)], "{metrics}");
    openmetrics::parse(&metrics).unwrap_or_else(|why| panic!("{why}: {metrics}"));
}

#[test]
fn bad_declarations_are_told_before_anything_is_harvested() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let file = image.beside("summaries.toml");
    let said = || {
        let mut serve = onesweep(["serve", "--socket"]);
        serve.arg(image.beside("socket")).arg("--store").arg(image.beside("stores")).arg("--summaries").arg(&file);
        text(&finish(serve.arg(image.root()), 2).stderr)
    };
    assert!(said().contains("cannot use it to declare summaries: No such file"), "{}", said());
    declare(&image, "[a]\nby = \"colour\"\n");
    let wrong = said();
    assert!(
        wrong.contains("summaries.toml: cannot use it") && wrong.contains("[a]: unknown variant `colour`"),
        "{wrong}"
    );
    declare(&image, "[a]\nby = \"owner\"\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("a mode");
    assert!(said().contains("chown root and chmod 644 it"), "{}", said());
    assert!(!image.beside("stores").exists(), "nothing was begun");
    let without = finish(onesweep(["du", "--socket", "/nowhere", "--by", "owner"]).arg(image.root()), 1);
    assert!(text(&without.stderr).contains("start `onesweep serve --summaries FILE`"), "{}", text(&without.stderr));
    finish(&mut onesweep(["du", "--by", "owner", "-a"]), 1);
    finish(&mut onesweep(["du", "--json"]), 1);
}
