//! The side without rights: file systems that the warden opens for it.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use onesweep_sys::{
    fanotify::Group,
    files::Stat,
    memory,
    mounting::{MountWatch, mount_id},
    peer, priority,
};

use super::{
    keeper::{CONNECT, CONNECT_IDLE, END},
    request::{Ask, DONE, FAILED, FAMILIES, IDS_MAX, METHODS, PART, REPLY_BYTES_MAX, Request},
    wire::{all, error, id, linked, open, reading, receive, seen, send},
};
use crate::{
    access::Asker,
    access_lists::AccessLists,
    code::Reader,
    custom::declare::Declared,
    file_system::FileSystem,
    identity::{Family, NodeId},
    reading::{Directories, LinkedName, OpenFile, Reading, Remounted, Wanted},
    service::{
        http::tokens::Tokens,
        protocol::{Name, Refusal},
        reach::Reach,
    },
    survey::{Method, Tell},
    tracker::SizesFollow,
    volume::{self, VolumeFacts},
};

/// Connections that are kept for the next who asks: as many as a harvest reads at a time, and some.
const SPARE_MAX: usize = 40;
/// Those that are kept when there is nothing to harvest. Each is a thread of the warden.
const SPARE_AT_REST: usize = 2;

/// So many requests may wait at the same time for file systems that may not answer: all others find room beside them.
const TIMED_MAX: usize = 512;

/// The warden, as the daemon knows it.
pub struct Warden {
    control: UnixStream,
    /// Each who waits for one of those has one more of it.
    of_timed: Arc<()>,
    spare: Mutex<Spare>,
    /// It is gone: then the daemon has to go, too.
    lost: Box<dyn Fn(&io::Error) + Send + Sync>,
    is_ending: AtomicBool,
}

#[derive(Default)]
struct Spare {
    quick: Vec<UnixStream>,
    idle: Vec<UnixStream>,
}

impl Spare {
    fn of(&mut self, is_idle: bool) -> &mut Vec<UnixStream> {
        if is_idle { &mut self.idle } else { &mut self.quick }
    }
}

impl std::fmt::Debug for Warden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Warden({:?})", self.control)
    }
}

/// A path of the settings: its file system and the group that watches it, or which step failed and why.
pub type Found = (PathBuf, Result<(Arc<Guarded>, Group), (String, io::Error)>);

/// The warden says what no warden says.
fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the warden's answer can't be understood")
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the warden has ended")
}

impl Warden {
    /// The warden at the other end of a socket. `lost` is told when it doesn't answer any more.
    pub fn new(control: UnixStream, lost: impl Fn(&io::Error) + Send + Sync + 'static) -> Arc<Warden> {
        Arc::new(Warden {
            control,
            of_timed: Arc::default(),
            spare: Mutex::default(),
            lost: Box::new(lost),
            is_ending: AtomicBool::new(false),
        })
    }

