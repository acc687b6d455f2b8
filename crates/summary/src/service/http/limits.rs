//! How long an answer is waited for.

use std::time::Instant;

use crate::service::protocol::Question;

/// So long an answer is waited for while it is found out what has changed before the server began, which may take hours: a browser or
/// Prometheus that hears nothing can't tell that from a server that hangs.
const CATCHING_UP_MS: u64 = 2000;

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
            catching_up_ms: Some(CATCHING_UP_MS.saturating_sub(passed)),
            ..question
        }
    }
}
