//! A directory's files on the line of the disk, with the seeks between them, before and after.
//!
//! Both lines have the same scale: from the lowest to the highest byte of any file. The head's ways forward are arcs above the
//! line, those back are below it. What lies packed is too small to be seen there, so it is drawn once more, enlarged.

use std::fmt::Write;

use super::{
    DirectoryPicture, DrawnFile, bytes_text, seeks, shortened,
    svg::{Px, Svg},
};

const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 24.0;
const LINE: f64 = WIDTH - 2.0 * MARGIN;
/// Height of the blocks on the line.
const BLOCK: f64 = 14.0;
/// Room above and below the line for arcs.
const ABOVE: f64 = 120.0;
const BELOW: f64 = 80.0;
/// From what is said of the packed files to their line: they need no arcs.
const PACKED: f64 = 18.0;
/// Height of the files that are drawn enlarged.
const ENLARGED: f64 = 40.0;
/// Width of a character of the small font, whose characters are all as wide.
const CHARACTER: f64 = 6.7;
/// Rows for names below a line.
const NAME_ROWS: usize = 3;
const NAME_ROW: f64 = 14.0;

/// Files and runs in one picture: more can't be told apart, and browsers take long for them.
pub const FILES_MAX: usize = 2000;
const RUNS_MAX: usize = 20_000;

