//! Where looks come from: the server, or a walk at the start where there is none.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use onesweep_summary::{
    nodes::Slot,
    service::{
        client::Client,
        listing::{LARGEST_MAX, Largest, Listing, Measure as By},
        protocol::{Figures, Question, Refusal},
    },
    store::Store,
    summaries::{Summaries, SummaryError},
    walk::{Untracked, Walk},
};
use onesweep_sys::files;

use super::{
    files as own_files,
    look::{Entry, Look, Measure, Seen, Sizes},
};
use crate::message;

/// Names that are opened in one go: a path may be longer than the kernel takes at once.
const STEPS_MAX: usize = 12;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The names that lead down from the directory at the top.
    pub(super) below: Vec<Vec<u8>>,
    pub(super) by: Measure,
    /// The largest are those with most in them.
    pub(super) by_entries: bool,
}

/// Why there is no look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The directory isn't there, or isn't what it was.
    Gone(String),
    /// Nobody answers.
    Silent(String),
    /// The server doesn't know the file system.
    NotTracked,
}

/// Gives looks at a directory and those below.
#[derive(Debug)]
pub(super) struct Source {
    top: PathBuf,
    from: From,
}

/// Whether a server has an answer for a directory, for which nothing is waited.
pub(super) fn ask_at_once(directory: &Path, socket: &Path) -> io::Result<Result<(), Refusal>> {
    let directory = files::open_dir_handle(directory)?;
    let question = Question { max_ms: Some(0), ..Question::plain() };
    Ok(Client::connect(socket)?.ask(directory.as_fd(), &question, |_| {})?.map(drop))
}

enum From {
    Server { socket: PathBuf, client: Option<Client> },
    Walk { summaries: Box<Summaries<Walk, Untracked>>, at: i64 },
}

impl std::fmt::Debug for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, From::Server { .. }) { "Server" } else { "Walk" })
    }
}

impl Source {
    /// Asks the server that listens at `socket`.
    pub(super) fn server(top: &Path, socket: PathBuf) -> Source {
        Source { top: top.to_owned(), from: From::Server { socket, client: None } }
    }

    /// Walks the tree, now and never again.
    pub(super) fn walk(top: &Path, now: i64) -> Result<Source, String> {
        let walk = Walk::of(top, true).map_err(|error| message::why(&error))?;
        let root = walk.root();
        let told = |error: &dyn std::fmt::Display| message::one_line(&error.to_string());
        let store = Store::in_memory().map_err(|error| told(&error))?;
        let mut summaries = Summaries::open(store, (walk, Untracked), root, b"").map_err(|error| told(&error))?;
        let root = summaries.root();
        summaries.settle(root).map_err(|error| told(&error))?;
        Ok(Source { top: top.to_owned(), from: From::Walk { summaries: Box::new(summaries), at: now } })
    }

    /// A look at a directory; `goes_on` says whether it is still wanted.
    pub(super) fn look(&mut self, wanted: &Wanted, goes_on: impl Fn() -> bool) -> Result<Look, Missing> {
        let gone = |error: &io::Error| Missing::Gone(message::why(error));
        let directory = open(&self.top, &wanted.below).map_err(|error| gone(&error))?;
        let mut look = match &mut self.from {
            From::Server { socket, client } => {
                let silent = |error: &io::Error| Missing::Silent(message::why(error));
                if client.is_none() {
                    *client = Some(Client::connect(socket).map_err(|error| silent(&error))?);
                }
                let asked = client.as_mut().map(|client| ask(client, &directory, wanted));
                match asked {
                    Some(Ok(answer)) => answer?,
                    Some(Err(error)) => {
                        *client = None;
                        return Err(silent(&error));
                    }
                    None => return Err(Missing::NotTracked),
                }
            }
            From::Walk { summaries, at } => walked(summaries, &wanted.below, *at)?,
        };
        // What can't be listed by this user holds no files that the user sees.
        if !look.denied {
            let _ = own_files::add(&mut look, directory.as_fd(), wanted.by, goes_on);
        }
        Ok(look)
    }
}

