//! How many requests to peers may be of no use.

use super::latency::Micros;

/// What a request costs, in the parts in which the budget is kept.
const REQUEST: i64 = 1_000_000;
/// What is free at the start.
const FREE_REQUESTS: i64 = 8;
const FREE_BYTES: i64 = 512 << 10;
/// Parts of a request that each read brings, whoever answers it: 4 %, and 0.5 % on a fast device. With what is saved up that
/// stays below 5 % and 1 %.
const SHARE: i64 = 40_000;
const SHARE_FAST: i64 = 5000;
/// So much is saved up by reads alone; more by successes.
const SAVED_BY_READS: i64 = 4;
const SAVED_BY_READS_FAST: i64 = 2;
const SAVED_BY_SUCCESSES: i64 = 64;
/// After so many losses in a row the peer is of no use any more, and what its successes had saved up isn't spent on it: the breaker lets
/// few requests out at a time, so that it would last for hundreds of reads.
const LOST_IN_A_ROW: u32 = 8;
/// What was saved up by then is spent no more, but for this, once a device turns out to be fast.
const SAVED_FAST: i64 = 4;
/// A success gives back what it cost, and pays for so many more; but not on a fast device, which is held up for a moment now and
/// then, so that a peer is the quicker one.
const GAIN: i64 = 2;
/// One that saved less than this, in microseconds, pays for less: where a device is held up for a moment now and then, a peer is
/// quicker without being of use.
pub(super) const WORTH: Micros = 8000;

/// The budget of extra requests: those that the local disk answered, or nobody.
///
/// Requests are counted, and beside them bytes of answers that were of no use. Bytes may be owed: one more answer is known
/// only when it has come.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    requests: i64,
    reserved: i64,
    bytes: i64,
    /// What the device was at the last read.
    fast: bool,
    /// Requests of no use since the last success.
    lost_in_a_row: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self { requests: FREE_REQUESTS * REQUEST, reserved: 0, bytes: FREE_BYTES, fast: false, lost_in_a_row: 0 }
    }
}

impl Budget {
    /// A read was asked.
    pub(super) fn asked(&mut self, bytes: u64, fast: bool) {
        self.fast = fast;
        let (share, saved) = if fast { (SHARE_FAST, SAVED_BY_READS_FAST) } else { (SHARE, SAVED_BY_READS) };
        if fast {
            self.requests = self.requests.min(SAVED_FAST * REQUEST);
        }
        self.requests = add(self.requests, share, saved * REQUEST);
        self.bytes = add(self.bytes, signed(bytes) * share / REQUEST, FREE_BYTES);
    }

    /// Whether a request may go out now. `patient`: as many at once as there are reads.
    ///
    /// What was reserved ends with one of [`Self::released`], [`Self::won`] and [`Self::lost`]; what it [gained](Self::gained) by
    /// winning may be known later.
    pub(super) fn reserve(&mut self, patient: bool) -> bool {
        let reserved = if patient { 0 } else { self.reserved };
        let may = self.bytes > 0 && self.requests - reserved >= REQUEST;
        self.reserved += if may { REQUEST } else { 0 };
        may
    }

    /// It never went out.
    pub(super) fn released(&mut self) {
        self.reserved -= REQUEST;
    }

    /// Its answer was the first valid one.
    pub(super) fn won(&mut self) {
        self.lost_in_a_row = 0;
        self.reserved -= REQUEST;
    }

    /// A success of so many bytes came so much earlier than the disk.
    pub(super) fn gained(&mut self, bytes: u64, saved: Micros) {
        if self.fast {
            return;
        }
        let worth = signed(saved.min(WORTH));
        let part = |whole: i64| whole.saturating_mul(worth) / signed(WORTH);
        self.requests = add(self.requests, part(GAIN * REQUEST), SAVED_BY_SUCCESSES * REQUEST);
        let most = FREE_BYTES.max(SAVED_BY_SUCCESSES * signed(bytes));
        self.bytes = add(self.bytes, part(GAIN * signed(bytes)), most);
    }

    /// It was of no use.
    pub(super) fn lost(&mut self) {
        self.reserved -= REQUEST;
        self.requests -= REQUEST;
        self.lost_in_a_row = self.lost_in_a_row.saturating_add(1);
        if self.lost_in_a_row >= LOST_IN_A_ROW {
            self.requests = self.requests.min(SAVED_BY_READS * REQUEST);
        }
    }

