//! The emulated disk under a real file system. Needs root, `/dev/fuse`, loop devices and e2fsprogs; says so and passes
//! where one is missing.

#[path = "lab/mechanics.rs"]
mod mechanics;
#[path = "lab/relocation.rs"]
mod relocation;
#[path = "../../relocate/tests/hosts/superblock.rs"]
mod superblock;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onesweep-lab");

/// A place for one test: an image, a directory for the disk, one for its mount.
struct Place {
    image: PathBuf,
    disk: PathBuf,
    mount: PathBuf,
    // Last: what is mounted below it goes first.
    home: TempDir,
}

/// A place, or `None` with a printed reason.
fn place(image_mib: u64) -> Option<Place> {
    let missing = |program: &&&str| Command::new("which").arg(program).output().is_ok_and(|out| !out.status.success());
    let reason = if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
        Some("not root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse".to_owned())
    } else {
        ["mkfs.ext4", "e2fsck", "losetup", "filefrag"].iter().find(missing).map(|program| format!("no {program}"))
    };
    if let Some(reason) = reason {
        skipped(&reason);
        return None;
    }
    let home = tempfile::Builder::new().prefix("onesweep-lab-test-").tempdir().unwrap();
    let [image, disk, mount] = ["image", "disk", "mount"].map(|name| home.path().join(name));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&mount).unwrap();
    File::create(&image).unwrap().set_len(image_mib << 20).unwrap();
    Some(Place { image, disk, mount, home })
}

/// Says that the running test is left out, and why; past the test harness, which would keep it back.
fn skipped(reason: &str) {
    let thread = thread::current();
    let _ = writeln!(io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new(PROGRAM).arg("down").arg(&self.disk).output();
    }
}

impl Place {
    fn ext4(&self) {
        succeed(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&self.image));
    }

    /// `onesweep-lab disk` on this place.
    fn lab(&self, options: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("disk").arg(&self.image).arg(&self.disk).args(options).current_dir(self.home.path());
        command
    }

    fn mounted(&self, options: &[&str]) -> Command {
        let mut command = self.lab(&[]);
        command.arg("--mount").arg(&self.mount).args(options);
        command
    }

    /// Runs a shell script beside the mounted disk, in its mount.
    fn script(&self, options: &[&str], script: &str) -> Output {
        let script = format!("cd mount && {script}");
        self.mounted(options).args(["--", "sh", "-c", &script]).output().unwrap()
    }

    #[track_caller]
    fn assert_down(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let home = self.home.path().to_str().unwrap();
        assert!(!mounts.contains(home), "still mounted: {mounts}");
        let loops = Command::new("losetup").arg("--list").output().unwrap();
        let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
        assert!(!loops.contains(home), "still attached: {loops}");
    }

    fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(self.disk.join("stats")).unwrap()).unwrap()
    }
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {complaint}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A disk that is shown until it is told to end.
struct Shown(Child);

impl Shown {
    /// Starts it and waits until it is ready.
    #[track_caller]
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if !line.contains("is ready") {
            let _ = child.kill();
            let mut complaint = String::new();
            child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
            let _ = child.wait();
            panic!("not ready: {line}{complaint}");
        }
        Self(child)
    }

    fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }

    /// The process that serves.
    fn server(&self) -> u32 {
        let id = self.0.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.signal("TERM");
            let _ = self.0.wait();
        }
    }
}

fn signal(process: u32, name: &str) {
    succeed(Command::new("kill").arg(format!("-{name}")).arg(process.to_string()));
}

/// Waits for something that happens soon, and fails when it never does.
#[track_caller]
fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn files_come_back_as_written() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let written = place.script(
        &[],
        "for i in $(seq 100); do head -c $((i * 1000)) /dev/urandom > f$i || exit 1; done; sha256sum f* > ../sums",
    );
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    place.assert_down();
    let read = place.script(&["--read-only", "--scheduler", "mq-deadline"], "sha256sum --quiet -c ../sums");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let books = String::from_utf8_lossy(&read.stderr).into_owned();
    let books: serde_json::Value = serde_json::from_str(&books).unwrap();
    assert!(books["reads"]["bytes"].as_u64().unwrap() >= 5_050_000, "{books}");
    assert!(books["busy_ms"].as_f64().unwrap() > 50.0, "{books}");
    place.assert_down();
    succeed(Command::new("e2fsck").arg("-fn").arg(&place.image));
}

