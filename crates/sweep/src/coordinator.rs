//! Groups paths by spindle and runs the sweeps of all spindles side by side (design decision 3).

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, thread};

use onesweep_sys::{buffer::BufferPool, files};

use crate::{
    budget::Budget,
    delivery::Delivery,
    error::{FileError, SweepError},
    files::Files,
    opener::path_bytes,
    outlet::{Counters, Outlet},
    placement::Placements,
    plan::Estimate,
    read::Halt,
    settings::Settings,
    spindle::{Root, SpindleSweep},
    throttle::Throttle,
};

/// Everything that the sweeps of one bulk read share.
#[derive(Clone)]
struct Shared {
    settings: Arc<Settings>,
    placements: Arc<Placements>,
    budget: Budget,
    throttle: Arc<Throttle>,
    pool: BufferPool,
    counters: Arc<Counters>,
}

/// Sweeps that are planned and not run yet.
pub(crate) struct Prepared {
    shared: Shared,
    pub(crate) sweeps: Vec<SpindleSweep>,
}

/// Walks, surveys and plans.
pub(crate) fn prepare(settings: Settings) -> Result<Prepared, SweepError> {
    let (shared, mut roots) = resolve(settings)?;
    let mut sweeps = Vec::new();
    // A walk may come to directories of other spindles; they are the roots of the next round.
    while !roots.is_empty() {
        let mut round = make_sweeps(&shared, roots)?;
        thread::scope(|scope| {
            for sweep in &mut round {
                let shared = &shared;
                scope.spawn(move || {
                    set_priority(&shared.settings);
                    sweep.prepare(&shared.counters);
                });
            }
        });
        roots = round
            .iter_mut()
            .flat_map(|sweep| sweep.take_foreign())
            .filter_map(|foreign| find_root(&shared, foreign.shown, foreign.opened, false).ok())
            .collect();
        sweeps.append(&mut round);
    }
    Ok(Prepared { shared, sweeps })
}

/// Sweeps without showing the plan before.
pub(crate) fn start(settings: Settings) -> Result<Files, SweepError> {
    let (shared, roots) = resolve(settings)?;
    let sweeps = make_sweeps(&shared, roots)?;
    launch(shared, sweeps)
}

/// Carries out what was planned.
pub(crate) fn run(prepared: Prepared) -> Result<Files, SweepError> {
    let windows = prepared.sweeps.len() as u64;
    prepared.shared.counters.count(|summary| summary.windows += windows);
    launch(prepared.shared, prepared.sweeps)
}

fn resolve(settings: Settings) -> Result<(Shared, Vec<Root>), SweepError> {
    settings.check().map_err(SweepError::Setting)?;
    if settings.roots.is_empty() {
        return Err(SweepError::NoRoots);
    }
    let system = |what| move |source| SweepError::System { what, source };
    let shared = Shared {
        placements: Arc::new(Placements::of_system().map_err(system("cannot read the table of mounts"))?),
        budget: Budget::new(settings.budget),
        pool: BufferPool::new(kept_for_reuse(settings.budget) as usize),
        throttle: Arc::new(Throttle::new(settings.bwlimit)),
        counters: Counters::new(settings.observer.clone()),
        settings: Arc::new(settings),
    };
    let current = std::env::current_dir().map_err(system("cannot tell the current directory"))?;
    let base = shared.settings.base.as_ref().map_or(current.clone(), |base| current.join(base));
    let mut roots = Vec::new();
    for shown in &shared.settings.roots {
        if shared.settings.filter.excludes(path_bytes(shown)) {
            continue;
        }
        roots.push(find_root(&shared, shown.clone(), base.join(shown), shared.settings.follow_roots)?);
    }
    Ok((shared, roots))
}

fn find_root(shared: &Shared, shown: PathBuf, opened: PathBuf, follow: bool) -> Result<Root, SweepError> {
    let fail = |source| SweepError::Root { path: shown.clone(), source };
    let opened = if follow { std::fs::canonicalize(&opened).map_err(fail)? } else { opened };
    let stat = files::statx_at(files::CURRENT_DIR, opened.as_path(), true).map_err(fail)?;
    let fd = files::open_handle_at(files::CURRENT_DIR, opened.as_path()).map_err(fail)?;
    let placement = shared.placements.of(std::os::fd::AsFd::as_fd(&fd), &stat);
    Ok(Root { ino: stat.ino, mode: stat.mode & 0o170_000, placement, shown, opened })
}

