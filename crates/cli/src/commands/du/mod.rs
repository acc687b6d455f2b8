//! `onesweep du`: how much directories take.

use std::{
    io::{self, IsTerminal, Read, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use onesweep::Filter;
use onesweep_layout::MountTable;
use onesweep_summary::{
    mounted::How,
    service::{
        client::Client,
        patience::Patience,
        protocol::{Figures, Head, LEFT_OUT_MAX, LeftOut, Question, Refusal, Row},
    },
    store::Store,
    summaries::{Asking, Freshness, Summaries},
    view::view,
    walk::{Untracked, Walk},
};
use onesweep_sys::files::{self, EntryType};

mod by;
mod mounted;
mod overlap;
mod portions;
mod several;
mod single;
mod so_far;
mod time;
mod written;

pub(super) use self::so_far::{Working, age};
use self::{
    several::AddUp,
    single::Rules,
    time::{Style, TimeOf},
    written::Written,
};
use super::figures::{self, Unit};
use crate::{
    args::{DuArgs, Wanted},
    message,
    report::{Failure, SOME_FAILED},
};

/// A line of output of the server's.
struct Line {
    path: Vec<u8>,
    depth: u32,
    row: Row,
}

struct Du<'a> {
    args: &'a DuArgs,
    client: Option<Client>,
    code: u8,
    /// What is said when it is known that a walk won't say it once more.
    said: Vec<String>,
    /// So long an answer is waited for.
    max_ms: Option<u64>,
    written: Written,
    /// One of the paths was walked.
    has_walked: bool,
}

/// What a path comes to.
#[derive(Default)]
struct Measured {
    /// The path itself comes last. None where nothing is known yet.
    lines: Vec<Line>,
    /// Something in it has names elsewhere.
    leads_out: bool,
    how: How,
    /// Parts of it were counted each by itself, and may have something in common.
    counts_twice: bool,
}

pub(crate) fn run(mut args: DuArgs) -> Result<u8, Failure> {
    let (paths, wrong) = paths(&mut args)?;
    let unit = unit(&args)?;
    if let Some(summary) = &args.by {
        return by::run(&args, &paths, wrong, summary, &unit);
    }
    let threshold = args.threshold.as_deref().map(Threshold::parse).transpose()?;
    match (args.summarize, args.max_depth) {
        (true, Some(0)) => eprintln!("onesweep: -s says the same as --max-depth=0"),
        (true, Some(depth)) => return Err(Failure::told(format!("-s and --max-depth={depth} don't go together"))),
        _ => {}
    }
    let rules = rules(&args)?;
    let style = match &args.time_style {
        Some(style) => Style::parse(style)?,
        None if args.time.is_some() => Style::from_environment(std::env::var("TIME_STYLE").ok().as_deref())?,
        None => Style::default(),
    };
    let mut du = Du {
        client: Client::connect(&args.socket()).ok(),
        args: &args,
        code: 0,
        said: Vec::new(),
        max_ms: args.max_ms(),
        written: Written::default(),
        has_walked: false,
    };
    for message in wrong {
        eprintln!("onesweep: {message}");
        du.code = SOME_FAILED;
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut total = single::Line { path: b"total".to_vec(), ..single::Line::default() };
    let mut write = |line: &single::Line, code: u8| {
        let figures = if args.separate_dirs { &line.own } else { &line.total };
        let figure = figure(&args, figures);
        if threshold.as_ref().is_some_and(|threshold| !threshold.lets(figure)) {
            return Ok(());
        }
        let time = if args.separate_dirs { line.own_time } else { line.time };
        let time = time.map(|time| style.write(time));
        write_line(&mut out, &args, &unit, figure, time.as_deref(), &line.path)
            .map_err(|error| Failure::output(&error, code))
    };
    let mut add_up = |lines: &[single::Line], code: u8| {
        lines.iter().try_for_each(|line| write(line, code))?;
        if let Some(top) = lines.last() {
            total.total += &top.total;
            total.time = total.time.max(top.time);
        }
        Ok::<(), Failure>(())
    };
    if args.freed {
        // Each by itself.
        for path in &paths {
            let lines = told(du.measure(path, rules.depth)?.unwrap_or_default());
            du.say();
            add_up(&lines, du.code)?;
        }
    } else if needs_files(&args) {
        du.by_files(&paths, &rules, None, &mut add_up)?;
    } else {
        du.by_directories(&paths, &rules, &mut add_up)?;
    }
    if args.total {
        total.own = total.total;
        let figure = figure(&args, &total.total);
        let time = total.time.map(|time| style.write(time));
        write_line(&mut out, &args, &unit, figure, time.as_deref(), b"total")
            .map_err(|error| Failure::output(&error, du.code))?;
    }
    out.flush().map_err(|error| Failure::output(&error, du.code))?;
    Ok(du.code)
}

fn told(Measured { lines, .. }: Measured) -> Vec<single::Line> {
    let line = |line: Line| single::Line {
        path: line.path,
        total: line.row.total,
        own: line.row.own,
        ..single::Line::default()
    };
    lines.into_iter().map(line).collect()
}

/// What is in a file; of `-`, what comes by standard input.
fn read(file: &Path, step: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str().as_bytes() {
        b"-" => io::stdin().lock().read_to_end(&mut bytes).map(drop),
        _ => std::fs::read(file).map(|read| bytes = read),
    };
    read.map(|()| bytes).map_err(|error| Failure::io(file, step, &error))
}

/// What is asked for, and what of it is no path.
fn paths(args: &mut DuArgs) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
    let Some(list) = &args.files0_from else {
        let named = std::mem::take(&mut args.paths);
        return Ok((if named.is_empty() { vec![".".into()] } else { named }, Vec::new()));
    };
    let bytes = read(list, "read the list of paths")?;
    let (mut paths, mut wrong) = (Vec::new(), Vec::new());
    let names = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0);
    for (number, name) in (1..).zip(names).filter(|_| !bytes.is_empty()) {
        match name {
            [] => wrong.push(format!("{}: name {number} is empty", message::path_text(list))),
            name => paths.push(PathBuf::from(std::ffi::OsStr::from_bytes(name))),
        }
    }
    Ok((paths, wrong))
}

