//! The small files of each directory, from cold: all that the disk does for one directory after a mount.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bench::measure::{Unpacked, count, mount_options, number, stats};
use crate::bench::pipe;
use crate::bench::results::Outcome;
use crate::bench::run::Setting;
use crate::bench::share;
use crate::disk::trace::Entry;
use crate::emulate::{Emulation, MountSpec, Spec};
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

/// What tables call it.
pub(super) const NAME: &str = "files of 2 to 12 blocks";

/// More than one block of 4096 bytes, at most twelve.
const SIZES: [&str; 4] = ["-size", "+4096c", "-size", "-49153c"];

fn argv(dir: &str) -> Vec<String> {
    let head = ["find", dir, "-maxdepth", "1", "-type", "f"];
    head.iter().chain(&SIZES).chain(&["-exec", "cat", "{}", "+"]).map(|&arg| arg.to_owned()).collect()
}

/// Reads them, directory by directory; the costs of mounting in between don't count.
pub(super) fn measure(setting: &Setting, unpacked: &Unpacked, interrupt: &Interrupt) -> Result<Outcome, String> {
    let scratch = Scratch::new("defrag-small")?;
    let fs = setting.image.fs()?.mount_type();
    let (trace, target) = (scratch.file("trace"), scratch.dir("tree")?);
    let model = setting.disk.emulated()?;
    let spec = Spec {
        image: unpacked.image.clone(),
        dir: scratch.dir("disk")?,
        span: setting.disk.span.span(unpacked.facts.image_bytes, &model),
        model,
        real: setting.disk.real,
        trace: Some(trace.clone()),
        faults: Vec::new(),
        read_only: true,
    };
    let mount = MountSpec {
        target: target.clone(),
        fs: Some(fs.to_owned()),
        options: Some(mount_options(fs, false)),
        scheduler: Some(setting.disk.scheduler.clone()),
        ..MountSpec::default()
    };
    let mut emulation = Emulation::start(&spec, Some(&mount))?;
    let device = mount::source_of(&target).ok_or("the mount has no device")?;
    let options = format!("ro,{}", mount_options(fs, false));
    let mut outcome = Outcome { argv: argv("DIRECTORY"), ..Outcome::default() };
    let mut times = Vec::new();
    for dir in directories(&target)? {
        mount::unmount(&target)?;
        mount::mount(&device, &target, Some(fs), Some(&options))?;
        emulation.reset()?;
        let began_ms = number(&stats(&emulation)?, "now_ms");
        let ended = pipe::run(&argv(&dir.display().to_string()), interrupt)?;
        let books = stats(&emulation)?;
        if ended.code != 0 {
            return Err(format!("find ended with {}: {}", ended.code, ended.complaint));
        }
        times.push((began_ms, number(&books, "now_ms")));
        outcome.busy_ms += number(&books, "busy_ms");
        outcome.requests += count(&books["reads"], "requests");
        outcome.bytes += count(&books["reads"], "bytes");
        outcome.seeks += count(&books, "seeks");
        outcome.wall_s += ended.wall_s;
    }
    let complaints = emulation.stop();
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    let text = fs::read_to_string(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
    let entries: Vec<Entry> = text.lines().filter_map(Entry::parse).collect();
    if let Some(content) = &unpacked.content {
        let data = share::of_content(entries.iter().filter(|entry| is_within(entry.time_ms, &times)), content);
        (outcome.data_ms, outcome.data_requests) = (Some(data.ms), data.requests);
    }
    Ok(outcome)
}

/// Whether a moment lies in one of those, which follow each other. The trace is rounded to three digits.
fn is_within(time_ms: f64, times: &[(f64, f64)]) -> bool {
    let next = times.partition_point(|(_, until_ms)| *until_ms <= time_ms);
    times.get(next).is_some_and(|(from_ms, _)| time_ms >= from_ms - 0.001)
}

fn directories(tree: &Path) -> Result<Vec<PathBuf>, String> {
    let below = ["-mindepth", "1", "-type", "d", "-not", "-name", "lost+found"];
    let found = mount::run("find", std::iter::once(tree.as_os_str()).chain(below.iter().map(AsRef::as_ref)))?.stdout;
    let mut paths: Vec<PathBuf> = String::from_utf8_lossy(&found).lines().map(PathBuf::from).collect();
    paths.sort();
    if paths.is_empty() { Err("there are no directories".into()) } else { Ok(paths) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_2_to_12_blocks_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("1", 4096), ("2", 4097), ("12", 49_152), ("13", 49_153)] {
            fs::write(dir.path().join(name), vec![b'x'; bytes]).unwrap();
        }
        let read = pipe::run(&argv(&dir.path().display().to_string()), &Interrupt::default()).unwrap();
        assert_eq!(read.output.len(), 4097 + 49_152);
    }

    #[test]
    fn what_happens_between_two_directories_does_not_count() {
        let times = [(10.0, 20.0), (30.0, 40.0)];
        let within = [9.0, 9.9995, 19.9, 20.0, 29.0, 30.0, 40.0].map(|time_ms| is_within(time_ms, &times));
        assert_eq!(within, [false, true, true, false, false, true, false]);
    }
}
