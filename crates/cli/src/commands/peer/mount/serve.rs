//! The process that serves the device.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileTypeExt,
    },
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use onesweep_layout::{ImageFile, device::Devices};
use onesweep_peer::{
    id::TrustDomain,
    index::{DeviceIndex, Geometry, regions_written},
    marks::Marks,
    mount::{Device, DirectFile, NotStarted, Settings, Showing, Storage, Unsent, show},
    race::Policy,
};
use onesweep_sys::{allocator, block, files, process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{READY, bounds, patterns, stack};
use crate::{
    args::PeerMountArgs,
    commands::peer::{
        begin_to_connect,
        index::{draft, index_failure, open_file, place_of, put_in_place},
        marks::marks_of,
    },
    message,
    report::{Failure, SOME_FAILED},
};

/// Buffers so large are those of large writes: without this, 125 MiB of them were kept after 512 MiB had been written. Those of
/// the reads that a file system makes ahead are smaller, and are used again.
const LARGE_BUFFER: u32 = 256 << 10;
/// Reads that a device without a head is taken to serve at the same time.
pub(super) const LANES: usize = 8;

pub(super) fn run(args: &PeerMountArgs, path: &Path) -> Result<u8, Failure> {
    let dir = stack::absolute(&args.dir).map_err(|error| Failure::io(&args.dir, "show the device there", &error))?;
    // The process that watches over this one is told to end; what stands on the device has to go first.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    }
    allocator::keep_no_free_buffers(LARGE_BUFFER);
    let bound = bounds::bound_of_group();
    if bound.is_some() && !args.read_only {
        let what = "its control group (version 1) bounds memory: pages that it has yet to write could leave it none there; start \
                    it outside of the group, or give --read-only";
        return Err(Failure::could_not_run(path, "serve it", what));
    }
    // Before any other thread is made. In such a group nobody would wait for its pages, so that those of others, dirty, would
    // have it killed; they are not written by us.
    if bound.is_none()
        && let Err(error) = process::set_io_flusher()
    {
        tracing::warn!("memory that is short may hold it up: PR_SET_IO_FLUSHER: {error}");
    }
    let source = Source::open(args, path)?;
    let (peers, domain) = begin_to_connect(&args.servers)?;
    let index_path = match &args.index {
        Some(index) => index.clone(),
        None => place_of(path)?,
    };
    let marks = source.marks(path)?;
    let trace =
        args.trace.as_ref().map(|path| File::create(path).map_err(|error| Failure::io(path, "make it", &error)));
    let trace = trace.transpose()?;
    let places = patterns::places(path, &args.policies_of)?;
    if !args.policies_of.is_empty() {
        tracing::info!("{} places have a policy of their own", places.len());
    }
    if args.passthrough && source.is_device {
        let what = "it is a device, and the kernel passes files through alone; leave --passthrough out";
        return Err(Failure::could_not_run(path, "let the kernel read it", what));
    }
    let left_to_kernel = is_left_to_kernel(args, source.is_device, || is_seekless(path)).then(|| File::open(path));
    let left_to_kernel = left_to_kernel.transpose().map_err(|error| Failure::io(path, "open it", &error))?;
    let claim = source.storage.claim().map_err(|error| Failure::io(path, "open it", &error))?;
    let unsent = unsent(args, &index_path, source.storage.len())?;
    // From here on it counts as not closed: whatever else could fail came before, and what yet fails closes it again.
    let index = open_index(args, &index_path, source.storage.len(), &domain, marks.as_ref())?;
    if !index.is_believed() {
        tracing::info!(
            "each block counts once it was read from the disk: the index was not closed, or says nothing yet"
        );
    }
    let settings = Settings {
        places,
        lanes: args.lanes.map_or_else(|| source.lanes(path), usize::from),
        read_only: args.read_only,
        write_through: unsent.filter(|_| args.write_through),
        share: args.share,
        reclaim: args.reclaim,
        trace,
        ..Settings::new(args.policy.into())
    };
    let lanes = settings.lanes;
    let storage: Arc<dyn Storage> = Arc::new(source.storage);
    let device = match Device::start(storage, index, peers, domain, settings) {
        Ok(device) => Arc::new(device),
        Err(NotStarted { index, error }) => {
            if let Some(Err(error)) = index.map(|index| index.close(marks)) {
                index_failure(&index_path, "close the index", &error).print();
            }
            return Err(Failure::io(path, "serve it", &error));
        }
    };
    let closing = Closing { path, index_path: &index_path, is_device: source.is_device, _claim: claim };
    let showing = Showing { stays_awake: !args.low_power, left_to_kernel: left_to_kernel.map(OwnedFd::from) };
    let shown = match show(Arc::clone(&device), &dir, showing) {
        Ok(shown) => shown,
        Err(error) => {
            closing.close(device)?;
            return Err(Failure::io(&dir, "show the device there", &error));
        }
    };
    tracing::debug!("serving, {lanes} at a time");
    let shown_at = dir.clone();
    let taking_down = thread::Builder::new().spawn(move || {
        // The other process never writes: this returns when it wants no more, or is gone.
        let _ = io::stdin().read(&mut [0]);
        take_down(&shown_at);
    });
    if let Err(error) = taking_down {
        take_down(&dir);
        return Err(Failure::told(message::no_thread(&error)));
    }
    println!("{READY}");
    let _ = io::stdout().flush();
    shown.join().map_err(|error| Failure::io(path, "serve it", &error))?;
    closing.close(device)
}

/// Whether the kernel reads an image by itself: where that is asked for, and where nothing turns, so that the disk answers sooner than any
/// server, and nobody wants to know of its reads. Not since it is in memory: it is opened once, and may not stay there.
fn is_left_to_kernel(args: &PeerMountArgs, is_device: bool, is_seekless: impl FnOnce() -> bool) -> bool {
    let prefers_disk = matches!(args.policy.into(), Policy::Race | Policy::LocalFirst) && args.policies_of.is_empty();
    let wants_reads = args.learn || args.share || args.trace.is_some();
    args.passthrough || args.read_only && !is_device && prefers_disk && !wants_reads && is_seekless()
}

fn take_down(dir: &Path) {
    for complaint in stack::take_down(dir) {
        tracing::warn!("{complaint}");
    }
}

/// How the index is closed at the end.
struct Closing<'a> {
    path: &'a Path,
    index_path: &'a Path,
    is_device: bool,
    /// Nobody else may have the device before its marks are read.
    _claim: OwnedFd,
}

