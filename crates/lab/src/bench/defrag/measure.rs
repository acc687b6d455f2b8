//! A copy of an image, packed, checked, held against the image, and read.

use std::path::Path;

use super::cases::{Lot, Reader};
use super::contents::Contents;
use super::outcomes::{Again, Packed};
use super::packing::Packing;
use super::{small, written};
use crate::bench::images::Images;
use crate::bench::measure::{self, Surveys, Unpacked, count};
use crate::bench::results::Outcome;
use crate::bench::run::{Disk, Setting, Stretch, Subject};
use crate::bench::share::Content;
use crate::bench::work::{Programs, Work};
use crate::interrupt::Interrupt;
use crate::mount;

/// The disk of every case, with its track buffer.
pub(super) const MODEL: &str = "barracuda-7200.11";

fn setting(subject: &Subject) -> Setting {
    Setting::new(subject.clone(), Disk::new(MODEL, Stretch::Whole).buffered(true))
}

/// Measures one packing with all that read after it. An error when anything of the files was lost, or the file system isn't
/// whole.
pub(super) fn measure(
    subject: &Subject,
    lot: &Lot,
    images: &mut Images,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Packed, String> {
    let (setting, fs) = (setting(subject), subject.fs()?.mount_type());
    let (image, facts) = images.take(subject, interrupt)?;
    let copy = Images::copy(&image)?;
    let before = Contents::of(&copy.0, fs, interrupt)?;
    let on = On { setting: &setting, image: &copy.0, fs, programs, interrupt };
    let (mut packed, after) = on.pack(lot.packing, before)?;
    packed.image = facts.clone();
    if packed.refused.is_some() {
        return Ok(packed);
    }
    let content = on.has_places().then(|| Content::new(after.places()));
    let unpacked = Unpacked { image: copy.0.clone(), facts, content, peak: 0, surveys: Surveys::default() };
    for reader in lot.readers {
        let outcome = match reader {
            Reader::Small => small::measure(&setting, &unpacked, interrupt)?,
            Reader::Program(tool, options) => {
                let run = setting.run(Work::with(*tool, options));
                // The way of the head is drawn elsewhere.
                Outcome { head: Vec::new(), ..measure::measure(&run, &unpacked, programs, interrupt)? }
            }
        };
        let told = outcome.missing.clone().unwrap_or_else(|| format!("{:.2} s of disk", outcome.busy_ms / 1000.0));
        eprintln!("  {}: {told}", reader.name());
        packed.readers.insert(reader.name(), outcome);
    }
    packed.again = if lot.packing.is_ours() { Some(on.again(lot.packing, &after)?) } else { None };
    Ok(packed)
}

struct On<'a> {
    setting: &'a Setting,
    image: &'a Path,
    fs: &'a str,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
}

impl On<'_> {
    /// Places of files are those of the disk. What btrfs tells are addresses of its own.
    fn has_places(&self) -> bool {
        self.fs != "btrfs"
    }

    /// Has files moved; what came of it, and where they lie then.
    fn pack(&self, packing: Packing, before: Contents) -> Result<(Packed, Contents), String> {
        if !packing.moves() {
            return Ok((Packed::default(), before));
        }
        packing.prepare(self.image, self.fs)?;
        let ran = packing.run(self.setting, self.image, self.programs, self.interrupt)?;
        let after = self.checked()?;
        let moved = after.since(&before)?;
        let places = if self.has_places() { moved.places } else { Vec::new() };
        let written = written::of(&ran.trace, &Content::new(places));
        let packed = Packed {
            argv: ran.argv,
            refused: ran.refused,
            busy_ms: ran.busy_ms,
            read_bytes: ran.read_bytes,
            wall_s: ran.wall_s,
            written,
            moved_files: moved.files,
            moved_bytes: moved.bytes,
            said: ran.said,
            ..Packed::default()
        };
        let told = packed.refused.clone().unwrap_or_else(|| {
            format!("{} files moved in {:.2} s of disk", packed.moved_files, packed.busy_ms / 1000.0)
        });
        eprintln!("  {told}");
        Ok((packed, after))
    }

    /// The same once more.
    fn again(&self, packing: Packing, before: &Contents) -> Result<Again, String> {
        let ran = packing.run(self.setting, self.image, self.programs, self.interrupt)?;
        let moved = self.checked()?.since(before)?;
        let said_files = count(&ran.said, "moved_files");
        Ok(Again { moved_files: moved.files, said_files, busy_ms: ran.busy_ms })
    }

    /// What is there, on a file system that is whole.
    fn checked(&self) -> Result<Contents, String> {
        let image = self.image.as_os_str();
        match self.fs {
            "xfs" => mount::run("xfs_repair", ["-n".as_ref(), "-f".as_ref(), image])?,
            "btrfs" => mount::run("btrfs", ["check".as_ref(), image])?,
            _ => mount::run("e2fsck", ["-fn".as_ref(), image])?,
        };
        Contents::of(self.image, self.fs, self.interrupt)
    }
}
