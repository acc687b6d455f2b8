//! Marks of a device or an image as it is now.

use std::{
    fs::Metadata,
    io,
    os::unix::fs::MetadataExt,
    thread,
    time::{Duration, SystemTime},
};

use onesweep_layout::ImageFile;
use onesweep_peer::marks::Marks;

/// Within so long a file may change twice and have the same time: a tick of the kernel's clock, or of a file system, such as FAT,
/// whose times are whole seconds.
const TICK: Duration = Duration::from_millis(20);
const COARSE_TICK: Duration = Duration::from_secs(2);

/// Those of an image's file as well, once its next change can't have the time that it has now: waits for 2 seconds at most.
pub(super) fn marks_of(image: &ImageFile, is_device: bool) -> io::Result<Option<Marks>> {
    let metadata = || (!is_device).then(|| image.file().metadata()).transpose();
    if let Some(metadata) = metadata()? {
        thread::sleep(settles_in(&metadata, SystemTime::now()));
    }
    Ok(Marks::read(image, metadata()?.as_ref()))
}

fn settles_in(metadata: &Metadata, now: SystemTime) -> Duration {
    let changed = Duration::new(metadata.ctime().try_into().unwrap_or(0), metadata.ctime_nsec() as u32);
    let tick = if metadata.ctime_nsec() == 0 { COARSE_TICK } else { TICK };
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // One that is ahead of the clock is followed by another time.
    if now.abs_diff(changed) < tick { changed.saturating_add(tick).saturating_sub(now) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_may_come_again_is_waited_for() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let changed = Duration::new(metadata.ctime() as u64, metadata.ctime_nsec() as u32);
        let at = |since: Duration| settles_in(&metadata, SystemTime::UNIX_EPOCH + changed + since);
        let tick = at(Duration::ZERO);
        assert!(tick == TICK || metadata.ctime_nsec() == 0 && tick == COARSE_TICK);
        assert_eq!(at(tick / 4), tick - tick / 4);
        assert_eq!(at(tick), Duration::ZERO);
        assert_eq!(settles_in(&metadata, SystemTime::UNIX_EPOCH), Duration::ZERO, "it lies ahead");
    }
}
