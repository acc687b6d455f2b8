//! Whether the addresses of a file system say where the bytes are.
//!
//! Some file systems make addresses up, some give those of another file system on one of several disks, some give the
//! same for every file. Reading in the order of such addresses is no better than any other order, and a person should
//! be told so. [`AddressTrust::of_file_system`] judges by the type, [`AddressSampler`] by the addresses themselves.

use std::fmt;

/// What the addresses of a file system mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressTrust {
    /// Bytes of the device that the file system is on.
    Physical,
    /// The same, read from the tables on the device beside the program that answers for the files (NTFS by ntfs-3g): good to
    /// sort by, not to read the device at, for what the program holds back isn't known.
    ByTables,
    /// Places on several devices, which take turns in the order (btrfs, when its chunks can be asked for).
    SeveralDevices {
        /// How many devices.
        devices: usize,
    },
    /// Places in an address space of the file system that mostly rises with the device (btrfs on one device): good to
    /// sort by, not to read the device at.
    Logical,
    /// Nothing.
    Meaningless(Meaningless),
}

/// Why addresses mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meaningless {
    /// The bytes are on another machine.
    Network {
        /// The type of the file system.
        fs_type: String,
    },
    /// A program answers for the files.
    Program {
        /// The type of the file system.
        fs_type: String,
    },
    /// The files are in memory.
    Memory {
        /// The type of the file system.
        fs_type: String,
    },
    /// The addresses are those of the file systems below, maybe on several disks.
    Stacked {
        /// The type of the file system.
        fs_type: String,
    },
    /// The addresses do not tell which of several devices they are on.
    SeveralDevices {
        /// How many devices.
        devices: usize,
    },
    /// The file system has no addresses to tell.
    Untold {
        /// The type of the file system.
        fs_type: String,
    },
    /// Every file seems to lie at address 0.
    AllZero {
        /// Files looked at.
        files: u64,
    },
    /// Every file seems to lie at the same address.
    AllEqual {
        /// Files looked at.
        files: u64,
        /// The address, in bytes.
        address: u64,
    },
    /// A file seems to end behind the end of the device.
    BeyondDevice {
        /// Where it seems to end, in bytes.
        end: u64,
        /// Bytes of the device.
        device_bytes: u64,
    },
}

impl AddressTrust {
    /// Judges by the type of the file system (as `/proc/self/mountinfo` has it) and the number of its devices.
    ///
    /// A type that is not known counts as physical; the addresses themselves are then the only witness.
    pub fn of_file_system(fs_type: &str, devices: usize) -> AddressTrust {
        let name = || fs_type.to_owned();
        let (family, _) = fs_type.split_once('.').unwrap_or((fs_type, ""));
        AddressTrust::Meaningless(match family {
            // The last three are folders of the host of a virtual machine.
            "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "9p" | "ceph" | "afs" | "ncpfs" | "lustre" | "orangefs"
            | "glusterfs" | "beegfs" | "vboxsf" | "hgfs" | "prl_fs" => Meaningless::Network { fs_type: name() },
            // fuseblk is FUSE on a block device (ntfs-3g): a program answers all the same.
            "fuse" | "fuseblk" | "virtiofs" => Meaningless::Program { fs_type: name() },
            "tmpfs" | "ramfs" | "rootfs" | "devtmpfs" | "hugetlbfs" => Meaningless::Memory { fs_type: name() },
            "proc" | "sysfs" | "cgroup" | "cgroup2" | "debugfs" | "tracefs" | "configfs" | "devpts" => {
                Meaningless::Memory { fs_type: name() }
            }
            "overlay" | "aufs" | "ecryptfs" | "unionfs" | "mergerfs" => Meaningless::Stacked { fs_type: name() },
            "zfs" => Meaningless::Untold { fs_type: name() },
            "btrfs" | "bcachefs" if devices > 1 => Meaningless::SeveralDevices { devices },
            "btrfs" => return AddressTrust::Logical,
            _ => return AddressTrust::Physical,
        })
    }

    /// Whether addresses are bytes of the device.
    pub fn is_place(&self) -> bool {
        matches!(self, AddressTrust::Physical | AddressTrust::ByTables)
    }

    /// Whether it is worth while to read in the order of the addresses.
    pub fn is_order(&self) -> bool {
        !matches!(self, AddressTrust::Meaningless(_))
    }
}

impl fmt::Display for AddressTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressTrust::Physical => f.write_str("addresses are places on the device"),
            AddressTrust::ByTables => f.write_str("addresses are places on the device, by the tables on it"),
            AddressTrust::SeveralDevices { devices } => {
                write!(f, "addresses are places on {devices} devices, which take turns")
            }
            AddressTrust::Logical => f.write_str("addresses are btrfs's own, in nearly the order of the device"),
            AddressTrust::Meaningless(why) => write!(f, "order unknown: {why}"),
        }
    }
}

