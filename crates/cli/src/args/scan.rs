//! `onesweep scan`, and what other commands that scan take.

use std::path::PathBuf;

use clap::Args;
use onesweep_peer::scan::clamd::Address;

use super::{Common, Seconds};
use crate::size::Size;

/// Where Debian's clamd listens.
const CLAMD: &str = "/run/clamav/clamd.ctl";
/// Bytes of what is said of an epoch, at most.
const EPOCH_BYTES_MAX: usize = 100;

const AFTER_HELP: &str = "\
Examples:
  onesweep scan /srv /home
  onesweep scan --clamd scanner:3310 --json /srv
  onesweep scan --command 'grep -q EVIL && exit 1; exit 0' /srv
  onesweep scan --rules /etc/yara --rules more.yar /srv
  onesweep scan --server box:7497 --tls /etc/onesweep/peer/notebook --trust /etc/onesweep/peer/scan1.pem /home
  onesweep scan --sarif /srv > found.sarif

What is found in a content is kept under its hash, here and, by scanners, on the server. It counts as long as the engine has the
same signatures. Files that an index knows (onesweep peer index DIR) are not even read.

Exit codes, as clamscan's: 0 nothing found; 1 something found; 2 some files failed, or could not run; 130 interrupted.";

/// Looks for viruses in all files of a tree, in one sweep, and in each content once
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ScanArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) verdicts: VerdictArgs,
    /// The index of the directory that is named [default: for each directory the one that onesweep peer index has made]
    #[arg(long, value_name = "FILE")]
    pub(crate) index: Option<PathBuf>,
    /// Scan everything, whatever is known of it
    #[arg(long)]
    pub(crate) rescan: bool,
    /// Print what was found as SARIF 2.1.0
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Who looks at contents.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Where clamd listens: its socket, or HOST:PORT, to which contents go in the clear
    #[arg(long, value_name = "SOCKET|HOST:PORT", default_value = CLAMD)]
    pub(crate) clamd: Address,
    /// A line for the shell instead: reads a content, and ends with 0 (clean), 1 (infected, its first line of output is the
    /// name) or anything else (failed)
    #[arg(long, value_name = "LINE", conflicts_with = "clamd", value_parser = command)]
    pub(crate) command: Option<String>,
    /// Rules instead, by YARA-X in this process: a file, or a directory with *.yar and *.yara below it; may be given again.
    /// What matches is infected. For programs that were built with it: make build FEATURES=yara
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["clamd", "command"])]
    pub(crate) rules: Vec<PathBuf>,
    /// By rules: what is larger has no verdict. All of a content lies in memory
    #[arg(long, value_name = "SIZE", default_value = "1G", requires = "rules")]
    pub(crate) scan_size: Size,
    /// What names the signatures beyond what clamd says of them: a change makes all verdicts from before void
    #[arg(long, value_name = "TEXT", value_parser = epoch)]
    pub(crate) epoch: Option<String>,
    /// The engine has so long for a content; a command is killed then
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub(crate) scan_time: Seconds,
}

/// Where verdicts come from and go to.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Verdicts")]
pub(crate) struct VerdictArgs {
    /// A server that knows verdicts; may be given again. All clients should name them alike
    #[arg(long = "server", value_name = "HOST:PORT")]
    pub(crate) servers: Vec<String>,
    /// Who this machine is, to servers: DIR/NAME.pem, DIR/NAME.key and DIR/ca.pem. With the role scanner, it tells servers what
    /// it finds
    #[arg(long, value_name = "DIR/NAME")]
    pub(crate) tls: Option<PathBuf>,
    /// The certificate of a scanner whose word counts; may be given again. One's own always does
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(crate) trust: Vec<PathBuf>,
    /// The key of the trust domain [default: /etc/onesweep/peer/domain.key, and without it nothing is kept]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Where this machine keeps verdicts; each process has a file of its own [default: verdicts in /var/lib/onesweep, and
    /// guard.verdicts of guard]
    #[arg(long, value_name = "FILE")]
    pub(crate) verdicts: Option<PathBuf>,
}

fn command(line: &str) -> Result<String, String> {
    match line.trim().is_empty() {
        true => Err("it has no command, which would call everything clean".into()),
        false => Ok(line.to_owned()),
    }
}

fn epoch(text: &str) -> Result<String, String> {
    if (1..=EPOCH_BYTES_MAX).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err(format!("it has 1 to {EPOCH_BYTES_MAX} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    fn parsed(line: &str) -> ScanArgs {
        match parse_line(line) {
            Ok(Command::Scan(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn engines_exclude_each_other() {
        assert_eq!(parsed("scan /srv").engine.clamd, Address::Unix(CLAMD.into()));
        assert_eq!(parsed("scan --clamd box:3310 /srv").engine.clamd, Address::Tcp("box:3310".to_owned()));
        assert_eq!(parsed("scan --command true /srv").engine.command.as_deref(), Some("true"));
        assert!(command("").is_err() && command(" \t").is_err(), "a variable that was not set");
        assert_eq!(parsed("scan --scan-time 90s /srv").engine.scan_time.0, 90);
        let rules = parsed("scan --rules a.yar --rules dir --scan-size 16M /srv").engine;
        assert_eq!(rules.rules, [PathBuf::from("a.yar"), "dir".into()]);
        assert_eq!((rules.scan_size, parsed("scan /srv").engine.scan_size), (Size(16 << 20), Size(1 << 30)));
        for line in [
            "scan",
            "scan --clamd box /srv",
            "scan --clamd box:1 --command true /srv",
            "scan --rules a.yar --command true /srv",
            "scan --rules a.yar --clamd box:1 /srv",
            "scan --scan-size 16M /srv",
            "scan --trust x.pem /srv",
            "scan --sarif --json /srv",
            "scan --scan-time never /srv",
        ] {
            parse_line(line).unwrap_err();
        }
    }
}
