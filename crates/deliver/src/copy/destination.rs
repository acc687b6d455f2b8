//! Where each source goes, as `cp -a` decides it.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
};

use onesweep_sys::files::{self, EntryType};

use super::{CopyError, draft};

/// What is copied.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// As they were named.
    pub paths: &'a [PathBuf],
    /// `cp -H`, for a sweep that follows its roots.
    pub follow: bool,
    /// Of images the files are read, not the images themselves.
    pub images: bool,
}

/// The sources and where they go.
#[derive(Debug)]
pub(super) struct Mapping {
    /// Source as it was named, and its way from `base`.
    roots: Vec<(PathBuf, PathBuf)>,
    /// The directory that all goes into. Symbolic links on the way to it were named by the user, and are followed.
    base: PathBuf,
    /// A directory on the file system of the destination.
    existing: PathBuf,
    /// Some sources are images, of which nothing can be cloned.
    has_images: bool,
}

impl Mapping {
    pub(super) fn new(
        Sources { paths: sources, follow, images }: Sources<'_>,
        destination: &Path,
        no_target: bool,
    ) -> Result<Self, CopyError> {
        let mut has_images = false;
        let into = !no_target && destination.is_dir();
        if !into && sources.len() > 1 {
            return Err(CopyError::NoDirectory { path: destination.to_owned() });
        }
        let (base, alone) = if into { (destination, PathBuf::new()) } else { base_of(destination) };
        let mut roots: Vec<(PathBuf, PathBuf)> = Vec::new();
        let mut first = None;
        for named in sources {
            let is_image = images && onesweep::is_image(named, sources.len(), follow);
            has_images |= is_image;
            // By which the paths of its files begin.
            let source = &if is_image { onesweep::path_of_image(named) } else { named.clone() };
            let way = match (into, is_image && named.as_os_str().as_bytes().ends_with(b":/")) {
                (true, true) => PathBuf::new(),
                (true, false) => inside(named),
                (false, _) => alone.clone(),
            };
            let to = if into { joined(base, &way) } else { destination.to_owned() };
            if roots.iter().any(|(known, _)| known.components().eq(source.components())) {
                continue;
            }
            if !is_image {
                check(source, &to, follow)?;
            }
            check_beside(source, &way, &to, &roots)?;
            roots.push((source.clone(), way));
            first.get_or_insert(to);
        }
        let existing = existing_directory(first.as_deref().unwrap_or(destination));
        Ok(Self { existing, base: base.to_owned(), roots, has_images })
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|(source, _)| source.as_path())
    }

    /// True when nothing can be cloned from some source.
    pub(super) fn has_images(&self) -> bool {
        self.has_images
    }

    /// True when the entry at `path` is a source, and nothing of it is there without it.
    pub(super) fn is_source(&self, path: &Path) -> bool {
        self.roots.iter().any(|(source, _)| source.components().eq(path.components()))
    }

    /// The nearest directory above the first destination that is there already.
    pub(super) fn existing(&self) -> &Path {
        &self.existing
    }

    /// The directory that ways begin at; an empty path is the current directory.
    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    /// The way from the base to where the entry at `path` goes, empty for the base itself; `None` when no source
    /// contains the entry.
    pub(super) fn map(&self, path: &Path) -> Option<PathBuf> {
        self.roots.iter().find_map(|(source, way)| Some(joined(way, path.strip_prefix(source).ok()?)))
    }
}

/// Without a slash at the end, which joining an empty path would put there.
pub(super) fn joined(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_owned() } else { base.join(rest) }
}

/// The directory that a destination without further name is made in, and its way from there: from itself, when it is a
/// directory already.
fn base_of(destination: &Path) -> (&Path, PathBuf) {
    let is_directory = destination.symlink_metadata().is_ok_and(|there| there.is_dir());
    match (destination.parent(), destination.file_name()) {
        (Some(parent), Some(name)) if !is_directory => (parent, name.into()),
        _ => (destination, PathBuf::new()),
    }
}

