//! The program against real file systems: images on loop devices, made and aged here by a fixed seed.
//!
//! Root is needed for nearly all of it; without root each test ends at once and says so. `docs/TESTING.md` tells how to
//! run parts of it and how to replay a failure.

mod archives;
mod bad_input;
mod blind_spots;
mod breakdowns;
mod cache;
mod catch_up;
mod command_line;
mod consistency;
mod daemon;
mod deep;
mod defrag;
mod disk_model;
mod du;
mod du_files;
mod equality;
mod export;
mod find;
mod find_volume;
mod guide;
mod image;
mod images;
mod layout;
mod layouts;
mod limits;
mod lists;
mod max_time;
mod memory;
mod moments;
mod mounted_ntfs;
#[path = "../common/openmetrics.rs"]
mod openmetrics;
mod order;
mod other_names;
mod peer;
mod peer_defrag;
mod peer_mount;
mod peer_pressure;
mod peer_tree;
mod plans;
mod power_cuts;
mod quick_disks;
mod read_only;
mod rights;
mod run;
mod run_program;
mod serving;
mod several_disks;
mod shard_order;
mod shards;
mod shuffled;
mod sizes_at_close;
mod sparse;
mod store_damage;
mod storms;
mod subvolumes;
mod summaries;
mod terminal;
mod timed;
mod trace;
mod tracked;
mod tree;
mod trouble;
mod unreadable;
mod view;
mod view_ends;
mod view_given;
mod view_rclone;
mod view_walks;
mod walk;
mod watch;
mod web;
#[path = "../../../peer/tests/index/windows_log.rs"]
mod windows_log;
