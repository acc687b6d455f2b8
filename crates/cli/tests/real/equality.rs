//! What is delivered is what is there: the bytes of every file equal those that `find` and `sha256sum` see, on each file
//! system, in each order, by each strategy, within any budget, by any reassembly, and without any one kernel feature.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    archives::compare,
    image::{Folder, Fs, Image, unmount},
    run::{figure, finish, long, onesweep, path_of, root_test, run, say, seed, summary, text},
    tree::{self, Rng, Varied, sum_lines, sums},
};

/// The ways to run that shall make no difference: one choice is taken from each list.
const CHOICES: &[&[&[&str]]] = &[
    &[
        &["--order", "auto"],
        &["--order", "fragment"],
        &["--order", "first-extent"],
        &["--order", "inode"],
        &["--order", "inode-per-directory"],
        &["--order", "first-extent-per-directory"],
        &["--order", "directory"],
    ],
    // Only a device can be read through its gaps.
    &[
        &["--strategy", "vanilla"],
        &["--strategy", "unmerged"],
        &["--device"],
        &["--device", "--strategy", "vanilla"],
        &["--device", "--strategy", "unmerged"],
        &["--device", "--strategy", "merged"],
    ],
    &[
        &["--reassembly", "deferred"],
        &["--reassembly", "first-fit"],
        &["--reassembly", "on-demand"],
        &["--threshold", "200000"],
    ],
    &[&["--budget", "1M"], &["--budget", "3M"], &["--budget", "64M"]],
    &[&[], &["--large", "100K"]],
    &[&[], &["--catalog-limit", "64K"]],
    &[
        &[],
        &["hide", "cachestat"],
        &["hide", "treesearch"],
        &["hide", "dontcache"],
        &["hide", "io_uring"],
        &["hide", "fiemap"],
        &["hide", "direct"],
        &["hide", "openat2"],
        &["hide", "cachestat,dontcache,io_uring,fiemap,direct,openat2"],
    ],
];

/// One way to run: for each list of choices, which one.
type Way = Vec<usize>;

