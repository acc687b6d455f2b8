//! Where what is opened lies in the tree: pure.

use std::{
    ffi::OsStr,
    hash::{DefaultHasher, Hasher},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use crate::guide::DirectoryId;

/// Where the tree is shown: the place itself, and those of containers, as the kernel names them.
#[derive(Debug)]
pub(super) struct Routes(RwLock<Vec<PathBuf>>);

/// A directory below the tree's top, by its path from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route(PathBuf);

impl Routes {
    pub(super) fn new(place: &Path) -> Self {
        Self(RwLock::new(vec![place.to_owned()]))
    }

    /// A further place.
    pub(super) fn add(&self, place: &Path) {
        let mut places = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !places.iter().any(|known| known == place) {
            places.push(place.to_owned());
        }
    }

    /// Where that path leads. The longest place counts: one may lie below another one's.
    pub(super) fn to(&self, path: &Path) -> Option<Route> {
        let places = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let below = places.iter().filter_map(|place| path.strip_prefix(place).ok());
        below.min_by_key(|below| below.as_os_str().len()).map(|below| Route(below.to_owned()))
    }
}

impl Route {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The directory above.
    pub(super) fn above(&self) -> Option<Route> {
        self.0.parent().map(|above| Route(above.to_owned()))
    }

    /// The directory, and those above it up to the top, by numbers. Two names of different directories may have one number, by a chance of one in 2⁶⁴.
    pub(super) fn chain(&self) -> Vec<DirectoryId> {
        self.0.ancestors().map(number).collect()
    }

    /// Which of these has that number.
    pub(super) fn of(&self, id: DirectoryId) -> Option<&Path> {
        self.0.ancestors().find(|path| number(path) == id)
    }
}

fn number(path: &Path) -> DirectoryId {
    let mut hasher = DefaultHasher::new();
    hasher.write(OsStr::as_bytes(path.as_os_str()));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_lies_below_the_place() {
        let routes = Routes::new(Path::new("/mnt/mail"));
        let to = |path: &str| routes.to(Path::new(path)).map(|route| route.path().to_owned());
        assert_eq!(to("/mnt/mail/a/b"), Some("a/b".into()));
        assert_eq!(to("/mnt/mail"), Some("".into()));
        assert_eq!((to("/mnt/mailbox"), to("/mnt"), to("")), (None, None, None));
        routes.add(Path::new("/"));
        routes.add(Path::new("/mnt/mail/a"));
        assert_eq!(to("/mnt/mail/a/b"), Some("b".into()), "the longest place");
        assert_eq!(to("/x/y"), Some("x/y".into()), "a container's whole root");
    }

    #[test]
    fn a_chain_goes_up_to_the_top() {
        let routes = Routes::new(Path::new("/m"));
        let route = routes.to(Path::new("/m/a/b")).unwrap();
        let chain = route.chain();
        assert_eq!(chain.len(), 3);
        let found: Vec<&str> = chain.iter().map(|id| route.of(*id).unwrap().to_str().unwrap()).collect();
        assert_eq!(found, ["a/b", "a", ""]);
        assert_eq!(route.of(chain[0].wrapping_add(1)), None);
        assert_eq!(route.above().unwrap().chain(), chain[1..]);
        let top = routes.to(Path::new("/m")).unwrap();
        assert_eq!((top.chain(), top.above()), (vec![chain[2]], None));
    }
}
