//! Modes of the command line (`--mode`), as `chmod` takes them.

use std::str::FromStr;

const ALL: u32 = 0o7777;
const SET_IDS: u32 = 0o6000;
const EXECUTE: u32 = 0o111;

/// It is no mode.
#[derive(Debug, thiserror::Error)]
#[error("`{text}' is no mode; write 0644, or changes such as u=rw,go=rX, each with its u, g, o or a")]
pub struct ModeError {
    text: String,
}

/// Changes of a mode, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChanges(Vec<Change>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    /// The bits that belong to whom it is for.
    whose: u32,
    sign: u8,
    what: What,
    /// The bits that it names. Set-id bits of a directory stay as they are without that.
    named: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Bits {
        bits: u32,
        /// `X`: to execute, where somebody may, and to enter.
        execute_if_any: bool,
    },
    /// What the owner (6), the group (3) or the others (0) may; the bits lie so far left.
    Of(u32),
}

impl ModeChanges {
    /// The permission bits that `mode` becomes.
    pub fn of(&self, mode: u32, is_directory: bool) -> u32 {
        self.0.iter().fold(mode & ALL, |mode, change| change.of(mode, is_directory))
    }
}

impl Change {
    fn of(self, mode: u32, is_directory: bool) -> u32 {
        let untouched = if is_directory { SET_IDS & !self.named } else { 0 };
        let bits = match self.what {
            What::Bits { bits, execute_if_any } if execute_if_any && (is_directory || mode & EXECUTE != 0) => {
                bits | EXECUTE
            }
            What::Bits { bits, .. } => bits,
            What::Of(shift) => (mode >> shift & 7) * EXECUTE,
        };
        let bits = bits & self.whose & !untouched;
        match self.sign {
            b'+' => mode | bits,
            b'-' => mode & !bits,
            _ => mode & (!self.whose | untouched) | bits,
        }
    }
}

impl FromStr for ModeChanges {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        let changes = if text.starts_with(|first: char| first.is_ascii_digit()) { octal(text) } else { symbolic(text) };
        changes.map(Self).ok_or_else(|| ModeError { text: text.to_owned() })
    }
}

fn octal(text: &str) -> Option<Vec<Change>> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|&bits| bits <= ALL)?;
    // Five digits mean the set-id bits too, as for chmod.
    let named = if text.len() < 5 { bits } else { ALL };
    Some(vec![Change { whose: ALL, sign: b'=', what: What::Bits { bits, execute_if_any: false }, named }])
}

fn symbolic(text: &str) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    for clause in text.split(',') {
        let end = clause.find(['+', '-', '=']).filter(|&end| end > 0)?;
        let whose = clause[..end].bytes().try_fold(0, |whose, letter| Some(whose | bits_of(letter)?))?;
        let mut rest = &clause.as_bytes()[end..];
        while let Some((&sign, behind)) = rest.split_first() {
            let len = behind.iter().position(|byte| matches!(byte, b'+' | b'-' | b'=')).unwrap_or(behind.len());
            let (letters, next) = behind.split_at(len);
            let what = what_of(letters)?;
            let named = if let What::Bits { bits, .. } = what { bits & whose } else { 0 };
            changes.push(Change { whose, sign, what, named });
            rest = next;
        }
    }
    Some(changes)
}

/// The bits of `u`, `g`, `o` and `a`.
fn bits_of(letter: u8) -> Option<u32> {
    match letter {
        b'u' => Some(0o4700),
        b'g' => Some(0o2070),
        b'o' => Some(0o1007),
        b'a' => Some(ALL),
        _ => None,
    }
}

fn what_of(letters: &[u8]) -> Option<What> {
    match letters {
        b"u" => return Some(What::Of(6)),
        b"g" => return Some(What::Of(3)),
        b"o" => return Some(What::Of(0)),
        _ => {}
    }
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in letters {
        match letter {
            b'r' => bits |= 0o444,
            b'w' => bits |= 0o222,
            b'x' => bits |= EXECUTE,
            b'X' => execute_if_any = true,
            b's' => bits |= SET_IDS,
            b't' => bits |= 0o1000,
            _ => return None,
        }
    }
    Some(What::Bits { bits, execute_if_any })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "8", "17777", "rw", "+r", "u", "u=rz", "u=rw,", "b+r", "u=gr", "0o644", "-644"] {
            text.parse::<ModeChanges>().unwrap_err();
        }
    }
}
