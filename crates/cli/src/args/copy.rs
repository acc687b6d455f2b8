//! `onesweep copy`.

use std::path::PathBuf;

use clap::Args;
use onesweep_deliver::copy::Reflink;

use super::Common;

/// Copies trees as cp -a does, in one sweep
#[derive(Debug, Args)]
#[command(
    override_usage = "onesweep copy [OPTIONS] SOURCE... DESTINATION",
    after_help = "\
Examples:
  onesweep copy /srv/mail /mnt/new              makes /mnt/new/mail when /mnt/new is a directory
  onesweep copy -T /srv/mail /mnt/new           makes /mnt/new the copy
  onesweep copy /srv/a /srv/b /mnt"
)]
pub(crate) struct CopyArgs {
    /// What to copy; the last one is DESTINATION, where to
    // No `num_args = 2..`: that would want two in a row, without options between them.
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) paths: Vec<PathBuf>,
    /// Take DESTINATION as the new name, even when it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Everything, as it is, and below directories too (always done)
    #[arg(short = 'a', long, visible_short_aliases = ['r', 'R'], hide_short_help = true)]
    archive: bool,
    /// Share blocks with the original: auto, always, never
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, require_equals = true,
        default_missing_value = "always")]
    pub(crate) reflink: Reflink,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    fn copy(line: &str) -> CopyArgs {
        match parse_line(line).unwrap() {
            Command::Copy(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reflink_is_written_as_for_cp() {
        assert_eq!(copy("copy a b").reflink, Reflink::Auto);
        assert_eq!(copy("copy --reflink a b").reflink, Reflink::Always);
        assert_eq!(copy("copy --reflink=never -T a b").reflink, Reflink::Never);
        parse_line("copy").unwrap_err();
        parse_line("copy --reflink=perhaps a b").unwrap_err();
    }

    #[test]
    fn help_names_the_paths_as_the_usage_does() {
        let mut command = crate::args::command();
        let help = command.find_subcommand_mut("copy").unwrap().render_help().to_string();
        let told = help.split_once("Arguments:").unwrap().1.split_once("Options:").unwrap().0;
        assert!(told.contains("SOURCE") && told.contains("DESTINATION") && !told.contains("PATH"), "{told}");
    }

    #[test]
    fn options_may_stand_between_the_paths() {
        assert_eq!(copy("copy a -T b").paths, ["a", "b"].map(PathBuf::from));
        assert_eq!(copy("copy a b --quiet c").paths, ["a", "b", "c"].map(PathBuf::from));
    }
}
