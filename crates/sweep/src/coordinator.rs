//! Groups paths by spindle and runs the sweeps of all spindles side by side.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use onesweep_sys::{
    buffer::BufferPool,
    files::{self, EntryType},
    priority,
};

use crate::{
    budget::Budget,
    delivery::Delivery,
    error::{FileError, NO_MOUNTS, SweepError},
    files::Files,
    image::Image,
    moment::{Live, Moment},
    opener::path_bytes,
    outlet::{Counters, Outlet},
    placement::Placements,
    plan::Estimate,
    preload::Preload,
    read::Halt,
    settings::{MetadataSource, OpenRoot, Settings},
    spindle::{Root, SpindleSweep},
    threads,
    throttle::Throttle,
    walk::Foreign,
};

/// Everything that the sweeps of one bulk read share.
#[derive(Clone)]
struct Shared {
    settings: Arc<Settings>,
    placements: Arc<Placements>,
    /// Images among the roots, until they are swept.
    images: Arc<Mutex<Vec<Image>>>,
    budget: Budget,
    throttle: Arc<Throttle>,
    pool: BufferPool,
    counters: Arc<Counters>,
}

/// Sweeps that are planned and not run yet.
pub(crate) struct Prepared {
    shared: Shared,
    pub(crate) sweeps: Vec<SpindleSweep>,
    /// Named paths that can't be read, and mounts that could not be entered.
    pub(crate) errors: Vec<FileError>,
}

/// Walks, surveys and plans.
pub(crate) fn prepare(settings: Settings) -> Result<Prepared, SweepError> {
    plan(resolve(settings)?)
}

/// The same once roots are known. What is frozen thaws here.
fn plan((shared, mut roots, mut errors): Resolved) -> Result<Prepared, SweepError> {
    let mut sweeps = Vec::new();
    let mut origin = Origin::Named;
    // A walk may come to directories of other spindles; they are the roots of the next round.
    while !roots.is_empty() || has_images(&shared) {
        let mut round = make_sweeps(&shared, roots, origin)?;
        let prepare = |sweep: &mut SpindleSweep| at_priority(&shared.settings, || sweep.prepare(&shared.counters));
        for prepared in threads::each(round.iter_mut().collect(), |_| {}, prepare) {
            prepared.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        let foreign = round.iter_mut().flat_map(SpindleSweep::take_foreign).collect();
        (roots, origin) = (enter(&shared, foreign, |error| errors.push(error)), Origin::Met);
        sweeps.append(&mut round);
    }
    if let Some(moment) = shared.placements.moment() {
        let whole = shared.settings.cancel.is_cancelled() || sweeps.iter().all(SpindleSweep::is_finished);
        errors.extend(moment.thaw(whole));
    }
    Ok(Prepared { shared, sweeps, errors })
}

fn has_images(shared: &Shared) -> bool {
    !shared.images.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_empty()
}

/// Sweeps without showing the plan before.
pub(crate) fn start(settings: Settings) -> Result<Files, SweepError> {
    let (shared, roots, errors) = resolve(settings)?;
    // While writers are held, nobody may wait for a consumer.
    if shared.placements.moment().is_some_and(|moment| moment.is_frozen()) {
        return run(plan((shared, roots, errors))?);
    }
    let sweeps = make_sweeps(&shared, roots, Origin::Named)?;
    launch(Prepared { shared, sweeps, errors })
}

/// Carries out what was planned.
pub(crate) fn run(prepared: Prepared) -> Result<Files, SweepError> {
    let windows = prepared.sweeps.len() as u64;
    prepared.shared.counters.count(|summary| summary.windows += windows);
    launch(prepared)
}

/// Where a root comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// From the caller, who is told when it can't be read as wished.
    Named,
    /// From a walk that came to a mount; it is read as well as it can be.
    Met,
}

