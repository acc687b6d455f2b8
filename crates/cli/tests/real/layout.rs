//! `onesweep layout`: scores and free space are those that the file systems' own tools tell, pictures are what they should
//! be, and nothing else is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    os::unix::fs::{DirEntryExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    image::{Folder, Fs, Image},
    images::{ntfs, of_kernel},
    run::{figure, finish, onesweep, output, program, root_test, run, seed, summary, text},
    tree::{self, Rng, Varied},
};

/// The blocks of a file in the order of the file, in units of the file system, by `filefrag`: what is written, and not among
/// the metadata. `None` where a block has no place, or is compressed.
fn blocks(path: &Path, block: u64) -> Option<Vec<u64>> {
    let size = fs::metadata(path).expect("the file").size();
    // In units of a byte: `   0:  0.. 4095:  139264.. 143359:  4096:  last,eof`.
    let told = text(&output(Command::new("filefrag").args(["-v", "-b1"]).arg(path)));
    let mut blocks = Vec::new();
    for line in told.lines() {
        let is_extent = line.trim_start().starts_with(|c: char| c.is_ascii_digit()) && line.contains("..");
        if !is_extent || line.contains("unwritten") || line.contains("inline") {
            continue;
        }
        if line.contains("encoded") || line.contains("unknown") {
            return None;
        }
        let mut fields = line.split(':').skip(1);
        let mut range = || {
            let field = fields.next().expect("a range").trim().to_owned();
            let (from, to) = field.split_once("..").expect("a range");
            let number = |text: &str| text.trim().parse::<u64>().expect("a number");
            (number(from), number(to))
        };
        let ((logical, last), (physical, _)) = (range(), range());
        // What is allocated beyond the end has no content.
        let end = (last + 1).min(size.next_multiple_of(block));
        blocks.extend((logical..end).step_by(block as usize).map(|byte| (physical + byte - logical) / block));
    }
    Some(blocks)
}

/// Pairs of neighbours in a list of blocks, and those that are neighbours on the device.
fn pairs(blocks: &[u64]) -> (u64, u64) {
    let contiguous = blocks.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    (contiguous as u64, blocks.len().saturating_sub(1) as u64)
}

fn told(score: &Value) -> (u64, u64) {
    (figure(score, "contiguous"), figure(score, "pairs"))
}

fn layout(options: &[&str], root: &Path) -> Value {
    let mut command = onesweep(["layout", "--json", "--top", "0"]);
    // With its own trees at hand, btrfs is told of by places on its devices, which filefrag does not know.
    let out = finish(command.args(options).arg(root).env("ONESWEEP_HIDE", "treesearch"), 0);
    summary(&out.stdout)
}

/// The files directly in a directory, as `readdir` lists them.
fn listed(directory: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| (entry.path(), entry.ino())).collect()
}

#[test]
fn scores_are_those_that_filefrag_tells() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Ext4Small, Fs::Ext4Inline, Fs::Xfs, Fs::Btrfs] {
        let mut image = Image::new(fs, 640 << 20);
        let root = image.root().join("tree");
        tree::varied(&root, fs, &Varied { files: 300, sparse: 1 << 20 }, seed());
        image.cold();
        let block = rustix::fs::statvfs(&root).expect("facts").f_bsize;
        for order in ["readdir", "inode", "name"] {
            let said = layout(&["--order", order], &root);
            let (mut compared, mut scattered) = (0, 0);
            for row in said["directories"].as_array().expect("rows") {
                let Some(path) = row["path"].as_str().filter(|_| row.get("path_hex").is_none()) else { continue };
                let mut files = listed(Path::new(path));
                // Which of its directories has an inode with several names is not told.
                if files.iter().any(|(path, _)| fs::symlink_metadata(path).expect("the file").nlink() > 1) {
                    continue;
                }
                match order {
                    "inode" => files.sort_by_key(|(_, ino)| *ino),
                    "name" => files.sort(),
                    _ => {}
                }
                let each: Vec<Vec<u64>> = files.iter().filter_map(|(path, _)| blocks(path, block)).collect();
                let sum = |sums: (u64, u64), pair: (u64, u64)| (sums.0 + pair.0, sums.1 + pair.1);
                let by_file = each.iter().map(|blocks| pairs(blocks)).fold((0, 0), sum);
                let name = format!("{} {order} {path}", fs.name());
                assert_eq!(told(&row["before"]["layout"]), by_file, "{name}: {row}");
                assert_eq!(told(&row["before"]["dynamic"]), pairs(&each.concat()), "{name}: {row}");
                assert_eq!(figure(row, "blocks"), each.concat().len() as u64, "{name}");
                assert_eq!(figure(row, "files"), files.len() as u64, "{name}");
                compared += each.len();
                scattered += by_file.1 - by_file.0;
            }
            assert!(compared > 150 && scattered > 10, "{} {order}: {compared} {scattered}", fs.name());
        }
    }
}

