//! Which entries are left out: exclude patterns with GNU tar's meaning.

/// Exclude patterns, in GNU tar's meaning of `--exclude`: shell patterns in which `*` and `?` also match `/`,
/// tried at every place after a `/` (not anchored), and excluding all that lies below a match.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    patterns: Vec<Vec<u8>>,
}

impl Filter {
    /// A filter that leaves nothing out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the patterns of a file, one to a line. As with GNU tar, white space at the end of a line is no part of it.
    pub fn exclude_lines(&mut self, text: &[u8]) {
        let is_space = |byte: &u8| is_in(b"space", *byte);
        for line in text.split(|&byte| byte == b'\n') {
            if let Some(last) = line.iter().rposition(|byte| !is_space(byte)) {
                self.exclude(&line[..=last]);
            }
        }
    }

    /// Adds one pattern.
    pub fn exclude(&mut self, pattern: &[u8]) {
        self.patterns.push(pattern.to_vec());
    }

    /// True without patterns.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// True when the entry at `path` (as it is delivered) is left out.
    pub fn excludes(&self, path: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| matches_anywhere(pattern, path))
    }
}

/// True when a name, the last part of a path, matches a shell pattern as in fnmatch(3).
pub fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    glob(pattern, name)
}

fn matches_anywhere(pattern: &[u8], path: &[u8]) -> bool {
    let after_slashes = path.windows(2).enumerate().filter(|(_, pair)| pair[0] == b'/' && pair[1] != b'/');
    let starts = std::iter::once(0).chain(after_slashes.map(|(at, _)| at + 1));
    starts.into_iter().any(|at| glob(pattern, &path[at..]))
}

/// Shell matching with `FNM_LEADING_DIR` and without `FNM_PATHNAME`; a backslash takes the next byte literally.
fn glob<'a>(mut pattern: &'a [u8], mut text: &'a [u8]) -> bool {
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
            Some(_) => one(pattern, text),
        };
        match (advanced, retry) {
            (Some((rest_pattern, rest_text)), _) => (pattern, text) = (rest_pattern, rest_text),
            (None, Some((after_star, from))) if !from.is_empty() => {
                pattern = after_star;
                text = &from[1..];
                retry = Some((after_star, text));
            }
            (None, _) => return false,
        }
    }
}

/// Matches one pattern element against one byte; what is left of both.
fn one<'a>(pattern: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (&byte, rest) = text.split_first()?;
    match pattern {
        [b'?', after @ ..] => Some((after, rest)),
        [b'[', ..] => match class(pattern, byte) {
            Some((true, after)) => Some((after, rest)),
            Some((false, _)) => None,
            None => (byte == b'[').then_some((&pattern[1..], rest)),
        },
        [b'\\', literal, after @ ..] => (*literal == byte).then_some((after, rest)),
        [literal, after @ ..] => (*literal == byte).then_some((after, rest)),
        [] => None,
    }
}

/// A bracket expression: whether it takes the byte, and what follows it. `None` when it never closes.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let mut at = 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let first = at;
    let mut found = false;
    loop {
        let mut low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((found != negated, &pattern[at + 1..]));
        }
        if let Some((name, len)) = named_class(&pattern[at..]) {
            found |= is_in(name, byte);
            at += len;
            continue;
        }
        if low == b'\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        let mut high = low;
        if pattern.get(at + 1) == Some(&b'-') && pattern.get(at + 2).is_some_and(|&end| end != b']') {
            high = *pattern.get(at + 2)?;
            at += 2;
        }
        found |= (low..=high).contains(&byte);
        at += 1;
    }
}

/// A named class inside of a bracket expression, `[:upper:]`: its name and length.
fn named_class(pattern: &[u8]) -> Option<(&[u8], usize)> {
    let rest = pattern.strip_prefix(b"[:")?;
    let len = rest.iter().position(|byte| !byte.is_ascii_lowercase())?;
    rest[len..].starts_with(b":]").then(|| (&rest[..len], len + 4))
}

/// Whether a class of the C locale holds the byte. One that doesn't exist holds none.
fn is_in(class: &[u8], byte: u8) -> bool {
    match class {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => matches!(byte, b' '..=b'~'),
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
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
    fn lines_end_before_their_white_space() {
        let mut filter = Filter::new();
        filter.exclude_lines(b"a b \t\r\n\n  \n c");
        assert_eq!(filter.patterns, [&b"a b"[..], b" c"]);
    }
}
