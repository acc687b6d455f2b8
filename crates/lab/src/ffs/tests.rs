//! The model as a whole.

use onesweep_relocate::dfs::Block;

use super::books::Books;
use super::score::Score;
use super::shape::Shape;
use super::system::{FileSystem, Relocation, Settings};
use crate::disk::model::DiskModel;
use crate::random::Random;

/// Data lies from 4 to 99, and from 104 to 199.
fn system(groups: u32, cache_blocks: usize, relocation: Option<Relocation>) -> FileSystem {
    FileSystem::new(&Settings {
        shape: Shape { groups, group_blocks: 100, inode_blocks: 2 },
        cache_blocks,
        model: DiskModel { write_cache: 0, ..DiskModel::named("fireball-ex").unwrap() },
        reallocates: false,
        relocation,
    })
}

const DFS: Option<Relocation> = Some(Relocation { region: 16, around: false });
const AROUND: Option<Relocation> = Some(Relocation { region: 16, around: true });

/// A file in two pieces with another of the directory between them, both dirty.
fn fragmented(relocation: Option<Relocation>) -> (FileSystem, [usize; 2]) {
    let mut system = system(2, 100, relocation);
    let directory = system.make_directory().unwrap();
    let files = [system.create_at(directory, &[10, 12]), system.create_at(directory, &[11])];
    (system, files)
}

fn places(system: &FileSystem, file: usize) -> &[Block] {
    &system.files[file].places
}

#[test]
fn dirty_blocks_that_are_gathered_are_flushed_by_one_request() {
    let (mut system, [split, between]) = fragmented(DFS);
    system.write_back().unwrap();
    assert_eq!((places(&system, split), places(&system, between)), (&[10, 11][..], &[12][..]));
    let books = system.books();
    let expected = Books {
        flushed: 3,
        requests: 1,
        regions: 1,
        region_blocks: 3,
        region_dirty: 3,
        moved: 2,
        inode_blocks: 1,
        // The inodes, and the maps of the group.
        metadata: 2,
        flush_ms: books.flush_ms,
        ..Books::default()
    };
    assert_eq!(books, expected);
    system.check().unwrap();
    system.write_back().unwrap();
    assert_eq!(system.books(), books, "nothing is left to do");
}

#[test]
fn without_dfs_each_dirty_block_is_a_request_and_nothing_moves() {
    let (mut system, [split, _]) = fragmented(None);
    system.write_back().unwrap();
    assert_eq!(places(&system, split), [10, 12]);
    let books = system.books();
    assert_eq!((books.flushed, books.requests, books.regions, books.moved), (3, 3, 0, 0));
    assert!(books.flush_ms > 0.0);
    system.check().unwrap();
}

#[test]
fn what_is_not_in_memory_is_not_written_over() {
    let (mut system, [split, between]) = fragmented(None);
    let others = system.make_directory().unwrap();
    system.create_at(others, &[13]);
    system.mount_again().unwrap();
    system.relocation = DFS;
    system.overwrite(split).unwrap();
    system.write_back().unwrap();
    assert_eq!(places(&system, split), [10, 12], "what lies between is not in memory");
    system.overwrite(split).unwrap();
    system.read(between).unwrap();
    system.write_back().unwrap();
    assert_eq!((places(&system, split), places(&system, between)), (&[10, 11][..], &[12][..]));
    assert_eq!(system.books().region_dirty, 2, "the block between was clean");
    system.mount_again().unwrap();
    system.check().unwrap();
}

/// 18 is another file of the directory, 19 is free, and 21 belongs to another directory.
#[test]
fn a_region_may_begin_before_the_block_that_is_flushed() {
    for (relocation, expected) in [(DFS, [20, 40]), (AROUND, [19, 20])] {
        let mut system = system(2, 100, relocation);
        let [ours, others] = [system.make_directory().unwrap(), system.make_directory().unwrap()];
        system.create_at(others, &[21]);
        let before = system.create_at(ours, &[18]);
        system.write_back().unwrap();
        let file = system.create_at(ours, &[20, 40]);
        system.flush(20).unwrap();
        assert_eq!((places(&system, file), places(&system, before)), (&expected[..], &[18][..]));
        system.check().unwrap();
    }
}

#[test]
fn memory_keeps_its_size_and_what_leaves_it_dirty_is_written() {
    let mut system = system(2, 8, None);
    let directory = system.make_directory().unwrap();
    let file = system.create(directory, 20).unwrap();
    assert_eq!(system.cached_blocks(), 8);
    assert!(system.books().flushed >= 12, "{:?}", system.books());
    system.check().unwrap();
    system.read(file).unwrap();
    system.remove(file).unwrap();
    system.check().unwrap();
    assert_eq!(system.used(), 0.0);
}

#[test]
fn reading_counts_files_by_their_sizes() {
    let (mut system, _) = fragmented(None);
    system.mount_again().unwrap();
    let readings = system.read_all().unwrap();
    assert_eq!([1, 2].map(|blocks| (readings[&blocks].files, readings[&blocks].blocks)), [(1, 1), (1, 2)]);
    assert!(readings.values().all(|readings| readings.ms > 0.0));
    let scores = system.scores();
    assert_eq!((scores[&2].pairs, scores[&2].adjoining, scores[&1].pairs), (1, 0, 0));
}

/// Every other block of the first group is used, all of the second is free.
#[test]
fn a_new_file_can_be_put_into_one_run() {
    for (reallocates, expected) in [(false, 0), (true, 3)] {
        let mut system = system(2, 100, None);
        system.reallocates = reallocates;
        let directory = system.make_directory().unwrap();
        (4..100).step_by(2).for_each(|place| system.space.take(place));
        let file = system.create(directory, 4).unwrap();
        assert_eq!(Score::of(places(&system, file)), Score { pairs: 3, adjoining: expected });
        (4..100).step_by(2).for_each(|place| system.space.release(place));
        system.check().unwrap();
    }
}

/// After every operation each block of each file is where it should be, in memory or on the disk.
#[test]
fn no_block_is_lost_under_any_operations() {
    for (seed, relocation) in [(1, DFS), (2, AROUND), (3, Some(Relocation { region: 24, around: false })), (4, None)] {
        let (mut system, mut random) = (system(6, 150, relocation), Random::new(seed));
        let directories = [0; 3].map(|_| system.make_directory().unwrap());
        let mut files: Vec<usize> = Vec::new();
        for step in 0..3000 {
            let victim = random.below(files.len() as u64) as usize;
            let done = match random.below(10) {
                _ if files.is_empty() || system.used() < 0.3 => {
                    files.push(system.create(directories[step % 3], 1 + random.below(14) as u32).unwrap());
                    Ok(())
                }
                0..2 if system.used() < 0.85 => {
                    files.push(system.create(directories[step % 3], 1 + random.below(14) as u32).unwrap());
                    Ok(())
                }
                0..3 => system.remove(files.swap_remove(victim)),
                3..6 => system.overwrite(files[victim]),
                6 if step % 10 == 0 => system.mount_again(),
                7 if step % 4 == 0 => system.write_back(),
                _ => system.read(files[victim]),
            };
            done.and_then(|()| system.check()).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
        }
        assert_eq!(system.books().moved > 100, relocation.is_some(), "{:?}", system.books());
    }
}
