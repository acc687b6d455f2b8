//! What is printed: tables for people, or one JSON object.

use std::{fmt::Write, io};

use onesweep::{DiskModel, ReaderOrder, Sweep};
use serde::Serialize;

use super::{
    figures::{Figures, Row, Score, Table, Total},
    free::FreeSpace,
};
use crate::{message, size::Size};

#[derive(Debug, Serialize)]
struct Disk {
    disk: String,
    /// Why nothing is known of places, or that there is nothing to gain.
    remark: Option<String>,
}

/// All that is told.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    model: &'a str,
    reader: &'static str,
    partial: bool,
    disks: Vec<Disk>,
    directories: Vec<&'a Row>,
    total: &'a Total,
    free_space: Vec<FreeSpace>,
    errors: Vec<String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        sweep: &Sweep,
        table: &'a Table,
        reader: ReaderOrder,
        model: &'a DiskModel,
        free_space: Vec<FreeSpace>,
    ) -> Self {
        Self {
            model: &model.name,
            reader: reader.name(),
            partial: sweep.is_partial(),
            disks: sweep.disks().into_iter().map(|disk| Disk { disk: disk.disk, remark: disk.remark }).collect(),
            directories: table.rows(),
            total: &table.total,
            free_space,
            errors: sweep.errors().map(message::of_file).collect(),
        }
    }

    /// Writes one JSON object.
    pub(super) fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Writes tables for people.
    pub(super) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        out.write_all(self.text().as_bytes())
    }

    fn text(&self) -> String {
        let total = &self.total.figures;
        let mut text = format!(
            "{} in {}, read in the order of {}; times for a {}\n",
            counted(total.files, "file", "files"),
            counted(self.total.directories, "directory", "directories"),
            self.reader,
            self.model
        );
        let left_out = total.files - total.placed_files;
        if left_out > 0 {
            let others = left_out - total.compressed_files - total.unknown_files;
            let parts = [
                (others, "without blocks of their own"),
                (total.compressed_files, "compressed"),
                (total.unknown_files, "at places that are not known"),
            ];
            let parts: Vec<String> =
                parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
            let _ = writeln!(text, "left out: {}", parts.join(", "));
        }
        if self.partial {
            text.push_str("This is the first window: the tree exceeds --catalog-limit.\n");
        }
        for disk in &self.disks {
            let remark = disk.remark.as_ref().map(|remark| format!(": {remark}")).unwrap_or_default();
            let _ = writeln!(text, "disk {}{remark}", disk.disk);
        }
        text.push('\n');
        text.push_str(HEADER);
        for row in &self.directories {
            line(&mut text, &row.figures, &message::one_line(&row.path));
        }
        let shown = self.directories.len() as u64;
        let rest = self.total.directories - shown;
        if rest > 0 {
            let _ = writeln!(text, "{:>RULE$}  … and {rest} more (--top)", "");
        }
        line(&mut text, total, "total");
        for free in &self.free_space {
            text.push('\n');
            text.push_str(&free_text(free));
        }
        text
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Characters before the last column.
const RULE: usize = 80;
const HEADER: &str = concat!(
    "                             LAYOUT DYNAMIC             SEEKS               TIME\n",
    "  FILES    BLOCKS  FRAGMENTS  SCORE   SCORE    BEFORE   AFTER    BEFORE    AFTER  DIRECTORY\n",
);

fn line(text: &mut String, figures: &Figures, name: &str) {
    let Figures { before, after, .. } = figures;
    let _ = writeln!(
        text,
        "{:>7} {:>9} {:>10} {:>6} {:>7} {:>9} {:>7} {:>9} {:>8}  {name}",
        figures.files,
        figures.blocks,
        before.fragments,
        score(&before.layout),
        score(&before.dynamic),
        before.seeks,
        after.seeks,
        time(before.seconds),
        time(after.seconds),
    );
}

/// A score with three digits; a dash where there is none.
pub(super) fn score(score: &Score) -> String {
    score.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.3}"))
}

