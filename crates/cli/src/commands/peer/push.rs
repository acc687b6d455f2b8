//! `onesweep peer push`: servers get what they lack.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::FileTypeExt},
    path::{Path, PathBuf},
    thread,
};

use onesweep::{BulkRead, Cancel};
use onesweep_peer::{
    id::BlockSize,
    push::{PushError, Pushed, Pusher},
};
use onesweep_sys::cache;
use signal_hook::iterator::Signals;

use super::connect;
use crate::{
    args::PeerPushArgs,
    message,
    report::{CANNOT_RUN, Failure, INTERRUPTED, SOME_FAILED},
    session::heeded_signals,
    size::Size,
};

pub(super) fn run(args: &PeerPushArgs) -> Result<u8, Failure> {
    let Some(size) = BlockSize::new(args.block_size.0) else {
        return Err(Failure::told("a block has 4K, 8K, 16K, 32K or 64K"));
    };
    // All are looked at before the first is read.
    let (directories, files) = sorted(&args.paths)?;
    let (peers, domain) = connect(&args.servers)?;
    let cancel = Cancel::new();
    heed_signals(&cancel)?;
    let mut push = Push { pusher: Pusher::new(&peers, domain, size), cancel, failed: 0, lost: None };
    for path in files {
        push.file(path);
    }
    if !directories.is_empty() {
        push.directories(&directories)?;
    }
    let Push { pusher, cancel, failed, lost } = push;
    let so_far = pusher.pushed();
    let finished = match lost {
        Some(why) => Err(why),
        None => pusher.finish(),
    };
    let pushed = *finished.as_ref().unwrap_or(&so_far);
    tell(&pushed, args.json).map_err(|error| Failure::output(&error, 0))?;
    match finished {
        Err(why) => {
            let advice = "; run it again: what the server has is not sent again";
            let failure = Failure::told(format!("{}{advice}", message::of_error(&why)));
            failure.print();
            Ok(CANNOT_RUN)
        }
        Ok(_) if cancel.is_cancelled() => Ok(INTERRUPTED),
        Ok(_) => Ok(if failed > 0 { SOME_FAILED } else { 0 }),
    }
}

/// Directories, and all else.
fn sorted(paths: &[PathBuf]) -> Result<(Vec<&PathBuf>, Vec<&PathBuf>), Failure> {
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for path in paths {
        let facts = path.metadata().map_err(|error| Failure::io(path, "open it", &error))?;
        let kind = facts.file_type();
        if kind.is_dir() {
            directories.push(path);
        } else if kind.is_file() || kind.is_block_device() {
            files.push(path);
        } else {
            return Err(Failure::could_not_run(path, "push it", "it is no file, image, device or directory"));
        }
    }
    Ok((directories, files))
}

fn heed_signals(cancel: &Cancel) -> Result<(), Failure> {
    let mut signals =
        Signals::new(heeded_signals()).map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let cancel = cancel.clone();
    let spawned = thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            cancel.cancel();
        }
    });
    spawned.map(drop).map_err(|error| Failure::told(message::no_thread(&error)))
}

struct Push<'a> {
    pusher: Pusher<'a>,
    cancel: Cancel,
    failed: u64,
    /// The servers take no more.
    lost: Option<PushError>,
}

impl Push<'_> {
    fn goes_on(&self) -> bool {
        self.lost.is_none() && !self.cancel.is_cancelled()
    }

    fn complain(&mut self, message: String) {
        self.failed += 1;
        Failure::told(message).print();
    }

    fn take(&mut self, path: &Path, pushed: Result<(), PushError>) {
        match pushed {
            Ok(()) => {}
            Err(PushError::Read(error)) => self.complain(message::of_other(path, "read it", &error)),
            Err(why) => self.lost = Some(why),
        }
    }

    /// A file, image or device, from its start to its end.
    fn file(&mut self, path: &Path) {
        if !self.goes_on() {
            return;
        }
        let mut file = match File::open(path) {
            Ok(file) => Dropping { file, at: 0 },
            Err(error) => return self.complain(message::of_other(path, "open it", &error)),
        };
        let cancel = self.cancel.clone();
        let pushed = self.pusher.push(&mut file, || !cancel.is_cancelled());
        self.take(path, pushed);
    }

    /// What is in directories, in one sweep.
    fn directories(&mut self, directories: &[&PathBuf]) -> Result<(), Failure> {
        let read = BulkRead::new(directories.iter().copied()).cancel(self.cancel.clone());
        read.run(|item| {
            match item {
                Ok(mut file) => {
                    let path = file.path().to_owned();
                    let cancel = self.cancel.clone();
                    let pushed = self.pusher.push(&mut file.reader(), || !cancel.is_cancelled());
                    self.take(&path, pushed);
                }
                Err(error) => self.complain(message::of_error(&error)),
            }
            self.goes_on()
        })?;
        Ok(())
    }
}

/// A file that is read once: what is behind goes from the page cache, which has better to hold.
struct Dropping {
    file: File,
    at: u64,
}

impl io::Read for Dropping {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        // Where it can't be dropped, it stays.
        let _ = cache::drop_cached(self.file.as_fd(), self.at, count as u64);
        self.at += count as u64;
        Ok(count)
    }
}

fn tell(pushed: &Pushed, is_json: bool) -> io::Result<()> {
    let Pushed { blocks, bytes, zero, known, sent, sent_bytes } = *pushed;
    let mut out = io::stdout().lock();
    if is_json {
        let line = serde_json::json!({
            "command": "peer push", "blocks": blocks, "bytes": bytes, "zero_blocks": zero,
            "known_blocks": known, "sent_blocks": sent, "sent_bytes": sent_bytes,
        });
        return writeln!(out, "{line}");
    }
    writeln!(
        out,
        "{blocks} blocks ({}): {sent} sent ({}), {known} known, {zero} of zeros",
        Size(bytes),
        Size(sent_bytes)
    )
}