/// Of directories all, of files each once, and after packing nothing is left to gain.
#[test]
fn figures_add_up() {
    root_test!();
    let image = Image::new(Fs::Ext4, 640 << 20);
    let root = image.root().join("tree");
    tree::varied(&root, Fs::Ext4, &Varied { files: 300, sparse: 1 << 20 }, seed());
    tree::sync(&root);
    let said = layout(&[], &root);
    let rows = said["directories"].as_array().expect("rows");
    let total = &said["total"];
    assert_eq!(figure(total, "directories"), rows.len() as u64);
    for name in [
        "files",
        "placed_files",
        "fragmented_files",
        "compressed_files",
        "unknown_files",
        "blocks",
        "bytes",
        "before.fragments",
        "before.seeks",
        "before.layout.pairs",
        "before.dynamic.contiguous",
        "after.seeks",
        "after.dynamic.pairs",
    ] {
        assert_eq!(rows.iter().map(|row| figure(row, name)).sum::<u64>(), figure(total, name), "{name}");
    }
    assert_eq!(figure(total, "bytes"), figure(total, "blocks") * 4096);
    let seconds = |value: &Value, side: &str| value[side]["seconds"].as_f64().expect("a time");
    for side in ["before", "after"] {
        let sum: f64 = rows.iter().map(|row| seconds(row, side)).sum();
        assert!((sum - seconds(total, side)).abs() < 1e-6, "{side}");
    }
    let gains: Vec<f64> = rows.iter().map(|row| seconds(row, "before") - seconds(row, "after")).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b) && gains.iter().all(|gain| *gain > -1e-9), "{gains:?}");
    for row in rows {
        let placed = figure(row, "placed_files");
        assert_eq!((figure(row, "after.fragments"), figure(row, "after.seeks")), (placed, placed.min(1)), "{row}");
        assert_eq!(figure(row, "after.dynamic.pairs"), figure(row, "after.dynamic.contiguous"), "{row}");
    }
    let inodes: BTreeSet<u64> = text(&output(Command::new("find").arg(&root).args(["-type", "f", "-printf", "%i\\n"])))
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(figure(total, "files"), inodes.len() as u64);
    // A table of three has the same sum, and says that there are more.
    let few = text(&finish(onesweep(["layout", "--top", "3", "--disk", "modern-20tb"]).arg(&root), 0).stdout);
    let lines: Vec<&str> = few.lines().skip_while(|line| !line.contains("FRAGMENTS")).collect();
    assert!(lines[4].contains(&format!("{} more", rows.len() - 3)) && lines[5].ends_with("  total"), "{few}");
    assert!(few.contains("times for a modern-20tb"), "{few}");
    // The same by the disk that is named, as plan has it.
    let plan = finish(onesweep(["layout", "--disk-model", "nonsense"]).arg(&root), 2);
    assert!(text(&plan.stderr).contains("unknown disk"), "{}", text(&plan.stderr));
}

