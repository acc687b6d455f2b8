//! The side with the rights.

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use onesweep_sys::{fanotify::Group, files, handle::handle_at, memory, mounting::MountWatch, peer, priority};

use super::{
    opening::{Opening, Openings},
    request::{Ask, DONE, FAILED, FAMILIES, IDS_MAX, METHODS, PART, REQUEST_BYTES_MAX, Request},
    wire::{put_all, put_error, put_id, put_linked, put_open, put_reading, put_seen, receive, send},
};
use crate::{
    code::{Reader, Writer},
    custom::declare::Declared,
    file_system::FileSystem,
    identity::NodeId,
    reading::{Directories, Remounted, Wanted},
    service::{
        http::tokens::Tokens,
        protocol::{Name, Refusal},
        reach,
    },
    tracker::{self, SizesFollow},
    volume::Volume,
};

/// What the settings name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The file systems, each by a path on it.
    pub paths: Vec<PathBuf>,
    /// Those that are read again from time to time, since nobody tells what changes there.
    pub timed: Vec<PathBuf>,
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
    /// The text that declares summaries; empty where nothing does.
    pub summaries: String,
    /// When sizes are told.
    pub sizes_follow: SizesFollow,
}

/// So long those that may not answer are waited for, all together.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Connections at the same time, one for each of the daemon's threads that ask.
const CONNECTIONS_MAX: usize = 1024;
/// Messages of the daemon on the first socket: a new connection, at once or at leisure.
pub(super) const CONNECT: u8 = b'c';
pub(super) const CONNECT_IDLE: u8 = b'i';
/// It ends.
pub(super) const END: u8 = b'e';

/// A file system that is kept.
struct Kept {
    /// By which it was opened.
    path: PathBuf,
    volume: Volume,
    group: Group,
    names: Names,
}

/// What tells it from others, by now and before.
type Names = (Vec<u8>, Option<Vec<u8>>);

fn names(volume: &Volume) -> io::Result<Names> {
    Ok((volume.identity()?, volume.identity_before()?))
}

/// One that may not answer, and what tells it from others.
type Timed = (Volume, Names);

fn open_timed(path: &Path) -> io::Result<Timed> {
    let volume = Volume::timed(path)?;
    let names = names(&volume)?;
    Ok((volume, names))
}

struct Keeper<S> {
    settings: S,
    runs_commands: bool,
    /// What readings tell beside the totals, of the file systems that are told last.
    declared: Mutex<Option<Arc<Declared>>>,
    kept: RwLock<BTreeMap<u32, Arc<Kept>>>,
    tokens: RwLock<Option<PathBuf>>,
    openings: Openings,
    /// The last number that was given to a file system.
    last: Mutex<u32>,
}

/// Does what the daemon at the other end of `control` asks, until that is gone; true when it said that it ends. `settings` tells
/// what it may ask about; they are read anew when the daemon asks for the file systems. Without `runs_commands` settings that
/// declare a summary by a command are refused.
///
/// Needs `CAP_SYS_ADMIN`, `CAP_DAC_READ_SEARCH`, `CAP_LEASE`, `CAP_FOWNER` (so that access times stay), `CAP_SYS_PTRACE` (to see
/// which files are open under names that they have lost); to run commands `CAP_SETUID`, `CAP_SETGID` and `CAP_KILL`; and nothing
/// else.
pub fn run(
    control: &UnixStream,
    runs_commands: bool,
    settings: impl Fn() -> Result<Named, String> + Send + Sync + 'static,
) -> io::Result<bool> {
    let keeper = Arc::new(Keeper {
        settings,
        runs_commands,
        declared: Mutex::default(),
        kept: RwLock::default(),
        tokens: RwLock::default(),
        openings: Openings::default(),
        last: Mutex::new(0),
    });
    let open = Arc::new(());
    loop {
        let mut kind = [0];
        let (read, connection) = peer::receive_with_file(control.as_fd(), &mut kind)?;
        if read == 0 || kind == [END] {
            return Ok(read > 0);
        }
        let Some(connection) = connection.filter(|_| Arc::strong_count(&open) <= CONNECTIONS_MAX) else { continue };
        let (keeper, seat, is_idle) = (Arc::clone(&keeper), Arc::clone(&open), kind == [CONNECT_IDLE]);
        // Where no thread can be had, the connection ends here, and the daemon with it.
        let _ = thread::Builder::new().name("request".into()).spawn(move || {
            let _seat = seat;
            if is_idle {
                let _ = priority::set_idle_io();
            }
            keeper.converse(&UnixStream::from(connection))
        });
    }
}

