//! `onesweep peer stat`: what servers, or a mount, have counted.

use std::{
    io::{self, Write},
    path::Path,
};

use onesweep_peer::mount::{METRICS_ATTRIBUTE, METRICS_FILE};
use onesweep_sys::files::xattr_path;

use super::connect;
use crate::{
    args::PeerStatArgs,
    message,
    report::{Failure, SOME_FAILED},
    size::Size,
};

pub(super) fn run(args: &PeerStatArgs) -> Result<u8, Failure> {
    if args.metrics && args.servers.servers.len() > 1 {
        return Err(Failure::told("--metrics is for one server: metrics of several can't be told apart"));
    }
    if let Some(dir) = &args.mount {
        return of_mount(dir, args.metrics);
    }
    let (peers, _) = connect(&args.servers)?;
    let mut code = 0;
    let mut out = io::stdout().lock();
    for (address, text) in peers.stat_and_wait() {
        let address = message::one_line(&address);
        let written = match text {
            Ok(text) if args.metrics => out.write_all(text.as_bytes()),
            Ok(text) => {
                writeln!(out, "{address}").and_then(|()| lines(&text).try_for_each(|line| writeln!(out, "  {line}")))
            }
            Err(why) => {
                code = SOME_FAILED;
                Failure::told(format!("{address}: cannot ask: {why}")).print();
                Ok(())
            }
        };
        written.map_err(|error| Failure::output(&error, code))?;
    }
    Ok(code)
}

fn of_mount(dir: &Path, metrics: bool) -> Result<u8, Failure> {
    let text = match of_tree(dir) {
        Some(text) => text,
        None => {
            let file = dir.join(METRICS_FILE);
            std::fs::read_to_string(&file)
                .map_err(|error| Failure::io(&file, "read it; is a device or a tree shown there", &error))?
        }
    };
    let mut out = io::stdout().lock();
    let written = match metrics {
        true => out.write_all(text.as_bytes()),
        false => lines(&text).try_for_each(|line| writeln!(out, "{line}")),
    };
    written.map_err(|error| Failure::output(&error, 0))?;
    Ok(0)
}

/// A tree has no room for a file of ours.
fn of_tree(dir: &Path) -> Option<String> {
    String::from_utf8(xattr_path(dir, METRICS_ATTRIBUTE).ok()??).ok()
}

/// Each sample as a line: its name and its value, bytes as sizes. What a server says may be anything.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let name = name.strip_prefix("onesweep_peer_").unwrap_or(name);
        let name = name.strip_prefix("mount_").unwrap_or(name);
        let name = name.strip_suffix("_total").unwrap_or(name);
        let value = match value.parse() {
            Ok(bytes) if name.ends_with("bytes") => Size(bytes).to_string(),
            _ => value.to_owned(),
        };
        Some(message::one_line(&format!("{:<28}{value:>14}", name.replace('_', " "))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_that_people_read() {
        let text = "# TYPE onesweep_peer_hits counter\nonesweep_peer_hits_total 5\nonesweep_peer_block_bytes 4096\nodd\x1b[2J 1\n# EOF\n";
        let lines: Vec<_> = lines(text).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines, ["hits 5", "block bytes 4.0 KiB", "odd\\u{1b}[2J 1"]);
    }
}