/// Free runs of an ext4 in blocks, joined, by `dumpe2fs`, which names the first block of the last cluster of each.
fn free_of_ext4(image: &Path, cluster: u64) -> Vec<(u64, u64)> {
    let told = text(&output(Command::new("dumpe2fs").arg(image)));
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for ranges in told.lines().filter_map(|line| line.strip_prefix("  Free blocks: ")) {
        for range in ranges.split(", ").filter(|range| !range.is_empty()) {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u64>().expect("a block");
            let (from, count) = (number(from), number(to) - number(from) + cluster);
            match runs.last_mut() {
                Some((first, length)) if *first + *length == from => *length += count,
                _ => runs.push((from, count)),
            }
        }
    }
    runs
}

/// Lengths of the free runs of an XFS in blocks, by `xfs_db`, but for what each group keeps for its own trees.
fn free_of_xfs(image: &Path) -> Vec<u64> {
    let told = |command: &str| {
        let mut db = Command::new("xfs_db");
        text(&output(
            db.args(["-r", "-c", command.split("; ").next().expect("one"), "-c"])
                .arg(command.split("; ").nth(1).unwrap_or("quit"))
                .arg(image),
        ))
    };
    let number = |text: &str| text.trim().parse::<u64>().expect("a number");
    let groups = told("sb 0; p agcount");
    let groups = number(groups.split('=').nth(1).expect("a number of groups"));
    // Each run on a line of its own: group, block, length; first those that the group keeps, block by block.
    let fields = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>();
    let rows: Vec<Vec<u64>> = told("freesp -d").lines().filter_map(fields).filter(|fields| fields.len() == 3).collect();
    let mut lengths = Vec::new();
    for group in 0..groups {
        let kept = told(&format!("agf {group}; p flcount"));
        let kept = number(kept.split('=').nth(1).expect("a number of blocks")) as usize;
        let of_group: Vec<u64> = rows.iter().filter(|row| row[0] == group).map(|row| row[2]).collect();
        assert!(of_group.len() > kept && of_group[..kept].iter().all(|&length| length == 1), "{of_group:?}");
        lengths.extend(&of_group[kept..]);
    }
    lengths
}

/// What `free_space` has to say of these lengths.
fn by_size(lengths: &[u64]) -> BTreeMap<u64, (u64, u64)> {
    let mut classes = BTreeMap::new();
    for &bytes in lengths {
        let class: &mut (u64, u64) = classes.entry(1 << bytes.ilog2()).or_default();
        *class = (class.0 + 1, class.1 + bytes);
    }
    classes
}

#[track_caller]
fn free_is(said: &Value, lengths: &[u64], what: &str) {
    let free = &said["free_space"][0];
    assert!(free["unknown"].is_null(), "{what}: {free}");
    assert_eq!(figure(free, "bytes"), lengths.iter().sum::<u64>(), "{what}");
    assert_eq!(figure(free, "pieces"), lengths.len() as u64, "{what}");
    assert_eq!(figure(free, "largest"), *lengths.iter().max().expect("some"), "{what}");
    let rows = free["by_size"].as_array().expect("classes");
    let classes: BTreeMap<u64, (u64, u64)> =
        rows.iter().map(|row| (figure(row, "from"), (figure(row, "pieces"), figure(row, "bytes")))).collect();
    assert_eq!(classes, by_size(lengths), "{what}");
}

/// Files of all sizes, every third of which goes again.
fn holes(root: &Path) {
    let mut rng = Rng::new(seed());
    let folder = root.join("files");
    fs::create_dir(&folder).expect("a folder");
    for number in 0..600 {
        let size = rng.size(20_000.0, 1 << 20) as usize;
        fs::write(folder.join(format!("{number}")), rng.bytes(size)).expect("a file");
    }
    tree::sync(root);
    (0..600).step_by(3).for_each(|number| fs::remove_file(folder.join(format!("{number}"))).expect("it goes"));
    tree::sync(root);
}

