//! Finds out what has changed while nobody tracked it, and harvests that: file systems on different disks side by side, those that have
//! a head in common one after the other.

use std::{
    sync::{Arc, mpsc::Sender},
    time::Instant,
};

use super::{Event, spawn};
use crate::{message, report::Failure};
use onesweep_layout::Devices;
use onesweep_summary::{
    reading::Directories,
    service::server::Served,
    summaries::{CaughtUp, SummaryError},
    warden::guarded::Warden,
};

/// What became of some of them.
pub(super) struct Done {
    pub(super) of: Vec<(Arc<Served>, Result<(), SummaryError>)>,
    /// Somebody tells what changes there. All others may lie on what doesn't answer, and nothing waits for them.
    pub(super) are_told: bool,
    /// They were tracked from the start.
    pub(super) from_start: bool,
}

/// Begins; gives how often somebody is going to be told of some of which changes are told.
pub(super) fn begin(
    volumes: Vec<Arc<Served>>,
    from_start: bool,
    warden: &Arc<Warden>,
    tell: &Sender<Event>,
) -> Result<usize, Failure> {
    let heads: Vec<Vec<u64>> = volumes.iter().map(|served| heads(served)).collect();
    let mut told = 0;
    for group in apart(&heads) {
        let group: Vec<Arc<Served>> = group.into_iter().map(|at| Arc::clone(&volumes[at])).collect();
        let are_told = group.iter().any(|served| served.file_system().changes_are_told());
        told += usize::from(are_told);
        let (tell, warden) = (tell.clone(), Arc::clone(warden));
        spawn("catching-up", move || {
            let catch_up = |served: Arc<Served>| {
                let done = catch_up(&served, &warden);
                (served, done)
            };
            let of = group.into_iter().map(catch_up).collect();
            let _ = tell.send(Event::CaughtUp(Done { of, are_told, from_start }));
        })?;
    }
    Ok(told)
}

/// The disks whose heads move when it is read.
fn heads(served: &Served) -> Vec<u64> {
    let volume = served.file_system();
    if !volume.changes_are_told() {
        return Vec::new();
    }
    let stack = Devices::of_system().ok().and_then(|devices| devices.by_fd(volume.top()).ok());
    stack.filter(|stack| !stack.is_seekless()).map_or_else(Vec::new, |stack| stack.spindle_key())
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
