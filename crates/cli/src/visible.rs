//! Lines with names for a terminal: a name must not tell it what to do.

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// Writes what `line` writes, which ends with one byte. Where it goes to a terminal, control characters before that are
/// escaped.
pub(crate) fn write_line(
    out: &mut dyn Write,
    is_terminal: bool,
    line: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if !is_terminal {
        return line(out);
    }
    let mut written = Vec::new();
    line(&mut written)?;
    let end = written.pop();
    out.write_all(&escaped(&written))?;
    out.write_all(end.as_slice())
}

fn escaped(line: &[u8]) -> Cow<'_, [u8]> {
    let text = String::from_utf8_lossy(line);
    if !text.contains(char::is_control) {
        return line.into();
    }
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() { shown.extend(char.escape_default()) } else { shown.push(char) }
    }
    shown.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_once_and_only_for_terminals() {
        let line = b"a\x1b[2J\\ b\nc\xc2\x9b\n";
        for (is_terminal, expected) in [(true, &b"a\\u{1b}[2J\\ b\\nc\\u{9b}\n"[..]), (false, line)] {
            let mut out = Vec::new();
            write_line(&mut out, is_terminal, |out| out.write_all(line)).unwrap();
            assert_eq!(out, expected, "{}", String::from_utf8_lossy(&out));
        }
        let mut out = Vec::new();
        write_line(&mut out, true, |out| out.write_all(b"\xff\0")).unwrap();
        assert_eq!(out, b"\xff\0", "bytes that are no text stay");
    }
}
