//! What members of an archive are called that come from an image: as if it had been mounted, and archived from its root.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use onesweep_layout::image::ImageName;

use crate::session::Session;

const INSIDE: &[u8] = b":/";

/// The images among the paths of an archive.
#[derive(Debug, Default)]
pub(super) struct MemberNames {
    images: Vec<Named>,
}

/// An image by the start of its paths, such as `disk.img:/`.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    prefix: Vec<u8>,
    /// All of it was named, not only a place inside.
    is_whole: bool,
}

impl MemberNames {
    pub(super) fn new(session: &Session, base: Option<&Path>, roots: &[PathBuf]) -> Self {
        let mut names = Self::default();
        if session.reads_images() {
            for root in roots {
                let opened = base.map_or_else(|| root.clone(), |base| base.join(root));
                if onesweep::is_image(&opened, roots.len(), session.follows_roots())
                    && let Some(image) = ImageName::of(&opened)
                {
                    names.add(root, image.inside.is_empty());
                }
            }
        }
        names
    }

    fn add(&mut self, root: &Path, is_whole: bool) {
        let mut prefix = root.as_os_str().as_bytes().to_vec();
        match is_whole {
            true if prefix.ends_with(INSIDE) => {}
            true => prefix.extend_from_slice(INSIDE),
            false => {
                let inside = prefix.windows(INSIDE.len()).rposition(|pair| pair == INSIDE);
                prefix.truncate(inside.map_or(0, |inside| inside + INSIDE.len()));
            }
        }
        match self.images.iter_mut().find(|image| image.prefix == prefix) {
            Some(image) => image.is_whole |= is_whole,
            None => self.images.push(Named { prefix, is_whole }),
        }
    }

    /// Whether any member gets another name than its path.
    pub(super) fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// The name of the member for a path. Those of several images go below the names of these, so that they don't mix.
    pub(super) fn of(&self, path: &Path) -> PathBuf {
        let bytes = path.as_os_str().as_bytes();
        let Some(image) = self.images.iter().find(|image| bytes.starts_with(&image.prefix)) else {
            return path.to_owned();
        };
        let rest = &bytes[image.prefix.len()..];
        let rest = &rest[rest.iter().take_while(|&&byte| byte == b'/').count()..];
        let above: &[u8] = match (self.images.len(), image.is_whole) {
            (1, true) => b".",
            (1, false) => b"",
            _ => &image.prefix[..image.prefix.len() - INSIDE.len()],
        };
        let mut name = above.to_vec();
        if !above.is_empty() && !rest.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(rest);
        OsStr::from_bytes(&name).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(roots: &[(&str, bool)]) -> MemberNames {
        let mut names = MemberNames::default();
        roots.iter().for_each(|(root, is_whole)| names.add(Path::new(root), *is_whole));
        names
    }

    #[test]
    fn members_are_called_as_in_the_image() {
        for (roots, path, expected) in [
            (&[("/i/disk.img", true)][..], "/i/disk.img:/", "."),
            (&[("/i/disk.img", true)], "/i/disk.img:/home/x", "./home/x"),
            (&[("disk.img:/", true)], "disk.img:/x", "./x"),
            (&[("disk.img@2:/home/x", false)], "disk.img@2:/home/x/y", "home/x/y"),
            (&[("disk.img://home", false)], "disk.img://home/y", "home/y"),
            (&[("disk.img:/a", false), ("disk.img:/b", false)], "disk.img:/b/c", "b/c"),
            (&[("disk.img:/a", false), ("/etc", false)], "/etc/passwd", "/etc/passwd"),
            (&[("d.img@1", true), ("d.img@2:/b", false)], "d.img@1:/x", "d.img@1/x"),
            (&[("d.img@1", true), ("d.img@2:/b", false)], "d.img@1:/", "d.img@1"),
            (&[("d.img@1", true), ("d.img@2:/b", false)], "d.img@2:/b/x", "d.img@2/b/x"),
        ] {
            let roots: Vec<_> = roots.iter().filter(|(root, _)| *root != "/etc").copied().collect();
            assert_eq!(names(&roots).of(Path::new(path)).as_os_str(), expected);
        }
        assert!(MemberNames::default().is_empty());
    }
}