#[test]
fn signals_take_everything_down() {
    let Some(place) = place(64) else { return };
    place.ext4();
    for name in ["INT", "TERM"] {
        let mut shown = Shown::start(&mut place.mounted(&[]));
        fs::write(place.mount.join(name), name).unwrap();
        shown.signal(name);
        assert_eq!(shown.wait(), Some(130));
        place.assert_down();
    }
    let kept = place.script(&[], "cat INT TERM > ../kept");
    assert!(kept.status.success());
    assert_eq!(fs::read_to_string(place.home.path().join("kept")).unwrap(), "INTTERM");
}

#[test]
fn a_killed_server_leaves_nothing() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut shown = Shown::start(&mut place.mounted(&[]));
    signal(shown.server(), "KILL");
    assert_eq!(shown.wait(), Some(2));
    place.assert_down();
}

#[test]
fn a_killed_guard_leaves_nothing() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut shown = Shown::start(&mut place.mounted(&[]));
    let server = shown.server();
    shown.signal("KILL");
    shown.wait();
    eventually("the server ends", || !Path::new(&format!("/proc/{server}")).exists());
    place.assert_down();
}

/// A second run must not pull the disk from under the first.
#[test]
fn a_directory_shows_one_disk() {
    let Some(place) = place(16) else { return };
    let _shown = Shown::start(&mut place.lab(&[]));
    let second = place.lab(&["--", "true"]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("already shows"), "{second:?}");
    assert_eq!(place.stats()["errors"], 0);
    succeed(Command::new(PROGRAM).arg("down").arg(&place.disk));
    place.assert_down();
}

/// Neither a file system that somebody else has mounted there nor a loop device on a file called `disk` is ours.
#[test]
fn what_others_have_mounted_stays() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let file = place.disk.join("disk");
    fs::copy(&place.image, &file).unwrap();
    succeed(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&place.mount));
    let mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(place.mount.to_str().unwrap());
    succeed(Command::new(PROGRAM).arg("down").arg(&place.disk));
    let refused = place.lab(&["--", "true"]).output().unwrap();
    let is_mounted = mounted();
    succeed(Command::new("umount").arg(&place.mount));
    assert!(is_mounted);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not empty"), "{refused:?}");
    let nothing = Command::new(PROGRAM).arg("down").arg(place.home.path().join("none")).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    place.assert_down();
}

/// What the command has started would keep the mount busy.
#[test]
fn a_signal_ends_all_of_a_command() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut command = place.mounted(&["--", "sh", "-c", "cd mount; touch ready; sleep 1000; true"]);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the command runs", || place.mount.join("ready").exists());
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    place.assert_down();
}

/// Loop devices keep their settings from one use to the next.
#[test]
fn a_scheduler_is_not_inherited() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let print = "cat /sys/block/$(basename $(df --output=source . | tail -n 1))/queue/scheduler";
    let said = |options: &[&str]| String::from_utf8(place.script(options, print).stdout).unwrap();
    assert!(said(&["--scheduler", "mq-deadline"]).contains("[mq-deadline]"));
    assert!(said(&[]).contains("[none]"));
    let unknown = place.script(&["--scheduler", "unheard-of"], "true");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("mq-deadline"), "{unknown:?}");
    place.assert_down();
}

/// What the kernel decides by: whether to spare seeks. An option overrules the model.
#[test]
fn a_device_says_whether_its_disk_has_a_head() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let print = "cat /sys/block/$(basename $(df --output=source . | tail -n 1))/queue/rotational";
    let said = |options: &[&str]| String::from_utf8(place.script(options, print).stdout).unwrap();
    assert_eq!(said(&["--model", "ssd"]), "0\n");
    assert_eq!(said(&["--model", "6y160p0"]), "1\n");
    assert_eq!(said(&["--model", "ssd", "--rotational", "on"]), "1\n");
    assert_eq!(said(&["--rotational", "off"]), "0\n");
    place.assert_down();
}

