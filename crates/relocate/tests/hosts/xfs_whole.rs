//! A real XFS with neither reflinks nor exchange-range, whose files change places as wholes with what was written for them.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, chown};
use std::path::Path;

use onesweep_relocate::host::Stays;
use onesweep_relocate::pack::Rules;
use onesweep_sys::files::{remove_xattr_fd, set_xattr_fd, statx_fd};
use onesweep_sys::swap_extents::{Changes, swap_if_same};

use crate::alone::alone;
use crate::image::{Image, is_root, not_here, run, text};
use crate::kinds::{Kind, OnXfsWhole, OnXfsWholeMapped};
use crate::tree::{assert_same, breaks, bytes, kept, pack, planned, scatter, sync};
use crate::{packing, xfs};

const MIB: u64 = 1 << 20;
const RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };

#[test]
fn xfs_of_wholes_conforms() {
    alone(xfs::conforms_with_any_block::<OnXfsWhole>);
}

#[test]
fn xfs_of_wholes_with_a_reverse_map_conforms() {
    alone(xfs::conforms_with_any_block::<OnXfsWholeMapped>);
}

#[test]
fn a_scattered_directory_comes_to_lie_side_by_side() {
    alone(packing::a_scattered_directory_comes_to_lie_side_by_side::<OnXfsWhole>);
}

#[test]
fn a_scattered_directory_comes_to_lie_side_by_side_with_a_reverse_map() {
    alone(packing::a_scattered_directory_comes_to_lie_side_by_side::<OnXfsWholeMapped>);
}

#[test]
fn odd_files_are_packed_or_left() {
    alone(packing::odd_files_are_packed_or_left::<OnXfsWhole>);
}

#[test]
fn odd_files_are_packed_or_left_with_a_reverse_map() {
    alone(packing::odd_files_are_packed_or_left::<OnXfsWholeMapped>);
}

#[test]
fn only_what_is_in_memory_is_moved_when_that_is_asked_for() {
    alone(packing::only_what_is_in_memory_is_moved_when_that_is_asked_for::<OnXfsWhole>);
}

#[test]
fn a_full_disk_and_a_read_only_one_change_nothing() {
    alone(packing::a_full_disk_and_a_read_only_one_change_nothing::<OnXfsWhole>);
}

#[test]
fn free_space_in_pieces_is_used_where_it_is_better() {
    alone(packing::free_space_in_pieces_is_used_where_it_is_better::<OnXfsWhole>);
}

#[test]
fn small_blocks_are_packed_too() {
    alone(xfs::small_blocks_are_packed_too_on::<OnXfsWhole>);
}

#[test]
fn what_is_cut_or_grows_meanwhile_keeps_its_bytes() {
    alone(xfs::what_is_cut_or_grows_meanwhile_keeps_its_bytes_on::<OnXfsWhole>);
}

#[test]
fn a_read_error_ends_it_and_nothing_is_lost() {
    alone(packing::a_read_error_ends_it_and_nothing_is_lost::<OnXfsWhole>);
}

#[test]
fn files_of_others_stay() {
    alone(|| xfs::files_of_others_stay_on::<OnXfsWhole>("xfs-others"));
}

/// The kernel has a file open for writing that it swaps to.
#[test]
fn files_are_left_by_name() {
    alone(|| xfs::files_are_left_by_name_on::<OnXfsWhole>(Stays::Busy));
}

fn errno(told: std::io::Result<()>) -> Result<(), Option<i32>> {
    told.map_err(|error| error.raw_os_error())
}

/// What was changed after it was looked at stays, with its bytes; what was only read is exchanged, and no time changes.
#[test]
fn only_what_is_as_it_was_changes_places() {
    if !is_root() {
        return;
    }
    let image = OnXfsWhole::image(512 * MIB, "");
    let path = image.root().join("theirs");
    let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let told = |change: &dyn Fn()| {
        fs::write(&path, bytes(1, 13_000)).unwrap();
        fs::write(image.root().join("ours"), bytes(2, 13_000)).unwrap();
        sync(&image.root());
        let (ours, theirs) = (open(&image.root().join("ours")), open(&path));
        let seen = statx_fd(theirs.as_fd()).unwrap();
        change();
        let now = fs::read(&path).unwrap();
        let changes = Changes { modified: seen.mtime, changed: seen.ctime };
        let told = swap_if_same(theirs.as_fd(), ours.as_fd(), 13_000, changes);
        let wanted = if told.is_ok() { bytes(2, 13_000) } else { now };
        assert!(fs::read(&path).unwrap() == wanted);
        errno(told)
    };
    const EBUSY: i32 = 16;
    const EFAULT: i32 = 14;
    assert_eq!(told(&|| ()), Ok(()));
    assert_eq!(told(&|| open(&path).write_all_at(b"!", 9000).unwrap()), Err(Some(EBUSY)));
    assert_eq!(told(&|| open(&path).set_len(14_000).unwrap()), Err(Some(EFAULT)));
    assert_eq!(told(&|| open(&path).set_len(9000).unwrap()), Err(Some(EFAULT)));
    let mapped = ["-c", "mmap -rw 0 8192", "-c", "mwrite -S 33 5000 1", text(&path)];
    assert_eq!(told(&|| drop(run("xfs_io", &mapped))), Err(Some(EBUSY)), "through a mapping");
    let direct = ["-d", "-c", "pwrite -S 33 4096 4096", text(&path)];
    assert_eq!(told(&|| drop(run("xfs_io", &direct))), Err(Some(EBUSY)), "past the page cache");
    assert_eq!(told(&|| drop(run("chmod", &["640", text(&path)]))), Err(Some(EBUSY)));
    assert_eq!(told(&|| drop(fs::read(&path).unwrap())), Ok(()), "who reads changes nothing");
}

