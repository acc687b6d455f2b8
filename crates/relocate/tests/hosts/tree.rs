//! Trees of files that lie apart, and all that must be the same afterwards.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use onesweep_relocate::carry::{Report, Settings, carry_out};
use onesweep_relocate::host::{Exchange, Host, Stays, Trouble};
use onesweep_relocate::pack::{Item, Plan, Rules, plan, score};
use onesweep_relocate::survey::{Candidate, Order, files_below, survey};
use onesweep_sys::files::{
    CURRENT_DIR, Time, list_xattrs_fd, open_file_at, set_xattr_fd, statx_fd, sync_file_system, xattr_fd,
};

/// Bytes of which each block tells its file and number.
pub(crate) fn bytes(file: u64, size: usize) -> Vec<u8> {
    let word = |at: usize| (file << 32 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..size.div_ceil(8)).flat_map(|at| word(at).to_le_bytes()).take(size).collect()
}

/// Blocks of the file with this number: 2 to 12.
pub(crate) fn blocks_of(number: u64) -> u64 {
    2 + number * 7 % 11
}

pub(crate) fn sync(directory: &Path) {
    sync_file_system(File::open(directory).unwrap().as_fd()).unwrap();
}

/// Files of 2 to 12 blocks (the last not full) that grew by turns, each block for itself.
pub(crate) fn scatter(directory: &Path, count: u64) -> Vec<PathBuf> {
    fs::create_dir_all(directory).unwrap();
    let paths: Vec<PathBuf> = (0..count).map(|number| directory.join(format!("file-{number}"))).collect();
    let files: Vec<File> = paths.iter().map(|path| File::create(path).unwrap()).collect();
    for block in 0..12 {
        for (number, file) in (0..).zip(&files).filter(|&(number, _)| block < blocks_of(number)) {
            let all = bytes(number, blocks_of(number) as usize * 4096 - 100);
            let part = &all[block as usize * 4096..all.len().min((block as usize + 1) * 4096)];
            file.write_all_at(part, block * 4096).unwrap();
        }
        sync(directory);
    }
    set_xattr_fd(files[0].as_fd(), c"user.kept", b"yes").unwrap();
    paths
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    facts: (u64, u32, u32, u32, u32, u64),
    times: [Time; 3],
    xattrs: Vec<(Option<Vec<u8>>, CString)>,
}

/// All that nobody may see change, read without leaving a trace.
pub(crate) fn kept(directory: &Path) -> BTreeMap<PathBuf, Kept> {
    let paths = files_below(directory, Order::Name, &mut |path, error| panic!("{}: {error}", path.display())).unwrap();
    let one = |path: PathBuf| {
        let fd = open_file_at(CURRENT_DIR, &path).unwrap();
        let stat = statx_fd(fd.as_fd()).unwrap();
        let names = list_xattrs_fd(fd.as_fd()).unwrap();
        let value = |name: &CString| xattr_fd(fd.as_fd(), name.as_c_str()).unwrap();
        let xattrs = names.into_iter().map(|name| (value(&name), name)).collect();
        let mut bytes = Vec::new();
        File::from(fd).read_to_end(&mut bytes).unwrap();
        let facts = (stat.ino, stat.mode, stat.nlink, stat.uid, stat.gid, stat.size);
        (path, Kept { bytes, facts, times: [stat.atime, stat.mtime, stat.ctime], xattrs })
    };
    paths.into_iter().map(one).collect()
}

/// The same with no time of the last change of an inode (ctime).
pub(crate) fn without_ctime(mut all: BTreeMap<PathBuf, Kept>) -> BTreeMap<PathBuf, Kept> {
    all.values_mut().for_each(|kept| kept.times[2] = Time::default());
    all
}

/// Fails with what differs.
pub(crate) fn assert_same(directory: &Path, before: &BTreeMap<PathBuf, Kept>) {
    assert_equal(before, &kept(directory));
}

/// The same of what was looked at already.
pub(crate) fn assert_equal(before: &BTreeMap<PathBuf, Kept>, after: &BTreeMap<PathBuf, Kept>) {
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    for ((path, before), after) in before.iter().zip(after.values()) {
        assert_eq!((before.facts, before.times, &before.xattrs), (after.facts, after.times, &after.xattrs), "{path:?}");
        assert!(before.bytes == after.bytes, "{path:?} has other bytes");
    }
}

pub(crate) fn breaks(files: &[Candidate]) -> u64 {
    score(&files.iter().map(Candidate::item).collect::<Vec<Item>>()).breaks()
}

pub(crate) fn planned<H: Host>(host: &mut H, directory: &Path, rules: &Rules) -> (Vec<Candidate>, Plan) {
    let paths =
        files_below(directory, Order::Readdir, &mut |path, error| panic!("{}: {error}", path.display())).unwrap();
    let files = survey(host, paths).unwrap();
    let made = plan(&files.iter().map(Candidate::item).collect::<Vec<Item>>(), rules);
    (files, made)
}

/// Packs a directory in the order in which it is listed.
pub(crate) fn pack<H: Host>(host: &mut H, directory: &Path, rules: &Rules) -> (Vec<Candidate>, Report) {
    let (mut files, made) = planned(host, directory, rules);
    let report = carry_out(host, &mut files, &made, &Settings::new(*rules), &mut |_| true);
    (files, report)
}

/// Why a file that lies well is not moved, by trying to.
pub(crate) fn why_it_stays<H: Host>(mover: &mut H, directory: &Path, path: &Path) -> Stays {
    let inode = mover.look(path).unwrap().inode;
    let opened = match mover.open(path, inode) {
        Err(Trouble::Stays(stays)) => return stays,
        opened => opened.unwrap(),
    };
    let blocks = opened.places.blocks();
    let captured = mover.capture(directory, blocks);
    match mover.exchange(&opened.file, &captured.donors[0], Exchange { from: 0, to: 0, blocks }).trouble {
        Some(Trouble::Stays(stays)) => stays,
        other => panic!("{other:?}"),
    }
}
