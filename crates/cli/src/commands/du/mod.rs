//! `onesweep du`: how much directories take.

use std::{
    io::{self, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use onesweep_layout::MountTable;
use onesweep_summary::{
    service::{
        client::Client,
        protocol::{Figures, Question, Refusal, Row},
    },
    store::Store,
    summaries::{Freshness, Summaries},
    view::view,
    walk::{Untracked, Walk},
};
use onesweep_sys::files::{self, EntryType};

mod format;

use self::format::Unit;
use crate::{
    args::DuArgs,
    message,
    report::{Failure, SOME_FAILED},
};

/// A line of output.
struct Line {
    path: Vec<u8>,
    depth: u32,
    row: Row,
}

struct Du<'a> {
    args: &'a DuArgs,
    client: Option<Client>,
    code: u8,
}

pub(crate) fn run(args: DuArgs) -> Result<u8, Failure> {
    let unit = unit(&args)?;
    let threshold = args.threshold.as_deref().map(Threshold::parse).transpose()?;
    let depth = if args.summarize { 0 } else { args.max_depth.unwrap_or(u32::MAX) };
    let mut du = Du { client: Client::connect(&args.socket()).ok(), args: &args, code: 0 };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut total = Figures::default();
    let mut seen = Vec::<PathBuf>::new();
    for path in &args.paths {
        // What is in a directory that was named before is counted there.
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if seen.iter().any(|before| real.starts_with(before)) {
            continue;
        }
        let Some(lines) = du.measure(path, depth)? else { continue };
        seen.push(real);
        for line in &lines {
            let figures = if args.separate_dirs { line.row.own } else { line.row.total };
            let figure = figure(&args, &figures);
            if threshold.as_ref().is_none_or(|threshold| threshold.lets(figure)) {
                write_line(&mut out, &args, &unit, figure, &line.path)
                    .map_err(|error| Failure::output(&error, du.code))?;
            }
        }
        if let Some(top) = lines.last() {
            add(&mut total, &top.row.total);
        }
    }
    if args.total {
        write_line(&mut out, &args, &unit, figure(&args, &total), b"total")
            .map_err(|error| Failure::output(&error, du.code))?;
    }
    out.flush().map_err(|error| Failure::output(&error, du.code))?;
    Ok(du.code)
}

impl Du<'_> {
    fn complain(&mut self, path: &Path, step: &str, error: &io::Error) {
        self.code = SOME_FAILED;
        eprintln!("onesweep: {}", message::of_other(path, step, error));
    }

    /// The lines of a path, the path itself last; `None` when it can't be looked at, which was told.
    fn measure(&mut self, path: &Path, depth: u32) -> Result<Option<Vec<Line>>, Failure> {
        let handle = match files::open_handle_at(files::CURRENT_DIR, path) {
            Ok(handle) => handle,
            Err(error) => {
                self.complain(path, "look at it", &error);
                return Ok(None);
            }
        };
        let stat = files::statx_fd(handle.as_fd()).map_err(|error| Failure::io(path, "look at it", &error))?;
        let shown = path.as_os_str().as_bytes().to_vec();
        if stat.file_type() != EntryType::Dir {
            return Ok(Some(vec![Line { path: shown, depth: 0, row: row_of_file(&stat) }]));
        }
        let mut lines = match self.ask(path, handle.as_fd(), depth)? {
            Some(rows) => lines(&shown, rows),
            None => return self.walk(path, depth).map(Some),
        };
        if !self.args.one_file_system {
            self.add_mounts(path, depth, &mut lines)?;
        }
        Ok(Some(lines))
    }

    /// Asks the server; `None` when there is none for this directory.
    fn ask(
        &mut self,
        path: &Path,
        directory: std::os::fd::BorrowedFd<'_>,
        depth: u32,
    ) -> Result<Option<Vec<Row>>, Failure> {
        let Some(client) = &mut self.client else { return Ok(None) };
        let freshness = match (self.args.cached, self.args.sync) {
            (true, _) => Freshness::Cached,
            (_, true) => Freshness::Synced,
            _ => Freshness::Exact,
        };
        let question = Question { path: None, depth, freshness };
        let mut rows = Vec::new();
        match client.ask(directory, &question, |row| rows.push(row)) {
            Ok(Ok(head)) => {
                let (name, partial) = (message::path_text(path), head.partial || head.unreadable > 0);
                if partial {
                    eprintln!("onesweep: {name}: some directories below it can't be read, and are left out");
                    self.code = SOME_FAILED;
                }
                if self.args.verbose {
                    let exact = if head.exact { "up to date" } else { "as it was stored" };
                    eprintln!("onesweep: {name}: from the server, {exact}");
                }
                Ok(Some(rows))
            }
            Ok(Err(Refusal::NotTracked | Refusal::Denied)) => Ok(None),
            Ok(Err(Refusal::Failed(why))) => Err(Failure::could_not_run(path, "ask the server", why)),
            Err(_) => {
                // It went away: what is left is walked.
                self.client = None;
                Ok(None)
            }
        }
    }

    fn walk(&mut self, path: &Path, depth: u32) -> Result<Vec<Line>, Failure> {
        if self.args.verbose {
            eprintln!("onesweep: {}: walked, for no server tracks it", message::path_text(path));
        }
        let failed = |error: io::Error| Failure::io(path, "walk it", &error);
        let walk = Walk::of(path, self.args.one_file_system).map_err(failed)?;
        let told = |error: &dyn std::fmt::Display| Failure::could_not_run(path, "walk it", error);
        let root = walk.root();
        let store = Store::in_memory().map_err(|error| told(&error))?;
        let mut summaries = Summaries::open(store, (walk, Untracked), root, b"").map_err(|error| told(&error))?;
        let top = summaries.root();
        summaries.settle(top).map_err(|error| told(&error))?;
        let seen = view(summaries.ledger(), top, depth, &|_, _| true).map_err(|error| told(&error))?;
        for (slot, why) in summaries.unreadable(top) {
            let names = summaries.path(top, slot).map_err(|error| told(&error))?;
            let below = names.iter().map(|name| std::ffi::OsStr::from_bytes(name)).collect::<PathBuf>();
            eprintln!("onesweep: {}: cannot read the directory: {why}", message::path_text(&path.join(below)));
            self.code = SOME_FAILED;
        }
        let mut rows = Vec::with_capacity(seen.lines.len());
        for line in &seen.lines {
            let record = summaries.record(line.slot).map_err(|error| told(&error))?;
            rows.push(Row::of(line, &record.name));
        }
        Ok(lines(path.as_os_str().as_bytes(), rows))
    }

    /// File systems that are mounted below: the server tells of each by itself.
    fn add_mounts(&mut self, path: &Path, depth: u32, lines: &mut Vec<Line>) -> Result<(), Failure> {
        let Ok(real) = std::fs::canonicalize(path) else { return Ok(()) };
        let mounts = MountTable::read().map_err(|error| Failure::io(path, "read the table of mounts", &error))?;
        let mut points: Vec<PathBuf> = mounts
            .below(&real)
            .filter_map(|mount| mount.mount_point.strip_prefix(&real).ok().map(Path::to_owned))
            .filter(|below| !below.as_os_str().is_empty())
            .collect();
        points.sort();
        points.dedup();
        let mut outermost: Vec<PathBuf> = Vec::new();
        for point in points {
            // What is mounted further in belongs to that one.
            if !outermost.iter().any(|outer| point.starts_with(outer)) {
                outermost.push(point);
            }
        }
        for below in outermost {
            let steps = below.components().count() as u32;
            let shown = path.join(&below);
            let Some(found) = self.measure(&shown, depth.saturating_sub(steps))? else { continue };
            let Some(top) = found.last() else { continue };
            let is_above = |line: &Line| shown.starts_with(Path::new(std::ffi::OsStr::from_bytes(&line.path)));
            for line in lines.iter_mut().filter(|line| is_above(line)) {
                add(&mut line.row.total, &top.row.total);
                line.row.newest = line.row.newest.max(top.row.newest);
            }
            if steps <= depth {
                let at = lines.iter().position(is_above).unwrap_or(0);
                lines.splice(at..at, found.into_iter().map(|line| Line { depth: line.depth + steps, ..line }));
            }
        }
        Ok(())
    }
}

