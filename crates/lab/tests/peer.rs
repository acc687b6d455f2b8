//! `bench peer` with the program that is built beside it. Needs root, `/dev/fuse`, e2fsprogs, iproute2 and network namespaces;
//! says so and passes where one is missing.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const PROGRAM: &str = env!("CARGO_BIN_EXE_onesweep-lab");

fn lacking(programs: &[&str]) -> Option<String> {
    let lacks = |program: &&&str| Command::new("which").arg(program).output().is_ok_and(|out| !out.status.success());
    programs.iter().find(lacks).map(|program| format!("no {program}"))
}

fn missing() -> Option<String> {
    if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
        Some("not root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse".to_owned())
    } else if !Path::new(PROGRAM).with_file_name("onesweep").exists() {
        Some("no onesweep beside onesweep-lab; build the workspace".to_owned())
    } else if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        Some("no network namespaces".to_owned())
    } else {
        lacking(&["mkfs.ext4", "ip", "tc", "nsenter"])
    }
}

/// Several at once would wait for each other, by the clock.
static ALONE: Mutex<()> = Mutex::new(());

/// Figures of cases that were measured on a small scale. What was mounted is gone.
struct Results {
    cases: serde_json::Value,
}

impl Results {
    fn of(cases: &[&str]) -> Self {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let home = tempfile::Builder::new().prefix("onesweep-lab-peer-").tempdir().unwrap();
        let home = home.path();
        let mut bench = Command::new(PROGRAM);
        bench.args(["bench", "peer", "--scale", "0.005", "--out"]).arg(home.join("out")).env("TMPDIR", home);
        bench.args(cases.iter().flat_map(|case| ["--case", case]));
        let output = bench.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");

        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(home.to_str().unwrap()), "still mounted: {mounts}");
        let left: Vec<_> = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["out"], "left behind");
        let results = fs::read_to_string(home.join("out/peer.json")).unwrap();
        let mut results: serde_json::Value = serde_json::from_str(&results).unwrap();
        Self { cases: results["cases"].take() }
    }

    fn outcome(&self, case: &str, kind: &str) -> &serde_json::Value {
        &self.cases[case]["outcome"][kind]
    }

    fn figure(&self, case: &str, name: &str) -> f64 {
        let value = &self.outcome(case, "figures")[name][0];
        value.as_f64().unwrap_or_else(|| panic!("{case}: no {name}: {}", self.cases))
    }
}

/// Whether it can't be run here; says why.
fn is_skipped(test: &str, programs: &[&str]) -> bool {
    let missing = missing().or_else(|| lacking(programs));
    if let Some(reason) = &missing {
        let _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
    }
    missing.is_some()
}

// Times are the machine's; what was read and kept is not.

#[test]
fn small_cases_come_to_their_end_and_leave_nothing() {
    if is_skipped("small_cases_come_to_their_end_and_leave_nothing", &[]) {
        return;
    }
    let results = Results::of(&[
        "figure-4-1000",
        "figure-3-1000",
        "rewritten",
        "rewritten-parts",
        "write-through",
        "unreadable",
        "shared",
        "index-size",
        "writes",
        "one-disk-writes",
        "large-writes",
        "several-readers",
        "second-machine",
        "guard",
    ]);
    let figure = |case: &str, name: &str| results.figure(case, name);
    for name in ["unknown", "suspect", "stale", "differing"] {
        assert_eq!(figure("rewritten", name), 0.0, "{name}");
        for part in ["65536_512", "65536_4096", "16384_512", "16384_4096"] {
            assert_eq!(figure("rewritten-parts", &format!("{part}_{name}")), 0.0, "{part}: {name}");
        }
    }
    assert!(figure("rewritten-parts", "65536_512_rewritten") > 0.0);
    assert_eq!((figure("write-through", "old"), figure("write-through", "stale")), (0.0, 0.0));
    assert!(figure("write-through", "kills") >= 20.0 && figure("write-through", "writes") > 0.0);
    assert_eq!(figure("unreadable", "served"), figure("unreadable", "ranges"));
    assert_eq!(figure("unreadable", "mended"), figure("unreadable", "ranges"));
    assert_eq!((figure("unreadable", "stale"), figure("unreadable", "new")), (0.0, 0.0));
    assert!(figure("shared", "times_one_image") < 2.1);
    let sizes = results.outcome("index-size", "figures")["device"].as_array().unwrap();
    assert!(sizes.len() == 3 && sizes.iter().all(|bytes| bytes.as_f64().unwrap() <= 36.0), "{sizes:?}");
    assert!(figure("index-size", "tree") > 32.0);
    // Modelled.
    assert!(figure("writes", "raced_ms") / figure("writes", "alone_ms") < 1.2);
    assert!(figure("one-disk-writes", "raced_ms") > figure("one-disk-writes", "alone_ms"));
    for name in ["elsewhere_ms", "elsewhere_through_ms", "same_ms", "same_through_ms"] {
        assert!(figure("large-writes", name) > figure("large-writes", "alone_ms") * 0.9, "{name}");
    }
    for way in ["10_race_8", "10_local-first_32", "1000_race_32", "1000_local-first_8"] {
        for side in ["alone", "raced"] {
            assert!(figure("several-readers", &format!("{way}_{side}")) > 0.0, "{way}: {side}");
        }
    }
    let second =
        ["first_scanned", "second_scanned", "second_peer", "second_bytes"].map(|name| figure("second-machine", name));
    let files = figure("second-machine", "files");
    assert_eq!(second, [files, 0.0, files, 0.0]);
    assert!(figure("guard", "plain_us") > 0.0 && figure("guard", "known_us") > 0.0);
    let sizes = &results.outcome("figure-4-1000", "random")["sizes"];
    assert_eq!(sizes.as_array().unwrap().len(), 6);
    assert_eq!(sizes[5]["raced"].as_array().unwrap().len(), 3);
    let files = &results.outcome("figure-3-1000", "sequential")["files"];
    assert!(files[0]["remote_ms"][0].as_f64() > Some(0.0), "{files}");
}

