//! What is written through a view lands where it would in the source, and within the room and the rights of who writes it.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
};

use crate::{
    image::{Fs, Image},
    run::{root_test, run, text},
    view::{View, place, until},
};

const NOBODY: u32 = 65534;

/// Two append to one file by turns, the one in the source and the other through the view, and nobody asks how long it is.
#[test]
fn appends_land_at_the_end_that_the_file_has() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 400 << 20);
        let (root, dir) = place(&image);
        fs::create_dir_all(&root).expect("a folder");
        let _view = View::show(&root, &dir, &["--read-write"]);
        for (name, already) in [("small", 10), ("large", 2 << 20)] {
            let mut all = vec![b'.'; already];
            fs::write(root.join(name), &all).expect("a file");
            let append = |path: &Path| File::options().append(true).read(true).open(path).expect("a file");
            let (mut direct, mut shown) = (append(&root.join(name)), append(&dir.join(name)));
            for turn in 0..200 {
                let (line, own) = (format!("{turn} in the source\n"), format!("{turn} through the view, {name}\n"));
                direct.write_all(line.as_bytes()).expect("bytes");
                shown.write_all(own.as_bytes()).expect("bytes");
                all.extend([line.as_bytes(), own.as_bytes()].concat());
                if turn % 50 == 3 {
                    // By whatever the kernel has in memory, and by what it hears of the source a moment later.
                    let mut last = vec![0; line.len() + own.len()];
                    let at = (all.len() - last.len()) as u64;
                    until("the last lines aren't where they are", || {
                        shown.read_exact_at(&mut last, at).is_ok() && text(&last) == format!("{line}{own}")
                    });
                }
                if turn == 100 {
                    // Shorter than the kernel knows.
                    direct.set_len(5).expect("a size");
                    all.truncate(5);
                }
            }
            // Longer than a request.
            let long: Vec<u8> = (0..3_u32 << 20).map(|at| (at / 100) as u8).collect();
            direct.write_all(b"before").expect("bytes");
            shown.write_all(&long).expect("bytes");
            all.extend([b"before", &long[..]].concat());
            let is_all = |path: &Path| fs::read(path.join(name)).expect("a file") == all;
            assert!(is_all(&root), "{}: {name}", fs.name());
            until("the view has other bytes", || is_all(&dir));
        }
        run(Command::new("python3").args(["-c", MAPPED]).args([&dir, &root]));
    }
}

/// Pages of a mapping stay where they are, though their file was opened to be appended to.
const MAPPED: &str = r#"
import mmap, os, sys
shown, there = (os.path.join(path, "mapped") for path in sys.argv[1:])
file = os.open(shown, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
os.write(file, b"a" * 10000)
with mmap.mmap(file, 10000) as pages:
    pages[5000:5003] = b"xyz"
    pages.flush()
os.write(file, b"end")
os.close(file)
assert open(there, "rb").read() == b"a" * 5000 + b"xyz" + b"a" * 4997 + b"end"
"#;

/// Files that may only grow (chattr +a).
const GROWS: &str = r#"
import errno, fcntl, mmap, os, sys
def refused(act):
    try:
        act()
    except PermissionError:
        return
    raise Exception("it is not refused")
for name in ["log", "long log"]:
    path = os.path.join(sys.argv[1], name)
    before = os.path.getsize(path)
    refused(lambda: os.open(path, os.O_WRONLY))
    refused(lambda: os.open(path, os.O_WRONLY | os.O_APPEND | os.O_TRUNC))
    refused(lambda: os.truncate(path, 1))
    for flags in [os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_APPEND | os.O_CREAT]:
        file = os.open(path, flags)
        assert os.write(file, b"more\n") == 5
        os.close(file)
    file = os.open(path, os.O_RDWR | os.O_APPEND)
    if name == "log":
        # Nothing but an append is one.
        fcntl.fcntl(file, fcntl.F_SETFL, 0)
        refused(lambda: os.pwrite(file, b"x", 0))
    assert os.pread(file, 10, before) == b"more\nmore\n"
"#;

#[test]
fn files_that_may_only_grow_grow() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 400 << 20);
        let (root, dir) = place(&image);
        fs::create_dir_all(&root).expect("a folder");
        for (name, already) in [("log", 10), ("long log", 2 << 20)] {
            fs::write(root.join(name), vec![b'.'; already]).expect("a file");
            run(Command::new("chattr").arg("+a").arg(root.join(name)));
        }
        let view = View::show(&root, &dir, &["--read-write"]);
        run(Command::new("python3").args(["-c", GROWS]).arg(&dir));
        for (name, already) in [("log", 10), ("long log", 2 << 20)] {
            let bytes = fs::read(root.join(name)).expect("a file");
            assert!(bytes[..already].iter().all(|byte| *byte == b'.'), "{}: {name}", fs.name());
            assert_eq!(text(&bytes[already..]), "more\nmore\n", "{}: {name}", fs.name());
        }
        drop(view);
    }
}

/// As a user makes a file as large as may be, in a way.
const FILLS: &str = r#"
import errno, mmap, os, sys
path, way, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
PIECE = 1 << 16
flags = os.O_APPEND if way == "append" else 0
file = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
end = os.fstat(file).st_size
def once(at):
    if way in ["write", "append"]:
        os.pwrite(file, b"x" * PIECE, at)
    elif way == "reserve":
        os.posix_fallocate(file, at, PIECE)
    elif way == "copy":
        os.copy_file_range(file, file, PIECE, 0, at)
    elif way == "map":
        os.ftruncate(file, at + PIECE)
        with mmap.mmap(file, at + PIECE) as pages:
            pages[at:] = b"x" * PIECE
            pages.flush()
