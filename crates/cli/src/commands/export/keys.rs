//! What directories come to by declared summaries, as pairs of key and value.

use std::collections::HashMap;

use onesweep_summary::{
    custom::declare::By,
    service::{
        breakdown::{self, Listed, Share, Value},
        pages::Keys,
        protocol::Name,
    },
};
use serde::Serialize;

use super::record::Text;

/// One pair. Each field is one of the column `keys` (docs/export.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Pair<'a> {
    pub(super) summary: &'a str,
    pub(super) by: By,
    /// None of what all keys come to that found no room.
    pub(super) key: Option<String>,
    #[serde(rename = "key_hex", serialize_with = "super::record::as_hex", skip_serializing_if = "Option::is_none")]
    pub(super) key_bytes: Option<Vec<u8>>,
    pub(super) label: Option<String>,
    pub(super) inodes: Option<i64>,
    pub(super) apparent_bytes: Option<i64>,
    pub(super) allocated_bytes: Option<i64>,
    pub(super) value: Option<i64>,
}

/// What people call owners and groups on this machine: each is looked up once.
#[derive(Default)]
pub(super) struct Labels(HashMap<(bool, String), Option<String>>);

impl Labels {
    fn of(&mut self, key: &str, by: By) -> Option<String> {
        if !matches!(by, By::Owner | By::Group) {
            return None;
        }
        let known = self.0.entry((by == By::Owner, key.to_owned()));
        known.or_insert_with(|| breakdown::label(key, by)).clone()
    }
}

/// The pairs of a directory, in the order of the summaries.
pub(super) fn pairs<'a>(all: Vec<Keys>, summaries: &'a [Listed], labels: &mut Labels) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for Keys { summary, shares, other, .. } in all {
        // Whatever a server says.
        let Some(Listed { name, by }) = summaries.get(summary) else { continue };
        let pair = |value: Value| Pair {
            summary: name,
            by: *by,
            key: None,
            key_bytes: None,
            label: None,
            inodes: value.inodes,
            apparent_bytes: value.bytes,
            allocated_bytes: value.allocated,
            value: value.value,
        };
        for Share { key, value, .. } in shares {
            let Text { text, bytes } = Text::of(Name::into_bytes(key));
            let label = labels.of(&text, *by);
            pairs.push(Pair { key: Some(text), key_bytes: bytes, label, ..pair(value) });
        }
        pairs.extend(other.map(pair));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_name_their_summary_and_what_found_no_room() {
        let summaries =
            [Listed { name: "who".to_owned(), by: By::Owner }, Listed { name: "rows".to_owned(), by: By::Command }];
        let value = |inodes| Value { inodes: Some(inodes), bytes: Some(2), allocated: Some(3), value: None };
        let share = |key: &[u8], value| Share { key: Name::of(key), label: None, from: None, to: None, value };
        let all = vec![
            Keys { summary: 0, shares: vec![share(b"0", value(5))], other: Some(value(7)), unknown: 0 },
            Keys {
                summary: 1,
                shares: vec![share(b"a\xff", Value { value: Some(-4), ..Value::default() })],
                ..Keys::default()
            },
            Keys { summary: 2, shares: vec![share(b"of none", value(1))], ..Keys::default() },
        ];
        let told = pairs(all, &summaries, &mut Labels::default());
        let names: Vec<_> = told.iter().map(|pair| (pair.summary, pair.key.as_deref())).collect();
        assert_eq!(names, [("who", Some("0")), ("who", None), ("rows", Some("a\u{fffd}"))]);
        assert_eq!((told[0].label.as_deref(), told[1].inodes), (Some("root"), Some(7)));
        let json = serde_json::to_value(&told[2]).unwrap();
        assert_eq!((&json["key_hex"], &json["by"], &json["value"]), (&"61ff".into(), &"command".into(), &(-4).into()));
        assert_eq!(json["inodes"], serde_json::Value::Null);
    }
}
