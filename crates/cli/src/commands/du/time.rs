//! Times of files, as du shows them.

use onesweep_sys::{files, local_time};

use crate::report::Failure;

/// Which of a file's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TimeOf {
    /// Of its content.
    #[default]
    Modification,
    /// Of its last use.
    Access,
    /// Of its inode.
    Status,
}

impl TimeOf {
    /// As `--time` takes it.
    pub(super) fn parse(word: &str) -> Result<TimeOf, Failure> {
        match word {
            "mtime" | "modification" => Ok(TimeOf::Modification),
            "atime" | "access" | "use" => Ok(TimeOf::Access),
            "ctime" | "status" => Ok(TimeOf::Status),
            _ => Err(Failure::told(format!("'{word}' is no time; write mtime, atime or ctime"))),
        }
    }

    pub(super) fn of(self, stat: &files::Stat) -> files::Time {
        match self {
            TimeOf::Modification => stat.mtime,
            TimeOf::Access => stat.atime,
            TimeOf::Status => stat.ctime,
        }
    }
}

/// How times are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Style(String);

impl Style {
    /// As `--time-style` takes it.
    pub(super) fn parse(style: &str) -> Result<Style, Failure> {
        let format = match style {
            "full-iso" => "%Y-%m-%d %H:%M:%S.%N %z",
            "long-iso" => "%Y-%m-%d %H:%M",
            "iso" => "%Y-%m-%d",
            other => other.strip_prefix('+').ok_or_else(|| {
                Failure::told(format!("'{other}' is no style; write full-iso, long-iso, iso or +FORMAT"))
            })?,
        };
        Ok(Style(format.to_owned()))
    }

    pub(super) fn write(&self, time: files::Time) -> String {
        // The C library knows no fractions.
        let format = self.0.replace("%N", &format!("{:09}", time.nanos));
        local_time::format(time.secs, &format).unwrap_or_else(|| time.secs.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_and_words_are_known() {
        assert_eq!(TimeOf::parse("use").ok(), Some(TimeOf::Access));
        assert!(TimeOf::parse("birth").is_err());
        let time = files::Time { secs: 1_000_000_000, nanos: 5 };
        assert_eq!(Style::parse("+%s.%N").unwrap().write(time), "1000000000.000000005");
        assert_eq!(Style::parse("iso").unwrap().write(time).len(), 10);
        assert!(Style::parse("short").is_err());
    }
}
