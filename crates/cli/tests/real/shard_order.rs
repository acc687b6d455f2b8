//! `onesweep shard` packs in one sweep: what it reads comes in the order of the plan, each block once; where it puts what it has
//! read is the plan's order within the reach of the shuffle, and the indexes say where that is.

use std::{
    collections::HashMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    image::{Fs, Image},
    run::{finish, onesweep, output, root_test, text},
    shards::{key, names_in, read_back, samples},
    trace::{self, Request},
    tree::until_another_second,
};

const RECORD: u64 = 10_240;
const BLOCK: u64 = 512;

/// A file as the plan has it.
struct Planned {
    name: String,
    size: u64,
    /// Bytes of the device, of a file in one piece.
    place: Range<u64>,
}

/// The files of a tree with content in the order of the sweep, each in one piece.
fn planned(root: &Path) -> Vec<Planned> {
    let told = output(onesweep(["list", "-q", "--json", "--order", "fragment"]).arg(root));
    let file = |line: &str| {
        let told: serde_json::Value = serde_json::from_str(line).expect("an object");
        let (address, size) = (told["address"].as_u64().expect("a place"), told["size"].as_u64().expect("a size"));
        assert_eq!(told["fragments"], 1, "{line}");
        let path = Path::new(told["path"].as_str().expect("a path"));
        let name = path.strip_prefix(root).expect("in the tree").to_str().expect("UTF-8").to_owned();
        Planned { name, size, place: address..address + size.next_multiple_of(4096) }
    };
    text(&told).lines().map(file).collect()
}

/// A tree whose samples have their files far apart, on an image that is cold.
fn tree() -> (Image, PathBuf) {
    let image = Image::new(Fs::Ext4, 512 << 20);
    let root = image.root().join("tree");
    samples(&root, 240);
    // What was changed a second ago is read once more, from memory: it may change again without another ctime.
    (0..2).for_each(|_| until_another_second());
    (image, root)
}

fn shard(root: &Path, out: &Path, options: &[&str]) -> Command {
    let mut shard = onesweep(["shard", "-q", "--order", "fragment"]);
    shard.args(options).arg(root).arg(out);
    shard
}

#[test]
fn the_source_is_read_in_the_order_of_the_plan_and_once() {
    root_test!();
    let (mut image, root) = tree();
    let files = planned(&root);
    assert!(files.len() > 500, "{}", files.len());
    // A file by where it lies; of what lies elsewhere, metadata.
    let file_at = |request: &Request| files.iter().position(|file| file.place.contains(&request.start));
    for (number, shuffle) in ["0", "1M"].into_iter().enumerate() {
        // Requests that wait together may change places.
        let options = ["--queue-depth", "1", "--shuffle", shuffle, "--max-count", "50"];
        let out = image.beside(&format!("out-{number}"));
        let requests = trace::of_command(&mut image, shard(&root, &out, &options));
        let mut read: Vec<(usize, Range<u64>)> =
            requests.iter().filter_map(|request| Some((file_at(request)?, request.start..request.end()))).collect();
        let mut order: Vec<usize> = read.iter().map(|(file, _)| *file).collect();
        order.dedup();
        assert_eq!(order, (0..files.len()).collect::<Vec<_>>(), "shuffle of {shuffle}");
        read.sort_by_key(|(_, place)| place.start);
        let twice = read.windows(2).find(|pair| pair[0].1.end > pair[1].1.start);
        assert_eq!(twice, None, "shuffle of {shuffle}");
        let bytes: u64 = read.iter().map(|(_, place)| place.end - place.start).sum();
        assert_eq!(bytes, files.iter().map(|file| file.place.end - file.place.start).sum::<u64>());
    }
}

/// A sample in the order of the plan, with what it takes in a shard.
struct Sample {
    key: String,
    bytes: u64,
}

/// Samples in the order of the first of their files.
fn by_plan(files: &[Planned]) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for file in files {
        let bytes = BLOCK + file.size.next_multiple_of(BLOCK);
        match samples.iter_mut().find(|sample| sample.key == key(&file.name)) {
            Some(sample) => sample.bytes += bytes,
            None => samples.push(Sample { key: key(&file.name).to_owned(), bytes }),
        }
    }
    samples
}

/// Shard and key of each sample that was packed.
fn packed(out: &Path) -> Vec<(String, String)> {
    let mut samples: Vec<_> =
        read_back(out).into_iter().map(|(shard, name, _)| (shard, key(&name).to_owned())).collect();
    samples.dedup();
    samples
}

/// How many bytes of the plan a sample overtakes, at most.
fn farthest(planned: &[Sample], packed: &[(String, String)]) -> u64 {
    let turn: HashMap<&str, usize> =
        planned.iter().enumerate().map(|(turn, sample)| (sample.key.as_str(), turn)).collect();
    let mut waits = vec![true; planned.len()];
    let mut overtaken = |key: &str| {
        let turn = turn[key];
        waits[turn] = false;
        (0..turn).filter(|before| waits[*before]).map(|before| planned[before].bytes).sum()
    };
    packed.iter().map(|(_, key)| overtaken(key)).max().unwrap_or(0)
}

