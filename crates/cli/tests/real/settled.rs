//! Blocks that change when nobody writes any more, and that nobody tells of: whoever asks is told of them once they have settled.
//! btrfs counts what is to be written as it will be.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::PathBuf,
};

use onesweep_summary::{reading::Directories, summaries::Freshness};

use crate::{
    image::{Fs, Image},
    peer_mount::wait_until,
    run::{long, root_test, say},
    tracked::{Tracked, as_du, ask, du, tracked},
};

/// A setting of the kernel, which is as it was at the end.
struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    fn set(name: &str, value: &str) -> Setting {
        let path = PathBuf::from("/proc/sys").join(name);
        let before = fs::read_to_string(&path).expect("a setting");
        fs::write(&path, value).expect("it is set");
        Setting { path, before }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        fs::write(&self.path, &self.before).expect("it is set back");
    }
}

/// What is written at once, a second later.
fn soon() -> [Setting; 2] {
    ["vm/dirty_expire_centisecs", "vm/dirty_writeback_centisecs"].map(|name| Setting::set(name, "100"))
}

/// The blocks of a directory, as they were known until they settled, and as they are from then on.
fn settles(tracked: &mut Tracked, image: &Image, what: &str) {
    let root = image.root();
    let told = |tracked: &mut Tracked| as_du(&ask(tracked, &root, Freshness::Exact));
    let known = told(tracked);
    let (readings, events) = (tracked.readings(), tracked.tracker().told().0);
    wait_until(&format!("{what}: no blocks change"), || du(&root)[0] != known[0]);
    wait_until(&format!("{what}: what has settled is not told"), || told(tracked) == du(&root));
    assert!(told(tracked) != known && tracked.readings() > readings, "{what}: it was read once more");
    assert_eq!(tracked.tracker().told().0, events, "{what}: nobody was told");
}

/// A file in many pieces: the table of its pieces takes blocks of its own, from when it is written.
#[test]
fn pieces_of_a_file_take_blocks_when_they_are_written() {
    root_test!(alone);
    let _soon = soon();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let mut tracked = tracked(&image);
    ask(&mut tracked, &image.root(), Freshness::Synced);
    let file = File::create(image.root().join("pieces")).expect("a file");
    for piece in 0..2000 {
        file.write_all_at(&[1; 4096], piece * 8192).expect("a write");
    }
    drop(file);
    settles(&mut tracked, &image, "ext4");
}

/// What XFS has allocated ahead for a file that grows it takes back by and by, also while that is open.
#[test]
fn blocks_that_were_allocated_ahead_go_after_some_time() {
    root_test!(alone);
    if !long() {
        return say(
            "left to the long runs, since XFS takes half a minute: blocks_that_were_allocated_ahead_go_after_some_time",
        );
    }
    let _soon = soon();
    let image = Image::new(Fs::Xfs, 512 << 20);
    // Each mount goes by what is set when it begins.
    let _often = Setting::set("fs/xfs/speculative_prealloc_lifetime", "1");
    let mut tracked = tracked(&image);
    ask(&mut tracked, &image.root(), Freshness::Synced);
    assert!(tracked.directories().settling_seconds() < 60, "it goes by the settings");
    let mut file = File::create(image.root().join("grows")).expect("a file");
    for _ in 0..40 {
        file.write_all(&[1; 30_000]).expect("a write");
    }
    settles(&mut tracked, &image, "XFS");
    drop(file);
}
