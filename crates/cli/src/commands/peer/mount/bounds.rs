//! Whether memory that is short can hold up the process that serves for good.
//!
//! In a control group of version 1 whose memory is bounded, who needs more of it waits until dirty pages are written, those of a
//! loop device that stands on what this process shows as well: it would wait for itself. With `PR_SET_IO_FLUSHER` it waits for none,
//! and since nothing there keeps dirty pages few, it is killed when they are all that the bound leaves. Version 2 does keep them few,
//! and a machine whose memory is short as a whole, too.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What the kernel calls no bound is a little less than 2⁶³.
const NO_BOUND: u64 = 1 << 62;

/// Bytes of memory that the control group of version 1 allows this process, if there is a bound.
pub(super) fn bound_of_group() -> Option<u64> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let group = group(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))?;
    bound(&fs::read_to_string(group.join("memory.stat")).ok()?)
}

/// The directory of the group.
fn group(own: &str, mountinfo: &str) -> Option<PathBuf> {
    let has = |words: &str| words.split(',').any(|word| word == "memory");
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next().filter(|controllers| has(controllers)).and_then(|_| fields.next())
    })?;
    let (root, mount) = mountinfo.lines().find_map(|line| {
        let (mount, fs) = line.split_once(" - cgroup ")?;
        let mut fields = mount.split(' ').skip(3);
        fs.split([' ', ',']).any(|word| word == "memory").then_some((fields.next()?, fields.next()?))
    })?;
    // In a container the mount may begin further down.
    let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    Some(Path::new(mount).join(below.trim_start_matches('/')))
}

/// That of the group and of all that it lies in.
fn bound(stat: &str) -> Option<u64> {
    let bound = stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?.parse().ok()?;
    (bound < NO_BOUND).then_some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

    #[test]
    fn groups_of_version_1_are_found() {
        let own = "5:devices:/a\n4:memory:/slice/one\n0::/unified\n";
        assert_eq!(group(own, MOUNTS), Some("/sys/fs/cgroup/memory/slice/one".into()));
        assert_eq!(group("4:cpu,memory:/\n", MOUNTS), Some("/sys/fs/cgroup/memory".into()));
        let contained = MOUNTS.replace("0:32 / ", "0:32 /docker/7 ");
        assert_eq!(group("4:memory:/docker/7/x\n", &contained), Some("/sys/fs/cgroup/memory/x".into()));
        let second = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(group("0::/slice\n", second), None);
        assert_eq!(group(own, second), None);
    }

    #[test]
    fn a_bound_is_what_the_hierarchy_allows() {
        assert_eq!(bound("cache 5\nhierarchical_memory_limit 67108864\n"), Some(64 << 20));
        assert_eq!(bound("hierarchical_memory_limit 9223372036854771712\n"), None);
        assert_eq!(bound("cache 5\n"), None);
    }
}
