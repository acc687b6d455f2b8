//! The rights of the daemon, in a process of their own.
//!
//! What asks the kernel for privileges is the *warden* ([`keeper`]): it opens directories by their numbers, reads them, and marks
//! them for the tracker, on the file systems that its settings name and on no others. It never opens the content of a file for
//! reading, and never writes. The daemon itself ([`guarded`]) holds the store, hears and answers everybody, and has no rights:
//! it sends requests over a socket that was there before either began.

pub mod guarded;
pub mod keeper;
mod opening;
mod request;
pub(crate) mod wire;
