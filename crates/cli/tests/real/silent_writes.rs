//! Files that are written so that the kernel tells nobody, without any mapping: by `io_submit`, and through a loop device.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use onesweep_summary::{reading::Directories, summaries::Freshness, tracker::Tracker};

use crate::{
    image::{Fs, Image},
    run::{output, root_test, run, text},
    tracked::{Tracked, agrees, agrees_when_synced, as_du, ask, du, tracked},
    tree::sync,
};

const SYSTEMS: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];
const PART: u64 = 1 << 20;

/// Writes a part of a file by `io_submit` for each line with an offset and a length, and says so.
const BY_IO_SUBMIT: &str = r#"
import ctypes, os, platform, struct, sys
setup, submit, getevents = (206, 209, 208) if platform.machine() == "x86_64" else (0, 2, 4)
call = ctypes.CDLL(None, use_errno=True).syscall
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "a call failed")
    return result
context = ctypes.c_ulong(0)
checked(call(setup, 8, ctypes.byref(context)))
file = os.open(sys.argv[1], os.O_RDWR)
print("open", flush=True)
for line in sys.stdin:
    offset, length = map(int, line.split())
    data = ctypes.create_string_buffer(b"x" * length, length)
    PWRITE = 1
    block = ctypes.create_string_buffer(struct.pack(
        "<QIiHhIQQqQII", 0, 0, 0, PWRITE, 0, file, ctypes.addressof(data), length, offset, 0, 0, 0), 64)
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    checked(call(submit, context, 1, blocks))
    event = ctypes.create_string_buffer(32)
    checked(call(getevents, context, 1, 1, event, None))
    (written,) = struct.unpack_from("<q", event, 16)
    assert written == length, written
    print("written", flush=True)
"#;

struct Submitting(Child, BufReader<ChildStdout>);

impl Submitting {
    fn to(path: &Path) -> Submitting {
        let mut python = Command::new("python3");
        python.args(["-c", BY_IO_SUBMIT]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("python3");
        let said = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut submitting = Submitting(child, said);
        submitting.hears("open");
        submitting
    }

    fn hears(&mut self, expected: &str) {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("it says something");
        assert_eq!(line.trim_end(), expected);
    }

    fn write(&mut self, offset: u64, length: u64) {
        let stdin = self.0.stdin.as_mut().expect("it was piped");
        writeln!(stdin, "{offset} {length}").expect("it reads");
        self.hears("written");
    }
}

impl Drop for Submitting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A loop device on a file, which goes whatever happens.
struct Loop(PathBuf);

impl Loop {
    fn on(path: &Path) -> Loop {
        let said = text(&output(Command::new("losetup").args(["--find", "--show"]).arg(path)));
        Loop(PathBuf::from(said.trim()))
    }

