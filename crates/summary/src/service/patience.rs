//! How long somebody waits for an answer, and harvests that go on when nobody waits for them any more.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    access::Asker,
    identity::NodeId,
    summaries::{Freshness, Looks},
};

/// So often who waits is told how far it got.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// So long who harvests is given to come to the end of a portion, by who wants what is stored.
const LET_IN_WITHIN: Duration = Duration::from_millis(500);
/// So many harvests may go on by themselves at a time.
const GOING_MAX: usize = 16;
/// And so many for one who does not see all.
const GOING_EACH_MAX: usize = 4;

/// How far a harvest has got that somebody waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Directories that were read since the question, by whomever.
    pub read: u64,
    /// Directories that are known to have changed and were not read yet.
    pub left: u64,
}

/// What somebody is ready to wait for.
#[derive(Default)]
pub struct Patience<'a> {
    /// Until then.
    pub until: Option<Instant>,
    /// What has changed while nobody tracked it is waited for until then, by all questions of one request together.
    pub catching_up_until: Option<Instant>,
    /// Who is told meanwhile.
    pub tell: Option<&'a mut dyn FnMut(Progress)>,
}

impl<'a> Patience<'a> {
    /// Ends after so long.
    pub fn of(time: Option<Duration>) -> Patience<'a> {
        // What is too long to be told is for ever.
        Patience { until: time.and_then(|time| Instant::now().checked_add(time)), ..Patience::default() }
    }

    /// Until when who harvests is given to come to the end of a portion.
    pub(super) fn let_in_by(&self) -> Instant {
        let by = Instant::now() + LET_IN_WITHIN;
        self.catching_up_until.map_or(by, |until| by.min(until + LET_IN_WITHIN))
    }

    /// Until when a lock is waited for whose holder may never come to the end of a portion.
    pub(super) fn locked_by(&self) -> Option<Instant> {
        self.until.map(|until| until.max(self.let_in_by()))
    }

    pub(super) fn is_endless(&self) -> bool {
        self.until.is_none() && self.tell.is_none()
    }

    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// How long to wait before looking up again.
    pub(super) fn step(&self) -> Duration {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(TELL_EVERY, |left| if self.tell.is_some() { left.min(TELL_EVERY) } else { left })
    }
}

/// How a harvest ended: what the answer to its question says of itself, or why there is none.
pub(super) type Outcome = Result<Claim, String>;

/// What an answer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) is_exact: bool,
    pub(super) checked_at: Option<i64>,
}

/// One harvest that goes on by itself.
#[derive(Debug, Default)]
pub(super) struct Going {
    outcome: Mutex<Option<Outcome>>,
    has_ended: Condvar,
    looks: Mutex<Looks>,
}

impl Going {
    /// What was looked at for it, once it has ended.
    pub(super) fn take_looks(&self) -> Looks {
        std::mem::take(&mut lock(&self.looks))
    }

    /// How it ended; `None` when that took too long. `progress` says how far it is.
    pub(super) fn wait(&self, patience: &mut Patience<'_>, progress: impl Fn() -> Progress) -> Option<Outcome> {
        loop {
            {
                let outcome = lock(&self.outcome);
                let waited = self.has_ended.wait_timeout_while(outcome, patience.step(), |outcome| outcome.is_none());
                if let Some(outcome) = &*waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return Some(outcome.clone());
                }
            }
            if patience.is_over() {
                return None;
            }
            if let Some(tell) = &mut patience.tell {
                tell(progress());
            }
        }
    }
}

/// What a question is about, and who asks, where that one doesn't see all: when a harvest ends mustn't tell what others hide.
type Asked = (NodeId, Freshness, Option<Asker>);

/// All that go on by themselves.
#[derive(Debug, Default)]
pub(super) struct AllGoing(Mutex<Vec<(Asked, Arc<Going>)>>);

impl AllGoing {
    /// One that somebody has begun for the same question; else a new one and its end, to be kept where it runs. `None` when
    /// there are too many.
    pub(super) fn join(self: &Arc<Self>, question: Asked) -> Option<(Arc<Going>, Option<Ending>)> {
        let mut all = lock(&self.0);
        // What was written by then is only known to who asks for that.
        let same = all.iter().find(|(other, _)| *other == question && question.1 == Freshness::Exact);
        if let Some((_, going)) = same {
            return Some((Arc::clone(going), None));
        }
        let of_that_one = all.iter().filter(|((.., asker), _)| *asker == question.2).count();
        if all.len() >= GOING_MAX || (question.2.is_some() && of_that_one >= GOING_EACH_MAX) {
            return None;
        }
        let going = Arc::<Going>::default();
        all.push((question, Arc::clone(&going)));
        let ending = Ending { all: Arc::clone(self), going: Arc::clone(&going) };
        Some((going, Some(ending)))
    }
}

/// Says how a harvest ended, however it ends.
pub(super) struct Ending {
    all: Arc<AllGoing>,
    going: Arc<Going>,
}

impl Ending {
    pub(super) fn leave(&self, looks: Looks) {
        *lock(&self.going.looks) = looks;
    }

    pub(super) fn say(&self, outcome: Outcome) {
        lock(&self.going.outcome).get_or_insert(outcome);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.say(Err("the harvest was broken off".to_owned()));
        lock(&self.all.0).retain(|(_, going)| !Arc::ptr_eq(going, &self.going));
        self.going.has_ended.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Or a request that asks for much would wait as long for each of it.
    #[test]
    fn who_harvests_is_waited_for_once_by_a_request() {
        let until = Instant::now();
        let patience = Patience { catching_up_until: Some(until), ..Patience::default() };
        assert_eq!([patience.let_in_by(), patience.let_in_by()], [until + LET_IN_WITHIN; 2]);
    }

    #[test]
    fn nobody_takes_all_harvests_that_go_on_by_themselves() {
        let all = Arc::<AllGoing>::default();
        let join = |uid: Option<u32>| {
            let asker = uid.map(|uid| Asker::User { uid, groups: vec![uid] });
            all.join((NodeId::default(), Freshness::Synced, asker)).map(|(_, ending)| ending)
        };
        let of_one: Vec<_> = (0..GOING_EACH_MAX).map(|_| join(Some(1000)).expect("it begins")).collect();
        assert!(join(Some(1000)).is_none());
        assert!(join(Some(1001)).is_some() && join(None).is_some());
        drop(of_one);
        assert!(join(Some(1000)).is_some());
    }
}
