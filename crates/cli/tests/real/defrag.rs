//! `onesweep defrag` on real file systems: what it says, and what it leaves.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    equality::differences,
    image::{Fs, Image},
    run::{finish, interruptible, onesweep, output, root_test, run, seed, text},
    trace,
    tree::{self, Entry, Rng, manifest, sums},
};

/// Files of 1 to 6 blocks that grew by turns.
pub(crate) fn scatter(root: &Path, count: usize) {
    fs::create_dir_all(root).expect("a folder");
    let mut rng = Rng::new(seed());
    let files: Vec<File> =
        (0..count).map(|number| File::create(root.join(format!("f{number}"))).expect("a file")).collect();
    for block in 0..6 {
        for file in files.iter().skip(block).step_by(block + 1) {
            file.write_all_at(&rng.bytes(4096), block as u64 * 4096).expect("growth");
        }
        tree::sync(root);
    }
}

/// Files of 2 to 6 blocks, without holes, that grew by turns.
pub(crate) fn grow_by_turns(root: &Path, count: u64) {
    fs::create_dir_all(root).expect("a folder");
    let mut rng = Rng::new(seed());
    for block in 0..6 {
        for number in (0..count).filter(|number| block < 2 + number % 5) {
            let path = root.join(format!("f{number}"));
            let file = File::options().create(true).append(true).open(path).expect("a file");
            file.write_all_at(&rng.bytes(4096), block * 4096).expect("growth");
        }
        tree::sync(root);
    }
}

pub(crate) fn defrag(options: &[&str], root: &Path, code: i32) -> Value {
    let out = finish(onesweep(["defrag", "--json", "--force"]).args(options).arg(root), code);
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&out.stdout)))
}

pub(crate) fn seeks(told: &Value, when: &str) -> u64 {
    told[when]["seeks"].as_u64().unwrap_or_else(|| panic!("{when} in {told}"))
}

/// All but the allocated bytes: a file in many pieces has a block with its map, which it loses.
pub(crate) fn entries(root: &Path) -> BTreeMap<PathBuf, Entry> {
    manifest(root).into_iter().map(|(path, (entry, _))| (path, entry)).collect()
}

/// A file that is named is joined alone; what else lies in its directory stays where it is.
#[test]
fn a_file_that_is_named_is_moved_alone() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let mut image = Image::new(fs, 512 << 20);
        let root = image.root().join("tree");
        grow_by_turns(&root, 40);
        let there = sums(&[&root]);
        let (whole, file) = (seeks(&defrag(&["-n"], &root, 0), "before"), root.join("f9"));
        let told = defrag(&[], &file, 0);
        assert_eq!((&told["files"], &told["moved_files"]), (&1.into(), &1.into()), "{told}");
        let before = seeks(&told, "before");
        assert!(before >= 3 && seeks(&told, "after") == 0, "{told}");
        let left = seeks(&defrag(&["-n"], &root, 0), "before");
        assert!((whole - before - 2..=whole - before + 2).contains(&left), "nothing else was moved: {whole}, {left}");
        // By its name alone, from its directory.
        let mut command = onesweep(["defrag", "--json", "--force", "f9"]);
        let out = finish(command.current_dir(&root), 0);
        let again: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(again["moved_files"], 0, "{again}");
        assert_eq!(differences(&there, &sums(&[&root])), None);
        check(&mut image);
    }
}

/// No donor may be as large: that is no signal, and nothing is moved.
#[test]
fn a_limit_on_the_size_of_files_is_told() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 512 << 20);
        let root = image.root().join("tree");
        grow_by_turns(&root, 40);
        let there = sums(&[&root]);
        let script = "ulimit -f 16; exec \"$0\" \"$@\"";
        let defrag = onesweep(["defrag", "--force"]);
        let mut limited = Command::new("bash");
        limited.args(["-c", script]).arg(defrag.get_program()).args(defrag.get_args()).arg(&root);
        // XFS reserves more than may be written, so there the first write tells.
        let (code, stdout, stderr) = match fs {
            Fs::Xfs => (1, "", "(ulimit -f), unless it is the file system's own; what was moved before is whole\n"),
            _ => (0, "or a limit on their size (ulimit -f)", ""),
        };
        let out = finish(&mut limited, code);
        let (said, told) = (text(&out.stdout), text(&out.stderr));
        assert!(
            said.contains(stdout) && told.ends_with(stderr) && told.is_empty() == stderr.is_empty(),
            "{said}{told}"
        );
        assert!(fs == Fs::Xfs || said.contains("0 files moved"), "{said}");
        assert_eq!(differences(&there, &sums(&[&root])), None);
    }
}