    fn write(&self, offset: u64, length: u64) {
        let mut io = Command::new("xfs_io");
        io.args(["-c", &format!("pwrite {offset} {length}"), "-c", "fsync"]).arg(&self.0);
        run(&mut io);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A directory with a file that is all hole, and another one beside it; both known.
fn holes(fs: Fs) -> (Image, Tracked, [PathBuf; 3]) {
    let image = Image::new(fs, 512 << 20);
    let [a, b] = ["a", "b"].map(|name| image.root().join(name));
    for directory in [&a, &b] {
        fs::create_dir(directory).expect("a directory");
    }
    let file = a.join("file");
    File::create(&file).and_then(|file| file.set_len(16 * PART)).expect("a hole");
    fs::write(b.join("other"), vec![1; 10_000]).expect("a file");
    sync(&image.root());
    let mut tracked = tracked(&image);
    agrees(&mut tracked, &image.root(), "the first harvest");
    (image, tracked, [a, b, file])
}

/// What a server does from time to time.
fn look(tracked: &mut Tracked, at: i64) {
    let files = tracked.directories().open_for_writing().expect("they are told");
    tracked.take_open_files(at, &files).expect("it is taken in");
}

/// Each part is a hole that `write` fills, or beyond the end.
fn written_silently(fs: Fs, tracked: &mut Tracked, [a, b]: [&Path; 2], mut write: impl FnMut(u64)) {
    let root = a.parent().expect("the top").to_owned();
    look(tracked, 1000);
    for directory in [a, b, &root] {
        ask(tracked, directory, Freshness::Exact);
    }
    assert!(tracked.tracker().is_quiet());
    for part in 0..4 {
        let when = format!("{}: part {part}", fs.name());
        // Nobody tells of it, which is what this is about; answers say so.
        write(2 * part * PART);
        sync(&root);
        assert!(tracked.tracker().is_quiet(), "{when} was told");
        let old = ask(tracked, a, Freshness::Exact);
        assert_eq!((old.is_exact, old.checked_at), (false, Some(1000 + part as i64)), "{when}");
        assert!(as_du(&old) != du(a), "{when}: nothing was written");
        let beside = ask(tracked, b, Freshness::Exact);
        assert_eq!((beside.is_exact, as_du(&beside)), (true, du(b)), "{when}");
        // Who wants all that is written gets it.
        agrees_when_synced(tracked, &root, &when);
        agrees_when_synced(tracked, a, &when);
        write((2 * part + 1) * PART);
        sync(&root);
        // And everybody after the next look.
        look(tracked, 1001 + part as i64);
        let found = ask(tracked, &root, Freshness::Exact);
        assert_eq!(as_du(&found), du(&root), "{when}");
        assert_eq!((found.is_exact, found.checked_at), (false, Some(1001 + part as i64)), "{when}");
    }
}

#[test]
fn what_io_submit_writes_is_looked_at() {
    root_test!();
    for fs in SYSTEMS {
        let (_image, mut tracked, [a, b, file]) = holes(fs);
        let mut submitting = Submitting::to(&file);
        written_silently(fs, &mut tracked, [&a, &b], |offset| submitting.write(offset, PART));
        // A file that grows, too.
        submitting.write(20 * PART, PART);
        agrees_when_synced(&mut tracked, &a, "it has grown");
        submitting.write(22 * PART, PART);
        drop(submitting);
        look(&mut tracked, 2000);
        let closed = ask(&mut tracked, &a, Freshness::Exact);
        assert!(closed.is_exact, "{}: it is closed", fs.name());
        assert_eq!(as_du(&closed)[1..], du(&a)[1..], "{}", fs.name());
    }
}

#[test]
fn what_is_written_through_a_loop_device_is_looked_at() {
    root_test!();
    for fs in SYSTEMS {
        let (_image, mut tracked, [a, b, file]) = holes(fs);
        let device = Loop::on(&file);
        written_silently(fs, &mut tracked, [&a, &b], |offset| device.write(offset, PART));
        drop(device);
        look(&mut tracked, 2000);
        let closed = ask(&mut tracked, &a, Freshness::Exact);
        assert!(closed.is_exact, "{}: no device is on it", fs.name());
        agrees(&mut tracked, &a, "no device is on it");
    }
}

/// Of what is open for writing in the ordinary way each write is told.
#[test]
fn files_that_are_open_keep_no_answer_from_being_exact() {
    root_test!();
    let (image, mut tracked, [a, _, file]) = holes(Fs::Ext4);
    let mut file = OpenOptions::new().append(true).open(file).expect("a file");
    for round in 0..3 {
        look(&mut tracked, 1000 + round);
        file.write_all(&[7; 5000]).expect("a write");
        for directory in [&a, &image.root()] {
            let answer = ask(&mut tracked, directory, Freshness::Exact);
            assert_eq!((answer.is_exact, answer.checked_at), (true, Some(1000 + round)));
            assert_eq!(as_du(&answer)[1..], du(directory)[1..]);
        }
    }
}
