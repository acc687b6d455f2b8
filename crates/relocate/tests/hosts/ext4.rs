//! A real ext4.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use onesweep_relocate::ext4::Ext4;
use onesweep_relocate::host::{Stays, Uncached};
use onesweep_relocate::pack::Rules;
use onesweep_relocate::survey::Candidate;

use crate::conformance::conforms;
use crate::image::{Image, is_root, not_here, run, text};
use crate::kinds::{Kind, Mounted, OnExt4, host};
use crate::packing;
use crate::tree::{assert_same, breaks, bytes, kept, pack, planned, scatter, sync};
use crate::undo::{layout, undo_all};

const MIB: u64 = 1 << 20;

#[test]
fn ext4_conforms() {
    if !is_root() {
        return;
    }
    conforms(&mut Mounted::<OnExt4>::new(OnExt4::image(256 * MIB, "")));
}

#[test]
fn a_scattered_directory_comes_to_lie_side_by_side() {
    packing::a_scattered_directory_comes_to_lie_side_by_side::<OnExt4>();
}

#[test]
fn odd_files_are_packed_or_left() {
    packing::odd_files_are_packed_or_left::<OnExt4>();
}

#[test]
fn only_what_is_in_memory_is_moved_when_that_is_asked_for() {
    packing::only_what_is_in_memory_is_moved_when_that_is_asked_for::<OnExt4>();
}

#[test]
fn a_full_disk_and_a_read_only_one_change_nothing() {
    packing::a_full_disk_and_a_read_only_one_change_nothing::<OnExt4>();
}

#[test]
fn free_space_in_pieces_is_used_where_it_is_better() {
    packing::free_space_in_pieces_is_used_where_it_is_better::<OnExt4>();
}

#[test]
fn a_read_error_ends_it_and_nothing_is_lost() {
    packing::a_read_error_ends_it_and_nothing_is_lost::<OnExt4>();
}

/// Files in up to 10, 250 and 1,000 pieces, in single blocks that were nearly all that was free: each is joined, and never has more pieces than before.
#[test]
fn files_in_many_pieces_are_joined() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(128 * MIB, &[], "");
    let directory = image.root().join("d");
    fs::create_dir(&directory).unwrap();
    // Every other block of a file is free, and else little: ext4 keeps some for the maps of files.
    fs::write(format!("/sys/fs/ext4/{}/reserved_clusters", image.name()), "40").unwrap();
    let sieve = image.root().join("sieve");
    run("fallocate", &["-l", "16M", text(&sieve)]);
    let holes = (0..2000).flat_map(|block| ["-c".to_owned(), format!("fpunch {} 4096", block * 8192)]);
    let holes: Vec<String> = holes.collect();
    let arguments: Vec<&str> = holes.iter().map(String::as_str).chain([text(&sieve)]).collect();
    let mut fill = Vec::new();
    for bytes in [16 << 20, 1 << 20, 65_536, 4096] {
        loop {
            let path = image.root().join(format!("fill-{}", fill.len()));
            let made = Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&path).output().unwrap();
            fill.push(path);
            if !made.status.success() {
                break;
            }
        }
    }
    run("xfs_io", &arguments);
    sync(&directory);
    for blocks in [10, 250, 1000] {
        fs::write(directory.join(blocks.to_string()), bytes(blocks, blocks as usize * 4096 - 100)).unwrap();
        sync(&directory);
    }
    fill.iter().chain([&sieve]).for_each(|path| drop(fs::remove_file(path)));
    sync(&directory);
    image.cold();
    let before = kept(&directory);
    let mut mover = host(&directory);
    for region in [16, 512, 2048] {
        let rules = Rules::for_regions(region);
        let (files, _) = planned(&mut mover, &directory, &rules);
        let (after, report) = pack(&mut mover, &directory, &rules);
        assert!(report.ended.is_none() && report.stayed.is_empty() && report.torn.is_empty(), "{report:?}");
        for (before, after) in files.iter().zip(&after) {
            let blocks = before.places.blocks();
            assert!(region > 16 || blocks < 250 || before.places.breaks() * 10 >= blocks * 7, "it was not in pieces");
            assert!(after.places.breaks() <= before.places.breaks(), "{}", after.path.display());
            if blocks <= rules.room() {
                assert_eq!(after.places.breaks(), 0, "{} blocks, region of {region}", blocks);
            }
        }
        assert_same(&directory, &before);
    }
    let (_, again) = pack(&mut mover, &directory, &Rules::for_regions(2048));
    assert_eq!((again.regions, again.blocks), (0, 0));
    drop(mover);
    image.check();
    assert_same(&directory, &before);
}

