//! `onesweep shard`.

use std::{num::NonZeroU64, path::PathBuf};

use clap::Args;

use super::Common;
use crate::size::Size;

/// Packs a tree into tar shards for training runs, in one sweep
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep shard /data/images /data/shards
  onesweep shard --max-size 512M --shuffle 4G --seed 7 /data/images /data/shards
  onesweep shard --max-count 10000 --name train --exclude '*.tmp' /data/speech /data/shards")]
pub(crate) struct ShardArgs {
    /// The tree; files whose paths are the same up to the first dot of the last name are one sample
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// The directory of the shards; it is made, or must be empty
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Bytes of a shard, at most (a larger sample has a shard of its own)
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) max_size: Size,
    /// Samples of a shard, at most [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max_count: Option<NonZeroU64>,
    /// Shuffle samples within so many bytes; 0 keeps the order of the disk
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) shuffle: Size,
    /// What the shuffle begins with: the same seed gives the same shards of the same tree
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) seed: u64,
    /// What shards are called before their numbers
    #[arg(long, value_name = "NAME", default_value = "shard", value_parser = shard_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

fn shard_name(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && !text.contains(['/', '\0']);
    is_plain.then(|| text.to_owned()).ok_or_else(|| "use a file name without a slash, and no dot in front".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    fn shard(line: &str) -> ShardArgs {
        match parse_line(line).unwrap() {
            Command::Shard(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn limits_arrive() {
        let args = shard("shard a b");
        assert_eq!((args.max_size, args.max_count, args.shuffle, args.seed), (Size(1 << 30), None, Size(256 << 20), 0));
        let args = shard("shard --max-size 10M --max-count 7 --shuffle 0 --seed 9 --name train a b");
        assert_eq!((args.max_size, args.max_count.map(u64::from), args.shuffle), (Size(10 << 20), Some(7), Size(0)));
        assert_eq!((args.seed, &*args.name), (9, "train"));
        for line in ["shard a", "shard --max-count 0 a b", "shard --name x/y a b", "shard --name .x a b", "shard a b c"]
        {
            parse_line(line).unwrap_err();
        }
    }
}