#[test]
fn a_model_comes_from_a_file() {
    let Some(place) = place(16) else { return };
    let known = succeed(Command::new(PROGRAM).args(["models", "6y160p0"]));
    let seeks = ["seek_track_ms", "seek_average_ms", "seek_full_ms"];
    let mine = |line: &str| match line.split_once(" = ") {
        Some(("name", _)) => "name = \"mine\"\n".to_owned(),
        Some((key, _)) if seeks.contains(&key) => format!("{key} = 300.0\n"),
        _ => format!("{line}\n"),
    };
    let text: String = known.lines().map(mine).collect();
    fs::write(place.home.path().join("mine.toml"), &text).unwrap();
    {
        let _shown = Shown::start(&mut place.lab(&["--model", "mine.toml"]));
        let disk = File::open(place.disk.join("disk")).unwrap();
        let mut block = vec![0; 4096];
        for at in [8 << 20, 0] {
            disk.read_exact_at(&mut block, at).unwrap();
        }
        let books = place.stats();
        assert_eq!(books["model"], "mine");
        let seek_ms = books["seek_ms"].as_f64().unwrap();
        assert!((599.0..601.0).contains(&seek_ms), "two seeks: {books}");
    }
    place.assert_down();
    for (wrong, named) in
        [(text.replace("zones = 16", "zones = 4000000000"), "zones"), (format!("{text}colour = 3\n"), "colour")]
    {
        fs::write(place.home.path().join("wrong.toml"), wrong).unwrap();
        let refused = place.lab(&["--model", "wrong.toml", "--", "true"]).output().unwrap();
        let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains("wrong.toml") && complaint.contains(named), "{complaint}");
    }
}

