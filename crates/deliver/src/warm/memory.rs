//! How much the page cache may take.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use onesweep_sys::memory;

/// What the machine, or the control group of this process, can spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of memory.
    pub total_bytes: u64,
    /// Bytes that can be had without swapping, the page cache that could be dropped among them.
    pub available_bytes: u64,
}

impl Memory {
    /// Asks the kernel: `/proc/meminfo`, and the limits of control group version 2 where they are narrower.
    pub fn now() -> io::Result<Self> {
        let machine = Self { total_bytes: memory::total_bytes()?, available_bytes: memory::available_bytes()? };
        Ok(groups().iter().filter_map(|group| Self::of_group(group)).fold(machine, Self::narrower))
    }

    fn narrower(self, other: Self) -> Self {
        if other.available_bytes < self.available_bytes { other } else { self }
    }

    fn of_group(group: &Path) -> Option<Self> {
        let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let total_bytes = number("memory.max")?;
        let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
        let cache = stat.lines().find_map(|line| line.strip_prefix("file ")?.trim().parse::<u64>().ok())?;
        let used = number("memory.current")?.saturating_sub(cache);
        Some(Self { total_bytes, available_bytes: total_bytes.saturating_sub(used) })
    }
}

/// The control group of this process and all above it.
fn groups() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    root.join(path).ancestors().take_while(|group| group.starts_with(root)).map(Path::to_owned).collect()
}

/// The bytes that a warm-up may bring in: what is available, less what the sweep itself holds (`budget_bytes` in its
/// buffers, and as much read ahead of the last file), less a sixteenth of the memory for everyone else.
pub fn default_limit(memory: Memory, budget_bytes: u64) -> u64 {
    let reserve = memory.total_bytes / 16 + budget_bytes.saturating_mul(2);
    memory.available_bytes.saturating_sub(reserve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_memory_is_available() {
        assert!(Memory::now().unwrap().available_bytes > 0);
    }

    #[test]
    fn a_group_narrows_what_the_machine_has() {
        let group = tempfile::tempdir().unwrap();
        for (name, text) in [("memory.max", "1000\n"), ("memory.current", "700"), ("memory.stat", "anon 1\nfile 300\n")]
        {
            fs::write(group.path().join(name), text).unwrap();
        }
        let narrow = Memory { total_bytes: 1000, available_bytes: 600 };
        assert_eq!(Memory::of_group(group.path()), Some(narrow));
        assert_eq!(Memory { total_bytes: 5000, available_bytes: 3000 }.narrower(narrow), narrow);
        fs::write(group.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(Memory::of_group(group.path()), None);
    }

    #[test]
    fn the_limit_leaves_room() {
        let memory = Memory { total_bytes: 16 << 30, available_bytes: 8 << 30 };
        assert_eq!(default_limit(memory, 256 << 20), (8 << 30) - (1 << 30) - (512 << 20));
        assert_eq!(default_limit(memory, 8 << 30), 0);
    }
}