/// Ways that hold every combination of `strength` choices of different lists at least once, chosen greedily; leaves out
/// combinations that no allowed way seems to hold.
fn covering(lengths: &[usize], strength: usize, seed: u64, allowed: impl Fn(&Way) -> bool) -> Vec<Way> {
    let mut rng = Rng::new(seed);
    let groups = subsets(lengths.len(), strength);
    let mut missing: BTreeSet<Vec<(usize, usize)>> = groups
        .iter()
        .flat_map(|group| {
            let mut combinations = vec![Vec::new()];
            for &list in group {
                combinations = (0..lengths[list])
                    .flat_map(|choice| {
                        combinations.iter().map(move |start| {
                            let mut longer: Vec<(usize, usize)> = start.clone();
                            longer.push((list, choice));
                            longer
                        })
                    })
                    .collect();
            }
            combinations
        })
        .collect();
    let mut ways = Vec::new();
    while let Some(first) = missing.iter().next().cloned() {
        // Of some ways that hold the first missing combination, the one that holds most of the others.
        let candidate = |rng: &mut Rng| {
            let mut way: Way = lengths.iter().map(|&length| rng.below(length as u64) as usize).collect();
            first.iter().for_each(|&(list, choice)| way[list] = choice);
            way
        };
        let held = |way: &Way| {
            groups
                .iter()
                .map(|group| group.iter().map(|&list| (list, way[list])).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        let candidates: Vec<Way> = (0..100).map(|_| candidate(&mut rng)).filter(|way| allowed(way)).take(40).collect();
        let gain = |way: &&Way| held(way).iter().filter(|combination| missing.contains(*combination)).count();
        let Some(best) = candidates.iter().max_by_key(gain).cloned() else {
            missing.remove(&first);
            continue;
        };
        held(&best).iter().for_each(|combination| {
            missing.remove(combination);
        });
        ways.push(best);
    }
    ways
}

/// All ways to take `count` of the numbers below `end`, each in rising order.
fn subsets(end: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    (0..end)
        .flat_map(|last| {
            subsets(last, count - 1).into_iter().map(move |mut start| {
                start.push(last);
                start
            })
        })
        .collect()
}

/// The command-line options and the hidden features of a way.
fn options_of(way: &Way) -> (Vec<&'static str>, Option<&'static str>) {
    let mut options = Vec::new();
    let mut hidden = None;
    for (list, &choice) in CHOICES.iter().zip(way) {
        match list[choice] {
            ["hide", features] => hidden = Some(*features),
            other => options.extend_from_slice(other),
        }
    }
    (options, hidden)
}

fn program(command: &str, (options, hidden): &(Vec<&str>, Option<&str>)) -> Command {
    let mut program = onesweep([command]);
    program.args(options);
    if let Some(features) = hidden {
        program.env("ONESWEEP_HIDE", features);
    }
    program
}

/// The first differences between what is there and what was delivered, in words.
pub(crate) fn differences(there: &BTreeMap<Vec<u8>, String>, delivered: &BTreeMap<Vec<u8>, String>) -> Option<String> {
    let mut said = Vec::new();
    for (name, sum) in there {
        match delivered.get(name) {
            None => said.push(format!("missing: {:?}", path_of(name))),
            Some(other) if other != sum => said.push(format!("other bytes: {:?}", path_of(name))),
            Some(_) => {}
        }
    }
    let more = delivered.keys().filter(|name| !there.contains_key(*name));
    said.extend(more.map(|name| format!("not there: {:?}", path_of(name))));
    let count = said.len();
    said.truncate(10);
    (count > 0).then(|| format!("{count} of {} files differ\n{}", there.len(), said.join("\n")))
}

/// What `onesweep sum` delivers.
pub(crate) fn by_sum(roots: &[&Path], options: &(Vec<&str>, Option<&str>)) -> BTreeMap<Vec<u8>, String> {
    let out = finish(program("sum", options).args(["--algorithm", "sha256"]).args(roots), 0);
    let lines = sum_lines(&out.stdout);
    let count = lines.len();
    let delivered: BTreeMap<_, _> = lines.into_iter().collect();
    assert_eq!(delivered.len(), count, "some files were delivered twice");
    delivered
}

/// What GNU tar extracts from the archive that `onesweep tar` makes, under the names of the tree.
fn by_tar(root: &Path, options: &(Vec<&str>, Option<&str>)) -> BTreeMap<Vec<u8>, String> {
    let folder = Folder::new();
    let (archive, out) = (folder.join("archive.tar"), folder.join("out"));
    fs::create_dir(&out).expect("a folder");
    finish(program("tar", options).arg("-cf").arg(&archive).arg("-C").arg(root).arg("."), 0);
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out));
    let rename = |(name, sum): (Vec<u8>, String)| {
        let name = path_of(&name);
        let below = name.strip_prefix(&out).expect("below the root");
        (root.join(below).as_os_str().as_bytes().to_vec(), sum)
    };
    sums(&[&out]).into_iter().map(rename).collect()
}

fn image_with_a_varied_tree(fs: Fs) -> (Image, PathBuf) {
    with_a_varied_tree(Image::new(fs, 640 << 20))
}

fn with_a_varied_tree(mut image: Image) -> (Image, PathBuf) {
    let fs = image.fs;
    let root = image.root().join("tree");
    let what = Varied { files: if long() { 1500 } else { 500 }, sparse: 24 << 20 };
    tree::varied(&root, fs, &what, seed());
    image.cold();
    (image, root)
}