/// `cp` puts `a/.` and `..` into the destination itself, all else under its last name.
fn inside(source: &Path) -> PathBuf {
    let bytes = source.as_os_str().as_bytes();
    let trimmed = &bytes[..bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1)];
    let last = trimmed.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    match last {
        b"" | b"." | b".." => PathBuf::new(),
        name => OsStr::from_bytes(name).into(),
    }
}

fn check(source: &Path, to: &Path, follow: bool) -> Result<(), CopyError> {
    let stat = files::statx_at(files::CURRENT_DIR, source, !follow);
    let stat = stat.map_err(|error| CopyError::io(source, "copy", error))?;
    let names = || (source.to_owned(), to.to_owned());
    let same = |other: &fs::Metadata| (other.dev(), other.ino()) == (stat.dev, stat.ino);
    let is_dir = stat.file_type() == EntryType::Dir;
    if is_dir {
        let near = existing_directory(to);
        let near = near.canonicalize().map_err(|error| CopyError::io(&near, "look up", error))?;
        if near.ancestors().filter_map(|above| above.symlink_metadata().ok()).any(|above| same(&above)) {
            let (path, destination) = names();
            return Err(CopyError::IntoItself { path, destination });
        }
    } else if to.as_os_str().as_bytes().ends_with(b"/") {
        return Err(CopyError::NoDirectory { path: to.to_owned() });
    } else if to.symlink_metadata().is_ok_and(|there| same(&there)) {
        let (path, destination) = names();
        return Err(CopyError::SameFile { path, destination });
    }
    let kept = match to.symlink_metadata() {
        Ok(there) if is_dir && !there.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(there) if there.is_dir() && !is_dir => Err(io::ErrorKind::IsADirectory.into()),
        _ => Ok(()),
    };
    let there = files::statx_at(files::CURRENT_DIR, to, true);
    let kept = draft::no_special(there, Some((stat.file_type(), stat.rdev))).and(kept);
    kept.map_err(|error| CopyError::io(to, "create", error))
}

fn check_beside(source: &Path, way: &Path, to: &Path, others: &[(PathBuf, PathBuf)]) -> Result<(), CopyError> {
    for (other, other_way) in others {
        let (inner, outer) = match (source.starts_with(other), other.starts_with(source)) {
            (true, _) => (source, other.as_path()),
            (_, true) => (other.as_path(), source),
            _ if way == other_way => {
                let (path, other) = (source.to_owned(), other.clone());
                return Err(CopyError::SameName { path, other, destination: to.to_owned() });
            }
            _ => continue,
        };
        return Err(CopyError::Nested { path: inner.to_owned(), outer: outer.to_owned() });
    }
    Ok(())
}

