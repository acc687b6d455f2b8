//! The allocation groups of a mounted XFS, one after the other or several at a time.

use std::{
    io,
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use crate::device::DeviceStack;

/// Groups at a time, at most.
const AT_A_TIME_MAX: usize = 4;

/// How many groups are best asked for at a time: one where a single head would go to and fro between them.
pub fn groups_at_a_time(stack: &DeviceStack) -> usize {
    if stack.is_seekless() { AT_A_TIME_MAX } else { stack.disks.len().clamp(1, AT_A_TIME_MAX) }
}

/// Does something with each of `count` groups, by as many threads as `at_a_time` says, of which this one is the first, until
/// `ask` says that this is enough, or fails: then the group and the error come back. Alone, groups come by rising number; else
/// those at a time lie far from each other, on different disks where one follows the other in the file system.
///
/// `EINVAL` stands for a group that is not there any more, which is no error but of the first.
pub fn each_group(
    count: u32,
    at_a_time: usize,
    ask: &(dyn Fn(u32) -> io::Result<ControlFlow<()>> + Sync),
) -> Result<(), (u32, io::Error)> {
    let threads = u32::try_from(at_a_time).unwrap_or(u32::MAX).clamp(1, count.max(1));
    let share = count.div_ceil(threads);
    let (next, is_enough, failed) = (AtomicU32::new(0), AtomicBool::new(false), Mutex::new(None));
    let work = || {
        while !is_enough.load(Ordering::Relaxed) {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= share.saturating_mul(threads) {
                break;
            }
            let group = turn % threads * share + turn / threads;
            if group >= count {
                continue;
            }
            match ask(group) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => is_enough.store(true, Ordering::Relaxed),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && group > 0 => {}
                Err(error) => {
                    is_enough.store(true, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((group, error));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // One is enough, and this one is there.
            let _ = thread::Builder::new().name("onesweep-groups".into()).spawn_scoped(scope, work);
        }
        work();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::device::Disk;

    fn asked(
        count: u32,
        at_a_time: usize,
        answer: impl Fn(u32) -> io::Result<ControlFlow<()>> + Sync,
    ) -> (Vec<u32>, Result<(), (u32, io::ErrorKind)>) {
        let asked = Mutex::new(Vec::new());
        let told = each_group(count, at_a_time, &|group| {
            asked.lock().unwrap().push(group);
            answer(group)
        });
        (asked.into_inner().unwrap(), told.map_err(|(group, error)| (group, error.kind())))
    }

    fn go_on(_: u32) -> io::Result<ControlFlow<()>> {
        Ok(ControlFlow::Continue(()))
    }

    #[test]
    fn each_is_asked_for_once() {
        for (count, at_a_time) in [(1, 1), (4, 1), (5, 2), (4, 4), (3, 4), (7, 3), (100, 4), (1, 0), (0, 4)] {
            let (mut groups, told) = asked(count, at_a_time, go_on);
            if at_a_time == 1 {
                assert!(groups.is_sorted());
            }
            groups.sort_unstable();
            assert_eq!(groups, (0..count).collect::<Vec<_>>(), "{count} by {at_a_time}");
            assert_eq!(told, Ok(()));
        }
    }

    /// Each waits for the other: of eight groups, those at a time are half of the file system apart.
    #[test]
    fn several_at_a_time_are_far_apart() {
        let both = Barrier::new(2);
        let pairs = Mutex::new(Vec::new());
        each_group(8, 2, &|group| {
            pairs.lock().unwrap().push(group);
            both.wait();
            both.wait();
            go_on(group)
        })
        .unwrap();
        let pairs = pairs.into_inner().unwrap();
        assert!(pairs.chunks(2).all(|pair| pair[0].abs_diff(pair[1]) == 4), "{pairs:?}");
    }

    #[test]
    fn it_ends_when_it_is_enough_or_fails() {
        let (groups, told) = asked(9, 1, |group| if group == 3 { Ok(ControlFlow::Break(())) } else { go_on(group) });
        assert_eq!((groups, told), (vec![0, 1, 2, 3], Ok(())));
        let denied = |group| if group == 2 { Err(io::ErrorKind::PermissionDenied.into()) } else { go_on(group) };
        let (groups, told) = asked(9, 1, denied);
        assert_eq!((groups, told), (vec![0, 1, 2], Err((2, io::ErrorKind::PermissionDenied))));
        assert_eq!(asked(9, 4, denied).1, Err((2, io::ErrorKind::PermissionDenied)));
        let gone = |group| if group >= 5 { Err(io::ErrorKind::InvalidInput.into()) } else { go_on(group) };
        assert_eq!(asked(9, 2, gone).1, Ok(()));
        assert_eq!(asked(9, 2, |_| Err(io::ErrorKind::InvalidInput.into())).1, Err((0, io::ErrorKind::InvalidInput)));
    }

    #[test]
    fn one_head_is_asked_for_one_group() {
        let on = |seekless: &[bool]| {
            let disk =
                |(number, &seekless)| Disk { dev: number, name: "d".into(), rotational: None, size: 1, seekless };
            groups_at_a_time(&DeviceStack {
                dev: 9,
                name: "d".into(),
                node: "/dev/d".into(),
                mapper_node: None,
                size: 1,
                logical_block: 512,
                disks: (0..).zip(seekless).map(disk).collect(),
                base: None,
                through: Vec::new(),
                members: 1,
            })
        };
        assert_eq!((on(&[false]), on(&[false; 2]), on(&[false; 9])), (1, 2, 4));
        assert_eq!((on(&[true]), on(&[true, false])), (4, 2));
    }
}
