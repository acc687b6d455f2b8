//! What is mounted below a path, of which a server tells by itself: added to what it tells of the path.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use onesweep_summary::mounted::{How, Mounted, Parts};

use super::{Du, Line, Measured};
use crate::{message, report::Failure};

impl Du<'_> {
    /// Adds file systems that are mounted below, and what is mounted once more. GNU du comes to them by listing what is above, and the
    /// answer says of what it could not list.
    pub(super) fn add_mounts(&mut self, path: &Path, depth: u32, into: &mut Measured) -> Result<(), Failure> {
        let mounted = Mounted::below(path, self.args.one_file_system);
        let mounted = mounted.map_err(|error| Failure::told(message::why(&error)))?;
        let mut parts = Parts::begin(&mounted, into.leads_out);
        for place in &mounted.places {
            if parts.hold(place) {
                continue;
            }
            let steps = place.below.components().count() as u32;
            let shown = path.join(&place.below);
            let Some(found) = self.measure_alone(&shown, depth.saturating_sub(steps))? else { continue };
            parts.add(place, found.how, found.leads_out);
            into.leads_out |= found.leads_out;
            add(&mut into.lines, found, &shown, (steps, depth));
        }
        into.counts_twice = parts.may_count_twice();
        Ok(())
    }
}

/// Adds what was found so many steps below to the lines above it, and puts its own among them as far down as there are any.
fn add(lines: &mut Vec<Line>, found: Measured, shown: &Path, (steps, depth): (u32, u32)) {
    let Some(top) = found.lines.last() else { return };
    for line in lines.iter_mut().filter(|line| shown.starts_with(path_of(line))) {
        line.row.total += &top.row.total;
        line.row.newest = line.row.newest.max(top.row.newest);
        // A file is its directory's own, as every other there is.
        if found.how == How::File && shown.parent() == Some(path_of(line)) {
            line.row.own += &top.row.own;
        }
    }
    if steps <= depth && found.how != How::File {
        let at = lines.iter().position(|line| shown.starts_with(path_of(line))).unwrap_or(0);
        lines.splice(at..at, found.lines.into_iter().map(|line| Line { depth: line.depth + steps, ..line }));
    }
}

fn path_of(line: &Line) -> &Path {
    Path::new(OsStr::from_bytes(&line.path))
}
