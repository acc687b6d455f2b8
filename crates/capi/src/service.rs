//! Totals of directories, asked of `onesweep serve`: FastDu's `QueryDirStatistics`.

use std::{
    ffi::{c_char, c_int},
    io,
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use onesweep_summary::{
    service::{
        client::Client,
        default_socket,
        protocol::{Figures, Head, Question, Refusal, Row},
    },
    summaries::Freshness,
};
use onesweep_sys::files;

use crate::{
    fault::{
        Code, Fault, ONESWEEP_ERROR_CANCELLED, ONESWEEP_ERROR_CONNECTION, ONESWEEP_ERROR_DENIED,
        ONESWEEP_ERROR_NO_SERVER, ONESWEEP_ERROR_NOT_TRACKED, ONESWEEP_ERROR_REFUSED, ONESWEEP_ERROR_ROOT, guarded,
        look,
    },
    ffi::{descriptor, given, hand_out, path},
};

/// Freshness: what has changed is counted first.
pub const ONESWEEP_FRESHNESS_EXACT: u32 = 0;
/// Freshness: what the store holds, at once.
pub const ONESWEEP_FRESHNESS_CACHED: u32 = 1;
/// Freshness: what waits in memory is written to the disk before, so that allocated blocks are what they will be.
pub const ONESWEEP_FRESHNESS_SYNCED: u32 = 2;

/// A connection to a server of directory summaries. Several threads may ask, one after the other.
pub struct Service {
    client: Mutex<Client>,
    /// The client's socket, for who stops it while another thread asks, and has the client.
    socket: UnixStream,
    is_stopped: AtomicBool,
}

/// Sums over a directory.
#[repr(C)]
pub struct Totals {
    /// Bytes as sizes tell them, but for directories.
    pub bytes: i64,
    /// Bytes of directories as their sizes tell them.
    pub directory_bytes: i64,
    /// Bytes that are allocated.
    pub allocated: i64,
    /// Bytes that removing it would free; 0 in a partial answer.
    pub freed: i64,
    /// Regular files.
    pub files: i64,
    /// Directories.
    pub directories: i64,
    /// Everything else.
    pub others: i64,
}

/// What a directory comes to.
#[repr(C)]
pub struct Summary {
    /// With all that is below.
    pub total: Totals,
    /// Without the directories in it.
    pub own: Totals,
    /// The newest change of a content, in seconds since 1970; 0 when `has_newest` is false.
    pub newest: i64,
    /// Bytes of the largest file; 0 when `has_largest` is false.
    pub largest: u64,
    /// When it was counted, in seconds since 1970.
    pub harvested_at: i64,
    /// Directories below that could not be read.
    pub unreadable: u64,
    /// Whether `newest` is known.
    pub has_newest: bool,
    /// Whether `largest` is known.
    pub has_largest: bool,
    /// Whether nothing is known to have changed since it was counted.
    pub is_exact: bool,
    /// Whether something was left out that the user may not see.
    pub is_partial: bool,
    /// For later versions; 0.
    pub reserved: [u64; 4],
}

impl Totals {
    fn of(figures: &Figures) -> Self {
        let Figures { bytes, directory_bytes, allocated, freed, files, directories, others } = *figures;
        Self { bytes, directory_bytes, allocated, freed, files, directories, others }
    }
}

impl Summary {
    fn of(head: &Head, row: &Row) -> Self {
        Self {
            total: Totals::of(&row.total),
            own: Totals::of(&row.own),
            newest: row.newest.unwrap_or(0),
            largest: row.largest.unwrap_or(0),
            harvested_at: head.harvested_at,
            unreadable: head.unreadable,
            has_newest: row.newest.is_some(),
            has_largest: row.largest.is_some(),
            is_exact: head.exact,
            is_partial: head.partial,
            reserved: [0; 4],
        }
    }
}

fn freshness(value: u32) -> Result<Freshness, Fault> {
    match value {
        ONESWEEP_FRESHNESS_EXACT => Ok(Freshness::Exact),
        ONESWEEP_FRESHNESS_CACHED => Ok(Freshness::Cached),
        ONESWEEP_FRESHNESS_SYNCED => Ok(Freshness::Synced),
        _ => Err(Fault::argument(format!("freshness {value} is unknown"))),
    }
}

impl Service {
    fn connect(socket: &Path) -> io::Result<Self> {
        let client = Client::connect(socket)?;
        let socket = client.socket()?;
        Ok(Self { client: Mutex::new(client), socket, is_stopped: AtomicBool::new(false) })
    }

    fn stop(&self) {
        // First, so that who meets the end of the connection knows why.
        self.is_stopped.store(true, Ordering::Release);
        // What is not connected any more needs no end.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn ask(&self, directory: &OwnedFd, shown: &str, freshness: Freshness) -> Result<Summary, Fault> {
        let question = Question { freshness, ..Question::plain() };
        let mut told = None;
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let broke = |error: &io::Error| {
            if self.is_stopped.load(Ordering::Acquire) {
                return Fault::new(
                    ONESWEEP_ERROR_CANCELLED,
                    format!("stopped before {shown} was told of; connect again"),
                );
            }
            Fault::io(ONESWEEP_ERROR_CONNECTION, error, format!("cannot ask for {shown}: {error}; connect again"))
        };
        let head = client.ask(directory.as_fd(), &question, |row| told = Some(row)).map_err(|error| broke(&error))?;
        let head = head.map_err(|refusal| match refusal {
            Refusal::NotTracked => {
                Fault::new(ONESWEEP_ERROR_NOT_TRACKED, format!("{shown}: is on no file system that the server tracks"))
            }
            Refusal::Denied => Fault::new(ONESWEEP_ERROR_DENIED, format!("{shown}: may not be reached by this user")),
            Refusal::Late => Fault::new(ONESWEEP_ERROR_REFUSED, format!("{shown}: the server doesn't know it yet")),
            Refusal::Failed(why) => Fault::new(ONESWEEP_ERROR_REFUSED, format!("{shown}: {why}")),
        })?;
        let row = told.ok_or_else(|| broke(&io::ErrorKind::InvalidData.into()))?;
        Ok(Summary::of(&head, &row))
    }
}

/// Connects to the server that listens at `socket`; NULL: at $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock. `service` gets a
/// handle, or NULL when the call fails.
///
/// Errors: ARGUMENT, NO_SERVER.
///
/// # Safety
///
/// `socket` is a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_service_connect(
    socket: *const c_char,
    service: Option<&mut MaybeUninit<*mut Service>>,
) -> Code {
    guarded(|| {
        hand_out(service, || {
            let socket = match socket.is_null() {
                true => default_socket(),
                // SAFETY: the caller promises it.
                false => unsafe { path(socket, "the socket") }?.to_owned(),
            };
            Service::connect(&socket).map_err(|error| {
                let text = format!("no server listens at {}: {error}; start onesweep serve", socket.display());
                Fault::io(ONESWEEP_ERROR_NO_SERVER, &error, text)
            })
        })
    })
}

