//! The index under faults and on real file systems.

mod faults;
mod real;
mod simulated;
mod windows_log;
