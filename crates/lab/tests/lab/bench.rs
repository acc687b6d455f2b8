//! Programs that are measured.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::place::{PROGRAM, place, succeed};
use crate::shown::{Shown, eventually};

/// Nobody waits for the program that is being measured.
#[test]
fn a_bench_that_is_told_to_end_ends_the_running_program() {
    let Some(place) = place(1) else { return };
    let home = place.home.path();
    let [program, running] = ["onesweep", "running"].map(|name| home.join(name));
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = plan ] && exec echo '{{}}'\nsleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait\n",
        running.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut bench = Command::new(PROGRAM);
    bench.args(["bench", "sweep", "--case", "random-ext4", "--scale", "0.01", "--onesweep"]).arg(&program);
    bench.arg("--cache").arg(home.join("aged")).arg("--out").arg(home.join("out")).env("TMPDIR", home);
    let mut bench = Shown(bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("our program runs", || running.exists());
    bench.signal("TERM");
    assert_eq!(bench.wait(), Some(2));
    let sleeper = fs::read_to_string(&running).unwrap();
    let command = fs::read_to_string(format!("/proc/{}/cmdline", sleeper.trim())).unwrap_or_default();
    assert!(!command.contains("sleep"), "it runs on: {command}");
    place.assert_down();
    let kept = fs::read_to_string(home.join("out/runs.json")).unwrap();
    assert!(kept.contains("gnu-tar"), "{kept}");
    let left = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("onesweep-lab-")).count(), 0);
}

/// On NTFS, where the bound asks ntfs-3g for every block.
#[test]
fn a_bench_shows_a_device_with_nothing_mounted() {
    let Some(place) = place(1) else { return };
    let home = place.home.path();
    let program = home.join("onesweep");
    let script = "#!/bin/sh
for device; do :; done
[ -b \"$device\" ] && ! grep -q \"^$device \" /proc/self/mounts && exec head -c 8388608 \"$device\"
echo \"$device: no such device\" >&2; exit 2\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut bench = Command::new(PROGRAM);
    bench.args(["bench", "sweep", "--case", "tables-random-ntfs", "--scale", "0.01", "--onesweep"]).arg(&program);
    bench.arg("--cache").arg(home.join("aged")).arg("--out").arg(home.join("out")).env("TMPDIR", home);
    succeed(&mut bench);
    place.assert_down();
    let results: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(home.join("out/runs.json")).unwrap()).unwrap();
    let runs = results["runs"].as_array().unwrap();
    let run = |tool: &str| runs.iter().find(|run| run["work"]["tool"] == tool).unwrap();
    let (tar, ours, bound) = (run("gnu-tar"), run("tar"), run("bound"));
    assert_eq!((&ours["missing"], &ours["argv"][5]), (&serde_json::Value::Null, &"DEVICE".into()), "{ours}");
    let at_least = |run: &serde_json::Value, bytes: u64| run["bytes"].as_u64().unwrap() >= bytes;
    assert!(at_least(ours, 8 << 20) && !at_least(ours, 16 << 20), "{ours}");
    let facts = results["images"].as_object().unwrap().values().next().unwrap();
    assert_eq!(bound["detail"]["useful_bytes"], facts["file_bytes"]);
    assert!(bound["detail"]["extents"].as_u64() >= facts["files"].as_u64(), "{bound}");
    // A complaint doesn't name the places of the day.
    bench.args(["--case", "tables-mail-ext4-find"]);
    assert_eq!(bench.output().unwrap().status.code(), Some(1));
    let results = fs::read_to_string(home.join("out/runs.json")).unwrap();
    assert!(results.contains("ended with 2: TREE: no such device"), "{results}");
    assert!(
        at_least(bound, facts["file_bytes"].as_u64().unwrap()) && bound["busy_ms"].as_f64() < tar["busy_ms"].as_f64()
    );
}

/// A failure is told and can be seen from outside; it stays what came out, until it is asked for again.
#[test]
fn a_bench_with_a_failed_program_says_so_by_its_exit_code() {
    let Some(place) = place(1) else { return };
    let home = place.home.path();
    let program = home.join("onesweep");
    let write = |script: &str| fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    write("echo no such thing >&2; exit 2");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let bench = |case: &str, again: &str| {
        let mut bench = Command::new(PROGRAM);
        bench.args(["bench", "sweep", "--scale", "0.01", "--case", case, "--again", again, "--onesweep"]).arg(&program);
        bench.arg("--cache").arg(home.join("aged")).arg("--out").arg(home.join("out")).env("TMPDIR", home);
        let output = bench.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = bench("plan-files", "no");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ended with 2: no such thing"), "{said}");
    assert_eq!(bench("plan-files", "no").0, Some(0), "nothing was due");
    assert_eq!(bench("plan-files", "missing").0, Some(1));
    // Budgets are parts of what the plan tells: without it, there is nothing to measure.
    let (code, said) = bench("random-budget-1-3", "no");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is left out: `onesweep plan` ended with 2: no such thing"), "{said}");
    place.assert_down();
}
