//! The trees that a command line names.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Programs whose last directory is where they write to.
const WRITERS: [&str; 4] = ["cp", "mv", "rsync", "install"];

/// The directories among the words of a command: below `-C DIR` or `--directory=DIR`, where there is one. None that lies below
/// another.
pub(super) fn named(command: &[OsString]) -> Vec<PathBuf> {
    let Some((program, words)) = command.split_first() else { return Vec::new() };
    let (base, words) = base_of(words);
    let mut found: Vec<PathBuf> = Vec::new();
    for &word in &words {
        let path = base.join(word);
        if !word.is_empty() && !word.as_bytes().starts_with(b"-") && path.is_dir() {
            found.push(path);
        }
    }
    let is_writer = Path::new(program).file_name().is_some_and(|name| WRITERS.iter().any(|writer| name == *writer));
    if is_writer {
        // To another machine, nothing that is here is written to.
        let writes_here = words.last().is_some_and(|last| base.join(last).is_dir());
        found.truncate(found.len() - usize::from(writes_here && !found.is_empty()));
    }
    let all = found.clone();
    found.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
    found.dedup();
    found
}

/// The directory that a program goes to first, and the words without it.
fn base_of(words: &[OsString]) -> (PathBuf, Vec<&OsStr>) {
    let (mut base, mut rest) = (PathBuf::new(), Vec::new());
    let mut words = words.iter().map(OsString::as_os_str).peekable();
    while let Some(word) = words.next() {
        if (word == "-C" || word == "--directory")
            && let Some(directory) = words.next_if(|next| base.join(next).is_dir())
        {
            base.push(directory);
            continue;
        }
        if let Some(directory) = word.as_bytes().strip_prefix(b"--directory=") {
            base.push(OsStr::from_bytes(directory));
            continue;
        }
        rest.push(word);
    }
    (base, rest)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn directories_that_are_read_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["mail/new", "www", "to"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("file"), "").unwrap();
        let at = folder.path().display().to_string();
        let found = |line: &str| -> Vec<String> {
            let words: Vec<OsString> = line.split(' ').map(|word| word.replace('@', &at).into()).collect();
            named(&words).iter().map(|path| path.display().to_string().replace(&at, "@")).collect()
        };
        assert_eq!(found("tar -cf @/to/x.tar -C @ mail www file"), ["@/mail", "@/www"]);
        assert_eq!(found("tar -cf - --directory=@/mail ."), ["@/mail/."]);
        assert_eq!(found("tar -cf - -C @/mail ."), ["@/mail/."]);
        assert_eq!(found("grep -C 3 -r word @/mail @/mail/new"), ["@/mail"]);
        assert_eq!(found("/usr/bin/cp -a @/mail @/www @/to"), ["@/mail", "@/www"]);
        assert_eq!(found("rsync -a @/mail/ there:mail"), ["@/mail/"]);
        assert_eq!(found("rsync -a @/mail @/none"), ["@/mail"]);
        assert_eq!(found("cat @/file @/none"), [""; 0]);
    }
}
