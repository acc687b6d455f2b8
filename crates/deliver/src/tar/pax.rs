//! Extended records of the pax format: `LENGTH KEY=VALUE\n`, where LENGTH counts itself.

use std::io::Write as _;

use onesweep::Timestamp;

/// Appends one record. The value may be any bytes.
pub(super) fn record(records: &mut Vec<u8>, key: &[&[u8]], value: &[u8]) {
    // A space, `=` and the newline.
    let rest = 3 + key.iter().map(|part| part.len()).sum::<usize>() + value.len();
    let mut length = rest + digits(rest);
    if digits(length) > digits(rest) {
        length += 1;
    }
    number(records, length as u64);
    records.push(b' ');
    for part in key {
        records.extend_from_slice(part);
    }
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Appends a record with a number.
pub(super) fn number_record(records: &mut Vec<u8>, key: &str, value: u64) {
    let mut text = [0; 20];
    record(records, &[key.as_bytes()], decimal(value, &mut text));
}

/// Appends a time: seconds, and nine digits behind the point if there is a fraction.
pub(super) fn time_record(records: &mut Vec<u8>, key: &str, time: Timestamp) {
    let mut text = [0; 40];
    let room = text.len();
    let mut rest = &mut text[..];
    // A negative time with a fraction is written as its distance from 1970: -1.25, not -2 and 0.75.
    let nanoseconds = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, fraction) = (nanoseconds.unsigned_abs() / 1_000_000_000, nanoseconds.unsigned_abs() % 1_000_000_000);
    let written =
        if fraction == 0 { write!(rest, "{sign}{seconds}") } else { write!(rest, "{sign}{seconds}.{fraction:09}") };
    debug_assert!(written.is_ok(), "20 digits, a point and 9 digits fit");
    let used = room - rest.len();
    record(records, &[key.as_bytes()], &text[..used]);
}

fn digits(value: usize) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(decimal(value, &mut [0; 20]));
}

/// `value` in decimal digits, without an allocation.
pub(super) fn decimal(mut value: u64, text: &mut [u8; 20]) -> &[u8] {
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &text[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_counts_itself() {
        for value in 0..1200 {
            let mut records = Vec::new();
            record(&mut records, &[b"k"], &vec![b'v'; value]);
            let text = String::from_utf8(records).unwrap();
            let (length, _) = text.split_once(' ').unwrap();
            assert_eq!(length.parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn writes_times_as_distances_from_1970() {
        let time = |seconds, nanoseconds| {
            let mut records = Vec::new();
            time_record(&mut records, "mtime", Timestamp { seconds, nanoseconds });
            String::from_utf8(records).unwrap()
        };
        assert_eq!(time(1, 5), "21 mtime=1.000000005\n");
        assert_eq!(time(-2, 750_000_000), "22 mtime=-1.250000000\n");
        assert_eq!(time(-1, 999_999_999), "22 mtime=-0.000000001\n");
        assert_eq!(time(-7, 0), "12 mtime=-7\n");
        assert_eq!(time(i64::MIN, 0), "30 mtime=-9223372036854775808\n");
    }
}
