//! What else is mounted below a directory: a server tells of each file system by itself.

mod parts;

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use onesweep_layout::{Mount, MountTable};
use onesweep_sys::files;

pub use self::parts::{How, Parts};

/// What is mounted below a directory, as who walks from there comes to it: by listing what is above, so that nothing counts below a
/// directory that this process may not list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    /// Which file system the directory itself is on, by the number that the table of mounts has for it; the same for each subvolume of
    /// a btrfs.
    pub own: Option<u64>,
    /// What counts, one that lies in another behind that. What another mount hides isn't there, and a directory that is seen elsewhere
    /// below, too, counts there, for who walks counts each directory once; a file that is mounted on another is counted by each of its
    /// places.
    pub places: Vec<Place>,
    /// Where a directory is mounted that counts in another place, or in the directory itself.
    again: Vec<Place>,
}

/// Where something is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Relative to the directory.
    pub below: PathBuf,
    /// Which file system is mounted there, as [`Mounted::own`].
    pub file_system: u64,
}

impl Mounted {
    /// Below `directory`; with `one_file_system` only what has the device number of that, and all that lies above it there, too: as a
    /// place of the same file system that is mounted once more has.
    pub fn below(directory: &Path, one_file_system: bool) -> io::Result<Mounted> {
        let Ok(real) = std::fs::canonicalize(directory) else { return Ok(Mounted::default()) };
        let mounts = MountTable::read_or_say()?;
        let dev = one_file_system.then(|| files::statx_at(files::CURRENT_DIR, &*real, true)).transpose()?;
        let ways = Ways { top: &real, dev: dev.map(|stat| stat.dev), steps: RefCell::default() };
        let seen = mounts.below(&real).filter(|mount| ways.is_seen(mount)).collect::<Vec<&Mount>>();
        Ok(counted(&mounts, &seen, &real, &ways))
    }

    /// What is mounted in one of the places, which a walk from there meets.
    pub fn further_in(&self, place: &Path) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |other| other.below != place && other.below.starts_with(place))
    }

    /// Whether a directory is mounted in one of the places that may count outside of that, so that a walk from there counts it once more.
    pub fn counts_elsewhere(&self, place: &Path) -> bool {
        let is_outside = |again: &Place| {
            let is_its = |other: &Place| other.file_system == again.file_system && !other.below.starts_with(place);
            self.own == Some(again.file_system) || self.places.iter().any(is_its)
        };
        self.again.iter().any(|again| again.below.starts_with(place) && is_outside(again))
    }
}

/// What has to be looked at to know what counts.
trait Looks {
    fn is_directory(&self, mount: &Mount) -> bool;

    /// Whether who walks comes to a path.
    fn leads_to(&self, path: &Path) -> bool;
}

/// How a directory on the way is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Open,
    /// Who walks doesn't go on from there.
    Closed,
    /// It can't be looked at for another reason, which who asks for what lies below is told.
    Unknown,
}

/// The ways from the directory at the top down.
struct Ways<'a> {
    top: &'a Path,
    /// Only what has this device number is walked.
    dev: Option<u64>,
    steps: RefCell<HashMap<PathBuf, Step>>,
}

impl Ways<'_> {
    /// Whether a mount is what its path leads to, not hidden by a later one, and who walks comes there.
    fn is_seen(&self, mount: &Mount) -> bool {
        let is_there = match files::statx_at(files::CURRENT_DIR, &*mount.mount_point, true) {
            Ok(stat) => stat.mnt_id.is_none_or(|id| id == mount.id) && self.dev.is_none_or(|dev| dev == stat.dev),
            // Who asks for it is told why it can't be looked at.
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        };
        is_there && !self.above(&mount.mount_point).any(|above| self.step(above) == Step::Closed)
    }

    /// The directories on the way to a path.
    fn above<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        path.ancestors().skip(1).take_while(move |above| above.starts_with(self.top))
    }

    fn step(&self, directory: &Path) -> Step {
        if let Some(&known) = self.steps.borrow().get(directory) {
            return known;
        }
        let looked = files::open_dir(directory).and_then(|open| match self.dev {
            Some(dev) => Ok(files::statx_fd(open.as_fd())?.dev == dev),
            None => Ok(true),
        });
        let step = match looked {
            Ok(true) => Step::Open,
            Ok(false) => Step::Closed,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Step::Closed,
            Err(_) => Step::Unknown,
        };
        self.steps.borrow_mut().insert(directory.to_owned(), step);
        step
    }
}

