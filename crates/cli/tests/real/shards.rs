//! Shards of `onesweep shard` hold what the tree holds, sample by sample, and there are all of them or none.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use crate::{
    bad_input::interrupt,
    image::{Folder, Fs, Image},
    run::{figure, finish, interruptible, onesweep, output, root_test, run, seed, summary, text},
    tree::{Rng, sync},
};

/// Tells of all shards of a directory, by Python's `tarfile`: shard, name, size and sum of each member, one to a line.
const READER: &str = "
import glob, hashlib, os, sys, tarfile
for path in sorted(glob.glob(os.path.join(sys.argv[1], '*.tar'))):
    with tarfile.open(path) as shard:
        for member in shard:
            content = shard.extractfile(member).read()
            assert member.isreg() and len(content) == member.size and (member.uid, member.mode) == (0, 0o644)
            print(os.path.basename(path), member.name, member.mtime, hashlib.sha256(content).hexdigest())
";

/// Members in their order, as shard, name and the rest.
pub(crate) fn read_back(out: &Path) -> Vec<(String, String, String)> {
    let told = text(&output(Command::new("python3").args(["-c", READER]).arg(out)));
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        let mut word = || words.next().expect("three words");
        (word(), word(), word())
    };
    told.lines().map(line).collect()
}

/// What Python should tell of each file of a tree, by its name.
fn content_of(root: &Path) -> BTreeMap<String, String> {
    const LISTER: &str = "
import hashlib, os, sys
for at, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(at, name)
        content = open(path, 'rb').read()
        print(os.path.relpath(path, sys.argv[1]), int(os.stat(path).st_mtime), hashlib.sha256(content).hexdigest())
";
    let told = text(&output(Command::new("python3").args(["-c", LISTER]).arg(root)));
    told.lines().filter_map(|line| line.split_once(' ').map(|(name, rest)| (name.into(), rest.into()))).collect()
}

/// Samples of two and three files, whose files are written far apart.
pub(crate) fn samples(root: &Path, count: u64) {
    let mut rng = Rng::new(seed());
    for extension in ["jpg", "json", "seg.png"] {
        for number in 0..count {
            let folder = root.join(format!("class.{}", number % 5));
            fs::create_dir_all(&folder).expect("a folder");
            if extension != "seg.png" || number % 3 == 0 {
                let size = if number == 7 { 300_000 } else { rng.size(6000.0, 100_000) };
                fs::write(folder.join(format!("{number:04}.{extension}")), rng.bytes(size as usize)).expect("a file");
            }
        }
    }
    sync(root);
}

pub(crate) fn key(name: &str) -> &str {
    let base = name.rfind('/').map_or(0, |at| at + 1);
    &name[..base + name[base..].find('.').expect("a dot")]
}

pub(crate) fn names_in(out: &Path) -> Vec<String> {
    let entries = fs::read_dir(out).expect("the directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const SMALL_SHARDS: [&str; 4] = ["--max-count", "50", "--max-size", "1M"];

/// Cold, warm, within a small budget, streamed: the same shards, and in them what the tree holds.
#[test]
fn shards_hold_the_tree_sample_by_sample() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let mut image = Image::new(fs, 512 << 20);
        let root = image.root().join("tree");
        samples(&root, 240);
        fs::write(root.join("README"), "no sample").expect("a file");
        fs::hard_link(root.join("class.1/0001.jpg"), root.join("again.jpg")).expect("a second name");
        fs::write(root.join("empty.txt"), "").expect("a file");
        fs::File::create(root.join("hole.bin")).and_then(|file| file.set_len(200_000)).expect("a hole");
        sync(&root);
        let mut expected = content_of(&root);
        expected.remove("README");
        let mut first = None;
        let queue: &[&str] = &["--queue-depth", "2"];
        let runs: [(bool, &[&str]); 5] =
            [(true, &[]), (false, &[]), (true, queue), (true, &["--budget", "256K"]), (true, &["--large", "4K"])];
        for (number, (is_cold, options)) in runs.into_iter().enumerate() {
            if is_cold {
                image.cold();
            }
            let out = image.beside(&format!("out-{number}"));
            let mut shard = onesweep(["shard", "--json", "--seed", "3", "--order", "fragment", "--shuffle", "300K"]);
            let done = finish(shard.args(SMALL_SHARDS).args(options).arg(&root).arg(&out), 0);
            assert!(text(&done.stderr).contains("1 files belong to no sample"), "{}", text(&done.stderr));
            assert!(!text(&done.stderr).contains("after the plan"), "{}", text(&done.stderr));
            let told = summary(&done.stdout);
            let members = read_back(&out);
            assert_eq!(figure(&told, "details.members"), members.len() as u64);
            assert_eq!(figure(&told, "details.samples"), 243);
            let found: BTreeMap<_, _> = members.iter().map(|(_, name, rest)| (name.clone(), rest.clone())).collect();
            assert_eq!((found.len(), &found), (members.len(), &expected), "each file once, and as it is");
            let mut groups: Vec<(&str, &str)> = members.iter().map(|(shard, name, _)| (&**shard, key(name))).collect();
            groups.dedup();
            assert_eq!(groups.len(), 243, "the files of a sample stand side by side");
            for name in names_in(&out).iter().filter(|name| name.ends_with(".tar")) {
                assert!(fs::metadata(out.join(name)).expect("a shard").len() <= 1 << 20, "{name}");
            }
            // What doesn't fit the budget, or is streamed, is read at another time.
            if number < 3 {
                assert_eq!(*first.get_or_insert(members.clone()), members, "{options:?}: a seed gives the same shards");
            }
        }
        let out = image.beside("other-seed");
        let mut shard = onesweep(["shard", "-q", "--seed", "4", "--order", "fragment", "--shuffle", "300K"]);
        finish(shard.args(SMALL_SHARDS).arg(&root).arg(&out), 0);
        assert_ne!(Some(read_back(&out)), first);
    }
}

