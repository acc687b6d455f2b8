//! What the kernel keeps for marks and events, by its own books (SLUB, as root).
//!
//! The kernel puts caches of objects of one size together, so that others' objects count, too, and differences are told.
//! A kernel that was started with `slab_nomerge` tells them apart. Handles of more than 12 bytes (btrfs) are not counted.

use std::fs;
use std::path::Path;

/// Bytes of objects in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slab {
    pub(super) marks: u64,
    pub(super) events: u64,
}

/// Where the kernel tells of its caches.
pub(super) const BOOKS: &str = "/sys/kernel/slab";

impl Slab {
    /// As it is now; `None` where the kernel doesn't tell.
    pub(super) fn now(books: &Path) -> Option<Self> {
        let mut slab = Self::default();
        let mut counted = Vec::new();
        for name in names(books) {
            let cache = books.join(&name).canonicalize().ok()?;
            if counted.contains(&cache) {
                continue;
            }
            let sum = number(&cache, "objects")? * number(&cache, "slab_size")?;
            if is_event(&name) {
                slab.events += sum
            } else {
                slab.marks += sum
            }
            counted.push(cache);
        }
        (!counted.is_empty()).then_some(slab)
    }

    /// What came since.
    pub(super) fn since(self, before: Self) -> Self {
        let more = |now: u64, before: u64| now.saturating_sub(before);
        Self { marks: more(self.marks, before.marks), events: more(self.events, before.events) }
    }
}

/// Each cache that is counted: its name, the bytes of an object, and how many others share it.
pub(super) fn described(books: &Path) -> Vec<String> {
    let described = |name: String| {
        let cache = books.join(&name);
        let (size, others) = (number(&cache, "slab_size")?, number(&cache, "aliases")?);
        Some(match others {
            0 => format!("`{name}` ({size} bytes)"),
            _ => format!("`{name}` ({size} bytes, together with {others} others)"),
        })
    };
    names(books).into_iter().filter_map(described).collect()
}

/// Marks and what joins them to inodes, and the events that name inodes by handles: those of paths, of permissions and of
/// mounts are of other groups.
fn names(books: &Path) -> Vec<String> {
    let is_ours = |name: &String| {
        let is_mark = name == "fanotify_mark" || (name.starts_with("fsnotify_") && name.ends_with("mark_connector"));
        is_mark || is_event(name)
    };
    let all = fs::read_dir(books).into_iter().flatten().flatten();
    let mut names: Vec<String> = all.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_ours).collect();
    names.sort();
    names
}

fn is_event(name: &str) -> bool {
    name == "fanotify_fid_event"
}

/// The first number of a file: nodes of memory may follow.
fn number(cache: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(cache.join(file)).ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn caches_that_are_one_are_counted_once() {
        let books = tempfile::tempdir().unwrap();
        assert_eq!(Slab::now(books.path()), None);
        let cache = |name: &str, objects: &str, size: &str, aliases: &str| {
            let dir = books.path().join(name);
            fs::create_dir(&dir).unwrap();
            for (file, text) in [("objects", objects), ("slab_size", size), ("aliases", aliases)] {
                fs::write(dir.join(file), text).unwrap();
            }
        };
        cache(":0000072", "10 N0=10\n", "72\n", "6\n");
        cache(":A-0000080", "5 N0=5\n", "80\n", "0\n");
        cache("fsnotify_mark_connector", "3 N0=3\n", "24\n", "0\n");
        cache("dentry", "1000\n", "192\n", "0\n");
        symlink(":0000072", books.path().join("fanotify_fid_event")).unwrap();
        symlink(":A-0000080", books.path().join("fanotify_mark")).unwrap();
        symlink("fsnotify_mark_connector", books.path().join("fsnotify_inode_mark_connector")).unwrap();
        let slab = Slab::now(books.path()).unwrap();
        assert_eq!((slab.marks, slab.events), (5 * 80 + 3 * 24, 720));
        assert_eq!(slab.since(Slab { marks: 72, events: 800 }), Slab { marks: 400, events: 0 });
        let described = described(books.path());
        assert_eq!(described[0], "`fanotify_fid_event` (72 bytes, together with 6 others)");
        assert_eq!(described.len(), 4);
    }
}
