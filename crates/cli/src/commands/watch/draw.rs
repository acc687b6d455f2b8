//! How the view looks on so many columns and lines.

use ratatui::{
    Frame,
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    look::{Look, Measure, Seen},
    names::shown,
    state::{Row, Sort, State},
};
use crate::size::Size;

/// Lines above and below the table.
const AROUND: u16 = 4;
/// What names get at least.
const NAME_WIDTH: u16 = 16;
const BAR_WIDTH: u16 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Size,
    Share,
    Bar,
    Entries,
    Grew,
    Changed,
}

/// From left to right, with their widths.
const COLUMNS: [(Column, u16); 6] = [
    (Column::Size, 9),
    (Column::Share, 6),
    (Column::Bar, BAR_WIDTH),
    (Column::Entries, 10),
    (Column::Grew, 10),
    (Column::Changed, 7),
];
/// Which ones go first where there is no room.
const BY_WORTH: [Column; 6] =
    [Column::Size, Column::Grew, Column::Share, Column::Entries, Column::Changed, Column::Bar];

const HELP: &str =
    "q quit  arrows move  Enter open  Backspace up  sort: s size e entries g growth n name  a apparent sizes";
const SHORT_HELP: &str = "q quit  Enter open  Backspace up  s e g n sort  a sizes";

/// Lines of the table on so many lines of a terminal.
pub(super) fn page(lines: u16) -> usize {
    usize::from(lines.saturating_sub(AROUND)).max(1)
}

/// Draws all of it; `now` in seconds since 1970.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: i64) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let mut pen = Pen { buffer: frame.buffer_mut(), area };
    pen.line(0, &headline(state), Style::new().add_modifier(Modifier::BOLD));
    let (status, is_warning) = status(state, now);
    let warning = Style::new().fg(Color::Yellow);
    pen.line(1, &status, if is_warning { warning } else { Style::new().add_modifier(Modifier::DIM) });
    table(&mut pen, state, now);
    let help = if usize::from(area.width) >= HELP.len() { HELP } else { SHORT_HELP };
    if area.height >= AROUND {
        pen.line(area.height - 1, help, Style::new().add_modifier(Modifier::DIM));
    }
}

struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl Pen<'_> {
    fn line(&mut self, y: u16, text: &str, style: Style) {
        self.put(0, y, text, self.area.width, style);
    }

    fn put(&mut self, x: u16, y: u16, text: &str, width: u16, style: Style) {
        if y < self.area.height && x < self.area.width {
            let width = width.min(self.area.width - x);
            self.buffer.set_stringn(self.area.x + x, self.area.y + y, text, width.into(), style);
        }
    }
}

fn headline(state: &State) -> String {
    let path = shown(&state.path());
    let Some(look) = &state.look else { return format!("{path}  …") };
    let total = size(look.total.by(state.measure));
    let how = match state.measure {
        Measure::Allocated => "on disk",
        Measure::Apparent => "apparent size",
    };
    let grew = state.grew.map_or_else(String::new, |grew| format!(", {}", growth(Some(grew))));
    format!("{path}  {total} {how}{grew}, {} entries", look.total.inodes)
}

/// How good the figures are, and whether something is wrong with them.
fn status(state: &State, now: i64) -> (String, bool) {
    let mut told = Vec::new();
    if let Some(trouble) = &state.trouble {
        told.push(trouble.clone());
    }
    told.extend(state.notice.clone());
    if let Some(look) = &state.look {
        told.push(age(look, state, now));
        if look.denied {
            told.push("no access: what is in it is not yours to see".to_owned());
        } else if look.partial {
            told.push("partial: some of it is not yours to see".to_owned());
        }
        match look.unreadable {
            0 => {}
            1 => told.push("1 directory could not be read".to_owned()),
            many => told.push(format!("{many} directories could not be read")),
        }
    } else if state.trouble.is_none() {
        told.push("asking …".to_owned());
    }
    let is_warning = state.trouble.is_some()
        || state.notice.is_some()
        || state.look.as_ref().is_some_and(|look| look.partial || look.denied || look.unreadable > 0);
    (told.join(" · "), is_warning)
}

fn age(look: &Look, state: &State, now: i64) -> String {
    if state.is_walked {
        return format!("no server: directories as walked {} ago", span(now - look.counted_at));
    }
    let answered = span(now - state.answered_at);
    match (look.exact, look.checked_at) {
        (true, _) => format!("live, {answered} ago"),
        (false, None) => format!("still changing, {answered} ago"),
        (false, Some(at)) if look.timed => format!("read as a whole {} ago", span(now - at)),
        (false, Some(at)) => format!("live, {answered} ago, but open files as of {} ago", span(now - at)),
    }
}

