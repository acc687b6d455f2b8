//! `onesweep layout`: how well files lie for who reads them directory by directory (docs/layout.md).

mod figures;
mod free;
mod pictures;
mod report;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use onesweep::{DiskModel, Indexes, LaidDirectory, Order, ReaderOrder, Sweep};

use self::{
    figures::{Row, Table},
    free::Volume,
    pictures::Subject,
    report::Report,
};
use crate::{
    args::LayoutArgs,
    message,
    report::Failure,
    session::{Session, StandardOutput},
};

pub(crate) fn run(args: LayoutArgs) -> Result<u8, Failure> {
    for file in args.svg.iter().chain(&args.map) {
        if file == Path::new("-") {
            return Err(Failure::told("standard output has the table; name a file for the picture"));
        }
    }
    let session = Session::start(args.common(), StandardOutput::Summary)?;
    session.check_roots(None, &args.paths)?;
    let reader = reader(&session, &args)?;
    let disk = session.settings().disk.as_ref().map(|disk| disk.0.clone()).unwrap_or_default();
    // What lies in the cache now has its place on the disk all the same.
    let read = session.bulk_read(&args.paths)?.order(Order::Fragment).device(false).ignore_cache(true).addresses(true);
    let read = read.indexes(Indexes::Left).writes_to(args.svg.iter().chain(&args.map));
    let sweep = read.plan()?;
    let looked = look(&session, &sweep, reader, &disk, &args);
    session.end_progress();
    sweep.errors().for_each(|error| session.complain_of(error));
    let Looked { table, picked, mut volumes } = looked;
    volumes.extend(free::of_paths(&session, &args.paths, &volumes));
    let free = volumes.iter().map(free::FreeSpace::of).collect();
    let report = Report::new(&sweep, &table, reader, &disk, free);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if session.is_json() { report.write_json(&mut out) } else { report.write(&mut out) };
    written.and_then(|()| out.flush()).map_err(|error| session.output(&error))?;
    let total = &table.total.figures;
    if total.files == 0 {
        session.tell_of_unread(&args.paths);
    } else if total.placed_files == 0 && total.has_content() {
        session.complain(&without_places(&args.paths, &sweep, total));
    }
    if session.is_interrupted() {
        session.tell("interrupted");
        return Ok(session.exit_code());
    }
    if args.draw || args.svg.is_some() || args.map.is_some() {
        let picked = picked.ok_or_else(|| nothing_to_draw(&args))?;
        let volume = volumes.iter().find(|volume| volume.dev == Some(picked.laid.dev));
        let subject = Subject { sweep: &sweep, reader, picked: &picked.laid, row: &picked.row, volume };
        if args.draw {
            let text = subject.draw();
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| session.output(&error))?;
        }
        subject.write(args.svg.as_deref(), args.map.as_deref())?;
    }
    Ok(session.exit_code())
}

/// Who reads.
fn reader(session: &Session, args: &LayoutArgs) -> Result<ReaderOrder, Failure> {
    let is_image =
        |path: &&PathBuf| session.reads_images() && onesweep::is_image(path, args.paths.len(), session.follows_roots());
    match (args.order, args.paths.iter().find(is_image)) {
        (Some(ReaderOrder::Readdir), Some(image)) => {
            let why = "its tables don't tell the order in which readdir lists files; use --order inode or name";
            Err(Failure::could_not_run(image, "read directories in that order", why))
        }
        (Some(order), _) => Ok(order),
        (None, Some(_)) => Ok(ReaderOrder::Inode),
        (None, None) => Ok(ReaderOrder::Readdir),
    }
}

/// A directory that is to be drawn.
struct Picked {
    laid: LaidDirectory,
    row: Row,
}

struct Looked {
    table: Table,
    picked: Option<Picked>,
    volumes: Vec<Volume>,
}

/// Goes over all directories once.
fn look(session: &Session, sweep: &Sweep, reader: ReaderOrder, disk: &DiskModel, args: &LayoutArgs) -> Looked {
    let (mut table, mut volumes) = (Table::new(args.top), Vec::<Volume>::new());
    let draws = args.draw || args.svg.is_some() || args.map.is_some();
    let mut picked: Option<Picked> = None;
    for laid in sweep.directories(reader) {
        if session.is_interrupted() {
            break;
        }
        let row = Row::of(&laid, disk);
        if !volumes.iter().any(|volume| volume.dev == Some(laid.dev)) {
            volumes.push(Volume::of_directory(session, &args.paths, &laid));
        }
        let is_wanted = match &args.of {
            Some(wanted) => laid.path == *wanted,
            None => picked.as_ref().is_none_or(|picked| row.is_worse_than(&picked.row)),
        };
        if draws && is_wanted && row.figures.placed_files > 0 {
            picked = Some(Picked { laid, row: row.clone() });
        }
        table.add(row);
    }
    Looked { table, picked, volumes }
}

fn nothing_to_draw(args: &LayoutArgs) -> Failure {
    match &args.of {
        Some(wanted) => {
            let why = "none of the files that were found is directly in it with a known place; \
                       name it as the table does";
            Failure::could_not_run(wanted, "draw it", why)
        }
        None => Failure::told("cannot draw: no file that was found has a known place on a disk"),
    }
}

/// Why nothing can be said.
fn without_places(paths: &[PathBuf], sweep: &Sweep, total: &figures::Figures) -> String {
    let name = message::path_text(paths.first().map_or(Path::new("."), PathBuf::as_path));
    let why = match sweep.disks().into_iter().find_map(|disk| disk.remark) {
        _ if total.compressed_files > 0 && total.unknown_files == 0 => "they are compressed".to_owned(),
        Some(remark) => message::one_line(&remark),
        None => "their file system does not tell it".to_owned(),
    };
    format!("{name}: no file has a known place on a disk: {why}")
}