/// The checker finds nothing.
pub(crate) fn check(image: &mut Image) {
    image.unmount();
    let (program, option) = match image.fs {
        Fs::Xfs => ("xfs_repair", "-n"),
        Fs::Btrfs => ("btrfs", "check"),
        _ => ("e2fsck", "-fn"),
    };
    output(Command::new(program).arg(option).arg(image.device()));
    image.mount();
}

#[test]
fn a_plan_is_shown_carried_out_and_comes_to_rest() {
    root_test!();
    planned_and_carried_out(Fs::Ext4, &[], &[]);
    planned_and_carried_out(Fs::Xfs, &[], &[]);
    planned_and_carried_out(Fs::Xfs, &["-m", "reflink=0"], &[]);
    planned_and_carried_out(Fs::Xfs, &["-m", "reflink=0,rmapbt=1"], &[]);
    planned_and_carried_out(Fs::Btrfs, &[], &["--dedupe"]);
}

fn planned_and_carried_out(fs: Fs, mkfs: &[&str], asked: &[&str]) {
    let defrag = |options: &[&str], root: &Path, code| defrag(&[asked, options].concat(), root, code);
    let mut image = Image::with(fs, 512 << 20, mkfs);
    let root = image.root().join("tree");
    scatter(&root, 200);
    scatter(&root.join("below"), 60);
    image.cold();
    let before = entries(&root);
    let there = sums(&[&root]);

    let planned = defrag(&["--dry-run"], &root, 0);
    assert!(planned["after"].is_null() && seeks(&planned, "planned") * 10 < seeks(&planned, "before"), "{planned}");
    assert_eq!(defrag(&["-n"], &root, 0)["before"], planned["before"], "nothing was moved");

    let told = defrag(&[], &root, 0);
    assert_eq!(
        (seeks(&told, "before"), seeks(&told, "planned")),
        (seeks(&planned, "before"), seeks(&planned, "planned"))
    );
    assert!(seeks(&told, "after") <= seeks(&told, "planned") + 3 && told["is_complete"] == true, "{told}");
    let second = defrag(&[], &root, 0);
    assert_eq!((&second["planned_regions"], &second["moved_files"]), (&0.into(), &0.into()), "{second}");
    assert_eq!(seeks(&second, "before"), seeks(&told, "after"));

    assert!(entries(&root) == before);
    if fs == Fs::Ext4 {
        let name = image.device().file_name().expect("a loop device").to_owned();
        let setting = Path::new("/sys/fs/ext4").join(name).join("mb_stream_req");
        assert_eq!(fs::read_to_string(setting).expect("the setting").trim(), "16");
    }
    image.cold();
    assert_eq!(differences(&there, &sums(&[&root])), None);
    check(&mut image);

    // The same for people.
    let out = finish(onesweep(["defrag", "--force", "--order", "name"]).args(asked).arg(&root), 0);
    let said = text(&out.stdout);
    for part in ["260 files, ", " seeks to read them\nplan: ", " seeks now\n"] {
        assert!(said.contains(part), "{said}");
    }
    let out = finish(onesweep(["defrag", "--quiet", "--force"]).args(asked).arg(&root), 0);
    assert_eq!((text(&out.stdout), text(&out.stderr)), (String::new(), String::new()));
}

/// Files of 6 blocks in two pieces each.
fn grow_in_halves(root: &Path, count: u64) {
    fs::create_dir_all(root).expect("a folder");
    for half in 0..2 {
        for number in 0..count {
            let path = root.join(format!("f{number}"));
            let file = File::options().create(true).append(true).open(path).expect("a file");
            file.write_all_at(&[number as u8; 3 * 4096], half * 3 * 4096).expect("growth");
        }
        tree::sync(root);
    }
}

pub(crate) fn filefrag(root: &Path) -> Vec<u8> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    output(Command::new("filefrag").arg("-e").args(paths))
}