impl Looks for Ways<'_> {
    fn is_directory(&self, mount: &Mount) -> bool {
        std::fs::symlink_metadata(&mount.mount_point).is_ok_and(|facts| facts.is_dir())
    }

    fn leads_to(&self, path: &Path) -> bool {
        self.above(path).all(|above| self.step(above) == Step::Open) && std::fs::symlink_metadata(path).is_ok()
    }
}

/// Decided once for all that is mounted below, however deep: what is seen twice may lie in two mounts that know nothing of each other.
fn counted(mounts: &MountTable, seen: &[&Mount], directory: &Path, looks: &impl Looks) -> Mounted {
    let own = mounts.of_path(directory);
    // One that who asks can't come to keeps no other from being counted.
    let shows = |through: &Mount, what: &Mount, below: &Path| {
        shown_at(mounts, through, what, below).is_some_and(|path| looks.leads_to(&path))
    };
    let is_again = |at: usize| {
        let is_in_its_own = own.is_some_and(|own| shows(own, seen[at], directory));
        let is_in_another = |(other_at, other): (usize, &&Mount)| {
            let shows = |one: &Mount, other: &Mount| shows(one, other, &one.mount_point);
            other_at != at && shows(other, seen[at]) && (other_at < at || !shows(seen[at], other))
        };
        (is_in_its_own || seen.iter().enumerate().any(is_in_another)) && looks.is_directory(seen[at])
    };
    let mut found = Mounted { own: own.map(|own| own.dev), ..Mounted::default() };
    for (at, mount) in seen.iter().enumerate() {
        let Ok(below) = mount.mount_point.strip_prefix(directory) else { continue };
        let of = if is_again(at) { &mut found.again } else { &mut found.places };
        of.push(Place { below: below.to_owned(), file_system: mount.dev });
    }
    found.places.sort_by(|one, other| one.below.cmp(&other.below));
    found.places.dedup_by(|one, other| one.below == other.below);
    found
}