/// The roots that a walk came to.
fn enter(shared: &Shared, foreign: Vec<Foreign>, mut failed: impl FnMut(FileError)) -> Vec<Root> {
    foreign
        .into_iter()
        .filter_map(|foreign| {
            let path = foreign.shown.clone();
            let same = |root: Root| {
                let identity = (root.placement.volume.dev, root.ino);
                // Somebody may have put something else in its place, a symbolic link to elsewhere above it too.
                if identity == foreign.identity {
                    Ok(root)
                } else {
                    Err(io::Error::other("it is another directory now"))
                }
            };
            find_root(shared, foreign.shown, foreign.opened, false)
                .and_then(same)
                .map_err(|source| failed(FileError::Io { path, step: "enter".into(), source }))
                .ok()
        })
        .collect()
}

/// The roots that are there, and errors for those that are not.
type Resolved = (Shared, Vec<Root>, Vec<FileError>);

/// Finds the roots, of which at least one must be there, and takes what snapshots are asked for.
fn resolve(settings: Settings) -> Result<Resolved, SweepError> {
    settings.check().map_err(SweepError::Setting)?;
    if settings.roots.is_empty() && settings.open_roots.is_empty() {
        return Err(SweepError::NoRoots);
    }
    let system = |what| move |source| SweepError::System { what, source };
    let mut shared = Shared {
        placements: Arc::new(Placements::of_system().map_err(system(NO_MOUNTS))?),
        images: Arc::default(),
        budget: Budget::new(settings.budget),
        pool: BufferPool::new(kept_for_reuse(settings.budget) as usize),
        throttle: Arc::new(Throttle::new(settings.bwlimit)),
        counters: Counters::new(settings.observer.clone()),
        settings: Arc::new(settings),
    };
    let base = way_to_current_directory().join(shared.settings.base.as_deref().unwrap_or(Path::new("")));
    let (mut roots, mut errors, mut images) = (Vec::new(), Vec::new(), Vec::new());
    for shown in &shared.settings.roots {
        // There may be millions of them. What is found by then comes to nothing later.
        if shared.settings.cancel.is_cancelled() {
            break;
        }
        if shared.settings.filter.excludes(path_bytes(shown)) {
            continue;
        }
        let opened = base.join(shown);
        let options = &shared.settings.image_options;
        let image = match shared.settings.metadata {
            MetadataSource::Walk => Ok(None),
            MetadataSource::Auto => {
                let (named, follow) = (shared.settings.roots.len(), shared.settings.follow_roots);
                Image::open(shown, &opened, named, follow, options)
            }
            MetadataSource::Tables => Image::open_named(shown, &opened, options),
        };
        let found = match image {
            Ok(Some(image)) => {
                images.push(image);
                continue;
            }
            Ok(None) => find_root(&shared, shown.clone(), opened, shared.settings.follow_roots)
                .and_then(|root| check_tables(&shared, root)),
            Err(error) => Err(error),
        };
        match found {
            Ok(root) => roots.push(root),
            Err(source) => errors.push((shown.clone(), source)),
        }
    }
    for OpenRoot { shown, fd } in &shared.settings.open_roots {
        if shared.settings.filter.excludes(path_bytes(shown)) {
            continue;
        }
        let found = way_to_open(fd.as_fd()).and_then(|opened| find_root(&shared, shown.clone(), opened, false));
        match found.and_then(|root| check_tables(&shared, root)) {
            Ok(root) => roots.push(root),
            Err(source) => errors.push((shown.clone(), source)),
        }
    }
    let filter = &shared.settings.filter;
    roots.retain(|root| root.mode == DIRECTORY || !filter.excludes_file(path_bytes(&root.shown)));
    if roots.is_empty() && images.is_empty() && !errors.is_empty() {
        let (path, source) = errors.swap_remove(0);
        return Err(SweepError::Root { path, source });
    }
    if !roots.is_empty() {
        shared.settings.check_for_trees().map_err(SweepError::Setting)?;
    }
    let errors = errors.into_iter().map(|(path, source)| FileError::Io { path, step: "find it".into(), source });
    let errors = errors.collect();
    if shared.settings.snapshot && !roots.is_empty() {
        roots = hold(&mut shared, roots)?;
    }
    *shared.images.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = images;
    Ok((shared, roots, errors))
}

