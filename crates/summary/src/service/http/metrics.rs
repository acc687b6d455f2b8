//! `/metrics`: chosen directories in the text form of OpenMetrics 1.0.

use std::fmt::Write;

use super::{api, limits::Limits, request::Request, response::Response};
use crate::{
    access::Asker,
    service::{
        listing::Listing,
        protocol::{Name, Question, Refusal},
        server::Server,
    },
};

const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A family: name, unit, what it is, and its value; `None` where there is none.
type Family = (&'static str, &'static str, &'static str, fn(&Listing, i64) -> Option<i64>);

const FAMILIES: [Family; 11] = [
    ("onesweep_directory_size_bytes", "bytes", "Bytes of all that is in it, as sizes tell them.", |listing, _| {
        Some(listing.total.bytes + listing.total.directory_bytes)
    }),
    ("onesweep_directory_allocated_bytes", "bytes", "Bytes that are allocated to all that is in it.", |listing, _| {
        Some(listing.total.allocated)
    }),
    ("onesweep_directory_files", "", "Regular files in it.", |listing, _| Some(listing.total.files)),
    ("onesweep_directory_directories", "", "Directories, itself among them.", |listing, _| {
        Some(listing.total.directories)
    }),
    ("onesweep_directory_others", "", "Symbolic links, sockets, pipes and devices in it.", |listing, _| {
        Some(listing.total.others)
    }),
    ("onesweep_directory_largest_file_bytes", "bytes", "The size of the largest file in it.", |listing, _| {
        listing.largest.and_then(|bytes| i64::try_from(bytes).ok())
    }),
    (
        "onesweep_directory_newest_change_timestamp_seconds",
        "seconds",
        "When a content in it changed last.",
        |listing, _| listing.newest,
    ),
    (
        "onesweep_directory_harvest_age_seconds",
        "seconds",
        "How long ago what is told was right: no change that isn't counted is older.",
        |listing, _| i64::try_from(listing.age).ok(),
    ),
    ("onesweep_directory_exact", "", "1 when nothing is known to have changed since it was counted.", |listing, _| {
        Some(listing.exact.into())
    }),
    (
        "onesweep_directory_open_files_age_seconds",
        "seconds",
        "How long ago files that stay mapped for writing, or open for it where sizes follow at close, were looked at.",
        |listing, now| listing.checked_at.map(|at| (now - at).max(0)),
    ),
    ("onesweep_directory_partial", "", "1 when something was left out.", |listing, _| {
        Some((listing.partial || listing.unreadable > 0).into())
    }),
];

/// The last line.
const END: &str = "# EOF\n";

const KNOWN: (&str, &str) = ("onesweep_directory_known", "1 when the directory is there, tracked, and may be seen.");

pub(super) fn answer(server: &Server, asker: &Asker, paths: &[Name], request: &Request, limits: Limits) -> Response {
    let freshness = match api::word(request, "freshness") {
        Ok(freshness) => freshness,
        Err(why) => return Response::refusal(400, "bad_request", &why),
    };
    let listed: Vec<(Vec<u8>, Option<Listing>)> = paths
        .iter()
        .filter_map(|path| {
            let question = limits.bound(Question { path: Some(path.clone()), freshness, ..Question::plain() });
            match server.alone(asker, &question) {
                // Whether it is there isn't known yet.
                Err(Refusal::Late) => None,
                listing => Some((path.clone().into_bytes(), listing.ok())),
            }
        })
        .collect();
    let more = super::breakdown_metrics::families(server, asker, paths, (freshness, limits));
    let text = exposition(&listed, crate::moment::seconds());
    Response::text(KIND, text.trim_end_matches(END).to_owned() + &more + END)
}

fn exposition(listed: &[(Vec<u8>, Option<Listing>)], now: i64) -> String {
    let mut text = String::new();
    for (name, unit, help, value) in FAMILIES {
        let values =
            listed.iter().map(|(path, listing)| (path, listing.as_ref().and_then(|listing| value(listing, now))));
        family(&mut text, (name, unit, help), values);
    }
    let known = listed.iter().map(|(path, listing)| (path, Some(i64::from(listing.is_some()))));
    family(&mut text, (KNOWN.0, "", KNOWN.1), known);
    text + END
}

fn family<'a>(
    text: &mut String,
    (name, unit, help): (&str, &str, &str),
    values: impl Iterator<Item = (&'a Vec<u8>, Option<i64>)>,
) {
    // Writing to a text can't fail.
    let _ = writeln!(text, "# TYPE {name} gauge");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
    for (path, value) in values {
        if let Some(value) = value {
            let _ = writeln!(text, "{name}{{path=\"{}\"}} {value}", label(path));
        }
    }
}

/// The value of a label. It must be text: a path that isn't is told as a shell would quote it, `$'/a\xff'`, so that no two
/// paths have the same label.
pub(super) fn label(path: &[u8]) -> String {
    let text = match str::from_utf8(path) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("$'{}'", path.escape_ascii()),
    };
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::service::{listing::Rest, protocol::Figures};

    fn listing(allocated: i64, newest: Option<i64>) -> Listing {
        Listing {
            path: Name::of(b""),
            top: Name::of(b""),
            denied: false,
            partial: false,
            exact: newest.is_some(),
            checked_at: newest.is_none().then_some(60),
            timed: false,
            harvested_at: 90,
            unreadable: 0,
            late: None,
            age: 10,
            total: Figures {
                allocated,
                bytes: 5,
                directory_bytes: 7,
                files: 3,
                directories: 2,
                others: 1,
                ..Figures::default()
            },
            own: Figures::default(),
            newest,
            largest: newest.map(|_| 4),
            children: Vec::new(),
            rest: Rest::default(),
        }
    }

    /// The labels and values of a family, by the grammar of the specification: `None` when the text doesn't follow it.
    fn parse(text: &str) -> Option<Vec<(String, String, i64)>> {
        let (text, end) = text.split_at(text.len().checked_sub("# EOF\n".len())?);
        let (mut families, mut current, mut samples) = (BTreeSet::new(), String::new(), Vec::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let mut words = rest.splitn(3, ' ');
                let (kind, name, what) = (words.next()?, words.next()?, words.next()?);
                match kind {
                    "TYPE" if what == "gauge" && families.insert(name.to_owned()) => current = name.to_owned(),
                    "UNIT" if name == current && name.ends_with(&format!("_{what}")) => {}
                    "HELP" if name == current => {}
                    _ => return None,
                }
                continue;
            }
            let (name, rest) = line.split_once("{path=\"")?;
            if name != current {
                return None;
            }
            let (mut label, mut chars) = (String::new(), rest.chars());
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => match chars.next()? {
                        'n' => label.push('\n'),
                        escaped @ ('\\' | '"') => label.push(escaped),
                        _ => return None,
                    },
                    other => label.push(other),
                }
            }
            let value = chars.as_str().strip_prefix("} ")?.parse().ok()?;
            samples.push((name.to_owned(), label, value));
        }
        let labels: BTreeSet<_> = samples.iter().map(|(name, label, _)| (name, label)).collect();
        (end == "# EOF\n" && labels.len() == samples.len()).then_some(samples)
    }

    #[test]
    fn the_text_follows_the_specification() {
        let odd = b"/a \"b\"\n\\c{}=,#".to_vec();
        let text = exposition(
            &[
                (b"/srv".to_vec(), Some(listing(4096, Some(80)))),
                (odd, Some(listing(1, None))),
                (b"/gone".to_vec(), None),
            ],
            100,
        );
        let samples = parse(&text).unwrap_or_else(|| panic!("{text}"));
        let of = |family: &str, path: &str| {
            let name = format!("onesweep_directory_{family}");
            samples.iter().find(|(found, label, _)| (found, label.as_str()) == (&name, path)).map(|(.., value)| *value)
        };
        let families = [
            "size_bytes",
            "allocated_bytes",
            "files",
            "directories",
            "others",
            "largest_file_bytes",
            "newest_change_timestamp_seconds",
            "harvest_age_seconds",
        ];
        assert_eq!(families.map(|family| of(family, "/srv")), [12, 4096, 3, 2, 1, 4, 80, 10].map(Some));
        assert_eq!(of("allocated_bytes", "/a \"b\"\n\\c{}=,#"), Some(1));
        for family in ["newest_change_timestamp_seconds", "largest_file_bytes"] {
            assert_eq!(of(family, "/a \"b\"\n\\c{}=,#"), None);
        }
        let odd = "/a \"b\"\n\\c{}=,#";
        assert_eq!(["/srv", odd].map(|path| of("exact", path)), [Some(1), Some(0)]);
        assert_eq!(["/srv", odd].map(|path| of("open_files_age_seconds", path)), [None, Some(40)]);
        assert_eq!(["/srv", "/gone"].map(|path| of("known", path)), [Some(1), Some(0)]);
        assert_eq!(parse(&exposition(&[], 0)), Some(vec![]));
    }

    #[test]
    fn labels_of_different_paths_differ() {
        let paths: [&[u8]; 5] = [b"/a\xff", b"/a\\xff", b"/a\xfe", b"/a'\xff", b"/a\\'\xff"];
        let labels: BTreeSet<String> = paths.into_iter().map(label).collect();
        assert_eq!(labels.len(), paths.len(), "{labels:?}");
        assert_eq!(label(b"/a\xff"), r"$'/a\\xff'");
        assert_eq!(label("/ü".as_bytes()), "/ü");
    }
}
