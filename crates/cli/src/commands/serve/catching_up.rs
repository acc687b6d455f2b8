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

use super::{Event, spawn};
use crate::{message, report::Failure};

/// So many groups at a time: each of them has dozens of readers here and in the warden.
const AT_A_TIME: usize = 8;
/// Stands for all disks that can't be told.
const SOME_DISK: u64 = u64::MAX;

/// What became of some of them.
pub(super) struct Done {
    pub(super) of: Vec<(Arc<Served>, Result<(), SummaryError>)>,
    /// Somebody tells what changes there. All others may lie on what doesn't answer, and nothing waits for them.
    pub(super) are_told: bool,
}

/// Begins; adds to `outstanding` how often somebody is going to be told of some of which changes are told.
pub(super) fn begin(
    volumes: Vec<Arc<Served>>,
    outstanding: &mut usize,
    warden: &Arc<Warden>,
    tell: &Sender<Event>,
) -> Result<(), Failure> {
    let (told, timed): (Vec<_>, Vec<_>) =
        volumes.into_iter().partition(|served| served.file_system().changes_are_told());
    let heads: Vec<Vec<u64>> = told.iter().map(|served| heads(served)).collect();
    let groups = apart(&heads).into_iter();
    let groups: VecDeque<Group> =
        groups.map(|group| group.into_iter().map(|at| Arc::clone(&told[at])).collect()).collect();
    *outstanding += groups.len();
    let threads = groups.len().min(AT_A_TIME);
    let groups = Arc::new(Mutex::new(groups));
    for _ in 0..threads {
        let (groups, tell, warden) = (Arc::clone(&groups), tell.clone(), Arc::clone(warden));
        let next = move || groups.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        spawn("catching-up", move || {
            while let Some(group) = next() {
                let _ = tell.send(Event::CaughtUp(Done { of: catch_up_with(group, &warden), are_told: true }));
            }
        })?;
    }
    for served in timed {
        let (tell, warden) = (tell.clone(), Arc::clone(warden));
        spawn("catching-up", move || {
            let of = catch_up_with(vec![served], &warden);
            let _ = tell.send(Event::CaughtUp(Done { of, are_told: false }));
        })?;
    }
    Ok(())
}

/// File systems that are caught up with one after the other.
type Group = Vec<Arc<Served>>;

fn catch_up_with(group: Group, warden: &Warden) -> Vec<(Arc<Served>, Result<(), SummaryError>)> {
    let one = |served: Arc<Served>| {
        let done = catch_up(&served, warden);
        (served, done)
    };
    group.into_iter().map(one).collect()
}

/// The disks whose heads move when it is read. What can't be told may lie on any that seeks.
fn heads(served: &Served) -> Vec<u64> {
    let stack = Devices::of_system().map(|devices| devices.by_fd(served.file_system().top()));
    match stack {
        Ok(Ok(stack)) if stack.is_seekless() => Vec::new(),
        Ok(Ok(stack)) => stack.spindle_key(),
        Ok(Err(DeviceError::NoDevice { .. })) => Vec::new(),
        Ok(Err(_)) | Err(_) => vec![SOME_DISK],
    }
}

/// In groups of those that have a head in common, in their order.
fn apart(heads: &[Vec<u64>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Vec<u64>, Vec<usize>)> = Vec::new();
    for (at, own) in heads.iter().enumerate() {
        let has_one = |(theirs, _): &mut (Vec<u64>, Vec<usize>)| own.iter().any(|head| theirs.contains(head));
        let mut group = (own.clone(), Vec::new());
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
    served.catch_up(|tracked, done| {
        caught_up = done;
        if caught_up.is_err() {
            return;
        }
        if let Some(CaughtUp::All(doubt)) = tracked.caught_up() {
            tracing::warn!("{path}: harvested anew: {doubt}");
        }
        warden.rest();
        let (known, read) = (tracked.ledger().nodes.len(), tracked.readings());
        let seconds = began.elapsed().as_secs_f64();
        tracing::info!("{path}: {read} of {known} directories harvested in {seconds:.1} s");
    });
    caught_up
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn those_with_a_head_in_common_wait_for_each_other() {
        // A partition each of two disks, memory, a stripe over both disks, a third disk, memory again.
        let heads = [vec![1], vec![2], vec![], vec![1, 2], vec![3], vec![]];
        let mut groups = apart(&heads);
        groups.sort();
        assert_eq!(groups, [vec![0, 1, 3], vec![2], vec![4], vec![5]]);
    }
}