    /// Says that the daemon ends, and needs it no more. Who asks it from now on never gets an answer.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        // Who is gone has ended.
        let _ = io::Write::write_all(&mut &self.control, &[END]);
    }

    /// Much was asked, and isn't any more: both give back what they don't need for what follows.
    pub fn rest(&self) {
        {
            let Spare { quick, idle } = &mut *self.spare();
            quick.truncate(SPARE_AT_REST);
            idle.truncate(SPARE_AT_REST);
        }
        // Who can't be asked has told so.
        let _ = self.simple(&Request::GiveBack);
        memory::give_back();
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, is_idle: bool) -> io::Result<UnixStream> {
        if let Some(stream) = self.spare().of(is_idle).pop() {
            return Ok(stream);
        }
        let (ours, its) = UnixStream::pair()?;
        let kind = if is_idle { CONNECT_IDLE } else { CONNECT };
        peer::send_with_file(self.control.as_fd(), &[kind], its.as_fd())?;
        Ok(ours)
    }

    /// Sends a request, gives each part of the reply to `part`, and returns its end. An error of its own ends the reply.
    fn ask(
        &self,
        request: &Request,
        file: Option<BorrowedFd<'_>>,
        mut part: impl FnMut(&UnixStream, Reader<'_>, Option<OwnedFd>) -> io::Result<()>,
    ) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let is_idle = priority::is_idle_io();
        let mut exchange = || {
            let stream = self.connect(is_idle)?;
            send(&stream, &request.encode(), file)?;
            loop {
                let (reply, file) = receive(&stream, REPLY_BYTES_MAX)?.ok_or_else(gone)?;
                let mut from = Reader(&reply);
                match from.unsigned() {
                    Some(DONE) => {
                        let rest = from.0.to_vec();
                        return Ok((stream, Ok((rest, file))));
                    }
                    Some(FAILED) => return Ok((stream, Err(error(&mut from).ok_or_else(strange)?))),
                    Some(PART) => part(&stream, from, file)?,
                    _ => return Err(strange()),
                }
            }
        };
        match exchange() {
            Ok((stream, reply)) => {
                let mut spare = self.spare();
                let spare = spare.of(is_idle);
                if spare.len() < SPARE_MAX {
                    spare.push(stream);
                }
                reply
            }
            Err(error) => {
                // Whatever is under way ends here: nobody waits for it, and it could only go wrong.
                while self.is_ending.load(Ordering::SeqCst) {
                    thread::park();
                }
                (self.lost)(&error);
                Err(error)
            }
        }
    }

    fn seat_of_timed(&self) -> io::Result<Arc<()>> {
        let seat = Arc::clone(&self.of_timed);
        match Arc::strong_count(&seat) <= TIMED_MAX + 1 {
            true => Ok(seat),
            false => Err(io::Error::new(io::ErrorKind::TimedOut, "too much waits already for what doesn't answer")),
        }
    }

    fn simple(&self, request: &Request) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        self.ask(request, None, |_, _, _| Err(strange()))
    }

    /// Has it read the settings again, and tell of each path that they name. A file system that was told before has the same
    /// number.
    /// Where other summaries are declared than before, all file systems have other numbers.
    pub fn file_systems(self: &Arc<Self>) -> io::Result<Vec<Found>> {
        let (mut found, mut declared) = (Vec::new(), None);
        self.ask(&Request::FileSystems, None, |stream, mut from, top| {
            let Some(declared) = &declared else {
                let text = String::from_utf8_lossy(from.bytes().ok_or_else(strange)?);
                let told = Declared::parse_without_commands(&text).map_err(|_| strange())?;
                declared = Some(Some(Arc::new(told)).filter(|told| !told.is_empty()));
                return Ok(());
            };
            let path = PathBuf::from(OsStr::from_bytes(from.bytes().ok_or_else(strange)?));
            let one = match from.unsigned() {
                Some(DONE) => {
                    let (_, group) = receive(stream, 0)?.ok_or_else(gone)?;
                    let (_, watch) = receive(stream, 0)?.ok_or_else(gone)?;
                    let ((top, group), watch) = top.zip(group).zip(watch).ok_or_else(strange)?;
                    let guarded = Guarded::told(&mut from, (top, watch.into()), Arc::clone(self));
                    let guarded = Guarded { declared: declared.clone(), ..guarded.ok_or_else(strange)? };
                    Ok((Arc::new(guarded), Group::from(group)))
                }
                Some(FAILED) => {
                    let step = from.bytes().map(|step| String::from_utf8_lossy(step).into_owned());
                    Err(step.zip(error(&mut from)).ok_or_else(strange)?)
                }
                _ => return Err(strange()),
            };
            found.push((path, one));
            Ok(())
        })?;
        Ok(found)
    }

    /// One of the file systems that were told isn't tracked after all.
    pub fn forget(&self, number: u32) {
        // Who can't be asked has told so.
        let _ = self.simple(&Request::Forget(number));
    }

    /// Who has which token by HTTP.
    pub fn tokens(&self) -> io::Result<Tokens> {
        let (reply, _) = self.simple(&Request::Tokens)?;
        Tokens::take(&mut Reader(&reply)).ok_or_else(strange)
    }
}

