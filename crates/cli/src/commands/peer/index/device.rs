//! A device or an image, block by block.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

use onesweep::Summary;
use onesweep_layout::{BlockRead, ImageFile};
use onesweep_peer::{
    id::TrustDomain,
    index::{
        DeviceIndex, Geometry,
        fill::{Pass, Passed, pass},
    },
    marks::Marks,
};
use onesweep_sys::{block, files};

use super::{Details, draft, index_failure, open_file, put_in_place, range_text};
use crate::{
    args::PeerIndexArgs, commands::peer::marks::marks_of, message, report::Failure, session::Session, size::Size,
};

/// Ranges that are told one by one.
const TOLD: usize = 20;

/// What is read, opened for reading alone.
struct Source {
    image: ImageFile,
    is_device: bool,
}

impl Source {
    fn open(path: &Path) -> io::Result<Source> {
        let is_device = std::fs::metadata(path)?.file_type().is_block_device();
        let fd = if is_device { block::open_device_alone(path) } else { block::open_device(path) }?;
        let image = ImageFile::new(File::from(fd))?;
        // What somebody wrote before may be in memory alone.
        image.file().sync_data()?;
        Ok(Source { image, is_device })
    }

    /// Marks of the device as it is now, and of an image its file's as well.
    fn marks(&self) -> io::Result<Option<Marks>> {
        marks_of(&self.image, self.is_device)
    }

    /// Fills the buffer; what it brings into the page cache doesn't stay there, where the kernel can do that.
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let from = at + done as u64;
            let part = &mut buffer[done..];
            let fd = self.image.file().as_fd();
            let read = match files::read_at_uncached(fd, part, from) {
                Err(error) if files::is_refusal(&error) => files::read_at(fd, part, from),
                read => read,
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

pub(super) fn run(
    session: &Session,
    args: &PeerIndexArgs,
    domain: &TrustDomain,
    index_path: &Path,
) -> Result<u8, Failure> {
    let path = &args.path;
    let source = Source::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Failure::could_not_run(path, "open it", "it is mounted or in use; unmount it"),
        _ => Failure::io(path, "open it", &error),
    })?;
    let look = |error| Failure::io(path, "look at it", &error);
    let before = source.marks().map_err(look)?;
    let device_bytes = source.image.len();
    let draft = draft(index_path);
    let mut index = if args.check {
        let file = open_file(index_path, false)?;
        let opened = DeviceIndex::open(file, device_bytes, domain, before.as_ref());
        opened.map_err(|error| index_failure(index_path, "use the index", &error))?
    } else {
        if index_path.exists() {
            // Who uses it goes on with it, and closes it over the new one's head.
            open_file(index_path, false)?;
        }
        let Some(geometry) = Geometry::new(args.block_size, device_bytes) else {
            return Err(Failure::told("no such size of blocks"));
        };
        let made = DeviceIndex::create(open_file(&draft, true)?, geometry, domain);
        made.map_err(|error| index_failure(&draft, "make the index", &error))?
    };
    let was_believed = index.is_believed();
    let mut passed = Passed::default();
    if !args.learn {
        let bar = session.bytes_bar(device_bytes);
        let what = if args.check { Pass::Check } else { Pass::Fill };
        let read = |buffer: &mut [u8], at| source.read(buffer, at);
        passed = pass(&mut index, what, &read, &mut |at| {
            bar.set_position(at);
            !session.is_interrupted()
        });
        bar.finish_and_clear();
    }
    let geometry = index.geometry();
    let after = source.marks().map_err(look)?;
    let is_changed = before != after;
    let is_partial = passed.is_cancelled || is_changed;
    if index.is_broken() {
        return Err(Failure::could_not_run(index_path, "write the index", "writing failed; is the disk full?"));
    }
    let has_marks = after.is_some();
    if is_partial && !args.check {
        let _ = std::fs::remove_file(&draft);
    } else {
        // Of what was changed meanwhile, nobody can say which part.
        let marks = after.filter(|_| !is_partial);
        let step = |error| index_failure(index_path, "close the index", &error);
        index.close(marks).map_err(step)?;
        if !args.check {
            put_in_place(&draft, index_path)?;
        }
    }
    if is_changed {
        session.complain(&message::of_other(path, "index it", &io::Error::other("it was changed meanwhile")));
    }
    for (range, why) in &passed.unreadable {
        session.complain(&format!("{}: cannot read {}: {why}", message::path_text(path), range_text(range)));
    }
    if args.check {
        tell_differences(session, path, &passed);
    }
    if !has_marks && !args.learn && !session.is_quiet() {
        let what = "nobody can tell whether it is changed elsewhere; each block counts once it was read locally";
        session.tell(&format!("{}: {what}", message::path_text(path)));
    }
    let details = Details {
        kind: if source.is_device { "device" } else { "image" },
        index: index_path.to_string_lossy().into_owned(),
        index_bytes: std::fs::metadata(index_path).map_or(0, |metadata| metadata.blocks() * 512),
        block_bytes: geometry.block_bytes,
        blocks: geometry.blocks(),
        zero_blocks: passed.zeros,
        new: passed.new,
        suspect: passed.suspect,
        differing: passed.differing,
        stale: passed.stale,
        bytes: passed.bytes,
        unreadable_bytes: passed.unreadable.iter().map(|(range, _)| range.end - range.start).sum(),
        unsettled_files: 0,
        unknown_writers: 0,
        has_marks,
    };
    if !session.is_json() && !session.is_quiet() && !is_partial {
        let state = match (args.check, was_believed) {
            (true, false) => ", and was not closed or the device was changed elsewhere",
            _ => "",
        };
        let told = writeln!(
            io::stdout(),
            "{}: {} blocks of {}, {} of them zeros, {} in the index{state}",
            message::path_text(index_path),
            details.blocks,
            Size(details.block_bytes.into()),
            details.zero_blocks,
            Size(details.index_bytes),
        );
        told.map_err(|error| session.output(&error))?;
    }
    session.finish("peer index", &Summary::default(), details)
}

/// Tells what differs from the index. What was suspect may differ, and is no error.
fn tell_differences(session: &Session, path: &Path, passed: &Passed) {
    let name = message::path_text(path);
    if passed.stale > 0 {
        session.complain(&format!(
            "{name}: {} blocks were written past the file system: the index called them valid, and is put right",
            passed.stale
        ));
    } else if passed.differing > 0 && !session.is_quiet() {
        session.tell(&format!("{name}: {} suspect blocks have changed, and the index is put right", passed.differing));
    }
    if session.is_quiet() {
        return;
    }
    for range in passed.differ.iter().take(TOLD) {
        session.tell(&format!("{name}: {} differ", range_text(range)));
    }
    if let Some(more) = passed.differ.len().checked_sub(TOLD).filter(|more| *more > 0) {
        session.tell(&format!("{name}: and {more} more places"));
    }
}
