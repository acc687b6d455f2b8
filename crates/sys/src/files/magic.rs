//! What [`FileSystem::magic`](super::FileSystem::magic) is of which file system (`linux/magic.h`, and the drivers' own headers).

/// bcachefs.
pub const BCACHEFS: u32 = 0xca45_1a4e;
/// binfmt_misc.
pub const BINFMT_MISC: u32 = 0x4249_4e4d;
/// btrfs.
pub const BTRFS: u32 = 0x9123_683e;
/// cgroup, version 1.
pub const CGROUP: u32 = 0x0027_e0eb;
/// cgroup, version 2.
pub const CGROUP2: u32 = 0x6367_7270;
/// configfs.
pub const CONFIGFS: u32 = 0x6265_6570;
/// debugfs.
pub const DEBUGFS: u32 = 0x6462_6720;
/// EROFS.
pub const EROFS: u32 = 0xe0f5_e1e2;
/// exFAT.
pub const EXFAT: u32 = 0x2011_bab0;
/// ext2, ext3 and ext4.
pub const EXT: u32 = 0xef53;
/// F2FS.
pub const F2FS: u32 = 0xf2f5_2010;
/// FAT, by msdos and vfat.
pub const FAT: u32 = 0x4d44;
/// fusectl.
pub const FUSECTL: u32 = 0x6573_5543;
/// ISO 9660.
pub const ISO9660: u32 = 0x9660;
/// JFS.
pub const JFS: u32 = 0x3153_464a;
/// NFS.
pub const NFS: u32 = 0x6969;
/// NTFS, by the driver ntfs3.
pub const NTFS3: u32 = 0x7366_746e;
/// overlayfs.
pub const OVERLAYFS: u32 = 0x794c_7630;
/// proc.
pub const PROC: u32 = 0x9fa0;
/// resctrl.
pub const RESCTRL: u32 = 0x0765_5821;
/// securityfs.
pub const SECURITYFS: u32 = 0x7363_6673;
/// selinuxfs.
pub const SELINUXFS: u32 = 0xf97c_ff8c;
/// SquashFS.
pub const SQUASHFS: u32 = 0x7371_7368;
/// sysfs.
pub const SYSFS: u32 = 0x6265_6572;
/// tmpfs.
pub const TMPFS: u32 = 0x0102_1994;
/// tracefs.
pub const TRACEFS: u32 = 0x7472_6163;
/// XFS.
pub const XFS: u32 = 0x5846_5342;
