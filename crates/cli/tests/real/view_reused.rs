//! Whoever holds something of a view never comes to what gets its number later.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{FileExt, MetadataExt, PermissionsExt, chown},
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags};

use crate::{
    image::{Fs, Image},
    run::{root_test, run},
    view::{View, place, until},
};

const NOBODY: u32 = 65534;
const OPTIONS: [&[&str]; 2] = [&[], &["--read-write"]];
/// Bytes of a file of which most aren't read with the first ones.
const LARGE: usize = 4 << 20;

/// Removes something in the source, and makes another until that has its number.
fn make_anew(path: &Path, make: impl Fn(&Path)) {
    let before = fs::symlink_metadata(path).expect("it is there");
    let remove = || match before.is_dir() {
        true => fs::remove_dir_all(path).expect("it goes"),
        false => fs::remove_file(path).expect("it goes"),
    };
    // The daemon may have it open for some seconds, and so long it has its number.
    until("the number isn't used again", || {
        remove();
        make(path);
        fs::symlink_metadata(path).expect("it is there").ino() == before.ino()
    });
}

fn make_large(of: u8) -> impl Fn(&Path) {
    move |path| fs::write(path, vec![of; LARGE]).expect("a file")
}

fn path_only(path: &Path) -> rustix::fd::OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).expect("it is there")
}

/// The length that something has now, not as the kernel remembers it.
fn length(open: impl AsFd) -> io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    Ok(rustix::fs::statx(open, c"", flags, StatxFlags::BASIC_STATS)?.stx_size)
}

