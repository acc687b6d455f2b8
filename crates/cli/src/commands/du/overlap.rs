//! Whether paths have directories in common, which count once over all of them: by their names, or by what is mounted where. Pure.

use std::path::{Path, PathBuf};

use onesweep_layout::{Mount, MountTable};

/// A place on a file system, or a path, and of which of the paths it is.
struct Place {
    dev: u64,
    path: PathBuf,
    of: usize,
}

/// Whether one of these paths, absolute and without symbolic links, lies in another, is the same, or shows the same place of a file
/// system; itself, or by what is mounted in it.
pub(super) fn have_something_in_common(mounts: &MountTable, paths: &[PathBuf]) -> bool {
    let by_name = (0..).zip(paths).map(|(of, path)| Place { dev: 0, path: path.clone(), of });
    lie_in_another(by_name.collect()) || lie_in_another(places(mounts, paths))
}

fn places(mounts: &MountTable, paths: &[PathBuf]) -> Vec<Place> {
    let mut places = Vec::new();
    for (of, path) in (0..).zip(paths) {
        let place = |mount: &Mount, below: &Path| {
            // An empty name at the end would be a slash.
            let path = if below.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(below) };
            Place { dev: mount.dev, path, of }
        };
        let own = mounts.of_path(path).and_then(|mount| Some((mount, path.strip_prefix(&mount.mount_point).ok()?)));
        places.extend(own.map(|(mount, below)| place(mount, below)));
        places.extend(mounts.below(path).map(|mount| place(mount, Path::new(""))));
    }
    places
}

fn lie_in_another(mut places: Vec<Place>) -> bool {
    // What lies in a path comes right behind it, if not behind others that do.
    places.sort_by(|one, other| (one.dev, &one.path).cmp(&(other.dev, &other.path)));
    let mut above: Vec<&Place> = Vec::new();
    for place in &places {
        while above.pop_if(|last| last.dev != place.dev || !place.path.starts_with(&last.path)).is_some() {}
        if above.iter().any(|last| last.of != place.of) {
            return true;
        }
        above.push(place);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/srv` is a file system of its own, parts of which are mounted elsewhere too.
    const MOUNTS: &str = "\
        1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
        2 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n\
        3 1 8:2 /a/b /mnt/b rw - ext4 /dev/sda2 rw\n\
        4 1 8:2 /c /home/her/c rw - ext4 /dev/sda2 rw\n\
        5 1 8:1 /opt /mnt/opt rw - ext4 /dev/sda1 rw\n";

    fn overlap(paths: &[&str]) -> bool {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        have_something_in_common(&MountTable::parse(MOUNTS.as_bytes()).unwrap(), &paths)
    }

    #[test]
    fn what_lies_in_another_overlaps_with_it() {
        for (paths, expected) in [
            (&["/srv/x"][..], false),
            (&["/srv/x", "/srv/y"], false),
            (&["/srv/x", "/srv/xy", "/srv/x"], true),
            (&["/srv/x", "/srv/x-y", "/srv/x/z"], true),
            (&["/home", "/home/her/c"], true),
            (&["/", "/usr"], true),
        ] {
            assert_eq!(overlap(paths), expected, "{paths:?}");
        }
    }

    #[test]
    fn the_same_place_under_two_names_is_one() {
        for (paths, expected) in [
            (&["/srv", "/mnt/b"][..], true),
            (&["/mnt/b/deep", "/srv/a"], true),
            (&["/mnt/b", "/srv/a/b/deep"], true),
            (&["/mnt/b", "/srv/a/bee"], false),
            (&["/mnt/b", "/srv/c"], false),
            // By what is mounted in it.
            (&["/home", "/srv"], true),
            (&["/home/him", "/srv"], false),
            (&["/home", "/srv/c/deep"], true),
            (&["/home", "/srv/a"], false),
            (&["/mnt", "/usr"], false),
            (&["/mnt", "/opt/x"], true),
            // One that holds a place twice has it in common with nobody.
            (&["/mnt", "/usr", "/home"], false),
        ] {
            assert_eq!(overlap(paths), expected, "{paths:?}");
        }
    }
}
