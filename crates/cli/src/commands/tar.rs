//! `onesweep tar`: which paths go into the archive, and how. Writing it is in [`super::archive`].

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use onesweep::{Entries, SweptFile};
use onesweep_deliver::named;

use super::archive::Archive;
use crate::{
    args::TarArgs,
    report::Failure,
    session::{Session, StandardOutput},
};

pub(crate) fn run(args: TarArgs) -> Result<u8, Failure> {
    let stdout = if args.file == Path::new("-") { StandardOutput::Data } else { StandardOutput::Summary };
    let session = Session::start(args.common.clone(), stdout)?;
    let mut roots = args.paths.clone();
    for list in &args.files_from {
        roots.extend(paths_from(list, args.null).map_err(|error| Failure::io(list, "read paths", &error))?);
    }
    if roots.is_empty() {
        return Err(Failure::told("no path was given; name at least one, or a list of them with -T"));
    }
    let base = args.directory.as_deref();
    session.check_roots(base, &roots, args.follow_roots)?;
    let directories = if args.no_recursion { take_directories(&args, &mut roots)? } else { Vec::new() };
    let mut read = session.bulk_read(&roots)?.entries(Entries::All).follow_roots(args.follow_roots);
    read = read.xattrs(args.xattrs || args.acls || args.selinux);
    if let Some(base) = base {
        read = read.base(base);
    }
    let mut archive = Archive::create(&session, &args)?;
    let going = directories.into_iter().all(|directory| archive.append(Ok(directory)));
    let summary = if going && !roots.is_empty() {
        session.run(read, |item| archive.append(item))?
    } else {
        onesweep::Summary::default()
    };
    archive.finish(&summary)
}

/// Without recursion, directories need no sweep: they are entries by themselves, before all else.
fn take_directories(args: &TarArgs, roots: &mut Vec<PathBuf>) -> Result<Vec<SweptFile>, Failure> {
    let xattrs = args.xattrs || args.acls || args.selinux;
    let (mut directories, mut others) = (Vec::new(), Vec::new());
    for root in roots.drain(..) {
        match named::directory(args.directory.as_deref(), &root, xattrs) {
            Ok(Some(directory)) => directories.push(directory),
            Ok(None) => others.push(root),
            Err(error) => return Err(Failure::told(crate::message::of_file(&error))),
        }
    }
    *roots = others;
    Ok(directories)
}

/// The paths of a list, each to its line feed or NUL. Empty ones are skipped, and nothing in them has a meaning.
fn paths_from(list: &Path, null: bool) -> io::Result<Vec<PathBuf>> {
    let mut text = Vec::new();
    if list == Path::new("-") {
        io::stdin().lock().read_to_end(&mut text)?;
    } else {
        File::open(list)?.read_to_end(&mut text)?;
    }
    Ok(split_paths(&text, if null { 0 } else { b'\n' }))
}

fn split_paths(text: &[u8], end: u8) -> Vec<PathBuf> {
    let paths = text.split(|&byte| byte == end).filter(|path| !path.is_empty());
    paths.map(|path| OsString::from_vec(path.to_vec()).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split() {
        assert_eq!(split_paths(b"a b\n\n-c\nd", b'\n'), ["a b", "-c", "d"].map(PathBuf::from));
        assert_eq!(split_paths(b"a\nb\0c\0", 0), ["a\nb", "c"].map(PathBuf::from));
    }
}
