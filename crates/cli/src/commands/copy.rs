//! `onesweep copy`: `cp -a` in one sweep.

use std::{io, path::PathBuf};

use onesweep::{Entries, FileError, SweptFile};
use onesweep_deliver::copy::{Copier, CopyError, Sources};
use serde::Serialize;

use crate::{
    args::CopyArgs,
    message, named,
    report::Failure,
    session::{Session, StandardOutput},
};

#[derive(Serialize)]
struct Details {
    files: u64,
    bytes: u64,
    cloned_files: u64,
    hard_links: u64,
    others: u64,
    incomplete_attributes: u64,
}

pub(crate) fn run(args: CopyArgs) -> Result<u8, Failure> {
    let Some((destination, sources)) = args.paths.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        return Err(Failure::told("cannot copy: there is no destination; name one behind what is to be copied"));
    };
    let session = Session::start(args.common, StandardOutput::Summary)?;
    session.check_roots(None, sources)?;
    let follow = session.follows_roots();
    // Where the destination has to be a directory, one that is missing doesn't change that.
    let missing = |path: &&PathBuf| named::look(path, follow).is_err() && !session.names_image(path);
    let (gone, there): (Vec<_>, Vec<_>) = sources.iter().partition(missing);
    let there: Vec<PathBuf> = there.into_iter().cloned().collect();
    let taken = if destination.is_dir() && !args.no_target_directory { &there } else { sources };
    let taken = Sources { paths: taken, follow, images: session.reads_images() };
    let copier = Copier::new(taken, destination, args.no_target_directory, args.reflink);
    let mut copier = copier.map_err(|error| Failure::told(text(&error)))?;
    for path in gone {
        let why = named::look(path, true).err().unwrap_or_else(|| io::ErrorKind::NotFound.into());
        session.complain(&message::of_step(path, "read", &why));
    }
    let read = session.bulk_read(&copier.sources())?;
    let read = read.entries(Entries::All).xattrs(true).content(copier.wants_content()).writes_to([destination]);
    let mut no_destination = None;
    let summary = session.run(read, |item| match copy_one(&session, &mut copier, item) {
        Err(CopyError::Destination { path, source }) => {
            no_destination = Some(Failure::io(&path, "make the directory", &source));
            false
        }
        Err(error) => {
            session.complain(&text(&error));
            !error.is_final()
        }
        Ok(()) => true,
    })?;
    if let Some(failure) = no_destination {
        return Err(failure);
    }
    if let Some((path, lost)) = copier.first_lost().filter(|_| !session.is_quiet()) {
        let (path, why) = (message::path_text(path), message::why(&lost.source));
        let count = copier.copied().incomplete;
        session.tell(&format!("{count} entries lost an attribute; the first: {path}: cannot set {}: {why}", lost.name));
    }
    let copied = copier.copied();
    let details = Details {
        files: copied.files,
        bytes: copied.bytes,
        cloned_files: copied.cloned_files,
        hard_links: copied.hard_links,
        others: copied.others,
        incomplete_attributes: copied.incomplete,
    };
    session.finish("copy", &summary, details)
}

fn copy_one(session: &Session, copier: &mut Copier, item: Result<SweptFile, FileError>) -> Result<(), CopyError> {
    match item {
        Ok(item) => {
            session.tell_of_dirty(&item);
            copier.copy(item)
        }
        Err(error) => {
            session.complain_of(&error);
            Ok(())
        }
    }
}

fn text(error: &CopyError) -> String {
    match error {
        CopyError::Io { path, step, source } => message::of_other(path, step, source),
        CopyError::Full { path, source } => message::of_other(path, "write", source),
        other => message::of_error(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    #[test]
    fn one_path_is_not_enough() {
        let Command::Copy(args) = parse_line("copy a").unwrap() else { panic!("another command") };
        assert!(matches!(run(*args), Err(Failure::Told(_))));
    }
}
