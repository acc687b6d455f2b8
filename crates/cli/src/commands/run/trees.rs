//! The trees that a command line names.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

use super::{
    habits::{Habits, Here, Names, habits_of},
    words::{Valued, is, split, valued},
};

/// The directories that a command reads, as far as its words tell: below the last `-C DIR` or `--directory=DIR` before them,
/// where there is one. None that lies below another.
pub(super) fn named(command: &[OsString]) -> Vec<PathBuf> {
    let Some((habits, words)) = habits_of(command) else { return Vec::new() };
    let mut found: Vec<PathBuf> = names(&habits, words).into_iter().filter(|path| path.is_dir()).collect();
    let all = found.clone();
    found.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
    found.dedup();
    found
}

/// What the words name, but options and what is said with them, and the place to which a program writes.
fn names(habits: &Habits, words: &[OsString]) -> Vec<PathBuf> {
    let (mut base, mut names) = (PathBuf::new(), Vec::new());
    let (mut has_target, mut has_pattern, mut options_ended) = (false, false, false);
    let mut reads_here = habits.here == Here::Always;
    let mut words = words.iter().map(OsString::as_os_str).peekable();
    while let Some(word) = words.next() {
        let is_option = !options_ended && word.len() > 1 && word.as_bytes().starts_with(b"-");
        if !is_option {
            if habits.names == Names::First && [OsStr::new("!"), OsStr::new("(")].contains(&word) {
                break;
            }
            let is_archive = habits.has_archives && contains(word, b"::");
            if !word.is_empty() && !is_archive {
                names.push(base.join(word));
            }
            continue;
        }
        if word == "--" {
            options_ended = true;
            continue;
        }
        let (option, joined) = split(word);
        reads_here |= habits.here == Here::Recursively && is_recursive(option, habits.values);
        if habits.changes_directory && is(option, b'C', "--directory") {
            let directory = joined.or_else(|| words.next_if(|next| base.join(next).is_dir()));
            base.extend(directory);
        } else if habits.names == Names::First && !(names.is_empty() && stands_before_names(option)) {
            break;
        } else if let Some(Valued { known, is_joined }) = said_with(option, habits) {
            has_target |= habits.targets.split_whitespace().any(|target| target == known);
            has_pattern |= ["-e", "--regexp", "-f", "--file"].contains(&known);
            words.next_if(|_| joined.is_none() && !is_joined);
        }
    }
    match habits.names {
        Names::AfterPattern if !has_pattern && !names.is_empty() => drop(names.remove(0)),
        // To another machine, nothing that is here is written to.
        Names::UpToTarget if !has_target => drop(names.pop()),
        _ => {}
    }
    if reads_here && names.is_empty() {
        names.push(PathBuf::from("."));
    }
    names
}

/// An option that is said with something, as far as that could be taken for something else.
fn said_with(option: &OsStr, habits: &Habits) -> Option<Valued<'static>> {
    let is_without = habits.without.split_whitespace().any(|without| option == without);
    let known = habits.targets.split_whitespace().chain(habits.values.split_whitespace());
    if is_without { None } else { valued(option, known) }
}

/// Whether `find` takes it for an option of its own, not for the beginning of its expression.
fn stands_before_names(option: &OsStr) -> bool {
    matches!(option.as_bytes(), b"-H" | b"-L" | b"-P" | b"-D" | [b'-', b'O', ..])
}

/// Whether one of the letters asks for all that is below, or the word does. What follows a letter with a value is that value.
fn is_recursive(option: &OsStr, values: &str) -> bool {
    let bytes = option.as_bytes();
    if bytes.starts_with(b"--") {
        return matches!(bytes, b"--recursive" | b"--dereference-recursive");
    }
    let has_value = |letter: &u8| values.split_whitespace().any(|value| value.as_bytes() == [b'-', *letter]);
    bytes[1..].iter().take_while(|letter| !has_value(letter)).any(|letter| matches!(letter, b'r' | b'R'))
}

