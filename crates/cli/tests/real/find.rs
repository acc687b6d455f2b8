//! `onesweep find` on a mounted ext4: what GNU find says, without its walk.

use std::{
    collections::BTreeMap,
    fs,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::{
    disk_model::Disk,
    image::{Folder, Fs, Image},
    run::{finish, long, onesweep, output, path_of, root_test, run, say, seed, text},
    trace,
    tree::{self, Rng},
};

/// Facts of each path.
pub(crate) type Facts = BTreeMap<Vec<u8>, String>;

/// What find(1) says.
pub(crate) fn by_find(root: &Path, options: &[&str]) -> Facts {
    let mut find = Command::new("find");
    find.arg(root).args(options).args(["-printf", "%p\\0%i %m %U %G %s %b %n %Ts %y\\0"]);
    let out = output(&mut find);
    let parts: Vec<&[u8]> = out.split(|&byte| byte == 0).collect();
    parts.chunks_exact(2).map(|pair| (pair[0].to_vec(), text(pair[1]))).collect()
}

/// What `onesweep find` says.
fn told_by_onesweep(root: &Path, options: &[&str]) -> Vec<(Vec<u8>, String)> {
    let out = output(onesweep(["find", "--json"]).args(options).arg(root));
    let facts = |line: &[u8]| {
        let row: serde_json::Value = serde_json::from_slice(line).expect("an object");
        let path = match row["path_hex"].as_str() {
            Some(hex) => {
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            }
            None => row["path"].as_str().expect("a path").as_bytes().to_vec(),
        };
        let number = |name: &str| row[name].as_u64().expect("a number");
        let kind = match row["type"].as_str().expect("a type") {
            "symbolic link" => 'l',
            "socket" => 's',
            "fifo" => 'p',
            other => other.chars().next().unwrap(),
        };
        let [inode, uid, gid, size, links] = ["inode", "uid", "gid", "size", "links"].map(number);
        let (mode, blocks) = (number("mode"), number("allocated") / 512);
        let mtime = row["mtime"].as_f64().expect("a time").floor();
        (path, format!("{inode} {mode:o} {uid} {gid} {size} {blocks} {links} {mtime} {kind}"))
    };
    let lines = out.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(facts).collect()
}

/// The same, where nothing changes.
pub(crate) fn by_onesweep(root: &Path, options: &[&str]) -> Facts {
    let told = told_by_onesweep(root, options);
    let count = told.len();
    let facts: Facts = told.into_iter().collect();
    assert_eq!(facts.len(), count, "a path came twice");
    facts
}

/// Less than the inodes and names of the trees of these tests take.
const BY_PARTS: [&str; 2] = ["--catalog-limit", "200K"];

#[track_caller]
fn same(found: &Facts, expected: &Facts) {
    for (path, facts) in expected {
        assert_eq!(found.get(path).map_or("nothing", String::as_str), facts, "{}", path.escape_ascii());
    }
    let more = found.keys().find(|path| !expected.contains_key(*path));
    assert!(more.is_none(), "{} is not there", more.unwrap().escape_ascii());
}

/// Directories within each other, the path of the last longer than the kernel takes.
fn deep(root: &Path) {
    let open = |at: OwnedFd, name: &str| {
        rustix::fs::mkdirat(&at, name, Mode::RWXU).expect("a directory");
        rustix::fs::openat(&at, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).expect("a directory")
    };
    let root = rustix::fs::open(root, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).expect("the root");
    (0..60).fold(root, |at, number| open(at, &format!("{number:02}{}", "d".repeat(98))));
}

/// All kinds of entries.
fn fill(root: &Path) {
    for name in ["a", "a/b", "many", "link targets", "empty"] {
        fs::create_dir(root.join(name)).expect("a directory");
    }
    let mut rng = Rng::new(seed());
    for number in 0..3000 {
        fs::write(root.join(format!("many/{number}-{}", "n".repeat(number % 90))), "x".repeat(number % 50)).unwrap();
    }
    for number in 0..200 {
        let bytes = vec![1; rng.below(100_000) as usize];
        fs::write(root.join(format!("a/b/{number}")), bytes).expect("a file");
    }
    for name in [&b"line\nfeed"[..], b"latin\xe9", b"*", b"-name", b" ", b"back\\slash"] {
        fs::write(root.join(path_of(name)), name).expect("a file");
    }
    fs::hard_link(root.join("a/b/1"), root.join("a/hard")).expect("a link");
    for (name, length) in [("short", 10), ("long", 59), ("longer", 60), ("longest", 1000)] {
        std::os::unix::fs::symlink("t".repeat(length), root.join("link targets").join(name)).expect("a link");
    }
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("disk", FileType::BlockDevice, rustix::fs::makedev(259, 70_000)),
        ("terminal", FileType::CharacterDevice, rustix::fs::makedev(5, 1)),
    ] {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::RUSR, device).expect("a node");
    }
    let sparse = fs::File::create(root.join("sparse")).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", 1 << 40).expect("a byte");
    run(Command::new("chown").arg("12:100000").arg(root.join("a/b/3")));
    run(Command::new("touch").args(["-d", "1960-01-01 00:00:00.5"]).arg(root.join("a/b/4")));
    run(Command::new("touch").args(["-d", "2100-01-01"]).arg(root.join("a/b/5")));
    deep(root);
    tree::sync(root);
}

