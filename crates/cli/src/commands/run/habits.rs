//! How programs name the trees that they read.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path};

/// Which of the names are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    All,
    /// All but the last one, to which it writes, unless an option says where that is.
    UpToTarget,
    /// All but the first one, a pattern, unless an option gives one.
    AfterPattern,
    /// Those before its expression.
    First,
}

/// When a program that is told no name reads the directory where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    Never,
    Always,
    /// With `-r`, `-R`, or what they are called otherwise.
    Recursively,
}

/// What is known of a program. Options of one letter stand for the end of several in a word, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    programs: &'static [&'static str],
    pub(super) names: Names,
    /// Options that say where it writes to.
    pub(super) targets: &'static [&'static str],
    /// Options that are followed by a word that could be taken for a tree, or for what it writes to.
    pub(super) values: &'static [&'static str],
    /// Whether `-C DIR` is where it goes first.
    pub(super) changes_directory: bool,
    /// When it reads `.` unasked.
    pub(super) here: Here,
    /// Whether `REPOSITORY::ARCHIVE` is what it writes.
    pub(super) has_archives: bool,
}

const OTHERS: Habits = Habits {
    programs: &[],
    names: Names::All,
    targets: &[],
    values: &[],
    changes_directory: true,
    here: Here::Never,
    has_archives: false,
};

const GREP_VALUES: &[&str] = &[
    "-A",
    "-B",
    "-C",
    "-m",
    "-e",
    "-f",
    "-d",
    "-D",
    "--regexp",
    "--file",
    "--after-context",
    "--before-context",
    "--context",
    "--max-count",
    "--include",
    "--exclude",
    "--exclude-dir",
    "--exclude-from",
];

const KNOWN: [Habits; 12] = [
    Habits {
        programs: &["cp", "mv"],
        names: Names::UpToTarget,
        targets: &["-t", "--target-directory"],
        values: &["-S", "--suffix"],
        changes_directory: false,
        ..OTHERS
    },
    Habits {
        programs: &["install"],
        names: Names::UpToTarget,
        targets: &["-t", "--target-directory"],
        values: &["-S", "--suffix", "-m", "--mode", "-o", "--owner", "-g", "--group"],
        changes_directory: false,
        ..OTHERS
    },
    Habits {
        programs: &["rsync"],
        names: Names::UpToTarget,
        values: &[
            "-e",
            "-T",
            "-f",
            "-B",
            "-M",
            "--rsh",
            "--temp-dir",
            "--filter",
            "--backup-dir",
            "--partial-dir",
            "--compare-dest",
            "--copy-dest",
            "--link-dest",
            "--exclude",
            "--exclude-from",
            "--include",
            "--include-from",
            "--files-from",
            "--log-file",
            "--rsync-path",
            "--bwlimit",
        ],
        changes_directory: false,
        ..OTHERS
    },
    Habits {
        programs: &["scp"],
        names: Names::UpToTarget,
        values: &["-c", "-F", "-i", "-J", "-l", "-o", "-P", "-S"],
        changes_directory: false,
        ..OTHERS
    },
    Habits {
        programs: &["grep", "egrep", "fgrep"],
        names: Names::AfterPattern,
        values: GREP_VALUES,
        changes_directory: false,
        here: Here::Recursively,
        ..OTHERS
    },
    Habits {
        programs: &["rg"],
        names: Names::AfterPattern,
        values: &[
            "-A",
            "-B",
            "-C",
            "-m",
            "-e",
            "-f",
            "-g",
            "-t",
            "-T",
            "--regexp",
            "--file",
            "--glob",
            "--type",
            "--type-not",
        ],
        changes_directory: false,
        here: Here::Always,
        ..OTHERS
    },
    Habits {
        programs: &["find"],
        names: Names::First,
        values: &["-D"],
        changes_directory: false,
        here: Here::Always,
        ..OTHERS
    },
    Habits {
        programs: &["ls"],
        values: &["-I", "-T", "-w", "--ignore", "--hide"],
        changes_directory: false,
        here: Here::Always,
        ..OTHERS
    },
    Habits {
        programs: &["du"],
        values: &["-B", "-d", "-t", "-X", "--block-size", "--max-depth", "--threshold", "--exclude", "--exclude-from"],
        changes_directory: false,
        here: Here::Always,
        ..OTHERS
    },
    Habits {
        programs: &["clamscan", "clamdscan"],
        values: &["-d", "--database", "--tempdir", "--move", "--copy"],
        changes_directory: false,
        ..OTHERS
    },
    Habits {
        programs: &["restic", "borg"],
        values: &["-r", "--repo", "--cache-dir"],
        changes_directory: false,
        has_archives: true,
        ..OTHERS
    },
    Habits { programs: &["zip"], values: &["-b"], changes_directory: false, ..OTHERS },
];

/// Programs that run another one, which their words name.
const WRAPPERS: [&str; 11] =
    ["nice", "ionice", "env", "sudo", "time", "timeout", "chrt", "nohup", "setsid", "stdbuf", "taskset"];

/// What is known of a command's program, and the words that it is given.
pub(super) fn habits_of(command: &[OsString]) -> Option<(Habits, &[OsString])> {
    let (program, words) = command.split_first()?;
    let found = match wrapped(command) {
        Some((habits, at)) => (habits, &command[at + 1..]),
        None => (known(program).copied().unwrap_or(OTHERS), words),
    };
    Some(found)
}

/// The program of a command, and those that it runs in turn, as far as its words tell.
pub(super) fn programs_of(command: &[OsString]) -> Vec<&OsString> {
    let mut found: Vec<&OsString> = Vec::new();
    for word in command {
        // Options of a wrapper, variables, numbers.
        let bytes = word.as_bytes();
        let is_told =
            bytes.first().is_none_or(|first| *first == b'-' || first.is_ascii_digit()) || bytes.contains(&b'=');
        if found.is_empty() || !is_told {
            found.push(word);
            if !is_wrapper(word) {
                break;
            }
        }
    }
    let known = wrapped(command).map(|(_, at)| &command[at]).filter(|known| !found.contains(known));
    found.extend(known);
    found
}

/// What is known of the program that a wrapper runs, and which word names it.
fn wrapped(command: &[OsString]) -> Option<(Habits, usize)> {
    command.first().filter(|program| is_wrapper(program))?;
    let mut words = command.iter().enumerate().skip(1);
    words.find_map(|(at, word)| known(word).map(|habits| (*habits, at)))
}

fn is_wrapper(program: &OsString) -> bool {
    WRAPPERS.iter().any(|wrapper| name(program) == *wrapper)
}

fn known(program: &OsString) -> Option<&'static Habits> {
    KNOWN.iter().find(|habits| habits.programs.iter().any(|known| name(program) == *known))
}

fn name(program: &OsString) -> OsString {
    Path::new(program).file_name().map(ToOwned::to_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_behind_those_that_run_them() {
        for (line, programs) in [
            ("tar -cf x.tar sudo", &["tar"][..]),
            ("nice -n 19 tar -cf x.tar sudo", &["nice", "tar"]),
            ("env LANG=C timeout 10m ./pack /srv", &["env", "timeout", "./pack"]),
            ("time -f %e restic backup /srv", &["time", "%e", "restic"]),
            ("sudo", &["sudo"]),
            ("", &[""]),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(programs_of(&words), programs, "{line}");
        }
    }
}
