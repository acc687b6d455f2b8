//! `onesweep peer index`.

use std::path::PathBuf;

use clap::Args;
use onesweep_peer::index::{BLOCK_BYTES_LEAST, BLOCK_BYTES_MOST, Geometry};

use crate::{args::Common, size::Size};

const AFTER_HELP: &str = "\
Examples:
  onesweep peer index /dev/sdb1
  onesweep peer index --learn disk.img
  onesweep peer index --check /dev/sdb1
  onesweep peer index --index /var/tmp/home.index /home

The key is the same on all machines that help each other; onesweep peer keys makes one.

Exit codes: 0 done; 1 something couldn't be read, or differs from the index; 2 could not run; 130 interrupted.";

/// Reads a device, an image or a tree once, and keeps a hash of each block
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PeerIndexArgs {
    /// A device that nobody has mounted, an image, or a directory
    #[arg(value_name = "DEVICE|IMAGE|DIR")]
    pub(crate) path: PathBuf,
    /// Compare everything with the index, tell what differs, and put the index right
    #[arg(long, conflicts_with_all = ["learn", "block_size"])]
    pub(crate) check: bool,
    /// Make an index that knows nothing yet, and fills itself while it is used
    #[arg(long)]
    pub(crate) learn: bool,
    /// Bytes of a block: a power of two from 4K to 64K
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = block_bytes)]
    pub(crate) block_size: u32,
    /// The file of the index [default: /var/lib/onesweep/index/NAME.index, NAME being the
    /// path, links followed, with - for / and -- for -]
    #[arg(long, value_name = "FILE")]
    pub(crate) index: Option<PathBuf>,
    /// The key of the trust domain
    #[arg(long, value_name = "FILE", default_value = "/etc/onesweep/peer/domain.key")]
    pub(crate) key: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(super) fn block_bytes(text: &str) -> Result<u32, String> {
    let size: Size = text.parse()?;
    let bytes = u32::try_from(size.0).ok().filter(|bytes| Geometry::new(*bytes, 0).is_some());
    bytes.ok_or_else(|| {
        format!("'{text}' is no power of two from {}K to {}K", BLOCK_BYTES_LEAST >> 10, BLOCK_BYTES_MOST >> 10)
    })
}

#[cfg(test)]
mod tests {
    use crate::args::{Command, PeerCommand, parse_line};

    #[test]
    fn sizes_of_blocks_are_powers_of_two() {
        for (size, bytes) in [("4K", 4096), ("64K", 65536), ("16384", 16384)] {
            let Ok(Command::Peer(peer)) = parse_line(&format!("peer index --block-size {size} x")) else { panic!() };
            let PeerCommand::Index(index) = peer.command else { panic!() };
            assert_eq!(index.block_size, bytes);
        }
        for line in ["--block-size 12K x", "--block-size 2K x", "--block-size 128K x", "--check --learn x", ""] {
            parse_line(&format!("peer index {line}")).unwrap_err();
        }
    }
}
