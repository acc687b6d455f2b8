//! The declared summaries of the directories of `/metrics`.

use std::fmt::Write;

use super::{limits::Limits, metrics::label};
use crate::{
    access::Asker,
    custom::declare::By,
    service::{
        breakdown::{Breakdown, Value},
        protocol::{Name, Question},
        server::Server,
    },
    summaries::Freshness,
};

/// So many keys of a summary have series of their own, for each of them is one more for whoever keeps them.
const KEYS_MAX: usize = 20;
/// The key of all others.
const OTHERS: &str = "(all others)";

/// A family: name, unit, what it is, and its value.
type Family = (&'static str, &'static str, &'static str, fn(&Value) -> Option<i64>);

const FAMILIES: [Family; 3] = [
    (
        "onesweep_directory_breakdown_allocated_bytes",
        "bytes",
        "Bytes that are allocated to what has this key by a declared summary.",
        |value| value.allocated,
    ),
    ("onesweep_directory_breakdown_inodes", "", "Files, directories and others of this key.", |value| value.inodes),
    ("onesweep_directory_breakdown_value", "", "What a command said of this key.", |value| value.value),
];

/// The families, or nothing where none are declared.
pub(super) fn families(
    server: &Server,
    asker: &Asker,
    paths: &[Name],
    (freshness, limits): (Freshness, Limits),
) -> String {
    let mut told: Vec<(String, Breakdown)> = Vec::new();
    for summary in server.declared() {
        // Of the largest files each is a name, which is no key.
        for path in paths.iter().filter(|_| summary.by != By::Largest) {
            let by = Some(summary.name.clone());
            let question = limits.bound(Question { path: Some(path.clone()), freshness, by, ..Question::plain() });
            if let Ok(breakdown) = server.break_down(asker, &question, None) {
                told.push((label(&path.clone().into_bytes()), breakdown));
            }
        }
    }
    exposition(&told)
}

fn exposition(told: &[(String, Breakdown)]) -> String {
    let mut text = String::new();
    for (name, unit, help, value) in FAMILIES {
        let mut samples = String::new();
        for (path, breakdown) in told {
            let mut sample = |key: &str, value: i64| {
                let summary = &breakdown.summary;
                // Writing to a text can't fail.
                let _ = writeln!(samples, "{name}{{path=\"{path}\",summary=\"{summary}\",key=\"{key}\"}} {value}");
            };
            let some = breakdown.shares.iter().filter_map(|share| Some((share, value(&share.value)?)));
            let (mut others, mut has_others) = (0, false);
            for (at, (share, value)) in some.enumerate() {
                match at {
                    ..KEYS_MAX => sample(&label(&share.key.clone().into_bytes()), value),
                    _ => (others, has_others) = (others + value, true),
                }
            }
            if let Some(value) = breakdown.other.as_ref().and_then(value) {
                (others, has_others) = (others + value, true);
            }
            // Minima and maxima don't add up.
            if has_others && (breakdown.other.is_some() || breakdown.by != By::Command) {
                sample(OTHERS, others);
            }
        }
        if !samples.is_empty() {
            let _ = writeln!(text, "# TYPE {name} gauge");
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            let _ = writeln!(text, "# HELP {name} {help}");
            text += &samples;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::breakdown::Share;

    fn breakdown(by: By, keys: usize, value: Value, other: Option<Value>) -> Breakdown {
        let share = |at: usize| Share { key: Name::Text(format!("k{at}")), label: None, from: None, to: None, value };
        Breakdown {
            summary: "s".into(),
            by,
            answered_at: 0,
            partial: false,
            exact: true,
            checked_at: None,
            timed: false,
            harvested_at: 0,
            unreadable: 0,
            late: None,
            shares: (0..keys).map(share).collect(),
            other,
            more: other.is_some(),
            unknown: 0,
            unknown_in: Vec::new(),
            unknown_why: None,
        }
    }

    #[test]
    fn series_are_bounded() {
        let value = Value { inodes: Some(1), bytes: Some(5), allocated: Some(512), value: None };
        let text = exposition(&[("/srv".into(), breakdown(By::Owner, 30, value, Some(value)))]);
        assert!(text.contains("# UNIT onesweep_directory_breakdown_allocated_bytes bytes\n"), "{text}");
        let wanted = "onesweep_directory_breakdown_allocated_bytes{path=\"/srv\",summary=\"s\",key=";
        assert!(text.contains(&format!("{wanted}\"k19\"}} 512\n")), "{text}");
        assert!(text.contains(&format!("{wanted}\"(all others)\"}} 5632\n")), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with(wanted)).count(), 21);
        assert!(!text.contains("breakdown_value"), "{text}");
        let said = Value { value: Some(-3), ..Value::default() };
        let text = exposition(&[("/srv".into(), breakdown(By::Command, 25, said, None))]);
        assert_eq!(text.lines().filter(|line| line.starts_with("onesweep_directory_breakdown_value{")).count(), 20);
        assert!(!text.contains("(all others)") && !text.contains("_inodes"), "{text}");
        assert_eq!(exposition(&[]), "");
    }
}
