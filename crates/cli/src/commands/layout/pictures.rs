//! What is drawn: a directory, and the device that it lies on.

use std::{io::Write, path::Path};

use onesweep::{FilePlace, LaidDirectory, ReaderOrder, Sweep};
use onesweep_layout::picture::{
    DirectoryPicture, DrawnFile, Reading,
    device_map::{DeviceMap, Kind},
    directory, map, terminal,
};

use super::{
    figures::{Row, Side},
    free::Volume,
    report::{score, time},
};
use crate::{message, report::Failure, target::Target};

/// Cells of a map: 4 to the power of these.
const MAP_ORDER: u32 = 7;
const TERMINAL_ORDER: u32 = 5;

/// What pictures are of.
pub(super) struct Subject<'a> {
    pub(super) sweep: &'a Sweep,
    pub(super) reader: ReaderOrder,
    pub(super) picked: &'a LaidDirectory,
    pub(super) row: &'a Row,
    pub(super) volume: Option<&'a Volume>,
}

impl Subject<'_> {
    /// Both pictures in characters.
    pub(super) fn draw(&self) -> String {
        let mut lines = vec![String::new()];
        self.with_picture(|picture| lines.extend(terminal::directory(picture)));
        lines.push(String::new());
        match self.map(TERMINAL_ORDER) {
            Some(device) => lines.extend(terminal::map(&device, &self.map_title())),
            None => lines.push(format!("{}: no map: how large it is is not known", self.device())),
        }
        lines.join("\n") + "\n"
    }

    /// Writes the pictures that are asked for. Each gets its name when it is complete.
    pub(super) fn write(&self, svg: Option<&Path>, map_file: Option<&Path>) -> Result<(), Failure> {
        if let Some(file) = svg {
            let mut text = String::new();
            self.with_picture(|picture| text = directory::svg(picture));
            write_whole(file, &text)?;
        }
        if let Some(file) = map_file {
            let why = "how large the device is is not known";
            let device = self.map(MAP_ORDER).ok_or_else(|| Failure::could_not_run(file, "draw the map", why))?;
            let total = format!("marked: the files that were looked at; worst: {}", self.row.path);
            write_whole(file, &map::svg(&device, &self.map_title(), &message::one_line(&total)))?;
        }
        Ok(())
    }

    fn device(&self) -> &str {
        self.volume.map_or(&self.picked.device, |volume| &volume.device)
    }

    fn map_title(&self) -> String {
        format!("{} ({})", self.device(), self.picked.fs_type)
    }

    fn with_picture(&self, draw: impl FnOnce(&DirectoryPicture<'_>)) {
        let packed = self.picked.packed();
        let placed = |laid: &LaidDirectory| -> Vec<(String, usize)> {
            let files = laid.files.iter().enumerate();
            let files = files.filter(|(_, file)| matches!(file.place, FilePlace::Runs(_)));
            files.map(|(index, file)| (message::one_line(&file.name.to_string_lossy()), index)).collect()
        };
        let (before, after) = (placed(self.picked), placed(&packed));
        let figures = &self.row.figures;
        let reading = |caption: String, laid, names| Reading { caption, files: drawn(laid, names) };
        let said = |what: &str, side: &Side| {
            let (layout, dynamic) = (score(&side.layout), score(&side.dynamic));
            let (seeks, plural) = (side.seeks, if side.seeks == 1 { "" } else { "s" });
            format!("{what}: {seeks} seek{plural}, {}; layout score {layout}, dynamic {dynamic}", time(side.seconds))
        };
        draw(&DirectoryPicture {
            title: message::one_line(&self.row.path),
            subtitle: format!(
                "{} files in {} fragments, read in the order of {}",
                figures.placed_files, figures.before.fragments, self.reader
            ),
            device: self.device().to_owned(),
            device_bytes: self.picked.device_bytes,
            before: reading(said("as it lies", &figures.before), self.picked, &before),
            after: reading(said("packed side by side", &figures.after), &packed, &after),
        });
    }

    /// The device with all files that were looked at.
    fn map(&self, order: u32) -> Option<DeviceMap> {
        let mut device = DeviceMap::new(self.picked.device_bytes?, order);
        for laid in self.sweep.directories(self.reader).filter(|laid| laid.dev == self.picked.dev) {
            for file in &laid.files {
                let kind = if file.runs().len() > 1 { Kind::Fragmented } else { Kind::Whole };
                file.runs().iter().for_each(|run| device.add(kind, run.clone()));
            }
        }
        // Half of the free space would pass for all of it.
        let mut with_free = device.clone();
        let told = self.volume.map(|volume| volume.free(&mut |run| with_free.add(Kind::Free, run)));
        if let Some(Ok(())) = told {
            with_free.know_free();
            return Some(with_free);
        }
        Some(device)
    }
}

fn drawn<'a>(laid: &'a LaidDirectory, names: &'a [(String, usize)]) -> Vec<DrawnFile<'a>> {
    names.iter().map(|(name, index)| DrawnFile { name, runs: laid.files[*index].runs() }).collect()
}

fn write_whole(file: &Path, text: &str) -> Result<(), Failure> {
    let written = Target::open(file).and_then(|target| {
        target.writer()?.write_all(text.as_bytes())?;
        target.finish()
    });
    written.map_err(|error| Failure::io(file, "write it", &error))
}