/// Bytes of the device on which the files of a directory lie.
fn places(root: &Path) -> Vec<std::ops::Range<u64>> {
    let told = text(&filefrag(root));
    let extent = |line: &str| {
        // `   0:        0..       2:      34304..     34306:      3: …`
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let (from, to) = line.split(':').nth(2)?.split_once("..")?;
        Some(number(from)? * 4096..(number(to)? + 1) * 4096)
    };
    told.lines().filter_map(extent).collect()
}

/// Of several paths that come at once, here when there is a time, none is read before what gains more on another.
#[test]
fn with_a_time_what_gains_most_comes_first_whichever_path_it_is_of() {
    root_test!();
    let read_first = |options: &[&str]| {
        let mut image = Image::new(Fs::Ext4, 512 << 20);
        let (poor, rich) = (image.root().join("poor"), image.root().join("rich"));
        grow_in_halves(&poor, 60);
        grow_by_turns(&rich, 60);
        let (there, in_poor, in_rich) = (sums(&[&poor, &rich]), places(&poor), places(&rich));
        assert!(in_poor.len() >= 100 && in_rich.len() >= 150, "{} and {} pieces", in_poor.len(), in_rich.len());
        let mut command = onesweep(["defrag", "--json", "--force"]);
        let out = File::create(image.beside("told")).expect("a file");
        command.args(options).args([&poor, &rich]).stdout(out);
        let requests = trace::of_command(&mut image, command);
        let told = fs::read_to_string(image.beside("told")).expect("what was told");
        let lies_in = |request: &&trace::Request, places: &[std::ops::Range<u64>]| {
            places.iter().any(|place| place.start < request.end() && request.start < place.end)
        };
        let data: Vec<_> = requests.iter().filter(|request| !request.metadata).collect();
        let turns = |places| {
            let own = data.iter().enumerate().filter(|(_, request)| lies_in(request, places));
            own.map(|(turn, _)| turn).collect::<Vec<_>>()
        };
        let (poor_turns, rich_turns) = (turns(&in_poor), turns(&in_rich));
        assert!(poor_turns.len() > 20 && rich_turns.len() > 50, "{poor_turns:?}, {rich_turns:?}");
        let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(told.len() == 2 && told[0]["path"] == poor.display().to_string(), "as they were named: {told:?}");
        for one in &told {
            assert!(one["is_complete"] == true && seeks(one, "after") * 5 < seeks(one, "before"), "{one}");
        }
        image.cold();
        assert_eq!(differences(&there, &sums(&[&poor, &rich])), None);
        check(&mut image);
        match (poor_turns.last() < rich_turns.first(), rich_turns.last() < poor_turns.first()) {
            (true, false) => "poor",
            (false, true) => "rich",
            _ => panic!("neither is read before the other: {poor_turns:?}, {rich_turns:?}"),
        }
    };
    assert_eq!(read_first(&["--max-time", "1h"]), "rich");
    assert_eq!(read_first(&[]), "poor", "one after the other");
}