/// Seconds, or milliseconds where they are few.
pub(super) fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { crate::size::duration(seconds) }
}

fn free_text(free: &FreeSpace) -> String {
    let fs_type = free.fs_type.as_ref().map(|fs_type| format!(" ({fs_type})")).unwrap_or_default();
    let name = format!("{}{fs_type}", free.device);
    let (Some(bytes), Some(pieces), Some(largest)) = (free.bytes, free.pieces, free.largest) else {
        let why = free.unknown.as_deref().unwrap_or("nobody tells it");
        return format!("free space of {name} by size: not known: {why}\n");
    };
    let of = free.device_bytes.map(|bytes| format!(" of {}", Size(bytes))).unwrap_or_default();
    let mut text =
        format!("free space of {name}: {}{of} in {pieces} pieces, the largest {}\n", Size(bytes), Size(largest));
    if free.by_size.is_empty() {
        return text;
    }
    text.push_str("  PIECES FROM    PIECES       BYTES  SHARE\n");
    for class in &free.by_size {
        let share = class.bytes as f64 / bytes.max(1) as f64 * 100.0;
        let from = Size(class.from).to_string();
        let _ = writeln!(text, "  {from:>11} {:>9}  {:>10} {share:>5.1} %", class.pieces, Size(class.bytes));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{figures::tests::row, free::Class};
    use super::*;

    fn free(known: bool) -> FreeSpace {
        let class = |from, pieces, bytes| Class { from, pieces, bytes };
        FreeSpace {
            device: "sda".into(),
            fs_type: Some("ext4".into()),
            device_bytes: Some(1 << 30),
            unknown: (!known).then(|| "nobody knows".into()),
            bytes: known.then_some(12288 + (1 << 20)),
            pieces: known.then_some(3),
            largest: known.then_some(1 << 20),
            by_size: if known { vec![class(4096, 2, 12288), class(1 << 20, 1, 1 << 20)] } else { Vec::new() },
        }
    }

    #[test]
    fn tables_are_aligned_and_add_up() {
        let mut table = Table::new(2);
        ["/a", "/b", "/c\n"].iter().zip([1.0, 3.0, 2.0]).for_each(|(path, gain)| table.add(row(path, gain)));
        let report = Report {
            model: "test disk",
            reader: "readdir",
            partial: true,
            disks: vec![Disk { disk: "sda".into(), remark: Some("why".into()) }],
            directories: table.rows(),
            total: &table.total,
            free_space: vec![free(true), free(false)],
            errors: vec![],
        };
        let text = report.text();
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains("FRAGMENTS")).collect();
        let columns = |line: &str| line.chars().take(RULE).collect::<String>();
        assert!(columns(lines[0]).trim_end().ends_with("AFTER"), "{text}");
        assert!(lines[1].ends_with("  /b") && lines[2].ends_with("  /c\\n") && lines[3].contains("1 more"), "{text}");
        assert!(lines[4].ends_with("  total") && lines[4].starts_with("      6        21          9"), "{text}");
        let end = |line: &str| line.rfind(" s").map(|at| at + 2);
        assert_eq!((end(lines[1]), end(lines[4])), (Some(RULE), Some(RULE)), "{text}");
        assert!(text.contains("first window") && text.contains("disk sda: why"), "{text}");
        assert!(
            text.contains("of 1.0 GiB in 3 pieces, the largest 1.0 MiB") && text.contains("not known: nobody knows")
        );
        let mut json = Vec::new();
        report.write_json(&mut json).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&value["total"]["directories"], &value["total"]["blocks"]), (&3.into(), &21.into()));
        assert_eq!(value["directories"][0]["path"], "/b");
        assert!(value["free_space"][1]["bytes"].is_null());
    }

    #[test]
    fn times_are_shown() {
        assert_eq!([0.0, 0.0123, 0.5, 1.5, 90.0].map(time), ["0 ms", "12 ms", "500 ms", "1.5 s", "90 s"]);
    }
}
