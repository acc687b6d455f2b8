//! One file for each command.

mod archive;
mod copy;
mod defrag;
mod du;
mod export;
mod figures;
mod find;
mod find_volume;
mod guard;
mod layout;
mod list;
mod manual;
mod member_names;
mod peer;
mod plan;
mod run;
mod scan;
mod serve;
mod shard;
mod sum;
mod summaries;
mod tar;
mod top;
mod view;
mod warm;
mod watch;

use std::io::{self, Write};

use crate::{
    args::{self, Command},
    report::Failure,
};

/// Runs a command and gives its exit code.
pub(crate) fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Tar(args) => tar::run(*args),
        Command::List(args) => list::run(*args),
        Command::Sum(args) => sum::run(*args),
        Command::Warm(args) => warm::run(*args),
        Command::Run(args) => run::run(*args),
        Command::View(args) => view::run(*args),
        Command::Copy(args) => copy::run(*args),
        Command::Shard(args) => shard::run(*args),
        Command::Plan(args) => plan::run(*args),
        Command::Layout(args) => layout::run(*args),
        Command::Find(args) => find::run(*args),
        Command::Defrag(args) => defrag::run(*args),
        Command::Du(args) => du::run(*args),
        Command::Peer(args) => peer::run(*args),
        Command::Scan(args) => scan::run(*args),
        Command::Guard(args) => guard::run(*args),
        Command::Top(args) => top::run(*args),
        Command::Watch(args) => watch::run(*args),
        Command::Export(args) => export::run(*args),
        Command::Serve(args) => serve::run(*args),
        Command::Completions { shell } => completions(shell),
        Command::Man { dir } => manual::run(dir.as_deref()),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "onesweep", &mut script);
    io::stdout().lock().write_all(&script).map_err(|error| Failure::output(&error, 0))?;
    Ok(0)
}
