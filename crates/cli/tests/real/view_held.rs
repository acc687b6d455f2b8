//! Who reads a file of a view reads it to its end, whatever becomes of its name.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::Advice;

use crate::{
    image::{Fs, Image},
    run::root_test,
    view::{View, place, until},
};

/// Bytes of a file of which most aren't read with the first ones.
const LARGE: usize = 8 << 20;
/// In which the daemon lets go of what nobody reads.
const LETS_GO: Duration = Duration::from_secs(4);

fn content() -> Vec<u8> {
    (0..LARGE as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

/// Reads anew, not from what the kernel has of it.
fn read_anew(open: &File, at: usize, bytes: &mut [u8]) -> io::Result<()> {
    rustix::fs::fadvise(open, 0, None, Advice::DontNeed)?;
    open.read_exact_at(bytes, at as u64)
}

fn free_bytes(of: &Path) -> u64 {
    let found = rustix::fs::statvfs(of).expect("a file system");
    found.f_bfree * found.f_frsize
}

#[test]
fn a_file_that_is_renamed_is_read_on() {
    root_test!();
    let content = content();
    for of in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(of, 400 << 20);
        let (root, dir) = place(&image);
        for folder in ["beside", "above/folder"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        let names = ["file", "above/folder/file", "above/folder/other", "unread"];
        for name in names {
            fs::write(root.join(name), &content).expect("a file");
        }
        let _view = View::show(&root, &dir, &[]);
        let mut first = [0; 10];
        let open = names.map(|name| {
            let open = File::open(dir.join(name)).expect("a file");
            if name != "unread" {
                open.read_exact_at(&mut first, 0).expect("bytes");
            }
            open
        });
        let rename = |from: &str, to: &str| fs::rename(root.join(from), root.join(to)).expect("it moves");
        rename("file", "beside/another");
        rename("above/folder/file", "above/folder/another");
        rename("above", "beside/below");
        rename("unread", "beside/still unread");
        // That it has let go can't be asked.
        thread::sleep(LETS_GO);
        let mut bytes = vec![0; LARGE];
        for (open, name) in open.iter().zip(names) {
            read_anew(open, 0, &mut bytes).unwrap_or_else(|error| panic!("{of:?}: {name}: {error}"));
            assert!(bytes == content, "{of:?}: {name}");
        }
        assert_eq!(fs::read(dir.join("beside/another")).expect("by its new name").len(), LARGE);
    }
}

#[test]
fn a_file_that_is_removed_is_read_on_as_long_as_somebody_reads() {
    root_test!();
    let content = content();
    let image = Image::new(Fs::Ext4, 400 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    let file = root.join("file");
    let replace = |file: &Path| {
        fs::write(file.with_extension("new"), "another one").expect("a file");
        fs::rename(file.with_extension("new"), file).expect("it takes a place");
    };
    let remove = |file: &Path| fs::remove_file(file).expect("it goes");
    let ways: [fn(&Path); 2] = [replace, remove];
    for goes in ways {
        let sync = || rustix::fs::syncfs(File::open(&root).expect("a folder")).expect("it is written");
        sync();
        let before = free_bytes(&root);
        fs::write(&file, &content).expect("a file");
        let _view = View::show(&root, &dir, &[]);
        let open = File::open(dir.join("file")).expect("a file");
        let mut bytes = vec![0; 1 << 16];
        read_anew(&open, 0, &mut bytes).expect("bytes");
        goes(&file);
        let (began, mut at) = (Instant::now(), 0);
        let mut last = began;
        while began.elapsed() < LETS_GO {
            let read = read_anew(&open, at, &mut bytes);
            if last.elapsed() > LETS_GO / 4 {
                // Held up by others so long that the daemon may have let go.
                break;
            }
            read.expect("it is read on");
            last = Instant::now();
            assert!(bytes == content[at..at + bytes.len()], "at {at}");
            at = (at + 7 * bytes.len()) % LARGE;
        }
        // Who has it open and doesn't read it holds no room of the source.
        until("its room isn't given back", || {
            sync();
            free_bytes(&root) + LARGE as u64 / 2 > before
        });
        drop(open);
    }
}
