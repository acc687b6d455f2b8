//! The panels of the paper's figures 1 to 4, as its prose describes them: the pictures themselves are lost.

use crate::drawing::{disk, flushed};

/// Figure 1(a): a file's blocks are apart for the blocks of related ones. All of them move.
#[test]
fn related_files_that_lie_between_move_too() {
    assert_eq!(flushed("b0 c0 b1 d0 b2 c1", 6), "b0 b1 b2 c0 c1 d0");
}

/// Figure 1(b): files are apart for free blocks. The second block of F4 and two of F3 move towards the first of F4.
#[test]
fn free_blocks_between_files_are_closed_up() {
    assert_eq!(flushed("d0 . d1 . c0 . c1 .", 8), "d0 d1 c0 c1 . . . .");
}

/// Figure 2: four allocated blocks of seven; F3 and F4 are put in order, closed up, and F5 comes from elsewhere.
#[test]
fn all_three_steps_at_once() {
    assert_eq!(flushed("c0 d0 . c1 . d1 . # e0 # e1 e2", 7), "c0 c1 d0 d1 e0 e1 e2 # . # . .");
}

/// Figure 3(a): all of the region is of one domain. F4, whole but apart, is clustered with the others.
#[test]
fn all_of_the_region_is_gathered() {
    assert_eq!(flushed("a0 b0 a1 c0 b1 . d0", 7), "a0 a1 b0 b1 c0 d0 .");
}

/// Figure 3(b): gathering ends at the first block that is not in memory, and what was gathered is put in order.
#[test]
fn gathering_ends_where_a_block_is_not_in_memory() {
    assert_eq!(flushed("a0 b0 a1 b1 ~c0 d0 . d1", 8), "a0 a1 b0 b1 ~c0 d0 . d1");
}

/// Figure 3(c): the rest of a file that is half inside is gathered while there is room.
#[test]
fn a_file_that_is_half_outside_comes_in() {
    assert_eq!(flushed("a0 b0 . . # b1 # b2", 4), "a0 b0 b1 b2 # . # .");
}

/// Figure 3(d): a small fragmented file from outside fills free space, the smallest first.
#[test]
fn a_file_from_outside_comes_into_free_space() {
    let drawn = "a0 a1 . . . . . # d0 # d1 d2 d3 # e0 e1 # e2 e3 e4";
    assert_eq!(flushed(drawn, 7), "a0 a1 d0 d1 d2 d3 . # . # . . . # e0 e1 # e2 e3 e4");
}

/// Figure 4(a): of two files that are half outside and don't both fit, the smaller comes in; the other stays as it is.
#[test]
fn the_smaller_of_two_that_are_half_outside() {
    assert_eq!(flushed("c0 b0 . # b1 # c1 # c2", 3), "c0 b0 b1 # . # c1 # c2");
}

/// Figure 4(b): of the files outside, those of two blocks come in before one that is larger.
#[test]
fn the_smaller_of_those_outside() {
    let drawn = "a0 . . . . # b0 b1 b2 # b3 b4 # c0 # c1 # d0 # d1";
    assert_eq!(flushed(drawn, 5), "a0 c0 c1 d0 d1 # b0 b1 b2 # b3 b4 # . # . # . # .");
}

/// Section 4: for the sake of read-ahead, files of four blocks and more come first, then those of three and two.
#[test]
fn files_that_read_ahead_helps_come_first() {
    let drawn = "a0 . . . . . . # b0 # b1 # c0 c1 # c2 # d0 d1 # d2 d3";
    assert_eq!(flushed(drawn, 7), "a0 d0 d1 d2 d3 b0 b1 # . # . # c0 c1 # c2 # . . # . .");
}

/// The write is one request that starts at the flushed block, and never longer than the region.
#[test]
fn the_flushed_block_is_the_head() {
    let disk = disk("# a0 b0 a1 b1 . c0");
    let plan = disk.plan(1, 4).expect("a plan");
    assert_eq!((plan.blocks[0].from, plan.blocks.len()), (1, 4));
}