fn rules(args: &DuArgs) -> Result<Rules, Failure> {
    let mut filter = Filter::new();
    args.exclude.iter().for_each(|pattern| filter.exclude(pattern.as_bytes()));
    for file in &args.exclude_from {
        filter.exclude_lines(&read(file, "read patterns")?);
    }
    Ok(Rules {
        all: args.all,
        depth: if args.summarize { 0 } else { args.max_depth.unwrap_or(u32::MAX) },
        follow: args.dereference,
        follow_named: args.dereference_args,
        count_links: args.count_links,
        one_file_system: args.one_file_system,
        filter,
        time: args.time.as_deref().map(TimeOf::parse).transpose()?,
    })
}

/// Whether totals of directories don't do.
fn needs_files(args: &DuArgs) -> bool {
    let DuArgs { all, dereference, dereference_args, count_links, .. } = *args;
    let is_picky = !args.exclude.is_empty() || !args.exclude_from.is_empty() || args.time.is_some();
    all || dereference || dereference_args || count_links || is_picky
}

/// Whether paths have directories in common.
fn overlap(paths: &[PathBuf]) -> bool {
    if paths.len() < 2 {
        return false;
    }
    let real = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    // Where nobody tells what is mounted, names do.
    let mounts = MountTable::read().unwrap_or_default();
    overlap::have_something_in_common(&mounts, &paths.iter().map(real).collect::<Vec<_>>())
}

impl Drop for Du<'_> {
    fn drop(&mut self) {
        // Where it fails.
        self.say();
    }
}

