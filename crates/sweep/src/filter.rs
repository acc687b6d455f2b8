//! Which entries are left out: exclude patterns with GNU tar's meaning.

use std::collections::HashSet;

use crate::part::Part;

/// Exclude patterns, in GNU tar's meaning of `--exclude`: shell patterns in which `*` and `?` also match `/`,
/// tried at every place after a `/` (not anchored), and excluding all that lies below a match. `?` and `[...]` take a
/// character of UTF-8, or a byte: what matches in either way is left out, as by glibc's fnmatch(3) in a UTF-8 locale.
///
/// A path costs a comparison for every pattern with a wildcard; all names without one cost as much as a single name.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    names: HashSet<Vec<u8>>,
    patterns: Vec<Vec<u8>>,
    part: Option<Part>,
}

impl Filter {
    /// A filter that leaves nothing out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the patterns of a file, one to a line. As with GNU tar, white space at the end of a line is no part of it.
    pub fn exclude_lines(&mut self, text: &[u8]) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
        for line in text.split(|&byte| byte == b'\n') {
            if let Some(last) = line.iter().rposition(|byte| !is_space(byte)) {
                self.exclude(&line[..=last]);
            }
        }
    }

    /// Adds one pattern.
    pub fn exclude(&mut self, pattern: &[u8]) {
        if pattern.iter().any(|byte| br"*?[\".contains(byte)) {
            self.patterns.push(pattern.to_vec());
        } else {
            self.names.insert(pattern.to_vec());
        }
    }

    /// Leaves out what is no directory and not in that part.
    pub fn part(&mut self, part: Part) {
        self.part = Some(part);
    }

    /// True when nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.patterns.is_empty() && self.part.is_none()
    }

    /// True when the entry at `path` (as it is delivered) is left out.
    pub fn excludes(&self, path: &[u8]) -> bool {
        (!self.names.is_empty() && tails(path).any(|tail| heads(tail).any(|head| self.names.contains(head))))
            || self.patterns.iter().any(|pattern| tails(path).any(|tail| glob(pattern, tail)))
    }

    /// The same for what is no directory, which may be in another part.
    pub fn excludes_file(&self, path: &[u8]) -> bool {
        self.excludes(path) || self.part.is_some_and(|part| !part.holds(path))
    }
}

/// True when a name, the last part of a path, matches a shell pattern as in fnmatch(3).
pub fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    glob(pattern, name)
}

/// A path, and what follows each of its slashes.
fn tails(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let after_slashes = path.windows(2).enumerate().filter(|(_, pair)| pair[0] == b'/' && pair[1] != b'/');
    std::iter::once(path).chain(after_slashes.map(|(at, _)| &path[at + 1..]))
}

/// What lies before each slash of a path, and the path.
fn heads(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at]).chain(std::iter::once(path))
}

/// Shell matching with `FNM_LEADING_DIR` and without `FNM_PATHNAME`; a backslash takes the next byte literally.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    glob_of(Unit::character, pattern, text) || (!text.is_ascii() && glob_of(Unit::byte, pattern, text))
}

fn glob_of<'a>(first: First, mut pattern: &'a [u8], mut text: &'a [u8]) -> bool {
    let mut retry: Option<(&'a [u8], &'a [u8])> = None;
    loop {
        let advanced = match pattern.first() {
            None if text.is_empty() || text[0] == b'/' => return true,
            None => None,
            Some(b'*') => {
                pattern = &pattern[1..];
                retry = Some((pattern, text));
                continue;
            }
            Some(_) => one(first, pattern, text),
        };
        match (advanced, retry) {
            (Some((rest_pattern, rest_text)), _) => (pattern, text) = (rest_pattern, rest_text),
            (None, Some((after_star, from))) if !from.is_empty() => {
                pattern = after_star;
                text = first(from).map_or(&[], |(_, rest)| rest);
                retry = Some((after_star, text));
            }
            (None, _) => return false,
        }
    }
}

/// Matches one pattern element against one unit of the text; what is left of both.
fn one<'a>(first: First, pattern: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (unit, rest) = first(text)?;
    let literally = |literal: u8, after| (literal == text[0]).then_some((after, &text[1..]));
    match pattern {
        [b'?', after @ ..] => Some((after, rest)),
        [b'[', ..] => match class(first, pattern, unit) {
            Some((true, after)) => Some((after, rest)),
            Some((false, _)) => None,
            None => literally(b'[', &pattern[1..]),
        },
        [b'\\', literal, after @ ..] | [literal, after @ ..] => literally(*literal, after),
        [] => None,
    }
}

/// What `?` takes: a character, or a byte that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Character(char),
    Byte(u8),
}

/// Takes the first unit off a text.
type First = fn(&[u8]) -> Option<(Unit, &[u8])>;

impl Unit {
    fn byte(text: &[u8]) -> Option<(Self, &[u8])> {
        let (&first, rest) = text.split_first()?;
        Some((if first.is_ascii() { Self::Character(first.into()) } else { Self::Byte(first) }, rest))
    }

    fn character(text: &[u8]) -> Option<(Self, &[u8])> {
        if text.first()?.is_ascii() {
            return Self::byte(text);
        }
        let start = &text[..text.len().min(char::MAX.len_utf8())];
        let valid = start.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
        let known = valid.map(|character| (Self::Character(character), &text[character.len_utf8()..]));
        known.or_else(|| Self::byte(text))
    }
}

