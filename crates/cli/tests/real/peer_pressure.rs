//! `onesweep peer mount` where memory is short: all that serves a device, and who writes to it, in a control group with less of it than
//! is dirtied. Pages are written by the process whose own allocations wait for pages to be written; it must never wait for itself.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_sys::process::set_io_flusher;

use crate::{
    peer::{Place, Raced, Server},
    run::{finish, hold, not_here, onesweep, program, root_test, run, skipped, text},
};

const GROUP_BYTES: u64 = 64 << 20;
/// Several times as much.
const WRITTEN: u64 = 256 << 20;
/// What stands still for so long will not go on.
const PATIENCE: Duration = Duration::from_secs(300);

/// A control group with little memory, of either version of the kernel's interface. It goes when this goes.
struct Group {
    dir: PathBuf,
    /// Of version 1, where who needs memory waits for pages that are being written.
    is_first: bool,
}

impl Group {
    fn new(name: &str) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let mounts = || {
            mounts.lines().filter_map(|line| {
                let (mount, fs) = line.split_once(" - ")?;
                Some((PathBuf::from(mount.split(' ').nth(4)?), fs.to_owned()))
            })
        };
        let has = |words: &str| words.split([' ', ',', '\n']).any(|word| word == "memory");
        let first = mounts().find(|(_, fs)| fs.starts_with("cgroup ") && has(fs)).map(|(path, _)| path);
        let given =
            |path: &Path| fs::read_to_string(path.join("cgroup.subtree_control")).is_ok_and(|words| has(&words));
        let second = || mounts().find(|(path, fs)| fs.starts_with("cgroup2 ") && given(path)).map(|(path, _)| path);
        let is_first = first.is_some();
        let (parent, limit) = match first {
            Some(parent) => (parent, "memory.limit_in_bytes"),
            None => (second()?, "memory.max"),
        };
        let dir = parent.join(format!("onesweep-test-{}-{name}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let group = Group { dir, is_first };
        fs::write(group.dir.join(limit), GROUP_BYTES.to_string()).expect("a limit");
        Some(group)
    }

    /// A program that runs in it, with all that it starts.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 > \"$1\" && shift && exec \"$@\"", "sh"]);
        command.arg(self.dir.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The flags of the kernel for each thread of a process.
fn flags(process: u32) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let stats = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let flags = stats.map(|stat| {
        // The name, in parentheses, may hold any byte.
        let field = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6)).map(str::to_owned);
        field.expect("flags").parse().expect("a number")
    });
    flags.collect()
}

/// What `PR_SET_IO_FLUSHER` sets among these flags, found out by a thread that sets it; `None` where it may not.
fn flags_of_flusher() -> Option<u64> {
    // The kernel marks who has used a right of root's, too, and a thread that inherits the flags has not.
    const PF_SUPERPRIV: u64 = 0x100;
    let own = || {
        let stat = fs::read_to_string("/proc/thread-self/stat").expect("a thread");
        let field = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6)).map(str::to_owned);
        field.expect("flags").parse::<u64>().expect("a number")
    };
    let found = thread::spawn(move || {
        let before = own();
        match set_io_flusher() {
            Ok(()) => Some(own() & !before & !PF_SUPERPRIV),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
            Err(error) => panic!("PR_SET_IO_FLUSHER: {error}"),
        }
    });
    found.join().expect("a thread")
}

fn child_of(process: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("its children");
    children.split_whitespace().next().expect("one that serves").parse().expect("a number")
}