#[test]
fn an_open_file_has_its_own_bytes_or_none() {
    root_test!();
    let image = Image::new(Fs::Ext4, 400 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    for options in OPTIONS {
        make_large(b'o')(&root.join("file"));
        let _view = View::show(&root, &dir, options);
        let held = path_only(&dir.join("file"));
        // One that only reads isn't told to the daemon, which lets go of it soon.
        let open = options.is_empty().then(|| File::open(dir.join("file")).expect("a file"));
        let mut bytes = vec![0; 10];
        if let Some(open) = &open {
            open.read_exact_at(&mut bytes, 0).expect("bytes");
        }
        let new = |path: &Path| fs::write(path, vec![b'n'; LARGE + 1]).expect("a file");
        make_anew(&root.join("file"), new);
        let check = |what: &str| {
            assert_ne!(length(&held).ok(), Some(LARGE as u64 + 1), "{options:?}: {what}");
            let Some(open) = &open else { return };
            let _ = rustix::fs::fadvise(open, 0, None, Advice::DontNeed);
            let mut bytes = vec![0; 1 << 16];
            for at in (0..LARGE as u64).step_by(1 << 18) {
                if let Ok(count) = open.read_at(&mut bytes, at) {
                    assert!(bytes[..count].iter().all(|byte| *byte == b'o'), "{options:?}: {what}: at {at}");
                }
            }
        };
        check("before anybody comes to the new one");
        until("the new one isn't shown", || {
            fs::read(dir.join("file")).is_ok_and(|bytes| bytes == vec![b'n'; LARGE + 1])
        });
        check("after it");
        let (shown, there) = [&dir, &root].map(|tree| fs::metadata(tree.join("file")).expect("a file").ino()).into();
        assert_eq!(shown, there, "{options:?}: it has its number");
        // The daemon has let go of whatever it had open.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            check("later");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Also where no time of birth is kept, or two are born at one time (which newer kernels prevent).
#[test]
fn births_without_times_are_told_apart() {
    root_test!();
    for small_inodes in [&["-I", "128"][..], &[]] {
        let image = Image::with(Fs::Ext4, 64 << 20, small_inodes);
        let (root, dir) = place(&image);
        fs::create_dir_all(&root).expect("a folder");
        let path = root.join("file");
        for options in OPTIONS {
            let _view = View::show(&root, &dir, options);
            for turn in 0..50 {
                fs::write(&path, "old").expect("a file");
                let before = fs::metadata(&path).expect("a file").ino();
                // By another name each time, of which the kernel has nothing in mind.
                let name = format!("name {turn}");
                fs::hard_link(&path, root.join(&name)).expect("a link");
                let held = path_only(&dir.join(&name));
                fs::remove_file(root.join(&name)).expect("it goes");
                fs::remove_file(&path).expect("it goes");
                fs::write(&path, "newer").expect("a file");
                fs::hard_link(&path, root.join(&name)).expect("a link");
                if fs::metadata(&path).expect("a file").ino() == before {
                    assert_ne!(length(&held).ok(), Some(5), "{small_inodes:?} {options:?}");
                    let is_shown = || fs::read(dir.join(&name)).is_ok_and(|bytes| bytes == b"newer");
                    until("the new one isn't shown", is_shown);
                    assert_ne!(length(&held).ok(), Some(5), "{small_inodes:?} {options:?}");
                }
                fs::remove_file(root.join(&name)).expect("it goes");
                fs::remove_file(&path).expect("it goes");
            }
        }
    }
}

/// As a user: has something open by its path alone, and changes its mode when it is told to.
const CHANGES: &str = r#"
import os, sys
path, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
held = os.open(path, os.O_PATH)
os.stat(held)
print("ready", flush=True)
for line in sys.stdin:
    for act in [lambda: os.chmod(f"/proc/self/fd/{held}", 0o666), lambda: os.truncate(f"/proc/self/fd/{held}", 0)]:
        try:
            act()
        except OSError:
            pass
    print("done", flush=True)
"#;

#[test]
fn an_owner_changes_nothing_of_the_next_file_of_his_number() {
    root_test!();
    let image = Image::new(Fs::Ext4, 400 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("file"), "his").expect("a file");
    chown(root.join("file"), Some(NOBODY), Some(NOBODY)).expect("an owner");
    let _view = View::show(&root, &dir, &["--read-write"]);
    let mut command = Command::new("python3");
    command.args(["-c", CHANGES]).arg(dir.join("file")).arg(NOBODY.to_string());
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(running.stdout.take().expect("a pipe"));
    let mut tell = running.stdin.take().expect("a pipe");
    let mut line = String::new();
    said.read_line(&mut line).expect("it says something");
    make_anew(&root.join("file"), |path| {
        fs::write(path, "root's alone").expect("a file");
        fs::set_permissions(path, Permissions::from_mode(0o600)).expect("a mode");
    });
    let mut check = |what: &str| {
        tell.write_all(b"\n").expect("it hears");
        said.read_line(&mut line).expect("it says something");
        let facts = fs::metadata(root.join("file")).expect("a file");
        assert_eq!((facts.mode() & 0o7777, facts.len()), (0o600, 12), "{what}");
    };
    check("before anybody comes to the new one");
    until("the new one isn't shown", || fs::metadata(dir.join("file")).is_ok_and(|facts| facts.uid() == 0));
    check("after it");
    drop(tell);
    running.wait().expect("it ends");
}

#[test]
fn a_directory_made_anew_has_its_own_entries_and_list() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    for options in OPTIONS {
        let (root, dir) = place(&image);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("above/folder")).expect("a folder");
        let _view = View::show(&root, &dir, options);
        let list = |of: &Path| {
            let mut bytes = vec![0; 1 << 10];
            let length =
                rustix::fs::getxattr(of.join("above/folder"), c"system.posix_acl_default", &mut bytes[..]).ok()?;
            Some(bytes[..length].to_vec())
        };
        let names = || {
            let all = fs::read_dir(dir.join("above/folder")).ok()?;
            Some(all.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>())
        };
        // Nothing is listed of it: one that is open keeps its number.
        let held = path_only(&dir.join("above/folder"));
        assert_eq!(list(&dir), None);
        run(Command::new("setfacl").args(["-d", "-m", "u:1234:rwx"]).arg(root.join("above")));
        make_anew(&root.join("above/folder"), |path| fs::create_dir(path).expect("a folder"));
        let expected = list(&root);
        assert!(expected.is_some());
        until("the list isn't shown", || list(&dir) == expected);
        fs::write(root.join("above/folder/new"), "new").expect("a file");
        until("the entries aren't shown", || names() == Some(vec!["new".into()]));
        let through = Path::new("/proc/self/fd").join(held.as_raw_fd().to_string());
        assert!(fs::metadata(through.join("new")).is_err(), "{options:?}: the old one has the new one's entry");
        let listed = fs::read_dir(&through).map(|all| all.count()).unwrap_or(0);
        assert_eq!(listed, 0, "{options:?}: the old one lists the new one's entries");
    }
}