/// A bracket expression: whether it takes the unit, and what follows it. `None` when it never closes.
fn class(first: First, pattern: &[u8], unit: Unit) -> Option<(bool, &[u8])> {
    let mut rest = &pattern[1..];
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    rest = &rest[usize::from(negated)..];
    let mut found = false;
    let mut is_first = true;
    loop {
        if let Some(after) = rest.strip_prefix(b"]").filter(|_| !is_first) {
            return Some((found != negated, after));
        }
        is_first = false;
        if let Some((name, len)) = named_class(rest) {
            found |= matches!(unit, Unit::Character(character) if is_in(name, character));
            rest = &rest[len..];
            continue;
        }
        let (low, after) = first(rest.strip_prefix(b"\\").unwrap_or(rest))?;
        let end = after.strip_prefix(b"-").filter(|end| !end.starts_with(b"]")).and_then(first);
        let (high, after) = end.unwrap_or((low, after));
        found |= (low..=high).contains(&unit);
        rest = after;
    }
}

/// A named class inside of a bracket expression, `[:upper:]`: its name and length.
fn named_class(pattern: &[u8]) -> Option<(&[u8], usize)> {
    let rest = pattern.strip_prefix(b"[:")?;
    let len = rest.iter().position(|byte| !byte.is_ascii_lowercase())?;
    rest[len..].starts_with(b":]").then(|| (&rest[..len], len + 4))
}

/// Whether a class holds the character. One that doesn't exist holds none.
fn is_in(class: &[u8], character: char) -> bool {
    match class {
        b"alnum" => character.is_alphanumeric(),
        b"alpha" => character.is_alphabetic(),
        b"blank" => matches!(character, ' ' | '\t'),
        b"cntrl" => character.is_control(),
        b"digit" => character.is_ascii_digit(),
        b"graph" => !character.is_control() && !character.is_whitespace(),
        b"lower" => character.is_lowercase(),
        b"print" => !character.is_control(),
        b"punct" => character.is_ascii_punctuation(),
        b"space" => character.is_whitespace(),
        b"upper" => character.is_uppercase(),
        b"xdigit" => character.is_ascii_hexdigit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(pattern: &str, path: &str) -> bool {
        let mut filter = Filter::new();
        filter.exclude(pattern.as_bytes());
        filter.excludes(path.as_bytes())
    }

    #[test]
    fn patterns_mean_what_gnu_tar_means() {
        for (pattern, path, expected) in [
            ("*.o", "src/a.o", true),
            ("*.o", "src/a.obj", false),
            ("cache", "home/cache/x/y", true),
            ("cache", "home/mycache", false),
            ("home/*", "home/a/b", true),
            ("a*c", "a/b/c", true),
            ("a?c", "a/c", true),
            ("[ab]x", "d/bx", true),
            ("[!ab]x", "d/bx", false),
            ("[a-c]x", "d/bx", true),
            ("[[:upper:]]", "d/B", true),
            ("[[:upper:]]", "d/b", false),
            ("[![:upper:]_]x", "d/bx", true),
            ("[![:upper:]_]x", "d/_x", false),
            ("[_[:digit:]-]", "-", true),
            ("[[:upper", "[[:upper", true),
            ("[[:upper]x", ":x", true),
            ("x[", "x[", true),
            ("?", "d/\u{e4}", true),
            ("?????", "d/\u{e4}", false),
            ("[\u{e0}-\u{ef}]x", "\u{e4}x", true),
            ("[!\u{e4}]x", "\u{e4}x", false),
            ("[!\u{e4}]x", "\u{f6}x", true),
            ("[[:lower:]]", "\u{e4}", true),
            ("\u{e4}*", "\u{e4}\u{f6}", true),
            (r"[\]]", "]", true),
            (r"\*", "a/*", true),
            (r"\*", "a/b", false),
            ("b/c", "a/b/c/d", true),
            ("./a", "./a", true),
            ("/abs", "/abs", true),
            ("abs", "/abs", true),
            ("", "a", false),
        ] {
            assert_eq!(excluded(pattern, path), expected, "{pattern:?} on {path:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_a_character_each() {
        let excluded = |pattern: &[u8], path: &[u8]| {
            let mut filter = Filter::new();
            filter.exclude(pattern);
            filter.excludes(path)
        };
        assert!(excluded(b"?", b"\xff") && !excluded(b"?", b"\xff\xfe") && excluded(b"??", b"\xff\xfe"));
        assert!(excluded(b"a?b", b"a\xc3b") && excluded(b"a??b", b"a\xc3\xa4b"));
        assert!(excluded(b"[\xfe]", b"\xfe") && !excluded(b"[\xfe]", b"\xff") && excluded(b"[!a]", b"\xff"));
        assert!(excluded(b"*\xff", b"\xc3\xa4\xff") && excluded(b"\xe4", b"\xe4"));
    }

    #[test]
    fn lines_end_before_their_white_space() {
        let mut filter = Filter::new();
        filter.exclude_lines(b"a b \t\r\n\n  \n c");
        let expected: HashSet<Vec<u8>> = [b"a b".to_vec(), b" c".to_vec()].into();
        assert_eq!(filter.names, expected);
    }

    #[test]
    fn names_without_wildcards_mean_what_they_mean_as_patterns() {
        let parts = ["", "a", "b", "/", "ab", "\u{e4}", ".", "a/", "/a", "a/b", "//", "b/a"];
        let texts: Vec<String> = parts
            .iter()
            .flat_map(|first| parts.iter().flat_map(move |second| parts.map(|third| format!("{first}{second}{third}"))))
            .collect();
        for name in parts {
            let filter = Filter { names: [name.as_bytes().to_vec()].into(), ..Filter::default() };
            let compared = Filter { patterns: vec![name.as_bytes().to_vec()], ..Filter::default() };
            for text in &texts {
                let (found, expected) = (filter.excludes(text.as_bytes()), compared.excludes(text.as_bytes()));
                assert_eq!(found, expected, "{name:?} on {text:?}");
            }
        }
    }
}
