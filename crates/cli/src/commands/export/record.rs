//! A row of the table, whatever it is written as.

use onesweep_summary::service::{
    pages::{Entry, PageHead},
    protocol::Name,
};
use serde::{Serialize, Serializer};

use super::keys::{Labels, Pair, pairs};

/// What is the same in all rows of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) host: String,
    /// The path of the directory that was named, from the root of all.
    pub(super) top: Vec<u8>,
    /// In seconds since 1970.
    pub(super) exported_at: i64,
}

/// One directory. Each field is a column (docs/export.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Record<'a> {
    pub(super) host: &'a str,
    pub(super) file_system: &'a str,
    pub(super) exported_at: i64,
    pub(super) directory_id: String,
    pub(super) parent_id: Option<String>,
    #[serde(flatten, serialize_with = "name_as_json")]
    pub(super) name: Text,
    #[serde(flatten, serialize_with = "path_as_json")]
    pub(super) path: Option<Text>,
    pub(super) depth: i32,
    pub(super) apparent_bytes: i64,
    pub(super) allocated_bytes: i64,
    pub(super) files: i64,
    pub(super) directories: i64,
    pub(super) others: i64,
    pub(super) newest_change: Option<i64>,
    pub(super) largest_file: Option<i64>,
    pub(super) own_apparent_bytes: i64,
    pub(super) own_allocated_bytes: i64,
    pub(super) own_files: i64,
    pub(super) own_others: i64,
    pub(super) partial: bool,
    pub(super) unreadable: bool,
    pub(super) counted_at: i64,
    pub(super) keys: Vec<Pair<'a>>,
    pub(super) keys_unknown: bool,
}

/// Text for people and queries, and the bytes where they aren't UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) bytes: Option<Vec<u8>>,
}

impl Text {
    pub(super) fn of(bytes: Vec<u8>) -> Text {
        match String::from_utf8(bytes) {
            Ok(text) => Text { text, bytes: None },
            Err(error) => {
                let bytes = error.into_bytes();
                Text { text: String::from_utf8_lossy(&bytes).into_owned(), bytes: Some(bytes) }
            }
        }
    }

    fn hex(&self) -> Option<String> {
        self.bytes.as_deref().map(hex)
    }
}

impl<'a> Record<'a> {
    pub(super) fn of(entry: Entry, origin: &'a Origin, head: &'a PageHead, labels: &mut Labels) -> Record<'a> {
        let path = entry.path.map(|below| joined(&origin.top, below.into_bytes()));
        let is_top = entry.parent.is_none();
        let name = match entry.row.name {
            // It has a name in the directory above, though that isn't part of the export.
            _ if is_top => origin.top.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec(),
            name => Name::into_bytes(name),
        };
        let (total, own) = (entry.row.total, entry.row.own);
        Record {
            host: &origin.host,
            file_system: &head.file_system,
            exported_at: origin.exported_at,
            directory_id: entry.id,
            parent_id: entry.parent,
            name: Text::of(name),
            path: path.map(Text::of),
            depth: i32::try_from(entry.row.depth).unwrap_or(i32::MAX),
            apparent_bytes: total.bytes + total.directory_bytes,
            allocated_bytes: total.allocated,
            files: total.files,
            directories: total.directories,
            others: total.others,
            newest_change: entry.row.newest,
            largest_file: entry.row.largest.and_then(|bytes| i64::try_from(bytes).ok()),
            own_apparent_bytes: own.bytes + own.directory_bytes,
            own_allocated_bytes: own.allocated,
            own_files: own.files,
            own_others: own.others,
            partial: entry.partial,
            unreadable: entry.unreadable,
            counted_at: entry.harvested_at,
            keys_unknown: entry.keys.iter().any(|keys| keys.unknown > 0),
            keys: pairs(entry.keys, &head.summaries, labels),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn as_hex<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    bytes.as_deref().map(hex).serialize(to)
}

fn joined(top: &[u8], below: Vec<u8>) -> Vec<u8> {
    match (&below[..], top.ends_with(b"/")) {
        ([], _) => top.to_vec(),
        (_, true) => [top, &below].concat(),
        _ => [top, b"/", &below].concat(),
    }
}

fn name_as_json<S: Serializer>(name: &Text, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Told<'a> {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        name_hex: Option<String>,
    }
    Told { name: &name.text, name_hex: name.hex() }.serialize(to)
}

fn path_as_json<S: Serializer>(path: &Option<Text>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Told<'a> {
        path: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        path_hex: Option<String>,
    }
    Told { path: path.as_ref().map(|path| path.text.as_str()), path_hex: path.as_ref().and_then(Text::hex) }
        .serialize(to)
}

#[cfg(test)]
pub(super) mod tests {
    use onesweep_summary::service::protocol::{Figures, Row};

    use super::*;

    pub(in super::super) fn origin() -> Origin {
        Origin { host: "h".to_owned(), top: b"/srv".to_vec(), exported_at: 1_700_000_000 }
    }

    pub(in super::super) fn head() -> PageHead {
        PageHead { file_system: "fs".to_owned(), ..PageHead::default() }
    }

    pub(in super::super) fn record<'a>(entry: Entry, origin: &'a Origin, head: &'a PageHead) -> Record<'a> {
        Record::of(entry, origin, head, &mut Labels::default())
    }

    pub(in super::super) fn entry(number: u32, path: &[u8]) -> Entry {
        let is_top = path.is_empty();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let total = Figures {
            bytes: 100,
            directory_bytes: 20,
            allocated: 4096,
            files: 3,
            directories: 2,
            ..Figures::default()
        };
        let own = Figures { bytes: 7, directory_bytes: 10, files: 1, directories: 1, ..Figures::default() };
        Entry {
            id: format!("0.{number}.1"),
            parent: (!is_top).then(|| "0.2.1".to_owned()),
            path: Some(Name::of(path)),
            row: Row {
                name: Name::of(name),
                depth: 1,
                total,
                own,
                newest: Some(-5),
                largest: Some(u64::MAX),
                past: None,
            },
            partial: false,
            unreadable: true,
            harvested_at: 1_600_000_000,
            keys: Vec::new(),
        }
    }

    #[test]
    fn names_are_text_and_bytes_where_they_are_none() {
        let (origin, head) = (origin(), head());
        let told = record(entry(3, b"a/b\xff\n"), &origin, &head);
        assert_eq!((told.name.text.as_str(), told.name.bytes.as_deref()), ("b\u{fffd}\n", Some(&b"b\xff\n"[..])));
        let json: serde_json::Value = serde_json::to_value(&told).unwrap();
        assert_eq!((&json["path"], &json["path_hex"]), (&"/srv/a/b\u{fffd}\n".into(), &"2f7372762f612f62ff0a".into()));
        assert_eq!((&json["apparent_bytes"], &json["own_apparent_bytes"]), (&120.into(), &17.into()));
        let top = record(entry(2, b""), &origin, &head);
        assert_eq!((top.name.text.as_str(), top.path.map(|path| path.text).as_deref()), ("srv", Some("/srv")));
        let root = Origin { top: b"/".to_vec(), ..origin };
        assert_eq!(record(entry(3, b"a"), &root, &head).path.unwrap().text, "/a");
        let deep = record(Entry { path: None, ..entry(3, b"a") }, &root, &head);
        assert!(serde_json::to_value(&deep).unwrap()["path"].is_null());
    }
}