/// Opens a directory by its names. Below the top no symbolic link is followed.
fn open(top: &Path, below: &[Vec<u8>]) -> io::Result<OwnedFd> {
    let mut opened = files::open_dir_handle(top)?;
    for steps in below.chunks(STEPS_MAX) {
        opened = files::open_dir_handle_beneath(opened.as_fd(), steps.join(&b'/').as_slice())?;
    }
    Ok(opened)
}

fn ask(client: &mut Client, directory: &OwnedFd, wanted: &Wanted) -> io::Result<Result<Look, Missing>> {
    let by = match wanted.by {
        _ if wanted.by_entries => By::Inodes,
        Measure::Allocated => By::Allocated,
        Measure::Apparent => By::Bytes,
    };
    let answer = client.list(directory.as_fd(), &Question::plain(), Largest { limit: LARGEST_MAX, by })?;
    Ok(match answer {
        Ok(listing) => Ok(told(listing)),
        Err(Refusal::NotTracked) => Err(Missing::NotTracked),
        Err(Refusal::Late) => Err(Missing::Gone("the server doesn't know it yet".to_owned())),
        Err(Refusal::Denied) => Err(Missing::Gone("permission denied".to_owned())),
        Err(Refusal::Failed(why)) => Err(Missing::Silent(message::one_line(&why))),
    })
}

fn told(listing: Listing) -> Look {
    let entry = |child: onesweep_summary::service::listing::Child| Entry {
        name: child.name.into_bytes(),
        is_directory: true,
        seen: match (child.denied, child.partial || child.unreadable > 0) {
            (true, _) => Seen::Nothing,
            (_, true) => Seen::Part,
            _ => Seen::Whole,
        },
        sizes: Sizes::of(&child.total),
        newest: child.newest,
    };
    Look {
        total: Sizes::of(&listing.total),
        newest: listing.newest,
        denied: listing.denied,
        partial: listing.partial,
        exact: listing.exact,
        checked_at: listing.checked_at,
        timed: listing.timed,
        counted_at: listing.harvested_at,
        unreadable: listing.unreadable,
        entries: listing.children.into_iter().map(entry).collect(),
        rest_directories: listing.rest.count,
        rest_files: 0,
        rest: Sizes::of(&listing.rest.total),
    }
}

/// A look at what a walk has found.
fn walked(summaries: &Summaries<Walk, Untracked>, below: &[Vec<u8>], at: i64) -> Result<Look, Missing> {
    let failed = |error: SummaryError| Missing::Gone(message::one_line(&error.to_string()));
    let nodes = &summaries.ledger().nodes;
    let mut slot = summaries.root();
    for name in below {
        slot = child_of(summaries, slot, name).map_err(failed)?.ok_or(Missing::NotTracked)?;
    }
    let record = summaries.record(slot).map_err(failed)?;
    let unreadable: Vec<Slot> = summaries.unreadable(slot).map(|(at, _)| at).collect();
    let mut entries = Vec::new();
    for child in nodes.children(slot) {
        let record = summaries.record(child).map_err(failed)?;
        let is_part = unreadable.iter().any(|&at| nodes.contains(child, at));
        entries.push(Entry {
            name: record.name.into_vec(),
            is_directory: true,
            seen: if is_part { Seen::Part } else { Seen::Whole },
            sizes: Sizes::of(&Figures::of(&record.subtree.sums)),
            newest: record.subtree.extremes.newest.map(|time| time.secs),
        });
    }
    Ok(Look {
        total: Sizes::of(&Figures::of(&record.subtree.sums)),
        newest: record.subtree.extremes.newest.map(|time| time.secs),
        denied: false,
        partial: false,
        exact: false,
        counted_at: at,
        unreadable: unreadable.len() as u64,
        entries,
        ..Look::default()
    })
}

fn child_of(summaries: &Summaries<Walk, Untracked>, slot: Slot, name: &[u8]) -> Result<Option<Slot>, SummaryError> {
    for child in summaries.ledger().nodes.children(slot) {
        if summaries.record(child)?.name[..] == *name {
            return Ok(Some(child));
        }
    }
    Ok(None)
}

/// A name as part of what is typed behind `onesweep serve`.
pub(super) fn advice(top: &Path) -> String {
    format!(
        "start one by `onesweep serve {}` as root",
        message::one_line(&top.as_os_str().as_bytes().escape_ascii().to_string())
    )
}