/// What it says of who asks for a directory.
fn reached(reply: io::Result<(Vec<u8>, Option<OwnedFd>)>) -> Result<Option<OwnedFd>, Refusal> {
    let (reply, file) = reply.map_err(|error| Refusal::Failed(error.to_string()))?;
    let mut from = Reader(&reply);
    match from.unsigned() {
        Some(0) => Ok(file),
        Some(1) => Err(Refusal::NotTracked),
        Some(2) => Err(Refusal::Denied),
        _ => Err(Refusal::Failed(String::from_utf8_lossy(from.bytes().unwrap_or_default()).into_owned())),
    }
}

impl Reach for Arc<Warden> {
    fn open(&self, asker: &Asker, path: &Name) -> Result<OwnedFd, Refusal> {
        let request = Request::Open(asker.clone(), path.clone().into_bytes());
        reached(self.simple(&request))?.ok_or(Refusal::NotTracked)
    }

    fn check_way_to(&self, asker: &Asker, directory: BorrowedFd<'_>) -> Result<(), Refusal> {
        let request = Request::CheckWay(asker.clone());
        reached(self.ask(&request, Some(directory), |_, _, _| Err(strange()))).map(drop)
    }
}

/// A file system that the warden opens.
#[derive(Debug)]
pub struct Guarded {
    warden: Arc<Warden>,
    number: u32,
    top: OwnedFd,
    /// None where nobody tells what changes.
    family: Option<Family>,
    facts: VolumeFacts,
    method: Option<Method>,
    settling_seconds: i64,
    moves_change_times: bool,
    sizes: SizesFollow,
    has_silent_overlays: AtomicBool,
    identity: Vec<u8>,
    identity_before: Option<Vec<u8>>,
    /// The warden reads with these, too, and runs their commands.
    declared: Option<Arc<Declared>>,
    watch: MountWatch,
    /// What is mounted was asked for since this has changed last.
    knows_mounts: Mutex<bool>,
    access_lists: AccessLists,
}

impl Guarded {
    fn told(from: &mut Reader<'_>, (top, watch): (OwnedFd, MountWatch), warden: Arc<Warden>) -> Option<Guarded> {
        let number = from.small()?;
        let family = FAMILIES.get(from.unsigned()? as usize).copied()?;
        let (root, dev, is_btrfs) = (id(from)?, from.unsigned()?, from.unsigned()? == 1);
        let method = METHODS.get(from.unsigned()? as usize).copied()?;
        let settling_seconds = from.signed()?;
        let moves_change_times = from.unsigned()? == 1;
        let sizes = if from.unsigned()? == 1 { SizesFollow::Close } else { SizesFollow::Write };
        let identity = from.bytes()?.to_vec();
        let (has_another, before) = (from.unsigned()? == 1, from.bytes()?.to_vec());
        let mount = is_btrfs.then(|| mount_id(top.as_fd()).ok()).flatten();
        Some(Guarded {
            warden,
            number,
            top,
            family,
            facts: VolumeFacts { root, mount, dev, is_btrfs },
            method,
            settling_seconds,
            moves_change_times,
            sizes,
            has_silent_overlays: AtomicBool::new(false),
            identity,
            identity_before: has_another.then_some(before),
            declared: None,
            watch,
            knows_mounts: Mutex::new(false),
            access_lists: AccessLists::default(),
        })
    }

    /// The warden's number for it, which no other one gets.
    pub fn number(&self) -> u32 {
        self.number
    }

