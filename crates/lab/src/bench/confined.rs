//! A control group with little memory, of either version of the kernel's interface.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long the kernel may take until nobody is left in it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The group. It goes when this goes.
#[derive(Debug)]
pub(crate) struct Confined(PathBuf);

impl Confined {
    pub(crate) fn to(bytes: u64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("mountinfo: {error}"))?;
        let (parent, limit) = hierarchy(&mounts, |path| fs::read_to_string(path).unwrap_or_default())
            .ok_or("no control group for memory is mounted")?;
        let dir = parent.join(format!("onesweep-lab-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let confined = Self(dir);
        let limit = confined.0.join(limit);
        fs::write(&limit, bytes.to_string()).map_err(|error| format!("{}: {error}", limit.display()))?;
        Ok(confined)
    }

    /// Who writes `0` there is in it from then on.
    pub(crate) fn door(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = fs::remove_dir(&self.0) {
            if Instant::now() > until {
                eprintln!("onesweep-lab: {}: {error}", self.0.display());
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Where groups are made that bound memory, and the name of the bound.
fn hierarchy(mountinfo: &str, read: impl Fn(&Path) -> String) -> Option<(PathBuf, &'static str)> {
    let mounts = || {
        mountinfo.lines().filter_map(|line| {
            let (mount, fs) = line.split_once(" - ")?;
            Some((PathBuf::from(mount.split(' ').nth(4)?), fs))
        })
    };
    let has = |words: &str, word: &str| words.split([' ', ',', '\n']).any(|one| one == word);
    let first = mounts().find_map(|(path, fs)| (fs.starts_with("cgroup ") && has(fs, "memory")).then_some(path));
    let second = || {
        let unified = |(path, fs): (PathBuf, &str)| {
            let given = has(&read(&path.join("cgroup.subtree_control")), "memory");
            (fs.starts_with("cgroup2 ") && given).then_some(path)
        };
        mounts().find_map(unified)
    };
    let first = first.map(|path| (path, "memory.limit_in_bytes"));
    first.or_else(|| second().map(|path| (path, "memory.max")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let first = "33 32 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            34 32 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let none = |_: &Path| String::new();
        let found = hierarchy(first, none).unwrap();
        assert_eq!(found, ("/sys/fs/cgroup/memory".into(), "memory.limit_in_bytes"));
        let second = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
        let given = |path: &Path| {
            assert_eq!(path, Path::new("/sys/fs/cgroup/cgroup.subtree_control"));
            "cpuset cpu io memory pids\n".to_owned()
        };
        assert_eq!(hierarchy(second, given), Some(("/sys/fs/cgroup".into(), "memory.max")));
        assert_eq!(hierarchy(second, none), None);
    }
}