/// Memory of its own that it has now.
fn memory_of(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("its state");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

/// Bytes that no other place has.
fn content(seed: u64, at: u64, len: usize) -> Vec<u8> {
    (0..len as u64 / 8)
        .flat_map(|word| ((at + 8 * word) ^ seed << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

/// Has a program of the group write so much and make it durable; it has to be done in time.
fn write_in(group: &Group, place: &Place, target: &Path, seed: u64) {
    const STEP: usize = 1 << 20;
    // From a pipe: what it reads takes no memory of the group that isn't written.
    let mut writer = group.command(Path::new("dd"));
    writer.args(["bs=1M", "iflag=fullblock", "conv=fsync", "status=none"]).arg(format!("of={}", target.display()));
    let mut writer = writer.process_group(0).stdin(Stdio::piped()).spawn().expect("dd runs");
    let mut pipe = writer.stdin.take().expect("a pipe");
    let taken = Arc::new(AtomicU64::new(0));
    let feeding = Arc::clone(&taken);
    let feed = thread::spawn(move || {
        for at in (0..WRITTEN).step_by(STEP) {
            feeding.store(at, Ordering::Relaxed);
            if pipe.write_all(&content(seed, at, STEP)).is_err() {
                return;
            }
        }
    });
    let mut before = (0, Instant::now());
    let status = loop {
        let taken = taken.load(Ordering::Relaxed);
        if taken != before.0 {
            before = (taken, Instant::now());
        }
        match writer.try_wait().expect("a child") {
            Some(status) => break status,
            None if before.1.elapsed() > PATIENCE => {
                // A task that waits for the disk can't be killed; the mount has to go first.
                kill_mount(place);
                let _ = writer.kill();
                panic!("it stands still");
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success(), "{status}");
    feed.join().expect("it is written");
}

/// Takes away what a mount shows, so that whoever waits for it gets an error; nothing else ends a wait for a page.
fn kill_mount(place: &Place) {
    let shown = place.path("shown");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    let of_shown =
        mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| Path::new(fields[4]) == shown);
    let Some(minor) = of_shown.and_then(|fields| fields[2].split(':').nth(1).map(str::to_owned)) else { return };
    let control = place.path("control");
    fs::create_dir(&control).expect("a folder");
    run(Command::new("mount").args(["-t", "fusectl", "none"]).arg(&control));
    let _ = fs::write(control.join(minor).join("abort"), "1");
    run(Command::new("umount").arg(&control));
}

/// Neither with the right to `PR_SET_IO_FLUSHER`, by which the kernel would kill it, nor without, when it would stand still. It doesn't
/// begin.
#[test]
fn a_mount_that_memory_could_take_down_is_refused() {
    root_test!();
    let Some(group) = Group::new("refused").filter(|group| group.is_first) else {
        return skipped("no control group of version 1 for memory can be made");
    };
    let place = Place::new();
    let image = place.path("image");
    File::create(&image).expect("an image").set_len(16 << 20).expect("its size");
    place.index(&["--learn"], &image, 0);
    fs::create_dir(place.path("shown")).expect("a folder");
    let mut without = group.command(Path::new("setpriv"));
    without.args(["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"]).arg(program());
    for mut command in [group.command(&program()), without] {
        command.args(["peer", "mount", "--key"]).arg(place.path("key")).arg("--index").arg(place.path("index"));
        let told = text(&finish(command.arg("--device").arg(&image).arg(place.path("shown")), 2).stderr);
        assert!(told.contains("start it outside of the group, or give --read-only"), "{told}");
        assert_eq!(fs::read_dir(place.path("shown")).expect("a folder").count(), 0);
    }
    // Nothing of it is ever dirty. What others dirty there, it can wait for.
    let raced = Raced::show_by(&place, &image, &["--read-only"], group.command(&program()));
    if let Some(wanted) = flags_of_flusher() {
        let found = flags(child_of(raced.child.id()));
        assert!(found.iter().all(|flags| flags & wanted == 0), "{wanted:#x}: {found:#x?}");
    }
    assert_eq!(fs::read(place.path("shown").join("block")).expect("the block file").len(), 16 << 20);
    assert_eq!(raced.end(), Some(0));
}

/// In a group of version 2 the mount, too; in one of version 1 it is refused.
#[test]
fn dirty_pages_in_little_memory_are_written_also_while_the_server_stands_still() {
    root_test!();
    let Some(group) = Group::new("pressed") else { return skipped("no control group for memory can be made") };
    let place = Place::new();
    let image = place.path("image");
    File::create(&image).expect("an image").set_len(2 * WRITTEN + (128 << 20)).expect("its size");
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
    place.index(&["--learn"], &image, 0);
    let server = Server::start(&place);
    let mnt = place.path("mnt");
    fs::create_dir(&mnt).expect("a folder");
    let mount = ["--server", &server.address, "--share", "--write-through", "--mount", mnt.to_str().expect("text")];
    let command = if group.is_first { Command::new(program()) } else { group.command(&program()) };
    let raced = Raced::show_by(&place, &image, &mount, command);
    let serving = child_of(raced.child.id());
    match flags_of_flusher() {
        Some(wanted) => {
            let found = flags(serving);
            assert!(wanted != 0 && found.iter().all(|flags| flags & wanted == wanted), "{wanted:#x}: {found:#x?}");
        }
        None => not_here("without CAP_SYS_RESOURCE nobody may set PR_SET_IO_FLUSHER"),
    }
    for process in [raced.child.id(), serving] {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).expect("its groups");
        let is_within = groups.contains(&format!("onesweep-test-{}", std::process::id()));
        assert_eq!(is_within, !group.is_first, "{groups}");
    }

    write_in(&group, &place, &mnt.join("one"), 1);
    let held = hold(&server.child);
    write_in(&group, &place, &mnt.join("two"), 2);
    drop(held);
    // Else who needs memory next is killed.
    let kept = memory_of(serving);
    assert!(kept <= GROUP_BYTES / 2, "{kept} bytes are kept");
    // Past what is in memory by now.
    let compare = |seed: u64, name: &str| {
        use std::io::Read;
        let mut file = File::open(mnt.join(name)).expect("the file");
        let mut bytes = vec![0; 1 << 20];
        for at in (0..WRITTEN).step_by(bytes.len()) {
            file.read_exact(&mut bytes).expect("it is read");
            assert!(bytes == content(seed, at, bytes.len()), "{name} at {at}");
        }
    };
    compare(1, "one");
    compare(2, "two");
    assert_eq!(raced.end(), Some(0));
    run(Command::new("e2fsck").args(["-fn"]).arg(&image));
    let mut check = onesweep(["peer", "index", "--check", "--key"]);
    finish(check.arg(place.path("key")).arg("--index").arg(place.path("index")).arg(&image), 0);
    run(Command::new("mount").args(["-o", "loop,ro"]).arg(&image).arg(&mnt));
    compare(1, "one");
    compare(2, "two");
    run(Command::new("umount").arg(&mnt));
}