/// Each on its own file system, and one that can't be moved among them.
#[test]
fn paths_of_several_file_systems_are_packed_in_turns() {
    root_test!();
    let images = [Fs::Ext4, Fs::Xfs, Fs::Btrfs].map(|fs| Image::new(fs, 512 << 20));
    let roots = images.each_ref().map(|image| image.root().join("tree"));
    for root in &roots {
        grow_by_turns(root, 40);
    }
    let there = sums(&[&roots[0], &roots[1], &roots[2]]);
    let out = finish(onesweep(["defrag", "--json", "--force", "--max-time", "1h"]).args(&roots), 1);
    assert!(text(&out.stderr).contains("only with defrag --dedupe"), "{}", text(&out.stderr));
    let told: Vec<Value> = text(&out.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |root: &Path| told.iter().find(|one| one["path"] == root.display().to_string()).expect("it is told");
    for root in &roots[..2] {
        let one = of(root);
        assert!(one["is_complete"] == true && seeks(one, "after") * 5 < seeks(one, "before"), "{one}");
    }
    assert_eq!((told.len(), &of(&roots[2])["moved_files"]), (3, &0.into()));
    assert_eq!(differences(&there, &sums(&[&roots[0], &roots[1], &roots[2]])), None);
    // For people, what was done is told by its path.
    grow_by_turns(&roots[0].join("more"), 40);
    let out = finish(onesweep(["defrag", "--force", "--max-time", "1h"]).args(&roots[..2]), 0);
    let line = format!("{}: ", roots[0].display());
    let done = text(&out.stdout).lines().any(|said| said.starts_with(&line) && said.contains(" files moved, "));
    assert!(done, "{}", text(&out.stdout));
}

#[test]
fn what_cannot_be_moved_is_told_by_name() {
    root_test!();
    let image = Image::new(Fs::Ext4, 320 << 20);
    let root = image.root().join("tree");
    scatter(&root, 40);
    run(Command::new("chattr").arg("+i").arg(root.join("f7")));
    let out = finish(onesweep(["defrag", "--force", "-v"]).arg(&root), 0);
    let said = text(&out.stdout);
    assert!(said.contains("1 files stay: it may not be changed (chattr +i)\n"), "{said}");
    assert!(said.contains("/f7: it may not be changed (chattr +i)\n"), "{said}");
    run(Command::new("chattr").arg("-i").arg(root.join("f7")));

    // By a link on the way, from elsewhere.
    std::os::unix::fs::symlink(".", image.root().join("link")).expect("a link");
    let mut command = onesweep(["defrag", "--json", "--force", "--order", "name", "link/tree"]);
    let out = finish(command.current_dir(image.root()), 0);
    let told: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert!(told["moved_files"].as_u64() > Some(0) && told["stayed"] == serde_json::json!({}), "{told}");

    let stopped = defrag(&["--max-time", "0s"], &root, 0);
    assert_eq!((&stopped["moved_files"], &stopped["is_complete"]), (&0.into(), &false.into()), "{stopped}");

    let other = Image::new(Fs::Btrfs, 320 << 20);
    let out = finish(onesweep(["defrag"]).arg(other.root()), 2);
    let message = "cannot move its files: its file system is btrfs, where files are moved only with defrag --dedupe: ";
    assert!(text(&out.stderr).contains(message), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "");
    let clusters = Image::with(Fs::Ext4, 320 << 20, &["-O", "bigalloc"]);
    scatter(&clusters.root().join("tree"), 10);
    for options in [&["-n"][..], &[]] {
        let out = finish(onesweep(["defrag"]).args(options).arg(clusters.root()), 2);
        assert!(text(&out.stderr).contains("its ext4 gives out space in clusters (bigalloc)"), "{}", text(&out.stderr));
    }
    let odd = image.root().join(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    scatter(&odd, 10);
    let told = defrag(&["-n"], &odd, 0);
    assert!(told["path_hex"].as_str().is_some_and(|hex| hex.ends_with("2f6f64642dff")), "{told}");
    assert!(defrag(&["-n"], &root, 0)["path_hex"].is_null());
    let unsafe_image = Image::with(Fs::Ext4, 320 << 20, &["-O", "^has_journal"]);
    let out = finish(onesweep(["defrag"]).arg(unsafe_image.root()), 2);
    assert!(text(&out.stderr).contains("its ext4 has no journal, without which a crash would damage what was moved"));
    let xfs = Image::new(Fs::Xfs, 320 << 20);
    let out = finish(onesweep(["defrag", "--keep"]).arg(xfs.root()), 2);
    assert!(text(&out.stderr).contains("cannot keep old places: on XFS "), "{}", text(&out.stderr));
    let none = root.join("none");
    let out = finish(onesweep(["defrag"]).arg(&none).arg(&root), 1);
    assert!(text(&out.stderr).contains("/none: cannot open it: No such file or directory"), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("40 files, "), "the other one is done");
}

/// With fast commits anybody's fsync would lose half of a move, and without barriers a power cut would: nothing is made and nothing moved, neither
/// forwards nor backwards, nor for a plan alone.
#[test]
fn file_systems_that_would_lose_what_was_moved_are_refused_before_anything_is_made() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 320 << 20);
    let root = image.root().join("tree");
    scatter(&root, 60);
    let told = defrag(&["--keep"], &root, 0);
    let id = told["undo"].as_str().expect("a name").to_owned();
    scatter(&root.join("since"), 60);
    image.cold();
    let before = (entries(&root), filefrag(&root), filefrag(&root.join("since")));
    let is_refused = |why: &str| {
        for options in [&[][..], &["--dry-run"], &["--keep"], &["--force"], &["--undo", &id]] {
            let (calls, log) =
                (tempfile::NamedTempFile::new().expect("a file"), "trace=openat,ioctl,fallocate,fsetxattr");
            let mut command = Command::new("strace");
            command.args(["-f", "-o"]).arg(calls.path()).args(["-e", log]).arg(crate::run::program());
            let out = finish(command.arg("defrag").args(options).arg(&root), 2);
            let said = text(&out.stderr);
            assert!(said.contains("/tree: cannot move its files: its ext4 ") && said.contains(why), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            let calls = fs::read_to_string(calls.path()).expect("what strace wrote");
            assert!(calls.contains("openat("), "{calls}");
            for call in
                ["O_TMPFILE", "O_CREAT", "EXT4_IOC_MOVE_EXT", "_IOC(_IOC_READ|_IOC_WRITE, 0x66, 0xf,", "fallocate("]
            {
                assert!(!calls.contains(call), "{options:?}: {call}: {calls}");
            }
        }
    };
    image.unmount();
    run(Command::new("tune2fs").args(["-O", "fast_commit"]).arg(image.device()));
    image.mount();
    is_refused("makes fast commits (fast_commit), which leave out what was moved");
    is_refused("run tune2fs -O ^fast_commit on its device");
    image.unmount();
    run(Command::new("tune2fs").args(["-O", "^fast_commit"]).arg(image.device()));
    image.mount();
    run(Command::new("mount").args(["-o", "remount,barrier=0"]).arg(image.root()));
    is_refused("is mounted with nobarrier (barrier=0), so that a power cut would damage what was moved");
    run(Command::new("mount").args(["-o", "remount,barrier=1"]).arg(image.root()));
    assert!(before == (entries(&root), filefrag(&root), filefrag(&root.join("since"))));
    check(&mut image);
    defrag(&["--undo", &id], &root, 0);
}

/// Where nothing can be moved, it is told how the files lie, and why they stay.
#[test]
fn other_file_systems_are_looked_at_alone() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let root = image.root().join("tree");
    scatter(&root, 40);
    let before = entries(&root);
    for options in [&[][..], &["--dry-run"], &["--force"]] {
        let out = finish(onesweep(["defrag"]).args(options).arg(&root), 2);
        let said = text(&out.stdout);
        assert!(said.contains("/tree: 40 files, ") && said.ends_with(" seeks to read them\n"), "{said}");
        assert!(
            text(&out.stderr).contains("its file system is btrfs, where files are moved only with defrag --dedupe: ")
        );
    }
    let told = defrag(&[], &root, 2);
    assert!(seeks(&told, "before") > 40 && told["after"].is_null() && told["is_complete"] == false, "{told}");
    assert_eq!((&told["planned_regions"], &told["planned"]), (&0.into(), &told["before"]));
    assert!(entries(&root) == before);
}