fn all_ways_deliver_the_same(fs: Fs) {
    let (mut image, root) = image_with_a_varied_tree(fs);
    let there = sums(&[&root]);
    image.cold();
    let lengths: Vec<usize> = CHOICES.iter().map(|list| list.len()).collect();
    let strength = if long() { 3 } else { 2 };
    let allowed = |way: &Way| {
        let (options, hidden) = options_of(way);
        // Without cachestat nobody can tell whether the device is up to date, and buffered reads of it may be old.
        let can = !hidden.is_some_and(|features| features.contains("cachestat") || features.contains("direct"));
        !options.contains(&"--device") || fs.has_device_mode() && can
    };
    let ways = covering(&lengths, strength, seed(), allowed);
    let count = ways.len();
    for (number, way) in ways.into_iter().enumerate() {
        let options = options_of(&way);
        // Every other way starts from cold; between them all is cached, which is a way of its own.
        if number % 2 == 0 {
            image.cold();
        }
        let delivered = if number % 3 == 2 { by_tar(&root, &options) } else { by_sum(&[&root], &options) };
        if let Some(differences) = differences(&there, &delivered) {
            panic!("{} with {options:?}: {differences}", fs.name());
        }
    }
    say(&format!("{}: {} files the same by {count} ways", fs.name(), there.len()));
}

/// An order says when a file is read, not from where.
#[test]
fn device_mode_reads_the_device_in_every_order() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let (mut image, root) = image_with_a_varied_tree(fs);
        let there = sums(&[&root]);
        for order in ["fragment", "first-extent", "inode", "inode-per-directory", "directory"] {
            // What was written just now is read through its file system.
            std::thread::sleep(Duration::from_millis(2200));
            image.cold();
            let mut sum = onesweep(["sum", "--json", "--algorithm", "sha256", "--device", "--order", order]);
            let out = finish(sum.arg(&root), 0);
            let through = figure(&summary(&out.stderr), "through.files") as usize;
            assert!(through < there.len() / 2, "{} {order}: {through} of {} files", fs.name(), there.len());
            assert_eq!(differences(&there, &sum_lines(&out.stdout).into_iter().collect()), None, "{order}");
        }
    }
}

#[test]
fn ext4_all_ways_deliver_the_same() {
    root_test!();
    all_ways_deliver_the_same(Fs::Ext4);
}

#[test]
fn ext4_with_small_blocks_all_ways_deliver_the_same() {
    root_test!();
    all_ways_deliver_the_same(Fs::Ext4Small);
}

#[test]
fn ext4_with_inline_data_all_ways_deliver_the_same() {
    root_test!();
    all_ways_deliver_the_same(Fs::Ext4Inline);
}

#[test]
fn xfs_all_ways_deliver_the_same() {
    root_test!();
    all_ways_deliver_the_same(Fs::Xfs);
}

#[test]
fn btrfs_all_ways_deliver_the_same() {
    root_test!();
    all_ways_deliver_the_same(Fs::Btrfs);
}

/// On btrfs the addresses of the mapping are not those of the device: device mode must say so instead of reading
/// something else.
#[test]
fn btrfs_is_refused_by_device_mode() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 256 << 20);
    fs::write(image.root().join("a"), vec![1; 100_000]).expect("a file");
    let out = finish(onesweep(["sum", "--algorithm", "sha256", "--device"]).arg(image.root()), 2);
    let said = text(&out.stderr);
    assert!(said.contains("btrfs"), "the message names the file system: {said}");
    assert!(said.contains(&*image.root().to_string_lossy()), "the message names the path: {said}");
    assert!(out.stdout.is_empty());
}

/// What was written lies in the journal, and the device holds what was there before.
#[test]
fn a_journal_of_data_is_refused_by_device_mode() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 256 << 20);
    image.unmount();
    image.set_options("data=journal");
    image.mount();
    fs::write(image.root().join("a"), vec![1; 100_000]).expect("a file");
    let out = finish(onesweep(["sum", "--device"]).arg(image.root()), 2);
    let said = text(&out.stderr);
    assert!(said.contains("data=journal") && said.contains("leave out --device"), "{said}");
    assert!(out.stdout.is_empty());
    finish(onesweep(["sum"]).arg(image.root()), 0);
}