const DIRECTORY: u32 = 0o040_000;

/// Fails for a root whose tables were wished for and can't be read.
fn check_tables(shared: &Shared, root: Root) -> io::Result<Root> {
    let wished = shared.settings.metadata == MetadataSource::Tables;
    let refusal = wished.then(|| Preload::refusal(&root.placement, &root.opened)).flatten();
    refusal.map_or(Ok(root), |why| Err(io::Error::other(why)))
}

/// The path that leads to what is open. Of a directory that is its descriptor, followed by its slash, so that no change of names
/// matters; a link of `/proc` that leads to a file is not followed by what opens roots.
fn way_to_open(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let link = files::through_proc(fd);
    let open = files::statx_fd(fd)?;
    if open.file_type() == EntryType::Dir {
        return Ok(link.join(""));
    }
    let named = files::path_of(fd)?;
    let there = files::statx_at(files::CURRENT_DIR, named.as_path(), true)?;
    if (there.dev, there.ino) == (open.dev, open.ino) { Ok(named) } else { Err(io::Error::from_raw_os_error(ESTALE)) }
}

/// What the kernel says of a file that is not there by the name that it knows.
const ESTALE: i32 = 116;

/// Where relative paths begin: an absolute path, or nothing where that doesn't lead there. A process may be in a directory that
/// it can't reach from the root: closed above, too deep for a path, or gone.
fn way_to_current_directory() -> PathBuf {
    let place = |path: &Path| files::statx_at(files::CURRENT_DIR, path, false).map(|stat| (stat.dev, stat.ino)).ok();
    let absolute = std::env::current_dir().ok();
    absolute.filter(|way| place(way).is_some_and(|there| Some(there) == place(Path::new(".")))).unwrap_or_default()
}

/// Holds the file systems of the roots as they are at this moment; gives the roots as they are read then.
fn hold(shared: &mut Shared, roots: Vec<Root>) -> Result<Vec<Root>, SweepError> {
    let live: Vec<Live<'_>> = roots
        .iter()
        .map(|root| Live { shown: &root.shown, opened: &root.opened, placement: &root.placement })
        .collect();
    let moment = Arc::new(Moment::begin(&shared.settings, &live)?);
    let placed: Result<Vec<_>, _> = live.iter().map(|live| moment.place(live)).collect();
    let system = |source| SweepError::System { what: NO_MOUNTS, source };
    shared.placements = Arc::new(Placements::at(Some(moment)).map_err(system)?);
    roots
        .iter()
        .zip(placed?)
        .map(|(root, placed)| {
            let opened = placed.unwrap_or_else(|| root.opened.clone());
            let found = find_root(shared, root.shown.clone(), opened, false);
            found.map_err(|source| SweepError::Root { path: root.shown.clone(), source })
        })
        .collect()
}

fn find_root(shared: &Shared, shown: PathBuf, opened: PathBuf, follow: bool) -> io::Result<Root> {
    let opened = if follow { follow_links(opened)? } else { opened };
    let fd = files::open_handle_at(files::CURRENT_DIR, opened.as_path())?;
    let stat = files::statx_fd(fd.as_fd())?;
    let placement = shared.placements.of(fd.as_fd(), &stat);
    Ok(Root { ino: stat.ino, mode: stat.mode & 0o170_000, placement, shown, opened })
}

/// The path of what a path leads to, which is no symbolic link.
fn follow_links(mut path: PathBuf) -> io::Result<PathBuf> {
    /// As many as the kernel follows.
    const LINKS_MAX: usize = 40;
    for _ in 0..LINKS_MAX {
        match std::fs::canonicalize(&path) {
            // Longer than the kernel takes: only its end matters, what is on the way is followed by opening it.
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {}
            found => return found,
        }
        if files::statx_at(files::CURRENT_DIR, path.as_path(), true)?.file_type() != EntryType::Symlink {
            return Ok(path);
        }
        let target = files::read_link_at(files::CURRENT_DIR, path.as_path())?;
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::other("it leads through too many symbolic links"))
}

