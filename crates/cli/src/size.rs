//! Sizes, rates and times, as they are typed and shown.

pub(crate) use onesweep_layout::size::Size;

/// Seconds as a person reads them.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown() {
        assert_eq!(duration(18.46), "18 s");
        assert_eq!(duration(362.0), "6 min");
    }
}
