//! A real XFS with neither reflinks nor exchange-range, whose files change places as wholes with what was written for them.

use onesweep_relocate::host::Stays;

use crate::alone::alone;
use crate::tree::{OnXfsWhole, OnXfsWholeMapped};
use crate::{packing, xfs};

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
