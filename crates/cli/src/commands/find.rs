//! `onesweep find`: what the tables of an image, or of a mounted file system, say of its files.

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_deliver::find::{
    Condition, LONG_HEADER, MountedDirectory, MountedError, MountedOptions, Row, Style, write_row,
};
use onesweep_layout::{
    image::{ImageName, OpenImage, WhyNot},
    tables::{Part, TableError, Timestamp, Tree, Wanted, Whole},
};

use super::find_volume;
use crate::{
    args::{FindArgs, Settings},
    config, message, remarks,
    report::{self, Failure},
    visible::write_line,
};

pub(crate) fn run(args: FindArgs) -> Result<u8, Failure> {
    let conditions = conditions(&args)?;
    let settings = config::complete(Settings { catalog_limit: args.catalog_limit, ..Settings::default() })?;
    let limit = settings.catalog_limit.map_or_else(onesweep::default_catalog_limit, |limit| limit.0);
    let style = match (args.null, args.long, args.json) {
        (true, ..) => Style::Nul,
        (_, true, _) => Style::Long,
        (.., true) => Style::Json,
        _ => Style::Lines,
    };
    let stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let mut out = BufWriter::new(stdout);
    let mut errors = 0;
    let is_mounted = |named: &PathBuf| named.symlink_metadata().is_ok_and(|found| found.is_dir());
    let for_images = args.for_images_alone();
    if !for_images.is_empty() && args.images.iter().all(is_mounted) {
        tell(&remarks::of_idle(&for_images));
    }
    if style == Style::Long {
        writeln!(out, "{LONG_HEADER}").map_err(|error| Failure::output(&error, 0))?;
    }
    for image in &args.images {
        let mut rows = Rows { out: &mut out, style, is_terminal };
        let found = match find_volume::find(image, &conditions, limit, args.groups_at_a_time, &mut rows) {
            Ok(None) if is_mounted(image) => find_mounted(image, &conditions, args.one_file_system, limit, &mut rows),
            Ok(None) => find(image, &args, &conditions, limit, &mut rows),
            found => found.map(Option::unwrap_or_default),
        };
        match found {
            Ok(problems) => errors += problems,
            Err(Found::Output(error)) => return Err(Failure::output(&error, report::exit_code(false, errors))),
            Err(Found::Nothing(message)) if args.images.len() == 1 => return Err(Failure::told(message)),
            Err(Found::Nothing(message)) => {
                tell(&message);
                errors += 1;
            }
        }
    }
    out.flush().map_err(|error| Failure::output(&error, report::exit_code(false, errors)))?;
    Ok(report::exit_code(false, errors))
}

/// Where rows go, and how they look.
pub(super) struct Rows<'a> {
    out: &'a mut dyn Write,
    style: Style,
    is_terminal: bool,
}

impl Rows<'_> {
    pub(super) fn write(&mut self, path: &[u8], row: &Row) -> io::Result<()> {
        let style = self.style;
        // JSON has escapes of its own.
        let is_terminal = self.is_terminal && style != Style::Json;
        write_line(self.out, is_terminal, |out| write_row(out, path, row, style))
    }

    /// Whether they tell where files lie and links point.
    pub(super) fn tells_all(&self) -> bool {
        matches!(self.style, Style::Long | Style::Json)
    }
}

/// What is said of a file that is named as it is.
const NO_FILE_SYSTEM: &str =
    "is a file without a file system (ext2, ext3, ext4, XFS, NTFS); of a mounted one, name its directory";

/// Why an image was not gone through.
pub(super) enum Found {
    /// It can't be read.
    Nothing(String),
    /// The output can't be written.
    Output(io::Error),
}