/// Ends a connection. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_service_free(service: Option<Box<Service>>) {
    look((), || drop(service));
}

/// Ends what a connection is asked: the question that waits for its answer, those of other threads that wait for their turn, and
/// all later ones are CANCELLED, at once. A server that has just begun may answer in minutes only. Safe in any thread, in signal
/// handlers (errno may be another one then), and more than once; the handle is freed as ever, when these calls have returned. NULL is
/// ignored. Since 1.1.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_service_stop(service: Option<&Service>) {
    if let Some(service) = service {
        service.stop();
    }
}

/// What a directory comes to with all below: the figures of `du`, as this user may see them, without a crawl. What is mounted
/// below isn't in it, so it has to be asked for by itself; other subvolumes of a btrfs are. `freshness` is one of the
/// ONESWEEP_FRESHNESS_ constants.
///
/// It returns when the server has answered, however long that takes; `onesweep_service_stop` ends it.
///
/// Errors: ARGUMENT; ROOT when the directory can't be opened; NOT_TRACKED, DENIED, REFUSED; CONNECTION; CANCELLED.
///
/// # Safety
///
/// `directory` is a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_service_summary(
    service: Option<&Service>,
    directory: *const c_char,
    freshness: u32,
    summary: Option<&mut MaybeUninit<Summary>>,
) -> Code {
    guarded(|| {
        let (service, summary) = (given(service, "the service")?, given(summary, "the summary")?);
        let freshness = self::freshness(freshness)?;
        // SAFETY: the caller promises it.
        let directory: &Path = unsafe { path(directory, "the directory") }?;
        let shown = directory.display().to_string();
        let open = files::open_dir_handle(directory)
            .map_err(|error| Fault::io(ONESWEEP_ERROR_ROOT, &error, format!("{shown}: {error}")))?;
        summary.write(service.ask(&open, &shown, freshness)?);
        Ok(())
    })
}

/// The same for an open directory, which stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_service_summary_fd(
    service: Option<&Service>,
    directory_fd: c_int,
    freshness: u32,
    summary: Option<&mut MaybeUninit<Summary>>,
) -> Code {
    guarded(|| {
        let (service, summary) = (given(service, "the service")?, given(summary, "the summary")?);
        let freshness = self::freshness(freshness)?;
        let open = descriptor(directory_fd)?;
        summary.write(service.ask(&open, &format!("descriptor {directory_fd}"), freshness)?);
        Ok(())
    })
}
