//! `onesweep du --by`: a directory by a summary that is declared on the server.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use onesweep_summary::{
    custom::declare::By,
    service::{
        breakdown::{Breakdown, Share, Value},
        client::Client,
        protocol::{Name, Question, Refusal},
    },
};
use onesweep_sys::files;

use super::{Unit, freshness};
use crate::{
    args::DuArgs,
    message,
    report::{Failure, SOME_FAILED},
};

pub(super) fn run(
    args: &DuArgs,
    paths: &[PathBuf],
    wrong: Vec<String>,
    summary: &str,
    unit: &Unit,
) -> Result<u8, Failure> {
    let mut code = if wrong.is_empty() { 0 } else { SOME_FAILED };
    wrong.iter().for_each(|message| eprintln!("onesweep: {message}"));
    let no_server = |why: &dyn std::fmt::Display| {
        let advice = "start `onesweep serve --summaries FILE`";
        Failure::could_not_run(&args.socket(), "ask the server", format!("{why}; {advice}"))
    };
    let mut client = Client::connect(&args.socket()).map_err(|error| no_server(&message::why(&error)))?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    for path in paths {
        let directory = match files::open_handle(path.as_path()) {
            Ok(directory) => directory,
            Err(error) => {
                eprintln!("onesweep: {}", message::of_other(path, "look at it", &error));
                code = SOME_FAILED;
                continue;
            }
        };
        let (freshness, max_ms) = (freshness(args), args.max_ms());
        let question = Question { freshness, max_ms, by: Some(summary.to_owned()), ..Question::plain() };
        let breakdown = match client.break_down(directory.as_fd(), &question) {
            Ok(Ok(breakdown)) => breakdown,
            Ok(Err(Refusal::NotTracked)) => {
                let why = "no server tracks it, or it is no directory";
                return Err(Failure::could_not_run(path, "tell it by a summary", why));
            }
            Ok(Err(Refusal::Late)) => {
                let why = if args.cached { "" } else { "time is up, and " };
                let why = format!("{why}the server doesn't know it yet; ask again later");
                return Err(Failure::could_not_run(path, "tell it by a summary", why));
            }
            Ok(Err(Refusal::Denied)) => return Err(Failure::could_not_run(path, "look at it", "permission denied")),
            Ok(Err(Refusal::Failed(why))) => return Err(Failure::could_not_run(path, "tell it by a summary", why)),
            Err(error) => return Err(no_server(&message::why(&error))),
        };
        let header = (paths.len() > 1).then_some(path.as_path());
        let written =
            if args.json { write_json(&mut out, &breakdown) } else { write(&mut out, args, unit, header, &breakdown) };
        written.map_err(|error| Failure::output(&error, code))?;
        if complain(path, &breakdown) {
            code = SOME_FAILED;
        }
    }
    out.flush().map_err(|error| Failure::output(&error, code))?;
    Ok(code)
}

fn write_json(out: &mut impl Write, breakdown: &Breakdown) -> io::Result<()> {
    serde_json::to_writer(&mut *out, breakdown)?;
    out.write_all(b"\n")
}

fn write(
    out: &mut impl Write,
    args: &DuArgs,
    unit: &Unit,
    header: Option<&Path>,
    breakdown: &Breakdown,
) -> io::Result<()> {
    if let Some(path) = header {
        writeln!(out, "{}:", message::path_text(path))?;
    }
    let mut lines: Vec<(i64, String)> =
        breakdown.shares.iter().map(|share| (order(args, &share.value), line(args, unit, breakdown, share))).collect();
    // They come by what is allocated, or by what a command said; equal ones stay as they come.
    if breakdown.shares.iter().all(|share| share.value.value.is_none()) {
        lines.sort_by_key(|(figure, _)| std::cmp::Reverse(*figure));
    }
    for (_, line) in lines {
        writeln!(out, "{line}")?;
    }
    match &breakdown.other {
        Some(value) => writeln!(out, "{}\t(all others)", figure(args, unit, value)),
        None => Ok(()),
    }
}

/// By which of its numbers a value stands where it does.
fn order(args: &DuArgs, value: &Value) -> i64 {
    let Value { inodes, bytes, allocated, value } = *value;
    let wanted = match (args.inodes, args.tells_sizes()) {
        (true, _) => inodes,
        (_, true) => bytes,
        _ => allocated,
    };
    wanted.or(value).or(bytes).unwrap_or(0)
}

fn figure(args: &DuArgs, unit: &Unit, value: &Value) -> String {
    let number = order(args, value);
    // What a command counts has no unit.
    if value.value.is_some() { number.to_string() } else { unit.write(number) }
}

fn line(args: &DuArgs, unit: &Unit, breakdown: &Breakdown, share: &Share) -> String {
    let key = String::from_utf8_lossy(&share.key.clone().into_bytes()).into_owned();
    let key = match (&share.label, share.from.zip(share.to), breakdown.by) {
        (Some(label), ..) => label.clone(),
        (None, Some((from, to)), By::Age) => format!("{key}\t{}", age(from, to, breakdown.answered_at)),
        _ => key,
    };
    // The tab between a period and its age is ours.
    let shown: Vec<String> = key.split('\t').map(message::one_line).collect();
    format!("{}\t{}", figure(args, unit, &share.value), shown.join(if breakdown.by == By::Age { "\t" } else { "\\t" }))
}

/// How old what changed in a period is by now, the oldest of it.
fn age(from: i64, to: i64, now: i64) -> String {
    if to > now {
        return if from > now { "in the future".to_owned() } else { "now".to_owned() };
    }
    let days = (now - to) / 86_400;
    match days {
        ..=59 => format!("{days} days or more"),
        60..=729 => format!("{} months or more", days * 12 / 365),
        _ => format!("{} years or more", days / 365),
    }
}

/// What is missing in an answer; true when something is.
fn complain(path: &Path, breakdown: &Breakdown) -> bool {
    let name = message::path_text(path);
    let is_incomplete = breakdown.partial || breakdown.unreadable > 0;
    if is_incomplete {
        eprintln!("onesweep: {name}: some directories below it can't be read, and are left out");
    }
    if breakdown.unknown > 0 {
        let shown = |below: &Name| {
            let below = below.clone().into_bytes();
            let below = std::os::unix::ffi::OsStrExt::from_bytes(&below);
            message::path_text(&path.join(Path::new::<std::ffi::OsStr>(below)))
        };
        let some: Vec<String> = breakdown.unknown_in.iter().map(shown).collect();
        let why = breakdown.unknown_why.as_ref().map(|why| format!(": {}", message::one_line(why))).unwrap_or_default();
        let count = breakdown.unknown;
        eprintln!(
            "onesweep: {name}: of {count} directories it isn't known what they add, and they are left out{why}: {}",
            some.join(", ")
        );
    }
    if let Some(left) = breakdown.late {
        eprintln!("onesweep: {name}: time is up: as it was stored; {left} directories or more have changed since");
    }
    if breakdown.more && breakdown.other.is_none() {
        eprintln!("onesweep: {name}: there are more keys than are kept");
    }
    is_incomplete || breakdown.unknown > 0 || breakdown.late.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn ages_are_told_in_what_fits() {
        assert_eq!(age(0, 31 * DAY, 10 * DAY), "now");
        assert_eq!(age(31 * DAY, 59 * DAY, 10 * DAY), "in the future");
        assert_eq!(age(0, 31 * DAY, 41 * DAY), "10 days or more");
        assert_eq!(age(0, 31 * DAY, 31 * DAY + 365 * DAY), "12 months or more");
        assert_eq!(age(0, 0, 800 * DAY), "2 years or more");
    }
}
