//! Reads every file of one or many trees in the order in which their bytes lie on the disk, and hands each over whole.
pub mod budget;
mod bulk;
mod error;
pub mod filter;
mod item;
mod order;
pub mod plan;
mod progress;
mod settings;
mod stream;

pub use bulk::{BulkRead, DiskPlan, Files, PlannedFile, Summary, Sweep};
pub use error::{FileError, SweepError};
pub use filter::Filter;
pub use item::{Content, FileBytes, Kind, Metadata, Route, SweptFile, Timestamp, Xattr};
pub use order::Order;
pub use plan::{DiskModel, Estimate, Strategy};
pub use progress::{Cancel, Observer, Progress};
pub use settings::{CachePolicy, Entries, Reassembly};
pub use stream::FileStream;