    fn ask(&self, ask: Ask) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let _seat = if self.changes_are_told() { None } else { Some(self.warden.seat_of_timed()?) };
        self.warden.simple(&Request::Of(self.number, ask))
    }

    fn asked<T>(&self, ask: Ask, take: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> io::Result<T> {
        let (reply, _) = self.ask(ask)?;
        take(&mut Reader(&reply)).ok_or_else(strange)
    }

    /// What is asked of each of several inodes.
    fn asked_each<T>(
        &self,
        inodes: &[NodeId],
        ask: impl Fn(Vec<NodeId>) -> Ask,
        take: impl Fn(&mut Reader<'_>) -> Option<T>,
    ) -> Vec<io::Result<T>> {
        let mut found = Vec::with_capacity(inodes.len());
        for ids in inodes.chunks(IDS_MAX) {
            let take_all = |from: &mut Reader<'_>| {
                let one = |from: &mut Reader<'_>| match from.unsigned()? {
                    DONE => Some(Ok(take(from)?)),
                    _ => Some(Err(error(from)?)),
                };
                ids.iter().map(|_| one(from)).collect::<Option<Vec<_>>>()
            };
            match self.asked(ask(ids.to_vec()), take_all) {
                Ok(some) => found.extend(some),
                Err(error) => found.extend(ids.iter().map(|_| Err(io::Error::new(error.kind(), error.to_string())))),
            }
        }
        found
    }

    /// A reading, if it tells of the summaries that are declared.
    fn understood(&self, reading: Reading) -> Option<Reading> {
        if let (Some(found), Some(declared)) = (&reading.custom, &self.declared) {
            found.note_failures(declared);
        }
        let is_of = match (&reading.custom, &self.declared) {
            (Some(found), Some(declared)) => found.is_of(declared),
            (found, declared) => found.is_none() && declared.is_none(),
        };
        is_of.then_some(reading)
    }

    fn knows_mounts(&self) -> MutexGuard<'_, bool> {
        let mut knows = self.knows_mounts.lock().unwrap_or_else(PoisonError::into_inner);
        *knows &= !self.watch.has_changed();
        knows
    }
}

impl FileSystem for Guarded {
    fn may_hold(&self, dev: u64) -> bool {
        self.facts.may_hold(dev)
    }

    fn is_it(&self, stat: &Stat, id: NodeId) -> bool {
        volume::is_it(self, &self.facts, stat, id)
    }

    fn root(&self) -> NodeId {
        self.facts.root
    }

    fn number(&self) -> Option<u32> {
        Some(self.number)
    }

    fn family(&self) -> Option<Family> {
        self.family
    }

    fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    fn identity(&self) -> io::Result<Vec<u8>> {
        Ok(self.identity.clone())
    }

    fn identity_before(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.identity_before.clone())
    }

    fn handle_of(&self, directory: NodeId) -> io::Result<OwnedFd> {
        self.ask(Ask::HandleOf(directory))?.1.ok_or_else(strange)
    }

    fn access_list(&self, directory: NodeId) -> Option<Vec<u8>> {
        let take = |from: &mut Reader<'_>| Some((from.unsigned()?, from.bytes()?.to_vec()));
        self.asked(Ask::AccessList(directory), take).ok().filter(|(has, _)| *has == 1).map(|(_, list)| list)
    }

    fn access_lists(&self) -> &AccessLists {
        &self.access_lists
    }

    fn ignore(&self, _: &Group, directories: &[NodeId]) -> Vec<bool> {
        if !self.changes_are_told() {
            return vec![true; directories.len()];
        }
        let some = |ids: &[NodeId]| {
            let take = |from: &mut Reader<'_>| all(from, |from| Some(from.unsigned()? == 1));
            let told = self.asked(Ask::Ignore(ids.to_vec()), take).ok().filter(|told| told.len() == ids.len());
            // Where that isn't known they may be ignored: to heed one that isn't does no harm.
            told.unwrap_or_else(|| vec![true; ids.len()])
        };
        directories.chunks(IDS_MAX).flat_map(some).collect()
    }

    fn heed(&self, _: &Group, directories: &[NodeId]) -> Vec<io::Result<()>> {
        if !self.changes_are_told() {
            return directories.iter().map(|_| Ok(())).collect();
        }
        self.asked_each(directories, Ask::Heed, |_| Some(()))
    }
}