impl Closing<'_> {
    /// Makes all durable, and closes the index with the marks that the device has then.
    fn close(self, device: Arc<Device>) -> Result<u8, Failure> {
        // The file system that held it has ended.
        let Some(device) = Arc::into_inner(device) else { return Err(Failure::told("the device is still in use")) };
        let (index, flushed) = device.end();
        if let Err(error) = flushed {
            Failure::io(self.path, "make durable what was written", &error).print();
            return Ok(SOME_FAILED);
        }
        let marks = read_marks(self.path, self.is_device)?;
        match index.map(|index| index.close(marks)) {
            Some(Ok(is_closed)) => {
                tracing::info!(
                    "ended{}",
                    if is_closed { "" } else { "; nobody can tell whether the device is changed elsewhere" }
                );
                Ok(0)
            }
            Some(Err(error)) => {
                index_failure(self.index_path, "close the index", &error).print();
                Ok(SOME_FAILED)
            }
            None => Ok(SOME_FAILED),
        }
    }
}

/// The device, opened for this alone.
struct Source {
    storage: DirectFile,
    is_device: bool,
}

impl Source {
    fn open(args: &PeerMountArgs, path: &Path) -> Result<Source, Failure> {
        let look = |error: io::Error| Failure::io(path, "look at it", &error);
        let kind = fs::metadata(path).map_err(look)?.file_type();
        let is_device = kind.is_block_device();
        if !is_device && !kind.is_file() {
            return Err(Failure::could_not_run(path, "show it", "it is no device or image"));
        }
        // O_EXCL says nothing of an image.
        let whole = path.canonicalize().map_err(look)?;
        if !is_device && !stack::loops_on(&whole).is_empty() {
            return Err(Failure::could_not_run(path, "open it", "a loop device is on it; detach that"));
        }
        let fd = block::open_device_for_io(path, !args.read_only).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                Failure::could_not_run(path, "open it", "it is mounted or in use; unmount it")
            }
            io::ErrorKind::InvalidInput => {
                Failure::could_not_run(path, "open it", "its file system has no reads past the page cache (O_DIRECT)")
            }
            _ => Failure::io(path, "open it", &error),
        })?;
        let storage = DirectFile::new(fd).map_err(|error| Failure::io(path, "read it", &error))?;
        if !is_device {
            storage.lock(!args.read_only).map_err(|_| Failure::could_not_run(path, "open it", "it is in use"))?;
        }
        // A machine may run from an image or a device; QEMU opens neither with O_EXCL.
        let is_ours =
            storage.lock_as_machines_do(!args.read_only).map_err(|error| Failure::io(path, "lock it", &error))?;
        if !is_ours {
            let why = "another program, such as QEMU, has it open: it holds a lock of it";
            return Err(Failure::could_not_run(path, "open it", why));
        }
        if !args.read_only {
            // What somebody wrote before may not be durable, and is not marked in the index.
            storage.flush().map_err(|error| Failure::io(path, "make durable what was written before", &error))?;
        }
        Ok(Source { storage, is_device })
    }

    fn marks(&self, path: &Path) -> Result<Option<Marks>, Failure> {
        read_marks(path, self.is_device)
    }

    fn lanes(&self, path: &Path) -> usize {
        if is_seekless(path) { LANES } else { 1 }
    }
}