if way == "copy" and end == 0:
    os.pwrite(file, b"x" * PIECE, 0)
    end = PIECE
try:
    while True:
        once(end)
        end += PIECE
        if end % (PIECE * 16) == 0:
            os.fsync(file)
except OSError as error:
    # Of pages that were written back later it is told that something went wrong.
    assert error.errno in ([errno.EIO, errno.ENOSPC] if way == "map" else [errno.ENOSPC]), error
os.close(file)
"#;

/// Tells the bytes that it takes then.
fn fill(path: &Path, way: &str, uid: u32) -> u64 {
    run(Command::new("python3").args(["-c", FILLS]).arg(path).args([way, &uid.to_string()]));
    fs::metadata(path).expect("a file").blocks() * 512
}

/// What ext4 keeps for root (mkfs.ext4 -m) no user gets through a view, and root does.
#[test]
fn users_get_no_more_room_than_in_the_source() {
    root_test!();
    let image = Image::with(Fs::Ext4, 48 << 20, &["-m", "40"]);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    chown(&root, Some(NOBODY), Some(NOBODY)).expect("an owner");
    let _view = View::show(&root, &dir, &["--read-write"]);
    let room = || rustix::fs::statvfs(&root).expect("its room").f_bavail;
    let (at_first, near) = (room(), 512 << 10);
    let anew = |already: usize, owner: u32, mode: u32| {
        fs::write(root.join("file"), vec![b'x'; already]).expect("a file");
        fs::set_permissions(root.join("file"), fs::Permissions::from_mode(mode)).expect("a mode");
        chown(root.join("file"), Some(owner), Some(owner)).expect("an owner");
    };
    let remove = || {
        fs::remove_file(dir.join("file")).expect("it goes");
        // When the last one has let go of it, some moments after he has closed it.
        until("its room doesn't come back", || {
            crate::tree::sync(&root);
            room() + 16 >= at_first
        });
    };
    let alone = fill(&root.join("file"), "write", NOBODY);
    remove();
    for way in ["write", "append", "reserve", "copy", "map"] {
        // One that the view makes; a small one; one that the kernel writes by itself; one of root's that all may write.
        for (already, owner, mode) in
            [(0, NOBODY, 0), (9, NOBODY, 0o600), (2 << 20, NOBODY, 0o600), (2 << 20, 0, 0o666)]
        {
            // A mapping of what the kernel reads by itself is one of the source.
            if way == "map" && already > 1 << 20 {
                continue;
            }
            if mode > 0 {
                anew(already, owner, mode);
            }
            let what = format!("{way}, from {already} bytes on, of {owner}");
            // Somebody has it open, and it is all the same.
            let reader = (mode > 0).then(|| File::open(dir.join("file")).expect("a file"));
            let got = fill(&dir.join("file"), way, NOBODY);
            drop(reader);
            assert!(got <= alone + near && got + near >= alone, "{what}: {got} of {alone} bytes");
            let by_root = fill(&dir.join("file"), if way == "map" { "write" } else { way }, 0);
            assert!(by_root > alone + (4 << 20), "{what}: root gets {by_root} of {alone} bytes");
            remove();
        }
    }
}

/// An access list set by somebody who isn't in the group of a file takes its set-group-ID bit away.
#[test]
fn an_access_list_of_a_stranger_to_the_group_takes_the_bit_of_the_group() {
    root_test!();
    let (owner, group) = (4001, 4002);
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 400 << 20);
        let (root, dir) = place(&image);
        fs::create_dir_all(&root).expect("a folder");
        let _view = View::show(&root, &dir, &["--read-write"]);
        let own = format!("--reuid={owner}");
        let (first, second) = (format!("--regid={owner}"), format!("--regid={group}"));
        let more = format!("--groups=77,{group}");
        let root_group = "--groups=0".to_owned();
        let ways: [(&[&str], u32, bool); 5] = [
            (&[&own, &first, "--clear-groups"], group, false),
            (&[&own, &second, "--clear-groups"], group, true),
            (&[&own, &first, &more], group, true),
            (&[&own, &first, "--clear-groups"], 0, false),
            (&[&root_group], group, true),
        ];
        for (number, (who, group, stays)) in ways.into_iter().enumerate() {
            for at in [&root, &dir] {
                for is_directory in [false, true] {
                    let name = format!("{number}{}{is_directory}", at == &dir);
                    let there = root.join(&name);
                    match is_directory {
                        true => fs::create_dir(&there).expect("a folder"),
                        false => fs::write(&there, "bytes").expect("a file"),
                    }
                    chown(&there, Some(owner), Some(group)).expect("an owner");
                    fs::set_permissions(&there, fs::Permissions::from_mode(0o2770)).expect("a mode");
                    run(Command::new("setpriv").args(who).args(["setfacl", "-m", "u:1:rx"]).arg(at.join(&name)));
                    let mode = fs::metadata(&there).expect("facts").mode() & 0o7777;
                    let expected = if stays { 0o2770 } else { 0o770 };
                    assert_eq!(format!("{mode:o}"), format!("{expected:o}"), "{}: {name}: {who:?}", fs.name());
                    assert_eq!(fs::metadata(at.join(&name)).expect("facts").mode() & 0o7777, mode);
                }
            }
        }
    }
}
