//! `onesweep defrag` on real file systems: what it says, what it leaves, and what a reader gains.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    disk_model::Disk,
    equality::differences,
    image::{Fs, Image},
    run::{finish, interruptible, long, onesweep, output, root_test, run, say, seed, text},
    trace,
    tree::{self, Entry, Rng, manifest, sums},
};

/// Files of 1 to 6 blocks that grew by turns.
fn scatter(root: &Path, count: usize) {
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

fn defrag(options: &[&str], root: &Path, code: i32) -> Value {
    let out = finish(onesweep(["defrag", "--json", "--force"]).args(options).arg(root), code);
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&out.stdout)))
}

fn seeks(told: &Value, when: &str) -> u64 {
    told[when]["seeks"].as_u64().unwrap_or_else(|| panic!("{when} in {told}"))
}

/// All but the allocated bytes: a file in many pieces has a block with its map, which it loses.
fn entries(root: &Path) -> BTreeMap<PathBuf, Entry> {
    manifest(root).into_iter().map(|(path, (entry, _))| (path, entry)).collect()
}

/// The checker finds nothing.
fn check(image: &mut Image) {
    image.unmount();
    let (program, option) = if image.fs == Fs::Xfs { ("xfs_repair", "-n") } else { ("e2fsck", "-fn") };
    output(Command::new(program).arg(option).arg(image.device()));
    image.mount();
}

#[test]
fn a_plan_is_shown_carried_out_and_comes_to_rest() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        planned_and_carried_out(fs);
    }
}

fn planned_and_carried_out(fs: Fs) {
    let mut image = Image::new(fs, 512 << 20);
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
    let out = finish(onesweep(["defrag", "--force", "--order", "name"]).arg(&root), 0);
    let said = text(&out.stdout);
    for part in ["260 files, ", " seeks to read them\nplan: ", " seeks now\n"] {
        assert!(said.contains(part), "{said}");
    }
    let out = finish(onesweep(["defrag", "--quiet", "--force"]).arg(&root), 0);
    assert_eq!((text(&out.stdout), text(&out.stderr)), (String::new(), String::new()));
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

    for (fs, message) in [
        (Fs::Btrfs, "cannot move its files: its file system is btrfs; only files of ext4 and XFS are moved: it puts "),
        (Fs::Ext4Small, "cannot move its files: its blocks have 1024 bytes, and pages 4096: "),
    ] {
        let other = Image::new(fs, 320 << 20);
        let out = finish(onesweep(["defrag"]).arg(other.root()), 2);
        assert!(text(&out.stderr).contains(message), "{}", text(&out.stderr));
        assert_eq!(text(&out.stdout), "");
    }
    let unsafe_image = Image::with(Fs::Ext4, 320 << 20, &["-O", "^has_journal"]);
    let out = finish(onesweep(["defrag"]).arg(unsafe_image.root()), 2);
    assert!(text(&out.stderr).contains("its ext4 has no journal, without which a crash would damage what was moved"));
    let plain = Image::with(Fs::Xfs, 320 << 20, &["-m", "reflink=0"]);
    let out = finish(onesweep(["defrag"]).arg(plain.root()), 2);
    assert!(text(&out.stderr).contains("its XFS has no reflinks (mkfs.xfs -m reflink=0)"), "{}", text(&out.stderr));
    let none = root.join("none");
    let out = finish(onesweep(["defrag"]).arg(&none).arg(&root), 1);
    assert!(text(&out.stderr).contains("/none: cannot open it: No such file or directory"), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("40 files, "), "the other one is done");
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
        assert!(text(&out.stderr).contains("its file system is btrfs; only files of ext4 and XFS are moved: "));
    }
    let told = defrag(&[], &root, 2);
    assert!(seeks(&told, "before") > 40 && told["after"].is_null() && told["is_complete"] == false, "{told}");
    assert_eq!((&told["planned_regions"], &told["planned"]), (&0.into(), &told["before"]));
    assert!(entries(&root) == before);
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
        let mut command = interruptible(["defrag", "--json", "--force", "--region", "128K"]);
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

/// What it is for: the disk time that GNU tar takes, modelled from the requests that it really makes.
#[test]
fn gnu_tar_reads_a_packed_tree_in_a_fraction() {
    root_test!();
    for (options, part) in [(&[][..], 5.0), (&["--no-raise"], 3.0)] {
        packed_for_gnu_tar(Fs::Ext4, options, part);
    }
}

/// On XFS most of what is left is metadata, which stays where it is.
#[test]
fn gnu_tar_reads_a_packed_xfs_in_a_fraction() {
    root_test!();
    for (options, part) in [(&[][..], 3.3), (&["--region", "8M"], 3.3)] {
        packed_for_gnu_tar(Fs::Xfs, options, part);
    }
}

fn packed_for_gnu_tar(fs: Fs, options: &[&str], part: f64) {
    let (files, bytes) = if long() { (20_000, 8 << 30) } else { (3000, 1 << 30) };
    let mut image = tree::aged(fs, files, bytes);
    let root = image.root().join("tree");
    let before = entries(&root);
    let time = |image: &mut Image| {
        let mut tar = Command::new("tar");
        tar.args(["-cf", "-", "-C"]).arg(&root).arg(".");
        let requests = trace::from_cold(image, tar);
        (Disk::of(bytes).serve(&requests).total_ms(), requests.len())
    };
    let (scattered, requests) = time(&mut image);
    let told = defrag(options, &root, 0);
    let (packed, packed_requests) = time(&mut image);
    say(&format!(
        "{} {files} files {options:?}: {} seeks, {} planned, {} now, {} MB moved in {:.1} s; GNU tar {:.1} s by {requests} requests, then \
         {:.1} s by {packed_requests}",
        fs.name(),
        seeks(&told, "before"),
        seeks(&told, "planned"),
        seeks(&told, "after"),
        told["moved_bytes"].as_u64().unwrap_or_default() / 1_000_000,
        told["seconds"].as_f64().unwrap_or_default(),
        scattered / 1000.0,
        packed / 1000.0,
    ));
    assert!(packed * part <= scattered, "{told}");
    assert!(entries(&root) == before);
    check(&mut image);
}