/// With their paths: each directory comes after those in it.
fn lines(top: &[u8], rows: Vec<Row>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::with_capacity(rows.len());
    let mut above: Vec<Vec<u8>> = vec![top.to_vec()];
    for row in rows.into_iter().rev() {
        let depth = row.depth;
        above.truncate(depth as usize);
        let mut path = above.last().cloned().unwrap_or_else(|| top.to_vec());
        if depth > 0 {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend(row.name.clone().into_bytes());
        }
        above.push(path.clone());
        lines.push(Line { path, depth, row });
    }
    lines.reverse();
    lines
}

fn unit(args: &DuArgs) -> Result<Unit, Failure> {
    let from_environment =
        || ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE"].iter().find_map(|name| std::env::var(name).ok());
    Ok(match &args.block_size {
        Some(size) => Unit::parse(size)?,
        None if args.bytes => Unit::Fixed(1, ""),
        None if args.human_readable => Unit::Human(1024),
        None if args.si => Unit::Human(1000),
        None if args.mebi => Unit::Fixed(1 << 20, ""),
        None if args.kibi => Unit::Fixed(1024, ""),
        // Inodes are no bytes.
        None if args.inodes => Unit::Fixed(1, ""),
        None => match from_environment() {
            Some(size) => Unit::parse(&size)?,
            None if std::env::var_os("POSIXLY_CORRECT").is_some() => Unit::Fixed(512, ""),
            None => Unit::Fixed(1024, ""),
        },
    })
}