#[test]
fn free_space_of_ext4_is_that_of_dumpe2fs() {
    root_test!();
    let kinds: [(Fs, &[&str]); 6] = [
        (Fs::Ext4, &[]),
        (Fs::Ext4Small, &[]),
        (Fs::Ext4, &["-O", "^flex_bg,^metadata_csum,uninit_bg"]),
        (Fs::Ext4, &["-O", "meta_bg,^resize_inode"]),
        (Fs::Ext4, &["-O", "bigalloc", "-C", "65536"]),
        (Fs::Ext4, &["-t", "ext2"]),
    ];
    for (fs, options) in kinds {
        let mut image = Image::with(fs, 1 << 30, options);
        holes(&image.root());
        // What is kept in memory for files that grow is free again then.
        image.cold();
        let mounted = layout(&[], &image.root());
        image.unmount();
        let block = if fs == Fs::Ext4Small { 1024 } else { 4096 };
        let runs = free_of_ext4(image.device(), if options.contains(&"bigalloc") { 16 } else { 1 });
        let lengths: Vec<u64> = runs.iter().map(|(_, count)| count * block).collect();
        assert!(lengths.len() > 20, "{options:?}: {runs:?}");
        let name = format!("{} {options:?}", fs.name());
        free_is(&mounted, &lengths, &format!("{name}, mounted"));
        free_is(&layout(&[], &image.file()), &lengths, &format!("{name}, image"));
        free_is(&layout(&[], image.device()), &lengths, &format!("{name}, device"));
        image.mount();
    }
}

#[test]
fn free_space_of_xfs_is_that_of_xfs_db() {
    root_test!();
    let mut image = Image::new(Fs::Xfs, 640 << 20);
    holes(&image.root());
    image.cold();
    let mounted = layout(&[], &image.root());
    image.unmount();
    let lengths: Vec<u64> = free_of_xfs(image.device()).iter().map(|count| count * 4096).collect();
    assert!(lengths.len() > 20, "{lengths:?}");
    let said = layout(&[], &image.file());
    free_is(&said, &lengths, "image");
    free_is(&mounted, &lengths, "mounted");
    image.mount();
}

#[test]
fn free_space_of_ntfs_is_that_of_its_own_tools() {
    root_test!();
    let made = ntfs(200);
    let said = layout(&[], &made.file());
    let told = text(&output(Command::new("ntfsinfo").args(["-m", "-f"]).arg(made.file())));
    let number = |name: &str| {
        let line = told.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{told}"));
        line.split(':').nth(1).and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).expect("a number")
    };
    let free = &said["free_space"][0];
    assert_eq!(figure(free, "bytes"), number("Free Clusters") * number("Cluster Size"), "{free}");
    assert_eq!(free["fs_type"], "ntfs");
    assert!(figure(free, "pieces") > 1 && figure(free, "largest") < figure(free, "bytes"), "{free}");
}

#[test]
fn where_free_space_is_not_told_that_is_said() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 256 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join("a"), [1; 100_000]).expect("a file");
    tree::sync(&root);
    let said = layout(&[], &root);
    let why = said["free_space"][0]["unknown"].as_str().expect("a reason");
    assert!(why.contains("btrfs does not tell") && why.contains("btrfs filesystem usage"), "{said}");
    assert!(said["free_space"][0]["bytes"].is_null(), "{said}");
    let people = text(&finish(onesweep(["layout", "--draw"]).arg(&root), 0).stdout);
    assert!(people.contains("by size: not known: btrfs") && people.contains("others or free: not known"), "{people}");
}