impl Du<'_> {
    /// Has each path told by the server, or walked where there is none; all together where something would count in several.
    fn by_directories(&mut self, paths: &[PathBuf], rules: &Rules, add_up: &mut AddUp<'_>) -> Result<(), Failure> {
        let overlaps = overlap(paths);
        if overlaps && self.once_over_all(paths, rules, add_up)? {
            return Ok(());
        }
        let code = self.code;
        let (mut measured, mut leading_out, mut counts_twice) = (Vec::new(), 0, false);
        for path in paths {
            if let Some(one) = self.measure(path, rules.depth)? {
                leading_out += usize::from(one.leads_out);
                counts_twice |= one.counts_twice;
                measured.push(told(one));
            }
        }
        // Names of one inode may lie in several only where several hold names of inodes that have others elsewhere.
        if (leading_out > 1 || counts_twice) && !overlaps {
            // A walk says the same once more.
            let (code, said) = (std::mem::replace(&mut self.code, code), std::mem::take(&mut self.said));
            if self.once_over_all(paths, rules, add_up)? {
                return Ok(());
            }
            self.code = self.code.max(code);
            self.said.splice(0..0, said);
        }
        self.say();
        measured.iter().try_for_each(|lines| add_up(lines, self.code))
    }

    fn complain(&mut self, path: &Path, step: &str, error: &io::Error) {
        self.code = SOME_FAILED;
        self.said.push(message::of_other(path, step, error));
    }

    /// Says what it has to say by now.
    fn say(&mut self) {
        self.said.drain(..).for_each(|said| eprintln!("onesweep: {said}"));
    }

    /// What a path comes to; `None` when it can't be looked at, which is told.
    fn measure(&mut self, path: &Path, depth: u32) -> Result<Option<Measured>, Failure> {
        let Some(mut measured) = self.measure_alone(path, depth)? else { return Ok(None) };
        self.has_walked |= measured.how == How::Walked;
        // What is mounted there stays when it is removed, and is told of nothing that isn't known yet.
        if measured.how == How::Told && !measured.lines.is_empty() && !self.args.freed {
            self.add_mounts(path, depth, &mut measured)?;
        }
        Ok(Some(measured))
    }

    /// The same, of a server without what is mounted below.
    fn measure_alone(&mut self, path: &Path, depth: u32) -> Result<Option<Measured>, Failure> {
        let handle = match files::open_handle(path) {
            Ok(handle) => handle,
            Err(error) => {
                self.complain(path, "look at it", &error);
                return Ok(None);
            }
        };
        let look = || files::statx_fd(handle.as_fd()).map_err(|error| Failure::io(path, "look at it", &error));
        let mut stat = look()?;
        let shown = path.as_os_str().as_bytes().to_vec();
        if stat.file_type() != EntryType::Dir {
            if self.args.sync {
                self.write_before(path)?;
                stat = look()?;
            }
            let row = row_of_file(&stat);
            let leads_out = row.total.freed < row.total.allocated;
            let lines = vec![Line { path: shown, depth: 0, row }];
            return Ok(Some(Measured { lines, leads_out, how: How::File, counts_twice: false }));
        }
        match self.ask(path, handle.as_fd(), depth)? {
            Some((rows, leads_out)) => {
                Ok(Some(Measured { lines: lines(&shown, rows), leads_out, ..Measured::default() }))
            }
            None => self.walk(path, depth).map(Some),
        }
    }

    /// Asks the server, also whether something in it has names elsewhere; `None` when there is none for this directory.
    fn ask(
        &mut self,
        path: &Path,
        directory: std::os::fd::BorrowedFd<'_>,
        depth: u32,
    ) -> Result<Option<(Vec<Row>, bool)>, Failure> {
        let Some(client) = &mut self.client else { return Ok(None) };
        let one_file_system = self.args.one_file_system;
        let (max_ms, progress) = (self.max_ms, !self.args.cached && io::stderr().is_terminal());
        let freshness = freshness(self.args);
        let takes_portions = true;
        let question =
            Question { depth, freshness, one_file_system, takes_portions, max_ms, progress, ..Question::plain() };
        let (mut rows, mut working) = (Vec::new(), Working::default());
        let name = message::path_text(path);
        let answer =
            client.ask_and_wait(directory, &question, |so_far| working.show(&name, so_far), |row| rows.push(row));
        working.end();
        let answer = match answer {
            Ok(Ok(head)) if head.long => portions::gather(client, directory, &question, head),
            answer => answer.map(|answer| answer.map(|head| (head, rows))),
        };
        match answer {
            Ok(Ok((head, rows))) => {
                if head.late.is_some() {
                    self.code = SOME_FAILED;
                    self.said.push(format!("{name}: time is up: {}", age(&head)));
                }
                if head.partial || head.unreadable > 0 {
                    self.complain_of(path, &head);
                    if self.args.freed {
                        self.cannot_tell_freed(path);
                        return Ok(Some(Default::default()));
                    }
                }
                if self.args.verbose {
                    let how = if head.long { " in portions, each of its own moment" } else { "" };
                    self.said.push(format!("{name}: from the server{how}, {}", age(&head)));
                } else if self.args.cached || (head.timed && head.late.is_none()) {
                    self.said.push(format!("{name}: {}", age(&head)));
                }
                Ok(Some((rows, head.leads_out)))
            }
            Ok(Err(Refusal::NotTracked | Refusal::Denied)) => Ok(None),
            Ok(Err(Refusal::Late)) => {
                self.code = SOME_FAILED;
                let why = if self.args.cached { "" } else { "time is up, and " };
                self.said.push(format!("{name}: {why}the server doesn't know it yet; ask again later"));
                Ok(Some(Default::default()))
            }
            Ok(Err(Refusal::Failed(why))) => {
                if self.args.verbose {
                    let why = message::one_line(&why);
                    self.said.push(format!("{}: the server failed: {why}", message::path_text(path)));
                }
                Ok(None)
            }
            Err(_) => {
                // It went away: what is left is walked.
                self.client = None;
                Ok(None)
            }
        }
    }

    /// What isn't in an answer.
    fn complain_of(&mut self, path: &Path, head: &Head) {
        self.code = SOME_FAILED;
        for LeftOut { path: below, why } in &head.left_out {
            let below = below.clone().into_bytes();
            let below = if below.is_empty() { path.to_owned() } else { path.join(std::ffi::OsStr::from_bytes(&below)) };
            self.said.push(format!(
                "{}: cannot read the directory: {}",
                message::path_text(&below),
                message::one_line(why)
            ));
        }
        if head.left_out.is_empty() || head.left_out.len() == LEFT_OUT_MAX {
            let more = if head.left_out.is_empty() { "some" } else { "more" };
            let name = message::path_text(path);
            self.said.push(format!("{name}: {more} directories below it can't be read, and are left out"));
        }
    }

    fn cannot_tell_freed(&mut self, path: &Path) {
        self.code = SOME_FAILED;
        let why = "not all that is in it may be read";
        self.said.push(format!("{}: cannot tell what removing it would free: {why}", message::path_text(path)));
    }

    fn walk(&mut self, path: &Path, depth: u32) -> Result<Measured, Failure> {
        if self.args.verbose || self.args.cached {
            let stored = if self.args.cached { ", and nothing is stored of it" } else { "" };
            self.said.push(format!("{}: walked, for no server answers for it{stored}", message::path_text(path)));
        }
        self.write_before(path)?;
        let failed = |error: io::Error| Failure::io(path, "walk it", &error);
        let walk = Walk::of(path, self.args.one_file_system || self.args.freed).map_err(failed)?;
        let told = |error: &dyn std::fmt::Display| Failure::could_not_run(path, "walk it", error);
        let root = walk.root();
        let store = Store::in_memory().map_err(|error| told(&error))?;
        let mut summaries = Summaries::open(store, (walk, Untracked), root, b"").map_err(|error| told(&error))?;
        let top = summaries.root();
        let patience = Patience::of(self.max_ms.map(Duration::from_millis));
        let mut asking = Asking::default();
        let is_over = || patience.until.is_some_and(|until| Instant::now() >= until);
        if summaries.settle_more(top, &mut asking, &is_over).map_err(|error| told(&error))?.is_none() {
            self.code = SOME_FAILED;
            let name = message::path_text(path);
            self.said.push(format!(
                "{name}: time is up, and nothing is stored of it; start `onesweep serve` on its file system"
            ));
            return Ok(Measured { how: How::Walked, ..Measured::default() });
        }
        let seen = view(summaries.ledger(), top, depth, None).map_err(|error| told(&error))?;
        for (slot, why) in summaries.unreadable(top) {
            let names = summaries.path(top, slot).map_err(|error| told(&error))?;
            let below = names.iter().map(|name| std::ffi::OsStr::from_bytes(name)).collect::<PathBuf>();
            self.said.push(format!("{}: cannot read the directory: {why}", message::path_text(&path.join(below))));
            self.code = SOME_FAILED;
        }
        if self.args.freed && summaries.unreadable(top).next().is_some() {
            self.cannot_tell_freed(path);
            return Ok(Measured { how: How::Walked, ..Measured::default() });
        }
        let mut rows = Vec::with_capacity(seen.lines.len());
        for line in &seen.lines {
            let record = summaries.record(line.slot).map_err(|error| told(&error))?;
            rows.push(Row::of(line, &record.name, seen.is_partial));
        }
        let (lines, leads_out) = (lines(path.as_os_str().as_bytes(), rows), seen.leads_out);
        Ok(Measured { lines, leads_out, how: How::Walked, counts_twice: false })
    }
}

