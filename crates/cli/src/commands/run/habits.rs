//! How programs name the trees that they read.

use std::{ffi::OsString, path::Path};

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
    /// Whether `REPOSITORY::ARCHIVE` is what it writes.
    pub(super) has_archives: bool,
}

const OTHERS: Habits = Habits {
    programs: &[],
    names: Names::All,
    targets: &[],
    values: &[],
    changes_directory: true,
    has_archives: false,
};

const KNOWN: [Habits; 10] = [
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
        programs: &["grep", "egrep", "fgrep", "rg"],
        names: Names::AfterPattern,
        values: &[
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
        ],
        changes_directory: false,
        ..OTHERS
    },
    Habits { programs: &["find"], names: Names::First, changes_directory: false, ..OTHERS },
    Habits { programs: &["ls"], changes_directory: false, ..OTHERS },
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
    let (program, mut words) = command.split_first()?;
    let name = |word: &OsString| Path::new(word).file_name().map(ToOwned::to_owned).unwrap_or_default();
    let known = |word: &OsString| KNOWN.iter().find(|habits| habits.programs.iter().any(|known| name(word) == *known));
    let mut habits = known(program);
    if WRAPPERS.iter().any(|wrapper| name(program) == *wrapper)
        && let Some(at) = words.iter().position(|word| known(word).is_some())
    {
        habits = known(&words[at]);
        words = &words[at + 1..];
    }
    Some((habits.copied().unwrap_or(OTHERS), words))
}
