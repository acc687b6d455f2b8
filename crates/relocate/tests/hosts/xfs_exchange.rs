//! A real XFS without reflinks, whose files change places with what was written for them.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onesweep_relocate::host::Stays;
use onesweep_relocate::pack::Rules;
use onesweep_sys::exchange_ranges::{exchange, exchange_if_same, sample};
use onesweep_sys::sharing::Part;
use onesweep_sys::xfs::open_timeless;

use crate::alone::alone;
use crate::image::{is_root, run, text};
use crate::kinds::{Kind, OnXfsExchange};
use crate::tree::{assert_same, bytes, kept, pack, scatter, sync, why_it_stays};
use crate::{packing, xfs};

const MIB: u64 = 1 << 20;
const RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };

#[test]
fn xfs_without_reflinks_conforms() {
    alone(xfs::conforms_with_any_block::<OnXfsExchange>);
}

#[test]
fn a_scattered_directory_comes_to_lie_side_by_side() {
    alone(packing::a_scattered_directory_comes_to_lie_side_by_side::<OnXfsExchange>);
}

#[test]
fn odd_files_are_packed_or_left() {
    alone(packing::odd_files_are_packed_or_left::<OnXfsExchange>);
}

#[test]
fn only_what_is_in_memory_is_moved_when_that_is_asked_for() {
    alone(packing::only_what_is_in_memory_is_moved_when_that_is_asked_for::<OnXfsExchange>);
}

#[test]
fn a_full_disk_and_a_read_only_one_change_nothing() {
    alone(packing::a_full_disk_and_a_read_only_one_change_nothing::<OnXfsExchange>);
}

#[test]
fn free_space_in_pieces_is_used_where_it_is_better() {
    alone(packing::free_space_in_pieces_is_used_where_it_is_better::<OnXfsExchange>);
}

#[test]
fn small_blocks_are_packed_too() {
    alone(xfs::small_blocks_are_packed_too_on::<OnXfsExchange>);
}

#[test]
fn what_is_cut_or_grows_meanwhile_keeps_its_bytes() {
    alone(xfs::what_is_cut_or_grows_meanwhile_keeps_its_bytes_on::<OnXfsExchange>);
}

#[test]
fn a_read_error_ends_it_and_nothing_is_lost() {
    alone(packing::a_read_error_ends_it_and_nothing_is_lost::<OnXfsExchange>);
}

#[test]
fn files_of_others_stay() {
    alone(|| xfs::files_of_others_stay_on::<OnXfsExchange>("xfs-others"));
}

/// The kernel has a file open for writing that it swaps to.
#[test]
fn files_are_left_by_name() {
    alone(|| xfs::files_are_left_by_name_on::<OnXfsExchange>(Stays::Busy));
}

/// Where both files end, where neither does, and what was changed after it was looked at: that stays, with its bytes.
#[test]
fn only_what_is_as_it_was_changes_places() {
    if !is_root() {
        return;
    }
    let image = OnXfsExchange::image(512 * MIB, "");
    let path = image.root().join("theirs");
    let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let told = |change: &dyn Fn()| {
        fs::write(&path, bytes(1, 13_000)).unwrap();
        fs::write(image.root().join("ours"), bytes(2, 13_000)).unwrap();
        sync(&image.root());
        let (ours, theirs) = (open(&image.root().join("ours")), open(&path));
        let seen = sample(theirs.as_fd()).unwrap();
        change();
        let now = fs::read(&path).unwrap();
        let root = File::open(image.root()).unwrap();
        let timeless = open_timeless(root.as_fd(), theirs.as_fd()).unwrap();
        let part = Part { offset: 4096, bytes: 13_000 - 4096 };
        let told = exchange_if_same(ours.as_fd(), part, timeless.as_fd(), 4096, &seen);
        let wanted = match told {
            Ok(()) => [&bytes(1, 4096), &bytes(2, 13_000)[4096..]].concat(),
            Err(_) => now,
        };
        assert!(fs::read(&path).unwrap() == wanted);
        told.map_err(|error| error.raw_os_error())
    };
    const EBUSY: i32 = 16;
    const EINVAL: i32 = 22;
    assert_eq!(told(&|| ()), Ok(()));
    assert_eq!(told(&|| open(&path).write_all_at(b"!", 9000).unwrap()), Err(Some(EBUSY)));
    assert_eq!(told(&|| open(&path).write_all_at(b"!", 0).unwrap()), Err(Some(EBUSY)), "elsewhere in it");
    assert_eq!(told(&|| open(&path).set_len(14_000).unwrap()), Err(Some(EINVAL)));
    assert_eq!(told(&|| open(&path).set_len(9000).unwrap()), Err(Some(EINVAL)));
    let mapped = ["-c", "mmap -rw 0 8192", "-c", "mwrite -S 33 5000 1", text(&path)];
    assert_eq!(told(&|| drop(run("xfs_io", &mapped))), Err(Some(EBUSY)), "through a mapping");
    assert_eq!(told(&|| drop(run("chmod", &["640", text(&path)]))), Err(Some(EBUSY)));
    assert_eq!(told(&|| drop(fs::read(&path).unwrap())), Ok(()), "who reads changes nothing");
}

/// What another file's end would be put into, or what would leave a part of a block behind.
#[test]
fn parts_of_blocks_change_places_at_both_ends_alone() {
    if !is_root() {
        return;
    }
    let image = OnXfsExchange::image(512 * MIB, "");
    let made = |name: &str, size: usize| {
        fs::write(image.root().join(name), bytes(1, size)).unwrap();
        File::options().read(true).write(true).open(image.root().join(name)).unwrap()
    };
    let (one, other) = (made("one", 20_000), made("other", 9000));
    let tried = |offset, bytes, to| exchange(one.as_fd(), Part { offset, bytes }, other.as_fd(), to).is_ok();
    assert!(!tried(0, 9000, 0), "the end of one file alone");
    assert!(!tried(0, 12_288, 0), "beyond the end");
    assert!(!tried(100, 4096, 0) && !tried(0, 4096, 100), "no whole blocks");
    assert!(tried(4096, 8192, 0));
    one.set_len(12_288 + 808).unwrap();
    assert!(tried(4096, 9000, 0), "the end of both");
}

#[test]
fn who_has_it_open_for_writing_keeps_it() {
    alone(xfs::who_has_it_open_for_writing_keeps_it_on::<OnXfsExchange>);
}

/// The kernel takes them away from what is written to, and takes an exchange for that.
#[test]
fn files_that_give_rights_stay() {
    if !is_root() {
        return;
    }
    let image = OnXfsExchange::image(512 * MIB, "");
    let directory = image.root().join("d");
    let paths = scatter(&directory, 20);
    xfs::give_rights(&paths[3], &paths[4], &paths[5]);
    sync(&directory);
    let before = kept(&directory);
    let mut mover = OnXfsExchange::host(&directory);
    for path in &paths[3..6] {
        assert_eq!(why_it_stays(&mut mover, &directory, path), Stays::Rights);
    }
    let (_, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files >= 10, "{report:?}");
    assert_same(&directory, &before);
}