/// What lies in a row on one of several devices is in a row, though an order goes over all of them in turns.
#[test]
fn several_devices_of_btrfs_break_no_file() {
    root_test!();
    for profile in ["single", "raid0", "raid1"] {
        let image = Image::btrfs_on_devices(2, profile, 600 << 20);
        let root = image.root().join("tree");
        fs::create_dir(&root).expect("a folder");
        for number in 0..40 {
            fs::write(root.join(format!("{number:02}")), Rng::new(number).bytes(3 << 20)).expect("a file");
        }
        tree::sync(&root);
        let mut command = onesweep(["layout", "--json", "--order", "name"]);
        let said = summary(&finish(command.arg(&root), 0).stdout);
        let mut files = listed(&root);
        files.sort();
        let each: Vec<Vec<u64>> = files.iter().filter_map(|(path, _)| blocks(path, 4096)).collect();
        let (contiguous, by_file) = each.iter().map(|blocks| pairs(blocks)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let here = told(&said["total"]["before"]["layout"]);
        // Chunks that follow each other in btrfs's addresses may lie apart on their devices, and the other way round.
        assert!(here.1 == by_file && here.0.abs_diff(contiguous) <= 4, "{profile}: {here:?} {contiguous} of {by_file}");
        let out = finish(onesweep(["layout", "--draw"]).arg(&root), 0);
        let people = text(&out.stdout);
        assert!(profile == "raid0" || people.contains("no map: how large it is is not known"), "{profile}: {people}");
    }
}

/// A directory whose files lie in pieces, and another one.
fn pieces(root: &Path) -> PathBuf {
    let worst = root.join("tree/worst & <most>");
    fs::create_dir_all(&worst).expect("folders");
    for _ in 0..5 {
        for number in 0..30 {
            let path = worst.join(format!("file {number:02} \"&\" <x>"));
            let mut file = fs::File::options().create(true).append(true).open(path).expect("a file");
            file.write_all(&[7; 9000]).and_then(|()| file.sync_all()).expect("a piece");
        }
    }
    // Large enough to have cells of a map for itself.
    fs::write(root.join("tree/alone"), vec![1; 2 << 20]).expect("a file");
    tree::sync(root);
    worst
}

/// Fails unless a file is well-formed XML.
fn is_xml(file: &Path) {
    let parse = "import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])";
    run(Command::new("python3").args(["-c", parse]).arg(file));
}

#[test]
fn pictures_have_each_file_and_are_well_formed() {
    root_test!();
    let image = Image::new(Fs::Ext4, 300 << 20);
    let worst = pieces(&image.root());
    let folder = Folder::new();
    let (svg, map) = (folder.join("directory.svg"), folder.join("map.svg"));
    let mut command = onesweep(["layout", "--draw", "--order", "name", "--svg"]);
    let out = finish(command.arg(&svg).arg("--map").arg(&map).arg(image.root().join("tree")), 0);
    let people = text(&out.stdout);
    assert!(people.contains("as it lies: ") && people.contains('█') && people.contains('─'), "{people}");
    assert!(people.contains("packed side by side: 1 seek, ") && people.contains("· free"), "{people}");
    [&svg, &map].into_iter().for_each(|file| is_xml(file));
    let picture = fs::read_to_string(&svg).expect("a picture");
    assert!(picture.contains("worst &amp; &lt;most&gt;"), "the first of the table is drawn");
    for number in 0..30 {
        // Before, after, and enlarged, with its name as it is.
        let name = format!("{}. file {number:02} &quot;&amp;&quot; &lt;x&gt;: ", number + 1);
        assert_eq!(picture.matches(&name).count(), 3, "{name}");
    }
    let rects = picture.matches("<rect x=").count();
    let row = layout(&["--order", "name"], &worst);
    let fragments = figure(&row["total"], "before.fragments") + 2 * figure(&row["total"], "after.fragments");
    assert_eq!(rects as u64, fragments, "a rectangle for each fragment, before, after, and enlarged");
    let map = fs::read_to_string(&map).expect("a map");
    for class in ["whole", "fragmented", "used", "free"] {
        assert!(map.contains(&format!("<path class=\"{class}\" d=\"M")), "{class}");
    }
    // Another directory, by its name.
    let tree = image.root().join("tree");
    finish(onesweep(["layout", "--svg"]).arg(&svg).arg("--of").arg(&tree).arg(&tree), 0);
    let picture = fs::read_to_string(&svg).expect("a picture");
    assert!(picture.contains("1. alone: ") && !picture.contains("file 00"), "{picture}");
}

#[test]
fn images_and_their_file_systems_have_the_same_layout() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let mut image = Image::new(fs, 640 << 20);
        let worst = pieces(&image.root());
        image.cold();
        let mounted = layout(&["--order", "inode"], &image.root().join("tree"));
        image.unmount();
        let mut inside = image.file().into_os_string();
        inside.push(":/tree");
        for order in [&["--order", "inode"][..], &[]] {
            let said = layout(order, Path::new(&inside));
            assert_eq!(said["reader"], "inode", "{}", fs.name());
            // Times too, but for where the image lies: on a loop device it is a disk of its own.
            for name in ["files", "blocks", "before.fragments", "before.seeks", "before.dynamic.contiguous", "bytes"] {
                assert_eq!(figure(&said["total"], name), figure(&mounted["total"], name), "{} {name}", fs.name());
            }
            let named = worst.file_name().expect("a name").to_str().expect("text");
            assert!(said["directories"][0]["path"].as_str().is_some_and(|path| path.ends_with(named)), "{said}");
        }
        let refused = finish(onesweep(["layout", "--order", "readdir"]).arg(image.file()), 2);
        assert!(text(&refused.stderr).contains("use --order inode or name"), "{}", text(&refused.stderr));
        image.mount();
    }
}

