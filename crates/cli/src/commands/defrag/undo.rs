//! `onesweep defrag --undo` and `--forget`.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use onesweep_relocate::{
    carry::Ended,
    ext4::{
        Ext4,
        keep::{self, Undone, Unknown},
    },
    host::Uncached,
};
use serde::Serialize;

use super::{message_of, path_hex, refused, tell};
use crate::{
    args::DefragArgs,
    message,
    report::{self, Failure},
    size::{Size, duration},
};

/// Blocks of `stat`.
const UNIT: u64 = 512;

#[derive(Serialize)]
struct Told {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    undo: String,
    moved_files: u64,
    moved_bytes: u64,
    back_already_files: u64,
    written_since_files: u64,
    stayed: BTreeMap<String, u64>,
    /// Regions all of whose files stay, whichever they are.
    unread_regions: u64,
    is_complete: bool,
    seconds: f64,
}

#[derive(Serialize)]
struct Forgotten {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    forgotten: String,
    freed_bytes: u64,
}

pub(super) fn undo(args: &DefragArgs, id: &str, stop: &AtomicBool) -> Result<u8, Failure> {
    let (path, mut host) = host(args)?;
    let started = Instant::now();
    let undone =
        keep::undo(&mut host, id, &mut |_| !stop.load(Ordering::SeqCst)).map_err(|error| unknown(path, &error))?;
    for unread in &undone.unread {
        tell(&format!("{}; the files of its region stay, the others go back", message_of(unread)));
    }
    let mut errors = undone.unread.len() as u64;
    if let Some(Ended::Failed(failed)) = &undone.ended {
        tell(&format!("{}; what was moved back before is whole", message_of(failed)));
        errors += 1;
    }
    let told = Told::new(path, id, &undone, host.block_bytes(), started.elapsed().as_secs_f64());
    show(args, |out| told.show(path, out), &told)?;
    if args.verbose {
        for (path, left) in &undone.left {
            show(args, |out| writeln!(out, "  {}: {left}", message::path_text(path)), &told)?;
        }
    }
    Ok(report::exit_code(stop.load(Ordering::SeqCst), errors))
}

pub(super) fn forget(args: &DefragArgs, id: &str) -> Result<u8, Failure> {
    let (path, mut host) = host(args)?;
    let blocks = keep::forget(&mut host, id).map_err(|error| unknown(path, &error))?;
    let told = Forgotten {
        path: path.to_string_lossy().into_owned(),
        path_hex: path_hex(path),
        forgotten: id.to_owned(),
        freed_bytes: blocks * UNIT,
    };
    let freed = Size(told.freed_bytes);
    show(
        args,
        |out| writeln!(out, "{}: {freed} freed; there is no undo of it any more", message::one_line(id)),
        &told,
    )?;
    Ok(0)
}

fn host(args: &DefragArgs) -> Result<(&Path, Ext4), Failure> {
    let [path] = &args.paths[..] else {
        return Err(Failure::told("old places are kept on one file system: name one directory of it"));
    };
    let host = Ext4::of(path, Uncached::Read).map_err(|refusal| refused(path, &refusal.into()))?;
    Ok((path, host))
}

fn unknown(path: &Path, error: &Unknown) -> Failure {
    match error {
        Unknown::Failed(failed) => Failure::told(message_of(failed)),
        unknown => Failure::told(format!("{}: {}", message::path_text(path), message::of_error(unknown))),
    }
}

/// Lines for people, or the object.
fn show(
    args: &DefragArgs,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    told: &impl Serialize,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = match (args.json, args.quiet) {
        (true, _) => serde_json::to_writer(&mut out, told).map_err(io::Error::from).and_then(|()| writeln!(out)),
        (false, true) => Ok(()),
        (false, false) => write(&mut out),
    };
    written.map_err(|error| Failure::output(&error, 0))
}

impl Told {
    fn new(path: &Path, id: &str, undone: &Undone, block_bytes: u64, seconds: f64) -> Told {
        let mut stayed = BTreeMap::new();
        for left in undone.left.values() {
            *stayed.entry(left.to_string()).or_default() += 1;
        }
        Told {
            path: path.to_string_lossy().into_owned(),
            path_hex: path_hex(path),
            undo: id.to_owned(),
            moved_files: undone.files,
            moved_bytes: undone.blocks * block_bytes,
            back_already_files: undone.back_already,
            written_since_files: undone.written_since,
            stayed,
            unread_regions: undone.unread.len() as u64,
            is_complete: undone.ended.is_none() && undone.unread.is_empty(),
            seconds,
        }
    }

    fn show(&self, path: &Path, out: &mut dyn Write) -> io::Result<()> {
        let whole = match (self.is_complete, self.unread_regions) {
            (true, _) => "",
            (false, 0) => "stopped early: ",
            (false, _) => "not all: ",
        };
        let (bytes, took) = (Size(self.moved_bytes), duration(self.seconds));
        writeln!(out, "{whole}{} files moved back, {bytes} in {took}", self.moved_files)?;
        if self.back_already_files > 0 {
            writeln!(out, "{} files lay at their old places already", self.back_already_files)?;
        }
        if self.written_since_files > 0 {
            writeln!(out, "{} of them were written since, and have today's bytes", self.written_since_files)?;
        }
        for (stays, files) in &self.stayed {
            writeln!(out, "{files} files stay: {stays}")?;
        }
        if self.unread_regions > 0 {
            writeln!(out, "{} regions stay: what leads them back can't be read", self.unread_regions)?;
        }
        let path = message::path_text(path);
        writeln!(out, "held until: onesweep defrag --forget {} {path}", message::one_line(&self.undo))
    }
}
