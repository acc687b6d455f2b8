//! The conditions of find(1) that people use most.

use onesweep::filter;
use onesweep_layout::tables::Timestamp;
use thiserror::Error;

use super::Row;
use crate::tar::Owner;

const DAY_NANOSECONDS: i128 = 86_400 * SECOND_NANOSECONDS;
const SECOND_NANOSECONDS: i128 = 1_000_000_000;

/// Units of `--size` and their bytes, as find(1) has them.
const UNITS: [(char, u64); 6] = [('c', 1), ('w', 2), ('b', 512), ('k', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

/// Letters of `--type` and the type bits they stand for.
const TYPES: [(char, u32); 7] = [('f', 0o10), ('d', 0o4), ('l', 0o12), ('p', 0o1), ('s', 0o14), ('b', 0o6), ('c', 0o2)];

/// One condition that a file has to meet.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// The last part of its path matches a shell pattern.
    Name(Vec<u8>),
    /// Its size, in units rounded up.
    Size {
        /// How the number is meant.
        bound: Bound,
        /// Bytes of a unit.
        unit: u64,
    },
    /// Time since its last change. Above a number of days is a whole day more, and as much is less than a day more, so that
    /// whole numbers are of days rounded down.
    Mtime {
        /// How the number of nanoseconds is meant.
        bound: Bound<i128>,
        /// From when on to count.
        now: Timestamp,
    },
    /// Its owner.
    User(u32),
    /// Its type is one of these, as in the upper four bits of `st_mode`.
    Type(Vec<u32>),
}

/// `+N`, `-N` or `N`: more, less, or as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound<T = u64> {
    /// More.
    Above(T),
    /// Less.
    Below(T),
    /// As much.
    Is(T),
}

/// Why a text is no condition.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{text}' is no {what}; write {example}")]
pub struct ConditionError {
    text: String,
    what: &'static str,
    example: &'static str,
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Nanoseconds of days, with a fraction or without.
fn days(text: &str) -> Option<i128> {
    // Digits behind these make less than a nanosecond.
    const DIGITS: usize = 15;
    let (days, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if days.is_empty() && fraction.is_empty() || !is_number(days) || !is_number(fraction) {
        return None;
    }
    let days = if days.is_empty() { 0 } else { whole(days)? };
    let fraction: i128 = format!("{fraction:0<DIGITS$}")[..DIGITS].parse().ok()?;
    Some(i128::from(days) * DAY_NANOSECONDS + fraction * DAY_NANOSECONDS / 10_i128.pow(DIGITS as u32))
}

impl<T> Bound<T> {
    fn parse(text: &str, number: impl Fn(&str) -> Option<T>) -> Option<Bound<T>> {
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(rest), _) => number(rest).map(Bound::Above),
            (_, Some(rest)) => number(rest).map(Bound::Below),
            _ => number(text).map(Bound::Is),
        }
    }
}

impl Bound {
    fn holds(self, value: u64) -> bool {
        match self {
            Bound::Above(least) => value > least,
            Bound::Below(most) => value < most,
            Bound::Is(number) => value == number,
        }
    }
}

impl Condition {
    /// `-name PATTERN`.
    pub fn name(pattern: &[u8]) -> Condition {
        Condition::Name(pattern.to_vec())
    }

    /// `-size [+-]N[cwbkMG]`; without a unit, blocks of 512 bytes.
    pub fn size(text: &str) -> Result<Condition, ConditionError> {
        let unit = text.chars().last().and_then(|last| UNITS.iter().find(|(letter, _)| *letter == last));
        let number = text.strip_suffix(|last: char| unit.is_some_and(|(letter, _)| *letter == last)).unwrap_or(text);
        let bound = Bound::parse(number, whole).ok_or(ConditionError {
            text: text.to_owned(),
            what: "size",
            example: "100k, +20M (more) or -1G (less); units c, w, b, k, M, G",
        })?;
        Ok(Condition::Size { bound, unit: unit.map_or(512, |(_, bytes)| *bytes) })
    }

    /// `-mtime [+-]N`, also with a fraction, counted from `now`.
    pub fn mtime(text: &str, now: Timestamp) -> Result<Condition, ConditionError> {
        let example = "7 (seven days ago), +7 (longer), -7 (less) or -1.5";
        let bound = Bound::parse(text, days).ok_or(ConditionError {
            text: text.to_owned(),
            what: "number of days",
            example,
        })?;
        Ok(Condition::Mtime { bound, now })
    }

    /// `-user NAME|NUMBER`.
    pub fn user(text: &str) -> Result<Condition, ConditionError> {
        let known = Owner::user(text).ok().and_then(|owner| owner.id);
        let unknown =
            ConditionError { text: text.to_owned(), what: "user of this system", example: "a name or a number" };
        known.map(Condition::User).ok_or(unknown)
    }