/// Waits until nothing is new any more: what changed just now is asked of the kernel.
fn let_it_age() {
    let start = SystemTime::now();
    while start.elapsed().is_ok_and(|age| age < Duration::from_millis(1100)) {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_mounted_ext4_is_told_as_find_tells_it() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Ext4Small, Fs::Ext4Inline] {
        let image = Image::new(fs, 400 << 20);
        let root = image.root();
        fill(&root);
        for place in ["a/memory", "a/bound"] {
            fs::create_dir(root.join(place)).expect("a mount point");
        }
        fs::write(root.join("a/file"), "under a mount").expect("a file");
        // New ones come from the kernel, those of a second ago from the tables; both ways tell the same.
        for _ in 0..2 {
            same(&by_onesweep(&root, &[]), &by_find(&root, &[]));
            same(&by_onesweep(&root, &BY_PARTS), &by_find(&root, &[]));
            let_it_age();
        }
        let below = root.join("a/");
        for options in [&[][..], &BY_PARTS] {
            same(&by_onesweep(&below, options), &by_find(&below, &[]));
        }
        for conditions in [&["-size", "+20k", "-type", "f"][..], &["-user", "12"], &["-user", "root", "-type", "d"]] {
            same(&by_onesweep(&root, conditions), &by_find(&root, conditions));
        }

        run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(root.join("a/memory")));
        fs::create_dir(root.join("a/memory/x")).expect("a directory");
        fs::write(root.join("a/memory/x/y"), "elsewhere").expect("a file");
        run(Command::new("mount").arg("--bind").arg(root.join("a/b")).arg(root.join("a/bound")));
        run(Command::new("mount").arg("--bind").arg(root.join("a/b/7")).arg(root.join("a/file")));
        for options in [&[][..], &BY_PARTS] {
            same(&by_onesweep(&root, options), &by_find(&root, &[]));
            same(&by_onesweep(&root, &[&["-xdev"], options].concat()), &by_find(&root, &["-xdev"]));
        }
    }
}

/// A writer works in one half of the tree: the other half comes exactly, and of its own each entry as it was at some time.
#[test]
fn a_writer_beside_changes_nothing_that_is_quiet() {
    root_test!();
    let image = Image::new(Fs::Ext4, 400 << 20);
    let (root, quiet, busy) = (image.root(), image.root().join("quiet"), image.root().join("busy"));
    fs::create_dir(&quiet).expect("a directory");
    fs::create_dir(&busy).expect("a directory");
    fill(&quiet);
    for folder in 0..20 {
        fs::create_dir(busy.join(format!("d{folder}"))).expect("a directory");
    }
    let_it_age();
    let expected = by_find(&quiet, &[]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(seed());
            let folder = |rng: &mut Rng| busy.join(format!("d{}", rng.below(20)));
            while !done.load(Ordering::Relaxed) {
                // A file has no size or the one of its name; a directory is never empty, and never has two files of one name.
                let size = rng.below(600);
                let path = folder(&mut rng).join(format!("f{size}"));
                match rng.below(4) {
                    0 => drop(fs::remove_file(&path)),
                    1 => drop(fs::rename(&path, folder(&mut rng).join(format!("f{size}")))),
                    2 => {
                        let (from, to) = (folder(&mut rng), busy.join("moved"));
                        if fs::rename(&from, &to).is_ok() {
                            fs::rename(&to, &from).expect("its name back");
                        }
                    }
                    _ => fs::write(&path, vec![7; size as usize]).expect("a file"),
                }
            }
        });
        let mut met = 0;
        for round in 0..if long() { 100 } else { 12 } {
            let options = if round % 2 == 0 { &[][..] } else { &BY_PARTS };
            let found = std::panic::catch_unwind(|| told_by_onesweep(&root, options));
            let found = found.inspect_err(|_| done.store(true, Ordering::Relaxed)).expect("files");
            let of = |below: &Path| -> Facts {
                let inside = |path: &[u8]| path_of(path).starts_with(below);
                found
                    .iter()
                    .filter(|(path, _)| inside(path))
                    .map(|(path, facts)| (path.clone(), facts.clone()))
                    .collect()
            };
            let checked = std::panic::catch_unwind(|| {
                same(&of(&quiet), &expected);
                for (path, facts) in of(&busy) {
                    let path = path_of(&path);
                    let name = text(path.file_name().expect("a name").as_bytes());
                    let facts: Vec<&str> = facts.split(' ').collect();
                    let (size, kind) = (facts[4], facts[8]);
                    match name.strip_prefix('f') {
                        Some(own) => assert!(kind == "f" && (size == own || size == "0"), "{name}: {facts:?}"),
                        None => assert!(kind == "d", "{name}: {facts:?}"),
                    }
                }
            });
            if checked.is_err() {
                done.store(true, Ordering::Relaxed);
            }
            checked.expect("what is there");
            met += found.len();
        }
        done.store(true, Ordering::Relaxed);
        say(&format!("{met} entries beside a writer"));
    });
}

