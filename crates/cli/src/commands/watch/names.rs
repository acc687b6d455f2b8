//! Names for a terminal.

/// A name in one line, whatever its bytes: what isn't text as `\xff`, what would move the cursor, hide or turn round what
/// stands beside it as an escape.
pub(super) fn shown(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() || is_unseen(char) { shown.extend(char.escape_default()) } else { shown.push(char) }
        }
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

/// Marks of direction, joiners and others that take no room.
fn is_unseen(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line_of_what_can_be_seen() {
        assert_eq!(shown("grün 木".as_bytes()), "grün 木");
        assert_eq!(shown(b"a\xffb\n\x1b[2J\xc3"), r"a\xffb\n\u{1b}[2J\xc3");
        assert_eq!(shown("x\u{202e}gpj".as_bytes()), r"x\u{202e}gpj");
    }
}
