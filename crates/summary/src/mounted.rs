//! What else is mounted below a directory: a server tells of each file system by itself.

use std::{
    io,
    path::{Path, PathBuf},
};

use onesweep_layout::{Mount, MountTable};
use onesweep_sys::files;

/// Where something is mounted below a directory, relative to it: the outermost places, since what is mounted further in belongs to
/// those. What another mount hides isn't there, and a directory that is seen elsewhere below this one, too, isn't told again, for who
/// walks counts each directory once; a file that is mounted on another is counted by each of its places. Who walks comes to them by listing what is above, so those below a directory that this process may
/// not list are left out.
pub fn mounted_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let Ok(real) = std::fs::canonicalize(directory) else { return Ok(Vec::new()) };
    let mounts = MountTable::read_or_say()?;
    let seen: Vec<&Mount> = mounts.below(&real).filter(|mount| is_seen(mount)).collect();
    let is_directory = |mount: &Mount| std::fs::symlink_metadata(&mount.mount_point).is_ok_and(|facts| facts.is_dir());
    let mut places = outermost(&mounts, &seen, &real, is_directory);
    places.retain(|below| !below.ancestors().skip(1).any(|above| is_closed(&directory.join(above))));
    Ok(places)
}

/// Whether it is what its path leads to, and not hidden by a later one.
fn is_seen(mount: &Mount) -> bool {
    match files::statx_at(files::CURRENT_DIR, &*mount.mount_point, true) {
        Ok(stat) => stat.mnt_id.is_none_or(|id| id == mount.id),
        // Who asks for it is told why it can't be looked at.
        Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

fn outermost(
    mounts: &MountTable,
    seen: &[&Mount],
    directory: &Path,
    is_directory: impl Fn(&Mount) -> bool,
) -> Vec<PathBuf> {
    let own = mounts.of_path(directory);
    let is_again = |at: usize| {
        let is_in_its_own = own.is_some_and(|own| shows(mounts, own, seen[at], directory));
        let is_in_another = |(other_at, other): (usize, &&Mount)| {
            let shows = |one: &Mount, other: &Mount| shows(mounts, one, other, &one.mount_point);
            other_at != at && shows(other, seen[at]) && (other_at < at || !shows(seen[at], other))
        };
        (is_in_its_own || seen.iter().enumerate().any(is_in_another)) && is_directory(seen[at])
    };
    let relative = |at: usize| seen[at].mount_point.strip_prefix(directory).ok().map(Path::to_owned);
    let mut places: Vec<PathBuf> = (0..seen.len()).filter(|&at| !is_again(at)).filter_map(relative).collect();
    places.sort();
    places.dedup();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for place in places {
        if !outermost.iter().any(|outer| place.starts_with(outer)) {
            outermost.push(place);
        }
    }
    outermost
}

/// Whether what a mount shows is seen through another one, too, below a directory of that.
fn shows(mounts: &MountTable, through: &Mount, what: &Mount, below: &Path) -> bool {
    if what.dev != through.dev {
        return false;
    }
    let Ok(relative) = what.root.strip_prefix(&through.root) else { return false };
    let path = through.mount_point.join(relative);
    // Something else may be mounted there.
    path.starts_with(below) && mounts.of_path(&path).is_some_and(|mount| mount.id == through.id)
}

fn is_closed(directory: &Path) -> bool {
    files::open_dir(directory).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(mounts: &MountTable, directory: &str) -> Vec<PathBuf> {
        let directory = Path::new(directory);
        outermost(mounts, &mounts.below(directory).collect::<Vec<_>>(), directory, |mount| {
            !mount.mount_point.ends_with("file")
        })
    }

    #[test]
    fn what_is_mounted_further_in_belongs_to_what_is_mounted_further_out() {
        let mount = |id: usize, at: &str| format!("{id} 1 0:{id} / {at} rw - tmpfs none rw\n");
        let places = ["/", "/srv", "/srv/b/in", "/srv/a", "/srv/b", "/srv/bc", "/srvs", "/srv/d/e/f"];
        let text: String = places.iter().enumerate().map(|(at, place)| mount(at + 20, place)).collect();
        let mounts = MountTable::parse(text.as_bytes()).unwrap();
        assert_eq!(below(&mounts, "/srv"), ["a", "b", "bc", "d/e/f"].map(PathBuf::from));
        assert_eq!(below(&mounts, "/"), ["srv", "srvs"].map(PathBuf::from));
        assert!(below(&mounts, "/srv/a").is_empty());
    }

    /// Parts of `/srv` and of the root are shown elsewhere, too, the one below `/var` only there.
    const BOUND: &str = "\
        1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
        2 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n\
        3 1 8:3 / /var rw - ext4 /dev/sda3 rw\n\
        4 1 8:2 /a/b /mnt/b rw - ext4 /dev/sda2 rw\n\
        5 1 8:1 /var /mnt/var rw - ext4 /dev/sda1 rw\n\
        6 1 8:2 /c /srv/d rw - ext4 /dev/sda2 rw\n\
        7 1 8:2 /a /mnt/c rw - ext4 /dev/sda2 rw\n\
        8 1 8:2 /a /mnt/d rw - ext4 /dev/sda2 rw\n";

    #[test]
    fn a_place_that_is_seen_twice_is_told_once() {
        let mounts = MountTable::parse(BOUND.as_bytes()).unwrap();
        for (directory, expected) in [
            ("/", &["mnt/var", "srv", "var"][..]),
            // What lies in it itself.
            ("/srv", &[]),
            // What another one shows, or shows more of.
            ("/mnt", &["c", "var"]),
        ] {
            assert_eq!(
                below(&mounts, directory),
                expected.iter().map(PathBuf::from).collect::<Vec<_>>(),
                "{directory}"
            );
        }
        // What lies elsewhere in the same file system.
        let more = format!("{BOUND}9 2 8:2 /c /srv/e/c rw - ext4 /dev/sda2 rw\n");
        let mounts = MountTable::parse(more.as_bytes()).unwrap();
        assert_eq!(below(&mounts, "/srv/e"), [PathBuf::from("c")]);
        assert!(below(&mounts, "/srv").is_empty());
        // A file is counted wherever it is.
        let more = format!("{BOUND}9 2 8:2 /c/file /srv/e/file rw - ext4 /dev/sda2 rw\n");
        assert_eq!(below(&MountTable::parse(more.as_bytes()).unwrap(), "/srv"), [PathBuf::from("e/file")]);
    }
}
