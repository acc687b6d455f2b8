//! What the paper leaves open, and what no plan may do.

use std::cell::Cell;

use onesweep_relocate::dfs::{Block, DomainId, Domains, FileId, Flaw, Placed, Plan, Region, relocate};

use crate::drawing::{disk, flushed};

/// Where a flush changes nothing.
fn stays(drawn: &str, blocks: u32) {
    assert_eq!(flushed(drawn, blocks), drawn);
}

#[test]
fn one_free_block_and_no_fragment_is_no_candidate() {
    stays("a0 a1 . b0 b1", 5);
    assert!(disk("a0 a1 . b0 b1").plan(0, 5).is_none());
}

#[test]
fn a_fragment_is_seen_where_both_blocks_are_in_memory() {
    stays("a0 b0 ~a1 #", 4);
    assert_eq!(flushed("a0 b0 a1 #", 4), "a0 a1 b0 #");
}

#[test]
fn gathering_ends_at_another_domain_and_at_metadata() {
    assert_eq!(flushed("a0 b0 a1 x0 c0 . c1", 7), "a0 a1 b0 x0 c0 . c1");
    assert_eq!(flushed("a0 b0 a1 # c0 . c1", 7), "a0 a1 b0 # c0 . c1");
}

#[test]
fn files_of_another_domain_do_not_come_in() {
    stays("a0 . . . . # x0 # x1 # y0 # y1", 5);
}

#[test]
fn free_blocks_behind_the_end_of_what_was_gathered_are_not_used() {
    stays("a0 . # . . . # b0 # b1 b2", 6);
}

#[test]
fn a_file_that_is_not_wholly_in_memory_does_not_come_in() {
    stays("a0 . . . # b0 # b1 ~b2", 4);
    stays("a0 b0 . . # b1 # ~b2", 4);
}

#[test]
fn a_file_in_one_piece_stays_outside() {
    stays("a0 . . . # b0 b1 b2", 4);
}

#[test]
fn a_file_with_a_hole_stays_outside() {
    let mut disk = disk("a0 . . . # # # # #");
    disk.domains.open(DomainId(1), FileId(7), vec![Some(6), None, Some(8)]);
    disk.domains.load(FileId(7), 0, 0);
    disk.domains.load(FileId(7), 2, 0);
    assert!(disk.plan(0, 4).is_none());
}

/// Thirteen blocks need indirect ones: they are moved within what is gathered, but none is fetched.
#[test]
fn blocks_of_large_files_are_gathered_and_are_no_candidates() {
    let large = "a0 . l0 . # l1 l2 l3 l4 l5 l6 l7 l8 l9 l10 l11 # l12";
    assert_eq!(flushed(large, 4), "a0 l0 . . # l1 l2 l3 l4 l5 l6 l7 l8 l9 l10 l11 # l12");
    let twelve = "a0 . . . . . . . . . . . . # b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 # b11";
    assert!(flushed(twelve, 13).starts_with("a0 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11 # ."));
}

#[test]
fn a_file_of_one_block_is_closed_up_and_never_fetched() {
    assert_eq!(flushed("a0 . . c0 # d0", 4), "a0 c0 . . # d0");
}

/// Two orders that are as good as each other: flushed here and there, the blocks went from one to the other and back.
#[test]
fn what_would_be_no_better_stays() {
    let disk = disk("h4 h5 ~h2 h3 h6 h0 h1 . .");
    for start in 0..9 {
        assert_eq!(disk.plan(start, 5), None, "{start}");
    }
}

/// What lies in one piece over the region's edge is not torn.
#[test]
fn what_goes_on_behind_the_end_stays() {
    assert_eq!(flushed("a0 . b0 . c0 c1 c2", 5), "a0 b0 . . c0 c1 c2");
    stays("a0 . . c0 c1 c2", 5);
}

#[test]
fn what_goes_on_from_before_the_start_stays() {
    let mut disk = disk("~b0 b1 . b2 a0 . a1");
    let plan = disk.plan(1, 6).expect("a plan");
    disk.carry_out(&plan);
    assert_eq!(disk.places.join(" "), "~b0 b1 b2 a0 a1 . .");
    assert_eq!(crate::drawing::disk("~a1 a2 . a0 b0 . #").flushed(1, 5), "~a1 a2 a0 b0 . . #");
}

/// Unless all of it comes in.
#[test]
fn a_fragmented_file_over_the_end_comes_in_whole() {
    assert_eq!(flushed("a0 . . c1 c2 # c0", 4), "a0 c0 c1 c2 . # .");
}

