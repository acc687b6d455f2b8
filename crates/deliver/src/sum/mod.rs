//! Checksums of swept files: writing manifests and checking them.
//!
//! A manifest has exactly the form that `b3sum --check`, `sha256sum --check` and `md5sum --check` read.

mod algorithm;
mod check;
mod manifest;
mod summer;

pub use algorithm::{Algorithm, Digest};
pub use check::{Check, Verdict, VerdictKind};
pub use manifest::{BadLine, Expected, parse_line, read_manifest, write_escaped, write_line};
pub use summer::{Summed, Summer};
