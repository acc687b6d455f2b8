//! Hosts: what holds for all of them, plans carried out on a model, and on real file systems.

mod alone;
mod btrfs;
mod carry;
mod conformance;
mod crash;
mod ext4;
mod fast_commits;
mod fio;
mod follow;
mod helper;
mod image;
mod killed;
mod kinds;
mod model;
mod owners;
mod packing;
mod refusals;
mod superblock;
mod tree;
mod undo;
mod writers;
mod xfs;
mod xfs_exchange;
mod xfs_whole;