#[test]
fn the_second_in_a_chain_comes_after_the_first() {
    let drawn = "a0 . . # b0 # b1 # c0 # c1";
    assert_eq!(flushed(drawn, 3), "a0 b0 b1 # . # . # c0 # c1");
    let mut later = disk(drawn);
    later.domains.evict(4);
    later.domains.load(FileId(u64::from(b'b')), 0, 4);
    assert_eq!(later.flushed(0, 3), "a0 c0 c1 # b0 # b1 # . # .");
}

#[test]
fn what_left_memory_is_no_more_moved() {
    let mut disk = disk("a0 b0 a1 . # c0 # c1");
    assert!(disk.domains.evict(1).is_some() && disk.domains.evict(1).is_none());
    assert!(disk.plan(0, 4).is_none(), "a0 and what is not in memory");
    disk.domains.load(FileId(u64::from(b'b')), 0, 1);
    assert!(disk.plan(0, 4).is_some());
    disk.domains.forget(FileId(u64::from(b'a')));
    assert!(disk.domains.at(0).is_none() && disk.domains.at(2).is_none() && disk.domains.at(1).is_some());
    assert!(disk.plan(0, 4).is_none());
}

#[test]
fn what_is_unknown_does_not_come_into_memory() {
    let mut domains = Domains::new();
    domains.load(FileId(1), 0, 0);
    domains.open(DomainId(1), FileId(1), vec![Some(3)]);
    domains.load(FileId(1), 1, 0);
    assert!(domains.at(3).is_none());
    domains.load(FileId(1), 0, 9);
    assert_eq!(domains.at(3).map(|cached| (cached.file, cached.logical, cached.address)), Some((FileId(1), 0, 9)));
}

/// Each flaw of a plan is found.
#[test]
fn plans_that_would_do_harm_are_refused() {
    let disk = disk("a0 b0 a1 . ~c0 x0 # d0 d1");
    let sound = disk.plan(0, 4).expect("a plan");
    assert_eq!(disk.check(&sound), Ok(()));
    let block = |name: u8, logical, from| Placed { file: FileId(u64::from(name)), logical, from };
    let with = |change: &dyn Fn(&mut Vec<Placed>)| {
        let mut plan = sound.clone();
        change(&mut plan.blocks);
        disk.check(&plan)
    };
    assert_eq!(with(&|blocks| blocks.truncate(2)), Err(Flaw::Lost(1)));
    assert_eq!(with(&|blocks| blocks.push(block(b'a', 1, 2))), Err(Flaw::Twice(2)));
    assert_eq!(with(&|blocks| blocks.push(block(b'c', 0, 4))), Err(Flaw::NotCached(4)));
    assert_eq!(with(&|blocks| blocks.push(block(b'a', 1, 3))), Err(Flaw::NotCached(3)));
    assert_eq!(with(&|blocks| blocks.push(block(b'x', 0, 5))), Err(Flaw::Foreign(5)));
    assert_eq!(with(&|blocks| blocks.extend([block(b'd', 0, 7); 2])), Err(Flaw::TooLong(5)));
    assert_eq!(with(&|blocks| blocks[0] = block(b'd', 0, 7)), Err(Flaw::WithoutHead));
    assert_eq!(with(&|blocks| blocks.push(block(b'd', 1, 8))), Err(Flaw::Worse(FileId(u64::from(b'd')))));
}

/// What is free when blocks are gathered and is not when the plan is looked at: nobody gets that plan.
#[test]
fn a_plan_that_would_do_harm_is_not_given_out() {
    let disk = disk("a0 b0 a1 . ~c0 x0 # d0 d1");
    let places = |block: Block| disk.places.get(block as usize).is_none_or(|drawn| drawn != ".");
    let told = |changed: usize| {
        let asked = Cell::new(0);
        let allocation = |block| asked.replace(asked.get() + 1) < changed && places(block);
        relocate(&disk.domains, &allocation, Region { start: 0, blocks: 4 })
    };
    let all: Vec<_> = (0..100).map(told).collect();
    assert_eq!(all[99], Ok(disk.plan(0, 4)), "nothing has changed by then");
    let is_flaw = |told: &Result<_, Flaw>| matches!(told, Err(Flaw::NotCached(_)));
    assert!(all.iter().any(is_flaw), "{all:?}");
    let sound = |told: &Result<Option<Plan>, Flaw>| told.iter().flatten().all(|plan| disk.check(plan).is_ok());
    assert!(all.iter().all(sound), "{all:?}");
}