/// Where what a mount shows is seen through another one, too, if it is, and below a directory.
fn shown_at(mounts: &MountTable, through: &Mount, what: &Mount, below: &Path) -> Option<PathBuf> {
    if what.dev != through.dev {
        return None;
    }
    let path = through.mount_point.join(what.root.strip_prefix(&through.root).ok()?);
    // Something else may be mounted there.
    let is_through = path.starts_with(below) && mounts.of_path(&path).is_some_and(|mount| mount.id == through.id);
    is_through.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files are called so, and these paths can't be come to, nor what lies below them.
    struct Named<'a>(&'a [&'a str]);

    impl Looks for Named<'_> {
        fn is_directory(&self, mount: &Mount) -> bool {
            !mount.mount_point.ends_with("file")
        }

        fn leads_to(&self, path: &Path) -> bool {
            !self.0.iter().any(|closed| path.starts_with(closed))
        }
    }

    fn mounted(mounts: &MountTable, directory: &str, closed: &[&str]) -> Mounted {
        let directory = Path::new(directory);
        let looks = Named(closed);
        let seen: Vec<&Mount> = mounts.below(directory).filter(|mount| looks.leads_to(&mount.mount_point)).collect();
        counted(mounts, &seen, directory, &looks)
    }

    fn below(mounts: &MountTable, directory: &str) -> Vec<PathBuf> {
        mounted(mounts, directory, &[]).places.into_iter().map(|place| place.below).collect()
    }

    fn paths(some: &[&str]) -> Vec<PathBuf> {
        some.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn what_is_mounted_further_in_comes_behind_what_is_mounted_further_out() {
        let mount = |id: usize, at: &str| format!("{id} 1 0:{id} / {at} rw - tmpfs none rw\n");
        let places = ["/", "/srv", "/srv/b/in", "/srv/a", "/srv/b", "/srv/bc", "/srvs", "/srv/d/e/f"];
        let text: String = places.iter().enumerate().map(|(at, place)| mount(at + 20, place)).collect();
        let mounts = MountTable::parse(text.as_bytes()).unwrap();
        assert_eq!(below(&mounts, "/srv"), paths(&["a", "b", "b/in", "bc", "d/e/f"]));
        assert!(below(&mounts, "/srv/a").is_empty());
        let found = mounted(&mounts, "/srv", &[]);
        assert_eq!(found.own, Some(onesweep_sys::files::makedev(0, 21)));
        for (place, expected) in [("a", &[][..]), ("b", &["b/in"]), ("b/in", &[])] {
            let further_in: Vec<PathBuf> = found.further_in(Path::new(place)).map(|one| one.below.clone()).collect();
            assert_eq!(further_in, paths(expected), "{place}");
        }
        assert!(!found.counts_elsewhere(Path::new("")));
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
            assert_eq!(below(&mounts, directory), paths(expected), "{directory}");
        }
        // What lies elsewhere in the same file system.
        let more = format!("{BOUND}9 2 8:2 /c /srv/e/c rw - ext4 /dev/sda2 rw\n");
        let mounts = MountTable::parse(more.as_bytes()).unwrap();
        assert_eq!(below(&mounts, "/srv/e"), paths(&["c"]));
        assert!(below(&mounts, "/srv").is_empty());
        // A file is counted wherever it is.
        let more = format!("{BOUND}9 2 8:2 /c/file /srv/e/file rw - ext4 /dev/sda2 rw\n");
        assert_eq!(below(&MountTable::parse(more.as_bytes()).unwrap(), "/srv"), paths(&["e/file"]));
    }

    /// Of one that can't be come to nothing is told, so what shows the same has to be told.
    #[test]
    fn what_cannot_be_come_to_hides_nothing() {
        let mounts = MountTable::parse(BOUND.as_bytes()).unwrap();
        let places = |directory: &str, closed: &[&str]| {
            mounted(&mounts, directory, closed).places.into_iter().map(|place| place.below).collect::<Vec<_>>()
        };
        // By the file system that is asked about.
        assert_eq!(places("/srv", &["/srv/c"]), paths(&["d"]));
        // By another mount, whichever comes first in the table.
        assert_eq!(places("/mnt", &["/mnt/c"]), paths(&["d", "var"]));
        assert_eq!(places("/mnt", &["/mnt/c", "/mnt/d"]), paths(&["b", "var"]));
        // Or by a directory within it.
        assert_eq!(places("/mnt", &["/mnt/c/b", "/mnt/d/b"]), paths(&["b", "c", "var"]));
    }

    /// In what is mounted below, and in a place that doesn't count itself.
    #[test]
    fn what_is_mounted_in_a_mount_is_told_once_as_well() {
        let more = format!(
            "{BOUND}\
             9 3 8:2 /a/b /var/lib/b rw - ext4 /dev/sda2 rw\n\
             10 3 8:4 / /var/lib/other rw - ext4 /dev/sda4 rw\n\
             11 6 8:5 / /srv/d/in rw - ext4 /dev/sda5 rw\n"
        );
        let mounts = MountTable::parse(more.as_bytes()).unwrap();
        assert_eq!(below(&mounts, "/"), paths(&["mnt/var", "srv", "srv/d/in", "var", "var/lib/other"]));
        assert_eq!(below(&mounts, "/var"), paths(&["lib/b", "lib/other"]));
        let found = mounted(&mounts, "/", &[]);
        assert!(found.counts_elsewhere(Path::new("var")) && !found.counts_elsewhere(Path::new("var/lib/other")));
        // Two places of what is mounted in one of them: who walks from there meets both.
        let more = format!("{more}12 10 8:4 /x /var/lib/other/y rw - ext4 /dev/sda4 rw\n");
        let found = mounted(&MountTable::parse(more.as_bytes()).unwrap(), "/", &[]);
        assert!(!found.counts_elsewhere(Path::new("var/lib/other")));
        let on = |place: &str| found.places.iter().find(|one| one.below == Path::new(place)).map(|one| one.file_system);
        assert_eq!(on("srv/d/in"), Some(onesweep_sys::files::makedev(8, 5)));
    }
}