/// What is said, and an open file that goes along.
type Reply = io::Result<(Writer, Option<OwnedFd>)>;

fn plain(put: impl FnOnce(&mut Writer)) -> Reply {
    let mut out = Writer::default();
    out.unsigned(DONE);
    put(&mut out);
    Ok((out, None))
}

impl<S: Fn() -> Result<Named, String>> Keeper<S> {
    fn converse(&self, stream: &UnixStream) -> io::Result<()> {
        while let Some((bytes, file)) = receive(stream, REQUEST_BYTES_MAX)? {
            let request = Request::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
            let reply = match request {
                Request::FileSystems => self.file_systems(stream),
                Request::Open(asker, path) => {
                    let opened = reach::open(&asker, &Name::of(&path)).and_then(|fd| self.checked(fd.as_fd()));
                    reached(opened)
                }
                Request::CheckWay(asker) => match file {
                    Some(file) => {
                        let checked = self.checked(file.as_fd());
                        let way = checked.and_then(|_| reach::check_way_to(&asker, file.as_fd()));
                        reached(way.map(|()| None))
                    }
                    None => Err(io::ErrorKind::InvalidInput.into()),
                },
                Request::Tokens => self.tokens(),
                Request::GiveBack => {
                    memory::give_back();
                    plain(|_| {})
                }
                Request::Forget(number) => {
                    self.kept.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
                    plain(|_| {})
                }
                Request::Of(number, ask) => {
                    let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
                    match kept {
                        Some(kept) => kept.answer(ask, stream),
                        None => Err(io::Error::other("it isn't tracked any more")),
                    }
                }
            };
            match reply {
                Ok((out, file)) => send(stream, &out.0, file.as_ref().map(AsFd::as_fd))?,
                Err(error) => {
                    let mut out = Writer::default();
                    out.unsigned(FAILED);
                    put_error(&mut out, &error);
                    send(stream, &out.0, None)?;
                }
            }
        }
        Ok(())
    }