/// The kernel doesn't show it among the mount's options where it is the superblock's own default.
#[test]
fn a_journal_of_data_by_default_is_refused_too() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 256 << 20);
    image.unmount();
    run(Command::new("tune2fs").args(["-o", "journal_data"]).arg(image.device()));
    image.mount();
    fs::write(image.root().join("a"), vec![1; 100_000]).expect("a file");
    let out = finish(onesweep(["sum", "--device"]).arg(image.root()), 2);
    assert!(text(&out.stderr).contains("data=journal"), "{}", text(&out.stderr));
    finish(onesweep(["sum"]).arg(image.root()), 0);
}

/// What the device holds of an encrypted file is not what the file holds, though ext4 doesn't say so of its extents.
#[test]
fn encrypted_files_are_read_through_the_file_system() {
    root_test!();
    let mut image = Image::with(Fs::Ext4, 256 << 20, &["-O", "encrypt"]);
    let key = "'add_enckey -d 0123456789abcdef'";
    let secret = image.root().join("secret");
    fs::create_dir(&secret).expect("a folder");
    let mut xfs_io = Command::new("sh");
    let script =
        format!("printf %064d 1 | xfs_io -c {key} \"$0\" && xfs_io -c 'set_encpolicy 0123456789abcdef' \"$1\"");
    run(xfs_io.args(["-c", &script]).arg(image.root()).arg(&secret));
    for number in 0..20 {
        fs::write(secret.join(format!("{number}")), vec![b'a' + number; 64 << 10]).expect("a file");
        fs::write(image.root().join(format!("plain {number}")), vec![b'A' + number; 64 << 10]).expect("a file");
    }
    tree::sync(&image.root());
    // Files that changed just now are read through the file system anyway.
    std::thread::sleep(Duration::from_millis(2100));
    // The key goes with the mount, so the pages are dropped without one.
    run(Command::new("sh").args(["-c", "echo 1 > /proc/sys/vm/drop_caches"]));
    let there = sums(&[&image.root()]);
    run(Command::new("sh").args(["-c", "echo 1 > /proc/sys/vm/drop_caches"]));
    let out = finish(onesweep(["sum", "--json", "--algorithm", "sha256", "--device"]).arg(image.root()), 0);
    assert_eq!(differences(&there, &sum_lines(&out.stdout).into_iter().collect()), None);
    assert!(figure(&summary(&out.stderr), "through.files") < 40, "{}", text(&out.stderr));
    image.unmount();
}

/// Names with one inode number are one file on one file system only: an overlay may show several, and a file may be mounted
/// over another.
#[test]
fn names_of_different_files_are_not_taken_for_links() {
    root_test!();
    let layers = [Image::new(Fs::Ext4, 64 << 20), Image::new(Fs::Ext4, 64 << 20)];
    for (number, layer) in layers.iter().enumerate() {
        let (one, other) = (layer.root().join(format!("{number} a")), layer.root().join(format!("{number} b")));
        fs::write(&one, format!("layer {number}")).expect("a file");
        fs::hard_link(&one, &other).expect("a link");
    }
    let folder = Folder::new();
    let shown = folder.join("shown");
    fs::create_dir(&shown).expect("a mount point");
    let lower = format!("lowerdir={}:{},xino=off", layers[0].root().display(), layers[1].root().display());
    run(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &lower]).arg(&shown));
    let over = layers[0].root().join("0 b");
    let other = layers[0].root().join("other");
    fs::write(&other, "mounted over it").expect("a file");
    run(Command::new("mount").arg("--bind").arg(&other).arg(&over));
    for order in ["auto", "inode", "directory"] {
        for root in [&shown, &layers[0].root()] {
            let there = sums(&[root]);
            let out = finish(onesweep(["sum", "--algorithm", "sha256", "--order", order]).arg(root), 0);
            let delivered = sum_lines(&out.stdout).into_iter().collect();
            assert_eq!(differences(&there, &delivered), None, "{order} {}", root.display());
        }
    }
    unmount(&over);
}