/// Whether nothing turns below a device, or below what a path lies on.
pub(super) fn is_seekless(path: &Path) -> bool {
    let ask = || {
        let stat = files::statx_fd(File::open(path).ok()?.as_fd()).ok()?;
        let devices = Devices::of_system().ok()?;
        let is_device = fs::metadata(path).ok()?.file_type().is_block_device();
        let stack = if is_device { devices.by_dev(stat.rdev) } else { devices.by_stat(&stat) };
        stack.ok().map(|stack| stack.is_seekless())
    };
    ask().unwrap_or(false)
}

/// Marks of the device as it is now, and of an image its file's as well.
fn read_marks(path: &Path, is_device: bool) -> Result<Option<Marks>, Failure> {
    let read = || marks_of(&ImageFile::new(File::from(block::open_device(path)?))?, is_device);
    read().map_err(|error| Failure::io(path, "read its marks", &error))
}

/// What servers could not be sent of what was written. Before the index is opened, which forgets what was being written last.
fn unsent(args: &PeerMountArgs, index_path: &Path, device_bytes: u64) -> Result<Option<Unsent>, Failure> {
    let mut path = index_path.as_os_str().to_owned();
    path.push(".unsent");
    let path = Path::new(&path);
    // A mount that writes nothing through leaves it to the next that does.
    if !args.write_through && !path.exists() {
        return Ok(None);
    }
    let failed = |error: io::Error| Failure::io(path, "note what servers lack", &error);
    let unsent = Unsent::open(path, device_bytes).map_err(failed)?;
    // One that is no index is refused when it is opened.
    if index_path.exists()
        && let Ok(written) = regions_written(&open_file(index_path, false)?)
    {
        unsent.add(written);
    }
    unsent.keep().map_err(failed)?;
    Ok(Some(unsent))
}

fn open_index(
    args: &PeerMountArgs,
    path: &Path,
    device_bytes: u64,
    domain: &TrustDomain,
    marks: Option<&Marks>,
) -> Result<DeviceIndex<File>, Failure> {
    if !path.exists() {
        if !args.learn {
            let what = "there is none; make one with onesweep peer index, or begin with none by --learn";
            return Err(Failure::could_not_run(path, "use the index", what));
        }
        let geometry =
            Geometry::new(args.block_size, device_bytes).ok_or_else(|| Failure::told("no such size of blocks"))?;
        let draft = draft(path);
        let made = DeviceIndex::create(open_file(&draft, true)?, geometry, domain);
        let made = made.map_err(|error| index_failure(&draft, "make the index", &error))?;
        put_in_place(&draft, path)?;
        return Ok(made);
    }
    let opened = DeviceIndex::open(open_file(path, false)?, device_bytes, domain, marks);
    opened.map_err(|error| match error {
        onesweep_peer::index::IndexError::Io(error) => Failure::io(path, "use the index", &error),
        error => Failure::could_not_run(path, "use the index", message::of_error(&error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, PeerCommand, parse_line};

    fn args(options: &str) -> PeerMountArgs {
        let line = format!("peer mount --device x {options} d");
        let Ok(Command::Peer(peer)) = parse_line(&line) else { panic!("{line}") };
        let PeerCommand::Mount(mount) = peer.command else { panic!("{line}") };
        *mount
    }

    #[test]
    fn an_image_is_left_to_the_kernel_where_nobody_else_gains_by_its_reads() {
        let is_left =
            |options: &str, is_device, is_seekless| is_left_to_kernel(&args(options), is_device, || is_seekless);
        assert!(is_left("--read-only", false, true) && is_left("--read-only --policy local-first", false, true));
        assert!(is_left("--read-only --passthrough", false, false));
        assert!(!is_left("--read-only", false, false) && !is_left("--read-only", true, true));
        for more in ["--policy quiet-disk", "--policy-of *.iso=quiet-disk", "--learn", "--share", "--trace t"] {
            assert!(!is_left(&format!("--read-only {more}"), false, true), "{more}");
        }
        assert!(!is_left("", false, true));
    }
}
