//! Runs of addresses of a device.

/// Bytes from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AddressRun {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Sorted, with what overlaps or touches joined.
pub(crate) fn joined(mut runs: Vec<AddressRun>) -> Vec<AddressRun> {
    runs.sort_unstable();
    let mut joined: Vec<AddressRun> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => joined.push(run),
        }
    }
    joined
}

pub(crate) fn bytes(runs: &[AddressRun]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn run(start: u64, len: u64) -> AddressRun {
        AddressRun { start, end: start + len }
    }

    #[test]
    fn what_overlaps_or_touches_is_one_run() {
        let runs = joined(vec![run(500, 10), run(0, 100), run(50, 20), run(100, 50), run(505, 100)]);
        assert_eq!(runs, [run(0, 150), run(500, 105)]);
        assert_eq!(bytes(&runs), 255);
    }
}
