//! What was typed.

mod copy;
mod defrag;
mod du;
mod export;
mod find;
mod guard;
mod layout;
mod list;
mod peer;
mod plan;
mod run;
mod scan;
mod serve;
mod shard;
mod sum;
mod sweep;
mod tar;
mod top;
mod view;
mod warm;
mod watch;

use std::{ffi::OsString, path::PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use copy::CopyArgs;
pub(crate) use defrag::{DefragArgs, OrderName};
pub(crate) use du::{DuArgs, Wanted};
pub(crate) use export::ExportArgs;
pub(crate) use find::FindArgs;
pub(crate) use guard::GuardArgs;
pub(crate) use layout::LayoutArgs;
pub(crate) use list::ListArgs;
pub(crate) use peer::{
    PeerArgs, PeerCommand, PeerIndexArgs, PeerKeysArgs, PeerMountArgs, PeerPushArgs, PeerServeArgs, PeerStatArgs,
    PolicyOf, RoleName, Servers as PeerServers,
};
pub(crate) use plan::PlanArgs;
pub(crate) use run::{ListingOrder, RunArgs};
pub(crate) use scan::{EngineArgs, ScanArgs, VerdictArgs};
pub(crate) use serve::{LogLevel, Relocate, Seconds, ServeArgs, ServeSettings};
pub(crate) use shard::ShardArgs;
pub(crate) use sum::SumArgs;
pub(crate) use sweep::{Common, DiskName, Output, ProgressWhen, ReassemblyName, Selection, Settings};
pub(crate) use tar::{Sort, TarArgs, VERSION_CONTROL};
pub(crate) use top::{By, TopArgs};
pub(crate) use view::{ViewArgs, ViewOrder};
pub(crate) use warm::WarmArgs;
pub(crate) use watch::WatchArgs;

const AFTER_HELP: &str = "\
Examples:
  onesweep tar -czf /backup/home.tar.gz -C /srv home
  onesweep sum /srv/mail > manifest
  onesweep plan /srv/mail

Options under \"How to read\" can have other defaults, by variables (ONESWEEP_ORDER=directory) and by
lines of /etc/onesweep/config.toml (order = \"directory\"). What is typed wins over variables, and
these over the file.

Exit codes: 0 done; 1 some files failed; 2 could not run; 130 interrupted.";

/// Reads every file of a tree in one sweep of the disk head
#[derive(Debug, Parser)]
#[command(name = "onesweep", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Tar(Box<TarArgs>),
    List(Box<ListArgs>),
    Sum(Box<SumArgs>),
    Warm(Box<WarmArgs>),
    Run(Box<RunArgs>),
    View(Box<ViewArgs>),
    Copy(Box<CopyArgs>),
    Shard(Box<ShardArgs>),
    Plan(Box<PlanArgs>),
    Layout(Box<LayoutArgs>),
    Find(Box<FindArgs>),
    Defrag(Box<DefragArgs>),
    Du(Box<DuArgs>),
    Top(Box<TopArgs>),
    Watch(Box<WatchArgs>),
    Export(Box<ExportArgs>),
    Serve(Box<ServeArgs>),
    Peer(Box<PeerArgs>),
    Scan(Box<ScanArgs>),
    Guard(Box<GuardArgs>),
    /// Writes a completion script to standard output
    #[command(after_help = "Example:\n  onesweep completions bash > /etc/bash_completion.d/onesweep")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages into a directory, or the main page to standard output
    #[command(after_help = "Example:\n  onesweep man /usr/local/share/man/man1")]
    Man {
        /// The directory
        dir: Option<PathBuf>,
    },
}

/// The whole command line, as clap knows it.
pub(crate) fn command() -> clap::Command {
    // In the language of tar, -x is to extract and -H is --format; they must not pass for something else.
    Cli::command().mut_subcommand("tar", |tar| {
        tar.mut_arg("one_file_system", |arg| arg.short(None)).mut_arg("follow_roots", |arg| arg.short(None))
    })
}

/// Reads the command line; its first word is the program's name.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words = find::expand(tar::expand_old_style(words.into_iter().collect()));
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(words)?;
    let cli = Cli::from_arg_matches_mut(&mut matches.clone()).map_err(|error| error.format(&mut command))?;
    if let Some(("tar", tar)) = matches.remove_subcommand().as_ref().map(|(name, tar)| (name.as_str(), tar)) {
        // With its own usage, not that of all commands.
        tar::check(tar, command.find_subcommand_mut("tar").unwrap_or(&mut Cli::command()))?;
    }
    Ok(cli)
}

#[cfg(test)]
pub(crate) fn parse_line(line: &str) -> Result<Command, String> {
    let words = std::iter::once("onesweep").chain(line.split_whitespace()).map(OsString::from);
    parse(words).map(|cli| cli.command).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for subcommand in command().get_subcommands() {
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", subcommand.get_name());
            for nested in subcommand.get_subcommands() {
                let help = nested.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{} {}", subcommand.get_name(), nested.get_name());
            }
        }
    }

    #[test]
    fn wrong_words_are_refused() {
        for line in ["", "nonsense", "sum", "list --nonsense x", "sum --budget=many x", "plan --disk=none x"] {
            parse_line(line).unwrap_err();
        }
    }
}