fn contains(word: &OsStr, part: &[u8]) -> bool {
    word.as_bytes().windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn directories_that_are_read_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["mail/new", "www", "to", "db", "borg"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("file"), "").unwrap();
        let at = folder.path().display().to_string();
        let found = |line: &str| -> Vec<String> {
            let words: Vec<OsString> = line.split(' ').map(|word| word.replace('@', &at).into()).collect();
            named(&words).iter().map(|path| path.display().to_string().replace(&at, "@")).collect()
        };
        for (line, trees) in [
            ("tar -cf @/to/x.tar -C @ mail www file", &["@/mail", "@/www"][..]),
            ("tar -cf - --directory=@/mail .", &["@/mail/."]),
            ("tar -cf - -C @/mail .", &["@/mail/."]),
            ("tar cf @/to/x.tar @/mail", &["@/mail"]),
            ("tar -C @/mail -cf - . -C @/www .", &["@/mail/.", "@/www/."]),
            ("tar -cf - -C @ --directory mail new", &["@/mail/new"]),
            ("grep -C 3 -r word @/mail @/mail/new", &["@/mail"]),
            ("grep -r @/www @/mail", &["@/mail"]),
            ("grep -rne word @/mail @/www", &["@/mail", "@/www"]),
            ("grep -r --regexp=word @/mail", &["@/mail"]),
            ("/usr/bin/cp -a @/mail @/www @/to", &["@/mail", "@/www"]),
            ("cp -a @/mail @/to -v", &["@/mail"]),
            ("cp -a -t @/to @/mail", &["@/mail"]),
            ("cp -at @/to @/mail @/www", &["@/mail", "@/www"]),
            ("cp -a --target-directory=@/to @/mail", &["@/mail"]),
            ("cp -a --target-directory @/to @/mail", &["@/mail"]),
            ("cp -a -- @/mail @/none", &["@/mail"]),
            ("nice -n 19 ionice -c 3 cp -a @/mail @/to", &["@/mail"]),
            ("env LANG=C tar -cf - @/mail", &["@/mail"]),
            ("nice tar -cf @/to/x.tar @/mail @/borg", &["@/mail", "@/borg"]),
            ("env -C @ nice tar -cf - mail borg", &["@/mail", "@/borg"]),
            ("nice -n 19 @/borg", &["@/borg"]),
            ("nice sh install @/mail", &["@/mail"]),
            ("sudo -u cp grep -r word @/borg @/mail", &["@/borg", "@/mail"]),
            ("rsync -a @/mail/ there:mail", &["@/mail/"]),
            ("rsync -a there:mail @/to", &[]),
            ("rsync -a @/mail @/none", &["@/mail"]),
            ("rsync -a @/mail/ @/to/ --delete-after", &["@/mail/"]),
            ("rsync -at --link-dest @/www @/mail @/to", &["@/mail"]),
            ("rsync -aze ssh --backup-dir=@/www @/mail @/to", &["@/mail"]),
            ("clamscan -r -d @/db @/mail", &["@/mail"]),
            ("clamscan -r --database=@/db --move @/to @/mail", &["@/mail"]),
            ("restic -r @/to backup @/mail", &["@/mail"]),
            ("restic --repo @/to --cache-dir @/db backup @/mail --tag new", &["@/mail"]),
            ("borg create @/to::today @/mail", &["@/mail"]),
            ("borg -r @/to create today @/mail", &["@/mail"]),
            ("zip -r @/to/out.zip @/mail", &["@/mail"]),
            ("zip -b @/to -r @/to/out.zip @/mail", &["@/mail"]),
            ("find -L @/mail @/www -newer @/to -exec cp -t @/to {} +", &["@/mail", "@/www"]),
            ("find @/mail ! -size 0", &["@/mail"]),
            ("ls -lRC @/mail @/www", &["@/mail", "@/www"]),
            ("cat @/file @/none", &[]),
            ("du", &["."]),
            ("du -d 1", &["."]),
            ("du -sh @/mail", &["@/mail"]),
            ("du -sh @/file", &[]),
            ("ls -lR", &["."]),
            ("find -size +1M", &["."]),
            ("find -L -O2 -D tree @/mail -size +1M", &["@/mail"]),
            ("find ! -size 0", &["."]),
            ("grep -r word", &["."]),
            ("nice grep -Rn --include *.rs word", &["."]),
            ("grep --recursive -e word", &["."]),
            ("grep word", &[]),
            ("grep -eword", &[]),
            ("grep -rn word @/file", &[]),
            ("grep -reword @/mail", &["@/mail"]),
            ("rg word", &["."]),
            ("rg -g*.md word @/mail", &["@/mail"]),
            ("rg -tmd -nt rust word @/mail", &["@/mail"]),
            ("rg -ieword @/mail", &["@/mail"]),
            ("clamscan -l/var/log/clamd @/mail", &["@/mail"]),
            ("cp -a -t@/to @/mail @/www", &["@/mail", "@/www"]),
            ("zip -rb @/to @/to/out.zip @/mail", &["@/mail"]),
            ("tar -cf @/to/x.tar", &[]),
            // What is said with options.
            ("rsync -a @/mail @/to --port 873", &["@/mail"]),
            ("rsync -a --info stats2 -@ 1 --chown root:root @/mail/ @/to/ --out-format %n", &["@/mail/"]),
            ("rsync -a @/mail @/to --max-size 1G --timeout 60 --stop-after 9", &["@/mail"]),
            ("rsync -avP @/mail @/to", &["@/mail"]),
            ("cp -a @/mail @/to --sparse always --no-preserve mode", &["@/mail"]),
            ("install -D @/mail @/to --strip-program @/db", &["@/mail"]),
            ("scp -r @/mail @/to -X nrequests=9 -D @/db", &["@/mail"]),
            ("tar -cf - --exclude @/www @/mail @/borg", &["@/mail", "@/borg"]),
            ("tar -X @/www -g @/db -czf @/to/x.tar -C @ mail -T borg", &["@/mail"]),
            ("tar -cvf @/to/x.tar --one-file-system @/mail", &["@/mail"]),
            ("nice tar --exclude-tag-all @/www -cf - @/mail", &["@/mail"]),
            ("restic -p @/db -r @/to backup @/mail -e @/www --files-from @/borg --tag @/db", &["@/mail"]),
            ("restic backup -x @/mail --iexclude-file @/www --parent @/db", &["@/mail"]),
            ("borg create -e @/www -C lz4 --patterns-from @/db @/to::today @/mail", &["@/mail"]),
            ("borg create @/to::today -p @/mail --exclude-if-present @/www", &["@/mail"]),
            ("clamscan -r -l @/www --exclude-dir @/to --file-list @/borg @/mail", &["@/mail"]),
            ("clamdscan --config-file @/db -m @/mail", &["@/mail"]),
            ("zip -r @/to/out.zip @/mail -x @/www", &["@/mail"]),
            ("zip -lf @/www -r @/to/out.zip -db @/mail -tt 2026-01-01", &["@/mail"]),
            ("grep -r --label @/www word @/mail", &["@/mail"]),
            ("grep -r word @/mail --binary-files without-match --exclude-dir @/mail/new", &["@/mail"]),
            ("rg -r @/www word @/mail", &["@/mail"]),
            ("rg --ignore-file @/www -j 4 word @/mail", &["@/mail"]),
            ("ls -R --hide @/www --time-style full-iso @/mail", &["@/mail"]),
            ("du --exclude @/www --time-style full-iso @/mail", &["@/mail"]),
        ] {
            assert_eq!(found(line), trees, "{line}");
        }
        assert_eq!(named(&[]), [""; 0].map(PathBuf::from));
    }
}
