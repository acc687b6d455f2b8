//! Files brought into the page cache ahead of programs that know nothing of it: qtar's "library that any tool can use" (6.2),
//! for tools that nobody will change.
//!
//! ```text
//!  trees ──► plan ──► tree ──► course ──► batch ──► sweep ──► page cache
//!            metadata  orders   which      paths     BulkRead     │
//!            comes in  of walks file next                         ▼
//!                                 ▲                             board ──► program (with the preloaded library)
//!                                 └── what the program opens ─────┘        waits at open(2) until its file is in
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`ahead`] | the helper: plans, sweeps, drops what has been read |
//! | [`course`] | which files a program comes to next, pure |
//! | `pace` | how much is brought in, and when, pure |
//! | `tree` | the files of a tree in the orders in which programs walk |
//! | [`order`] | the orders in which a directory is listed |
//! | `board` | memory that is shared with programs |
//! | `names` | names of files that programs open, which nobody else can take |
//! | `pulse` | the sign that the helper lives |
//! | [`preload`] | the library that they load |
//! | [`record`] | mounts that views have made, noted for other views |
//! | `walks` | when a walk begins, and over which tree, pure |
//! | `guide` | the sweep ahead of those who walk, and requests that wait for it |
//! | [`bind`] | the same for programs that load none: the tree once more, by a mount whose openings the kernel asks about |
//! | [`mount`] | or by FUSE |

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod ahead;
pub mod bind;
mod board;
pub mod course;
mod guide;
pub mod mount;
mod names;
pub mod order;
mod pace;
pub mod preload;
mod pulse;
pub mod record;
#[cfg(test)]
mod testing;
mod tree;
mod walks;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
