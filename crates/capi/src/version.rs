//! Versions of the interface.

use std::ffi::c_char;

/// Rises when programs have to be changed and built anew; it is that of `libonesweep.so.1` too.
pub const ONESWEEP_VERSION_MAJOR: u32 = 1;
/// Rises with what is added.
pub const ONESWEEP_VERSION_MINOR: u32 = 1;
/// Rises with what is repaired.
pub const ONESWEEP_VERSION_PATCH: u32 = 0;

/// The version of the library that runs, as "1.1.0": of its interface, which has numbers of its own.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_version() -> *const c_char {
    c"1.1.0".as_ptr()
}