/// Nothing but one rising pass over the tables.
#[test]
fn it_takes_a_fraction_of_the_time_of_find() {
    root_test!();
    let mut image = tree::aged(Fs::Ext4, if long() { 100_000 } else { 20_000 }, 8 << 30);
    let mut find = Command::new("find");
    find.arg(image.root()).args(["-size", "+0"]);
    let walked = trace::from_cold(&mut image, find);
    let mut own = onesweep(["find", "-size", "+0"]);
    own.arg(image.root());
    let swept = trace::from_cold(&mut image, own);
    let ms = |requests: &[trace::Request]| Disk::of(8 << 30).serve(requests).total_ms();
    say(&format!("find takes {:.0} ms of the disk, onesweep find {:.0} ms", ms(&walked), ms(&swept)));
    assert!(ms(&swept) * 5.0 < ms(&walked));
    let bytes = |requests: &[trace::Request]| requests.iter().map(|request| request.bytes).sum::<u64>();
    assert!(bytes(&swept) * 10 <= bytes(&walked) * 11, "{} and {}", bytes(&swept), bytes(&walked));
}

#[test]
fn what_has_no_tables_to_read_is_told() {
    root_test!();
    let says = |command: &mut Command, parts: &[&str]| {
        let said = text(&finish(command, 2).stderr);
        assert!(parts.iter().all(|part| said.contains(part)) && !said.contains("os error"), "{said}");
    };
    let folder = Folder::new();
    let memory = folder.join("memory");
    fs::create_dir(&memory).expect("a directory");
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&memory));
    fs::write(memory.join("file"), vec![b'x'; 1 << 20]).expect("a file");
    says(
        onesweep(["find"]).arg(&memory),
        &["is a directory of a mounted tmpfs", "ext2, ext3, ext4, XFS or btrfs", "an image"],
    );
    let tables = |path: &Path| {
        let mut command = onesweep(["sum", "--metadata", "tables"]);
        command.arg(path);
        command
    };
    says(&mut tables(&memory), &["mounted tmpfs", "ext2, ext3, ext4, XFS and btrfs", "Leave out --metadata tables"]);
    says(&mut tables(&memory.join("file")), &["no ext2, ext3, ext4, XFS or NTFS file system"]);

    fs::write(memory.join("empty"), "").expect("a file");
    for name in ["file", "empty"] {
        let advice =
            "is a file without a file system (ext2, ext3, ext4, XFS, NTFS); of a mounted one, name its directory";
        says(onesweep(["find"]).arg(memory.join(name)), &[advice]);
    }

    let image = Image::new(Fs::Ext4, 64 << 20);
    fs::write(image.root().join("file"), "x").expect("a file");
    finish(&mut tables(&image.root()), 0);
    for (command, options, said) in [
        ("find", &["--lost"][..], "--lost means nothing here"),
        ("sum", &["--lost", "--force-dirty"], "--lost and --force-dirty mean nothing here"),
        ("list", &["--force-dirty"], "--force-dirty means nothing here"),
        ("find", &["--logdev", "log"], "--logdev means nothing here"),
        ("plan", &["--lost", "--logdev", "log"], "--lost and --logdev mean nothing here"),
        ("list", &["--force-dirty", "-q"], ""),
    ] {
        let out = finish(onesweep([command]).args(options).arg(image.root()), 0);
        let lines = text(&out.stderr);
        assert!(lines.contains(said) && lines.lines().count() == usize::from(!said.is_empty()), "{lines}");
    }
    // The folder that cargo builds in may itself be closed to others.
    let tool = image.beside("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool);
        command
    };
    says(nobody().args(["find"]).arg(image.root()), &["cannot read the tables on /dev/loop", "be root"]);
    let with_tables = ["sum", "--metadata", "tables"];
    let xfs = Image::new(Fs::Xfs, 512 << 20);
    fs::write(xfs.root().join("file"), "x").expect("a file");
    finish(&mut tables(&xfs.root()), 0);
    let out = finish(nobody().args(["find"]).arg(xfs.root()), 2);
    let said = text(&out.stderr);
    assert!(said.contains("run as root") && !said.contains("--exclude"), "{said}");
    says(nobody().args(with_tables).arg(xfs.root()), &["XFS tells its inodes to root alone; be root"]);
    says(nobody().args(with_tables).arg(image.root()), &["cannot read the tables on /dev/loop", "be root"]);
}
