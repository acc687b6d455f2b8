//! Who this process is.

/// The user that this process acts as.
#[doc(alias = "geteuid")]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
