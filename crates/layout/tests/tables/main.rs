//! File systems read from their own tables, held against what the kernel says of the same image.

mod btrfs;
mod casefold;
mod conformance;
mod contradictions;
mod damage;
mod ext4;
mod ext4_deep_index;
mod ext4_large_blocks;
mod ext4_tree;
mod high_numbers;
mod image;
mod noting;
mod ntfs;
mod ntfs_runs;
mod xfs;
mod xfs_by_mkfs;
mod xfs_external_log;
mod xfs_mounted;
mod xfs_sparse_inodes;