/// What device mode cannot do without, it asks for.
#[test]
fn device_mode_says_what_it_lacks() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    fs::write(image.root().join("a"), "a").expect("a file");
    for (feature, word) in [("cachestat", "cachestat"), ("direct", "O_DIRECT")] {
        let mut sum = onesweep(["sum", "--device"]);
        let out = finish(sum.arg(image.root()).env("ONESWEEP_HIDE", feature), 2);
        let said = text(&out.stderr);
        assert!(said.contains(word) && said.contains("leave out --device"), "{said}");
    }
    let out = finish(onesweep(["sum", "--strategy", "merged"]).arg(image.root()), 2);
    assert!(text(&out.stderr).contains("--device"), "{}", text(&out.stderr));
}

/// A gibibyte that is nearly all hole: the memory stays small, and the bytes are right.
#[test]
fn a_large_sparse_file_is_delivered() {
    root_test!();
    for fs in Fs::MAIN {
        let mut image = Image::new(fs, 640 << 20);
        let root = image.root().join("tree");
        tree::varied(&root, fs, &Varied { files: 20, sparse: 1 << 30 }, seed());
        let there = sums(&[&root]);
        image.cold();
        assert_eq!(differences(&there, &by_sum(&[&root], &(vec!["--budget", "8M"], None))), None);
        if fs.has_device_mode() {
            assert_eq!(differences(&there, &by_sum(&[&root], &(vec!["--device", "--budget", "8M"], None))), None);
        }
    }
}

/// Two file systems on two disks, swept side by side: all of both is delivered, by the program's own figures too.
#[test]
fn two_file_systems_are_swept_in_one_run() {
    root_test!();
    let mut ext4 = image_with_a_varied_tree(Fs::Ext4);
    let mut xfs = with_a_varied_tree(Image::in_memory(Fs::Xfs, 640 << 20));
    let roots = [ext4.1.clone(), xfs.1.clone()];
    let roots = [roots[0].as_path(), roots[1].as_path()];
    let plan = summary(&finish(onesweep(["plan", "--json"]).args(roots), 0).stdout);
    let disks: BTreeSet<&str> = plan["disks"].as_array().expect("disks").iter().map(|d| name_of(&d["disk"])).collect();
    assert_eq!(disks.len(), 2, "two heads move side by side: {disks:?}");
    let there = sums(&roots);
    for options in [vec![], vec!["--device"], vec!["--catalog-limit", "64K"], vec!["--reassembly", "first-fit"]] {
        for budget in [64 << 10, 1 << 20, 3 << 20, 256 << 20] {
            ext4.0.cold();
            xfs.0.cold();
            let budget_text = budget.to_string();
            let mut options = options.clone();
            options.extend(["--json", "--budget", &budget_text]);
            let out = finish(onesweep(["sum", "--algorithm", "sha256"]).args(&options).args(roots), 0);
            let delivered: BTreeMap<_, _> = sum_lines(&out.stdout).into_iter().collect();
            assert_eq!(differences(&there, &delivered), None, "{options:?}");
            let held = figure(&summary(&out.stderr), "peak_budget");
            assert!(held > 0 && held <= budget, "{options:?}: {held} bytes held by both together");
        }
    }
}