/// A snapshot keeps what it has, and so do the files that it shares; what was written since moves. Where nobody may write, nothing does.
#[test]
fn what_snapshots_of_btrfs_share_stays() {
    root_test!();
    let mut image = Image::new(Fs::Btrfs, 512 << 20);
    let volume = image.root().join("volume");
    output(Command::new("btrfs").args(["subvolume", "create"]).arg(&volume));
    let root = volume.join("tree");
    scatter(&root, 60);
    let snapshot = image.root().join("snapshot");
    output(Command::new("btrfs").args(["subvolume", "snapshot", "-r"]).args([&volume, &snapshot]));
    scatter(&root.join("since"), 40);
    image.cold();
    let (before, in_snapshot) = (entries(&root), entries(&snapshot));
    let (there, places) = (sums(&[&root]), filefrag(&root));

    let out = finish(onesweep(["defrag", "--dedupe", "--force"]).arg(snapshot.join("tree")), 2);
    assert!(text(&out.stderr).contains("it lies in a read-only subvolume or snapshot"), "{}", text(&out.stderr));
    let out = finish(onesweep(["defrag", "--dedupe", "--keep"]).arg(&root), 2);
    assert!(text(&out.stderr).contains("cannot keep old places: on btrfs "), "{}", text(&out.stderr));

    let told = defrag(&["--dedupe"], &root, 0);
    let shared = "it shares its place with other files or snapshots";
    assert_eq!((&told["files"], &told["stayed"][shared]), (&100.into(), &60.into()), "{told}");
    assert!(told["moved_files"].as_u64() >= Some(36) && seeks(&told, "after") < seeks(&told, "before") - 50, "{told}");
    assert_eq!(defrag(&["--dedupe"], &root, 0)["moved_files"], 0);
    assert!(filefrag(&root) == places, "what is shared lies where it lay");
    assert!(entries(&root) == before && entries(&snapshot) == in_snapshot);
    image.cold();
    assert_eq!(differences(&there, &sums(&[&root])), None);
    assert!(entries(&root) == before && entries(&snapshot) == in_snapshot);
    output(Command::new("btrfs").args(["scrub", "start", "-B", "-r"]).arg(image.root()));
    check(&mut image);
}

