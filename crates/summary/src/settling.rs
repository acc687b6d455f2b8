//! How long blocks of a file may change after its last change, and nobody tells: until they are written, and on XFS until those that
//! were allocated ahead are taken back.

use std::{fs, path::Path};

use crate::volume::Kind;

/// Of what Linux has at first.
const EXPIRE: i64 = 3000;
const WRITEBACK: i64 = 500;
const LIFETIME: i64 = 300;
/// What XFS takes longer for, when there is much to look through.
const SPARE_OF_XFS: i64 = 25;
/// Where the kernel writes nothing by itself, or is told to wait even longer. Whoever can't wait asks for all to be written.
const SECONDS_MAX: i64 = 24 * 60 * 60;

/// Settings of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// What was written so long ago is due, in hundredths of a second (`vm.dirty_expire_centisecs`).
    expire: i64,
    /// So often what is due is written; 0 for never (`vm.dirty_writeback_centisecs`).
    writeback: i64,
    /// So often XFS takes back what it has allocated ahead for files with nothing to write, in seconds
    /// (`fs.xfs.speculative_prealloc_lifetime`).
    lifetime: i64,
}

impl Settings {
    /// As they are now.
    pub(crate) fn read() -> Settings {
        Settings::below(Path::new("/proc/sys"))
    }

    fn below(settings: &Path) -> Settings {
        let number = |name: &str| fs::read_to_string(settings.join(name)).ok()?.trim().parse().ok();
        Settings {
            expire: number("vm/dirty_expire_centisecs").unwrap_or(EXPIRE),
            writeback: number("vm/dirty_writeback_centisecs").unwrap_or(WRITEBACK),
            // It isn't there before the first XFS is mounted.
            lifetime: number("fs/xfs/speculative_prealloc_lifetime").unwrap_or(LIFETIME),
        }
    }

    /// By then blocks are what they will be.
    pub(crate) fn seconds(self, kind: Kind) -> i64 {
        if self.writeback <= 0 {
            return SECONDS_MAX;
        }
        let written = self.expire.max(0).saturating_add(self.writeback).saturating_add(99) / 100;
        // A file that isn't written when XFS comes by waits for the next time.
        let ahead = if kind == Kind::Xfs { self.lifetime.max(0).saturating_add(SPARE_OF_XFS) } else { 0 };
        written.saturating_add(ahead).min(SECONDS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Settings = Settings { expire: EXPIRE, writeback: WRITEBACK, lifetime: LIFETIME };

    #[test]
    fn blocks_settle_as_late_as_the_settings_say() {
        let of =
            |settings: Settings| [Kind::Ext, Kind::Btrfs, Kind::Other, Kind::Xfs].map(|kind| settings.seconds(kind));
        assert_eq!(of(USUAL), [35, 35, 35, 360]);
        // As on a laptop.
        assert_eq!(of(Settings { expire: 60_000, writeback: 60_001, ..USUAL }), [1201, 1201, 1201, 1526]);
        assert_eq!(of(Settings { lifetime: 3600, ..USUAL }), [35, 35, 35, 3660]);
        assert_eq!(of(Settings { expire: 100, writeback: 100, lifetime: 1 }), [2, 2, 2, 28]);
        assert_eq!(of(Settings { writeback: 0, ..USUAL }), [SECONDS_MAX; 4]);
        assert_eq!(of(Settings { expire: i64::MAX, writeback: i64::MAX, lifetime: i64::MAX }), [SECONDS_MAX; 4]);
    }

    #[test]
    fn settings_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        assert_eq!(Settings::below(folder.path()), USUAL);
        fs::create_dir_all(at("vm")).and_then(|()| fs::create_dir_all(at("fs/xfs"))).expect("folders");
        for (name, value) in [
            ("vm/dirty_expire_centisecs", "6000\n"),
            ("vm/dirty_writeback_centisecs", "0\n"),
            ("fs/xfs/speculative_prealloc_lifetime", "60\n"),
        ] {
            fs::write(at(name), value).expect("a file");
        }
        assert_eq!(Settings::below(folder.path()), Settings { expire: 6000, writeback: 0, lifetime: 60 });
    }
}
