//! How long answers take, in microseconds, and of those that nobody waited for, how long they took at least.
//!
//! A request that was given up because the other side had won says that its answer takes longer than that. Where only
//! answers are counted, a peer looks as quick as its quickest ones: so such samples are kept as censored ones, and shares
//! are worked out as Kaplan and Meier do it.

/// A time or a span of time, in microseconds.
pub type Micros = u64;

/// Buckets in each power of two: a time is known within an eighth.
const PARTS: u32 = 8;
/// Times from here on, over two minutes, are one bucket.
const POWERS: u32 = 27;
const BUCKETS: usize = ((POWERS - 2) * PARTS) as usize;
/// With so many samples, each counts half from then on.
const WINDOW: u32 = 256;
/// Counts are kept in parts, so that halving doesn't lose single samples at once.
const ONE: u32 = 16;

/// The distribution of the last few hundred samples.
#[derive(Clone, Debug)]
pub struct Latency {
    answered: Box<[u32; BUCKETS]>,
    /// Given up within this bucket.
    given_up: Box<[u32; BUCKETS]>,
    total: u32,
    answers: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { answered: Box::new([0; BUCKETS]), given_up: Box::new([0; BUCKETS]), total: 0, answers: 0 }
    }
}

impl Latency {
    /// An answer came after so long.
    pub fn answered(&mut self, micros: Micros) {
        self.answered[bucket(micros)] += ONE;
        self.answers += ONE;
        self.count();
    }

    /// Nobody waited any longer than so long.
    pub fn given_up(&mut self, micros: Micros) {
        self.given_up[bucket(micros)] += ONE;
        self.count();
    }

    fn count(&mut self) {
        self.total += ONE;
        if self.total < WINDOW * ONE {
            return;
        }
        for count in self.answered.iter_mut().chain(self.given_up.iter_mut()) {
            *count /= 2;
        }
        self.answers = self.answered.iter().sum();
        self.total = self.answers + self.given_up.iter().sum::<u32>();
    }

    /// How many samples count at present, of either kind.
    pub fn samples(&self) -> u32 {
        self.total / ONE
    }

    /// Whether there was an answer lately.
    pub fn has_answers(&self) -> bool {
        self.answers > 0
    }

    /// The end of each bucket with the share of answers that take longer, in rising order; from the first bucket with a
    /// sample to the last.
    pub fn longer(&self) -> impl Iterator<Item = (Micros, f64)> + '_ {
        let mut waiting = self.total;
        let mut share = 1.0;
        (0..BUCKETS).map_while(move |index| {
            if waiting == 0 {
                return None;
            }
            let answered = self.answered[index];
            share *= 1.0 - f64::from(answered) / f64::from(waiting);
            // Who gave up within a bucket was there for all of its answers.
            waiting -= answered + self.given_up[index];
            Some((end(index), share))
        })
    }

    /// The share of answers that take longer than so long; 1 where nothing is known.
    #[cfg(test)]
    pub(super) fn share_longer(&self, micros: Micros) -> f64 {
        self.longer().take_while(|(end, _)| *end <= micros).last().map_or(1.0, |(_, share)| share)
    }

    /// The time that this share of answers doesn't pass. `None` where so many didn't come while somebody waited.
    pub fn quantile(&self, share: f64) -> Option<Micros> {
        self.longer().find(|(_, longer)| *longer <= 1.0 - share).map(|(end, _)| end)
    }

    /// Half of all answers come within it, or `None`.
    pub fn median(&self) -> Option<Micros> {
        self.quantile(0.5)
    }

    /// The longest that anybody has waited, answered or not.
    pub fn longest(&self) -> Option<Micros> {
        (0..BUCKETS).rev().find(|&index| self.answered[index] + self.given_up[index] > 0).map(end)
    }
}

/// Times below 8 µs have a bucket each, then eight buckets make a power of two.
fn bucket(micros: Micros) -> usize {
    let micros = micros.max(1);
    let power = micros.ilog2();
    let index = match power {
        0..=2 => micros as u32,
        _ => (power - 2) * PARTS + ((micros >> (power - 3)) as u32 - PARTS),
    };
    (index as usize).min(BUCKETS - 1)
}

/// The first time that is no more in the bucket.
fn end(index: usize) -> Micros {
    let index = index as u64 + 1;
    let parts = u64::from(PARTS);
    match index / parts {
        0 => index,
        power => (parts + index % parts) << (power - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_no_wider_than_an_eighth() {
        let mut last = 0;
        for micros in (1..100_000).chain([1 << 20, 99_999_999]) {
            let index = bucket(micros);
            assert!(index >= last, "{micros}");
            last = index;
            assert!(end(index) > micros, "{micros}: {index} ends at {}", end(index));
            assert!(end(index) - micros <= micros.div_ceil(8), "{micros}: {}", end(index));
            assert_eq!(bucket(end(index) - 1), index, "{micros}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let mut latency = Latency::default();
        assert_eq!((latency.median(), latency.longest(), latency.share_longer(5)), (None, None, 1.0));
        for micros in 1..=100 {
            latency.answered(micros * 10);
        }
        let median = latency.median().unwrap();
        assert!((500..=570).contains(&median), "{median}");
        assert!(latency.quantile(0.99).unwrap() >= 990);
        assert!((latency.share_longer(250) - 0.75).abs() < 0.05);
    }

    /// Of a peer that answers one request in ten at once, and lets the rest wait until they are given up, the answers
    /// alone would say that it is quick.
    #[test]
    fn what_was_given_up_counts() {
        let (mut all, mut answers_only) = (Latency::default(), Latency::default());
        for round in 0..100 {
            if round % 10 == 0 {
                all.answered(200);
                answers_only.answered(200);
            } else {
                all.given_up(8000);
            }
        }
        assert!(answers_only.median().unwrap() < 300);
        assert_eq!(all.median(), None);
        assert!(all.longest().unwrap() >= 8000);
        assert!((all.share_longer(1000) - 0.9).abs() < 0.01);
    }

    #[test]
    fn old_samples_fade() {
        let mut latency = Latency::default();
        for _ in 0..10_000 {
            latency.answered(100);
        }
        for _ in 0..300 {
            latency.answered(5000);
        }
        assert!(latency.median().unwrap() >= 5000);
        assert!(latency.samples() < 256);
    }
}
