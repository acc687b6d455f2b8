//! The emulated disk under a real file system. Needs root, `/dev/fuse`, loop devices and e2fsprogs; says so and passes
//! where one is missing.

mod ageing;
mod bench;
mod disk;
mod ends;
mod mechanics;
mod page;
mod place;
mod relocation;
mod shown;
#[path = "../../../relocate/tests/hosts/superblock.rs"]
mod superblock;
