//! Times for people, in the time zone of this process.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

/// The longest text.
const BYTES_MAX: usize = 1024;

/// Seconds since 1970 by a format of strftime(3); `None` for a time that no calendar has, and where the text is too long.
#[doc(alias = "strftime")]
pub fn format(seconds: i64, format: &str) -> Option<String> {
    // An empty result is told like one that is too long.
    let format = CString::new(format!("{format} ")).ok()?;
    let mut text = vec![0_u8; BYTES_MAX];
    let mut broken_down = MaybeUninit::<libc::tm>::zeroed();
    let seconds = seconds as libc::time_t;
    // SAFETY: both point to values of ours, and the result to the second one, or nowhere.
    let found = unsafe { libc::localtime_r(&raw const seconds, broken_down.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: `text` has as many bytes as is said, the format ends with a zero byte, and `localtime_r` has filled the time.
    let written =
        unsafe { libc::strftime(text.as_mut_ptr().cast::<c_char>(), BYTES_MAX, format.as_ptr(), broken_down.as_ptr()) };
    text.truncate(written.checked_sub(1)?);
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_text() {
        assert_eq!(format(86_400, "%s").as_deref(), Some("86400"));
        assert_eq!(format(0, "").as_deref(), Some(""));
        let year = format(1_000_000_000, "%Y").unwrap();
        assert_eq!(year, "2001");
        assert_eq!(format(i64::MAX, "%Y"), None);
        assert_eq!(format(0, &"x".repeat(2000)), None);
        assert_eq!(format(0, "a\0b"), None);
    }
}
