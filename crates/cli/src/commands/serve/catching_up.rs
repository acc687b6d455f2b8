//! Finds out what has changed while nobody tracked it, and harvests that: file systems on different disks side by side, those that have
//! a head in common one after the other.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::Instant,
};

use onesweep_layout::{DeviceError, Devices};
use onesweep_summary::{
    reading::Directories,
    service::server::Served,
    summaries::{CaughtUp, SummaryError},
    warden::guarded::Warden,
};
use onesweep_sys::files::{self, magic};

use super::{Event, spawn};
use crate::{message, report::Failure};

/// So many groups at a time: each of them has dozens of readers here and in the warden.
pub(super) const AT_A_TIME: usize = 8;

/// The disks whose heads move when a file system is read.
#[derive(Clone, Debug)]
pub(super) enum Heads {
    /// None where nothing seeks.
    These(Vec<u64>),
    /// It can't be told: that of any disk that seeks.
    Any,
}

impl Heads {
    pub(super) fn meet(&self, other: &Heads) -> bool {
        match (self, other) {
            (Heads::These(ours), Heads::These(theirs)) => ours.iter().any(|head| theirs.contains(head)),
            (Heads::Any, Heads::These(some)) | (Heads::These(some), Heads::Any) => !some.is_empty(),
            (Heads::Any, Heads::Any) => true,
        }
    }
}

/// What became of one of them.
pub(super) struct Done {
    pub(super) of: Arc<Served>,
    pub(super) ended: Result<(), SummaryError>,
}

/// Begins; adds to `outstanding` how many there are of which changes are told. All others may lie on what doesn't answer, and nothing
/// waits for them.
pub(super) fn begin(
    volumes: Vec<Arc<Served>>,
    outstanding: &mut usize,
    warden: &Arc<Warden>,
    tell: &Sender<Event>,
) -> Result<(), Failure> {
    let (told, timed): (Vec<_>, Vec<_>) =
        volumes.into_iter().partition(|served| served.file_system().changes_are_told());
    let heads: Vec<Heads> = told.iter().map(|served| heads(served)).collect();
    let groups = apart(&heads).into_iter();
    let groups: VecDeque<Group> =
        groups.map(|group| group.into_iter().map(|at| Arc::clone(&told[at])).collect()).collect();
    *outstanding += told.len();
    let threads = groups.len().min(AT_A_TIME);
    let groups = Arc::new(Mutex::new(groups));
    for _ in 0..threads {
        let (groups, tell, warden) = (Arc::clone(&groups), tell.clone(), Arc::clone(warden));
        let next = move || groups.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        spawn("catching-up", move || {
            while let Some(group) = next() {
                group.into_iter().for_each(|served| tell_of(served, &warden, &tell));
            }
        })?;
    }
    for served in timed {
        let (tell, warden) = (tell.clone(), Arc::clone(warden));
        spawn("catching-up", move || tell_of(served, &warden, &tell))?;
    }
    Ok(())
}

/// File systems that are caught up with one after the other.
type Group = Vec<Arc<Served>>;

/// Each by itself: one that is known is served in full while others on the same disk wait.
fn tell_of(served: Arc<Served>, warden: &Warden, tell: &Sender<Event>) {
    let ended = catch_up(&served, warden);
    let _ = tell.send(Event::CaughtUp(Done { of: served, ended }));
}

/// The disks whose heads move when it is read.
pub(super) fn heads(served: &Served) -> Heads {
    let top = served.file_system().top();
    let stack = Devices::of_system().map(|devices| devices.by_fd(top));
    // Each of its subvolumes has a number of no device, as what lies in memory has.
    let has_devices = || files::file_system(top).is_ok_and(|told| told.magic == magic::BTRFS);
    match stack {
        Ok(Ok(stack)) if stack.is_seekless() => Heads::These(Vec::new()),
        Ok(Ok(stack)) => Heads::These(stack.spindle_key()),
        Ok(Err(DeviceError::NoDevice { .. })) if !has_devices() => Heads::These(Vec::new()),
        Ok(Err(_)) | Err(_) => Heads::Any,
    }
}

/// In groups of those that may have a head in common, in their order.
fn apart(heads: &[Heads]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Vec<&Heads>, Vec<usize>)> = Vec::new();
    for (at, own) in heads.iter().enumerate() {
        let has_one = |(theirs, _): &mut (Vec<&Heads>, Vec<usize>)| theirs.iter().any(|other| own.meet(other));
        let mut group = (vec![own], Vec::new());
        for (theirs, members) in groups.extract_if(.., has_one) {
            group.0.extend(theirs);
            group.1.extend(members);
        }
        group.1.push(at);
        groups.push(group);
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

fn catch_up(served: &Served, warden: &Warden) -> Result<(), SummaryError> {
    let (began, mut caught_up) = (Instant::now(), Ok(()));
    let path = message::path_text(served.path());
    let written = served.catch_up(|tracked, done| {
        caught_up = done;
        if caught_up.is_err() {
            return;
        }
        if let Some(CaughtUp::All(doubt)) = tracked.caught_up() {
            tracing::warn!("{path}: harvested anew: {doubt}");
        }
        let (known, read) = (tracked.ledger().nodes.len(), tracked.readings());
        let seconds = began.elapsed().as_secs_f64();
        tracing::info!("{path}: {read} of {known} directories harvested in {seconds:.1} s");
    });
    // What it took to write goes as well.
    warden.rest();
    match caught_up.and(written) {
        Ok(()) => tracing::info!("{path}: what was harvested is stored"),
        Err(error) if served.summaries().goes_on_after(&error) => {
            let why = message::of_error(&error);
            tracing::error!("{path}: what has changed isn't stored yet: {why}; the store is opened again by itself");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Heads, apart};

    #[test]
    fn those_with_a_head_in_common_wait_for_each_other() {
        // A partition each of two disks, memory, a stripe over both disks, a third disk, memory again.
        let heads = [vec![1], vec![2], vec![], vec![1, 2], vec![3], vec![]].map(Heads::These);
        let mut groups = apart(&heads);
        groups.sort();
        assert_eq!(groups, [vec![0, 1, 3], vec![2], vec![4], vec![5]]);
    }

    #[test]
    fn what_cannot_be_told_waits_for_all_that_seeks() {
        let heads = [Heads::These(vec![1]), Heads::These(vec![]), Heads::Any, Heads::These(vec![2]), Heads::Any];
        let mut groups = apart(&heads);
        groups.sort();
        assert_eq!(groups, [vec![0, 2, 3, 4], vec![1]]);
    }
}
