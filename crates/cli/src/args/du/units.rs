//! The options of du that say what figures are told in: the last of them counts.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};

/// The options as they are typed.
#[derive(Debug, Args)]
struct Typed {
    /// Tell in units of SIZE
    #[arg(short = 'B', long, value_name = "SIZE")]
    block_size: Option<String>,
    /// As --apparent-size --block-size=1
    #[arg(short, long)]
    bytes: bool,
    /// Print in powers of 1024, as 1K, 234M, 2G
    #[arg(short, long)]
    human_readable: bool,
    /// As --block-size=1K
    #[arg(short = 'k')]
    kibi: bool,
    /// As --block-size=1M
    #[arg(short = 'm')]
    mebi: bool,
    /// Print in powers of 1000
    #[arg(long)]
    si: bool,
}

/// What figures are told in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Bytes,
    Human,
    Kibi,
    Mebi,
    Si,
    /// As it was typed.
    Size(String),
}

/// What was said of units. That sizes are told instead of what is allocated stays, whatever unit is named behind it.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// By `-b`.
    pub(crate) tells_sizes: bool,
    /// The last one; none where nothing was typed.
    pub(crate) wanted: Option<Wanted>,
}

impl FromArgMatches for Units {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let typed = Typed::from_arg_matches(matches)?;
        let named = [
            ("block_size", Wanted::Size(typed.block_size.unwrap_or_default())),
            ("bytes", Wanted::Bytes),
            ("human_readable", Wanted::Human),
            ("kibi", Wanted::Kibi),
            ("mebi", Wanted::Mebi),
            ("si", Wanted::Si),
        ];
        // Flags that weren't typed have a place, too.
        let place = |name: &str| match matches.value_source(name) {
            Some(ValueSource::CommandLine) => matches.index_of(name),
            _ => None,
        };
        let last = named.into_iter().filter_map(|(name, wanted)| Some((place(name)?, wanted)));
        let wanted = last.max_by_key(|(place, _)| *place).map(|(_, wanted)| wanted);
        Ok(Units { tells_sizes: typed.bytes, wanted })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Units::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Units {
    fn augment_args(command: Command) -> Command {
        Typed::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Typed::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(disable_help_flag = true, args_override_self = true)]
    struct Words {
        #[command(flatten)]
        units: Units,
    }

    #[test]
    fn the_last_unit_counts_and_sizes_stay_sizes() {
        let size = |text: &str| Some(Wanted::Size(text.to_owned()));
        for (words, tells_sizes, wanted) in [
            (&[][..], false, None),
            (&["-b"][..], true, Some(Wanted::Bytes)),
            (&["-bh"], true, Some(Wanted::Human)),
            (&["-hb"], true, Some(Wanted::Bytes)),
            (&["-b", "-B1M"], true, size("1M")),
            (&["-B1M", "-b"], true, Some(Wanted::Bytes)),
            (&["-B1M", "-k", "-B", "4K"], false, size("4K")),
            (&["--si", "-m"], false, Some(Wanted::Mebi)),
            (&["-m", "-h", "--si", "-h"], false, Some(Wanted::Human)),
            (&["-kkb", "--bytes", "-k"], true, Some(Wanted::Kibi)),
        ] {
            let units = Words::try_parse_from(["du"].iter().chain(words)).unwrap().units;
            assert_eq!((units.tells_sizes, units.wanted), (tells_sizes, wanted), "{words:?}");
        }
    }
}