/// The figure that was asked for.
fn figure(args: &DuArgs, figures: &Figures) -> i64 {
    match (args.inodes, args.apparent_size || args.bytes) {
        (true, _) => figures.inodes(),
        (_, true) => figures.bytes + figures.directory_bytes,
        _ => figures.allocated,
    }
}

fn add(to: &mut Figures, more: &Figures) {
    to.bytes += more.bytes;
    to.directory_bytes += more.directory_bytes;
    to.allocated += more.allocated;
    to.freed += more.freed;
    to.files += more.files;
    to.directories += more.directories;
    to.others += more.others;
}

fn write_line(out: &mut impl Write, args: &DuArgs, unit: &Unit, figure: i64, path: &[u8]) -> io::Result<()> {
    write!(out, "{}\t", unit.write(figure))?;
    out.write_all(path)?;
    out.write_all(if args.null { b"\0" } else { b"\n" })
}

fn row_of_file(stat: &files::Stat) -> Row {
    let is_file = stat.file_type() == EntryType::File;
    let figures = Figures {
        bytes: stat.size as i64,
        allocated: stat.blocks as i64 * 512,
        files: i64::from(is_file),
        others: i64::from(!is_file),
        ..Figures::default()
    };
    let name = onesweep_summary::service::protocol::Name::of(b"");
    Row { name, depth: 0, total: figures, own: figures, newest: Some(stat.mtime.secs), largest: None }
}

/// What is small enough, or large enough, to be left out.
enum Threshold {
    AtLeast(i64),
    AtMost(i64),
}

impl Threshold {
    fn parse(text: &str) -> Result<Threshold, Failure> {
        let wrong = || Failure::told(format!("'{text}' is no threshold; write 1M, or -1M for what is smaller"));
        let (is_negative, bare) = text.strip_prefix('-').map_or((false, text), |bare| (true, bare));
        let size = format::size(bare).and_then(|size| i64::try_from(size).ok()).ok_or_else(wrong)?;
        match (is_negative, size) {
            (true, 0) => Err(wrong()),
            (true, size) => Ok(Threshold::AtMost(size)),
            (false, size) => Ok(Threshold::AtLeast(size)),
        }
    }

    fn lets(&self, figure: i64) -> bool {
        match *self {
            Threshold::AtLeast(size) => figure >= size,
            Threshold::AtMost(size) => figure <= size,
        }
    }
}