/// One sweep for each spindle; the budget is shared out evenly, so that none ever waits for another.
fn make_sweeps(shared: &Shared, roots: Vec<Root>) -> Result<Vec<SpindleSweep>, SweepError> {
    let mut by_spindle: BTreeMap<usize, Vec<Root>> = BTreeMap::new();
    for root in roots {
        by_spindle.entry(root.placement.spindle).or_default().push(root);
    }
    let lendable = shared.budget.limit() - kept_for_reuse(shared.budget.limit());
    let share = lendable / by_spindle.len().max(1) as u64;
    by_spindle
        .values()
        .map(|roots| {
            let share = shared.budget.share(share);
            SpindleSweep::new(&shared.settings, &shared.placements, roots, share, &shared.throttle, &shared.pool)
        })
        .collect()
}

/// Bytes of the budget that used memory may take between two files: fresh memory costs a page fault for each page.
/// They are never lent.
fn kept_for_reuse(budget: u64) -> u64 {
    const REUSE_MAX: u64 = 16 << 20;
    if budget < REUSE_MAX { 0 } else { (budget / 16).min(REUSE_MAX) }
}

fn launch(shared: Shared, sweeps: Vec<SpindleSweep>) -> Result<Files, SweepError> {
    let delivery = Delivery::new(shared.budget.clone(), shared.settings.cancel.clone(), 1);
    let outlet = Outlet::new(delivery.producer(), Arc::clone(&shared.counters));
    let (counters, budget) = (Arc::clone(&shared.counters), shared.budget.clone());
    let threads = {
        let delivery = Arc::clone(&delivery);
        thread::Builder::new()
            .name("onesweep".into())
            .spawn(move || conduct(&shared, &delivery, outlet, sweeps))
            .map_err(|source| SweepError::System { what: "cannot start a thread", source })?
    };
    Ok(Files::new(delivery, counters, budget, threads))
}

/// Runs sweeps round by round: those of one spindle one after the other, those of different spindles side by side.
fn conduct(shared: &Shared, delivery: &Arc<Delivery>, outlet: Outlet, mut sweeps: Vec<SpindleSweep>) {
    // Holds the stream open between two rounds.
    let own = outlet;
    while !sweeps.is_empty() {
        let mut by_spindle: BTreeMap<usize, Vec<SpindleSweep>> = BTreeMap::new();
        for sweep in sweeps.drain(..) {
            by_spindle.entry(sweep.spindle).or_default().push(sweep);
        }
        let mut by_spindle: Vec<_> = by_spindle.into_values().collect();
        let foreign: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = by_spindle
                .iter_mut()
                .map(|sweeps| {
                    let outlet = Outlet::new(delivery.producer(), Arc::clone(&shared.counters));
                    scope.spawn(move || {
                        set_priority(&shared.settings);
                        sweeps
                            .iter_mut()
                            .flat_map(|sweep| {
                                conduct_one(sweep, &outlet);
                                sweep.take_foreign()
                            })
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            own.stand_aside(|| running.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect())
        });
        let mut roots = Vec::new();
        for foreign in foreign {
            match find_root(shared, foreign.shown, foreign.opened, false) {
                Ok(root) => roots.push(root),
                Err(SweepError::Root { path, source }) => drop(own.send(Err(FileError::io(path, "open", source)))),
                Err(_) => {}
            }
        }
        sweeps = match make_sweeps(shared, roots) {
            Ok(sweeps) => sweeps,
            Err(error) => {
                let source = std::io::Error::other(error);
                own.send(Err(FileError::Stopped { disk: "a mounted file system".into(), source }));
                Vec::new()
            }
        };
    }
}

fn conduct_one(sweep: &mut SpindleSweep, outlet: &Outlet) {
    match sweep.run(outlet) {
        Ok(()) | Err(Halt::Cancelled) => {}
        Err(Halt::Broken(source)) => {
            outlet.send(Err(FileError::Stopped { disk: sweep.name.clone(), source }));
        }
    }
}

fn set_priority(settings: &Settings) {
    if settings.idle {
        // A kernel without I/O priorities reads all the same.
        let _ = onesweep_sys::priority::set_idle_io();
    }
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
