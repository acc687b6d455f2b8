//! Mappings of processes, as `/proc/PID/maps` tells them.

use crate::files::makedev;

/// How a mapping is marked by which others see what is written.
const SHARED: char = 's';

/// A mapping by which others see what is written to a file.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedMapping {
    /// In `/proc/PID/map_files`.
    pub name: String,
    /// The inode of the file.
    pub ino: u64,
    /// It may be written through now; before it was made one for reading, others may have.
    pub is_written: bool,
}

/// A line of `maps`, if it is of a shared mapping of a file on that device (as `st_dev` tells it; on btrfs, that of the mount). `None` for
/// all others, and for what is no such line.
#[must_use]
pub fn shared_on(line: &str, device: u64) -> Option<SharedMapping> {
    let mut fields = line.split_ascii_whitespace();
    let (range, marks) = (fields.next()?, fields.next().filter(|marks| marks.ends_with(SHARED))?);
    let (_, its_device, ino) = (fields.next()?, fields.next()?, fields.next()?);
    let (start, end) = range.split_once('-')?;
    let (major, minor) = its_device.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let small = |text: &str| u32::from_str_radix(text, 16).ok();
    let is_it = makedev(small(major)?, small(minor)?) == device;
    // There they have no zeros in front.
    let name = format!("{:x}-{:x}", hex(start)?, hex(end)?);
    let mapping = SharedMapping { name, ino: ino.parse().ok()?, is_written: marks.contains('w') };
    is_it.then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_what_is_shared() {
        let device = makedev(8, 0x12);
        let of = |line: &str| shared_on(line, device);
        let mapping = |name: &str, ino, is_written| Some(SharedMapping { name: name.into(), ino, is_written });
        let written = of("00400000-00452000 rw-s 00000000 08:12 173521   /a b");
        assert_eq!(written, mapping("400000-452000", 173_521, true));
        let read = of("7f0000000000-7f0000001000 r--s 00001000 08:12 1 /a");
        assert_eq!(read, mapping("7f0000000000-7f0000001000", 1, false));
        for other in [
            "00400000-00452000 rw-p 00000000 08:12 1 /a",
            "00400000-00452000 rw-s 00000000 08:13 1 /a",
            "00400000-00452000 rw-s 00000000 08:12",
            "x",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