fn table(pen: &mut Pen<'_>, state: &State, now: i64) {
    let columns = columns(pen.area.width);
    let mut x = 0;
    for &(column, width) in &columns {
        pen.put(x, 2, &right(head(column), width), width, head_style(column == sorted(state.sort)));
        x += width + 1;
    }
    pen.put(x, 2, "name", u16::MAX, head_style(state.sort == Sort::Name));
    let (room, rows) = (page(pen.area.height), &state.rows);
    // As far down as it takes to show the selected one, and no further than the last.
    let first = state.selected.saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    let largest = rows.iter().map(|row| row.sizes.by(state.measure)).max().unwrap_or(0);
    let total = state.look.as_ref().map_or(0, |look| look.total.by(state.measure));
    for (line, (at, row)) in rows.iter().enumerate().skip(first).take(room).enumerate() {
        let y = 3 + line as u16;
        let is_selected = at == state.selected;
        let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        if is_selected {
            pen.line(y, &" ".repeat(pen.area.width.into()), style);
        }
        draw_row(pen, y, row, &columns, Scale { measure: state.measure, largest, total, now }, style);
    }
    let rest = state.look.as_ref().map(rest).unwrap_or_default();
    if rows.len() < room && !rest.is_empty() {
        pen.put(x, 3 + rows.len() as u16, &rest, u16::MAX, Style::new().add_modifier(Modifier::DIM));
    }
    if rows.is_empty() && rest.is_empty() && state.look.is_some() {
        pen.put(x, 3, "nothing in it", u16::MAX, Style::new().add_modifier(Modifier::DIM));
    }
}

struct Scale {
    measure: Measure,
    largest: i64,
    total: i64,
    now: i64,
}

fn draw_row(pen: &mut Pen<'_>, y: u16, row: &Row, columns: &[(Column, u16)], scale: Scale, style: Style) {
    let own = row.sizes.by(scale.measure);
    let mut x = 0;
    for &(column, width) in columns {
        let (text, style) = match column {
            Column::Size => (size(own), style),
            Column::Share => (share(own, scale.total), style),
            Column::Bar => (bar(own, scale.largest), style.fg(Color::Cyan)),
            Column::Entries => (row.sizes.inodes.to_string(), style),
            Column::Grew => (growth(row.grew), style),
            Column::Changed => (row.newest.map_or_else(String::new, |newest| span(scale.now - newest)), style),
        };
        let text = if column == Column::Bar { text } else { right(&text, width) };
        pen.put(x, y, &text, width, style);
        x += width + 1;
    }
    let slash = if row.is_directory { "/" } else { "" };
    let (mark, is_marked) = match row.seen {
        Seen::Whole => ("", false),
        Seen::Part => ("  (partial)", true),
        Seen::Nothing => ("  (no access)", true),
    };
    let name_style = if is_marked { style.fg(Color::Yellow) } else { style };
    let name_style = if row.is_directory { name_style.add_modifier(Modifier::BOLD) } else { name_style };
    pen.put(x, y, &format!("{}{slash}{mark}", shown(&row.name)), u16::MAX, name_style);
}

/// The columns for which there is room.
fn columns(width: u16) -> Vec<(Column, u16)> {
    let mut left = width.saturating_sub(NAME_WIDTH);
    let width_of = |wanted| COLUMNS.iter().find(|(column, _)| *column == wanted).map_or(0, |(_, width)| *width + 1);
    let mut kept = Vec::new();
    for column in BY_WORTH {
        let Some(less) = left.checked_sub(width_of(column)) else { break };
        left = less;
        kept.push(column);
    }
    COLUMNS.into_iter().filter(|(column, _)| kept.contains(column)).collect()
}

fn head(column: Column) -> &'static str {
    match column {
        Column::Size => "size",
        Column::Share => "share",
        Column::Bar => "",
        Column::Entries => "entries",
        Column::Grew => "grew",
        Column::Changed => "changed",
    }
}

fn head_style(is_sorted: bool) -> Style {
    let style = Style::new().add_modifier(Modifier::DIM);
    if is_sorted { Style::new().add_modifier(Modifier::UNDERLINED) } else { style }
}

