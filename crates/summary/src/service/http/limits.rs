//! How long an answer is waited for.

use std::time::{Duration, Instant};

use crate::service::protocol::Question;

/// So long an answer is waited for while it is found out what has changed before the server began, which may take hours: a browser or
/// Prometheus that hears nothing can't tell that from a server that hangs.
const CATCHING_UP: Duration = Duration::from_secs(2);

/// Of one request, whatever is asked for it.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    began: Instant,
    max_ms: Option<u64>,
}

impl Limits {
    /// Of a request that came just now.
    pub(super) fn now(max_ms: Option<u64>) -> Limits {
        Limits { began: Instant::now(), max_ms }
    }

    /// The same question by who waits as long as is left, and no longer than it says itself.
    pub(super) fn bound(self, question: Question) -> Question {
        let passed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let max_ms = self.max_ms.map(|most| most.saturating_sub(passed));
        Question {
            max_ms: [question.max_ms, max_ms].into_iter().flatten().min(),
            catching_up_until: Some(self.began + CATCHING_UP),
            ..question
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_questions_of_a_request_end_at_the_same_time() {
        let limits = Limits::now(Some(10_000));
        let ends = || {
            let question = limits.bound(Question::plain());
            assert!(question.max_ms.is_some_and(|max_ms| max_ms <= 10_000));
            question.catching_up_until
        };
        let first = ends();
        assert!(first.is_some());
        assert_eq!(first, ends());
    }
}
