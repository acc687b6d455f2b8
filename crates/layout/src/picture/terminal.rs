//! Pictures in characters, for a terminal; they need no colours.

use super::{
    DirectoryPicture, DrawnFile, Reading, bytes_text,
    device_map::{DeviceMap, Shade},
};

/// Characters of the line of the disk.
const COLUMNS: usize = 64;
/// Rows for the files, in the order in which they are read.
const ROWS: usize = 16;

/// A directory before and after: from left to right the line of the disk, from top to bottom the order of reading. Where
/// blocks are read is `█`, where the head only passes `─`.
pub fn directory(picture: &DirectoryPicture<'_>) -> Vec<String> {
    let span = picture.span();
    let (from, to) = (bytes_text(span.start), bytes_text(span.end));
    let mut lines = vec![format!("{} on {}", picture.title, picture.device), picture.subtitle.clone()];
    for reading in [&picture.before, &picture.after] {
        lines.push(String::new());
        lines.push(reading.caption.clone());
        lines.push(format!("{:>7}┌{}┐", "", "─".repeat(COLUMNS)));
        lines.extend(rows(reading, (span.start, span.end)));
        lines.push(format!("{:>7}└{}┘", "", "─".repeat(COLUMNS)));
        let room = COLUMNS + 2 - to.chars().count();
        lines.push(format!("{:>7}{from:<room$}{to}", ""));
    }
    lines
}

/// The rows of one reading; equal ones that follow each other are one.
fn rows(reading: &Reading<'_>, (start, end): (u64, u64)) -> Vec<String> {
    let files = &reading.files;
    let column = |byte: u64| {
        let along = byte.saturating_sub(start) as f64 / (end - start).max(1) as f64;
        ((along * COLUMNS as f64) as usize).min(COLUMNS - 1)
    };
    let count = ROWS.min(files.len());
    let mut head = None;
    let mut rows: Vec<(usize, String)> = Vec::new();
    for row in 0..count {
        let (first, last) = (row * files.len() / count, (row + 1) * files.len() / count);
        let cells = cells(&files[first..last], &mut head, &column);
        match rows.last() {
            Some((_, before)) if *before == cells => {}
            _ => rows.push((first + 1, cells)),
        }
    }
    rows.into_iter().map(|(number, cells)| format!("{number:>6} │{cells}│")).collect()
}

/// One row: these files, and the way to them.
fn cells(files: &[DrawnFile<'_>], head: &mut Option<u64>, column: &dyn Fn(u64) -> usize) -> String {
    let mut cells = [' '; COLUMNS];
    let mut read = [false; COLUMNS];
    for run in files.iter().flat_map(|file| file.runs) {
        if let Some(from) = head.replace(run.end) {
            let (left, right) = (column(from.min(run.start)), column(from.max(run.start)));
            cells[left..=right].fill('─');
        }
        read[column(run.start)..=column(run.end.saturating_sub(1))].fill(true);
    }
    cells.iter().zip(read).map(|(&cell, is_read)| if is_read { '█' } else { cell }).collect()
}

/// A device: a row of the map is a line, and a cell two characters.
pub fn map(map: &DeviceMap, title: &str) -> Vec<String> {
    let width = map.side() as usize * 2;
    let mut lines = vec![title.to_owned(), format!("┌{}┐", "─".repeat(width))];
    for y in 0..map.side() {
        let row: String = (0..map.side()).flat_map(|x| [character(map.shade_at(x, y)); 2]).collect();
        lines.push(format!("│{row}│"));
    }
    lines.push(format!("└{}┘", "─".repeat(width)));
    let character = |shade| [character(shade); 2].iter().collect::<String>();
    let ours = format!(
        "{} these files, fragmented  {} these files, in one piece",
        character(Shade::Fragmented),
        character(Shade::Whole)
    );
    let others = match map.knows_free() {
        true => format!(
            "{} others  {} others, mostly free  {} free",
            character(Shade::Used),
            character(Shade::Partly),
            character(Shade::Free)
        ),
        false => format!("{} others or free: not known", character(Shade::Unknown)),
    };
    lines.extend([ours, others, "from the top left along a Hilbert curve to the top right".to_owned()]);
    lines
}

fn character(shade: Shade) -> char {
    match shade {
        Shade::Free => '·',
        Shade::Partly | Shade::Unknown => '░',
        Shade::Used => '▒',
        Shade::Whole => '▓',
        Shade::Fragmented => '█',
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::device_map::Kind;
    use super::*;

    /// Two bytes.
    fn run(start: u64) -> [Range<u64>; 1] {
        [Range { start, end: start + 2 }]
    }

    #[test]
    fn rows_show_what_is_read_and_the_way_to_it() {
        let (runs, packed) = ([0, 62, 2].map(run), [0, 2, 4].map(run));
        let before = runs.iter().map(|runs| DrawnFile { name: "x", runs }).collect();
        let after = packed.iter().map(|runs| DrawnFile { name: "x", runs }).collect();
        let reading = |caption: &str, files| Reading { caption: caption.into(), files };
        let lines = directory(&DirectoryPicture {
            title: "/a".into(),
            subtitle: "s".into(),
            device: "sda".into(),
            device_bytes: None,
            before: reading("before", before),
            after: reading("after", after),
        });
        let rows: Vec<&str> = lines.iter().filter_map(|line| line.split_once('│')?.1.strip_suffix('│')).collect();
        let ways = |text: &str| text.replace(' ', ".");
        assert_eq!(rows.len(), 6, "{lines:#?}");
        assert_eq!(ways(rows[0]), format!("██{}", ".".repeat(62)));
        assert_eq!(ways(rows[1]), format!("..{}██", "─".repeat(60)));
        assert_eq!(ways(rows[2]), format!("..██{}", "─".repeat(60)));
        assert_eq!(ways(rows[4]), format!("..██{}", ".".repeat(60)));
        let width = |line: &String| line.chars().count();
        assert!(lines.iter().filter(|line| line.contains('│') || line.contains('┌')).all(|line| width(line) == 73));
    }

    #[test]
    fn many_files_take_a_bounded_number_of_rows() {
        let runs: Vec<[Range<u64>; 1]> = (0..1000_u64).map(|number| run(number * 10)).collect();
        let files: Vec<DrawnFile<'_>> = runs.iter().map(|runs| DrawnFile { name: "x", runs }).collect();
        let shown = rows(&Reading { caption: String::new(), files }, (0, 10_000));
        assert_eq!(shown.len(), ROWS);
        let same: Vec<DrawnFile<'_>> = (0..50).map(|_| DrawnFile { name: "x", runs: &runs[0] }).collect();
        assert_eq!(rows(&Reading { caption: String::new(), files: same }, (0, 10_000)).len(), 1, "equal rows are one");
        assert!(rows(&Reading { caption: String::new(), files: Vec::new() }, (0, 1)).is_empty());
    }

    #[test]
    fn a_map_has_a_line_for_each_row() {
        let mut device = DeviceMap::new(400, 1);
        device.know_free();
        device.add(Kind::Whole, 0..100);
        device.add(Kind::Fragmented, 100..200);
        device.add(Kind::Free, 200..300);
        let lines = map(&device, "sda");
        assert_eq!(lines[2..4], ["│▓▓▒▒│", "│██··│"]);
        assert!(lines.iter().any(|line| line.contains("·· free")), "{lines:?}");
    }
}