fn sorted(sort: Sort) -> Column {
    match sort {
        Sort::Size => Column::Size,
        Sort::Entries => Column::Entries,
        Sort::Growth => Column::Grew,
        // No column of figures.
        Sort::Name => Column::Bar,
    }
}

fn rest(look: &Look) -> String {
    let mut told = Vec::new();
    for (count, one, many) in [(look.rest_directories, "directory", "directories"), (look.rest_files, "file", "files")]
    {
        if count > 0 {
            told.push(format!("{count} smaller {}", if count == 1 { one } else { many }));
        }
    }
    told.join(", ")
}

fn right(text: &str, width: u16) -> String {
    format!("{text:>width$}", width = width.into())
}

fn size(bytes: i64) -> String {
    // Less than nothing there is for a moment at most, while somebody writes.
    Size(bytes.max(0) as u64).to_string()
}

fn growth(grew: Option<i64>) -> String {
    match grew {
        None => "?".to_owned(),
        Some(0) => "=".to_owned(),
        Some(grew) => format!("{}{}", if grew < 0 { '-' } else { '+' }, Size(grew.unsigned_abs())),
    }
}

fn share(part: i64, whole: i64) -> String {
    if whole <= 0 {
        return "-".to_owned();
    }
    format!("{:.1}%", 100.0 * part.max(0) as f64 / whole as f64)
}