    /// Only directories of the file systems that are named go out, for their facts alone.
    fn checked(&self, directory: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Refusal> {
        let not_tracked = |_| Refusal::NotTracked;
        let stat = files::statx_fd(directory).map_err(not_tracked)?;
        let handle = handle_at(directory, c"").ok();
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let is_kept = stat.file_type() == files::EntryType::Dir
            && kept.values().map(|kept| &kept.volume).any(|volume| {
                let id = || volume.id_of(&stat, handle.as_ref());
                volume.may_hold(stat.dev) && id().is_some_and(|id| volume.is_it(&stat, id))
            });
        match is_kept {
            true => files::open_handle_at(directory, c".").map(Some).map_err(not_tracked),
            false => Err(Refusal::NotTracked),
        }
    }

    fn tokens(&self) -> Reply {
        let path = self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone();
        let path = path.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no file of tokens is named"))?;
        let tokens = Tokens::read(&path)?;
        plain(|out| tokens.put(out))
    }

    /// What a text declares; what was declared before where that is the same.
    fn declare(&self, text: &str) -> io::Result<Option<Arc<Declared>>> {
        let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Declared::parse_without_commands(text).map_err(io::Error::other)?;
        if now.has_commands() && !self.runs_commands {
            return Err(io::Error::other("a summary by a command is declared now: that takes a restart"));
        }
        if hash(declared.as_ref()) != now.hash() {
            let now = Declared::parse(text).map_err(io::Error::other)?;
            *declared = Some(Arc::new(now)).filter(|now| !now.is_empty());
        }
        Ok(declared.clone())
    }

    /// Tells the text that declares summaries, then each path of the settings: its file system, with its top and with the group
    /// that watches it; or why not.
    fn file_systems(&self, stream: &UnixStream) -> Reply {
        let named = (self.settings)().map_err(io::Error::other)?;
        let declared = self.declare(&named.summaries)?;
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = named.tokens;
        let mut out = Writer::default();
        out.unsigned(PART);
        out.bytes(named.summaries.as_bytes());
        send(stream, &out.0, None)?;
        let mut kept = BTreeMap::new();
        let tracked = named.paths.iter().map(|path| (path, None));
        // All at once, and after those that answer.
        let timed = named.timed.iter().map(|path| (path, Some(self.openings.begin(path, open_timed))));
        let timed: Vec<_> = timed.collect();
        let until = Instant::now() + ANSWERS_WITHIN;
        for (path, timed) in tracked.chain(timed) {
            let mut out = Writer::default();
            out.unsigned(PART);
            out.bytes(path.as_os_str().as_bytes());
            let timed = timed.map(|opening| (opening, until));
            match self.keep((path, timed), (declared.as_ref(), named.sizes_follow), &kept) {
                Ok((number, one)) => {
                    let volume = &one.volume;
                    out.unsigned(DONE);
                    out.unsigned(number.into());
                    let family = volume.family();
                    out.unsigned(FAMILIES.iter().position(|&known| known == family).unwrap_or(0) as u64);
                    put_id(&mut out, volume.root());
                    let facts = volume.facts();
                    out.unsigned(facts.dev);
                    out.unsigned(u64::from(facts.is_btrfs));
                    out.unsigned(METHODS.iter().position(|&method| method == volume.method()).unwrap_or(0) as u64);
                    out.signed(volume.settling_seconds());
                    out.unsigned(u64::from(volume.moves_change_times()));
                    out.unsigned(u64::from(volume.sizes_follow() == SizesFollow::Close));
                    let (identity, before) = &one.names;
                    out.bytes(identity);
                    out.unsigned(before.is_some().into());
                    out.bytes(before.as_deref().unwrap_or_default());
                    send(stream, &out.0, Some(volume.top()))?;
                    send(stream, &[], Some(one.group.as_fd()))?;
                    // The daemon may see other mounts.
                    send(stream, &[], Some(MountWatch::new()?.into_file().as_fd()))?;
                    kept.insert(number, one);
                }
                Err((step, error)) => {
                    out.unsigned(FAILED);
                    out.bytes(step.as_bytes());
                    put_error(&mut out, &error);
                    send(stream, &out.0, None)?;
                }
            }
        }
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = kept;
        plain(|_| {})
    }

    /// The file system of a path, under the number that it has when it is kept already, with these summaries, and watched so. One that
    /// doesn't answer in time and is kept stays as it is.
    fn keep(
        &self,
        (path, timed): (&Path, Option<(Opening<Timed>, Instant)>),
        (declared, sizes): (Option<&Arc<Declared>>, SizesFollow),
        new: &BTreeMap<u32, Arc<Kept>>,
    ) -> Result<(u32, Arc<Kept>), (&'static str, io::Error)> {
        let is_timed = timed.is_some();
        let failed = |error| ("track its file system", error);
        let opened = match timed {
            Some((opening, until)) => opening.wait(until),
            None => Volume::of(path).and_then(|volume| names(&volume).map(|names| (volume, names))),
        };
        let (volume, names) = match opened {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let before = self.kept.read().unwrap_or_else(PoisonError::into_inner);
                let is_it = |kept: &Kept| {
                    kept.path == path
                        && !kept.volume.changes_are_told()
                        && hash(kept.volume.declared().as_ref()) == hash(declared)
                };
                let kept = before.iter().find(|(_, kept)| is_it(kept));
                return kept.map(|(&number, kept)| (number, Arc::clone(kept))).ok_or_else(|| failed(error));
            }
            opened => opened.map_err(failed)?,
        };
        let volume = volume.with_sizes(sizes);
        let facts = volume.facts();
        // Two paths on the same one, maybe by different mounts; then one that was there before.
        let named_twice = new.iter().find(|(_, kept)| kept.volume.facts().is_same_system(&facts));
        let before = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let (sizes, settling) = (volume.sizes_follow(), volume.settling_seconds());
        let is_same = |other: &Volume| {
            (other.facts(), other.sizes_follow(), other.settling_seconds()) == (facts, sizes, settling)
                && other.changes_are_told() != is_timed
                && hash(other.declared().as_ref()) == hash(declared)
        };
        let was_there = || before.iter().find(|(_, kept)| is_same(&kept.volume));
        if let Some((&number, kept)) = named_twice.or_else(was_there) {
            return Ok((number, Arc::clone(kept)));
        }
        drop(before);
        // Where nobody tells anything, nothing is watched.
        let group = if is_timed { Group::new(true) } else { tracker::watch(volume.top(), true, sizes) };
        let group = group.map_err(|error| ("watch its file system", error))?;
        let volume = volume.with_summaries(declared.cloned());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        Ok((*last, Arc::new(Kept { path: path.to_owned(), volume, group, names })))
    }
}

