//! How far an answer is, and how old.

use std::{
    io::{self, IsTerminal},
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_summary::service::{patience::Progress, protocol::Head};

/// Who waits at a terminal sees how far it is; a script's log says once that it waits.
#[derive(Default)]
pub(in super::super) struct Working {
    is_shown: bool,
}

impl Working {
    pub(in super::super) fn show(&mut self, name: &str, Progress { read, left }: Progress) {
        if !io::stderr().is_terminal() {
            eprintln!("onesweep: {name}: waits for the server, which reads what has changed");
            return;
        }
        self.is_shown = true;
        let so_far = match (read, left) {
            // Where something is left out that isn't told.
            (0, 0) => String::new(),
            _ => format!(": {read} directories read, {left} left"),
        };
        eprint!("\r\x1b[Konesweep: {name}: reading what has changed{so_far}");
    }

    pub(in super::super) fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}

/// How true an answer is.
pub(in super::super) fn age(head: &Head) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let ago = |at: i64| (now - at).max(0);
    // A server that doesn't say more says when names were read.
    let stored = match head.age {
        Some(0) if head.late.is_none() => "as it is stored, and nothing is known to have changed".to_owned(),
        Some(age) => format!("as it was {age} s ago"),
        None => format!("as it was stored, itself read {} s ago", ago(head.harvested_at)),
    };
    match (head.late, head.exact, head.checked_at) {
        // How much isn't told where something is left out.
        (Some(0), ..) => format!("{stored}; something has changed since"),
        (Some(left), ..) => {
            let directories = if left == 1 { "directory" } else { "directories" };
            format!("{stored}; {left} {directories} or more have changed since")
        }
        (None, true, None) => "up to date".to_owned(),
        (None, true, Some(at)) => {
            format!("up to date; files that are written silently were looked for {} s ago (--sync looks now)", ago(at))
        }
        (None, false, None) => stored,
        (None, false, Some(at)) if head.timed => {
            format!("read as a whole {} s ago; nobody tells what changes there (--sync reads it again)", ago(at))
        }
        (None, false, Some(at)) => {
            format!("files as they were closed, those that stay open or mapped as of {} s ago", ago(at))
        }
    }
}