/// Addresses in a partition are those of the disk that it is on.
#[test]
fn a_partition_is_drawn_where_it_lies() {
    root_test!();
    const START: u64 = 1 << 20;
    let made = of_kernel(Fs::Ext4, 60);
    let disk = made.folder.join("divided.img");
    let bytes = fs::metadata(made.file()).expect("the image").len();
    let mut record = [0; 512];
    record[450] = 0x83;
    record[454..458].copy_from_slice(&((START / 512) as u32).to_le_bytes());
    record[458..462].copy_from_slice(&((bytes / 512) as u32).to_le_bytes());
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&disk, record).expect("a disk");
    let mut copy = Command::new("dd");
    copy.args(["bs=1M", "seek=1", "conv=sparse,notrunc", "status=none"]);
    run(copy.arg(format!("if={}", made.file().display())).arg(format!("of={}", disk.display())));
    fs::File::options().write(true).open(&disk).and_then(|disk| disk.set_len(START + bytes)).expect("its end");
    let svg = made.folder.join("picture.svg");
    let look = |name: &Path| {
        let options = ["--order", "name", "--svg", svg.to_str().expect("text")];
        let said = layout(&options, name);
        let picture = fs::read_to_string(&svg).expect("a picture");
        let hints =
            picture.lines().filter_map(|line| line.split_once(", from byte ")?.1.split('<').next()?.parse().ok());
        (said["free_space"][0].clone(), hints.collect::<Vec<u64>>())
    };
    let (whole, part) = (look(&made.file()), look(&PathBuf::from(format!("{}@1", disk.display()))));
    for name in ["bytes", "pieces", "largest"] {
        assert_eq!(figure(&whole.0, name), figure(&part.0, name), "{name}");
    }
    assert_eq!(figure(&part.0, "device_bytes"), figure(&whole.0, "device_bytes") + START);
    assert!(whole.1.len() > 2 && whole.1.iter().map(|byte| byte + START).eq(part.1), "{:?}", whole.1);
}