impl fmt::Display for Meaningless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meaningless::Network { fs_type } => write!(f, "the files are on another machine ({fs_type})"),
            Meaningless::Program { fs_type } => write!(f, "a program answers for the files ({fs_type})"),
            Meaningless::Memory { fs_type } => write!(f, "the files are in memory ({fs_type})"),
            Meaningless::Stacked { fs_type } => {
                write!(f, "the files lie on the file systems below, maybe on several disks ({fs_type})")
            }
            Meaningless::SeveralDevices { devices } => {
                write!(f, "the file system does not tell which of its {devices} devices a file is on")
            }
            Meaningless::Untold { fs_type } => write!(f, "{fs_type} does not tell where its files lie"),
            Meaningless::AllZero { files } => write!(f, "all of {files} files claim to lie at address 0"),
            Meaningless::AllEqual { files, address } => {
                write!(f, "all of {files} files claim to lie at address {address}")
            }
            Meaningless::BeyondDevice { end, device_bytes } => {
                write!(f, "a file claims to end at address {end} of a device of {device_bytes} bytes")
            }
        }
    }
}

/// Files that must agree before "all at the same address" is believed; fewer may be clones of each other.
const SAMPLE_FILES_MIN: u64 = 8;

/// Judges addresses by looking at those of many files.
#[derive(Clone, Debug, Default)]
pub struct AddressSampler {
    device_bytes: Option<u64>,
    files: u64,
    first: u64,
    differ: bool,
    beyond: Option<u64>,
}

impl AddressSampler {
    /// Nothing looked at. With `device_bytes`, addresses behind the end of the device are told; leave it out where
    /// addresses are logical.
    pub fn new(device_bytes: Option<u64>) -> AddressSampler {
        AddressSampler { device_bytes, ..AddressSampler::default() }
    }

    /// Looks at the first extent of one file. Files that share all bytes are better given once.
    pub fn add(&mut self, address: u64, length: u64) {
        if self.files == 0 {
            self.first = address;
        }
        self.files += 1;
        self.differ |= address != self.first;
        let end = address.saturating_add(length);
        if self.device_bytes.is_some_and(|bytes| end > bytes) {
            self.beyond = self.beyond.max(Some(end));
        }
    }

    /// What is wrong with the addresses so far; `None` when nothing is, or too little was seen.
    pub fn verdict(&self) -> Option<Meaningless> {
        let files = self.files;
        if let (Some(end), Some(device_bytes)) = (self.beyond, self.device_bytes) {
            return Some(Meaningless::BeyondDevice { end, device_bytes });
        }
        if self.differ || files < SAMPLE_FILES_MIN {
            return None;
        }
        Some(match self.first {
            0 => Meaningless::AllZero { files },
            address => Meaningless::AllEqual { files, address },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(device_bytes: Option<u64>, addresses: &[u64]) -> Option<Meaningless> {
        let mut sampler = AddressSampler::new(device_bytes);
        addresses.iter().for_each(|&address| sampler.add(address, 4096));
        sampler.verdict()
    }

    #[test]
    fn types_are_told_apart() {
        let trust = AddressTrust::of_file_system;
        for fs_type in ["ext4", "xfs", "f2fs", "ntfs3", "vfat", "bcachefs"] {
            assert_eq!(trust(fs_type, 1), AddressTrust::Physical);
        }
        assert_eq!(trust("btrfs", 1), AddressTrust::Logical);
        for (fs_type, devices) in [
            ("btrfs", 2),
            ("bcachefs", 3),
            ("nfs4", 1),
            ("cifs", 1),
            ("9p", 1),
            ("fuse.sshfs", 1),
            ("fuse", 1),
            ("fuseblk", 1),
            ("overlay", 1),
            ("tmpfs", 1),
            ("ramfs", 1),
            ("zfs", 1),
            ("fuse.mergerfs", 1),
        ] {
            assert!(!trust(fs_type, devices).is_order(), "{fs_type}");
        }
    }

    #[test]
    fn reasons_are_sentences() {
        let trust = AddressTrust::of_file_system("nfs4", 1);
        assert_eq!(trust.to_string(), "order unknown: the files are on another machine (nfs4)");
        let trust = AddressTrust::of_file_system("btrfs", 2);
        assert!(trust.to_string().ends_with("which of its 2 devices a file is on"));
    }

    #[test]
    fn made_up_addresses_are_found_out() {
        assert_eq!(sampled(None, &[0; 9]), Some(Meaningless::AllZero { files: 9 }));
        assert_eq!(sampled(None, &[512; 8]), Some(Meaningless::AllEqual { files: 8, address: 512 }));
        let beyond = Meaningless::BeyondDevice { end: 9096, device_bytes: 9000 };
        assert_eq!(sampled(Some(9000), &[0, 5000]), Some(beyond));
    }

    #[test]
    fn good_addresses_pass() {
        assert_eq!(sampled(Some(1 << 20), &[0, 4096, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(sampled(Some(8192), &[0, 4096]), None, "a file may end where the device ends");
        assert_eq!(sampled(None, &[7; 7]), None, "a few clones prove nothing");
        assert_eq!(sampled(None, &[]), None);
    }
}
