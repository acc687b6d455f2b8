//! What a plan is made from.

use std::{rc::Rc, sync::Arc};

use super::fragment::Piece;

/// The files of a plan, by number, and where their bytes lie.
///
/// A plan asks for the pieces of a file once when it is made, and once or more (each time that a pass over the disk has
/// no room for the file) when it is carried out. It must get the same answer each time.
pub trait PlanSource {
    /// How many files there are; their numbers are `0..files()`.
    fn files(&self) -> u32;

    /// The bytes that a buffer for the file takes from the budget: its size rounded up to blocks, holes and all.
    fn cost(&self, file: u32) -> u64;

    /// Shows the pieces of the file to `visit`, in any order.
    ///
    /// No two overlap in the file; an empty piece is passed over. A file without a piece (empty, all hole, a directory)
    /// takes no part in the plan: it is never admitted, and its cost is not looked at.
    fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece));

    /// Where an address lies on its disk, for the prediction of times. Addresses only order the reads, so those of
    /// several devices may stand one behind the other.
    fn place_on_disk(&self, address: u64) -> u64 {
        address
    }

    /// The number of the disk that it lies on, counted from 0, where several disks work side by side.
    fn disk_of(&self, address: u64) -> usize {
        let _ = address;
        0
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<S: PlanSource + ?Sized> PlanSource for $pointer {
            fn files(&self) -> u32 {
                (**self).files()
            }
            fn cost(&self, file: u32) -> u64 {
                (**self).cost(file)
            }
            fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
                (**self).pieces(file, visit);
            }
            fn place_on_disk(&self, address: u64) -> u64 {
                (**self).place_on_disk(address)
            }
            fn disk_of(&self, address: u64) -> usize {
                (**self).disk_of(address)
            }
        }
    )*};
}

forward!(&S, Box<S>, Rc<S>, Arc<S>);
