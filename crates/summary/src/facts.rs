//! By what an inode with several names is told from what it was: all that summaries show of it.
//!
//! Each directory that names it puts down what it showed when that directory was read. Where this is another one now, at a look or
//! in another directory that names it, they are read again.

use onesweep_sys::files::Stat;

use crate::{
    custom::declare::{By, Declared},
    mixing::mixed,
};

/// A hash of what is shown; never 0, which stands for one that isn't known. Who doesn't know the key can't make others that are alike.
///
/// It is of no more than has to be: whatever else changes has nothing read again.
pub(crate) fn of(stat: &Stat, declared: Option<&Declared>, key: u64) -> u64 {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    // The newest change and the largest file are shown always.
    let mut words = vec![stat.size, stat.mtime.secs as u64, stat.mtime.nanos.into()];
    if let Some(declared) = declared.filter(|declared| !declared.is_empty()) {
        words.extend([pair(stat.uid, stat.gid), stat.mode.into(), stat.blocks]);
        // A project isn't told by `stat`, but a change of it shows by this time.
        let shows_more = |by: By| matches!(by, By::Project | By::Command | By::Own);
        if declared.all().iter().any(|one| shows_more(one.by)) {
            words.extend([stat.ctime.secs as u64, pair(stat.ctime.nanos, stat.nlink)]);
        }
    }
    words.into_iter().fold(mixed(key), |sum, word| mixed(sum ^ mixed(word.wrapping_add(key)))).max(1)
}

#[cfg(test)]
mod tests {
    use onesweep_sys::files::{CURRENT_DIR, Time, statx_at};

    use super::*;

    #[test]
    fn what_is_shown_makes_another_hash_and_nothing_else() {
        let any = statx_at(CURRENT_DIR, "/", true).expect("there is a root");
        let time = |secs, nanos| Time { secs, nanos };
        let (mtime, ctime) = (time(7, 1), time(7, 2));
        let some = Stat { mode: 0o100_644, nlink: 2, uid: 5, gid: 6, size: 5, blocks: 8, mtime, ctime, ..any };
        let (owner, project) = ["owner", "project"]
            .map(|by| Declared::parse(&format!("[x]\nby = \"{by}\"\n")).expect("it is understood"))
            .into();
        let none = Declared::default();
        let differs = |other: &Stat| {
            [None, Some(&none), Some(&owner), Some(&project)]
                .map(|declared| of(other, declared, 3) != of(&some, declared, 3))
        };
        let always = [
            Stat { size: 6, ..some },
            Stat { mtime: time(8, 1), ..some },
            Stat { mtime: time(7, 3), ..some },
            Stat { mtime: time(1, 7), ..some },
        ];
        for other in always {
            assert_eq!(differs(&other), [true; 4], "{other:?}");
        }
        let declared = [
            Stat { uid: 6, ..some },
            Stat { gid: 7, ..some },
            Stat { uid: 6, gid: 5, ..some },
            Stat { mode: 0o100_600, ..some },
            Stat { blocks: 16, ..some },
        ];
        for other in declared {
            assert_eq!(differs(&other), [false, false, true, true], "{other:?}");
        }
        let times = [time(8, 2), time(7, 3)].map(|ctime| Stat { ctime, ..some });
        for other in times.into_iter().chain([Stat { nlink: 3, ..some }]) {
            assert_eq!(differs(&other), [false, false, false, true], "{other:?}");
        }
        assert_eq!(differs(&some), [false; 4]);
        assert_ne!(of(&some, None, 3), of(&some, None, 4));
    }
}
