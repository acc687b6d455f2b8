//! How a command ends that has run a program: as that did.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus};

use signal_hook::{consts::SIGINT, low_level};

/// As env(1) and nice(1) have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// What shells add to the number of the signal that ended a program.
const BY_SIGNAL: u8 = 128;

/// What a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(u8),
    Program(ExitStatus),
}

impl End {
    /// That of a program that can't be run.
    pub(crate) fn of_refusal(error: &io::Error) -> Self {
        Self::Code(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
    }

    /// The code to end with, when nothing is left to be done. Where Ctrl-C has ended the program this process ends by it, too, here and
    /// now: a loop of a shell goes on after one that only tells so.
    pub(crate) fn code(self) -> u8 {
        if matches!(self, Self::Program(status) if status.signal() == Some(SIGINT)) {
            let _ = low_level::emulate_default_handler(SIGINT);
        }
        self.as_told()
    }

    /// As shells tell it.
    fn as_told(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Program(status) => {
                let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
                status.code().map(|code| code as u8).or(signal.map(|signal| BY_SIGNAL + signal)).unwrap_or(u8::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_program_is_told_as_shells_do() {
        assert_eq!(End::Program(ExitStatus::from_raw(3 << 8)).as_told(), 3);
        assert_eq!(End::Program(ExitStatus::from_raw(9)).as_told(), 137);
        assert_eq!(End::of_refusal(&io::ErrorKind::NotFound.into()).as_told(), 127);
        assert_eq!(End::of_refusal(&io::ErrorKind::PermissionDenied.into()).as_told(), 126);
    }
}
