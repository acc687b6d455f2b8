//! What is read from the device below a mounted file system: the order of reads depends on it, and nothing else.

use std::ops::ControlFlow;

use super::{
    Checker,
    images::{Image, changed},
};
use crate::{
    block_read::BlockRead,
    tables::{
        Found, Inode, Name, TableError, Tables, Wanted,
        change_marks::change_marks,
        ext4::{Ext4, Needs},
        ntfs::{MountedNtfs, Ntfs, Options},
        xfs,
    },
};

/// A byte that chose the image, one whose bits say whether checksums are made right, what is needed and how much may be read,
/// and the changes.
pub(super) fn ext4(image: &Image, input: &[u8]) {
    let device = changed(image, input);
    let _ = change_marks(&device);
    let Ok(ext4) = Ext4::open_mounted(&device) else { return };
    let options = input.get(1).copied().unwrap_or_default();
    let needs = Needs { layout: options & 2 != 0, xattrs: options & 4 != 0 };
    let most = device.len() >> (options >> 4 & 7);
    let read = device.bytes_of(|| ext4.bring_in(needs, most, &|| true));
    assert!(read <= most, "{read} bytes of {most}");
    let directories = [2, 11, 12, 13, 40, u32::MAX].into_iter();
    let is_wanted = |number, generation| options & 8 == 0 || (number ^ generation) % 3 > 0;
    let read = device.bytes_of(|| ext4.bring_in_directories(directories, &is_wanted, most, &|| true));
    assert!(read <= most, "{read} bytes of {most}");
    ext4.scan_inodes(&mut Checker::default());
    ext4.scan_facts(&mut Checker::default());
    look_up(&ext4, options);
}

/// Single inodes and directories, of which the second and later are looked at with what was kept of those before.
fn look_up(ext4: &Ext4<impl BlockRead>, options: u8) {
    let mut looked = ext4.look_up();
    for number in [2, 11, 12, 13, 40, 2, u32::MAX] {
        if let Some((inode, _)) = looked.inode(number) {
            assert_eq!(inode.number, u64::from(number));
        }
        let is_empty = looked.is_one_empty_block(number) == Some(true);
        let mut left = if options & 8 == 0 { usize::MAX } else { 3 };
        let told = looked.names(number, &mut |_, name| {
            assert!(!is_empty, "{number} counts as empty");
            assert!(left > 0, "{number} goes on where nobody listens");
            left -= 1;
            assert!((1..=255).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0), "{name:?}");
            left > 0
        });
        assert!(told.is_none() || left > 0, "{number} counts as whole");
        assert!(told.is_some() || !is_empty, "{number} is empty and can't be read");
    }
}

/// As [`ext4`].
pub(super) fn xfs(image: &Image, input: &[u8]) {
    let device = changed(image, input);
    let _ = change_marks(&device);
    xfs::fuzzing::first_blocks(&device);
}

/// As [`ext4`]; files are mapped, too.
pub(super) fn ntfs(image: &Image, input: &[u8]) {
    let device = changed(image, input);
    let _ = change_marks(&device);
    let Ok(mounted) = MountedNtfs::of(&device) else { return };
    let options = input.get(1).copied().unwrap_or_default();
    // Whoever has no room for all of the $MFT doesn't begin.
    let most = (device.len() >> (options >> 4 & 7)).max(mounted.table_bytes());
    let read = device.bytes_of(|| mounted.bring_in(most, &|| true));
    assert!(read <= most, "{read} bytes of {most}");
    let Ok(mut tables) = Ntfs::open(&device, Options { force_dirty: true }) else { return };
    let mut files = Files::default();
    if tables.scan(Wanted::default(), &mut files).is_err() {
        return;
    }
    for (number, size) in files.0 {
        let mut next = 0;
        let _ = mounted.map(number, size, &mut |extent| {
            assert!(extent.logical == next && extent.physical.is_some(), "{extent:?} behind {next}");
            next = extent.logical_end();
        });
    }
}

/// The sizes of files by their numbers.
#[derive(Default)]
struct Files(Vec<(u64, u64)>);

impl Found for Files {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        self.0.push((inode.number, inode.size));
        ControlFlow::Continue(())
    }

    fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, _: TableError) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