impl Directories for Guarded {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        self.read_some(&[directory]).pop().unwrap_or_else(|| Err(strange()))
    }

    fn read_some(&self, directories: &[NodeId]) -> Vec<io::Result<Reading>> {
        self.read_some_up_to(directories, usize::MAX)
    }

    fn read_some_up_to(&self, directories: &[NodeId], entries_max: usize) -> Vec<io::Result<Reading>> {
        let ask = |ids| Ask::Read(ids, entries_max as u64);
        self.asked_each(directories, ask, |from| self.understood(reading(from)?))
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        self.asked(Ask::Look(inode), linked)
    }

    fn is_written(&self, inode: NodeId) -> io::Result<bool> {
        self.asked(Ask::IsWritten(inode), |from| Some(from.unsigned()? == 1))
    }

    fn look_each(&self, inodes: &[NodeId]) -> Vec<io::Result<LinkedName>> {
        self.asked_each(inodes, Ask::LookEach, linked)
    }

    fn are_written(&self, inodes: &[NodeId]) -> Vec<io::Result<bool>> {
        self.asked_each(inodes, Ask::AreWritten, |from| Some(from.unsigned()? == 1))
    }

    fn open_by_lost_names(&self) -> Vec<NodeId> {
        self.asked(Ask::OpenByLostNames, |from| all(from, id)).unwrap_or_default()
    }

    fn changes_are_told(&self) -> bool {
        self.family.is_some()
    }

    fn sizes_follow(&self) -> SizesFollow {
        self.sizes
    }

    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        let take = |from: &mut Reader<'_>| Some((all(from, open)?, from.unsigned()? == 1));
        let (files, has_silent_overlays) = self.asked(Ask::OpenForWriting, take)?;
        self.has_silent_overlays.store(has_silent_overlays, Ordering::Relaxed);
        Ok(files)
    }

    fn has_silent_overlays(&self) -> bool {
        self.has_silent_overlays.load(Ordering::Relaxed)
    }

    fn sync(&self) -> io::Result<()> {
        self.ask(Ask::Sync).map(drop)
    }

    fn settling_seconds(&self) -> i64 {
        self.settling_seconds
    }

    fn moves_change_times(&self) -> bool {
        self.moves_change_times
    }

    fn begin_bulk(&self) -> bool {
        self.asked(Ask::BeginBulk, |from| Some(from.unsigned()? == 1)).unwrap_or(false)
    }

    fn end_bulk(&self) {
        // Where it can't be asked, nothing is read any more.
        let _ = self.ask(Ask::EndBulk);
    }

    fn bring_in(&self, wanted: &Wanted<'_>) {
        let (ids, is_wanted) = match wanted {
            Wanted::Most => (None, None),
            Wanted::Some { directories, is_wanted } => (Some(directories.to_vec()), Some(is_wanted)),
        };
        let request = Request::Of(self.number, Ask::BringIn(ids));
        // What isn't brought in is read by the kernel when it is needed.
        let _ = self.warden.ask(&request, None, |stream, mut from, _| {
            let wanted = id(&mut from).zip(is_wanted).is_some_and(|(id, is_wanted)| is_wanted(id));
            send(stream, &[u8::from(wanted)], None)
        });
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        self.asked(Ask::Parent(directory), |from| all(from, id)?.pop())
    }

    fn remounted(&self) -> Remounted {
        let mut knows = self.knows_mounts();
        if *knows {
            return Remounted::default();
        }
        let take =
            |from: &mut Reader<'_>| Some(Remounted { directories: all(from, id)?, is_partial: from.unsigned()? == 1 });
        let told = self.asked(Ask::Remounted, take);
        let told = told.unwrap_or_else(|_| Remounted { is_partial: true, ..Remounted::default() });
        *knows = !told.is_partial;
        told
    }

    fn is_mounted_alike(&self) -> bool {
        *self.knows_mounts()
    }

    fn method(&self) -> Option<Method> {
        self.method
    }

    fn declared(&self) -> Option<Arc<Declared>> {
        self.declared.clone()
    }

    fn set_key(&self, key: u64) {
        // Without it nothing is read either.
        let _ = self.ask(Ask::SetKey(key));
    }

    fn generation(&self) -> io::Result<u64> {
        self.asked(Ask::Generation, |from| from.unsigned())
    }

    fn survey(&self, since: u64, subvolumes: &[u64], tell: Tell<'_>) -> io::Result<()> {
        let request = Request::Of(self.number, Ask::Survey(since, subvolumes.to_vec()));
        self.warden.ask(&request, None, |_, mut from, _| {
            tell(&all(&mut from, seen).ok_or_else(strange)?);
            Ok(())
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        code::Writer,
        warden::wire::{put_all, put_error, put_id},
    };

    #[test]
    fn what_does_not_answer_leaves_room_for_others() {
        let (control, _warden) = UnixStream::pair().expect("a pair");
        let warden = Warden::new(control, |error| panic!("{error}"));
        let mut seats: Vec<_> = (0..TIMED_MAX).map(|_| warden.seat_of_timed().expect("there is room")).collect();
        assert!(warden.seat_of_timed().is_err());
        seats.pop();
        assert!(warden.seat_of_timed().is_ok());
    }

    /// A warden that answers one request after the other with these, on whatever connection.
    fn warden_of(replies: Vec<Vec<u8>>) -> Arc<Warden> {
        let (control, its) = UnixStream::pair().expect("a pair");
        thread::spawn(move || {
            let mut replies = replies.into_iter();
            while let Ok((1, Some(connection))) = peer::receive_with_file(its.as_fd(), &mut [0]) {
                let connection = UnixStream::from(connection);
                while let Ok(Some(_)) = receive(&connection, REPLY_BYTES_MAX) {
                    let Some(reply) = replies.next() else { return };
                    send(&connection, &reply, None).expect("it is heard");
                }
            }
        });
        Warden::new(control, |error| panic!("{error}"))
    }

    fn guarded(warden: Arc<Warden>) -> Guarded {
        let root = NodeId { subvolume: 0, ino: 2, generation: 0 };
        Guarded {
            warden,
            number: 1,
            top: std::fs::File::open("/").expect("a directory").into(),
            family: Some(Family::Short),
            facts: VolumeFacts { root, mount: None, dev: 0, is_btrfs: false },
            method: None,
            settling_seconds: 0,
            moves_change_times: false,
            sizes: SizesFollow::Write,
            has_silent_overlays: AtomicBool::new(false),
            identity: Vec::new(),
            identity_before: None,
            declared: None,
            watch: MountWatch::new().expect("a watch"),
            knows_mounts: Mutex::new(false),
            access_lists: AccessLists::default(),
        }
    }

    /// The kernel tells the daemon and the warden once each that something is mounted.
    #[test]
    fn mounts_that_could_not_be_told_are_asked_for_again() {
        let mounted = NodeId { subvolume: 0, ino: 12, generation: 3 };
        let told = |directories: &[NodeId], is_partial: bool| {
            let mut out = Writer::default();
            out.unsigned(DONE);
            put_all(&mut out, directories, |out, &id| put_id(out, id));
            out.unsigned(is_partial.into());
            out.0
        };
        let mut failed = Writer::default();
        failed.unsigned(FAILED);
        put_error(&mut failed, &io::ErrorKind::TimedOut.into());
        let guarded = guarded(warden_of(vec![failed.0, told(&[], true), told(&[mounted], false)]));
        for _ in 0..2 {
            assert_eq!(guarded.remounted(), Remounted { directories: vec![], is_partial: true });
            assert!(!guarded.is_mounted_alike());
        }
        assert_eq!(guarded.remounted(), Remounted { directories: vec![mounted], is_partial: false });
    }
}