fn freshness(args: &DuArgs) -> Freshness {
    freshness_by(args.cached, args.sync)
}

/// How true an answer has to be, by the options `--cached` and `--sync`.
pub(super) fn freshness_by(cached: bool, sync: bool) -> Freshness {
    match (cached, sync) {
        (true, _) => Freshness::Cached,
        (_, true) => Freshness::Synced,
        _ => Freshness::Exact,
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
    let unit = match &args.units.wanted {
        Some(Wanted::Size(size)) => Unit::parse(size)?,
        Some(Wanted::Bytes) => Unit::of(1),
        Some(Wanted::Human) => Unit::Human(1024),
        Some(Wanted::Si) => Unit::Human(1000),
        Some(Wanted::Mebi) => Unit::of(1 << 20),
        Some(Wanted::Kibi) => Unit::of(1024),
        // Of what can't be understood there GNU du takes no notice.
        None => match from_environment().and_then(|size| Unit::parse(&size).ok()) {
            Some(unit) => unit,
            None if std::env::var_os("POSIXLY_CORRECT").is_some() => Unit::of(512),
            None => Unit::of(1024),
        },
    };
    Ok(if args.inodes { unit.of_inodes() } else { unit })
}

/// The figure that was asked for.
fn figure(args: &DuArgs, figures: &Figures) -> i64 {
    match (args.inodes, args.tells_sizes()) {
        _ if args.freed => figures.freed,
        (true, _) => figures.inodes(),
        (_, true) => figures.bytes + figures.directory_bytes,
        _ => figures.allocated,
    }
}

fn write_line(
    out: &mut impl Write,
    args: &DuArgs,
    unit: &Unit,
    figure: i64,
    time: Option<&str>,
    path: &[u8],
) -> io::Result<()> {
    write!(out, "{}\t", unit.write(figure))?;
    if let Some(time) = time {
        write!(out, "{time}\t")?;
    }
    out.write_all(path)?;
    out.write_all(if args.null { b"\0" } else { b"\n" })
}

fn row_of_file(stat: &files::Stat) -> Row {
    let figures = Figures::of_inode(stat);
    let name = onesweep_summary::service::protocol::Name::of(b"");
    Row { name, depth: 0, total: figures, own: figures, newest: Some(stat.mtime.secs), largest: None, past: None }
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
        let size = figures::size(bare).and_then(|size| i64::try_from(size).ok()).ok_or_else(wrong)?;
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
