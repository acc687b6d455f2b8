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

impl Default for Style {
    fn default() -> Style {
        Style("%Y-%m-%d %H:%M".to_owned())
    }
}

impl Style {
    /// As the variable `TIME_STYLE` names it, which ls heeds, too.
    pub(super) fn from_environment(style: Option<&str>) -> Result<Style, Failure> {
        match style {
            None | Some("" | "locale") => Ok(Style::default()),
            // ls has a second line, for what is recent.
            Some(style) if style.starts_with('+') => Style::parse(style.lines().next().unwrap_or(style)),
            Some(mut style) => {
                while let Some(rest) = style.strip_prefix("posix-") {
                    style = rest;
                }
                Style::parse(style)
            }
        }
    }

    /// As `--time-style` takes it.
    pub(super) fn parse(style: &str) -> Result<Style, Failure> {
        let format = match style {
            "full-iso" => "%Y-%m-%d %H:%M:%S.%N %z",
            "long-iso" => return Ok(Style::default()),
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
        for (style, same) in [(None, "long-iso"), (Some("posix-posix-iso"), "iso"), (Some("+%s\n%H"), "+%s")] {
            assert_eq!(Style::from_environment(style).unwrap(), Style::parse(same).unwrap());
        }
        assert!(Style::from_environment(Some("short")).is_err());
    }
}
