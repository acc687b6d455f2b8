//! `onesweep tar`: which paths go into the archive, and how. Writing it is in [`super::archive`].

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use onesweep::{Entries, Order, Summary};
use onesweep_sys::files::EntryType;

use super::{
    archive::{Archive, is_one_row},
    member_names::MemberNames,
};
use crate::{
    args::{Common, Sort, TarArgs, VERSION_CONTROL},
    named,
    report::Failure,
    session::{Session, StandardOutput, input},
};

pub(crate) fn run(args: TarArgs) -> Result<u8, Failure> {
    let stdout = if args.file == Path::new("-") { StandardOutput::Data } else { StandardOutput::Summary };
    let mut session = Session::start(common(&args), stdout)?;
    if args.no_recursion || !args.files_from.is_empty() {
        // What find(1) and others list are entries of a tree, and of those an image is a file, and a device a node.
        session.take_images_as_files();
    }
    let mut roots = args.paths.clone();
    for list in &args.files_from {
        roots.extend(paths_from(list, args.null).map_err(|error| Failure::io(list, "read paths", &error))?);
    }
    let base = args.directory.as_deref();
    if let Some(base) = base {
        check_base(base).map_err(|error| Failure::io(base, "enter", &error))?;
    }
    if !session.follows_roots() {
        roots.iter_mut().for_each(|root| drop_slash(base, root));
    }
    session.check_roots(base, &roots)?;
    let mut read = session.bulk_read(&roots)?.entries(Entries::All).no_recursion(args.no_recursion);
    read = read.xattrs(args.xattrs || args.acls || args.selinux);
    // So that the archive of an unchanged tree is the same each time.
    let is_listed = session.settings().order == Some(Order::Directory);
    read = read.one_at_a_time(is_listed && is_one_row(&session, &args));
    if let Some(base) = base {
        read = read.base(base);
    }
    if args.file != Path::new("-") {
        read = read.writes_to([&args.file]);
    }
    let names = MemberNames::new(&session, base, &roots);
    let mut archive = Archive::create(&session, &args, names)?;
    // As with GNU tar, an empty list gives an empty archive.
    let summary = match roots.is_empty() {
        true => Summary::default(),
        false => session.run(read, |item| archive.append(item))?,
    };
    archive.finish(&summary)
}

/// The common options, with those that have a name of their own in the language of tar.
fn common(args: &TarArgs) -> Common {
    let mut common = args.common.clone();
    if args.sort == Some(Sort::Inode) {
        common.settings.order = common.settings.order.or(Some(Order::Inode));
    }
    if args.exclude_vcs {
        common.selection.exclude.extend(VERSION_CONTROL.map(OsString::from));
    }
    common
}

/// Relative paths that are not there would be blamed for a base that is not.
fn check_base(base: &Path) -> io::Result<()> {
    if named::look(base, true)?.file_type() == EntryType::Dir {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// For the kernel, `link/` is what the link leads to, and `file/` nothing; for GNU tar they are the link and the file, and
/// `directory//` is called `directory/`.
fn drop_slash(base: Option<&Path>, root: &mut PathBuf) {
    let bytes = root.as_os_str().as_bytes();
    let len = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    if len > 0 && len < bytes.len() {
        let bare = PathBuf::from(OsStr::from_bytes(&bytes[..len]));
        let path = base.map_or_else(|| bare.clone(), |base| base.join(&bare));
        match named::look(&path, false) {
            Ok(found) if found.file_type() == EntryType::Dir => {
                *root = OsString::from_vec(bytes[..=len].to_vec()).into()
            }
            Ok(_) => *root = bare,
            Err(_) => {}
        }
    }
}

/// The paths of a list, each to its line feed or NUL. Empty ones are skipped, and nothing in them has a meaning.
fn paths_from(list: &Path, null: bool) -> io::Result<Vec<PathBuf>> {
    Ok(split_paths(&input(list)?, if null { 0 } else { b'\n' }))
}

fn split_paths(text: &[u8], end: u8) -> Vec<PathBuf> {
    let paths = text.split(|&byte| byte == end).filter(|path| !path.is_empty());
    paths.map(|path| OsString::from_vec(path.to_vec()).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_behind_what_is_no_directory_means_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink("d", dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        for (named, taken) in [
            ("link///", "link"),
            ("f/", "f"),
            ("link/.", "link/."),
            ("d/", "d/"),
            ("d//", "d/"),
            ("link", "link"),
            ("/", "/"),
        ] {
            let mut root = PathBuf::from(named);
            drop_slash(Some(dir.path()), &mut root);
            assert_eq!(root.as_os_str(), taken);
        }
    }

    #[test]
    fn lists_are_split() {
        assert_eq!(split_paths(b"a b\n\n-c\nd", b'\n'), ["a b", "-c", "d"].map(PathBuf::from));
        assert_eq!(split_paths(b"a\nb\0c\0", 0), ["a\nb", "c"].map(PathBuf::from));
    }
}
