//! Directories that are opened by their paths for who waits so long and no longer: aside, for what lies on another machine may never answer.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    protocol::{Name, Refusal},
    reach::Reach,
};
use crate::access::Asker;

/// So long each is waited for at least: who asks for several, one of which used up all time, is told of the others.
const LEAST: Duration = Duration::from_millis(100);
/// One that hasn't answered for so long isn't waited for by others.
const SILENT: Duration = Duration::from_secs(1);
/// So many may be under way for one who asks, and for all.
const EACH_MAX: usize = 16;
const ALL_MAX: usize = 128;

/// Those that are under way. Each is a thread here and one of the warden's, so no more than one waits for each path.
#[derive(Debug, Default)]
pub(super) struct Openings {
    under_way: Mutex<Vec<(Asked, Instant)>>,
    one_ended: Condvar,
}

type Asked = (Asker, Name);

/// Ends when this goes.
struct UnderWay {
    of: Arc<Openings>,
    asked: Asked,
}

impl Openings {
    /// Opens a directory where the asker could come to it; [`Refusal::Late`] where that doesn't answer by then.
    pub(super) fn open(
        self: &Arc<Self>,
        reach: &Arc<dyn Reach>,
        asker: &Asker,
        path: &Name,
        until: Instant,
    ) -> Result<OwnedFd, Refusal> {
        let until = until.max(Instant::now() + LEAST);
        let under_way = self.begin((asker.clone(), path.clone()), until).ok_or(Refusal::Late)?;
        let (tell, told) = mpsc::channel();
        let reach = Arc::clone(reach);
        let spawned = thread::Builder::new().name("opening".into()).spawn(move || {
            let (asker, path) = &under_way.asked;
            let opened = reach.open(asker, path);
            drop(under_way);
            // Whoever has waited too long doesn't take it.
            let _ = tell.send(opened);
        });
        spawned.map_err(|error| Refusal::Failed(error.to_string()))?;
        let waited = told.recv_timeout(until.saturating_duration_since(Instant::now()));
        waited.unwrap_or(Err(Refusal::Late))
    }

    /// Who asks for what another one has asked for just now waits for that first.
    fn begin(self: &Arc<Self>, asked: Asked, until: Instant) -> Option<UnderWay> {
        let mut under_way = self.lock();
        loop {
            let same = under_way.iter().find(|(other, _)| *other == asked);
            if same.is_some_and(|(_, began)| began.elapsed() >= SILENT) {
                return None;
            }
            let of_that_one = under_way.iter().filter(|((asker, _), _)| *asker == asked.0).count();
            if same.is_none() && of_that_one < EACH_MAX && under_way.len() < ALL_MAX {
                under_way.push((asked.clone(), Instant::now()));
                return Some(UnderWay { of: Arc::clone(self), asked });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.one_ended.wait_timeout(under_way, left.min(SILENT));
            under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Asked, Instant)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.of.lock().retain(|(other, _)| *other != self.asked);
        self.of.one_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::fd::BorrowedFd,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// What lies at `/silent` answers once it is told to.
    struct Answers(Mutex<mpsc::Receiver<()>>, AtomicUsize);

    impl Reach for Answers {
        fn open(&self, _: &Asker, path: &Name) -> Result<OwnedFd, Refusal> {
            self.1.fetch_add(1, Ordering::SeqCst);
            if *path == Name::of(b"/silent") {
                let _ = self.0.lock().expect("nobody panics with it").recv();
            }
            File::open("/").map(OwnedFd::from).map_err(|error| Refusal::Failed(error.to_string()))
        }

        fn check_way_to(&self, _: &Asker, _: BorrowedFd<'_>) -> Result<(), Refusal> {
            Ok(())
        }
    }

    #[test]
    fn what_does_not_answer_is_waited_for_once_and_keeps_no_other() {
        let (answer, answers) = mpsc::channel();
        let answers = Arc::new(Answers(Mutex::new(answers), AtomicUsize::new(0)));
        let reach = Arc::clone(&answers) as Arc<dyn Reach>;
        let openings = Arc::<Openings>::default();
        let open = |path: &[u8], until| openings.open(&reach, &Asker::Everything, &Name::of(path), until).map(drop);
        let (now, long) = (Instant::now(), Instant::now() + Duration::from_secs(100_000));
        assert_eq!(open(b"/silent", now), Err(Refusal::Late));
        // However little time it has left.
        assert_eq!(open(b"/other", now), Ok(()));
        // One that waits for long is told that it doesn't answer, and nobody waits for it once more.
        assert_eq!(open(b"/silent", long), Err(Refusal::Late));
        assert_eq!(answers.1.load(Ordering::SeqCst), 2);
        answer.send(()).expect("it waits");
        while !openings.lock().is_empty() {
            thread::yield_now();
        }
        answer.send(()).expect("it will be asked for");
        assert_eq!(open(b"/silent", long), Ok(()));
    }

    #[test]
    fn nobody_has_more_opened_than_some_at_a_time() {
        let openings = Arc::<Openings>::default();
        let begin = |uid: Option<u32>, number: usize| {
            let asker = uid.map_or(Asker::Everything, |uid| Asker::User { uid, groups: vec![uid] });
            openings.begin((asker, Name::of(number.to_string().as_bytes())), Instant::now())
        };
        let all: Vec<_> = (0..EACH_MAX).map(|number| begin(Some(7), number).expect("there is room")).collect();
        assert!(begin(Some(7), EACH_MAX).is_none());
        assert!(begin(Some(8), 0).is_some() && begin(None, 0).is_some());
        drop(all);
        assert!(begin(Some(7), EACH_MAX).is_some());
    }
}