/// One sweep for each spindle; the budget is shared out evenly, so that none ever waits for another.
fn make_sweeps(shared: &Shared, roots: Vec<Root>, origin: Origin) -> Result<Vec<SpindleSweep>, SweepError> {
    let mut by_spindle: BTreeMap<usize, Vec<Root>> = BTreeMap::new();
    for root in roots {
        by_spindle.entry(shared.placements.spindle(&root.placement)).or_default().push(root);
    }
    let images = std::mem::take(&mut *shared.images.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    let share = lendable(shared) / (by_spindle.len() + images.len()).max(1) as u64;
    let of_images: Vec<Result<SpindleSweep, SweepError>> =
        images.into_iter().map(|image| image_sweep(shared, image, share)).collect();
    by_spindle
        .values()
        .map(|roots| {
            let share = shared.budget.share(share);
            let mut sweep =
                SpindleSweep::new(&shared.settings, &shared.placements, roots, share, &shared.throttle, &shared.pool);
            for root in roots {
                sweep.add_root(root, origin == Origin::Met)?;
            }
            Ok(sweep)
        })
        .chain(of_images)
        .collect()
}

/// A sweep of its own for each image.
fn image_sweep(shared: &Shared, image: Image, share: u64) -> Result<SpindleSweep, SweepError> {
    let path = image.shown.clone();
    let failed = |source| SweepError::Root { path: path.clone(), source };
    let stat = image.device.stat().map_err(failed)?;
    let placement = shared.placements.of_image(&stat, image.tables.facts());
    let root = Root {
        shown: image.shown.clone(),
        opened: image.shown.clone(),
        ino: 0,
        mode: 0,
        placement: Arc::clone(&placement),
    };
    let share = shared.budget.share(share);
    let roots = std::slice::from_ref(&root);
    let mut sweep =
        SpindleSweep::new(&shared.settings, &shared.placements, roots, share, &shared.throttle, &shared.pool);
    let realtime = image.realtime.as_ref().map(|_| shared.placements.beside_image(&placement));
    sweep.set_image(image, &placement, realtime).map_err(failed)?;
    Ok(sweep)
}

/// Bytes of the budget that used memory may take between two files: fresh memory costs a page fault for each page.
/// They are never lent.
fn kept_for_reuse(budget: u64) -> u64 {
    const REUSE_MAX: u64 = 16 << 20;
    if budget < REUSE_MAX { 0 } else { (budget / 16).min(REUSE_MAX) }
}

fn lendable(shared: &Shared) -> u64 {
    shared.budget.limit() - kept_for_reuse(shared.budget.limit())
}

fn launch(prepared: Prepared) -> Result<Files, SweepError> {
    let Prepared { shared, sweeps, errors } = prepared;
    let delivery = Delivery::new(shared.budget.clone(), shared.settings.cancel.clone(), 1);
    let outlet = Outlet::new(delivery.producer(), Arc::clone(&shared.counters));
    let (counters, budget) = (Arc::clone(&shared.counters), shared.budget.clone());
    let moment = shared.placements.moment().cloned();
    let conductor = {
        let delivery = Arc::clone(&delivery);
        thread::Builder::new()
            .name("onesweep".into())
            .spawn(move || {
                for error in errors {
                    outlet.send(Err(error));
                }
                conduct(&shared, &delivery, &outlet, sweeps);
            })
            .map_err(|source| SweepError::System { what: "cannot start a thread", source })?
    };
    Ok(Files::new(delivery, counters, budget, conductor, moment))
}

/// Runs sweeps round by round: those of one spindle one after the other, those of different spindles side by side.
///
/// `own` holds the stream open between two rounds.
fn conduct(shared: &Shared, delivery: &Arc<Delivery>, own: &Outlet, mut sweeps: Vec<SpindleSweep>) {
    while !sweeps.is_empty() {
        let mut by_spindle: BTreeMap<usize, Vec<SpindleSweep>> = BTreeMap::new();
        for sweep in sweeps.drain(..) {
            by_spindle.entry(sweep.spindle()).or_default().push(sweep);
        }
        let mut groups: Vec<_> = by_spindle.into_values().collect();
        // Plans of several rounds may together count on more than there is; then no two of them wait for each other.
        let share_of = |group: &Vec<SpindleSweep>| group.iter().map(SpindleSweep::share_limit).max().unwrap_or(0);
        let fit_together = groups.iter().map(share_of).sum::<u64>() <= lendable(shared);
        let at_once = if fit_together { groups.len() } else { 1 };
        let mut foreign = Vec::new();
        for batch in groups.chunks_mut(at_once) {
            foreign.extend(run_side_by_side(shared, delivery, own, batch));
        }
        let roots = enter(shared, foreign, |error| {
            own.send(Err(error));
        });
        sweeps = make_sweeps(shared, roots, Origin::Met).unwrap_or_else(|error| {
            stopped(own, "a mounted file system", io::Error::other(error));
            Vec::new()
        });
    }
}

/// Runs the sweeps of each group in a thread of its own, or one group after the other where there are no more threads; gives the
/// mounts that they came to.
fn run_side_by_side(
    shared: &Shared,
    delivery: &Arc<Delivery>,
    own: &Outlet,
    groups: &mut [Vec<SpindleSweep>],
) -> Vec<Foreign> {
    let disk = |sweeps: &Vec<SpindleSweep>| sweeps.first().map_or_else(String::new, |sweep| sweep.name.clone());
    let disks: Vec<_> = groups.iter().map(disk).collect();
    let outlet = || Outlet::new(delivery.producer(), Arc::clone(&shared.counters));
    let pieces: Vec<_> = groups.iter_mut().map(|sweeps| (sweeps, Some(outlet()))).collect();
    // Who waits for its turn must not count as one who may send something meanwhile.
    let put_off = |piece: &mut (_, Option<Outlet>)| piece.1 = None;
    let run = |(sweeps, opened): (&mut Vec<SpindleSweep>, Option<Outlet>)| {
        let outlet = opened.unwrap_or_else(outlet);
        at_priority(&shared.settings, || {
            let mut foreign = Vec::new();
            for sweep in sweeps {
                if let Err(Halt::Broken(source)) = sweep.run(&outlet) {
                    stopped(&outlet, &sweep.name, source);
                }
                foreign.extend(sweep.take_foreign());
            }
            foreign
        })
    };
    let ended = own.stand_aside(|| threads::each(pieces, put_off, run));
    let mut foreign = Vec::new();
    for (disk, ended) in disks.iter().zip(ended) {
        match ended {
            Ok(met) => foreign.extend(met),
            Err(_) => stopped(own, disk, io::Error::other("a fault of the program; what is missing was not read")),
        }
    }
    foreign
}

fn stopped(outlet: &Outlet, disk: &str, source: io::Error) {
    outlet.send(Err(FileError::Stopped { disk: disk.to_owned(), source }));
}

/// On a thread that has other work, too: it gets its priority back.
fn at_priority<R>(settings: &Settings, work: impl FnOnce() -> R) -> R {
    // A kernel without I/O priorities reads all the same.
    if settings.idle { priority::while_idle_io(work) } else { work() }
}

/// Disks that work at the same time: everything is added up but the time, which is that of the slowest.
pub(crate) fn side_by_side(each: &[Estimate]) -> Estimate {
    let mut all = Estimate::default();
    let mut seconds = 0.0_f64;
    for estimate in each {
        all.disk.clone_from(&estimate.disk);
        seconds = seconds.max(estimate.seconds);
        all.add(estimate);
    }
    all.seconds = seconds;
    all
}