    /// An answer came that was of no use.
    pub(super) fn wasted(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(signed(bytes));
    }

    /// At least one request is free: the network is another one.
    pub(super) fn renew(&mut self) {
        self.requests = self.requests.max(self.reserved + REQUEST);
        self.bytes = self.bytes.max(1);
    }

    pub(super) fn is_unreserved(&self) -> bool {
        self.reserved == 0
    }
}

/// `more` up to a limit, below which nothing is taken away.
fn add(now: i64, more: i64, most: i64) -> i64 {
    now.saturating_add(more).min(most.max(now))
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX >> 8).min(i64::MAX >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extra requests among `reads` reads, after the first 200, when no request is ever of use.
    fn extra(reads: u32, fast: bool) -> u32 {
        let mut budget = Budget::default();
        let mut extra = 0;
        for read in 0..200 + reads {
            budget.asked(4096, fast);
            if budget.reserve(false) {
                budget.lost();
                extra += u32::from(read >= 200);
            }
        }
        extra
    }

    /// The peer is asked of each fifth read where that is paid for, and wins each second time.
    #[test]
    fn successes_on_a_fast_device_pay_for_nothing_more() {
        let extra = |fast: bool| {
            let mut budget = Budget::default();
            let mut extra = 0;
            for read in 0..2000_u32 {
                budget.asked(4096, fast);
                if read % 5 == 0 && budget.reserve(false) {
                    if read % 10 == 0 {
                        budget.won();
                        budget.gained(4096, WORTH);
                    } else {
                        budget.lost();
                        extra += u32::from(read >= 200);
                    }
                }
            }
            f64::from(extra) / 18.0
        };
        assert!(extra(true) <= 1.0 && extra(false) > 4.0, "{} {}", extra(true), extra(false));
    }

    #[test]
    fn few_requests_are_of_no_use() {
        assert!((30..=50).contains(&extra(1000, false)), "{}", extra(1000, false));
        assert!((5..=10).contains(&extra(1000, true)), "{}", extra(1000, true));
    }

    #[test]
    fn successes_pay_for_more() {
        let mut budget = Budget::default();
        while budget.reserve(false) {
            budget.lost();
        }
        budget.renew();
        for _ in 0..40 {
            assert!(budget.reserve(false));
            budget.won();
            budget.gained(4096, WORTH);
        }
        let mut held = 0;
        while budget.reserve(false) {
            held += 1;
        }
        assert_eq!(held, SAVED_BY_SUCCESSES);
    }

    #[test]
    fn what_was_saved_up_is_not_spent_on_a_fast_device() {
        let mut budget = Budget::default();
        (0..100).for_each(|_| budget.gained(4096, WORTH));
        budget.asked(4096, true);
        let held = std::iter::from_fn(|| budget.reserve(false).then_some(())).count();
        assert_eq!(held as i64, SAVED_FAST);
    }

    #[test]
    fn a_success_that_saves_little_pays_for_little() {
        let mut budget = Budget::default();
        let spend = |budget: &mut Budget| std::iter::from_fn(|| budget.reserve(false).then(|| budget.lost())).count();
        spend(&mut budget);
        budget.renew();
        for _ in 0..100 {
            assert!(budget.reserve(false));
            budget.won();
            budget.gained(4096, WORTH / 20);
        }
        assert_eq!(spend(&mut budget), 11, "a tenth of a request each, and the one that was free");
    }

    #[test]
    fn late_answers_are_paid_by_their_bytes() {
        let mut budget = Budget::default();
        assert!(budget.reserve(false));
        budget.lost();
        budget.wasted(1 << 20);
        assert!(!budget.reserve(false), "more came than is free");
        let reads = (1..).find(|_| {
            budget.asked(1 << 20, false);
            budget.reserve(false)
        });
        assert!((10..=15).contains(&reads.unwrap()), "{reads:?}");
    }

    #[test]
    fn a_patient_reader_has_all_its_requests_out() {
        let mut budget = Budget::default();
        assert!((0..100).all(|_| budget.reserve(true)));
        assert!(!budget.reserve(false));
        for _ in 0..100 {
            budget.lost();
        }
        assert!(!budget.reserve(true), "now they are paid");
        assert!(budget.is_unreserved());
    }
}
