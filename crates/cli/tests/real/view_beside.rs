//! Two at one name, one in the source and the other through a view: the kernel judges by what it has in mind, and what is there by now
//! may be somebody else's.

use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

use crate::{
    image::{Fs, Image},
    run::root_test,
    view::{View, place},
};

const NOBODY: u32 = 65534;
const TURNS: usize = 2000;

/// A user beside root does something again and again, until his input ends. He tells what must not be.
const BESIDE: &str = r#"
import os, random, sys, threading, time
dir, uid, act = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
os.umask(0o077)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
x, own = os.path.join(dir, "x"), os.path.join(dir, "own")
errors = {}
def once():
    if act == "open":
        file = os.open(x, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        mine = os.fstat(file).st_uid == uid and os.pread(file, 10, 0) == b""
        os.close(file)
        if not mine:
            print("he has a descriptor of root's file", flush=True)
            os._exit(1)
        os.unlink(x)
    elif act == "remove":
        os.close(os.open(x, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        # Long enough for root to put his there, and for the kernel not to have heard of it.
        time.sleep(random.random() / 1000)
        os.unlink(x)
    elif act == "replace":
        os.close(os.open(own, os.O_WRONLY | os.O_CREAT, 0o600))
        os.rename(own, x)
        os.unlink(x)
    elif act == "move":
        os.close(os.open(x, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.rename(x, own)
print("ready", flush=True)
while not over.is_set():
    try:
        once()
    except OSError as error:
        errors[error.strerror] = errors.get(error.strerror, 0) + 1
print(errors, flush=True)
"#;

struct Beside {
    running: Child,
    tell: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Beside {
    fn start(dir: &Path, act: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", BESIDE]).arg(dir).arg(NOBODY.to_string()).arg(act);
        let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (tell, said) = (running.stdin.take(), BufReader::new(running.stdout.take().expect("a pipe")));
        let mut beside = Self { running, tell, said };
        assert_eq!(beside.line(), "ready\n");
        beside
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it says something");
        line
    }

    fn end(mut self) {
        drop(self.tell.take());
        let line = self.line();
        let status = self.running.wait().expect("it ends");
        assert!(status.success(), "{line}");
        println!("{}", line.trim());
    }
}

/// Root's files that nobody else may read, in a directory in which all may make files: whatever a user does beside through the view, they
/// stay as they are, where they are.
#[test]
fn a_user_has_no_more_of_roots_files_than_in_the_source() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(root.join("all")).expect("a folder");
    fs::set_permissions(root.join("all"), Permissions::from_mode(0o1777)).expect("a mode");
    let _view = View::show(&root, &dir, &["--read-write"]);
    let x = root.join("all/x");
    for act in ["open", "remove", "replace", "move"] {
        let beside = Beside::start(&dir.join("all"), act);
        for turn in 0..TURNS {
            let _ = fs::remove_file(&x);
            let made = File::options().write(true).create_new(true).mode(0o600).open(&x);
            // He came first.
            let Ok(mut made) = made else { continue };
            made.write_all(b"root's alone").expect("bytes");
            let ino = made.metadata().expect("a file").ino();
            for _ in 0..turn % 50 {
                thread::yield_now();
                let facts = made.metadata().expect("a file");
                let is_its = (facts.len(), facts.uid(), facts.mode() & 0o7777, facts.nlink()) == (12, 0, 0o600, 1);
                assert!(is_its, "{act}: it has changed: {facts:?}");
                assert!(fs::metadata(&x).is_ok_and(|facts| facts.ino() == ino), "{act}: it has gone");
            }
        }
        beside.end();
        let _ = fs::remove_file(&x);
        let _ = fs::remove_file(root.join("all/own"));
    }
}