/// A time that no clock can count would end the server under its mount.
#[test]
fn times_beyond_measure_are_refused() {
    let Some(place) = place(16) else { return };
    for options in [["--real", "1e300"], ["--real", "nan"], ["--real", "0"], ["--fault", "slow 0+1M 1e300"]] {
        let refused = place.lab(&options).args(["--", "true"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{options:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("at most"), "{refused:?}");
    }
    let _shown = Shown::start(&mut place.lab(&["--real", "0.001"]));
    assert!(fs::write(place.disk.join("stats"), "slow 0+1M 1e300\n").is_err());
    let disk = File::open(place.disk.join("disk")).unwrap();
    disk.read_exact_at(&mut [0; 512], 0).unwrap();
}

#[test]
fn a_fault_lies_on_the_disk() {
    let Some(place) = place(16) else { return };
    let output = place.lab(&["--fault", "unreadable 1G+4K", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("16777216 bytes"), "{output:?}");
    place.assert_down();
}

#[test]
fn who_has_read_enough_may_go() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let output = Command::new(PROGRAM).arg("models").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Both killed at once: the next run, or `down`, finds what was left.
#[test]
fn what_two_killed_processes_leave_is_taken_down_later() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut shown = Shown::start(&mut place.mounted(&[]));
    let server = shown.server();
    signal(server, "STOP");
    shown.signal("KILL");
    signal(server, "KILL");
    shown.wait();
    eventually("the server ends", || !Path::new(&format!("/proc/{server}")).exists());
    let output = place.script(&[], "ls");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.assert_down();
}

#[test]
fn a_command_passes_its_exit_code_on() {
    let Some(place) = place(64) else { return };
    place.ext4();
    assert_eq!(place.script(&[], "exit 7").status.code(), Some(7));
    fs::write(&place.image, vec![0; 1 << 20]).unwrap();
    let failed = place.mounted(&["--", "true"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(2), "an image without a file system");
    place.assert_down();
}

#[test]
fn the_books_can_be_read_and_reset() {
    let Some(place) = place(16) else { return };
    let trace = place.home.path().join("trace");
    let _shown = Shown::start(place.lab(&["--model", "6y160p0"]).arg("--trace").arg(&trace));
    let disk = File::open(place.disk.join("disk")).unwrap();
    let mut block = vec![0; 4096];
    for at in [0, 8 << 20, 1 << 20] {
        disk.read_exact_at(&mut block, at).unwrap();
    }
    let books = place.stats();
    assert_eq!(books["model"], "6y160p0");
    assert_eq!((&books["reads"]["requests"], &books["reads"]["bytes"]), (&3.into(), &12_288.into()));
    assert!(books["seek_ms"].as_f64().unwrap() > 20.0, "{books}");
    let lines = fs::read_to_string(&trace).unwrap();
    let addresses: Vec<&str> = lines.lines().skip(1).map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(addresses, ["0", "8388608", "1048576"]);

    fs::write(place.disk.join("stats"), "reset\n").unwrap();
    let books = place.stats();
    assert_eq!((&books["reads"]["requests"], &books["busy_ms"]), (&0.into(), &0.0.into()));
    assert!(fs::write(place.disk.join("stats"), "nonsense\n").is_err());
}

#[test]
fn an_unreadable_place_is_an_io_error_until_it_is_written() {
    let Some(place) = place(16) else { return };
    let _shown = Shown::start(&mut place.lab(&["--fault", "unreadable 1M+4096"]));
    let disk = OpenOptions::new().read(true).write(true).open(place.disk.join("disk")).unwrap();
    let mut block = vec![0; 4096];
    disk.read_exact_at(&mut block, 0).unwrap();
    let error = disk.read_exact_at(&mut block, 1 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    disk.write_all_at(&[7; 4096], 1 << 20).unwrap();
    disk.read_exact_at(&mut block, 1 << 20).unwrap();
    assert!(block.iter().all(|&byte| byte == 7));
    // A fault that comes later.
    fs::write(place.disk.join("stats"), "unreadable 2M+512\nslow 3M+1M 5000\n").unwrap();
    assert!(disk.read_exact_at(&mut block, 2 << 20).is_err());
    disk.read_exact_at(&mut block, 3 << 20).unwrap();
    let books = place.stats();
    assert!(books["busy_ms"].as_f64().unwrap() > 5000.0, "{books}");
    assert_eq!(books["errors"], 2);
}

/// One file of two has a bad sector: only that one fails.
#[test]
fn a_file_on_a_bad_sector_fails_and_its_neighbour_does_not() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let made =
        place.script(&[], "head -c 65536 /dev/urandom > bad; head -c 65536 /dev/urandom > good; sync; filefrag -v bad");
    let text = String::from_utf8_lossy(&[made.stdout, made.stderr].concat()).into_owned();
    let extent = text.lines().find(|line| line.trim_start().starts_with("0:")).expect(&text);
    let block: u64 = extent.split(':').nth(2).unwrap().split("..").next().unwrap().trim().parse().unwrap();
    let fault = format!("unreadable {}+512", block * 4096 + 32_768);
    let read = place.script(&["--fault", &fault, "--read-only"], "cat good > /dev/null && ! cat bad > /dev/null");
    let complaint = String::from_utf8_lossy(&read.stderr).into_owned();
    assert!(read.status.success(), "{complaint}");
    assert!(complaint.contains("Input/output error"), "{complaint}");
    place.assert_down();
}

/// After a power cut the journal brings ext4 back, with every file that was synced before it.
#[test]
fn ext4_survives_a_power_cut() {
    let Some(place) = place(64) else { return };
    for seed in 1..=3 {
        place.ext4();
        let cut = place.script(
            &["--fault", &format!("power-cut {} {seed}", 60 * seed)],
            "for i in $(seq 200); do head -c 20000 /dev/urandom > f$i && sync f$i && sha256sum f$i || exit 9; done",
        );
        assert_eq!(cut.status.code(), Some(9), "the power never went");
        place.assert_down();
        let synced = String::from_utf8_lossy(&cut.stdout).into_owned();
        assert!(synced.lines().count() > 2, "{synced}");
        fs::write(place.home.path().join("sums"), synced).unwrap();
        // Replays the journal; 1 says that it did.
        let replay = Command::new("e2fsck").arg("-fp").arg(&place.image).output().unwrap();
        let said = String::from_utf8_lossy(&replay.stdout).into_owned();
        assert!(matches!(replay.status.code(), Some(0 | 1)), "seed {seed}: {said}");
        succeed(Command::new("e2fsck").arg("-fn").arg(&place.image));
        let kept = place.script(&[], "sha256sum --quiet -c ../sums >&2");
        assert!(kept.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&kept.stderr));
    }
}

#[test]
fn ageing_is_repeatable_and_its_bounds_are_in_order() {
    let Some(place) = place(1) else { return };
    let mut labels = Vec::new();
    for _ in 0..2 {
        let mut age = Command::new(PROGRAM);
        age.args(["age", "random", "--scale", "0.01", "--out"]).arg(&place.image);
        let label: serde_json::Value = serde_json::from_str(&succeed(&mut age)).unwrap();
        labels.push(label["operations_sha256"].clone());
    }
    assert_eq!(labels[0], labels[1]);
    let sidecar = fs::read_to_string(place.home.path().join("image.json")).unwrap();
    let sidecar: serde_json::Value = serde_json::from_str(&sidecar).unwrap();
    assert_eq!((&sidecar["recipe"], &sidecar["files"]), (&"random".into(), &225.into()));
    let bound = succeed(Command::new(PROGRAM).args(["bound", "--json"]).arg(&place.image));
    let bound: serde_json::Value = serde_json::from_str(&bound).unwrap();
    assert_eq!((&bound["files"], &bound["useful_bytes"]), (&sidecar["files"], &sidecar["file_bytes"]));
    let (streaming, sweep) = (bound["streaming_ms"].as_f64().unwrap(), bound["sweep"]["ms"].as_f64().unwrap());
    assert!(0.0 < streaming && streaming < sweep, "{bound}");
    assert!(bound["metadata_bytes"].as_u64().unwrap() > 0, "{bound}");
    assert_eq!(bound["image_sha256"], sidecar["image_sha256"], "a bound changes nothing");
}

/// What was there before stays, with its label.
#[test]
fn ageing_that_is_told_to_end_leaves_nothing() {
    let Some(place) = place(1) else { return };
    let (image, label) = (place.image.clone(), place.home.path().join("image.json"));
    fs::write(&image, "an image").unwrap();
    fs::write(&label, "its label").unwrap();
    for name in ["INT", "TERM", "HUP"] {
        let mut age = Command::new(PROGRAM);
        age.args(["age", "source", "--out"]).arg(&image).env("TMPDIR", place.home.path());
        let mut age = Shown(age.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let home = place.home.path().to_str().unwrap();
        eventually("it is mounted", || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(home));
        age.signal(name);
        assert_eq!(age.wait(), Some(130));
        place.assert_down();
        let mut left: Vec<_> = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["disk", "image", "image.json", "mount"]);
        assert_eq!(fs::read_to_string(&image).unwrap(), "an image");
        assert_eq!(fs::read_to_string(&label).unwrap(), "its label");
    }
}

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

/// A killed run can't take down its mount: `down` does, and the next run that makes the image.
#[test]
fn what_killed_ageing_leaves_is_taken_down_later() {
    let Some(place) = place(1) else { return };
    let home = place.home.path();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap().matches(home.to_str().unwrap()).count();
    let killed = || {
        let mut age = Command::new(PROGRAM);
        age.args(["age", "source", "--out"]).arg(&place.image).env("TMPDIR", home);
        let mut age = Shown(age.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("it is mounted", || mounts() > 0);
        age.signal("KILL");
        age.wait();
        assert_eq!(mounts(), 1);
    };
    killed();
    succeed(Command::new(PROGRAM).arg("down").arg(&place.image));
    place.assert_down();
    killed();
    succeed(Command::new(PROGRAM).args(["age", "random", "--scale", "0.01", "--out"]).arg(&place.image));
    place.assert_down();
}

#[test]
fn an_image_that_is_not_that_of_its_label_is_not_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let [image, packed, label] = ["image", "image.zst", "image.json"].map(|name| dir.path().join(name));
    fs::write(&image, "an image").unwrap();
    succeed(Command::new(PROGRAM).arg("pack").arg(&image));
    fs::remove_file(&image).unwrap();
    fs::write(&label, "{\"image_sha256\": \"another\"}").unwrap();
    let refused = Command::new(PROGRAM).arg("unpack").arg(&packed).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not the image of its label"), "{refused:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left of it");
    fs::remove_file(&label).unwrap();
    succeed(Command::new(PROGRAM).arg("unpack").arg(&packed));
    assert_eq!(fs::read_to_string(&image).unwrap(), "an image");
}

/// Reads and writes past the end are those of a file of that size.
#[test]
fn the_disk_ends_where_the_image_does() {
    let Some(place) = place(1) else { return };
    let _shown = Shown::start(&mut place.lab(&[]));
    let mut disk = OpenOptions::new().read(true).write(true).open(place.disk.join("disk")).unwrap();
    assert_eq!(disk.seek(SeekFrom::End(0)).unwrap(), 1 << 20);
    let mut block = [0; 512];
    assert_eq!(disk.read_at(&mut block, (1 << 20) - 100).unwrap(), 100);
    assert_eq!(disk.read_at(&mut block, 1 << 20).unwrap(), 0);
    assert!(disk.write_all_at(&block, 1 << 20).is_err());
    assert!(disk.write_all(&block).is_err());
}
