//! `onesweep top`: which directories take most, and which grew most.

mod many;

use std::{
    cmp::Ordering,
    io::{self, IsTerminal, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
};

use onesweep_summary::service::{
    client::Client,
    protocol::{Head, Name, Question, Refusal, Row},
};
use onesweep_sys::files::{self, EntryType};
use serde::Serialize;

use super::{du::Working, figures::Unit};
use crate::{
    args::{By, TopArgs},
    message,
    report::{Failure, SOME_FAILED},
};

/// A directory that is told.
struct Line {
    path: Vec<u8>,
    row: Row,
}

impl Line {
    fn grew(&self) -> Option<i64> {
        self.row.past.map(|past| self.row.total.allocated - past.allocated)
    }

    /// What the order goes by; what isn't known comes last.
    fn key(&self, by: By) -> i64 {
        let total = &self.row.total;
        match by {
            By::Allocated => total.allocated,
            By::Bytes => total.bytes + total.directory_bytes,
            By::Inodes => total.inodes(),
            By::Grew => self.grew().unwrap_or(i64::MIN),
        }
    }

    fn order(&self, other: &Line, by: By) -> Ordering {
        other.key(by).cmp(&self.key(by)).then_with(|| self.path.cmp(&other.path))
    }
}

/// What the server said.
struct Found {
    head: Head,
    /// The directories below in their order, those that may be told at least.
    lines: Vec<Line>,
    /// The one that was asked for.
    all: Option<Line>,
}

pub(crate) fn run(args: TopArgs) -> Result<u8, Failure> {
    let path = &args.path;
    let directory = files::open_handle_at(files::CURRENT_DIR, path.as_path())
        .map_err(|error| Failure::io(path, "look at it", &error))?;
    let no_server = |why: &dyn std::fmt::Display| {
        let advice = format!("start `onesweep serve`, or use `onesweep du -d{} PATH`", args.max_depth);
        Failure::could_not_run(&args.socket(), "ask the server", format!("{why}; {advice}"))
    };
    let mut client = Client::connect(&args.socket()).map_err(|error| no_server(&message::why(&error)))?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let freshness = super::du::freshness_by(args.cached, args.sync);
    let progress = !args.cached && io::stderr().is_terminal();
    let (depth, since, takes_portions) = (args.max_depth, Some(now - args.since), true);
    let question = Question { depth, since, freshness, progress, takes_portions, ..Question::plain() };
    let (mut rows, mut working, name) = (Vec::new(), Working::default(), message::path_text(path));
    let tell = |so_far| working.show(&name, so_far);
    let answer = client.ask_and_wait(directory.as_fd(), &question, tell, |row| rows.push(row)).and_then(|answer| {
        let head = match answer {
            Ok(head) => head,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if !head.long {
            let (lines, all) = lines(path, rows, args.by);
            return Ok(Ok(Found { head, lines, all }));
        }
        many::first_of(&mut client, directory.as_fd(), &question, (path, args.by, args.lines), head)
    });
    working.end();
    let Found { head, lines, all } = match answer {
        Ok(Ok(found)) => found,
        Ok(Err(Refusal::NotTracked)) => {
            let is_directory = files::statx_fd(directory.as_fd()).map(|stat| stat.file_type() == EntryType::Dir);
            return Err(match is_directory {
                Ok(false) => Failure::could_not_run(path, "tell what is in it", "it is no directory"),
                _ => no_server(&"it tracks another file system"),
            });
        }
        Ok(Err(Refusal::Late)) => {
            eprintln!("onesweep: {name}: the server doesn't know it yet; ask again later");
            return Ok(SOME_FAILED);
        }
        Ok(Err(Refusal::Denied)) => return Err(Failure::could_not_run(path, "look at it", "permission denied")),
        Ok(Err(Refusal::Failed(why))) => return Err(Failure::could_not_run(path, "ask the server", why)),
        Err(error) => return Err(no_server(&message::why(&error))),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = match (args.json, &all) {
        (true, Some(all)) => write_json(&mut out, &head, lines.iter().take(args.lines), all),
        _ => write(&mut out, lines.iter().take(args.lines).chain(&all), now),
    };
    written.map_err(|error| Failure::output(&error, 0))?;
    out.flush().map_err(|error| Failure::output(&error, 0))?;
    if !head.exact {
        eprintln!("onesweep: {}: {}", message::path_text(path), super::du::age(&head));
    }
    if head.partial || head.unreadable > 0 {
        let name = message::path_text(path);
        eprintln!("onesweep: {name}: some directories below it can't be read, and are left out");
        return Ok(SOME_FAILED);
    }
    Ok(0)
}

/// The directories below in their order, and the one that was asked for.
fn lines(top: &Path, rows: Vec<Row>, by: By) -> (Vec<Line>, Option<Line>) {
    let mut lines = Vec::with_capacity(rows.len());
    let mut above: Vec<Vec<u8>> = Vec::new();
    // Each comes after those in it.
    for row in rows.into_iter().rev() {
        above.truncate(row.depth as usize);
        let name = row.name.clone().into_bytes();
        let path = match above.last() {
            None => top.as_os_str().as_bytes().to_vec(),
            Some(path) => joined(path, &name),
        };
        above.push(path.clone());
        lines.push(Line { path, row });
    }
    let all = (!lines.is_empty()).then(|| lines.remove(0));
    lines.sort_by(|one, other| one.order(other, by));
    (lines, all)
}

/// The path of what has that one below another.
fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.ends_with(b"/") { [above, name].concat() } else { [above, b"/", name].concat() }
}

fn write<'a>(out: &mut impl Write, lines: impl Iterator<Item = &'a Line>, now: i64) -> io::Result<()> {
    writeln!(out, "{:>9} {:>9} {:>9} {:>6}  directory", "allocated", "grew", "inodes", "since")?;
    for line in lines {
        let human = |bytes: i64| Unit::Human(1024).write(bytes);
        let grew = match line.grew() {
            None => "-".to_owned(),
            Some(grew) if grew < 0 => format!("-{}", human(-grew)),
            Some(grew) => format!("+{}", human(grew)),
        };
        let since = line.row.past.map_or("-".to_owned(), |past| age(now - past.at));
        let total = &line.row.total;
        write!(out, "{:>9} {grew:>9} {:>9} {since:>6}  ", human(total.allocated), total.inodes())?;
        out.write_all(message::path_text(Path::new(std::ffi::OsStr::from_bytes(&line.path))).as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A directory as `--json` shows it.
#[derive(Serialize)]
struct Told {
    path: Name,
    allocated: i64,
    bytes: i64,
    inodes: i64,
    /// By how many allocated bytes it has grown, and since when, in seconds since 1970.
    grew: Option<i64>,
    since: Option<i64>,
    newest: Option<i64>,
    largest: Option<u64>,
}

impl Told {
    fn of(line: &Line) -> Told {
        let Row { total, newest, largest, past, .. } = &line.row;
        Told {
            path: Name::of(&line.path),
            allocated: total.allocated,
            bytes: total.bytes + total.directory_bytes,
            inodes: total.inodes(),
            grew: line.grew(),
            since: past.map(|past| past.at),
            newest: *newest,
            largest: *largest,
        }
    }
}

/// What `--json` shows: how true it is, then the directories in their order, and the one that was asked for.
#[derive(Serialize)]
struct Answer {
    exact: bool,
    partial: bool,
    unreadable: u64,
    harvested_at: i64,
    checked_at: Option<i64>,
    directories: Vec<Told>,
    total: Told,
}

fn write_json<'a>(
    out: &mut impl Write,
    head: &Head,
    lines: impl Iterator<Item = &'a Line>,
    all: &Line,
) -> io::Result<()> {
    let Head { exact, partial, unreadable, harvested_at, checked_at, .. } = *head;
    let (directories, total) = (lines.map(Told::of).collect(), Told::of(all));
    let answer = Answer { exact, partial, unreadable, harvested_at, checked_at, directories, total };
    serde_json::to_writer(&mut *out, &answer)?;
    out.write_all(b"\n")
}

/// In the largest unit of which there are two.
fn age(seconds: i64) -> String {
    let (unit, each) = [("w", 7 * 86_400), ("d", 86_400), ("h", 3600), ("m", 60)]
        .into_iter()
        .find(|(_, each)| seconds >= 2 * each)
        .unwrap_or(("s", 1));
    format!("{}{unit}", seconds.max(0) / each)
}

#[cfg(test)]
mod tests {
    use onesweep_summary::service::protocol::{Figures, Name, Past};

    use super::*;

    fn row(name: &str, depth: u32, allocated: i64, before: Option<i64>) -> Row {
        let past = before.map(|allocated| Past { at: 1000, bytes: 0, allocated, inodes: 1 });
        let total = Figures { allocated, ..Figures::default() };
        Row { name: Name::of(name.as_bytes()), depth, total, own: total, newest: None, largest: None, past }
    }

    #[test]
    fn what_grew_most_comes_first() {
        let rows = || {
            vec![
                row("deep", 2, 10, Some(1)),
                row("a", 1, 5000, Some(6000)),
                row("b", 1, 100, None),
                row("c", 1, 3000, Some(100)),
                row("", 0, 9000, Some(8000)),
            ]
        };
        let told = |by| {
            let (lines, all) = lines(Path::new("/top"), rows(), by);
            assert_eq!(all.map(|line| line.path), Some(b"/top".to_vec()));
            lines.into_iter().map(|line| String::from_utf8(line.path).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(told(By::Grew), ["/top/c", "/top/a/deep", "/top/a", "/top/b"]);
        assert_eq!(told(By::Allocated), ["/top/a", "/top/c", "/top/b", "/top/a/deep"]);
        let mut out = Vec::new();
        write(&mut out, lines(Path::new("/"), rows(), By::Grew).0.iter(), 8200).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("    +2.9K         0     2h  /c\n") && text.contains("-1000"), "{text}");
        let (told, all) = lines(Path::new("/top"), rows(), By::Grew);
        let head = Head { exact: true, harvested_at: 7, ..Head::default() };
        let mut out = Vec::new();
        write_json(&mut out, &head, told.iter().take(1), &all.unwrap()).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((value["exact"].as_bool(), value["harvested_at"].as_i64()), (Some(true), Some(7)));
        assert_eq!(value["directories"].as_array().map(Vec::len), Some(1));
        let first = &value["directories"][0];
        assert_eq!((first["path"].as_str(), first["grew"].as_i64()), (Some("/top/c"), Some(2900)));
        assert_eq!((value["total"]["path"].as_str(), value["total"]["since"].as_i64()), (Some("/top"), Some(1000)));
    }
}
