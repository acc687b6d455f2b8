//! `bench du` with a server that isn't one: it says that it is ready, and answers by GNU du. Needs root, `/dev/fuse`, loop
//! devices, e2fsprogs and a control group for memory; says so and passes where one is missing.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_onesweep-lab");

const SERVER: &str = "#!/bin/sh
case $1 in
serve)
    echo 'tree: 1 of 1 directories harvested in 0.0 s' >&2
    echo 'tree: what was harvested is stored' >&2
    echo 'tree: 1 directories harvested in the background' >&2
    echo 'tree: all that had changed was harvested in the background, 3 directories' >&2
    tail -f /dev/null &
    trap 'kill $!; exit 0' TERM
    wait;;
du)
    for tree; do :; done
    echo asked >> \"$0.asked\"
    exec du -s -B1 \"$tree\";;
esac
";

fn has_memory_groups() -> bool {
    let first = fs::read_to_string("/proc/self/cgroup").is_ok_and(|groups| groups.contains(":memory:"));
    let second = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control");
    first || second.is_ok_and(|given| given.contains("memory"))
}

fn missing() -> Option<String> {
    let lacks = |program: &&&str| Command::new("which").arg(program).output().is_ok_and(|out| !out.status.success());
    if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
        Some("not root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse".to_owned())
    } else if !has_memory_groups() {
        Some("no control group for memory".to_owned())
    } else {
        let needed = ["mkfs.ext4", "dumpe2fs", "losetup", "fsfreeze", "cc", "du"];
        needed.iter().find(lacks).map(|program| format!("no {program}"))
    }
}

/// A script in place of the program.
fn put_server(home: &Path, script: &str) -> PathBuf {
    let server = home.join("onesweep");
    fs::write(&server, script).unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    server
}

#[test]
fn small_cases_come_to_their_end_and_leave_nothing() {
    if let Some(reason) = missing() {
        let _ = writeln!(io::stderr(), "skipped: small_cases_come_to_their_end_and_leave_nothing: {reason}");
        return;
    }
    let home = tempfile::Builder::new().prefix("onesweep-lab-du-").tempdir().unwrap();
    let home = home.path();
    let server = put_server(home, SERVER);
    let cases = ["days-b-ext4", "disk-cost", "background", "overwrite", "records", "disk-records", "storm"];
    let mut bench = Command::new(PROGRAM);
    bench.args(["bench", "du", "--scale", "0.001", "--onesweep"]).arg(&server).env("TMPDIR", home);
    bench.arg("--cache").arg(home.join("aged")).arg("--out").arg(home.join("out"));
    bench.args(cases.iter().flat_map(|case| ["--case", case]));
    let output = bench.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");

    let results = fs::read_to_string(home.join("out/du.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let outcome = |case: &str, kind: &str| results["cases"][case]["outcome"][kind].clone();
    let days = outcome("days-b-ext4", "days");
    assert_eq!(days["days"].as_array().unwrap().len(), 13, "{said}");
    for walk in ["du", "onesweep du, no server"] {
        assert!(days["walks"][walk]["busy_ms"].as_f64() > Some(0.0), "{days}");
    }
    assert!(days["pass_ms"].as_f64() > Some(0.0) && days["restart"]["busy_ms"].is_number(), "{days}");
    let steps = outcome("disk-cost", "costs")["steps"].clone();
    assert_eq!(names(&steps), ["untar", "tar", "cp", "compile", "rm -r"]);
    assert!(steps[0]["tracked"][0]["wall_s"].as_f64() > Some(0.0) && steps[4]["alone"].as_array().unwrap().len() == 1);
    let background = outcome("background", "background");
    assert_eq!(background["harvests"][0]["directories"], 2, "{background}");
    for reader in ["alone_s", "beside_s"] {
        assert!(background[reader][0].as_f64() > Some(0.0), "{background}");
    }
    let overwrite = outcome("overwrite", "overwrite");
    assert!(overwrite["tracked_us"][0].as_f64() > Some(0.0) && overwrite["getppid_us"][0].as_f64() > Some(0.0));
    for case in ["records", "disk-records"] {
        let records = outcome(case, "records")["records"].clone();
        // Of 1 KiB, 16 KiB, 256 KiB, 4 MiB and 8 MiB, each in four ways.
        assert_eq!(records.as_array().unwrap().len(), 5 * 4, "{case}: {records}");
        assert!(
            records.as_array().unwrap().iter().all(|record| record["tracked"][0].as_f64() > Some(0.0)),
            "{records}"
        );
    }
    let storm = outcome("storm", "storm");
    assert!(storm["events"].as_u64() > Some(0) && storm["during"]["resident_kib"].as_u64() > Some(0), "{storm}");

    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(home.to_str().unwrap()), "still mounted: {mounts}");
    let left = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("onesweep-lab-")).count(), 0);
}

fn names(steps: &serde_json::Value) -> Vec<&str> {
    steps.as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect()
}

/// Also after those that aren't measured: what they make is to be known as well.
#[test]
fn a_server_that_is_to_know_all_is_asked_after_each_step() {
    if let Some(reason) = missing() {
        let _ = writeln!(io::stderr(), "skipped: a_server_that_is_to_know_all_is_asked_after_each_step: {reason}");
        return;
    }
    let home = tempfile::Builder::new().prefix("onesweep-lab-du-").tempdir().unwrap();
    let home = home.path();
    let server = put_server(home, SERVER);
    let mut bench = Command::new(PROGRAM);
    bench.args(["bench", "du", "--scale", "0.001", "--case", "cost-known", "--onesweep"]).arg(&server);
    bench.arg("--cache").arg(home.join("aged")).arg("--out").arg(home.join("out"));
    let output = bench.env("TMPDIR", home).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = fs::read_to_string(home.join("out/du.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!(
        names(&results["cases"]["cost-known"]["outcome"]["costs"]["steps"]),
        ["untar", "untar again", "tar", "cp", "rm -r"]
    );
    // Six steps with a server in each of two rounds, of which the first doesn't count.
    let asked = fs::read_to_string(home.join("onesweep.asked")).unwrap();
    assert_eq!(asked.lines().count(), 12);
}

/// While the server runs that a case is about.
#[test]
fn a_case_that_is_told_to_end_leaves_nothing() {
    if let Some(reason) = missing() {
        let _ = writeln!(io::stderr(), "skipped: a_case_that_is_told_to_end_leaves_nothing: {reason}");
        return;
    }
    let home = tempfile::Builder::new().prefix("onesweep-lab-du-").tempdir().unwrap();
    let home = home.path();
    let started = home.join("started");
    let keeping = SERVER.replace("    tail -f", "    mkdir \"$5\"; touch \"$5/file\" \"$STARTED\"\n    tail -f");
    let server = put_server(home, &keeping);
    let mut bench = Command::new(PROGRAM);
    bench.args(["bench", "du", "--scale", "0.02", "--case", "overwrite", "--onesweep"]).arg(&server);
    bench.arg("--cache").arg(home.join("aged")).arg("--out").arg(home.join("out"));
    let bench = bench.env("TMPDIR", home).env("STARTED", &started).stderr(Stdio::null()).spawn();
    let mut bench = bench.unwrap();
    let until = Instant::now() + Duration::from_secs(300);
    while !started.exists() {
        assert!(Instant::now() < until, "the server never started");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").arg(bench.id().to_string()).status().unwrap().success());
    assert_eq!(bench.wait().unwrap().code(), Some(2));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(home.to_str().unwrap()), "still mounted: {mounts}");
    let left: Vec<_> = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_str().unwrap().starts_with("onesweep-lab-")), "{left:?}");
}
