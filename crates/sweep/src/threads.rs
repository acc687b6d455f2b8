//! Pieces of work side by side, each in a thread of its own; where the system refuses one, on the thread that is there.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
    thread,
};

/// Does `work` with each piece, and gives what came of each, in their order; an error is a panic.
///
/// Pieces that get no thread are put off: they are told so, and are done here one after the other.
pub(crate) fn each<P: Send, R: Send>(
    pieces: Vec<P>,
    put_off: impl Fn(&mut P),
    work: impl Fn(P) -> R + Sync,
) -> Vec<thread::Result<R>> {
    each_with(thread::Builder::new, pieces, put_off, work)
}

fn each_with<P: Send, R: Send>(
    builder: impl Fn() -> thread::Builder,
    pieces: Vec<P>,
    put_off: impl Fn(&mut P),
    work: impl Fn(P) -> R + Sync,
) -> Vec<thread::Result<R>> {
    // A thread that is refused would take its piece with it.
    let places: Vec<_> = pieces.into_iter().map(|piece| Mutex::new(Some(piece))).collect();
    let (places, work) = (&places, &work);
    let take = |place: &Mutex<Option<P>>| {
        let piece = place.lock().unwrap_or_else(PoisonError::into_inner).take();
        work(piece.expect("each is taken once"))
    };
    let take = &take;
    thread::scope(|scope| {
        let started: Vec<_> = places
            .iter()
            .map(|place| builder().spawn_scoped(scope, move || take(place)).map_err(|_refused| place))
            .collect();
        for place in started.iter().filter_map(|started| started.as_ref().err()) {
            place.lock().unwrap_or_else(PoisonError::into_inner).as_mut().into_iter().for_each(&put_off);
        }
        let here = |place: &Mutex<_>| catch_unwind(AssertUnwindSafe(|| take(place)));
        // All of these before any other is waited for.
        let done: Vec<_> = started.into_iter().map(|started| started.map_err(here)).collect();
        done.into_iter().map(|done| done.map_or_else(|here| here, thread::ScopedJoinHandle::join)).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// No machine has room for such a stack.
    const REFUSED: usize = 1 << 50;

    #[test]
    fn what_gets_no_thread_is_done_here() {
        for refused in [&[][..], &[1], &[0, 1, 2, 3]] {
            let asked = AtomicUsize::new(0);
            let builder = || {
                let is_refused = refused.contains(&asked.fetch_add(1, Ordering::SeqCst));
                let builder = thread::Builder::new();
                if is_refused { builder.stack_size(REFUSED) } else { builder }
            };
            let pieces: Vec<_> = (0..4).map(|number| (number, false)).collect();
            let work = |(number, is_put_off): (usize, bool)| {
                assert_ne!(number, 3, "as in a fault of the program");
                (number, is_put_off, thread::current().id())
            };
            let done = each_with(builder, pieces, |piece| piece.1 = true, work);
            let (mut threads, here) = (BTreeSet::new(), thread::current().id());
            for (number, done) in done.iter().enumerate() {
                let Ok((done, is_put_off, thread)) = done else {
                    assert_eq!(number, 3);
                    continue;
                };
                assert_eq!((*done, *is_put_off), (number, refused.contains(&number)));
                assert_eq!(*thread == here, *is_put_off);
                threads.insert(format!("{thread:?}"));
            }
            let own = (0..3).filter(|number| !refused.contains(number)).count();
            assert_eq!(threads.len(), own + usize::from(own < 3));
            assert_eq!(done.iter().filter(|done| done.is_err()).count(), 1);
        }
    }
}
