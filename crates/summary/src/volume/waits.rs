//! How often reading directories had to wait for a disk.

use onesweep_sys::usage;

/// What this thread waits for, from one question to the next.
pub(super) struct Waits {
    told: usage::Waits,
    /// Who waits and has nothing read waits for another thread: those that look into one place of a file system hold each other up.
    is_read_told: bool,
}

impl Waits {
    /// From now on. `is_read_told`: this thread has the disk read itself, and the kernel counts it.
    pub(super) fn begin(is_read_told: bool) -> Waits {
        Waits { told: usage::waits(), is_read_told }
    }

    /// How often since the last time.
    pub(super) fn more(&mut self) -> u32 {
        let before = std::mem::replace(&mut self.told, usage::waits());
        for_a_disk(before, self.told, self.is_read_told)
    }
}

fn for_a_disk(before: usage::Waits, now: usage::Waits, is_read_told: bool) -> u32 {
    if is_read_told && now.blocks_read == before.blocks_read {
        return 0;
    }
    u32::try_from(now.count - before.count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_nothing_read_has_waited_for_no_disk() {
        let before = usage::Waits { count: 7, blocks_read: 100 };
        let [idle, read] = [100, 108].map(|blocks_read| usage::Waits { count: 10, blocks_read });
        let told = |now| [true, false].map(|is_read_told| for_a_disk(before, now, is_read_told));
        assert_eq!((told(idle), told(read)), ([0, 3], [3, 3]));
    }
}
