//! Member names: what is stripped from a path, and which names bsdtar would change.

use super::error::TarWarning;

/// Strips paths, and remembers which prefixes were told of.
#[derive(Default)]
pub(super) struct Stripper {
    keep: bool,
    told: Vec<(Vec<u8>, bool)>,
}

impl Stripper {
    pub(super) fn new(keep: bool) -> Self {
        Self { keep, told: Vec::new() }
    }

    /// Writes the member name of `path` to `name`.
    pub(super) fn member(&mut self, path: &[u8], is_dir: bool, name: &mut Vec<u8>, warnings: &mut Vec<TarWarning>) {
        self.strip(path, false, name, warnings);
        if is_dir && name.last() != Some(&b'/') {
            name.push(b'/');
        }
    }

    /// Writes the name of the member at `path`, as the target of a hard link, to `name`.
    pub(super) fn link_target(&mut self, path: &[u8], name: &mut Vec<u8>, warnings: &mut Vec<TarWarning>) {
        self.strip(path, true, name, warnings);
    }

    fn strip(&mut self, path: &[u8], link_targets: bool, name: &mut Vec<u8>, warnings: &mut Vec<TarWarning>) {
        name.clear();
        let unsafe_part = if self.keep { 0 } else { unsafe_prefix(path) };
        let (prefix, rest) = path.split_at(unsafe_part);
        name.extend_from_slice(if rest.is_empty() { b"." } else { rest });
        if !prefix.is_empty() && !self.told.iter().any(|(told, of)| told == prefix && *of == link_targets) {
            self.told.push((prefix.to_vec(), link_targets));
            let prefix = String::from_utf8_lossy(prefix).into_owned();
            warnings.push(TarWarning::Stripped { prefix, link_targets });
        }
    }
}

/// Bytes at the start of `path` that lead out of the directory of extraction: all up to the last `..`, and slashes.
fn unsafe_prefix(path: &[u8]) -> usize {
    let mut prefix = 0;
    let mut at = 0;
    for component in path.split(|&byte| byte == b'/') {
        if component == b".." {
            prefix = at + 2;
        }
        at += component.len() + 1;
    }
    prefix + path[prefix..].iter().take_while(|&&byte| byte == b'/').count()
}

/// True when bsdtar would complain about the name in a pax record, or change it: it is not UTF-8, or has letters and
/// accents apart that could be composed.
///
/// The ranges are the common ones of libarchive's composition table; Indic vowel signs are left out, since they stand
/// in composed names too.
pub(super) fn needs_binary(name: &[u8]) -> bool {
    if name.is_ascii() {
        return false;
    }
    std::str::from_utf8(name).map_or(true, |name| {
        name.chars().any(|letter| {
            matches!(letter,
                '\u{300}'..='\u{36f}' | '\u{653}'..='\u{655}' | '\u{1161}'..='\u{11c2}' | '\u{3099}' | '\u{309a}')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(path: &str, is_dir: bool) -> String {
        let mut name = Vec::new();
        Stripper::default().member(path.as_bytes(), is_dir, &mut name, &mut Vec::new());
        String::from_utf8(name).unwrap()
    }

    #[test]
    fn strips_as_gnu_tar_does() {
        for (path, expected) in [
            ("a/b", "a/b"),
            ("./a", "./a"),
            ("/a", "a"),
            ("///a", "a"),
            ("../a", "a"),
            ("../../a/b", "a/b"),
            ("a/../b", "b"),
            ("a/..", "."),
            ("/", "."),
            ("..a/b", "..a/b"),
            ("a/..b", "a/..b"),
        ] {
            assert_eq!(member(path, false), expected, "{path}");
        }
        assert_eq!(member("/", true), "./");
        assert_eq!(member("d", true), "d/");
        assert_eq!(member("d/", true), "d/");
    }

    #[test]
    fn tells_of_each_prefix_once() {
        let (mut stripper, mut name, mut warnings) = (Stripper::default(), Vec::new(), Vec::new());
        for path in [&b"/a"[..], b"/b", b"../c", b"../d"] {
            stripper.member(path, false, &mut name, &mut warnings);
        }
        stripper.link_target(b"/a", &mut name, &mut warnings);
        let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "Removing leading `/' from member names",
                "Removing leading `../' from member names",
                "Removing leading `/' from hard link targets"
            ]
        );
        let mut stripper = Stripper::new(true);
        stripper.member(b"/a/../b", false, &mut name, &mut warnings);
        assert_eq!((name.as_slice(), warnings.len()), (&b"/a/../b"[..], 3));
    }

    #[test]
    fn knows_names_that_bsdtar_would_change() {
        assert!(!needs_binary(b"plain"));
        assert!(!needs_binary("größer 漢字".as_bytes()));
        assert!(needs_binary("gro\u{308}ßer".as_bytes()));
        assert!(needs_binary(b"caf\xe9"));
    }
}
