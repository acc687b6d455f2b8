//! `onesweep export`: the totals of all directories as a table, for queries over many hosts (docs/export.md).

mod keys;
#[cfg(feature = "export")]
mod parquet_table;
mod record;

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_summary::{
    service::{
        client::Client,
        pages::{Entry, PAGE_MAX, Page, PageHead},
        protocol::{Question, Refusal},
    },
    summaries::Freshness,
};
use onesweep_sys::files;

use self::{
    keys::Labels,
    record::{Origin, Record},
};
use super::du::Working;
use crate::{
    args::ExportArgs,
    message,
    report::{Failure, SOME_FAILED},
    target::Target,
};

pub(crate) fn run(args: ExportArgs) -> Result<u8, Failure> {
    let path = &args.path;
    let directory = files::open_dir_handle(path.as_path()).map_err(|error| Failure::io(path, "look at it", &error))?;
    let file = args.parquet.as_ref().or(args.json_lines.as_ref()).cloned().unwrap_or_default();
    let is_parquet = args.parquet.is_some();
    if is_parquet && file == Path::new("-") && io::stdout().is_terminal() {
        return Err(Failure::told("standard output is a terminal, and Parquet is no text; name a file"));
    }
    let failed = |error: io::Error| Failure::io(path, "tell its name", &error);
    let origin = Origin {
        host: args.host.clone().map_or_else(host, Ok).map_err(failed)?,
        top: path_of(&directory).map_err(failed)?,
        exported_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64),
    };
    let socket = args.socket();
    let mut client = Client::connect(&socket).map_err(|error| no_server(&socket, &message::why(&error)))?;
    let written = |error: io::Error| match file == Path::new("-") {
        true => Failure::output(&error, 0),
        false => Failure::io(&file, "write it", &error),
    };
    let target = Target::open(&file).map_err(written)?;
    let out = BufWriter::with_capacity(1 << 20, target.writer().map_err(written)?);
    let mut table = Table::new(is_parquet, out)?;
    let freshness = if args.cached { Freshness::Cached } else { Freshness::Exact };
    let asked = Asked { path, socket: &socket, directory: &directory, freshness, keys: !args.no_keys };
    wait(&mut client, &asked);
    let mut labels = Labels::default();
    let is_whole = each_page(&mut client, &asked, |entry, head| {
        table.add(&Record::of(entry, &origin, head, &mut labels)).map_err(written)
    })?;
    table.finish().and_then(|()| target.finish()).map_err(written)?;
    if is_whole {
        return Ok(0);
    }
    let name = message::path_text(path);
    eprintln!("onesweep: {name}: some directories below it can't be read, and are left out");
    Ok(SOME_FAILED)
}

/// What is asked for, and whom.
struct Asked<'a> {
    path: &'a Path,
    socket: &'a Path,
    directory: &'a OwnedFd,
    freshness: Freshness,
    keys: bool,
}

/// Who waits hears of it; whatever goes wrong is told when it is asked for.
fn wait(client: &mut Client, asked: &Asked<'_>) {
    if asked.freshness == Freshness::Cached {
        return;
    }
    let progress = io::stderr().is_terminal();
    let question = Question { freshness: asked.freshness, progress, ..Question::plain() };
    let (mut working, name) = (Working::default(), message::path_text(asked.path));
    let _ = client.ask_and_wait(asked.directory.as_fd(), &question, |so_far| working.show(&name, so_far), |_| {});
    working.end();
}

/// Gives all directories to `add`, with the head of their page, a page at a time; true when nothing was left out.
fn each_page(
    client: &mut Client,
    asked: &Asked<'_>,
    mut add: impl FnMut(Entry, &PageHead) -> Result<(), Failure>,
) -> Result<bool, Failure> {
    // Later pages take what is stored: to harvest once more for each of them would keep everybody else waiting.
    let (mut freshness, mut from, mut is_whole) = (asked.freshness, 0, true);
    loop {
        let question = Question { freshness, ..Question::plain() };
        let page = Page { from, limit: PAGE_MAX, keys: asked.keys, depth: None };
        let mut entries = Vec::new();
        let answer = client.page(asked.directory.as_fd(), &question, page, |entry| entries.push(entry));
        let head = match answer {
            Ok(Ok(head)) => head,
            Ok(Err(Refusal::NotTracked)) => return Err(no_server(asked.socket, &"it tracks another file system")),
            Ok(Err(Refusal::Denied)) => {
                return Err(Failure::could_not_run(asked.path, "look at it", "permission denied"));
            }
            Ok(Err(Refusal::Late)) => {
                let why = "the server doesn't know it yet; ask again later";
                return Err(Failure::could_not_run(asked.path, "tell what is in it", why));
            }
            Ok(Err(Refusal::Failed(why))) => {
                return Err(Failure::could_not_run(asked.path, "ask the server", message::one_line(&why)));
            }
            Err(error) => return Err(no_server(asked.socket, &message::why(&error))),
        };
        for entry in entries {
            is_whole = is_whole && !entry.partial && !entry.unreadable;
            add(entry, &head)?;
        }
        match head.next {
            // It must not go round in circles, whatever the server says.
            Some(next) if next > from => from = next,
            _ => return Ok(is_whole),
        }
        freshness = Freshness::Cached;
    }
}

fn no_server(socket: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::could_not_run(socket, "ask the server", format!("{why}; start `onesweep serve` on that file system"))
}

fn host() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim_end().to_owned())
}

/// Where an open directory is, from the root of all.
fn path_of(directory: &OwnedFd) -> io::Result<Vec<u8>> {
    Ok(files::path_of(directory.as_fd())?.into_os_string().into_vec())
}

/// What rows are written as.
enum Table {
    JsonLines(BufWriter<File>),
    #[cfg(feature = "export")]
    Parquet(Box<parquet_table::ParquetTable<BufWriter<File>>>),
}

impl Table {
    #[cfg(feature = "export")]
    fn new(is_parquet: bool, out: BufWriter<File>) -> Result<Table, Failure> {
        if !is_parquet {
            return Ok(Table::JsonLines(out));
        }
        let table = parquet_table::ParquetTable::new(out).map_err(|error| Failure::told(error.to_string()))?;
        Ok(Table::Parquet(Box::new(table)))
    }

    #[cfg(not(feature = "export"))]
    fn new(is_parquet: bool, out: BufWriter<File>) -> Result<Table, Failure> {
        if is_parquet {
            let why = "this onesweep was built without Parquet; use --json-lines, or build it with `--features export`";
            return Err(Failure::told(why));
        }
        Ok(Table::JsonLines(out))
    }

    fn add(&mut self, record: &Record<'_>) -> io::Result<()> {
        match self {
            Table::JsonLines(out) => {
                serde_json::to_writer(&mut *out, record)?;
                out.write_all(b"\n")
            }
            #[cfg(feature = "export")]
            Table::Parquet(table) => table.add(record).map_err(io_error),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Table::JsonLines(mut out) => out.flush(),
            #[cfg(feature = "export")]
            Table::Parquet(table) => table.finish().map_err(io_error)?.flush(),
        }
    }
}

#[cfg(feature = "export")]
fn io_error(error: parquet::errors::ParquetError) -> io::Error {
    match error {
        parquet::errors::ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