#[test]
fn servers_that_fail_and_clocks_that_move_cost_no_byte() {
    if is_skipped("servers_that_fail_and_clocks_that_move_cost_no_byte", &["faketime"]) {
        return;
    }
    let results = Results::of(&["faults", "links"]);
    let faults = results.outcome("faults", "faults").as_array().unwrap();
    let names = |policy: &str| {
        let all = faults.iter().filter(|fault| fault["policy"] == *policy);
        all.map(|fault| fault["fault"].as_str().unwrap()).collect::<std::collections::BTreeSet<_>>()
    };
    let counts = ["race", "local-first", "remote-first", "quiet-disk"].map(|policy| names(policy).len());
    assert_eq!((counts, faults.len()), ([10, 10, 7, 7], 34));
    for fault in faults {
        let is_moved_clock = fault["fault"].as_str().unwrap().contains("clock");
        let is_back = fault["fault"] == "killed, and back with its store";
        assert_eq!(fault["extra_percent"].as_array().unwrap().is_empty(), is_moved_clock || is_back, "{fault}");
        assert_eq!(fault["helped_percent"].as_array().unwrap().is_empty(), !is_back, "{fault}");
        assert_eq!((fault["wrong"].as_u64(), fault["failed"].as_u64()), (Some(0), Some(0)), "{fault}");
        assert_eq!(fault["first_us"].as_array().unwrap().len(), fault["disk"].as_array().unwrap().len(), "{fault}");
    }
    assert_eq!(results.figure("links", "errors"), 0.0);
    assert_eq!(results.figure("links", "long"), 4.0);
    assert!(results.figure("links", "first_s") > 0.0 && results.figure("links", "reads") > 0.0);
}

#[test]
fn devices_and_trees_that_are_quicker_come_to_their_end() {
    if is_skipped("devices_and_trees_that_are_quicker_come_to_their_end", &["taskset"]) {
        return;
    }
    let results =
        Results::of(&["quick-device", "quick-tree", "library", "no-help", "quiet", "figure-4-10", "figure-3-10"]);
    for (case, names) in [
        ("quick-device", &["cold_alone_us", "cold_raced_us", "warm_alone_us", "warm_raced_us", "open_raced_us"][..]),
        (
            "quick-tree",
            &["small_cold_raced_us", "small_warm_raced_us", "large_warm_below_us", "large_portions_raced_us"],
        ),
        ("library", &["per_second"]),
        ("quiet", &["reads", "seconds"]),
    ] {
        names.iter().for_each(|name| assert!(results.figure(case, name) > 0.0, "{case}: {name}"));
    }
    // What is without use is paid for, whatever the machine is busy with.
    for (case, mounts) in [("quick-device", 1), ("quick-tree", 1), ("no-help", 4)] {
        let over = &results.outcome(case, "figures")["over_budget"];
        assert_eq!(*over, serde_json::json!(vec![0.0; mounts]), "{case}");
    }
    // Linux reads both alike, and as a device in which nothing turns.
    assert_eq!(["turns_alone", "turns_raced"].map(|name| results.figure("quick-device", name)), [0.0, 0.0]);
    // On a busy machine the server may be late now and then, and the disk is woken for that alone.
    let [reads, late, requests, spin_ups] =
        ["reads", "late", "requests", "spin_ups"].map(|name| results.figure("quiet", name));
    assert!(requests == 0.0 || late > 0.0, "{requests} requests at the disk, and the server was never late");
    assert!(late * 2.0 < reads && spin_ups <= requests, "{late} of {reads} late: {requests}, {spin_ups}");
    assert_eq!(results.outcome("figure-4-10", "random")["sizes"].as_array().unwrap().len(), 6);
    assert!(results.outcome("figure-3-10", "sequential")["files"][0]["raced_ms"][0].as_f64() > Some(0.0));
}

#[test]
fn known_contents_are_not_scanned_again_and_clamdscan_finds_the_same() {
    if is_skipped("known_contents_are_not_scanned_again_and_clamdscan_finds_the_same", &["clamd", "clamdscan"]) {
        return;
    }
    let results = Results::of(&["scan"]);
    let figure = |name: &str| results.figure("scan", name);
    assert_eq!((figure("scanned"), figure("peer")), (0.0, figure("files") + 1.0));
    // Modelled: nothing but directories and inodes is read.
    assert!(figure("ours_bytes") < figure("clamdscan_bytes"), "{}", results.cases);
    assert!(figure("ours_ms") < figure("clamdscan_ms"), "{}", results.cases);
}