#[test]
fn samples_come_in_the_order_of_the_plan_within_the_reach_of_the_shuffle() {
    root_test!();
    let (image, root) = tree();
    let planned = by_plan(&planned(&root));
    let (plain, near, far) = (image.beside("plain"), image.beside("near"), image.beside("far"));
    let pack = |out: &Path, reach: &str| {
        finish(&mut shard(&root, out, &["--seed", "7", "--shuffle", reach]), 0);
        packed(out)
    };
    let order: Vec<String> = pack(&plain, "0").into_iter().map(|(_, key)| key).collect();
    assert_eq!(order, planned.iter().map(|sample| sample.key.clone()).collect::<Vec<_>>());
    let [near, far] = [(&near, "256K"), (&far, "2M")].map(|(out, reach)| farthest(&planned, &pack(out, reach)));
    // It looks as far ahead as it may, not only as far as it must.
    assert!((128 << 10..=256 << 10).contains(&near), "{near}");
    assert!((1 << 20..=2 << 20).contains(&far), "{far}");
}

#[test]
fn shards_are_as_full_as_they_may_be() {
    root_test!();
    let (image, root) = tree();
    let bytes: HashMap<String, u64> =
        by_plan(&planned(&root)).into_iter().map(|sample| (sample.key, sample.bytes)).collect();
    let limits: [(&str, &[&str], u64, u64); 3] = [
        ("count", &["--max-count", "50"], 50, 1 << 30),
        ("size", &["--max-size", "700K"], u64::MAX, 700 << 10),
        ("both", &["--max-count", "40", "--max-size", "900K"], 40, 900 << 10),
    ];
    for (name, options, max_count, max_bytes) in limits {
        let out = image.beside(name);
        finish(&mut shard(&root, &out, options), 0);
        let mut shards: Vec<(String, u64, u64)> = Vec::new();
        for (shard, key) in packed(&out) {
            let more = bytes[&key];
            match shards.last_mut() {
                Some((last, count, held)) if *last == shard => (*count, *held) = (*count + 1, *held + more),
                last => {
                    // Zeros at the end, and then whole records.
                    let len = |bytes: u64| (bytes + 2 * BLOCK).next_multiple_of(RECORD);
                    if let Some((last, count, held)) = last {
                        let is_full = *count == max_count || len(*held + more) > max_bytes;
                        assert!(is_full, "{name}: {last} has {count} samples, {held} bytes, and room for {key}");
                    }
                    shards.push((shard, 1, more));
                }
            }
        }
        assert!(shards.len() > 2, "{name}: {}", shards.len());
        for (shard, count, _) in &shards {
            let len = fs::metadata(out.join(shard)).expect("a shard").len();
            assert!(*count <= max_count && len <= max_bytes, "{name}: {shard} has {count} samples and {len} bytes");
        }
    }
}

/// Compares both kinds of index with what `tarfile` finds.
const INDEXES: &str = "
import collections, glob, json, os, sys, tarfile
out = sys.argv[1]
told = json.load(open(os.path.join(out, 'index.json')))['shardlist']
shards = sorted(os.path.basename(path) for path in glob.glob(os.path.join(out, '*.tar')))
assert [shard['url'] for shard in told] == shards, (told, shards)
for shard in told:
    path = os.path.join(out, shard['url'])
    assert shard['filesize'] == os.path.getsize(path), shard
    with tarfile.open(path) as tar:
        members = [(member.name, member.offset_data, member.size) for member in tar]
    samples = collections.OrderedDict()
    for name, at, size in members:
        directory, base = os.path.split(name)
        key, extension = base.split('.', 1)
        samples.setdefault(os.path.join(directory, key), []).append(f'{extension} {at} {size} {name}')
    assert shard['nsamples'] == len(samples), shard
    lines = open(path[:-4] + '.idx').read().splitlines()
    assert lines == [f'v1.2 {len(samples)}'] + [' '.join(sample) for sample in samples.values()], path
    print(len(members))
";

#[test]
fn the_indexes_say_what_is_in_the_shards() {
    root_test!();
    let (image, root) = tree();
    let out = image.beside("out");
    finish(&mut shard(&root, &out, &["--shuffle", "1M", "--max-count", "50"]), 0);
    let told = text(&output(Command::new("python3").args(["-c", INDEXES]).arg(&out)));
    let members: usize = told.lines().map(|line| line.parse::<usize>().expect("a number")).sum();
    assert_eq!((members, told.lines().count()), (planned(&root).len(), 5));
    assert_eq!(names_in(&out).len(), 5 + 5 + 1);
}
