//! Dates of the command line (`--mtime`).

use std::{fs, io, os::unix::fs::MetadataExt as _};

use onesweep::Timestamp;

/// What is wrong with a date.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MtimeError {
    /// It is no date.
    #[error("`{text}' is no date; write @SECONDS, 2024-12-31, 2024-12-31T23:59:59Z, or the path of a file")]
    Date {
        /// What was given.
        text: String,
    },
    /// It is the path of a file, and the file's time can't be read.
    #[error("{path}: {source}")]
    File {
        /// The path.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Reads `--mtime`: `@SECONDS[.FRACTION]`; a date, or date and time, of ISO 8601 (`T` or a space between; an offset
/// such as `Z`, `+02:00`, `-0330` behind); or, when it begins with `/` or `.`, a file whose time is taken.
///
/// Without an offset the time is UTC, so that the archive doesn't depend on where it was made. (GNU tar takes the
/// local time there.)
pub fn parse_mtime(text: &str) -> Result<Timestamp, MtimeError> {
    if text.starts_with(['/', '.']) {
        let found = fs::metadata(text).map_err(|source| MtimeError::File { path: text.to_owned(), source })?;
        return Ok(Timestamp { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 });
    }
    let parsed = match text.strip_prefix('@') {
        Some(seconds) => epoch(seconds),
        None => date(text),
    };
    parsed.ok_or_else(|| MtimeError::Date { text: text.to_owned() })
}

/// `-1.5` is half a second before -1.
fn epoch(text: &str) -> Option<Timestamp> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, nanoseconds) = with_fraction(digits)?;
    let seconds = i64::try_from(whole).ok()?;
    Some(match (negative, nanoseconds) {
        (false, _) => Timestamp { seconds, nanoseconds },
        (true, 0) => Timestamp { seconds: -seconds, nanoseconds },
        (true, _) => Timestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

/// Digits, and after a point up to nine that count.
fn with_fraction(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = format!("{:0<9.9}", fraction).parse().ok()?;
    Some((digits(whole)?, nanoseconds))
}

fn digits(text: &str) -> Option<u64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn date(text: &str) -> Option<Timestamp> {
    let (day, rest) = text.split_at_checked(10)?;
    let mut parts = day.split('-');
    let (year, month, day) =
        (two_to_four(parts.next()?, 4)?, two_to_four(parts.next()?, 2)?, two_to_four(parts.next()?, 2)?);
    let days = days_since_1970(year, month, day)?;
    if rest.is_empty() {
        return Some(Timestamp { seconds: days * 86_400, nanoseconds: 0 });
    }
    if matches!(rest.trim_start(), "UTC" | "GMT" | "Z") {
        return Some(Timestamp { seconds: days * 86_400, nanoseconds: 0 });
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?.trim_start();
    let (clock, offset) = match rest.find(['Z', 'z', '+', '-', 'U', 'G', ' ']) {
        Some(at) => (&rest[..at], offset_seconds(rest[at..].trim())?),
        None => (rest, 0),
    };
    let (seconds, nanoseconds) = clock_seconds(clock)?;
    Some(Timestamp { seconds: days * 86_400 + seconds - offset, nanoseconds })
}

fn two_to_four(text: &str, length: usize) -> Option<i64> {
    if text.len() != length {
        return None;
    }
    digits(text)?.try_into().ok()
}

/// `HH:MM` or `HH:MM:SS[.fraction]`. A leap second counts as the first second after.
fn clock_seconds(text: &str) -> Option<(i64, u32)> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (two_to_four(parts.next()?, 2)?, two_to_four(parts.next()?, 2)?);
    let (second, nanoseconds) = match parts.next() {
        Some(text) => {
            let (second, nanoseconds) = with_fraction(text)?;
            (i64::try_from(second).ok()?, nanoseconds)
        }
        None => (0, 0),
    };
    (hour < 24 && minute < 60 && second <= 60).then_some((hour * 3600 + minute * 60 + second, nanoseconds))
}

/// `Z`, `UTC`, `GMT`, `+HH`, `+HHMM`, `+HH:MM`.
fn offset_seconds(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z" | "UTC" | "GMT") {
        return Some(0);
    }
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let minutes = if minutes.is_empty() && text.len() == 3 { 0 } else { two_to_four(minutes, 2)? };
    let hours = two_to_four(hours, 2)?;
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// The day's number in the Gregorian calendar; `None` for days that don't exist.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end; 719,468 days lie between 0000-03-01 and 1970-01-01.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dates() {
        // Checked with `date -u -d … +%s.%N`.
        for (text, seconds, nanoseconds) in [
            ("@0", 0, 0),
            ("@1700000000.5", 1_700_000_000, 500_000_000),
            ("@-1.25", -2, 750_000_000),
            ("@-3", -3, 0),
            ("@1.0000000019", 1, 1),
            ("1970-01-01", 0, 0),
            ("2000-02-29", 951_782_400, 0),
            ("1969-12-31 23:59:58", -2, 0),
            ("2024-12-31T23:59:59Z", 1_735_689_599, 0),
            ("2024-12-31T23:59:59.125+02:00", 1_735_682_399, 125_000_000),
            ("2024-12-31 23:59 -0330", 1_735_702_140, 0),
            ("2024-12-31 23:59 UTC", 1_735_689_540, 0),
            ("2024-12-31T23:59+05", 1_735_671_540, 0),
            ("2020-01-01 UTC", 1_577_836_800, 0),
            ("2020-01-01 12:00:00 UTC", 1_577_880_000, 0),
            ("2020-01-01 12:00 GMT", 1_577_880_000, 0),
            ("2020-01-01 12:00", 1_577_880_000, 0),
            ("2020-01-01T12:00:00Z", 1_577_880_000, 0),
            ("0000-03-01", -62_162_035_200, 0),
        ] {
            let read = parse_mtime(text).unwrap();
            assert_eq!((read.seconds, read.nanoseconds), (seconds, nanoseconds), "{text}");
        }
    }

    #[test]
    fn refuses_other_texts() {
        for text in [
            "",
            "@",
            "@x",
            "@1.",
            "@--1",
            "@9223372036854775808",
            "now",
            "2023-02-29",
            "2024-13-01",
            "2024-1-1",
            "2024-12-31T",
            "2024-12-31T24:00",
            "2024-12-31T23:59:61",
            "2024-12-31T23:59+1",
            "2024-12-31x",
            "ä024-12-3",
        ] {
            assert!(matches!(parse_mtime(text), Err(MtimeError::Date { .. })), "{text}");
        }
        assert!(matches!(parse_mtime("./no-such-file"), Err(MtimeError::File { .. })));
    }

    #[test]
    fn takes_the_time_of_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567, 89);
        file.as_file().set_modified(time).unwrap();
        let read = parse_mtime(file.path().to_str().unwrap()).unwrap();
        assert_eq!((read.seconds, read.nanoseconds), (1_234_567, 89));
    }
}