/// The nearest directory at or above `path` that exists.
fn existing_directory(path: &Path) -> PathBuf {
    let here = || PathBuf::from(if path.is_absolute() { "/" } else { "." });
    let is_named = |above: &&Path| above.components().any(|part| !matches!(part, Component::CurDir));
    path.ancestors().filter(is_named).find(|above| above.is_dir()).map_or_else(here, Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onesweep_sys::files::make_node_at;
    use std::os::fd::AsFd;

    fn named(paths: &[PathBuf], follow: bool) -> Sources<'_> {
        Sources { paths, follow, images: false }
    }

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("src/sub")).unwrap();
            fs::create_dir_all(dir.path().join("other/src")).unwrap();
            fs::create_dir(dir.path().join("dst")).unwrap();
            fs::create_dir_all(dir.path().join("occupied/file")).unwrap();
            fs::write(dir.path().join("file"), b"x").unwrap();
            std::os::unix::fs::symlink("src", dir.path().join("link")).unwrap();
            let here = files::open_dir_handle(dir.path()).unwrap();
            for name in ["pipe", "dst/pipe"] {
                make_node_at(here.as_fd(), name, EntryType::Fifo, 0).unwrap();
            }
            Self(dir)
        }

        fn path(&self, name: &str) -> PathBuf {
            PathBuf::from(format!("{}/{name}", self.0.path().to_str().unwrap()))
        }

        fn map(&self, sources: &[&str], to: &str, no_target: bool) -> Result<Mapping, CopyError> {
            let sources: Vec<_> = sources.iter().map(|name| self.path(name)).collect();
            Mapping::new(named(&sources, false), &self.path(to), no_target)
        }
    }

    #[test]
    fn names_are_those_of_cp() {
        let tree = Tree::new();
        for (source, to, no_target, path, expected) in [
            ("src", "dst", false, "src/sub/f", "dst/src/sub/f"),
            ("src/", "dst", false, "src/sub/f", "dst/src/sub/f"),
            ("src/.", "dst", false, "src/./sub/f", "dst/sub/f"),
            ("src/.", "dst", false, "src/.", "dst"),
            ("src/sub/..", "dst", false, "src/sub/../sub/f", "dst/sub/f"),
            ("src", "dst", true, "src/sub/f", "dst/sub/f"),
            ("src", "new", false, "src", "new"),
            ("src", "new/", false, "src/f", "new/f"),
            ("file", "dst", false, "file", "dst/file"),
            ("file", "new", false, "file", "new"),
            ("link", "dst", false, "link", "dst/link"),
        ] {
            let mapping = tree.map(&[source], to, no_target).unwrap();
            let mapped = joined(mapping.base(), &mapping.map(&tree.path(path)).unwrap());
            assert!(mapped.components().eq(tree.path(expected).components()), "{source} {to} {path}: {mapped:?}");
        }
        let mapping = tree.map(&["src", "file", "src/"], "dst", false).unwrap();
        assert_eq!(mapping.sources().count(), 2, "a source named twice is copied once");
        assert_eq!(mapping.map(Path::new("elsewhere")), None);
        assert_eq!(mapping.map(&tree.path("srcfoo")), None);
    }

    #[test]
    fn what_cp_refuses_is_refused() {
        let tree = Tree::new();
        for (sources, to, expected) in [
            (&["src"][..], "src", "into itself"),
            (&["src"], "src/sub", "into itself"),
            (&["src"], "link", "into itself"),
            (&["src"], "src/new", "into itself"),
            (&["src"], "link/deep/er", "into itself"),
            (&["src", "file"], "new", "no directory"),
            (&["src", "file"], "file", "no directory"),
            (&["file"], "file", "same file"),
            (&["file"], "new/", "no directory"),
            (&["src", "other/src"], "dst", "the same name"),
            (&["src", "src/sub"], "dst", "lies in"),
            (&["gone"], "dst", "cannot copy"),
            (&["file"], "pipe", "a pipe has this name"),
            (&["link"], "pipe", "a pipe has this name"),
            (&["src"], "pipe", "a pipe has this name"),
            (&["src"], "file", "not a directory"),
            (&["file"], "occupied", "is a directory"),
        ] {
            let error = tree.map(sources, to, false).unwrap_err().to_string();
            assert!(error.contains(expected), "{sources:?} to {to}: {error}");
        }
        tree.map(&["src"], "src2", false).unwrap();
        tree.map(&["pipe"], "dst", false).unwrap();
        // A link may be copied into what it leads to, but not when it is followed.
        let (link, inside) = ([tree.path("link")], tree.path("src/new"));
        Mapping::new(named(&link, false), &inside, true).unwrap();
        let error = Mapping::new(named(&link, true), &inside, true).unwrap_err();
        assert!(matches!(error, CopyError::IntoItself { .. }), "{error}");
    }

    #[test]
    fn relative_names_find_their_directory() {
        assert_eq!(existing_directory(Path::new("surely-not-there/x")), Path::new("."));
        assert_eq!(existing_directory(Path::new("/surely-not-there/x")), Path::new("/"));
    }
}
