//! Sizes and spans, as typed.

use crate::disk::geometry::Span;
use crate::disk::model::DiskModel;

/// Bytes: a number with K, M, G or T for powers of 1,024, or kB, MB, GB or TB for powers of 1,000.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(format!("{text:?} is not a size such as 4096, 64K or 8G")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(|| format!("{text:?} is too large"));
    }
    let part: f64 = number.parse().map_err(|_| format!("{text:?} is not a size such as 4096, 64K or 8G"))?;
    Ok((part * unit as f64) as u64)
}

/// As it is typed, where it is a whole number of some unit.
pub(crate) fn display(bytes: u64) -> String {
    let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let unit = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// A span as typed: `A..B`, each a size or a percentage of the disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SpanArg {
    from: Edge,
    to: Edge,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Edge {
    Place(f64),
    Bytes(u64),
}

impl Edge {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.parse().map_err(|_| format!("{text:?} is not a percentage"))?;
                Ok(Self::Place(percent / 100.0))
            }
            None => bytes(text).map(Self::Bytes),
        }
    }

    fn place(self, capacity: u64) -> f64 {
        match self {
            Self::Place(place) => place,
            Self::Bytes(bytes) => bytes as f64 / capacity as f64,
        }
    }
}

impl std::str::FromStr for SpanArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").ok_or("a span is FROM..TO, such as 0..10% or 0..8G")?;
        Ok(Self { from: Edge::parse(from)?, to: Edge::parse(to)? })
    }
}

impl SpanArg {
    /// The part of that disk.
    pub(crate) fn on(self, model: &DiskModel) -> Result<Span, String> {
        let (from, to) = (self.from.place(model.capacity), self.to.place(model.capacity));
        if !(0.0 <= from && from < to && to <= 1.0) {
            return Err(format!("the span must lie within the {} bytes of {}", model.capacity, model.name));
        }
        Ok(Span { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_are_read() {
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        assert_eq!(bytes("8GB"), Ok(8_000_000_000));
        assert!(bytes("8X").is_err() && bytes("").is_err() && bytes("99999999T").is_err());
        let disk = DiskModel::named("barracuda-7200.11").unwrap();
        let span = |text: &str| text.parse::<SpanArg>().and_then(|span| span.on(&disk));
        assert_eq!(span("0..100%"), Ok(Span::WHOLE));
        assert_eq!(span("250GB..50%"), Ok(Span { from: 0.25, to: 0.5 }));
        assert!(span("0..2TB").is_err() && span("50%..10%").is_err() && span("7").is_err());
    }
}
