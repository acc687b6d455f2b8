//! File systems that may not answer, each opened aside: nobody waits for long for what lies on another machine that is gone.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

/// The paths that are being opened.
#[derive(Debug, Default)]
pub(super) struct Openings {
    under_way: Arc<Mutex<BTreeSet<PathBuf>>>,
}

fn lock(paths: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    paths.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of them.
#[derive(Debug)]
pub(super) struct Opening<T>(Receiver<io::Result<T>>);

impl Openings {
    /// Begins to open a path, unless it hasn't answered yet since that was begun before: no more than one waits for each.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        path: &Path,
        open: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Opening<T> {
        let (tell, told) = mpsc::channel();
        if lock(&self.under_way).insert(path.to_owned()) {
            let (of, under_way) = (path.to_owned(), Arc::clone(&self.under_way));
            let spawned = thread::Builder::new().name("opening".into()).spawn(move || {
                let opened = open(&of);
                lock(&under_way).remove(&of);
                // Whoever has waited too long doesn't take it.
                let _ = tell.send(opened);
            });
            if spawned.is_err() {
                lock(&self.under_way).remove(path);
            }
        }
        Opening(told)
    }
}

impl<T> Opening<T> {
    /// What has come of it; `TimedOut` where nothing has until then.
    pub(super) fn wait(self, until: Instant) -> io::Result<T> {
        let told = self.0.recv_timeout(until.saturating_duration_since(Instant::now()));
        told.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it doesn't answer")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_does_not_answer_is_waited_for_once() {
        let (openings, path) = (Openings::default(), Path::new("/mnt/nas"));
        let (answer, answered) = mpsc::channel::<u8>();
        let first = openings.begin(path, move |_| answered.recv().map_err(io::Error::other));
        let kind = |waited: io::Result<u8>| waited.map_err(|error| error.kind());
        let again = openings.begin(path, |_| Ok(2));
        assert_eq!(kind(again.wait(Instant::now())), Err(io::ErrorKind::TimedOut));
        let long = || Instant::now() + Duration::from_secs(3600);
        assert_eq!(kind(openings.begin(Path::new("/mnt/other"), |_| Ok(3)).wait(long())), Ok(3));
        answer.send(1).expect("it waits");
        assert_eq!(kind(first.wait(long())), Ok(1));
        assert_eq!(kind(openings.begin(path, |_| Ok(4)).wait(long())), Ok(4));
    }
}
