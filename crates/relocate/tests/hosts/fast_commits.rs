//! ext4 that makes fast commits: of what was moved, anybody's fsync would bring a part into the journal.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use onesweep_relocate::ext4::{self, Ext4};
use onesweep_relocate::host::{Host, Uncached};
use onesweep_relocate::mounted::{Refusal, host_of};

use crate::image::{Image, is_root, run, text};
use crate::killed::undo_what_is_left;
use crate::kinds::READ;
use crate::tree::{assert_same, kept, scatter};
use crate::undo::pack_and_keep;

const MIB: u64 = 1 << 20;

fn assert_refused(directory: &Path) {
    let refusal = Ext4::of(directory, READ).unwrap_err();
    assert!(matches!(refusal, ext4::Refusal::FastCommits), "{refusal}");
    // As the daemon asks.
    let refusal = host_of(directory, Uncached::Stays).unwrap_err();
    assert!(matches!(refusal, Refusal::Ext4(ext4::Refusal::FastCommits)), "{refusal}");
    let said = refusal.to_string();
    assert!(said.contains("makes fast commits") && said.contains("run tune2fs -O ^fast_commit"), "{said}");
}

/// Whoever asks is refused, also as long as nobody has made any. So when somebody else syncs a file and the machine stops, all is well.
#[test]
fn nothing_is_moved_where_a_fast_commit_would_lose_it() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(256 * MIB, &["-O", "fast_commit"], "commit=600");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    image.cold();
    let before = kept(&directory);
    let mut beside = File::create(image.root().join("beside")).unwrap();
    run("sync", &["-f", text(&directory)]);
    let captured = Ext4::of(&directory, READ).map(|mut mover| (mover.capture(&directory, 16), mover));
    beside.write_all(b"bytes").and_then(|()| beside.sync_all()).unwrap();
    image.stop(false);
    let is_allowed = captured.is_ok();
    drop((beside, captured));
    image.restart();
    assert!(!is_allowed);
    assert_refused(&directory);
    assert_same(&directory, &before);
    image.check();
}

/// What was moved before is not moved back either; and what is told to do helps.
#[test]
fn fast_commits_are_found_out_whenever_they_were_switched_on() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(256 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    image.cold();
    let before = kept(&directory);
    pack_and_keep(&directory);
    image.unmount();
    run("tune2fs", &["-O", "fast_commit", text(image.device())]);
    image.mount();
    assert_refused(&directory);
    // It goes on while it is mounted, where some kernels tell it and others count it.
    File::create(image.root().join("beside")).and_then(|beside| beside.sync_all()).unwrap();
    run("tune2fs", &["-O", "^fast_commit", text(image.device())]);
    assert_refused(&directory);
    image.unmount();
    run("tune2fs", &["-O", "^fast_commit", text(image.device())]);
    image.mount();
    image.check();
    undo_what_is_left(&directory);
    assert_same(&directory, &before);
    image.check();
}