/// Writes what is found in one image; gives how much of it is damaged.
fn find(
    named: &Path,
    args: &FindArgs,
    conditions: &[Condition],
    limit: u64,
    rows: &mut Rows<'_>,
) -> Result<u64, Found> {
    let name = message::path_text(named);
    let nothing = |error: &dyn std::fmt::Display| Found::Nothing(format!("{name}: {}", message::of_error(&error)));
    let image = ImageName::of(named).ok_or_else(|| nothing(&why_no_image(named)))?;
    let OpenImage { mut tables, .. } = image.open_tables(&args.image_options()).map_err(|error| match error.why {
        WhyNot::Tables(TableError::NotHere { .. }) if image.is_plain_file() => nothing(&NO_FILE_SYSTEM),
        _ => Found::Nothing(message::of_error(&error)),
    })?;
    if tables.facts().is_dirty {
        tell(&format!("{name}: it was not closed; what was written last may be missing or half there"));
    }
    let mut shown = named.as_os_str().as_bytes().to_vec();
    if image.inside.is_empty() && !shown.ends_with(b":/") {
        shown.extend_from_slice(b":/");
    }
    let start = shown.len();
    let (mut written, mut is_there, mut problems) = (Ok(()), false, 0);
    let (mut has_root, mut nothing_named) = (true, Vec::new());
    let whole = Whole {
        limit,
        keep: &mut |inode| Row::of(&inode),
        lost: args.lost.then_some(&Row::of_lost as &dyn Fn() -> Row),
    };
    let mut show = |part: Part<'_, Row>| {
        if part.is_first() {
            problems = part.problems_met();
            for problem in part.problems() {
                tell(&format!("{name}: {}", message::of_error(problem)));
            }
            has_root = part.has_root();
        }
        if !has_root && !args.lost {
            return ControlFlow::Break(());
        }
        for named in part.names_of_nothing() {
            problems += 1;
            if nothing_named.len() < NAMES_TOLD {
                nothing_named.push(named);
            }
        }
        if let Ok(from) = part.resolve(&image.inside) {
            is_there = true;
            part.walk(from, &mut |entry| {
                shown.truncate(start);
                if !entry.path.is_empty() {
                    if !shown.ends_with(b"/") {
                        shown.push(b'/');
                    }
                    shown.extend_from_slice(entry.path);
                }
                if conditions.iter().all(|condition| condition.holds(&shown, entry.value)) {
                    written = rows.write(&shown, entry.value);
                }
                if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        if part.has_more_to_come(&image.inside) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    Tree::read_in_parts(&mut *tables, Wanted::default(), whole, &mut show).map_err(|error| nothing(&error))?;
    written.map_err(Found::Output)?;
    let damaged = |error: TableError| format!("{name}: {}", message::of_error(&error));
    for names in nothing_named {
        tell(&damaged(TableError::of_name(&*tables, names, "an inode in use", "none")));
    }
    if !has_root {
        let rootless = damaged(TableError::without_root(&*tables));
        if !args.lost {
            return Err(Found::Nothing(format!("{rootless}; --lost lists what is left")));
        }
        tell(&rootless);
        problems += 1;
    }
    if !is_there {
        let inside = message::path_text(Path::new(std::ffi::OsStr::from_bytes(&image.inside)));
        return Err(Found::Nothing(format!("{name}: no such file or directory inside: /{inside}; check the name")));
    }
    Ok(problems)
}

/// Writes what is found below a directory of a mounted ext4; gives how much of it the kernel could not tell.
fn find_mounted(
    named: &Path,
    conditions: &[Condition],
    one_file_system: bool,
    limit: u64,
    rows: &mut Rows<'_>,
) -> Result<u64, Found> {
    let name = message::path_text(named);
    let nothing = |error: &dyn std::fmt::Display| Found::Nothing(format!("{name}: {}", message::of_error(&error)));
    let directory = MountedDirectory::open(named).map_err(|error| match error {
        MountedError::Mounts(error) => Found::Nothing(message::why(&error)),
        error => nothing(&error),
    })?;
    let layout = rows.tells_all();
    let prefix = named.as_os_str().as_bytes();
    let under = |path: &[u8]| {
        let slash = if path.is_empty() || prefix.ends_with(b"/") { &b""[..] } else { b"/" };
        [prefix, slash, path].concat()
    };
    let mut written = Ok(());
    let mut errors = 0;
    let mut visit = |path: &[u8], row: &Row| {
        let shown = under(path);
        if conditions.iter().all(|condition| condition.holds(&shown, row)) {
            written = rows.write(&shown, row);
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let mut fail = |path: &[u8], error: io::Error| {
        errors += 1;
        tell(&message::of_step(Path::new(std::ffi::OsStr::from_bytes(&under(path))), "look at it", &error));
    };
    let options = MountedOptions { one_file_system, layout, limit };
    directory.find(options, &mut visit, &mut fail).map_err(|error| nothing(&error))?;
    written.map_err(Found::Output)?;
    Ok(errors)
}

/// Names that lead nowhere are told one by one, at most so many.
const NAMES_TOLD: usize = 1000;

fn why_no_image(named: &Path) -> String {
    match named.metadata() {
        Ok(found) if found.is_dir() => "is a link to a directory; name the directory".into(),
        Ok(_) => "is no image and no device".into(),
        Err(error) => format!("cannot find it: {}; check the name", message::why(&error)),
    }
}

pub(super) fn tell(message: &str) {
    let _ = writeln!(io::stderr().lock(), "onesweep: {message}");
}

fn conditions(args: &FindArgs) -> Result<Vec<Condition>, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() };
    let names = args.name.iter().map(|pattern| Ok(Condition::name(pattern.as_bytes())));
    let sizes = args.size.iter().map(|text| Condition::size(text));
    let times = args.mtime.iter().map(|text| Condition::mtime(text, now));
    let users = args.user.iter().map(|text| Condition::user(text));
    let kinds = args.kind.iter().map(|text| Condition::kinds(text));
    let all: Result<Vec<_>, _> = names.chain(sizes).chain(times).chain(users).chain(kinds).collect();
    all.map_err(|error| Failure::told(message::of_error(&error)))
}
