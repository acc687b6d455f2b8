//! What else is mounted below a directory: a server tells of each file system by itself.

use std::{
    io,
    path::{Path, PathBuf},
};

use onesweep_layout::MountTable;
use onesweep_sys::files;

/// Where something is mounted below a directory, relative to it: the outermost places, since what is mounted further in belongs to
/// those. Who walks comes to them by listing what is above, so those below a directory that this process may not list are left out.
pub fn mounted_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let Ok(real) = std::fs::canonicalize(directory) else { return Ok(Vec::new()) };
    let mut places = outermost(&MountTable::read_or_say()?, &real);
    places.retain(|below| !below.ancestors().skip(1).any(|above| is_closed(&directory.join(above))));
    Ok(places)
}

fn outermost(mounts: &MountTable, directory: &Path) -> Vec<PathBuf> {
    let relative = mounts.below(directory).filter_map(|mount| mount.mount_point.strip_prefix(directory).ok());
    let mut places: Vec<PathBuf> = relative.map(Path::to_owned).collect();
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

fn is_closed(directory: &Path) -> bool {
    files::open_dir(directory).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_further_in_belongs_to_what_is_mounted_further_out() {
        let mount = |id: usize, at: &str| format!("{id} 1 0:{id} / {at} rw - tmpfs none rw\n");
        let places = ["/", "/srv", "/srv/b/in", "/srv/a", "/srv/b", "/srv/b", "/srv/bc", "/srvs", "/srv/d/e/f"];
        let text: String = places.iter().enumerate().map(|(at, place)| mount(at + 20, place)).collect();
        let mounts = MountTable::parse(text.as_bytes()).unwrap();
        let below = |directory: &str| outermost(&mounts, Path::new(directory));
        assert_eq!(below("/srv"), ["a", "b", "bc", "d/e/f"].map(PathBuf::from));
        assert_eq!(below("/"), ["srv", "srvs"].map(PathBuf::from));
        assert!(below("/srv/a").is_empty());
    }
}