/// Nothing is written into what is read, nor over what is there, and a tree without samples makes no directory.
#[test]
fn what_could_do_harm_is_refused() {
    let folder = Folder::new();
    let (root, out) = (folder.join("tree"), folder.join("out"));
    samples(&root, 10);
    for out in [root.clone(), root.join("new"), root.join("class.1")] {
        let refused = finish(onesweep(["shard"]).arg(&root).arg(&out), 2);
        assert!(text(&refused.stderr).contains("which is read"), "{}", text(&refused.stderr));
    }
    assert_eq!(names_in(&root), ["class.0", "class.1", "class.2", "class.3", "class.4"]);
    fs::create_dir(&out).expect("a folder");
    fs::write(out.join("mine"), "x").expect("a file");
    let refused = finish(onesweep(["shard"]).arg(&root).arg(&out), 2);
    assert!(text(&refused.stderr).contains("it holds mine already"), "{}", text(&refused.stderr));
    assert_eq!(names_in(&out), ["mine"]);
    let (bare, new) = (folder.join("bare"), folder.join("new"));
    fs::create_dir(&bare).expect("a folder");
    fs::write(bare.join("README"), "x").expect("a file");
    finish(onesweep(["shard"]).arg(&bare).arg(&new), 2);
    finish(onesweep(["shard"]).arg(folder.join("gone")).arg(&new), 2);
    let refused = finish(onesweep(["shard", "--catalog-limit", "2K"]).arg(&root).arg(&new), 2);
    assert!(text(&refused.stderr).contains("--catalog-limit"), "{}", text(&refused.stderr));
    assert!(!new.exists());
}

/// Two files that readers of shards can't tell apart: the one is packed, the other told of.
#[test]
fn extensions_that_differ_in_capitals_are_told_of() {
    let folder = Folder::new();
    let (root, out) = (folder.join("tree"), folder.join("out"));
    fs::create_dir(&root).expect("a folder");
    for name in ["a.JPG", "a.jpg", "b.jpg"] {
        fs::write(root.join(name), name).expect("a file");
    }
    let told = finish(onesweep(["shard"]).arg(&root).arg(&out), 1);
    assert!(text(&told.stderr).contains("a.JPG has the same extension"), "{}", text(&told.stderr));
    let names: Vec<String> = read_back(&out).into_iter().map(|(_, name, _)| name).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(sorted, ["a.JPG", "b.jpg"]);
}

/// A disk that is too small is known before anything is read, and is as empty afterwards as it was.
#[test]
fn a_full_disk_leaves_nothing() {
    root_test!();
    let folder = Folder::new();
    let (root, small) = (folder.join("tree"), Image::new(Fs::Ext4, 16 << 20));
    fs::create_dir(&root).expect("a folder");
    for number in 0..20 {
        fs::write(root.join(format!("{number}.bin")), Rng::new(number).bytes(1 << 20)).expect("a file");
    }
    for out in [small.root(), small.root().join("new")] {
        let refused = finish(onesweep(["shard", "--max-size", "5M"]).arg(&root).arg(&out), 2);
        assert!(text(&refused.stderr).contains("make room"), "{}", text(&refused.stderr));
        assert_eq!(names_in(&small.root()), ["lost+found"]);
    }
}

