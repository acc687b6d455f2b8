//! `onesweep warm`: the page cache, as far as it holds.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use onesweep::{BulkRead, CachePolicy, MetadataSource};
use onesweep_deliver::warm::{Memory, Warmed, Warmer, default_limit, own_files};
use serde::Serialize;

use crate::{
    args::WarmArgs,
    message,
    report::Failure,
    session::{Session, StandardOutput},
    size::Size,
};

/// A limit may be passed by as much as this, or by an eighth of it.
const BUDGET_MIN: u64 = 64 << 10;

/// Requests that are handed over at once with `--directory`.
const BATCH: usize = 512;

#[derive(Serialize)]
struct Details {
    limit: u64,
    warmed_files: u64,
    warmed_bytes: u64,
    files_in_all: Option<u64>,
    all_fit: bool,
}

pub(crate) fn run(mut args: WarmArgs) -> Result<u8, Failure> {
    if args.common.settings.snapshot == Some(true) {
        return Err(Failure::told("cannot warm a snapshot: its pages go with it; leave out --snapshot"));
    }
    // It is the pages of an image that are wanted.
    args.common.settings.metadata = Some(MetadataSource::Walk);
    let session = Session::start(args.common, StandardOutput::Summary)?;
    session.check_roots(None, &args.paths)?;
    let roots = if args.directory { own_files_of(&args.paths, session.follows_roots())? } else { args.paths.clone() };
    let limit = match args.limit {
        Some(limit) => limit.0,
        None => spare_bytes(session.settings().budget.map_or(BulkRead::BUDGET, |budget| budget.0))?,
    };
    let mut warmer = Warmer::new(limit);
    // What waits to be handed over when the limit is reached has been read for nothing, and stays in the page cache.
    let budget = session.settings().budget.map_or(BulkRead::BUDGET, |budget| budget.0).min((limit / 8).max(BUDGET_MIN));
    let mut read = session.bulk_read(&roots)?.budget(budget).cache(CachePolicy::Fill).snapshot(false);
    if args.directory {
        let depth = session.settings().queue_depth.map_or(BATCH, std::num::NonZeroUsize::get);
        read = read.in_batches(true).no_recursion(true).queue_depth(depth);
    }
    let sweep = read.plan()?;
    let files_in_all = (!sweep.is_partial()).then(|| sweep.files().count() as u64);
    let summary = session.run_planned(sweep, |item| match item.and_then(|file| warmer.warm(file)) {
        Ok(going) => going,
        Err(error) => {
            session.complain_of(&error);
            true
        }
    })?;
    let Warmed { files, bytes, full } = warmer.warmed();
    if !(session.is_quiet() || session.is_json()) {
        tell(warmer.warmed(), files_in_all, limit).map_err(|error| session.output(&error))?;
    }
    if summary.files == 0 {
        session.tell_of_unread(&args.paths);
    }
    let all_fit = !(full || session.is_interrupted());
    session.finish("warm", &summary, Details { limit, warmed_files: files, warmed_bytes: bytes, files_in_all, all_fit })
}

/// Directories stand for the files in them, all else for itself.
fn own_files_of(paths: &[PathBuf], follow: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut roots = Vec::new();
    for path in paths {
        let is_link = path.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
        let files = match path.is_dir() && (follow || !is_link) {
            // What a link leads to.
            true if is_link => path.canonicalize().and_then(|directory| own_files(&directory)),
            true => own_files(path),
            false => Ok(Vec::new()),
        };
        let files = files.map_err(|error| Failure::told(message::of_step(path, "list it", &error)))?;
        if files.is_empty() { roots.push(path.clone()) } else { roots.extend(files) }
    }
    Ok(roots)
}

fn spare_bytes(budget: u64) -> Result<u64, Failure> {
    let memory = Memory::now().map_err(|error| {
        Failure::told(format!("/proc/meminfo: cannot tell the free memory: {}; use --limit", message::why(&error)))
    })?;
    match default_limit(memory, budget) {
        0 => Err(Failure::told(format!(
            "cannot warm: only {} of memory are available; free some, or set --limit and a smaller --budget",
            Size(memory.available_bytes)
        ))),
        limit => Ok(limit),
    }
}

fn tell(warmed: Warmed, files_in_all: Option<u64>, limit: u64) -> io::Result<()> {
    let Warmed { files, bytes, full } = warmed;
    let mut out = io::stdout().lock();
    write!(out, "{files} ")?;
    if let Some(files_in_all) = files_in_all {
        write!(out, "of {files_in_all} ")?;
    }
    write!(out, "files warmed, {}", Size(bytes))?;
    if full {
        write!(out, "; the next one would pass the limit of {}", Size(limit))?;
    }
    writeln!(out)
}