fn hash(declared: Option<&Arc<Declared>>) -> u64 {
    declared.map_or(0, |declared| declared.hash())
}

fn reached(reached: Result<Option<OwnedFd>, Refusal>) -> Reply {
    let mut out = Writer::default();
    out.unsigned(DONE);
    match reached {
        Ok(fd) => {
            out.unsigned(0);
            return Ok((out, fd));
        }
        Err(Refusal::NotTracked) => out.unsigned(1),
        // Who only opens a directory waits for nothing.
        Err(Refusal::Denied | Refusal::Late) => out.unsigned(2),
        Err(Refusal::Failed(why)) => {
            out.unsigned(3);
            out.bytes(why.as_bytes());
        }
    }
    Ok((out, None))
}

impl Kept {
    fn answer(&self, ask: Ask, stream: &UnixStream) -> Reply {
        let volume = &self.volume;
        let put_ids = |ids: Vec<NodeId>| plain(|out| put_all(out, &ids, |out, &id| put_id(out, id)));
        match ask {
            Ask::SetKey(key) => {
                volume.set_key(key);
                plain(|_| {})
            }
            Ask::Read(ids, entries_max) if ids.len() <= IDS_MAX => {
                let mut out = Writer::default();
                out.unsigned(DONE);
                let entries_max = usize::try_from(entries_max).unwrap_or(usize::MAX);
                volume.read_each(&ids, entries_max, |reading| {
                    put_outcome(&mut out, reading, |out, reading| put_reading(out, &reading));
                });
                Ok((out, None))
            }
            Ask::Read(..) => Err(io::ErrorKind::InvalidInput.into()),
            Ask::Look(id) => {
                let linked = volume.look(id)?;
                plain(|out| put_linked(out, &linked))
            }
            Ask::IsWritten(id) => {
                let is_written = volume.is_written(id)?;
                plain(|out| out.unsigned(is_written.into()))
            }
            Ask::LookEach(ids) if ids.len() <= IDS_MAX => plain(|out| {
                volume
                    .look_each(&ids)
                    .into_iter()
                    .for_each(|found| put_outcome(out, found, |out, linked| put_linked(out, &linked)));
            }),
            Ask::AreWritten(ids) if ids.len() <= IDS_MAX => plain(|out| {
                let put = |out: &mut Writer, is_written: bool| out.unsigned(is_written.into());
                volume.are_written(&ids).into_iter().for_each(|found| put_outcome(out, found, put));
            }),
            Ask::Heed(ids) if ids.len() <= IDS_MAX => plain(|out| {
                volume.heed(&self.group, &ids).into_iter().for_each(|done| put_outcome(out, done, |_, ()| {}));
            }),
            Ask::LookEach(_) | Ask::AreWritten(_) | Ask::Heed(_) => Err(io::ErrorKind::InvalidInput.into()),
            Ask::OpenByLostNames => put_ids(volume.open_by_lost_names()),
            Ask::OpenForWriting => {
                let open = volume.open_for_writing()?;
                let has_silent_overlays = volume.has_silent_overlays();
                plain(|out| {
                    put_all(out, &open, put_open);
                    out.unsigned(has_silent_overlays.into());
                })
            }
            Ask::Sync => volume.sync().and_then(|()| plain(|_| {})),
            Ask::BeginBulk => {
                let has_begun = volume.begin_bulk();
                plain(|out| out.unsigned(has_begun.into()))
            }
            Ask::EndBulk => {
                volume.end_bulk();
                plain(|_| {})
            }
            Ask::BringIn(None) => {
                volume.bring_in(&Wanted::Most);
                plain(|_| {})
            }
            Ask::BringIn(Some(directories)) => {
                // Where nobody answers any more, nothing more is wanted.
                let is_wanted = |id| asks_back(stream, id).unwrap_or(false);
                volume.bring_in(&Wanted::Some { directories: &directories, is_wanted: &is_wanted });
                plain(|_| {})
            }
            Ask::Parent(id) => put_ids(vec![volume.parent(id)?]),
            Ask::Remounted => {
                let Remounted { directories, is_partial } = volume.remounted();
                plain(|out| {
                    put_all(out, &directories, |out, &id| put_id(out, id));
                    out.unsigned(is_partial.into());
                })
            }
            Ask::Generation => {
                let generation = volume.generation()?;
                plain(|out| out.unsigned(generation))
            }
            Ask::Survey(since, subvolumes) => {
                let stream = Mutex::new(stream);
                volume.survey(since, &subvolumes, &|batch| {
                    let mut out = Writer::default();
                    out.unsigned(PART);
                    put_all(&mut out, batch, put_seen);
                    // Where nobody takes it, the end isn't taken either.
                    let _ = send(*stream.lock().unwrap_or_else(PoisonError::into_inner), &out.0, None);
                })?;
                plain(|_| {})
            }
            Ask::Ignore(ids) => {
                let are_ignored = volume.ignore(&self.group, &ids);
                plain(|out| put_all(out, &are_ignored, |out, &is_ignored| out.unsigned(is_ignored.into())))
            }
            Ask::HandleOf(id) => {
                let handle = volume.handle_of(id)?;
                plain(|_| {}).map(|(out, _)| (out, Some(handle)))
            }
            Ask::AccessList(id) => {
                let list = volume.access_list(id);
                plain(|out| {
                    out.unsigned(u64::from(list.is_some()));
                    out.bytes(&list.unwrap_or_default());
                })
            }
        }
    }
}

/// One of several things that were asked for, or why it isn't known.
fn put_outcome<T>(out: &mut Writer, outcome: io::Result<T>, put: impl FnOnce(&mut Writer, T)) {
    match outcome {
        Ok(found) => {
            out.unsigned(DONE);
            put(out, found);
        }
        Err(error) => {
            out.unsigned(FAILED);
            put_error(out, &error);
        }
    }
}

/// Asks the daemon whether a directory is wanted.
fn asks_back(stream: &UnixStream, id: NodeId) -> io::Result<bool> {
    let mut out = Writer::default();
    out.unsigned(PART);
    put_id(&mut out, id);
    send(stream, &out.0, None)?;
    let (answer, _) = receive(stream, REQUEST_BYTES_MAX)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Reader(&answer).unsigned() == Some(1))
}