/// Interrupted once or twice, there is nothing that could pass for a data set.
#[test]
fn an_interrupt_leaves_no_shards() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 128 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    for number in 0..40 {
        fs::write(root.join(format!("{number}.bin")), Rng::new(number).bytes(512 << 10)).expect("a file");
    }
    sync(&root);
    image.cold();
    for twice in [false, true] {
        let out: PathBuf = image.beside(if twice { "twice" } else { "once" });
        fs::create_dir(&out).expect("a folder");
        let mut shard = interruptible(["shard", "--bwlimit", "1M", "--budget", "2M", "--max-request", "512K"]);
        let mut running = shard.args(["--max-size", "2M"]).arg(&root).arg(&out).spawn().expect("it starts");
        while names_in(&out).is_empty() {
            assert!(running.try_wait().expect("its state").is_none(), "it ended before it was interrupted");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(names_in(&out).iter().all(|name| name.ends_with(".partial")), "{:?}", names_in(&out));
        if twice {
            for signal in ["-STOP", "-INT", "-TERM", "-CONT"] {
                run(Command::new("kill").args([signal, &running.id().to_string()]));
            }
        } else {
            interrupt(&running);
        }
        let status = running.wait().expect("it ends");
        assert_eq!(status.code(), Some(130), "{status}");
        assert_eq!(names_in(&out), Vec::<String>::new());
    }
}

/// Killed, it leaves nothing by a final name.
#[test]
fn a_kill_leaves_no_final_name() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 128 << 20);
    let (root, out) = (image.root().join("tree"), image.beside("out"));
    samples(&root, 100);
    image.cold();
    let mut shard = onesweep(["shard", "--bwlimit", "100K", "--budget", "256K", "--max-size", "50K"]);
    let mut running = shard.arg(&root).arg(&out).spawn().expect("it starts");
    while !out.exists() || names_in(&out).is_empty() {
        assert!(running.try_wait().expect("its state").is_none(), "it ended before it was killed");
        thread::sleep(Duration::from_millis(5));
    }
    running.kill().expect("it is ours");
    running.wait().expect("it ends");
    assert!(names_in(&out).iter().all(|name| name.starts_with('.') && name.ends_with(".partial")));
    let refused = finish(onesweep(["shard"]).arg(&root).arg(&out), 2);
    assert!(text(&refused.stderr).contains("it holds ."), "{}", text(&refused.stderr));
}

/// A data set of links into a store of contents, whose names have no dot and come first.
#[test]
fn links_into_a_store_of_contents_are_packed_in_each_order() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let root = image.root().join("tree");
    let mut rng = Rng::new(17);
    for folder in ["cache", "train", "validation"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for number in 0..40 {
        let object = root.join(format!("cache/{number:032x}"));
        fs::write(&object, rng.bytes(2000 + 100 * number)).expect("a file");
        fs::hard_link(&object, root.join(format!("train/{number}.jpg"))).expect("a link");
        if number % 4 == 0 {
            fs::hard_link(&object, root.join(format!("validation/{number}.jpg"))).expect("a link");
        }
    }
    sync(&root);
    for order in ["fragment", "directory"] {
        let out = image.beside(order);
        finish(onesweep(["shard", "-q", "--order", order]).arg(&root).arg(&out), 0);
        let found: BTreeMap<_, _> = read_back(&out).into_iter().map(|(_, name, rest)| (name, rest)).collect();
        let expected: BTreeMap<_, _> =
            content_of(&root).into_iter().filter(|(name, _)| name.ends_with(".jpg")).collect();
        assert_eq!((found.len(), found), (50, expected), "{order}");
    }
}

/// A power cut right after the end finds them.
#[test]
fn names_are_durable_when_it_ends() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let root = image.root().join("tree");
    samples(&root, 20);
    let (out, calls) = (image.beside("out"), image.beside("calls"));
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-e", "trace=/^(rename.*|fsync|syncfs)$", "-o"]).arg(&calls).arg(crate::run::program());
    finish(traced.args(["shard", "-q"]).arg(&root).arg(&out), 0);
    let calls = fs::read_to_string(calls).expect("what strace wrote");
    let place = |at: Option<usize>| at.unwrap_or_else(|| panic!("{calls}"));
    let last =
        |what: &str| place(calls.lines().enumerate().filter(|(_, line)| line.contains(what)).last().map(|(at, _)| at));
    assert!(last("index.json") < last(" fsync("), "{calls}");
}