/// A plan for an ordinary user is of what that user may move, and directories of others don't keep it from the rest.
#[test]
fn a_user_packs_ones_own_directories_among_others() {
    root_test!();
    const NOBODY: u32 = 65_534;
    let image = Image::new(Fs::Ext4, 1 << 30);
    let root = image.root().join("tree");
    let program = image.root().join("program");
    crate::run::copy_program(&crate::run::program(), &program);
    let as_nobody = |words: &[&str]| -> Value {
        let mut command = Command::new(&program);
        command.args(["defrag", "--force", "--json"]).args(words).arg("tree").current_dir(image.root());
        serde_json::from_slice(&finish(command.uid(NOBODY).gid(NOBODY), 0).stdout).expect("JSON")
    };
    for (round, mode) in [0o777, 0o755].into_iter().enumerate() {
        for number in 0..6 {
            let directory = root.join(format!("round {round}, {number}"));
            grow_by_turns(&directory, 80);
            if number % 2 == 0 {
                run(Command::new("chown").args(["-R", "65534:65534"]).arg(&directory));
            }
        }
        fs::set_permissions(&root, PermissionsExt::from_mode(mode)).expect("a mode");
        tree::sync(&root);
        let (planned, done) = (as_nobody(&["-n"]), as_nobody(&[]));
        let (was, foretold, now) = (seeks(&done, "before"), seeks(&planned, "planned"), seeks(&done, "after"));
        assert!(foretold < was && now <= foretold + (was - foretold) / 4, "{was} seeks, then {now} of {foretold}");
        let again = as_nobody(&[]);
        assert_eq!(again["moved_files"], 0, "{again}");
    }
}

/// Nothing is moved when the end comes before all was looked at.
#[test]
fn an_end_while_files_are_looked_at_is_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let root = image.root().join("tree");
    scatter(&root, 40);
    let there = filefrag(&root);
    let out = finish(onesweep(["defrag", "--force", "--max-time", "0s"]).arg(&root), 0);
    let told = text(&out.stderr);
    assert!(told.contains("it was ended before all of its files were looked at; nothing was moved"), "{told}");
    assert!(filefrag(&root) == there);
}

/// After an interrupt the region at hand is finished, and what is told is true.
#[test]
fn an_interrupt_ends_it_where_nothing_is_lost() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let name = image.device().file_name().expect("a loop device").to_owned();
    let setting = Path::new("/sys/fs/ext4").join(name).join("mb_stream_req");
    // The raised setting tells that files are being moved. A run may still be over before the signal comes.
    for round in 0..10 {
        let root = image.root().join(format!("tree-{round}"));
        scatter(&root, 400);
        let before = entries(&root);
        let mut command = interruptible(["defrag", "--json", "--force", "--near", "--region", "128K"]);
        let mut running = command.arg(&root).stdout(Stdio::piped()).spawn().expect("it starts");
        while fs::read_to_string(&setting).expect("the setting").trim() == "16" {
            if running.try_wait().expect("it is a child of ours").is_some() {
                break;
            }
        }
        let pid = i32::try_from(running.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let out = running.wait_with_output().expect("it ends");
        assert!(entries(&root) == before);
        if out.status.code() == Some(0) {
            continue;
        }
        assert_eq!(out.status.code(), Some(130));
        let told: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(told["is_complete"], false, "{told}");
        assert_eq!(fs::read_to_string(&setting).expect("the setting").trim(), "16");
        let rest = defrag(&["--region", "128K"], &root, 0);
        assert_eq!(seeks(&rest, "before"), seeks(&told, "after"), "what was told was so");
        assert_eq!(rest["is_complete"], true);
        return;
    }
    panic!("ten runs were over before they could be interrupted");
}
