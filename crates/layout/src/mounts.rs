//! The mounts of this process, from `/proc/self/mountinfo`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use onesweep_sys::files::makedev;
use thiserror::Error;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number, which `statx` gives too; may be used again after an unmount.
    pub id: u64,
    /// The number of the mount that it is mounted on.
    pub parent: u64,
    /// The device of the file system. Files of btrfs tell another one, for each subvolume.
    pub dev: u64,
    /// The directory of the file system that is shown: `/` unless it is a bind mount or a subvolume.
    pub root: PathBuf,
    /// Where it is shown.
    pub mount_point: PathBuf,
    /// Options of the mount, separated by commas.
    pub options: String,
    /// The type of the file system, such as `ext4` or `fuse.sshfs`.
    pub fs_type: String,
    /// What is mounted: a device node, `server:/path`, or any word.
    pub source: OsString,
    /// Options of the file system, separated by commas.
    pub super_options: String,
}

/// Whether a file system writes data to its journal first (ext4 with `data=journal`), and to its place some time after.
///
/// `device` is the kernel's name of its device. `mountinfo` leaves out an option that is the superblock's own default, so
/// this asks `/proc/fs`; where that is not there, the answer for ext3 and ext4 is yes.
pub fn journals_data(fs_type: &str, device: &str) -> bool {
    journals_data_in(Path::new("/proc/fs"), fs_type, device)
}

fn journals_data_in(proc_fs: &Path, fs_type: &str, device: &str) -> bool {
    if !matches!(fs_type, "ext3" | "ext4") {
        return false;
    }
    // One driver serves both.
    let told = std::fs::read_to_string(proc_fs.join("ext4").join(device).join("options"));
    told.map_or(true, |told| told.lines().any(|option| option == "data=journal"))
}

/// Why a text is not a list of mounts.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line} of the list of mounts has no {missing}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is missing or not what it should be.
    pub missing: &'static str,
}

/// All mounts, in the order of the kernel: one that hides another comes after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// The mounts that this process sees.
    pub fn read() -> io::Result<MountTable> {
        let text = std::fs::read("/proc/self/mountinfo")?;
        MountTable::parse(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The same, with an error that says by itself what could not be read: for callers that speak of something else.
    pub fn read_or_say() -> io::Result<MountTable> {
        Self::read().map_err(|error| {
            let advice = if error.kind() == io::ErrorKind::NotFound { "; mount /proc" } else { "" };
            io::Error::other(format!("/proc/self/mountinfo: cannot read the table of mounts: {error}{advice}"))
        })
    }

    /// Reads a text in the format of `/proc/PID/mountinfo`.
    pub fn parse(text: &[u8]) -> Result<MountTable, ParseError> {
        let lines = text.split(|&byte| byte == b'\n').enumerate();
        let mounts = lines
            .filter(|(_, line)| !line.is_empty())
            .map(|(at, line)| parse_line(line).map_err(|missing| ParseError { line: at + 1, missing }))
            .collect::<Result<_, _>>()?;
        Ok(MountTable { mounts })
    }

    /// All mounts.
    pub fn iter(&self) -> std::slice::Iter<'_, Mount> {
        self.mounts.iter()
    }

    /// The mount with this number.
    pub fn by_id(&self, id: u64) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// The mount that an absolute path without symbolic links lies on: the one with the longest mount point that the
    /// path begins with, and of several there, the one on top.
    pub fn of_path(&self, path: &Path) -> Option<&Mount> {
        self.mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.mount_point))
            .max_by_key(|mount| mount.mount_point.as_os_str().len())
    }

    /// The mounts strictly below a directory, those that others hide too.
    pub fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Mount> {
        let inside = move |mount: &&Mount| mount.mount_point.starts_with(directory) && mount.mount_point != directory;
        self.mounts.iter().filter(inside)
    }
}

