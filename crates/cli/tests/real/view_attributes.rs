//! Extended attributes through a view, which keeps in mind of what has none.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::fs::XattrFlags;

use crate::{
    image::{Fs, Image},
    run::{output, root_test, text},
    tree::Rng,
    view::{View, place},
};

const NOBODY: u32 = 65534;
const NAMES: [&str; 4] = ["user.one", "user.other", "trusted.secret", "security.label"];

/// Dropped, also by a panic, it says that all is over.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The names and values that are there, and of those that could be the error.
fn attributes(path: &Path) -> (Vec<u8>, Vec<Result<Vec<u8>, i32>>) {
    let mut buffer = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut buffer[..]).expect("names");
    let mut names: Vec<_> = buffer[..length].split_inclusive(|byte| *byte == 0).collect();
    names.sort_unstable();
    let names = names.concat();
    let mut value = |name: &&str| match rustix::fs::lgetxattr(path, *name, &mut buffer[..]) {
        Ok(length) => Ok(buffer[..length].to_vec()),
        Err(error) => Err(error.raw_os_error()),
    };
    let values = NAMES.iter().map(&mut value).collect();
    (names, values)
}

/// Right after the call that changes them, whichever way it went, and beside somebody who changes something else all the time.
#[test]
fn attributes_show_at_once() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        for options in [&[][..], &["--read-write"][..]] {
            let image = Image::new(fs, 400 << 20);
            let (root, dir) = place(&image);
            fs::create_dir_all(root.join("folder")).expect("a folder");
            let names = ["folder", "folder/a", "b", "c", "link to b"];
            for name in &names[1..4] {
                fs::write(root.join(name), "bytes").expect("a file");
            }
            fs::hard_link(root.join("b"), root.join("link to b")).expect("a link");
            let _view = View::show(&root, &dir, options);
            let (is_over, beside) = (AtomicBool::new(false), root.join("beside"));
            thread::scope(|scope| {
                let _ends = Ends(&is_over);
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        fs::write(&beside, "other bytes").expect("a file");
                        thread::yield_now();
                    }
                });
                let mut rng = Rng::new(5);
                for turn in 0..400 {
                    let name = names[rng.below(names.len() as u64) as usize];
                    // Asked before, so that there is something to keep in mind.
                    assert_eq!(
                        attributes(&dir.join(name)),
                        attributes(&root.join(name)),
                        "{}: {turn}: {name}",
                        fs.name()
                    );
                    let attribute = NAMES[rng.below(NAMES.len() as u64) as usize];
                    let changed = if options.is_empty() || rng.below(2) == 0 { &root } else { &dir }.join(name);
                    let done = match rng.below(2) {
                        0 => {
                            rustix::fs::lsetxattr(&changed, attribute, turn.to_string().as_bytes(), XattrFlags::empty())
                        }
                        _ => rustix::fs::lremovexattr(&changed, attribute),
                    };
                    assert!(matches!(done, Ok(()) | Err(rustix::io::Errno::NODATA)), "{done:?}");
                    assert_eq!(
                        attributes(&dir.join(name)),
                        attributes(&root.join(name)),
                        "{}: {turn}: {name}",
                        fs.name()
                    );
                }
            });
        }
    }
}

/// The names of attributes that are there for root alone.
#[test]
fn attributes_of_root_are_listed_to_root() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("file"), "bytes").expect("a file");
    for name in ["trusted.secret", "user.open", "trusted.other"] {
        rustix::fs::lsetxattr(root.join("file"), name, b"value", XattrFlags::empty()).expect("an attribute");
    }
    let script = "import os, sys; os.setuid(int(sys.argv[2])); print(*sorted(os.listxattr(sys.argv[1])))";
    for option in [None, Some("--read-write")] {
        let _view = View::show(&root, &dir, &option.into_iter().collect::<Vec<_>>());
        for uid in [0, NOBODY] {
            let listed = |at: &Path| {
                let mut lists = Command::new("python3");
                text(&output(lists.args(["-c", script]).arg(at.join("file")).arg(uid.to_string())))
            };
            assert_eq!(listed(&dir), listed(&root), "user {uid}");
        }
    }
}