fn name_of(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Sums are checked again, and a file that has changed since is found.
#[test]
fn sums_are_checked() {
    root_test!();
    let (image, root) = image_with_a_varied_tree(Fs::Ext4);
    let list = image.beside("sums");
    for algorithm in ["sha256", "md5", "blake3"] {
        let out = finish(onesweep(["sum", "--algorithm", algorithm]).arg(&root), 0);
        fs::write(&list, &out.stdout).expect("a list of sums");
        finish(onesweep(["sum", "--algorithm", algorithm, "--check"]).arg(&list), 0);
        if algorithm != "blake3" {
            run(Command::new(format!("{algorithm}sum")).args(["--check", "--quiet"]).arg(&list));
        }
    }
    // The list is one of BLAKE3 now, which looks as one of SHA-256 does.
    let out = finish(onesweep(["sum", "--algorithm", "sha256", "--check", "--quiet"]).arg(&list), 1);
    assert!(text(&out.stderr).contains("try --algorithm blake3"), "{}", text(&out.stderr));
    let changed = root.join("links/two-names-1");
    fs::write(&changed, b"other bytes").expect("a change");
    let out = finish(onesweep(["sum", "--algorithm", "blake3", "--check"]).arg(&list), 1);
    assert!(!text(&out.stderr).contains("--algorithm"), "{}", text(&out.stderr));
    let failed = text(&out.stdout).lines().filter(|line| line.ends_with("FAILED")).count();
    assert_eq!(failed, 2, "both names of the changed file: {}", text(&out.stdout));
}

/// Without --algorithm, sums are what `b3sum` prints: the published ones of nothing and of "abc".
#[test]
fn the_default_sums_are_the_published_ones() {
    let folder = Folder::new();
    let paths = [("abc", "abc"), ("empty", "")].map(|(name, content)| {
        fs::write(folder.join(name), content).expect("a file");
        folder.join(name)
    });
    let out = finish(onesweep(["sum", "--sort"]).args(&paths), 0);
    let expected = format!(
        "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85  {}\n\
         af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  {}\n",
        paths[0].display(),
        paths[1].display()
    );
    assert_eq!(text(&out.stdout), expected);
}

/// A copy holds the same files.
#[test]
fn a_copy_is_the_same() {
    root_test!();
    let (image, root) = image_with_a_varied_tree(Fs::Xfs);
    let copy = image.beside("copy");
    let accessed = times_of_access(&root);
    finish(onesweep(["copy"]).arg(&root).arg(&copy), 0);
    assert!(accessed == times_of_access(&copy), "times of access differ");
    let there: BTreeMap<OsString, String> = below(&root);
    assert!(there == below(&copy), "the copy differs: diff -r {} {}", root.display(), copy.display());
}

/// Within one file system blocks are shared and not read, and nothing else is lost by it.
#[test]
fn a_copy_by_reflinks_is_the_same() {
    root_test!();
    for fs in [Fs::Xfs, Fs::Btrfs] {
        let (image, root) = image_with_a_varied_tree(fs);
        let copy = image.root().join("copy");
        let out = finish(onesweep(["copy", "--reflink=always", "--json"]).arg(&root).arg(&copy), 0);
        let told = summary(&out.stdout);
        let [files, cloned] = ["files", "cloned_files"].map(|name| figure(&told["details"], name));
        assert!(cloned > 0 && cloned == files, "{}: {told}", fs.name());
        assert_eq!(figure(&told, "bytes_read"), 0, "{}: {told}", fs.name());
        tree::sync(&copy);
        compare(&tree::manifest(&root), &tree::manifest(&copy));
    }
}

/// By the paths below the root; reading none of them, but for links, whose own times any look at them changes.
fn times_of_access(root: &Path) -> BTreeMap<OsString, (i64, i64)> {
    let mut list = Command::new("find");
    let found = finish(list.arg(root).args(["!", "-type", "d", "!", "-type", "l", "-print0"]), 0).stdout;
    let paths = found.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(path_of);
    let accessed =
        |path: &Path| fs::symlink_metadata(path).map(|stat| (stat.atime(), stat.atime_nsec())).expect("a file");
    paths
        .map(|path| (path.strip_prefix(root).expect("below the root").as_os_str().to_owned(), accessed(&path)))
        .collect()
}

fn below(root: &Path) -> BTreeMap<OsString, String> {
    let name = |name: Vec<u8>| path_of(&name).strip_prefix(root).expect("below the root").as_os_str().to_owned();
    sums(&[root]).into_iter().map(|(path, sum)| (name(path), sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_choices_is_covered() {
        let lengths = [3, 2, 4, 2];
        let ways = covering(&lengths, 2, 1, |way| way[0] != 2 || way[1] != 1);
        for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            for x in 0..lengths[a] {
                for y in 0..lengths[b] {
                    let forbidden = (a, b, x, y) == (0, 1, 2, 1);
                    assert_eq!(ways.iter().any(|way| way[a] == x && way[b] == y), !forbidden, "{a}={x} {b}={y}");
                }
            }
        }
        assert!(ways.len() < 48 / 2, "{} ways are hardly fewer than all", ways.len());
    }
}
