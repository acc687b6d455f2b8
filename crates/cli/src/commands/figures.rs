//! Figures as GNU du writes them: always rounded up.

use crate::report::Failure;

/// What figures are told in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// So many to one, and what stands behind the figure.
    Fixed(u64, String),
    /// The largest power of 1024 or 1000 that fits.
    Human(u64),
}

const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

impl Unit {
    /// As `--block-size` takes it: `512`, `4K`, `M` (which then stands behind each figure), `kB`.
    pub(super) fn parse(text: &str) -> Result<Unit, Failure> {
        // Digits in groups, as a language has it: this program speaks none.
        let text = text.strip_prefix('\'').unwrap_or(text);
        match text {
            "human-readable" => return Ok(Unit::Human(1024)),
            "si" => return Ok(Unit::Human(1000)),
            _ => {}
        }
        let size = size(text).filter(|&size| size > 0);
        let size = size.ok_or_else(|| Failure::told(format!("'{text}' is no block size; write 512, 4K, M or kB")))?;
        // A unit alone stands behind each figure. Its letter is written as in Human, whatever was typed.
        let is_alone = text.starts_with(|char: char| char.is_ascii_alphabetic());
        let suffix = match text.get(1..).filter(|_| is_alone) {
            Some(rest) => {
                let typed = text.get(..1).unwrap_or_default().to_ascii_uppercase();
                let base = if rest == "B" { 1000 } else { 1024 };
                let power = LETTERS.iter().position(|known| *known == typed).unwrap_or(0);
                format!("{}{rest}", letter(power, base))
            }
            None => String::new(),
        };
        Ok(Unit::Fixed(size, suffix))
    }

    /// So many to one, with nothing behind the figure.
    pub(super) fn of(size: u64) -> Unit {
        Unit::Fixed(size, String::new())
    }

    /// What inodes are told in, as by GNU du: they are no bytes, so that many of them are never one. What is left of `KiB` is its
    /// last letter.
    pub(super) fn of_inodes(self) -> Unit {
        match self {
            Unit::Fixed(_, suffix) if suffix.ends_with('B') => Unit::Fixed(1, "B".to_owned()),
            Unit::Fixed(..) => Unit::of(1),
            Unit::Human(_) => self,
        }
    }

    pub(super) fn write(&self, figure: i64) -> String {
        // Less than nothing there is for a moment at most, while somebody writes.
        let figure = figure.max(0) as u64;
        match self {
            Unit::Fixed(size, suffix) => format!("{}{suffix}", figure.div_ceil(*size)),
            Unit::Human(base) => human(figure, *base),
        }
    }
}

/// What stands for a power of 1024 or 1000.
fn letter(power: usize, base: u64) -> &'static str {
    if base == 1000 && power == 1 { "k" } else { LETTERS[power] }
}

fn human(figure: u64, base: u64) -> String {
    let figure = u128::from(figure);
    let (mut power, mut unit) = (0, 1_u128);
    while figure >= unit * u128::from(base) && power + 1 < LETTERS.len() {
        (power, unit) = (power + 1, unit * u128::from(base));
    }
    let tenths = (figure * 10).div_ceil(unit);
    if power > 0 && tenths < 100 {
        return format!("{}.{}{}", tenths / 10, tenths % 10, letter(power, base));
    }
    match figure.div_ceil(unit) {
        // Rounded up to one of the next.
        full if full == u128::from(base) && power + 1 < LETTERS.len() => format!("1.0{}", letter(power + 1, base)),
        full => format!("{full}{}", letter(power, base)),
    }
}

/// A number with a unit, or a unit alone.
pub(super) fn size(text: &str) -> Option<u64> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = if number.is_empty() && !unit.is_empty() { 1 } else { number.parse().ok()? };
    let (letter, rest) = match unit.char_indices().nth(1) {
        Some((at, _)) => unit.split_at(at),
        None => (unit, ""),
    };
    let power = LETTERS.iter().position(|known| *known == letter.to_ascii_uppercase())? as u32;
    let base: u64 = match rest {
        "" | "iB" => 1024,
        "B" if power > 0 => 1000,
        _ => return None,
    };
    base.checked_pow(power)?.checked_mul(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_up() {
        for (figure, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024 - 1, "10K"),
            (10 * 1024 + 1, "11K"),
            (1024 * 1024 - 1, "1.0M"),
            (5 << 30, "5.0G"),
        ] {
            assert_eq!(Unit::Human(1024).write(figure), text);
        }
        assert_eq!(Unit::Human(1000).write(4096), "4.1k");
        assert_eq!(Unit::of(1024).write(1025), "2");
    }

    #[test]
    fn inodes_are_told_one_by_one() {
        for (size, text) in [("1M", "4096"), ("K", "4096"), ("KiB", "4096B"), ("kB", "4096B"), ("si", "4.1k")] {
            assert_eq!(
                Unit::parse(size).map(|unit| unit.of_inodes().write(4096)).ok().as_deref(),
                Some(text),
                "{size}"
            );
        }
    }

    #[test]
    fn block_sizes_are_read() {
        for (text, size, suffix) in [
            ("512", 512, ""),
            ("4K", 4096, ""),
            ("4kB", 4000, ""),
            ("M", 1 << 20, "M"),
            ("k", 1024, "K"),
            ("kB", 1000, "kB"),
            ("KB", 1000, "kB"),
            ("KiB", 1024, "KiB"),
            ("MB", 1_000_000, "MB"),
            ("MiB", 1 << 20, "MiB"),
            ("'1", 1, ""),
            ("1MiB", 1 << 20, ""),
        ] {
            assert_eq!(Unit::parse(text).ok(), Some(Unit::Fixed(size, suffix.to_owned())), "{text}");
        }
        for wrong in ["", "0", "many", "4X", "-1", "KK", "mib", "99999999999P"] {
            assert!(Unit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
