//! How programs name the trees that they read.

use std::ffi::{OsStr, OsString};

use super::{words::name, wrappers::programs_in};

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

/// What is known of a command's program, and the words that it is given.
pub(super) fn habits_of(command: &[OsString]) -> Option<(Habits, &[OsString])> {
    let at = programs_in(command).pop()?;
    Some(match known(&command[at]) {
        Some(habits) => (*habits, &command[at + 1..]),
        // What runs it may say where it goes first (`env -C DIR`).
        None => (OTHERS, &command[1..]),
    })
}

fn known(program: &OsStr) -> Option<&'static Habits> {
    let name = name(program);
    KNOWN.iter().find(|habits| habits.programs.iter().any(|known| name == *known))
}
