//! Opening, making, listing and looking at files, and setting their attributes.
//!
//! Thin: each function is one system call, with the flags that a reader of strangers' trees wants (no symbolic link
//! is followed, no terminal taken over, no fifo waited for, no access time written).
//!
//! Paths are anything that [`PathArg`] takes: `&CStr` costs nothing, `&str`, `&[u8]`, `&Path` and `&OsStr` are copied.
//! Opening, looking at, and reading a link take paths of any length.

mod attributes;
mod content;
mod entry_type;
mod file_system;
mod listing;
mod long_path;
pub mod magic;
mod names;
mod on_behalf;
mod open;
mod stat;
mod through_proc;
mod xattr;

use std::os::fd::BorrowedFd;

pub use rustix::path::Arg as PathArg;

pub use attributes::{
    set_mode_fd, set_mode_handle, set_owner_fd, set_owner_handle, set_times_fd, set_times_handle, set_times_path,
};
pub use content::{
    allocate, allocate_part, clone_file, copy_range, fill_at, give_back, insert_hole, is_refusal, read_at,
    read_at_if_cached, read_at_uncached, read_parts_at, read_parts_at_if_cached, reserve_part, seek_data, seek_hole,
    sync_data, take_out, write_all_durably_at,
};
pub use entry_type::EntryType;
pub use file_system::{
    FileSystem, file_system, forbids_execution, is_read_only, may_write, sync_directory, sync_file_system,
};
pub use listing::{DirEntry, DirReader};
pub use names::{
    link_at, make_directory_at, make_node_at, make_symlink_at, name_file, read_link_at, remove_at, remove_directory_at,
    rename_at,
};
pub use on_behalf::{
    Moment, Place, Space, change_size, create_with, fallocate, make_directory_with, make_node_with, open_again_with,
    rename_with, set_moments_handle, set_xattr_with, space, write_some,
};
pub use open::{
    create_file_at, is_direct, is_link_refused, is_no_file, is_untouched, let_block, open_dir, open_dir_at,
    open_dir_handle, open_dir_handle_beneath, open_direct_at, open_file, open_file_at, open_file_in_memory,
    open_file_to_write, open_file_untouched, open_handle, open_handle_at, open_handle_of_link, open_unnamed, reopen,
    reopen_to_write, reopen_untouched,
};
pub use stat::{Stat, Time, dev_numbers, is_encrypted, is_verity, makedev, statx_at, statx_fd};
pub use through_proc::{path_of, through_proc};
pub use xattr::{
    list_xattrs_fd, list_xattrs_handle, list_xattrs_path, remove_xattr_fd, remove_xattr_handle, set_xattr_fd,
    set_xattr_handle, set_xattr_path, xattr_fd, xattr_handle, xattr_path,
};

/// The directory that relative paths start from (`AT_FDCWD`).
pub const CURRENT_DIR: BorrowedFd<'static> = rustix::fs::CWD;
