//! `bench defrag` with a program that isn't `onesweep`: it moves files by e4defrag. Needs root, `/dev/fuse`, loop devices and
//! e2fsprogs; says so and passes where one is missing.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onesweep-lab");

/// Says what it did; what it does comes before that. Its user may not ask the kernel for all that e4defrag wants to know.
const MOVER: &str = "#!/bin/sh
case $1 in
defrag)
    for tree; do :; done
    [ \"$(id -u)\" != 0 ] || DO || exit 1
    echo '{\"moved_files\": 3, \"moved_regions\": 2}';;
tar)
    while [ \"$1\" != -cf ]; do shift; done
    exec tar \"$@\";;
esac
";

fn missing() -> Option<String> {
    let lacks = |program: &&&str| Command::new("which").arg(program).output().is_ok_and(|out| !out.status.success());
    if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
        Some("not root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse".to_owned())
    } else {
        let needed = ["mkfs.ext4", "e2fsck", "e4defrag", "filefrag", "losetup", "fsfreeze", "setpriv", "rsync"];
        needed.iter().find(lacks).map(|program| format!("no {program}"))
    }
}

/// A place for one test; `None` with a printed reason where it can't run.
struct Place {
    home: TempDir,
    mover: PathBuf,
}

impl Place {
    fn new(moving: &str) -> Option<Self> {
        if let Some(reason) = missing() {
            let thread = std::thread::current();
            let _ = writeln!(io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
            return None;
        }
        let home = tempfile::Builder::new().prefix("onesweep-lab-defrag-").tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mover = home.path().join("onesweep");
        fs::write(&mover, MOVER.replace("DO", moving)).unwrap();
        fs::set_permissions(&mover, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { home, mover })
    }

    fn bench(&self, case: &str) -> Output {
        let home = self.home.path();
        let mut bench = Command::new(PROGRAM);
        bench.args(["bench", "defrag", "--scale", "0.01", "--case", case, "--onesweep"]).arg(&self.mover);
        bench.arg("--cache").arg(home.join("aged")).arg("--out").arg(home.join("out"));
        bench.env("TMPDIR", home).output().unwrap()
    }

    fn results(&self) -> Value {
        serde_json::from_slice(&fs::read(self.home.path().join("out/defrag.json")).unwrap()).unwrap()
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let home = self.home.path();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(home.to_str().unwrap()), "still mounted: {mounts}");
        let left: Vec<String> = [home.to_owned(), home.join("aged")]
            .iter()
            .flat_map(|dir| fs::read_dir(dir).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("onesweep-lab-") || name.ends_with(".img") || name.ends_with(".copy"))
            .collect();
        assert_eq!(left, [""; 0]);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_small_case_comes_to_its_end_once_and_leaves_nothing() {
    let Some(place) = Place::new("e4defrag \"$tree\" > /dev/null") else { return };
    let ran = place.bench("random-ext4");
    assert!(ran.status.success(), "{}", said(&ran));
    let results = place.results();
    let packings = &results["cases"]["random-ext4"];
    let of = |packing: &str| packings[packing]["outcome"].clone();
    let aged = of("as aged");
    assert!(aged["readers"]["GNU tar"]["busy_ms"].as_f64() > Some(0.0), "{aged}");
    assert!(aged["moved_files"] == 0 && aged["again"].is_null(), "{aged}");
    let packed = of("onesweep defrag");
    let moved = packed["moved_files"].as_u64().unwrap();
    assert!(moved > 0 && packed["moved_bytes"].as_u64() >= Some(4096 * moved), "{packed}");
    assert!(packed["written"]["content_bytes"].as_u64() >= packed["moved_bytes"].as_u64(), "{packed}");
    assert!(packed["written"]["bytes"].as_u64() > packed["written"]["content_bytes"].as_u64(), "{packed}");
    assert_eq!(packed["argv"], serde_json::json!(["onesweep", "defrag", "--json", "TREE"]));
    assert_eq!((&packed["said"]["moved_files"], &packed["again"]["said_files"]), (&3.into(), &3.into()));
    assert!(packed["readers"]["one perfect sweep"]["detail"]["streaming_ms"].as_f64() > Some(0.0), "{packed}");
    // It moves nothing as this user, so all lies as before.
    assert_eq!(of("onesweep defrag, not root")["moved_files"], 0);
    assert_eq!(of("e4defrag")["argv"], serde_json::json!(["e4defrag", "TREE"]));
    place.assert_nothing_left();

    let again = place.bench("random-ext4");
    assert!(again.status.success() && said(&again).is_empty(), "what is there is kept: {}", said(&again));
    assert_eq!(place.results(), results);
}

/// A gain in which a byte is lost is none.
#[test]
fn a_program_that_changes_a_file_has_no_figures() {
    let Some(place) = Place::new("echo x >> \"$(find \"$tree\" -type f | head -n 1)\"") else { return };
    let ran = place.bench("random-ext4");
    assert_eq!(ran.status.code(), Some(1));
    assert!(said(&ran).contains("onesweep defrag is left out: d"), "{}", said(&ran));
    assert!(said(&ran).contains("has other bytes than before"), "{}", said(&ran));
    let results = place.results();
    let packings = results["cases"]["random-ext4"].as_object().unwrap();
    assert!(packings.contains_key("as aged") && !packings.contains_key("onesweep defrag"), "{packings:?}");
    place.assert_nothing_left();
}

#[test]
fn a_refusal_is_kept_in_the_words_of_the_program() {
    let Some(place) = Place::new("{ echo \"onesweep: $tree: not today\" >&2; exit 2; }") else { return };
    let ran = place.bench("random-ext4");
    assert!(ran.status.success(), "{}", said(&ran));
    let packed = place.results()["cases"]["random-ext4"]["onesweep defrag"]["outcome"].clone();
    assert_eq!(packed["refused"], "onesweep: TREE: not today");
    assert!(packed["readers"].as_object().unwrap().is_empty() && packed["again"].is_null(), "{packed}");

    // A page shows what was measured at full size alone.
    let page = place.home.path().join("page.md");
    fs::write(&page, "# Mine\n").unwrap();
    let mut report = Command::new(PROGRAM);
    report.args(["bench", "report", "--only", "defrag", "--page"]).arg(&page).arg("--pictures");
    let report = report.arg(place.home.path().join("pictures")).arg(place.home.path().join("out")).output().unwrap();
    assert!(!report.status.success() && said(&report).contains("bench defrag"), "{}", said(&report));
    assert_eq!(fs::read_to_string(&page).unwrap(), "# Mine\n");
}

#[test]
fn a_case_that_is_not_known_is_refused_with_those_that_are() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = Command::new(PROGRAM);
    bench.args(["bench", "defrag", "--case", "none", "--onesweep", "/bin/true", "--out"]).arg(home.path().join("out"));
    let ran = bench.output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(said(&ran).contains("known are random-ext4, dfs-ext4, random-xfs"), "{}", said(&ran));
    assert!(!home.path().join("out").exists());
}
