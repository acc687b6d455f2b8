//! `onesweep man`: the manual pages, from what clap knows.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write},
    path::Path,
};

use clap_mangen::Man;

use crate::{args, report::Failure};

const SOURCE: &str = concat!("onesweep ", env!("CARGO_PKG_VERSION"));

const EXIT_STATUS: &str = "\
.SH \"EXIT STATUS\"
.TP
0
Done.
.TP
1
Done, but some files failed.
.TP
2
Could not run.
.TP
130
Interrupted.
";

/// As GNU du's, for which it stands in.
const EXIT_STATUS_OF_DU: &str = "\
.SH \"EXIT STATUS\"
.TP
0
Done.
.TP
1
Something went wrong, or is wrong with what was typed.
";

/// Writes all pages into a directory, or the main one to standard output.
pub(super) fn run(dir: Option<&Path>) -> Result<u8, Failure> {
    let command = commands();
    let Some(dir) = dir else {
        let page = page(&command).map_err(|error| Failure::output(&error, 0))?;
        io::stdout().lock().write_all(&page).map_err(|error| Failure::output(&error, 0))?;
        return Ok(0);
    };
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let all = shown.flat_map(|command| std::iter::once(command).chain(command.get_subcommands()));
    for command in all.chain([&command]) {
        let path = dir.join(Man::new(command.clone()).get_filename());
        let written = page(command).and_then(|page| replace(&path, &page));
        written.map_err(|error| Failure::io(&path, "write the manual page", &error))?;
    }
    Ok(0)
}

/// All commands, as their pages show them.
fn commands() -> clap::Command {
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    // What `-h` leaves out has no text in a page otherwise.
    let shown = |command: clap::Command| command.mut_args(|arg| arg.hide_short_help(false));
    shown(command).mut_subcommands(|command| shown(command).mut_subcommands(shown))
}

/// Gives a file new content, all of it or none.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let replaced = fs::write(&new, content).and_then(|()| fs::rename(&new, path));
    replaced.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).source(SOURCE).manual("onesweep");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    page.extend_from_slice(closing_sections(&after).as_bytes());
    let exit_status = if command.get_name() == "du" { EXIT_STATUS_OF_DU } else { EXIT_STATUS };
    page.extend_from_slice(exit_status.as_bytes());
    Ok(page)
}

/// What stands below a command's help: its examples line by line, then other paragraphs. Exit codes have a section of their own.
fn closing_sections(after_help: &str) -> String {
    let mut page = String::new();
    for paragraph in after_help.split("\n\n").filter(|paragraph| !paragraph.starts_with("Exit codes")) {
        let examples = paragraph.strip_prefix("Examples:\n").or_else(|| paragraph.strip_prefix("Example:\n"));
        let (before, text, behind) = match examples {
            Some(examples) => (".SH EXAMPLES\n.nf\n", examples, ".fi\n"),
            None => (".SH NOTES\n", paragraph, ""),
        };
        page += before;
        for line in text.lines() {
            let _ = writeln!(page, "{}", escaped(line.strip_prefix("  ").unwrap_or(line)));
        }
        page += behind;
    }
    page
}

/// A line that means itself: a dash is a minus, to be copied, and a dot or quote in front is no request.
fn escaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len() + 8);
    if line.starts_with(['.', '\'']) {
        text.push_str("\\&");
    }
    for char in line.chars() {
        match char {
            '\\' => text.push_str("\\e"),
            '-' => text.push_str("\\-"),
            '\'' => text.push_str("\\(aq"),
            _ => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_with_examples_and_exit_status() {
        let command = commands();
        let nested = command.get_subcommands().flat_map(clap::Command::get_subcommands);
        for command in command.get_subcommands().chain(nested).chain([&command]) {
            let page = String::from_utf8(page(command).unwrap()).unwrap();
            let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n").expect("examples as they are typed");
            assert!(examples.starts_with("onesweep "), "{examples}");
            assert!(examples.contains("\n.fi\n") && examples.contains(".SH \"EXIT STATUS\""), "{examples}");
            assert!(!page.contains("Exit codes"), "told once");
            let cannot_run = page.contains(".TP\n2\nCould not run.");
            assert_eq!(cannot_run, command.get_name() != "du" && !command.get_name().ends_with("-du"));
            let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(title.contains(SOURCE), "{title}");
        }
    }

    #[test]
    fn every_option_of_a_page_has_a_text() {
        let command = commands();
        let tar = page(command.get_subcommands().find(|command| command.get_name() == "tar").unwrap()).unwrap();
        let page = String::from_utf8(tar).unwrap();
        let lines: Vec<_> = page.lines().collect();
        assert!(page.contains("recursion") && page.contains("pax"), "{page}");
        let bare =
            lines.windows(3).find(|row| row[0] == ".TP" && (row[2].starts_with(".TP") || row[2].starts_with(".SH")));
        assert_eq!(bare, None);
    }

    #[test]
    fn lines_mean_themselves() {
        assert_eq!(escaped(".x -l 'a\\b'"), "\\&.x \\-l \\(aqa\\eb\\(aq");
    }
}