#[test]
fn who_has_it_open_for_writing_keeps_it() {
    alone(xfs::who_has_it_open_for_writing_keeps_it_on::<OnXfsWhole>);
}

/// A map that lies in the inode beside few attributes, and outside of it beside many: in one block, in a tree, in an attribute that takes
/// blocks of its own. Files that give rights keep them.
#[test]
fn files_with_attributes_and_rights_are_moved() {
    alone(attributes_and_rights);
}

fn attributes_and_rights() {
    if !is_root() {
        return;
    }
    for (tools, inode) in
        [(OnXfsWhole::TOOLS, "size=512"), (OnXfsWholeMapped::TOOLS, "size=512"), (OnXfsWhole::TOOLS, "size=1024")]
    {
        let mut image = Image::of(tools, 512 * MIB, &["-i", inode], "");
        let directory = image.root().join("d");
        fs::create_dir(&directory).unwrap();
        // Each file has as many pieces as blocks, and attributes of so many bytes.
        let sizes = [0, 1, 20, 120, 200, 240, 3000, 60_000];
        let made: Vec<(u64, usize, File)> = (0..96)
            .map(|number| {
                (
                    1 + number / 8 * 3,
                    sizes[number as usize % 8],
                    File::create(directory.join(number.to_string())).unwrap(),
                )
            })
            .collect();
        for (number, (_, size, file)) in made.iter().enumerate().filter(|(_, (_, size, _))| *size > 0) {
            set_xattr_fd(file.as_fd(), c"user.kept", &bytes(number as u64, *size)).unwrap();
            if *size == 1 {
                // With the last attribute goes all room for them.
                remove_xattr_fd(file.as_fd(), c"user.kept").unwrap();
            }
        }
        for block in 0..36 {
            for (number, (blocks, _, file)) in made.iter().enumerate().filter(|(_, (blocks, ..))| block < *blocks) {
                file.write_all_at(&bytes(number as u64 * 64 + block, 4096), block * 4096).unwrap();
                let _ = blocks;
            }
            sync(&directory);
        }
        drop(made);
        xfs::give_rights(&directory.join("9"), &directory.join("10"), &directory.join("11"));
        image.cold();
        let before = kept(&directory);
        let mut mover = OnXfsWhole::host(&directory);
        let was = breaks(&planned(&mut mover, &directory, &RULES).0);
        let (after, report) = pack(&mut mover, &directory, &RULES);
        eprintln!("{inode}: {was} breaks, {} came", breaks(&after));
        for turn in report.stayed.keys() {
            eprintln!("{} {:?} {}", after[*turn].path.display(), report.stayed[turn], after[*turn].places.runs().len());
        }
        assert!(report.ended.is_none() && report.stayed.is_empty() && report.torn.is_empty(), "{report:?}");
        assert!(breaks(&after) <= 8 && was > 1000, "{was}: {report:?}");
        assert_same(&directory, &before);
        drop(mover);
        image.check();
        assert_same(&directory, &before);
    }
}

/// While quotas are on, the kernel exchanges files of the same owner, group and project alone.
#[test]
fn files_of_anybody_are_moved_by_root_under_quotas() {
    alone(under_quotas);
}

fn under_quotas() {
    if !is_root() {
        return;
    }
    // Without quotas in the kernel, they get the owners and projects all the same.
    let has_quotas = Path::new("/proc/fs/xfs/xqm").exists();
    if !has_quotas {
        not_here("the kernel has no quotas for XFS");
    }
    let mut image = OnXfsWhole::image(512 * MIB, if has_quotas { "uquota,gquota,pquota" } else { "" });
    let directory = image.root().join("d");
    let paths = scatter(&directory, 40);
    for (number, path) in paths.iter().enumerate() {
        chown(path, Some(1000 + number as u32 % 3), Some(2000 + number as u32 % 2)).unwrap();
        let project = format!("chproj {}", number % 4);
        run("xfs_io", &["-r", "-c", &project, text(path)]);
    }
    sync(&directory);
    let used = || {
        let report = |kind| run("xfs_quota", &["-x", "-c", &format!("report -{kind} -n -b -N"), text(&image.root())]);
        // Of all but root.
        let lines = |kind| report(kind).lines().filter(|line| !line.starts_with("#0 ")).map(str::to_owned).collect();
        if has_quotas { ["u", "g", "p"].map(lines).to_vec() } else { Vec::<Vec<String>>::new() }
    };
    let used_before = used();
    assert!(used_before.iter().all(|lines| lines.len() > 1), "{used_before:?}");
    let before = kept(&directory);
    let mut mover = OnXfsWhole::host(&directory);
    let (after, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.stayed.is_empty() && breaks(&after) < 6, "{report:?}");
    assert_same(&directory, &before);
    drop(mover);
    sync(&directory);
    assert_eq!(used(), used_before);
    image.check();
}
