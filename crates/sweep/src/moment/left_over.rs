//! What a run that was killed has left: snapshots whose names tell who made them.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

/// Names of snapshots: a beginning, the process that made it, a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) prefix: &'static str,
}

impl Names {
    /// A name that no other snapshot of this process has.
    pub(super) fn next(self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("{}{}-{}", self.prefix, std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The process that made what has this name.
    pub(super) fn maker(self, name: &str) -> Option<u32> {
        let (process, number) = name.strip_prefix(self.prefix)?.split_once('-')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(process) && is_number(number)).then(|| process.parse().ok())?
    }
}

/// Whether a process is still there, or another one that has its number now.
pub(super) fn is_alive(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_maker() {
        let names = Names { prefix: ".x-" };
        let (one, other) = (names.next(), names.next());
        assert_ne!(one, other);
        assert_eq!(names.maker(&one), Some(std::process::id()));
        for strange in ["", ".x-", ".x-1", ".x-1-", ".x--1", ".x-1-a", ".x-+1-1", "y.x-1-1", ".x-99999999999-1"] {
            assert_eq!(names.maker(strange), None, "{strange}");
        }
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
    }
}
