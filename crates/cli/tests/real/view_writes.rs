//! What is written through a view lands where it would in the source, beside others who write there.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};

use crate::{
    image::{Fs, Image},
    run::{root_test, run, text},
    view::{View, place, until},
};

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