    /// `-type f,d,…`.
    pub fn kinds(text: &str) -> Result<Condition, ConditionError> {
        let kind = |part: &str| {
            let mut letters = part.chars();
            let found = TYPES.iter().find(|(letter, _)| Some(*letter) == letters.clone().next());
            letters.next();
            found.filter(|_| letters.next().is_none()).map(|(_, bits)| *bits)
        };
        let kinds: Option<Vec<u32>> = text.split(',').map(kind).collect();
        let wrong = ConditionError {
            text: text.to_owned(),
            what: "list of types",
            example: "f, d, l, p, s, b or c, or several with commas between",
        };
        kinds.map(Condition::Type).ok_or(wrong)
    }

    /// Whether a file meets it.
    pub fn holds(&self, path: &[u8], row: &Row) -> bool {
        match self {
            Condition::Name(pattern) => filter::matches_name(pattern, last_part(path)),
            Condition::Size { bound, unit } => bound.holds(row.size.div_ceil(*unit)),
            Condition::Mtime { bound, now } => {
                let nanoseconds =
                    |time: Timestamp| i128::from(time.seconds) * SECOND_NANOSECONDS + i128::from(time.nanoseconds);
                let age = nanoseconds(*now) - nanoseconds(row.mtime);
                match *bound {
                    Bound::Above(least) => age >= least + DAY_NANOSECONDS,
                    // What is of tomorrow is younger than anything.
                    Bound::Below(most) => age < most || age < 0,
                    Bound::Is(about) => (about..about + DAY_NANOSECONDS).contains(&age),
                }
            }
            Condition::User(uid) => row.uid == *uid,
            Condition::Type(kinds) => kinds.contains(&(row.mode >> 12)),
        }
    }
}

/// The last part of a path, without slashes behind it; of slashes alone, one.
fn last_part(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |last| last + 1);
    let path = &path[..end];
    match path {
        b"/" => path,
        _ => path.rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

    fn sized(size: u64) -> Row {
        Row { size, ..Row::default() }
    }

    #[test]
    fn sizes_are_rounded_up_to_units() {
        for (text, holding, not_holding) in [
            ("1", vec![1, 512], vec![0, 513]),
            ("0c", vec![0], vec![1]),
            ("1k", vec![1, 1024], vec![0, 1025]),
            ("+1k", vec![1025], vec![0, 1024]),
            ("-1M", vec![0], vec![1, 1 << 20]),
            ("-2G", vec![0, 1 << 30], vec![(1 << 30) + 1]),
        ] {
            let condition = Condition::size(text).unwrap();
            holding.iter().for_each(|&size| assert!(condition.holds(b"x", &sized(size)), "{text} {size}"));
            not_holding.iter().for_each(|&size| assert!(!condition.holds(b"x", &sized(size)), "{text} {size}"));
        }
        for text in ["", "k", "1q", "--1", "+", "1kk", "-+1"] {
            assert!(Condition::size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn days_are_whole_ones() {
        let aged =
            |seconds| Row { mtime: Timestamp { seconds: NOW.seconds - seconds, nanoseconds: 0 }, ..Row::default() };
        for (text, holding, not_holding) in [
            ("0", vec![0, 86_399], vec![86_400, -5]),
            ("1", vec![86_400], vec![86_399]),
            ("+1", vec![2 * 86_400], vec![86_400 + 5]),
            ("-1", vec![0, 86_399, -5], vec![86_400]),
            ("1.5", vec![129_600, 215_999], vec![129_599, 216_000]),
            ("+1.5", vec![216_000], vec![215_999]),
            ("-1.5", vec![129_599], vec![129_600]),
            ("+.5", vec![129_600], vec![129_599]),
            ("-0.00001157407407407407", vec![0], vec![1]),
            ("-1.", vec![86_399], vec![86_400]),
        ] {
            let condition = Condition::mtime(text, NOW).unwrap();
            holding.iter().for_each(|&age| assert!(condition.holds(b"x", &aged(age)), "{text} {age}"));
            not_holding.iter().for_each(|&age| assert!(!condition.holds(b"x", &aged(age)), "{text} {age}"));
        }
        for text in ["soon", "", ".", "+", "1.5.2", "-.", "1e3", "--1", "1.-5"] {
            assert!(Condition::mtime(text, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn names_types_and_owners() {
        let name = Condition::name(b"*.[ch]");
        assert!(name.holds(b"a.d/x.c", &Row::default()) && !name.holds(b"a.c/x", &Row::default()));
        // As find(1) has it of a path as it is named.
        for (path, last) in
            [(&b"mnt/"[..], &b"mnt"[..]), (b"a/mnt//", b"mnt"), (b"/", b"/"), (b"//", b"/"), (b"", b""), (b"x", b"x")]
        {
            assert!(Condition::name(last).holds(path, &Row::default()), "{path:?}");
        }
        let file = Row { mode: 0o100_644, uid: 7, ..Row::default() };
        assert!(
            Condition::kinds("d,f").unwrap().holds(b"x", &file) && !Condition::kinds("l").unwrap().holds(b"x", &file)
        );
        assert!(
            Condition::user("7").unwrap().holds(b"x", &file) && !Condition::user("root").unwrap().holds(b"x", &file)
        );
        assert!(Condition::kinds("").is_err() && Condition::kinds("ff").is_err() && Condition::user("no one").is_err());
    }
}
