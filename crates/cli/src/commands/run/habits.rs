//! How programs name the trees that they read.

use std::ffi::{OsStr, OsString};

use super::{values, words::name, wrappers::programs_in};

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

/// What is known of a program. Options of one letter stand for the end of several in a word, too; options are named with spaces between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    programs: &'static [&'static str],
    pub(super) names: Names,
    /// Options that say where it writes to.
    pub(super) targets: &'static str,
    /// Options that are followed by a word that could be taken for a tree, or for what it writes to.
    pub(super) values: &'static str,
    /// Options that aren't, though they end as one of those.
    pub(super) without: &'static str,
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
    targets: "",
    values: "",
    without: "",
    changes_directory: true,
    here: Here::Never,
    has_archives: false,
};

const KNOWN: [Habits; 14] = [
    Habits {
        programs: &["cp", "mv"],
        names: Names::UpToTarget,
        targets: "-t --target-directory",
        values: values::COPY,
        changes_directory: false,
        ..OTHERS
    },
    Habits {
        programs: &["install"],
        names: Names::UpToTarget,
        targets: "-t --target-directory",
        values: values::INSTALL,
        changes_directory: false,
        ..OTHERS
    },
    Habits {
        programs: &["rsync"],
        names: Names::UpToTarget,
        values: values::RSYNC,
        changes_directory: false,
        ..OTHERS
    },
    Habits { programs: &["scp"], names: Names::UpToTarget, values: values::SCP, changes_directory: false, ..OTHERS },
    Habits {
        programs: &["grep", "egrep", "fgrep"],
        names: Names::AfterPattern,
        values: values::GREP,
        changes_directory: false,
        here: Here::Recursively,
        ..OTHERS
    },
    Habits {
        programs: &["rg"],
        names: Names::AfterPattern,
        values: values::RIPGREP,
        changes_directory: false,
        here: Here::Always,
        ..OTHERS
    },
    Habits {
        programs: &["find"],
        names: Names::First,
        values: "-D",
        changes_directory: false,
        here: Here::Always,
        ..OTHERS
    },
    Habits { programs: &["ls"], values: values::LS, changes_directory: false, here: Here::Always, ..OTHERS },
    Habits { programs: &["du"], values: values::DU, changes_directory: false, here: Here::Always, ..OTHERS },
    Habits { programs: &["clamscan", "clamdscan"], values: values::CLAMAV, changes_directory: false, ..OTHERS },
    Habits { programs: &["restic"], values: values::RESTIC, changes_directory: false, has_archives: true, ..OTHERS },
    Habits { programs: &["borg"], values: values::BORG, changes_directory: false, has_archives: true, ..OTHERS },
    Habits { programs: &["tar", "gtar"], values: values::TAR, ..OTHERS },
    Habits {
        programs: &["zip"],
        values: values::ZIP,
        without: values::ZIP_WITHOUT,
        changes_directory: false,
        ..OTHERS
    },
];

/// What is known of a command's program, and the words that it is given.
pub(super) fn habits_of(command: &[OsString]) -> Option<(Habits, &[OsString])> {
    let at = programs_in(command).pop()?;
    let habits = known(&command[at]).copied().unwrap_or(OTHERS);
    // What runs it may say where it goes first (`env -C DIR`).
    let words = if habits.changes_directory { 1 } else { at + 1 };
    Some((habits, &command[words..]))
}

fn known(program: &OsStr) -> Option<&'static Habits> {
    let name = name(program);
    KNOWN.iter().find(|habits| habits.programs.iter().any(|known| name == *known))
}