#[test]
fn users_without_rights_are_told_of_their_files() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 320 << 20);
        let worst = pieces(&image.root());
        run(Command::new("chmod").args(["-R", "a+rX"]).arg(image.root()));
        tree::sync(&image.root());
        let by_root = layout(&[], &worst);
        let mut user = Command::new("setpriv");
        let user = user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program());
        let said = summary(&finish(user.args(["layout", "--json"]).arg(&worst), 0).stdout);
        assert_eq!(
            told(&said["total"]["before"]["layout"]),
            told(&by_root["total"]["before"]["layout"]),
            "{}",
            fs.name()
        );
        assert_eq!(said["total"]["before"]["seeks"], by_root["total"]["before"]["seeks"], "{}", fs.name());
        // Whatever the kernel tells them, it is what it is, or a reason.
        let (theirs, free) = (&said["free_space"][0], &by_root["free_space"][0]);
        assert!(theirs["bytes"] == free["bytes"] || theirs["unknown"].is_string(), "{theirs} {free}");
    }
}

/// All names below a folder with what shows that they were written to.
fn state(root: &Path) -> String {
    text(&output(Command::new("find").arg(root).args(["-printf", "%p %i %s %T@ %C@ %A@\\n"])))
}

#[test]
fn nothing_but_the_pictures_is_written() {
    root_test!();
    let image = Image::new(Fs::Ext4, 300 << 20);
    pieces(&image.root());
    let tree = image.root().join("tree");
    let before = state(&tree);
    let folder = Folder::new();
    fs::create_dir(folder.join("pictures")).expect("a folder");
    let (svg, map) = (folder.join("pictures/a.svg"), folder.join("pictures/map.svg"));
    let run = |svg: &Path, map: &Path, code| {
        let mut command = onesweep(["layout", "--json", "--svg"]);
        finish(command.arg(svg).arg("--map").arg(map).arg(&tree), code)
    };
    let names = || {
        let entries = fs::read_dir(folder.join("pictures")).expect("the folder");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect::<BTreeSet<_>>()
    };
    run(&svg, &map, 0);
    assert_eq!(names().into_iter().collect::<Vec<_>>(), ["a.svg", "map.svg"]);
    // Over what is there, and through a link.
    fs::write(&svg, vec![b'x'; 1 << 20]).expect("an old one");
    let link = folder.join("link");
    symlink("pictures/a.svg", &link).expect("a link");
    run(&link, &map, 0);
    is_xml(&svg);
    assert!(link.is_symlink() && names().len() == 2, "{:?}", names());
    // What can't be written is told, and leaves nothing behind.
    for (svg, why) in [(folder.join("none/a.svg"), "No such file"), (folder.join("pictures"), "directory")] {
        let out = run(&svg, &map, 2);
        assert!(
            text(&out.stderr).contains("cannot write it") && text(&out.stderr).contains(why),
            "{}",
            text(&out.stderr)
        );
        assert_eq!(names().len(), 2);
    }
    let full = run(Path::new("/dev/full"), &map, 2);
    assert!(text(&full.stderr).contains("/dev/full: cannot write it"), "{}", text(&full.stderr));
    assert_eq!(state(&tree), before);
}

#[test]
fn what_has_no_places_is_told() {
    root_test!();
    let folder = Folder::new();
    let memory = folder.join("memory");
    fs::create_dir(&memory).expect("a mount point");
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&memory));
    fs::write(memory.join("a"), [1; 5000]).expect("a file");
    let out = finish(onesweep(["layout", "--json"]).arg(&memory), 1);
    let said = summary(&out.stdout);
    assert_eq!((figure(&said["total"], "files"), figure(&said["total"], "unknown_files")), (1, 1), "{said}");
    assert!(said["total"]["before"]["layout"]["score"].is_null(), "{said}");
    assert!(said["free_space"][0]["unknown"].as_str().is_some_and(|why| why.contains("tmpfs")), "{said}");
    assert!(text(&out.stderr).contains("no file has a known place on a disk: "), "{}", text(&out.stderr));
    let refused = finish(onesweep(["layout", "--svg"]).arg(folder.join("a.svg")).arg(&memory), 2);
    assert!(text(&refused.stderr).contains("cannot draw"), "{}", text(&refused.stderr));
    assert!(!folder.join("a.svg").exists());
    // Compressed: which blocks have what is not told.
    let mut image = Image::new(Fs::Btrfs, 256 << 20);
    image.set_options("compress-force=zstd");
    image.cold();
    let tree = image.root().join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("text"), "the same again and again\n".repeat(20_000)).expect("a file");
    tree::sync(&tree);
    let out = finish(onesweep(["layout", "--json"]).arg(&tree), 1);
    assert_eq!(figure(&summary(&out.stdout)["total"], "compressed_files"), 1, "{}", text(&out.stdout));
    assert!(text(&out.stderr).contains("they are compressed"), "{}", text(&out.stderr));
    let people = text(&finish(onesweep(["layout"]).arg(&tree), 1).stdout);
    assert!(people.contains("left out: 1 compressed"), "{people}");
}

