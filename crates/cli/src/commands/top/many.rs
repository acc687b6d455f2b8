//! More directories than one answer has: the server tells of them a page at a time, and the first in the order that is asked for are kept.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use onesweep_summary::{
    service::{
        client::Client,
        pages::{Entry, PAGE_MAX, Page},
        protocol::{Head, Question, Refusal},
    },
    summaries::Freshness,
};
use onesweep_sys::files;

use super::{Found, Line, joined};
use crate::args::By;

/// So many more than are told wait until they are sorted.
const MORE: usize = 10_000;
/// As many as a server notes of an answer that isn't too long.
const NOTED: usize = 100;

/// The first lines, and that of the directory that was asked for. What has changed meanwhile may be in some and not in others.
pub(super) fn first_of(
    client: &mut Client,
    directory: BorrowedFd<'_>,
    question: &Question,
    (top, by, most): (&Path, By, usize),
    head: Head,
) -> io::Result<Result<Found, Refusal>> {
    // All was brought up to date for the answer that was too long.
    let asked = Question { freshness: Freshness::Cached, since: question.since, ..Question::plain() };
    let (mut first, mut from, mut partial) = (First::of(top, by, most), 0, false);
    loop {
        let page = Page { from, limit: PAGE_MAX, depth: Some(question.depth), ..Page::default() };
        let each = |entry: Entry| {
            partial |= entry.partial;
            first.add(entry);
        };
        let page = match client.page(directory, &asked, page, each)? {
            Ok(page) => page,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match page.next {
            // It must not go round in circles, whatever the server says.
            Some(next) if next > from => from = next,
            _ => break,
        }
    }
    let (told, all) = first.sorted();
    // Who asks for what is stored has nothing noted.
    if question.freshness != Freshness::Cached {
        let asked = Question { freshness: Freshness::Exact, ..asked };
        told.iter().take(NOTED).try_for_each(|(below, _)| note(client, directory, &asked, below))?;
    }
    let lines: Vec<Line> = told.into_iter().map(|(_, line)| line).collect();
    Ok(Ok(Found { head: Head { lines: lines.len() as u64, partial, ..head }, lines, all }))
}

/// Has the growth of a directory noted from now on, as that of the largest is of an answer that isn't too long.
fn note(client: &mut Client, directory: BorrowedFd<'_>, question: &Question, below: &[u8]) -> io::Result<()> {
    // What is gone by now, or can't be reached, stays as it was told.
    if let Ok(handle) = files::open_handle_at(directory, OsStr::from_bytes(below)) {
        let _ = client.ask(handle.as_fd(), question, |_| {})?;
    }
    Ok(())
}

/// Lines as they come, of which the first stay: each with the names that lead to it from the directory that was asked for.
struct First<'a> {
    top: &'a Path,
    by: By,
    most: usize,
    lines: Vec<(Vec<u8>, Line)>,
    all: Option<Line>,
}

impl First<'_> {
    fn of(top: &Path, by: By, most: usize) -> First<'_> {
        First { top, by, most, lines: Vec::new(), all: None }
    }

    fn add(&mut self, Entry { path, row, .. }: Entry) {
        // One that is longer than a path can be isn't told.
        let Some(below) = path.map(|path| path.into_bytes()) else { return };
        let top = self.top.as_os_str().as_bytes();
        if below.is_empty() {
            self.all = Some(Line { path: top.to_vec(), row });
            return;
        }
        self.lines.push((below.clone(), Line { path: joined(top, &below), row }));
        if self.lines.len() >= self.most.saturating_add(MORE) {
            self.keep();
        }
    }

    fn keep(&mut self) {
        let by = self.by;
        self.lines.sort_by(|(_, one), (_, other)| one.order(other, by));
        self.lines.truncate(self.most);
    }

    fn sorted(mut self) -> (Vec<(Vec<u8>, Line)>, Option<Line>) {
        self.keep();
        (self.lines, self.all)
    }
}

#[cfg(test)]
mod tests {
    use onesweep_summary::service::protocol::{Figures, Name, Past, Row};

    use super::*;

    fn entry(path: &str, allocated: i64, before: Option<i64>) -> Entry {
        let past = before.map(|allocated| Past { at: 1000, bytes: 0, allocated, inodes: 1 });
        let total = Figures { allocated, ..Figures::default() };
        let name = Name::of(path.rsplit('/').next().unwrap_or_default().as_bytes());
        let depth = path.split('/').filter(|name| !name.is_empty()).count() as u32;
        let row = Row { name, depth, total, own: total, newest: None, largest: None, past };
        let path = Some(Name::of(path.as_bytes()));
        Entry {
            id: String::new(),
            parent: None,
            path,
            row,
            partial: false,
            unreadable: false,
            harvested_at: 0,
            keys: vec![],
        }
    }

    #[test]
    fn the_first_of_very_many_stay() {
        let mut first = First::of(Path::new("/top/"), By::Allocated, 3);
        for number in 0..2 * MORE as i64 {
            first.add(entry(&format!("d{number}"), number * 7919 % 20_000, None));
            assert!(first.lines.len() < MORE + 3);
        }
        first.add(entry("", 1 << 40, None));
        first.add(entry("d1/below", 1 << 30, None));
        first.add(Entry { path: None, ..entry("too long", 1 << 50, None) });
        let (told, all) = first.sorted();
        assert_eq!(all.map(|line| line.path), Some(b"/top/".to_vec()));
        let told: Vec<_> = told
            .iter()
            .map(|(below, line)| (below.as_slice(), line.path.as_slice(), line.row.total.allocated))
            .collect();
        let place = |allocated: i64| (0..20_000).find(|number| number * 7919 % 20_000 == allocated).unwrap();
        let [largest, next] = [19_999, 19_998].map(|allocated| format!("d{}", place(allocated)));
        let paths = [&largest, &next].map(|name| format!("/top/{name}"));
        assert_eq!(
            told,
            [
                (&b"d1/below"[..], &b"/top/d1/below"[..], 1 << 30),
                (largest.as_bytes(), paths[0].as_bytes(), 19_999),
                (next.as_bytes(), paths[1].as_bytes(), 19_998),
            ]
        );
    }

    #[test]
    fn what_grew_comes_before_what_is_large() {
        let mut first = First::of(Path::new("/"), By::Grew, 2);
        for (path, allocated, before) in [("large", 1 << 40, None), ("grew", 10, Some(3)), ("shrank", 5, Some(9))] {
            first.add(entry(path, allocated, before));
        }
        let told: Vec<_> = first.sorted().0.into_iter().map(|(_, line)| line.path).collect();
        assert_eq!(told, [b"/grew".to_vec(), b"/shrank".to_vec()]);
    }
}