/// Files of odd numbers of blocks of 1 and 2 KiB, which the kernel exchanges only at the same block of a page, come to lie side by
/// side without a gap, and go back.
#[test]
fn blocks_smaller_than_pages_are_packed_without_gaps() {
    if !is_root() {
        return;
    }
    for block in [1024_usize, 2048] {
        let mut image = Image::new(256 * MIB, &["-b", &block.to_string()], "");
        let directory = image.root().join("d");
        fs::create_dir(&directory).unwrap();
        let size = |number: usize| (1 + number * 7 % 13) * block - number % 90;
        for at in 0..13 {
            for number in (0..80).filter(|&number| at * block < size(number)) {
                let path = directory.join(format!("file-{number}"));
                let file = File::options().create(true).append(true).open(path).unwrap();
                let all = bytes(number as u64, size(number));
                file.write_all_at(&all[at * block..all.len().min((at + 1) * block)], (at * block) as u64).unwrap();
            }
            sync(&directory);
        }
        // A hole, and a piece that begins in the middle of a page.
        let holes = File::create(directory.join("holes")).unwrap();
        for at in [0, 3, 5, 6, 9] {
            holes.write_all_at(&bytes(5, block), at * block as u64).unwrap();
            sync(&directory);
        }
        drop(holes);
        image.cold();
        let (before, there) = (kept(&directory), layout(&directory));
        let rules = Rules { region: 64, slack: 2, budget: 32, dearest: 32, margin: 1 };
        let mut mover = host(&directory);
        let id = mover.keep_old_places().unwrap().to_owned();
        let (files, made) = planned(&mut mover, &directory, &rules);
        let (after, report) = pack(&mut mover, &directory, &rules);
        eprintln!(
            "blocks of {block}: {} breaks, {} planned, {} came",
            breaks(&files),
            made.after.breaks(),
            breaks(&after)
        );
        assert!(report.ended.is_none() && report.torn.is_empty() && report.stayed.is_empty(), "{report:?}");
        assert!(report.files >= 75 && breaks(&after) * 8 <= breaks(&files), "{report:?}");
        assert_same(&directory, &before);
        drop(mover);
        image.shut_down(false);
        assert_same(&directory, &before);
        image.check();
        assert_same(&directory, &before);
        let undone = undo_all(&directory, &id);
        assert!(undone.left.is_empty() && undone.blocks == report.blocks, "{undone:?}");
        assert!(layout(&directory) == there);
        image.check();
        assert_same(&directory, &before);
    }
}

#[test]
fn small_blocks_conform() {
    if !is_root() {
        return;
    }
    conforms(&mut Mounted::<OnExt4>::new(Image::new(256 * MIB, &["-b", "1024"], "")));
}

