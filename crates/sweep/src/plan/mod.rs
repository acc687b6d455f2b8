//! The plan: which bytes are read in which order, known before the first read.
//!
//! Numbers in, numbers out. Nothing here does I/O, looks at a clock or starts a thread, so a plan can be shown, compared
//! and tested without a disk, and the same plan is then carried out.
//!
//! ```text
//!  PlanSource ──► Schedule ──► Requests ──► a read engine
//!  files, costs,  pieces in    reads, with      │
//!  pieces         order        their parts      └──► Estimate, on a DiskModel
//! ```
//!
//! * [`fragment`]: [`Fragment`], 16 bytes for each extent of a plan, and [`Piece`], the same in bytes.
//! * [`source`]: [`PlanSource`], what a plan is made from.
//! * [`schedule`]: [`Schedule`] puts pieces in order under a [`Budget`] and says when a file is admitted and complete.
//! * [`request`]: [`Request`], its [`Part`]s, and what an engine has to keep to.
//! * [`pace`]: [`Pace`], one order for disks that share it, in which all come to their end together.
//! * [`merge`]: [`Requests`] turns the steps of a schedule into requests.
//! * [`disk`]: [`DiskModel`], a disk as a few numbers of its data sheet; [`seek`]: its [`SeekCurve`].
//! * [`geometry`]: [`Geometry`], how long a head takes from one address to another; [`queue`]: [`DriveQueue`], how a drive
//!   serves requests of which it holds several.
//! * [`estimate`]: [`Estimate`], what a plan will cost.
//!
//! Neither the steps nor the requests are ever held all at once: a schedule needs 8 bytes for each file and the unread
//! pieces of the files that are waiting.
//!
//! ```
//! use onesweep::plan::{Budget, DiskModel, Estimate, Piece, PlanSource, RequestShape, Requests, Schedule, SweepOrder};
//!
//! /// Two files of two blocks each, their blocks taking turns on the disk.
//! struct Interleaved;
//!
//! impl PlanSource for Interleaved {
//!     fn files(&self) -> u32 {
//!         2
//!     }
//!     fn cost(&self, _file: u32) -> u64 {
//!         8192
//!     }
//!     fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
//!         for block in 0..2 {
//!             let address = (2 * block + u64::from(file)) * 4096;
//!             visit(Piece { file, address, offset: block * 4096, length: 4096, shared: false });
//!         }
//!     }
//! }
//!
//! let disk = DiskModel::default();
//! let plan = |budget| {
//!     let schedule = Schedule::new(&Interleaved, SweepOrder::Fragment, Budget::on_demand(budget))?;
//!     Ok::<_, onesweep::plan::PlanError>(Requests::new(schedule, RequestShape::merged(disk.break_even_gap())))
//! };
//! assert_eq!(plan(16384)?.count(), 1);        // room for both: one read brings them all
//! assert_eq!(Estimate::of(plan(8192)?, &disk, 16).passes, 2);   // room for one: the disk is swept twice
//! # Ok::<_, onesweep::plan::PlanError>(())
//! ```

mod deferral;
pub mod disk;
mod error;
pub mod estimate;
pub mod fragment;
pub mod geometry;
pub mod merge;
pub mod pace;
pub mod queue;
pub mod request;
pub mod schedule;
pub mod seek;
pub mod source;
#[cfg(test)]
mod tests;

pub use disk::DiskModel;
pub use error::PlanError;
pub use estimate::{Estimate, Tally, peak_unlimited};
pub use fragment::{Fragment, NO_ADDRESS, Piece};
pub use geometry::{Geometry, Place, Positioning, Span};
pub use merge::Requests;
pub use pace::Pace;
pub use queue::DriveQueue;
pub use request::{Part, Request, RequestShape, Strategy};
pub use schedule::{Budget, Schedule, Step, SweepOrder};
pub use seek::SeekCurve;
pub use source::PlanSource;
