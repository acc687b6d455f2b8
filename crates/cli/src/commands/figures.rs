//! Figures as GNU du writes them: always rounded up.

use crate::report::Failure;

/// What figures are told in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// So many to one, and what stands behind the figure.
    Fixed(u64, &'static str),
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
        let letter = text.chars().next().filter(char::is_ascii_alphabetic);
        let suffix =
            letter.and_then(|letter| LETTERS.iter().find(|known| **known == letter.to_ascii_uppercase().to_string()));
        Ok(Unit::Fixed(size, suffix.copied().unwrap_or("")))
    }

    pub(super) fn write(&self, figure: i64) -> String {
        // Less than nothing there is for a moment at most, while somebody writes.
        let figure = figure.max(0) as u64;
        match *self {
            Unit::Fixed(size, suffix) => format!("{}{suffix}", figure.div_ceil(size)),
            Unit::Human(base) => human(figure, base),
        }
    }
}

fn human(figure: u64, base: u64) -> String {
    let figure = u128::from(figure);
    let (mut power, mut unit) = (0, 1_u128);
    while figure >= unit * u128::from(base) && power + 1 < LETTERS.len() {
        (power, unit) = (power + 1, unit * u128::from(base));
    }
    let letter = |power: usize| if base == 1000 && power == 1 { "k" } else { LETTERS[power] };
    let tenths = (figure * 10).div_ceil(unit);
    if power > 0 && tenths < 100 {
        return format!("{}.{}{}", tenths / 10, tenths % 10, letter(power));
    }
    match figure.div_ceil(unit) {
        // Rounded up to one of the next.
        full if full == u128::from(base) && power + 1 < LETTERS.len() => format!("1.0{}", letter(power + 1)),
        full => format!("{full}{}", letter(power)),
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
        assert_eq!(Unit::Fixed(1024, "").write(1025), "2");
    }

    #[test]
    fn block_sizes_are_read() {
        assert_eq!(Unit::parse("512").ok(), Some(Unit::Fixed(512, "")));
        assert_eq!(Unit::parse("4K").ok(), Some(Unit::Fixed(4096, "")));
        assert_eq!(Unit::parse("M").ok(), Some(Unit::Fixed(1 << 20, "M")));
        assert_eq!(Unit::parse("kB").ok(), Some(Unit::Fixed(1000, "K")));
        assert_eq!(Unit::parse("'1").ok(), Some(Unit::Fixed(1, "")));
        assert_eq!(Unit::parse("1MiB").ok(), Some(Unit::Fixed(1 << 20, "")));
        for wrong in ["", "0", "many", "4X", "-1", "KK", "99999999999P"] {
            assert!(Unit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
