//! Where data lies: the extents of a file, the disks under a path, and whether the addresses mean anything.
//!
//! ```no_run
//! use std::os::fd::AsFd;
//! use onesweep_layout::{Devices, Sources};
//! use onesweep_sys::files::{CURRENT_DIR, open_file_at, statx_fd};
//!
//! let file = open_file_at(CURRENT_DIR, "mail/inbox")?;
//! let stat = statx_fd(file.as_fd())?;
//! Sources::new().map(file.as_fd(), &stat, &mut |extent| println!("{extent:?}"))?;
//!
//! let stack = Devices::of_system()?.by_fd(file.as_fd())?;
//! println!("{stack} on {} disks", stack.disks.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here reads file contents, and nothing needs root but [`Fibmap`].
//!
//! | module | subject |
//! |---|---|
//! | [`extent`] | [`Extent`], one contiguous run of a file |
//! | [`source`] | [`LayoutSource`]: FIEMAP, FIBMAP, or no addresses |
//! | [`trust`] | whether the addresses of a file system say where the bytes are |
//! | [`mounts`] | `/proc/self/mountinfo` |
//! | [`device`], [`sysfs`] | the real disks under a device, through partitions, LVM, md, loop |
//! | [`btrfs`] | the trees of a mounted btrfs, and where its addresses lie |
//! | [`tables`] | file systems read from their own tables, without the kernel |
//! | [`block_read`] | bytes by their address: image files, devices, parts of them |
//! | [`image`] | images as they are named on a command line |
//! | [`partitions`] | the partitions of a disk image |
//! | [`size`] | numbers of bytes, as people write and read them |
//! | [`score`] | how much of a file lies in one piece, and of what is read side by side |
//! | [`free_space`] | what is free, in pieces of which size |
//! | [`picture`] | pictures of it, as SVG and for a terminal |

pub mod block_read;
pub mod btrfs;
pub mod device;
pub mod extent;
pub mod free_space;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod image;
pub mod mounts;
pub mod partitions;
pub mod picture;
pub mod score;
pub mod size;
pub mod source;
pub mod sysfs;
pub mod tables;
pub mod trust;

pub use block_read::{BlockRead, ImageFile, Part};
pub use device::{DeviceError, DeviceStack, Devices, Disk, Layer};
pub use extent::{Extent, ExtentFlags};
pub use free_space::FreeBySize;
pub use mounts::{Mount, MountTable};
pub use score::{DynamicScore, LayoutScore};
pub use source::{Fibmap, Fiemap, LayoutSource, MapError, Mapped, SourceKind, Sources, Unmapped};
pub use sysfs::SysTree;
pub use trust::{AddressSampler, AddressTrust, Meaningless};