/// Reads `36 35 98:0 /root /mount/point options optional... - type source super-options`.
fn parse_line(line: &[u8]) -> Result<Mount, &'static str> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut next = |what| fields.next().ok_or(what);
    let id = number(next("mount number")?).ok_or("mount number")?;
    let parent = number(next("parent number")?).ok_or("parent number")?;
    let dev = device(next("device")?).ok_or("device")?;
    let root = unescaped(next("root")?);
    let mount_point = unescaped(next("mount point")?);
    let options = next("options")?;
    while next("separator")? != b"-" {}
    let fs_type = next("type")?;
    let source = next("source")?;
    let super_options = next("options of the file system")?;
    Ok(Mount {
        id,
        parent,
        dev,
        root: root.into(),
        mount_point: mount_point.into(),
        options: text(options),
        fs_type: text(fs_type),
        source: unescaped(source),
        super_options: text(super_options),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Reads `major:minor`.
fn device(field: &[u8]) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn text(field: &[u8]) -> String {
    unescaped(field).to_string_lossy().into_owned()
}

/// Undoes the kernel's escapes: a backslash and three octal digits for blank, tab, newline, `#` and backslash.
fn unescaped(field: &[u8]) -> OsString {
    let Some(first) = field.iter().position(|&byte| byte == b'\\') else {
        return OsStr::from_bytes(field).to_owned();
    };
    let (plain, mut rest) = field.split_at(first);
    let mut bytes = plain.to_vec();
    while let [byte, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journaled_data_is_known() {
        let proc = tempfile::tempdir().unwrap();
        let folder = |device: &str| proc.path().join("ext4").join(device);
        for (device, options) in [("sda1", "rw\ndata=ordered\ncommit=5\n"), ("sda2", "rw\ndata=journal\ncommit=5\n")] {
            std::fs::create_dir_all(folder(device)).unwrap();
            std::fs::write(folder(device).join("options"), options).unwrap();
        }
        let journals = |fs_type, device| journals_data_in(proc.path(), fs_type, device);
        assert!(!journals("ext4", "sda1") && !journals("xfs", "sda2") && !journals("ext2", "sda9"));
        assert!(journals("ext4", "sda2") && journals("ext3", "sda2"));
        assert!(journals("ext4", "sda9"), "nothing is told");
    }

    const RECORDED: &[u8] = br"22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
36 27 8:1 / /srv rw,noatime shared:7 master:2 propagate_from:3 - ext4 /dev/sda1 rw,errors=remount-ro
37 36 8:17 / /srv/mail rw - xfs /dev/sdb1 rw
38 27 0:45 /@home /home rw shared:9 - btrfs /dev/nvme0n1p2 rw,subvolid=257,subvol=/@home
39 27 0:50 / /mnt/my\040disk\134x rw - fuse.sshfs user@host:/a\040b rw,user_id=0
40 36 8:33 / /srv rw - ext4 /dev/sdc1 rw
41 27 0:52 / /srv2 rw - tmpfs none rw
";

    fn table() -> MountTable {
        MountTable::parse(RECORDED).unwrap()
    }

    fn on(path: &str) -> u64 {
        table().of_path(Path::new(path)).unwrap().id
    }

    #[test]
    fn fields_are_found_behind_optional_ones() {
        let table = table();
        let srv = table.by_id(36).unwrap();
        assert_eq!(srv.dev, makedev(8, 1));
        assert_eq!((srv.fs_type.as_str(), srv.source.as_os_str()), ("ext4", OsStr::new("/dev/sda1")));
        assert_eq!(srv.super_options, "rw,errors=remount-ro");
        let home = table.by_id(38).unwrap();
        assert_eq!((home.root.as_path(), home.parent), (Path::new("/@home"), 27));
        assert_eq!(table.iter().count(), 8);
        assert!(table.by_id(99).is_none());
    }

    #[test]
    fn escapes_are_undone() {
        let table = table();
        let disk = table.by_id(39).unwrap();
        assert_eq!(disk.mount_point, Path::new(r"/mnt/my disk\x"));
        assert_eq!(disk.source, "user@host:/a b");
        assert_eq!(unescaped(br"a\011\0\400\12"), OsStr::new("a\t\\0\\400\\12"));
        assert_eq!(unescaped(br"\377").as_bytes(), [0xff]);
    }

    #[test]
    fn longest_mount_point_wins_by_component() {
        assert_eq!(on("/etc"), 27);
        assert_eq!(on("/srv/mail/inbox"), 37);
        assert_eq!(on("/srv/mailbox"), 40);
        assert_eq!(on("/srv2/x"), 41);
        assert_eq!(on("/srv"), 40, "the mount on top hides the other");
        assert!(MountTable::default().of_path(Path::new("/")).is_none());
    }

    #[test]
    fn mounts_below_leave_out_the_directory_itself() {
        let table = table();
        let below = |path| table.below(Path::new(path)).map(|mount| mount.id).collect::<Vec<_>>();
        assert_eq!(below("/srv"), [37]);
        assert_eq!(below("/"), [22, 36, 37, 38, 39, 40, 41]);
        assert_eq!(below("/home"), [] as [u64; 0]);
    }

    #[test]
    fn broken_lines_are_named() {
        let broken = |text: &str| MountTable::parse(text.as_bytes()).unwrap_err();
        assert_eq!(broken("x 1 8:1 / / rw - ext4 a rw"), ParseError { line: 1, missing: "mount number" });
        assert_eq!(broken("\n1 1 8 / / rw - ext4 a rw").line, 2);
        assert_eq!(broken("1 1 8:1 / / rw ext4 a rw").missing, "separator");
        assert_eq!(broken("1 1 8:1 / / rw - ext4").missing, "source");
    }

    #[test]
    fn this_process_has_a_root() {
        let table = MountTable::read().unwrap();
        assert!(table.of_path(Path::new("/")).is_some());
    }
}
