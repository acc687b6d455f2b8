//! Manifest lines, as coreutils and `b3sum` write and read them.
//!
//! A line is the digest, two spaces, and the name. When the name holds a backslash, a line feed or a carriage return,
//! the line begins with a backslash and these three are written `\\`, `\n` and `\r`.

use std::{
    ffi::OsString,
    io::{self, BufRead, Write},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use super::{Algorithm, Digest};

/// A line of a manifest: what a file should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The file, as the manifest names it.
    pub path: PathBuf,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The digest.
    pub digest: Digest,
}

/// A line that is no manifest line; its number, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLine(pub u64);

fn needs_escape(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'))
}

/// Writes a name with `\\`, `\n` and `\r` for the bytes that would break a line.
pub fn write_escaped(out: &mut dyn Write, name: &[u8]) -> io::Result<()> {
    for part in name.split_inclusive(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        let escape: &[u8] = match part.last() {
            Some(b'\\') => br"\\",
            Some(b'\n') => br"\n",
            Some(b'\r') => br"\r",
            _ => {
                out.write_all(part)?;
                continue;
            }
        };
        out.write_all(&part[..part.len() - 1])?;
        out.write_all(escape)?;
    }
    Ok(())
}

/// Writes one manifest line.
pub fn write_line(out: &mut dyn Write, digest: &Digest, path: &Path) -> io::Result<()> {
    let name = path.as_os_str().as_bytes();
    if needs_escape(name) {
        out.write_all(b"\\")?;
    }
    write!(out, "{digest}  ")?;
    write_escaped(out, name)?;
    out.write_all(b"\n")
}

/// Takes the escapes out of a name; `None` for a backslash before any other letter.
fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(plain)
}

/// Reads one line without its line feed. Takes the plain form (with ` ` or `*` before the name) and the tagged form
/// (`SHA256 (name) = digest`). A plain digest of 64 digits is `algorithm`'s, one of 32 is always MD5's.
pub fn parse_line(line: &[u8], algorithm: Algorithm) -> Option<Expected> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (name, algorithm, digest) = tagged(line).or_else(|| plain(line, algorithm))?;
    let name = if escaped { unescape(name)? } else { name.to_vec() };
    if name.is_empty() || name.contains(&0) {
        return None;
    }
    Some(Expected { path: OsString::from_vec(name).into(), algorithm, digest })
}

fn plain(line: &[u8], algorithm: Algorithm) -> Option<(&[u8], Algorithm, Digest)> {
    let digits = line.iter().position(|&byte| byte == b' ')?;
    let algorithm = match (digits, algorithm) {
        (32, _) => Algorithm::Md5,
        (64, Algorithm::Md5) => return None,
        (_, algorithm) => algorithm,
    };
    let digest = Digest::from_hex(&line[..digits], algorithm)?;
    let (mark, name) = line[digits + 1..].split_first()?;
    matches!(mark, b' ' | b'*').then_some((name, algorithm, digest))
}

fn tagged(line: &[u8]) -> Option<(&[u8], Algorithm, Digest)> {
    Algorithm::ALL.into_iter().find_map(|algorithm| {
        let rest = line.strip_prefix(algorithm.tag().as_bytes())?.strip_prefix(b" (")?;
        // From the end, since the name may hold the separator itself.
        let digits_at = rest.len().checked_sub(2 * algorithm.digest_len_bytes())?;
        let name = rest[..digits_at].strip_suffix(b") = ")?;
        Some((name, algorithm, Digest::from_hex(&rest[digits_at..], algorithm)?))
    })
}

/// Reads a whole manifest: the lines that could be read, and those that could not. Empty lines and lines that begin
/// with `#` are skipped, as coreutils skips them.
pub fn read_manifest(mut input: impl BufRead, algorithm: Algorithm) -> io::Result<(Vec<Expected>, Vec<BadLine>)> {
    let (mut expected, mut bad) = (Vec::new(), Vec::new());
    let mut line = Vec::new();
    let mut number = 0;
    while input.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if !(text.is_empty() || text.starts_with(b"#")) {
            match parse_line(text, algorithm) {
                Some(entry) => expected.push(entry),
                None => bad.push(BadLine(number)),
            }
        }
        line.clear();
    }
    Ok((expected, bad))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn line(algorithm: Algorithm, name: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        write_line(&mut line, &algorithm.digest(name), Path::new(OsStr::from_bytes(name))).unwrap();
        line
    }

    #[test]
    fn every_name_comes_back() {
        for name in [
            &b"plain"[..],
            b"with space",
            b" leading",
            b"*star",
            b"back\\slash",
            b"\\",
            b"line\nfeed",
            b"carriage\rreturn",
            b"ends in cr\r",
            b"\\n is no line feed",
            b"\xff\xfe not UTF-8",
            b"#hash",
            b"x) = y",
        ] {
            for algorithm in Algorithm::ALL {
                let line = line(algorithm, name);
                assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1, "{name:?}");
                let (expected, bad) = read_manifest(&line[..], algorithm).unwrap();
                assert!(bad.is_empty(), "{name:?}");
                assert_eq!(expected.len(), 1);
                assert_eq!(expected[0].path.as_os_str().as_bytes(), name);
                assert_eq!(expected[0].digest, algorithm.digest(name));
            }
        }
    }

    #[test]
    fn other_forms_of_a_line_are_read() {
        let digest = Algorithm::Sha256.digest(b"x");
        for text in [
            format!("{digest}  a b"),
            format!("{digest} *a b"),
            format!("{digest}  a b\r"),
            format!("SHA256 (a b) = {digest}"),
            format!("{}  a b", digest.to_string().to_uppercase()),
        ] {
            let expected = parse_line(text.as_bytes(), Algorithm::Sha256).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((expected.path, expected.digest), (PathBuf::from("a b"), digest), "{text}");
        }
        let md5 = format!("{}  f", Algorithm::Md5.digest(b""));
        assert_eq!(parse_line(md5.as_bytes(), Algorithm::Blake3).unwrap().algorithm, Algorithm::Md5);
        let tagged = format!("BLAKE3 (x) = y) = {}", Algorithm::Blake3.digest(b""));
        let read = parse_line(tagged.as_bytes(), Algorithm::Sha256).unwrap();
        assert_eq!((read.path, read.algorithm), (PathBuf::from("x) = y"), Algorithm::Blake3));
    }

    #[test]
    fn bad_lines_are_counted_and_the_rest_is_read() {
        let good = line(Algorithm::Sha256, b"good");
        let digest = Algorithm::Sha256.digest(b"");
        let bad_escape = format!("\\{digest}  a\\x\n");
        let no_name = format!("{digest}  \n");
        let text = [b"# comment\n\nnonsense\n", bad_escape.as_bytes(), no_name.as_bytes(), &good].concat();
        let (expected, bad) = read_manifest(&text[..], Algorithm::Sha256).unwrap();
        assert_eq!(expected.len(), 1);
        assert_eq!(bad, [BadLine(3), BadLine(4), BadLine(5)]);
    }

    #[test]
    fn a_sixty_four_digit_line_is_no_md5() {
        let line = format!("{}  f", Algorithm::Sha256.digest(b""));
        assert_eq!(parse_line(line.as_bytes(), Algorithm::Md5), None);
    }
}
