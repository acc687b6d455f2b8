//! `bench peer` with the program that is built beside it. Needs root, `/dev/fuse`, e2fsprogs, iproute2 and network namespaces;
//! says so and passes where one is missing.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onesweep-lab");

fn missing() -> Option<String> {
    let lacks = |program: &&&str| Command::new("which").arg(program).output().is_ok_and(|out| !out.status.success());
    if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
        Some("not root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse".to_owned())
    } else if !Path::new(PROGRAM).with_file_name("onesweep").exists() {
        Some("no onesweep beside onesweep-lab; build the workspace".to_owned())
    } else if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        Some("no network namespaces".to_owned())
    } else {
        ["mkfs.ext4", "ip", "tc", "nsenter"].iter().find(lacks).map(|program| format!("no {program}"))
    }
}

#[test]
fn small_cases_come_to_their_end_and_leave_nothing() {
    if let Some(reason) = missing() {
        let _ = writeln!(io::stderr(), "skipped: small_cases_come_to_their_end_and_leave_nothing: {reason}");
        return;
    }
    let home = tempfile::Builder::new().prefix("onesweep-lab-peer-").tempdir().unwrap();
    let home = home.path();
    let cases = [
        "figure-4-1000",
        "figure-3-1000",
        "rewritten",
        "write-through",
        "unreadable",
        "shared",
        "writes",
        "second-machine",
        "guard",
    ];
    let mut bench = Command::new(PROGRAM);
    bench.args(["bench", "peer", "--scale", "0.005", "--out"]).arg(home.join("out")).env("TMPDIR", home);
    bench.args(cases.iter().flat_map(|case| ["--case", case]));
    let output = bench.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");

    let results = fs::read_to_string(home.join("out/peer.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let figure = |case: &str, name: &str| {
        let value = &results["cases"][case]["outcome"]["figures"][name][0];
        value.as_f64().unwrap_or_else(|| panic!("{case}: no {name}: {results}"))
    };
    // Times are the machine's; what was read and kept is not.
    for name in ["unknown", "suspect", "stale", "differing"] {
        assert_eq!(figure("rewritten", name), 0.0, "{name}");
    }
    assert_eq!((figure("write-through", "old"), figure("write-through", "stale")), (0.0, 0.0));
    assert!(figure("write-through", "kills") >= 20.0 && figure("write-through", "writes") > 0.0);
    assert_eq!(figure("unreadable", "served"), figure("unreadable", "ranges"));
    assert_eq!(figure("unreadable", "mended"), figure("unreadable", "ranges"));
    assert!(figure("shared", "times_one_image") < 2.1);
    // Modelled.
    assert!(figure("writes", "raced_ms") / figure("writes", "alone_ms") < 1.2);
    let second =
        ["first_scanned", "second_scanned", "second_peer", "second_bytes"].map(|name| figure("second-machine", name));
    let files = figure("second-machine", "files");
    assert_eq!(second, [files, 0.0, files, 0.0]);
    assert!(figure("guard", "plain_us") > 0.0 && figure("guard", "known_us") > 0.0);
    let sizes = &results["cases"]["figure-4-1000"]["outcome"]["random"]["sizes"];
    assert_eq!(sizes.as_array().unwrap().len(), 6);
    assert_eq!(sizes[5]["raced"].as_array().unwrap().len(), 3);
    let files = &results["cases"]["figure-3-1000"]["outcome"]["sequential"]["files"];
    assert!(files[0]["remote_ms"].as_f64() > Some(0.0), "{files}");

    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(home.to_str().unwrap()), "still mounted: {mounts}");
    let left: Vec<_> = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out"], "left behind");
}