/// A full file system that grows, while a mover has it open where that may be: what came is room for it. Files that are kept block by
/// block stay.
#[test]
fn room_that_came_by_growing_is_used() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(256 * MIB, &["-O", "^64bit"], "");
    image.unmount();
    run("e2fsck", &["-f", "-p", text(image.device())]);
    run("resize2fs", &[text(image.device()), "64M"]);
    image.mount();
    let directory = image.root().join("d");
    scatter(&directory, 60);
    let without_extents = directory.join("by-blocks");
    fs::write(&without_extents, bytes(99, 20_000)).unwrap();
    sync(&directory);
    run("chattr", &["-e", text(&without_extents)]);
    let fill = |number: u32, bytes: u64| {
        let path = image.root().join(format!("fill-{number}"));
        Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(path).output().unwrap().status.success()
    };
    let sizes = [16 << 20, 1 << 20, 65_536, 4096];
    (0..).zip(sizes).for_each(|(size, bytes)| while_it_works(|number| fill(100 * size + number, bytes)));
    image.cold();
    let before = kept(&directory);
    let mut mover = host(&directory);
    let rules = Rules::for_regions(128);
    let (files, report) = pack(&mut mover, &directory, &rules);
    assert!(report.ended.is_none() && report.files == 0 && report.no_room > 0, "{report:?}");
    let by_blocks = |files: &[Candidate]| files.iter().find(|file| file.path == without_extents).unwrap().clone();
    assert_eq!(by_blocks(&files).stays, Some(Stays::NoExtents));
    let was = breaks(&files);

    let grown = Command::new("resize2fs").arg(image.device()).output().unwrap();
    if !grown.status.success() {
        let said = String::from_utf8_lossy(&grown.stderr).into_owned();
        assert!(said.contains("Permission denied"), "{said}");
        not_here("this root may not let a mounted ext4 grow (CAP_SYS_RESOURCE)");
        drop(mover);
        image.unmount();
        run("e2fsck", &["-f", "-p", text(image.device())]);
        run("resize2fs", &[text(image.device())]);
        image.mount();
        mover = host(&directory);
    }
    let (after, report) = pack(&mut mover, &directory, &rules);
    assert!(report.ended.is_none() && report.torn.is_empty() && report.files > 50, "{report:?}");
    assert!(breaks(&after) * 4 < was, "{was} breaks, then {}", breaks(&after));
    let old_end = 64 * MIB / 4096;
    let beyond = after.iter().filter(|file| file.places.first() >= Some(old_end)).count();
    assert!(beyond > 50, "{beyond} files lie where there was nothing before");
    assert_eq!(by_blocks(&after).places, by_blocks(&files).places);
    assert_same(&directory, &before);
    drop(mover);
    image.check();
    assert_same(&directory, &before);
}

/// Does something over and over, by numbers, until it can't be done.
fn while_it_works(mut does: impl FnMut(u32) -> bool) {
    for number in 0.. {
        if !does(number) {
            break;
        }
    }
}

/// With a raised setting, donors of 8 MiB lie near their directory too; it is set back.
#[test]
fn large_regions_are_captured_where_the_setting_allows() {
    if !is_root() {
        return;
    }
    let image = Image::new(2048 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 400);
    let before = kept(&directory);
    let setting = PathBuf::from(format!("/sys/fs/ext4/{}/mb_stream_req", image.name()));
    let told = || fs::read_to_string(&setting).unwrap().trim().to_owned();
    let mut mover = host(&image.root());
    let mut other = host(&image.root());
    assert!(mover.raise_unit(2048).unwrap());
    assert_eq!(told(), "2048");
    assert!(!other.raise_unit(2048).unwrap(), "one at a time");
    let (files, report) = pack(&mut mover, &directory, &Rules::for_regions(2048));
    assert!(report.regions > 0 && breaks(&files) <= 6, "{report:?}, {} breaks", breaks(&files));
    drop(mover);
    assert_eq!(told(), "16");
    // A child that another test is starting has the lock of the setting, too, until it runs its program.
    let raised = (0..500).any(|_| {
        let raised = other.raise_unit(64).unwrap();
        if !raised {
            thread::sleep(Duration::from_millis(20));
        }
        raised
    });
    assert!(raised, "the setting is free again");
    drop(other);
    assert_eq!(told(), "16");
    assert_same(&directory, &before);
}

/// Files that were just written in one piece lie in large pages (Linux 6.16 on). They move all the same, and nothing is read.
#[test]
fn large_pages_are_made_small() {
    if !is_root() {
        return;
    }
    let image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    fs::create_dir(&directory).unwrap();
    for number in 0..40 {
        fs::write(directory.join(format!("{number}")), bytes(number, 8 * 4096)).unwrap();
    }
    sync(&directory);
    let before = kept(&directory);
    let read_before = image.read();
    let mut cached = Ext4::of(&directory, Uncached::Stays).unwrap();
    let (after, report) = pack(&mut cached, &directory, &Rules::for_regions(512));
    // Bitmaps of free space may be read, of the 320 blocks none.
    assert!(image.read() - read_before < 40 * 8 * 8 / 4, "what is in memory is enough");
    eprintln!("{} of 40 files lay in large pages", report.large);
    assert!(breaks(&after) <= 3 && report.stayed.is_empty(), "{report:?}");
    assert_same(&directory, &before);
}
