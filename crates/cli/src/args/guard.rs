//! `onesweep guard`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{EngineArgs, LogLevel, Seconds, VerdictArgs};

const AFTER_HELP: &str = "\
Examples:
  onesweep guard --fail-closed /srv/upload
  onesweep guard --fail-open --clamd scanner:3310 --patience 5s /home
  onesweep guard --fail-open --command 'grep -q EVIL && exit 1; exit 0' /srv
  onesweep guard --fail-closed --server box:7497 --tls /etc/onesweep/peer/notebook --trust /etc/onesweep/peer/scan1.pem /home
  systemctl enable --now onesweep-guard@srv-upload.service

Stays in the foreground until it is told to end (SIGTERM, SIGINT). Who opens a file waits until a verdict of its content is there, and
gets EPERM where something was found in it. What was looked at once is known as long as the file isn't changed and the engine has
the same signatures; verdicts are kept by content, and are there after a restart.

When this process has ended, however, everything can be opened: have it started again. Needs root (CAP_SYS_ADMIN).

Exit codes: 0 ended; 2 could not run.";

/// Lets nobody open files below a directory in which something bad is found
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, group = ArgGroup::new("undecided").required(true))]
pub(crate) struct GuardArgs {
    /// The directory; all below it on its file system is guarded
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// What nobody has a verdict of is opened: the engine is gone, it failed, or it took too long
    #[arg(long, group = "undecided")]
    pub(crate) fail_open: bool,
    /// What nobody has a verdict of is refused
    #[arg(long, group = "undecided")]
    pub(crate) fail_closed: bool,
    /// Who opens a file waits so long for a verdict. The scan goes on, and is known then
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) patience: Seconds,
    /// Files that are scanned at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) scanners: u16,
    /// So many may wait for verdicts; who comes then is not scanned, but let through or refused
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) waiting: u32,
    /// So many files are known without reading them again, some 150 bytes each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) known: u32,
    /// The program of clamd, where systemd listens at its socket: what it opens itself is let through
    #[arg(long, value_name = "FILE")]
    pub(crate) engine_program: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) verdicts: VerdictArgs,
    /// What is told on standard error
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = "Output")]
    pub(crate) log: LogLevel,
}

#[cfg(test)]
mod tests {
    use crate::args::{Command, parse_line};

    #[test]
    fn what_becomes_of_the_undecided_has_to_be_said() {
        let Ok(Command::Guard(args)) = parse_line("guard --fail-closed /srv") else { panic!() };
        assert!(args.fail_closed && !args.fail_open && args.patience.0 == 30);
        for line in [
            "guard /srv",
            "guard --fail-open --fail-closed /srv",
            "guard --fail-open",
            "guard --fail-open --scanners 0 /srv",
            "guard --fail-open --waiting 0 /srv",
        ] {
            parse_line(line).unwrap_err();
        }
    }
}