/// Shades of the files, the first read first.
const SHADES: usize = 8;
const STYLE: &str = "
text{font:11px ui-monospace,'DejaVu Sans Mono',monospace;fill:#333}
.page{fill:#fff}.title{font-size:16px;font-weight:600;fill:#111}.head{font-size:13px;fill:#111}
.line{fill:#d9dce1}.span{fill:#8a919c}.lens{fill:#eceef1}.tick{stroke:#8a919c}.lead{stroke:#b4bac3;fill:none}
.forward{fill:none;stroke:#3b6ea8;stroke-width:.8}.back{fill:none;stroke:#b3541e;stroke-width:.8}
.many{stroke-width:.4}
.s0{fill:#9fc5e8}.s1{fill:#82b1dc}.s2{fill:#669dce}.s3{fill:#4c88bf}.s4{fill:#3673ad}.s5{fill:#245e97}.s6{fill:#16497e}.s7{fill:#0b3563}
.inside{fill:#111}.s4 .inside,.s5 .inside,.s6 .inside,.s7 .inside{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#c9ced6}.page{fill:#15181d}.title,.head{fill:#f1f3f5}.line{fill:#343a44}
.span{fill:#8a919c}.lens{fill:#20252c}.lead{stroke:#59616d}.forward{stroke:#7fb2e5}.back{stroke:#f0a36b}
.s0{fill:#e4f0fb}.s1{fill:#cbe2f7}.s2{fill:#b1d3f2}.s3{fill:#97c3ec}.s4{fill:#7cb2e4}.s5{fill:#63a0d9}.s6{fill:#4d8dca}.s7{fill:#3b7ab8}
.inside,.s4 .inside,.s5 .inside,.s6 .inside,.s7 .inside{fill:#0c1014}}
";

/// The picture as SVG. At most [`FILES_MAX`] files are drawn, and it says so where there are more.
pub fn svg(picture: &DirectoryPicture<'_>) -> String {
    let (before, after) = (drawn(&picture.before.files), drawn(&picture.after.files));
    let left_out = picture.before.files.len() - before.len();
    let span = picture.span();
    let scale = Scale { start: span.start, per_byte: LINE / (span.end - span.start) as f64 };
    let top = 116.0;
    let middle = top + ABOVE + BLOCK + BELOW + 44.0 + NAME_ROWS as f64 * NAME_ROW;
    let height = middle + PACKED + BLOCK + 30.0 + ENLARGED + 60.0;
    let mut svg = Svg::new(WIDTH, height, STYLE, &format!("{} before and after packing", picture.title));
    svg.text("title", (MARGIN, 30.0), "start", &shortened(&picture.title, 96));
    let more = match left_out {
        0 => String::new(),
        _ => format!("; the first {} in the order of reading are drawn", before.len()),
    };
    svg.text("", (MARGIN, 48.0), "start", &shortened(&format!("{}{more}", picture.subtitle), 140));
    whole_device(&mut svg, picture, &scale, 62.0, top);
    svg.text("head", (MARGIN, top + 4.0), "start", &shortened(&picture.before.caption, 118));
    let line = top + ABOVE;
    let unseen = arcs(&mut svg, before, &scale, line);
    blocks(&mut svg, before, &scale, line);
    ticks(&mut svg, &scale, line + BLOCK + BELOW);
    names(&mut svg, before, &scale, line + BLOCK + BELOW + 24.0);
    svg.text("head", (MARGIN, middle), "start", &shortened(&picture.after.caption, 118));
    let line = middle + PACKED;
    blocks(&mut svg, after, &scale, line);
    enlarged(&mut svg, after, &scale, line + BLOCK);
    let unseen = if unseen > 0 { format!(" ({unseen} too short to be seen)") } else { String::new() };
    let said = format!(
        "arcs: ways of the head, forward above the line, back below{unseen}; darker is read later; point at a file"
    );
    svg.text("", (MARGIN, height - 12.0), "start", &said);
    svg.finish()
}

/// The files that are drawn.
fn drawn<'a, 'b>(files: &'b [DrawnFile<'a>]) -> &'b [DrawnFile<'a>] {
    let mut runs = 0;
    let fits = |file: &&DrawnFile<'_>| {
        runs += file.runs.len();
        runs <= RUNS_MAX
    };
    let count = files.iter().take(FILES_MAX).take_while(fits).count();
    &files[..count.max(files.len().min(1))]
}

/// From bytes to pixels.
struct Scale {
    start: u64,
    per_byte: f64,
}

impl Scale {
    fn x(&self, byte: u64) -> f64 {
        MARGIN + byte.saturating_sub(self.start) as f64 * self.per_byte
    }
}

/// The whole device, and which part of it the lines below show.
fn whole_device(svg: &mut Svg, picture: &DirectoryPicture<'_>, scale: &Scale, y: f64, below: f64) {
    let span = picture.span();
    let said = format!("{}: bytes from {} to {}", picture.device, bytes_text(span.start), bytes_text(span.end));
    let Some(bytes) = picture.device_bytes.filter(|&bytes| bytes >= span.end) else {
        return svg.text("", (MARGIN, y + 18.0), "start", &said);
    };
    let x = |byte: u64| MARGIN + byte as f64 / bytes as f64 * LINE;
    let (from, to) = (x(span.start), x(span.end).max(x(span.start) + 1.0));
    let (left, right) = (scale.x(span.start), scale.x(span.end));
    let mut lens = String::new();
    let _ = write!(lens, "M{} {}H{}L{} {}H{}Z", Px(from), Px(y + 6.0), Px(to), Px(right), Px(below - 14.0), Px(left));
    svg.path("lens", &lens);
    svg.rect("line", (MARGIN, y), (LINE, 6.0));
    svg.rect("span", (from, y), (to - from, 6.0));
    svg.text("", (MARGIN, y + 22.0), "start", &format!("{said} of {}", bytes_text(bytes)));
}

/// The ways of the head: forward above the line, back below. Gives how many are too short to be seen.
fn arcs(svg: &mut Svg, files: &[DrawnFile<'_>], scale: &Scale, line: f64) -> u64 {
    let [mut forward, mut back] = [String::new(), String::new()];
    let (mut count, mut unseen) = (0, 0);
    for (from, to) in seeks(files) {
        let (from, to) = (scale.x(from), scale.x(to));
        let way = (to - from).abs();
        if way < 0.75 {
            unseen += 1;
            continue;
        }
        count += 1;
        // Drawn clockwise, so that what goes to the right goes over the top.
        let (path, y, room) =
            if to > from { (&mut forward, line, ABOVE - 16.0) } else { (&mut back, line + BLOCK, BELOW - 4.0) };
        let rise = room * (way / LINE).sqrt();
        let _ = write!(path, "M{} {}A{} {} 0 0 1 {} {}", Px(from), Px(y), Px(way / 2.0), Px(rise), Px(to), Px(y));
    }
    let many = if count > 300 { " many" } else { "" };
    svg.path(&format!("forward{many}"), &forward);
    svg.path(&format!("back{many}"), &back);
    unseen
}

/// The shade of a file by its turn.
fn shade(index: usize, count: usize) -> String {
    format!("s{}", index * SHADES / count.max(1))
}

/// What is told of a file.
fn hint(file: &DrawnFile<'_>, index: usize) -> String {
    let bytes: u64 = file.runs.iter().map(|run| run.end - run.start).sum();
    let first = file.runs.first().map_or(0, |run| run.start);
    let pieces = if file.runs.len() == 1 { "1 piece".to_owned() } else { format!("{} pieces", file.runs.len()) };
    format!("{}. {}: {} in {pieces}, from byte {first}", index + 1, file.name, bytes_text(bytes))
}

/// The line, and on it all blocks of all files.
fn blocks(svg: &mut Svg, files: &[DrawnFile<'_>], scale: &Scale, y: f64) {
    svg.rect("line", (MARGIN, y + BLOCK / 2.0 - 1.0), (LINE, 2.0));
    for (index, file) in files.iter().enumerate() {
        svg.group(&shade(index, files.len()));
        svg.hint(&hint(file, index));
        for run in file.runs {
            let (from, to) = (scale.x(run.start), scale.x(run.end));
            svg.rect("", (from, y), ((to - from).max(1.0), BLOCK));
        }
        svg.end();
    }
}

/// Addresses along the line.
fn ticks(svg: &mut Svg, scale: &Scale, y: f64) {
    for part in 0..=4_u32 {
        let x = MARGIN + LINE * f64::from(part) / 4.0;
        let byte = scale.start + ((x - MARGIN) / scale.per_byte).round() as u64;
        let anchor = match part {
            0 => "start",
            4 => "end",
            _ => "middle",
        };
        svg.element(
            "line",
            &[("class", &"tick"), ("x1", &Px(x)), ("x2", &Px(x)), ("y1", &Px(y)), ("y2", &Px(y + 5.0))],
        );
        svg.text("", (x, y + 17.0), anchor, &bytes_text(byte));
    }
}

/// Names of as many files as there is room for, each below the start of its file.
fn names(svg: &mut Svg, files: &[DrawnFile<'_>], scale: &Scale, y: f64) {
    let mut by_place: Vec<(f64, &str)> =
        files.iter().filter_map(|file| Some((scale.x(file.runs.first()?.start), file.name))).collect();
    // A picture full of lines tells nothing.
    if by_place.len() > 60 {
        return;
    }
    by_place.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ends = [f64::MIN; NAME_ROWS];
    for (x, name) in by_place {
        let name = shortened(name, 24);
        let width = name.chars().count() as f64 * CHARACTER;
        let left = x.min(WIDTH - MARGIN - width).max(MARGIN);
        let Some(row) = (0..NAME_ROWS).find(|&row| ends[row] + CHARACTER < left) else { continue };
        ends[row] = left + width;
        let top = y + row as f64 * NAME_ROW;
        svg.text("", (left, top + 10.0), "start", &name);
        // Those of lower rows would go through names.
        if row == 0 {
            svg.path("lead", &format!("M{} {}v-4", Px(x.max(left + 1.0)), Px(top + 1.0)));
        }
    }
}

/// What lies packed, over the whole width, with the names that have room.
fn enlarged(svg: &mut Svg, files: &[DrawnFile<'_>], scale: &Scale, line: f64) {
    let runs = || files.iter().flat_map(|file| file.runs);
    let (Some(start), Some(end)) = (runs().map(|run| run.start).min(), runs().map(|run| run.end).max()) else {
        return;
    };
    let y = line + 30.0;
    let (from, to) = (scale.x(start), scale.x(end).max(scale.x(start) + 1.0));
    let lens =
        format!("M{} {}H{}L{} {}H{}Z", Px(from), Px(line + 2.0), Px(to), Px(MARGIN + LINE), Px(y - 2.0), Px(MARGIN));
    svg.path("lens", &lens);
    let wide = Scale { start, per_byte: LINE / (end - start).max(1) as f64 };
    for (index, file) in files.iter().enumerate() {
        svg.group(&shade(index, files.len()));
        svg.hint(&hint(file, index));
        for run in file.runs {
            let (from, to) = (wide.x(run.start), wide.x(run.end));
            // A hair of light between two files that touch.
            let gap = if to - from > 3.0 { 0.6 } else { 0.0 };
            svg.rect("", (from, y), ((to - from - gap).max(0.3), ENLARGED));
            let room = ((to - from - 8.0) / CHARACTER).floor();
            if room >= file.name.chars().count().min(8) as f64 {
                let name = shortened(file.name, room as usize);
                svg.text("inside", (from + 4.0, y + ENLARGED / 2.0 + 4.0), "start", &name);
            }
        }
        svg.end();
    }
    let said = format!("enlarged: {} from byte {start}", bytes_text(end - start));
    svg.text("", (MARGIN, y + ENLARGED + 16.0), "start", &said);
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::{super::Reading, *};

    const PAGE: u64 = 4096;

    fn picture<'a>(before: &'a [(String, Vec<Range<u64>>)], after: &'a [(String, Vec<Range<u64>>)]) -> String {
        let files = |list: &'a [(String, Vec<Range<u64>>)]| {
            list.iter().map(|(name, runs)| DrawnFile { name, runs }).collect::<Vec<_>>()
        };
        let reading = |caption: &str, list| Reading { caption: caption.into(), files: files(list) };
        svg(&DirectoryPicture {
            title: "/srv/<a & b>".into(),
            subtitle: "files".into(),
            device: "sda".into(),
            device_bytes: Some(1000 * PAGE),
            before: reading("before", before),
            after: reading("after", after),
        })
    }

    fn file(name: &str, runs: &[(u64, u64)]) -> (String, Vec<Range<u64>>) {
        (name.to_owned(), runs.iter().map(|&(start, blocks)| start * PAGE..(start + blocks) * PAGE).collect())
    }

    #[test]
    fn a_way_forward_is_above_and_a_way_back_below() {
        // From block 1 to 99, back to 50, and on from there: one way forward, one back, and none at 51.
        let before = [file("a", &[(0, 1), (99, 1)]), file("b", &[(50, 1)]), file("c", &[(51, 1)])];
        let after = [file("a", &[(0, 2)]), file("b", &[(2, 1)]), file("c", &[(3, 1)])];
        let text = picture(&before, &after);
        let commands = |class: &str| {
            let paths = text.lines().filter(|line| line.contains(&format!("class=\"{class}\"")));
            paths.map(|line| line.matches('M').count()).sum::<usize>()
        };
        assert_eq!((commands("forward"), commands("back")), (1, 1), "{text}");
        assert!(!text.contains("too short"), "{text}");
        // The blocks of the first file: at the left end, a hundredth of the line wide, and one at the right end.
        let first: Vec<&str> = text.lines().skip_while(|line| !line.contains("1. a: ")).skip(1).take(2).collect();
        assert_eq!(first[0], "<rect x=\"24\" y=\"236\" width=\"9.52\" height=\"14\"/>", "{text}");
        assert!(first[1].contains("x=\"966.48\""), "{}", first[1]);
        assert!(text.contains("/srv/&lt;a &amp; b&gt;") && !text.contains("<a "), "{text}");
        for name in ["1. a: 8.0 KiB in 2 pieces", "2. b: 4.0 KiB in 1 piece", "3. c: "] {
            assert!(text.contains(name), "{name}");
        }
    }

    #[test]
    fn what_is_too_short_to_be_seen_is_counted() {
        let before = [file("a", &[(0, 1), (2, 1)]), file("b", &[(1_000_000, 1)]), file("c", &[(1_000_002, 1)])];
        assert!(picture(&before, &before).contains("back below (2 too short to be seen);"));
    }

    #[test]
    fn names_never_overlap() {
        let before: Vec<_> =
            (0..60).map(|number| file(&format!("file-{number:02}.data"), &[(number * 3, 1)])).collect();
        let text = picture(&before, &before);
        let mut rows: std::collections::BTreeMap<String, Vec<(f64, f64)>> = std::collections::BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("<text") && line.contains(">file-")) {
            let field = |name: &str| line.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
            let shown = line.split('>').nth(1).unwrap().split('<').next().unwrap();
            let x: f64 = field("x").parse().unwrap();
            rows.entry(field("y").to_owned()).or_default().push((x, x + shown.chars().count() as f64 * CHARACTER));
        }
        assert!(rows.len() >= NAME_ROWS && rows.values().map(Vec::len).sum::<usize>() > 20, "{rows:?}");
        for row in rows.values_mut() {
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(row.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{row:?}");
            assert!(row.iter().all(|&(from, to)| from >= 0.0 && to <= WIDTH), "{row:?}");
        }
    }

    #[test]
    fn a_picture_has_an_end() {
        let many: Vec<_> = (0..3000).map(|number| file("x", &[(number * 2, 1)])).collect();
        let text = picture(&many, &many);
        assert!(text.contains("the first 2000 in the order of reading"), "it says what is missing");
        assert!(text.len() < 2 << 20, "{}", text.len());
        let one: Vec<_> = vec![file("x", &(0..30_000).map(|block| (block * 2, 1)).collect::<Vec<_>>())];
        assert!(picture(&one, &one).contains("30000 pieces"), "the first file is always there");
        let none: [(String, Vec<Range<u64>>); 0] = [];
        assert!(picture(&none, &none).ends_with("</svg>\n"));
    }
}
