//! The emulated disk: what was written comes back, in the time that its model says, with the faults that it was given.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::place::{PROGRAM, place, succeed};
use crate::shown::Shown;

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
