//! Sizes and rates, as people write and read them.

use std::{fmt, str::FromStr};

use crate::picture::bytes_text;

/// A number of bytes. `K`, `M`, `G`, `T` (also `KiB`, …) are powers of 1024; `KB`, `MB`, `GB`, `TB` powers of 1000.
/// A rate may end in `/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no size; write 4096, 512K, 256M or 1G (powers of 1024), or 1GB (of 1000)");
        let bare = text.strip_suffix("/s").unwrap_or(text);
        let digits = bare.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(bare.len());
        let (number, unit) = bare.split_at(digits);
        let factor = factor(unit).ok_or_else(wrong)?;
        let bytes = match number.parse::<u64>() {
            Ok(number) => number.checked_mul(factor),
            Err(_) => number.parse::<f64>().ok().map(|number| number * factor as f64).and_then(whole_bytes),
        };
        bytes.map(Self).ok_or_else(wrong)
    }
}

fn whole_bytes(bytes: f64) -> Option<u64> {
    (0.0..u64::MAX as f64).contains(&bytes).then_some(bytes as u64)
}

fn factor(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    if lower.is_empty() || lower == "b" {
        return Some(1);
    }
    let (letter, rest) = lower.split_at_checked(1)?;
    let power = 1 + "kmgtp".find(letter)? as u32;
    match rest {
        "" | "ib" => 1024_u64.checked_pow(power),
        "b" => 1000_u64.checked_pow(power),
        _ => None,
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&bytes_text(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1K", 1024),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1KB", 1000),
            ("256M", 256 << 20),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("10MB/s", 10_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "K", "-1", "1X", "1KK", "1.2.3", "1 M", "99999999999999999999", "1e3", "20000000P", "é"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (256 << 20, "256 MiB"), (5 << 42, "20.0 TiB")]
        {
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>9}", Size(1)), "      1 B");
    }
}