#[test]
fn bad_input_is_told() {
    let folder = Folder::new();
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("empty")).expect("folders");
    let said = |arguments: &[&str], path: &Path, code| text(&finish(onesweep(arguments).arg(path), code).stderr);
    assert!(said(&["layout"], &folder.join("gone"), 2).contains("cannot read: No such file"));
    assert!(said(&["layout", "--order", "sideways"], &tree, 2).contains("readdir, inode, name"));
    assert!(said(&["layout", "--svg", "-"], &tree, 2).contains("standard output has the table"));
    assert!(said(&["layout", "--draw", "--json"], &tree, 2).contains("cannot be used with"));
    assert!(said(&["layout", "--draw"], &tree, 2).contains("cannot draw: no file"));
    assert!(said(&["layout", "--draw", "--of", "elsewhere"], &tree, 2).contains("elsewhere: cannot draw it: "));
    assert!(said(&["layout"], &tree, 0).is_empty(), "an empty tree is no error");
    let empty = summary(&finish(onesweep(["layout", "--json"]).arg(&tree), 0).stdout);
    assert_eq!((figure(&empty["total"], "files"), empty["directories"].as_array().map(Vec::len)), (0, Some(0)));
    assert_eq!(empty["free_space"].as_array().map(Vec::len), Some(1), "{empty}");
}

/// A tree beyond the limit of the catalogue is told by its first window, with a word.
#[test]
fn a_tree_beyond_the_limit_is_told_in_part() {
    let folder = Folder::new();
    let tree = folder.join("tree");
    for directory in 0..40 {
        let directory = tree.join(format!("{directory}"));
        fs::create_dir_all(&directory).expect("folders");
        (0..100).for_each(|number| fs::write(directory.join(format!("{number}")), [1; 100]).expect("a file"));
    }
    let out = finish(onesweep(["layout", "--catalog-limit", "64K"]).arg(&tree), 0);
    assert!(text(&out.stdout).contains("the tree exceeds --catalog-limit"), "{}", text(&out.stdout));
    let all = text(&finish(onesweep(["layout"]).arg(&tree), 0).stdout);
    assert!(all.starts_with("4000 files in 40 directories") && !all.contains("catalog-limit"), "{all}");
}

/// Where an image has been damaged, its files are told, and of free space why not.
#[test]
fn a_damaged_bitmap_is_told() {
    root_test!();
    let made = of_kernel(Fs::Ext4, 60);
    let told = text(&output(Command::new("dumpe2fs").arg(made.file())));
    let place = told.lines().find_map(|line| line.trim_start().strip_prefix("Block bitmap at ")).expect("a bitmap");
    let block: u64 = place.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a block");
    let file = fs::File::options().write(true).open(made.file()).expect("the image");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x55; 16], block * 4096).expect("damage");
    let said = layout(&[], &made.file());
    assert!(figure(&said["total"], "placed_files") > 10, "{said}");
    let why = said["free_space"][0]["unknown"].as_str().expect("a reason");
    assert!(why.contains("the checksum of the block bitmap of group 0") && why.contains("is damaged"), "{why}");
}
