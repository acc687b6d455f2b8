//! Medians and what lies around them.

use std::collections::BTreeMap;

/// Several values of one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) least: f64,
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    pub(crate) greatest: f64,
    pub(crate) mean: f64,
    /// The standard deviation; 0 of one value.
    pub(crate) deviation: f64,
    /// Ratios of which one side was measured once: what is seen are the rounds of the other.
    pub(crate) one_sided: bool,
}

impl Spread {
    pub(crate) fn one_sided(self, one_sided: bool) -> Self {
        Self { one_sided, ..self }
    }

    /// The standard error of the mean; 0 of one value.
    pub(crate) fn error(self) -> f64 {
        self.deviation / (self.count as f64).sqrt()
    }
}

/// The quartiles, between neighbours in proportion; `None` of nothing.
pub(crate) fn spread(values: Vec<f64>) -> Option<Spread> {
    let at = |part| quantile(&values, part);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(Spread {
        count: values.len(),
        least: at(0.0)?,
        lower: at(0.25)?,
        median: at(0.5)?,
        upper: at(0.75)?,
        greatest: at(1.0)?,
        mean,
        deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
        one_sided: false,
    })
}

/// The value below which that part of them lies; `None` of nothing.
pub(crate) fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = part * values.len().checked_sub(1)? as f64;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// Values by the round in which they were measured.
pub(crate) type Rounds = BTreeMap<u32, f64>;

/// The ratios of pairs of the same round, which a slow moment of the machine meets both.
pub(crate) fn ratios(over: &Rounds, under: &Rounds) -> Option<Spread> {
    let ratio = |(round, over): (&u32, &f64)| under.get(round).filter(|under| **under > 0.0).map(|under| over / under);
    spread(over.iter().filter_map(ratio).collect())
}

/// The same, where a side that was measured once is held against every round of the other.
pub(crate) fn ratios_or_against_one(over: &Rounds, under: &Rounds) -> Option<Spread> {
    let repeated = |one: &Rounds, many: &Rounds| -> Rounds {
        let value = one.values().next().copied();
        many.keys().filter_map(|&round| Some((round, value?))).collect()
    };
    match (over.len(), under.len()) {
        (1, 2..) => ratios(&repeated(over, under), under).map(|spread| spread.one_sided(true)),
        (2.., 1) => ratios(over, &repeated(under, over)).map(|spread| spread.one_sided(true)),
        _ => ratios(over, under),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        let five = spread(vec![5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((five.least, five.lower, five.median, five.upper, five.greatest), (1.0, 2.0, 3.0, 4.0, 5.0));
        let two = spread(vec![2.0, 1.0]).unwrap();
        assert_eq!((two.lower, two.median, two.upper, two.count), (1.25, 1.5, 1.75, 2));
        assert_eq!(spread(Vec::new()), None);
    }

    #[test]
    fn the_error_of_a_mean_is_less_for_more_values() {
        let of = |values: &[f64]| spread(values.to_vec()).map(|spread| (spread.mean, spread.error())).unwrap();
        assert_eq!(of(&[7.0]), (7.0, 0.0));
        assert!((of(&[1.0, 3.0]).1 - 1.0).abs() < 1e-12);
        assert_eq!(of(&[1.0, 3.0, 1.0, 3.0]).0, 2.0);
        assert!((of(&[1.0, 3.0, 1.0, 3.0]).1 - (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn pairs_are_compared_one_by_one() {
        let rounds = |values: &[(u32, f64)]| values.iter().copied().collect::<Rounds>();
        assert_eq!(ratios(&rounds(&[(0, 10.0), (1, 40.0)]), &rounds(&[(0, 5.0), (1, 10.0)])).unwrap().median, 3.0);
        assert_eq!(ratios(&rounds(&[(0, 1.0)]), &rounds(&[(0, 0.0)])), None);
        let lacking = ratios(&rounds(&[(0, 1.0), (2, 6.0)]), &rounds(&[(1, 1.0), (2, 2.0), (3, 1.0)])).unwrap();
        assert_eq!((lacking.count, lacking.median), (1, 3.0));
    }

    #[test]
    fn what_was_measured_once_is_held_against_every_round() {
        let rounds = |values: &[(u32, f64)]| values.iter().copied().collect::<Rounds>();
        let (one, three) = (rounds(&[(0, 6.0)]), rounds(&[(0, 1.0), (1, 2.0), (2, 3.0)]));
        let over = ratios_or_against_one(&one, &three).unwrap();
        assert_eq!((over.count, over.least, over.median, over.greatest), (3, 2.0, 3.0, 6.0));
        assert!(over.one_sided);
        let under = ratios_or_against_one(&three, &one).unwrap();
        assert_eq!((under.count, under.greatest, under.one_sided), (3, 0.5, true));
        let both = ratios_or_against_one(&three, &three).unwrap();
        assert_eq!((both.count, both.one_sided), (3, false));
        assert_eq!(ratios_or_against_one(&Rounds::new(), &three), None);
    }
}
