//! Reads every file of one or many trees in the order in which their bytes lie on the disk, and hands each over whole.
//!
//! ```no_run
//! use onesweep::BulkRead;
//!
//! let sweep = BulkRead::new(["/srv/mail", "/srv/home"])   // walk, map, plan: nothing is read yet
//!     .budget(256 << 20)
//!     .plan()?;
//! println!("{}", sweep.estimate());                       // requests, seeks, bytes, passes, time on a named disk
//!
//! for item in sweep.run()? {                              // one sweep per spindle; files come whole, in device order
//!     match item {
//!         Ok(file) => println!("{}: {} bytes", file.path().display(), file.metadata().size),
//!         Err(failed) => eprintln!("{failed}"),           // path, what failed, why; the sweep goes on
//!     }
//! }
//! # Ok::<_, onesweep::SweepError>(())
//! ```
//!
//! What it does not do: it writes nothing, follows no symbolic link below a root, and keeps nothing between two sweeps.
//!
//! # How data flows
//!
//! ```text
//!  BulkRead ──► coordinator ──► spindle ──► walk ──► survey ──► plan ──► read ──► delivery ──► Files
//!  settings     one for each    windows     names    where      one      bytes,   bounded      the consumer
//!               disk                                 it lies    sweep    whole    by budget
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `bulk`, `settings` | the builder, and what it sets |
//! | `coordinator`, `placement` | paths grouped by the disks under them; rounds of sweeps |
//! | `spindle` | the sweep of one spindle, window by window |
//! | `walk`, [`filter`], `part`, `ignores`, `opener` | names in C-SCAN order (qtar, listing 2) |
//! | `catalogue` | all that is known of a tree, in at most 120 bytes and the name for each entry |
//! | `survey` | what is cached, and where the rest lies |
//! | `moment` | snapshots, and file systems that are frozen while the plan is made (DAFT II.E) |
//! | `ahead` | metadata read ahead of walk and survey, many reads at a time |
//! | `preload`, `btrfs` | all metadata of a file system read before the walk, in the order of the disk |
//! | [`plan`] | the order of reads, pure (DAFT II.B and II.C) |
//! | `directories` | what other programs meet: files as they lie, and as they would lie packed |
//! | `read`, `device`, `read_through`, `at_once`, `stream` | the ways in which bytes come |
//! | `budget`, `delivery`, `outlet` | memory, and the way to the consumer |

mod ahead;
mod at_once;
mod btrfs;
mod budget;
mod bulk;
mod catalogue;
mod coordinator;
mod delivery;
mod device;
mod directories;
mod error;
mod files;
pub mod filter;
mod footprint;
mod handover;
mod ignores;
mod image;
mod item;
mod moment;
mod opener;
mod order;
mod outlet;
mod part;
mod placement;
pub mod plan;
mod preload;
mod progress;
mod read;
mod read_through;
mod settings;
mod several;
mod spindle;
mod stream;
mod summary;
mod survey;
mod threads;
mod throttle;
mod walk;

pub use bulk::{BulkRead, DiskPlan, PlannedFile, Sweep};
pub use catalogue::CatalogueSize;
pub use directories::{FilePlace, LaidDirectory, LaidFigures, LaidFile, LaidSide, ReaderOrder};
pub use error::{FileError, SweepError};
pub use files::{Files, Tally};
pub use filter::Filter;
pub use image::{PathRemark, is_image, path_of_image, remark_on};
pub use item::{Content, ContentReader, FileBytes, Kind, Marks, Metadata, Route, SweptFile, Timestamp, Xattr};
pub use onesweep_layout::{image::ImageOptions, tables::Indexes};
pub use onesweep_sys::buffer::Bytes;
pub use order::Order;
pub use part::Part;
pub use plan::{DiskModel, Estimate, Strategy};
pub use progress::{Cancel, Observer, Progress};
pub use settings::{CachePolicy, Entries, MetadataSource, Reassembly, default_catalog_limit};
pub use stream::FileStream;
pub use summary::Summary;