/// In eighths of a cell.
fn bar(part: i64, largest: i64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if largest <= 0 {
        return String::new();
    }
    let eighths = (part.max(0) as f64 / largest as f64 * f64::from(BAR_WIDTH) * 8.0).round() as usize;
    let eighths = eighths.min(usize::from(BAR_WIDTH) * 8);
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// A span of seconds, roughly.
fn span(seconds: i64) -> String {
    let (unit, each) = [("y", 365 * 86_400), ("w", 7 * 86_400), ("d", 86_400), ("h", 3600), ("min", 60)]
        .into_iter()
        .find(|(_, each)| seconds >= 2 * each)
        .unwrap_or(("s", 1));
    format!("{} {unit}", seconds.max(0) / each)
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::{
        super::{
            look::{Entry, Sizes},
            source::Missing,
        },
        *,
    };

    fn entry(name: &[u8], is_directory: bool, seen: Seen, allocated: i64, inodes: i64) -> Entry {
        let sizes = Sizes { allocated, apparent: allocated / 2, inodes };
        Entry { name: name.to_vec(), is_directory, seen, sizes, newest: Some(1000) }
    }

    fn look() -> Look {
        let entries = vec![
            entry(b"mail", true, Seen::Whole, 6 << 20, 1234),
            entry(b"od\xffd\n\x1b[2J", true, Seen::Part, 3 << 20, 10),
            entry("木".as_bytes(), false, Seen::Whole, 1 << 20, 1),
            entry(b"shut", true, Seen::Nothing, 4096, 1),
        ];
        Look {
            total: Sizes { allocated: 12 << 20, apparent: 6 << 20, inodes: 1300 },
            exact: true,
            partial: true,
            entries,
            rest_files: 7,
            ..Look::default()
        }
    }

    fn state() -> State {
        let mut state = State::new(b"/srv/\x07".to_vec(), Measure::Allocated, false);
        state.answered(&state.wanted(), Ok(look()), 4600);
        let mut grown = look();
        grown.entries[0].sizes.allocated += 1 << 20;
        grown.total.allocated += 1 << 20;
        state.answered(&state.wanted(), Ok(grown), 4601);
        state
    }

    /// The lines of a terminal of that size, without the spaces at their ends.
    fn drawn(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, 4603)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| {
            let mut text = String::new();
            let mut x = 0;
            while x < width {
                let symbol = buffer[(x, y)].symbol();
                text += symbol;
                // A wide character has the cell behind it, too.
                x += ratatui::text::Span::raw(symbol).width().max(1) as u16;
            }
            text.trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }

    #[test]
    fn on_a_wide_terminal_all_columns_show() {
        assert_eq!(
            drawn(&state(), 110, 10),
            [
                r"/srv/\u{7}  13.0 MiB on disk, +1.0 MiB, 1300 entries",
                "live, 2 s ago · partial: some of it is not yours to see",
                "     size  share                 entries       grew changed name",
                "  7.0 MiB  53.8% ████████████       1234   +1.0 MiB  60 min mail/",
                "  3.0 MiB  23.1% █████▏               10          =  60 min od\\xffd\\n\\u{1b}[2J/  (partial)",
                "  1.0 MiB   7.7% █▊                    1          =  60 min 木",
                "  4.0 KiB   0.0%                       1          =  60 min shut/  (no access)",
                "                                                            7 smaller files",
                "",
                HELP,
            ]
        );
    }

    #[test]
    fn on_a_narrow_terminal_the_name_and_the_size_are_left() {
        let lines = drawn(&state(), 40, 8);
        assert_eq!(lines[2], "     size       grew name");
        assert_eq!(lines[3], "  7.0 MiB   +1.0 MiB mail/");
        assert_eq!(lines[4], r"  3.0 MiB          = od\xffd\n\u{1b}[2J/");
        assert_eq!(lines[7], SHORT_HELP[..40].trim_end());
        for (width, height) in [(1, 1), (7, 3), (20, 4), (300, 2)] {
            drawn(&state(), width, height);
        }
        assert!(columns(25).is_empty() && columns(200).len() == COLUMNS.len());
    }

    #[test]
    fn the_selected_row_is_on_the_screen_and_marked() {
        let mut state = State::new(b"/".to_vec(), Measure::Allocated, false);
        let entries =
            (0..100).map(|at| entry(format!("d{at:02}").as_bytes(), true, Seen::Whole, 1000 - at, 1)).collect();
        state.answered(&state.wanted(), Ok(Look { entries, ..Look::default() }), 4600);
        for (presses, first, last) in [(0, "d00", "d05"), (50, "d47", "d52"), (99, "d94", "d99")] {
            state.key(ratatui::crossterm::event::KeyCode::Home.into());
            (0..presses).for_each(|_| _ = state.key(ratatui::crossterm::event::KeyCode::Down.into()));
            let mut terminal = Terminal::new(TestBackend::new(60, 10)).unwrap();
            terminal.draw(|frame| draw(frame, &state, 4603)).unwrap();
            let buffer = terminal.backend().buffer();
            let marked: Vec<u16> =
                (0..10).filter(|&y| buffer[(0, y)].style().add_modifier.contains(Modifier::REVERSED)).collect();
            let lines = drawn(&state, 60, 10);
            assert!(lines[3].contains(first) && lines[8].contains(last), "{lines:?}");
            assert!(
                matches!(marked[..], [y] if lines[usize::from(y)].contains(&format!("d{presses:02}"))),
                "{marked:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let second = |state: &State| drawn(state, 110, 10)[1].clone();
        let mut state = state();
        state.answered(&state.wanted(), Err(Missing::Silent("Connection refused".to_owned())), 9);
        assert!(second(&state).starts_with("no answer: Connection refused · live, 2 s ago · partial"));
        let denied = Look { denied: true, partial: true, exact: true, ..Look::default() };
        state.answered(&state.wanted(), Ok(denied), 4600);
        assert_eq!(second(&state), "live, 3 s ago · no access: what is in it is not yours to see");
        let damaged = Look { unreadable: 2, ..Look::default() };
        state.answered(&state.wanted(), Ok(damaged), 4600);
        assert_eq!(second(&state), "still changing, 3 s ago · 2 directories could not be read");
        let timed = Look { checked_at: Some(4400), timed: true, ..Look::default() };
        state.answered(&state.wanted(), Ok(timed), 4600);
        assert_eq!(second(&state), "read as a whole 3 min ago");
        let closed = Look { checked_at: Some(4400), ..Look::default() };
        state.answered(&state.wanted(), Ok(closed), 4600);
        assert_eq!(second(&state), "live, 3 s ago, but open files as of 3 min ago");
        let mut walked = State::new(b"/".to_vec(), Measure::Allocated, true);
        assert_eq!(second(&walked), "asking …");
        walked.answered(&walked.wanted(), Ok(Look { counted_at: 1000, ..Look::default() }), 4600);
        assert_eq!(second(&walked), "no server: directories as walked 60 min ago");
    }

    #[test]
    fn figures_are_short() {
        let spans: Vec<String> = [-5, 119, 120, 7200, 200_000, 20_000_000].into_iter().map(span).collect();
        assert_eq!(spans, ["0 s", "119 s", "2 min", "2 h", "2 d", "33 w"]);
        assert_eq!([growth(None), growth(Some(-2048)), share(1, 0), share(-5, 10)], ["?", "-2.0 KiB", "-", "0.0%"]);
        assert_eq!([bar(0, 0), bar(5, 5), bar(9, 5), bar(1, 1000)], ["", &"█".repeat(12), &"█".repeat(12), ""]);
    }
}
