//! An inode, put together from the attributes of its file record as ntfs-3g shows it.

use std::{mem, ops::Range};

use super::{
    INDEX_NAME,
    attributes::{Attribute, COMPRESSED, ENCRYPTED, Value, kind},
    boot::Geometry,
    bytes::{slice_at, u16_at, u32_at},
    compressed::Decompressor,
    mft::Mft,
    names::{FileName, append_utf8, is_ascii, is_file_name, utf8},
    record::{Record, Reference},
    reparse::{REPARSE_BYTES_MAX, Reparse},
    special::{SPECIAL_BYTES_MAX, Special, makedev},
    stream::{COMPRESSION_UNIT, Stream},
    times::{HIDDEN, REPARSE_POINT, SYSTEM, StandardInformation},
};
use crate::{
    block_read::BlockRead,
    extent::ExtentFlags,
    tables::{Inode, InodeFlags, Sign, TableError, Wanted},
};

/// The name of the attribute that has the keys of an encrypted file, each locked by a user's own.
const KEYS_NAME: &[u8] = b"$EFS";
/// What ntfs-3g calls it.
const KEYS_XATTR: &[u8] = b"user.ntfs.efsinfo";
/// The longest value of an extended attribute that Linux passes on.
const XATTR_BYTES_MAX: u64 = 64 << 10;
/// All of a file's, so that they take a bounded memory.
const XATTRS_BYTES_MAX: u64 = 4 << 20;
/// The most that extended attributes of Windows take.
const EA_BYTES_MAX: u64 = 64 << 10;

mod mode {
    pub(super) const FIFO: u32 = 0o010_000;
    pub(super) const CHARACTER_DEVICE: u32 = 0o020_000;
    pub(super) const DIRECTORY: u32 = 0o040_000;
    pub(super) const BLOCK_DEVICE: u32 = 0o060_000;
    pub(super) const FILE: u32 = 0o100_000;
    pub(super) const LINK: u32 = 0o120_000;
    pub(super) const SOCKET: u32 = 0o140_000;
    /// Without a mapping of users, ntfs-3g lets everybody do everything.
    pub(super) const ALL: u32 = 0o777;
}

/// The attributes of a file, as they come. Used again for the next file, so that most files cost no allocation.
#[derive(Debug, Default)]
pub(super) struct File {
    standard: StandardInformation,
    has_standard: bool,
    names: Vec<(Reference, Range<usize>)>,
    /// All attributes with a name, those for DOS and the root's own too.
    name_count: u32,
    /// The bytes of all names.
    name_bytes: Vec<u8>,
    data: Stream,
    named: Vec<(Vec<u8>, Stream)>,
    reparse: Stream,
    ea: Stream,
    keys: Stream,
    index_bytes: u64,
    flags: InodeFlags,
}

impl File {
    /// Begins another file.
    pub(super) fn clear(&mut self) {
        self.standard = StandardInformation::default();
        self.has_standard = false;
        self.names.clear();
        self.name_count = 0;
        self.name_bytes.clear();
        self.data.clear();
        self.named.clear();
        self.reparse.clear();
        self.ea.clear();
        self.keys.clear();
        self.index_bytes = 0;
        self.flags = InodeFlags::empty();
    }

    /// Adds an attribute, or a piece of one.
    pub(super) fn take(
        &mut self,
        attribute: &Attribute<'_>,
        geometry: &Geometry,
        wanted: Wanted,
    ) -> Result<(), TableError> {
        let short = |what: &str| TableError::damaged(what, attribute.at, "a whole one", "less");
        match attribute.kind {
            kind::STANDARD_INFORMATION => {
                let information = StandardInformation::parse(attribute.resident()?);
                self.standard = information.ok_or_else(|| short("a file's $STANDARD_INFORMATION"))?;
                self.has_standard = true;
            }
            kind::FILE_NAME => {
                let name = FileName::parse(attribute.resident()?).ok_or_else(|| short("a file's $FILE_NAME"))?;
                self.name_count += 1;
                self.take_name(&name, attribute.at)?;
            }
            kind::DATA if attribute.name.is_empty() => {
                // In a record it would be as it is.
                if attribute.flags & COMPRESSED != 0 && matches!(attribute.value, Value::NonResident(_)) {
                    self.flags |= InodeFlags::COMPRESSED;
                }
                if attribute.flags & ENCRYPTED != 0 {
                    self.flags |= InodeFlags::ENCRYPTED;
                }
                self.data.take(attribute, geometry)?;
            }
            kind::DATA => self.take_named(attribute, geometry, wanted)?,
            kind::INDEX_ALLOCATION if is_ascii(attribute.name, INDEX_NAME) => {
                if let Value::NonResident(piece) = attribute.value
                    && piece.lowest_vcn == 0
                {
                    self.index_bytes = piece.size;
                }
            }
            kind::LOGGED_UTILITY_STREAM if !wanted.xattrs || !is_ascii(attribute.name, KEYS_NAME) => {}
            kind::REPARSE_POINT | kind::EA | kind::LOGGED_UTILITY_STREAM
                if attribute.clusters_bytes() > XATTR_BYTES_MAX =>
            {
                let (expected, found) = (format!("at most {XATTR_BYTES_MAX}"), attribute.clusters_bytes());
                return Err(TableError::damaged("the size of a small attribute", attribute.at + 48, expected, found));
            }
            kind::REPARSE_POINT => self.reparse.take(attribute, geometry)?,
            kind::EA => self.ea.take(attribute, geometry)?,
            kind::LOGGED_UTILITY_STREAM => self.keys.take(attribute, geometry)?,
            // It may have been one of those that are shown.
            other if other > kind::LOGGED_UTILITY_STREAM => {
                let (expected, found) = (format!("up to {:#x}", kind::LOGGED_UTILITY_STREAM), attribute.kind);
                return Err(TableError::damaged("an attribute's type", attribute.at, expected, format!("{found:#x}")));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_name(&mut self, name: &FileName<'_>, at: u64) -> Result<(), TableError> {
        if name.is_dos {
            return Ok(());
        }
        let start = self.name_bytes.len();
        append_utf8(name.name, &mut self.name_bytes);
        let bytes = &self.name_bytes[start..];
        // The root is the only one that has "." as its name.
        if bytes == b"." && name.directory.number == super::ROOT {
            self.name_bytes.truncate(start);
            return Ok(());
        }
        if !is_file_name(bytes) {
            let found = String::from_utf8_lossy(bytes).into_owned();
            self.name_bytes.truncate(start);
            return Err(TableError::damaged("a file's name", at, "a name without a slash", format!("{found:?}")));
        }
        self.names.push((name.directory, start..self.name_bytes.len()));
        Ok(())
    }

    fn take_named(&mut self, attribute: &Attribute<'_>, geometry: &Geometry, wanted: Wanted) -> Result<(), TableError> {
        let name = utf8(attribute.name);
        // Pieces of one stream follow each other.
        if self.named.last().is_none_or(|last| last.0 != name) {
            self.named.push((name, Stream::default()));
        }
        let Some((_, stream)) = self.named.last_mut() else { return Ok(()) };
        match &attribute.value {
            // Large ones are no extended attributes to Linux, so that their clusters don't matter.
            Value::NonResident(piece) if piece.lowest_vcn == 0 && piece.size > XATTR_BYTES_MAX => {
                stream.size = piece.size
            }
            Value::NonResident(_) if stream.size > XATTR_BYTES_MAX => {}
            _ if wanted.xattrs => stream.take(attribute, geometry)?,
            Value::Resident(value) => stream.size = <[u8]>::len(value) as u64,
            Value::NonResident(piece) if piece.lowest_vcn == 0 => stream.size = piece.size,
            Value::NonResident(_) => {}
        }
        Ok(())
    }

    /// Its names, and the directories that have them.
    pub(super) fn names(&self) -> impl Iterator<Item = (Reference, &[u8])> {
        self.names.iter().map(|(directory, place)| (*directory, &self.name_bytes[place.clone()]))
    }

    /// All names, those for DOS too.
    pub(super) fn name_count(&self) -> u32 {
        self.name_count
    }

    /// The main content.
    pub(super) fn data(&self) -> &Stream {
        &self.data
    }

    /// The inode, after the last attribute. What is wrong goes to the problems; the inode comes all the same.
    pub(super) fn finish<B: BlockRead>(
        &mut self,
        record: &Record<'_>,
        mft: &Mft<B>,
        wanted: Wanted,
        problems: &mut Vec<TableError>,
    ) -> Inode {
        if let Err(problem) = self.data.finish(&mft.geometry) {
            problems.push(problem);
        }
        let standard = self.standard;
        let mut inode = Inode {
            number: record.number,
            generation: u32::from(record.header.sequence),
            links: u32::from(record.header.links),
            mtime: standard.modified,
            ctime: standard.changed,
            atime: standard.accessed,
            btime: Some(standard.birth),
            flags: self.flags,
            ..Inode::default()
        };
        let lacks = |what| TableError::damaged(format!("file {}", record.number), record.at, what, "none");
        if !self.has_standard {
            problems.push(lacks("$STANDARD_INFORMATION"));
        }
        if standard.flags & REPARSE_POINT != 0 {
            problems.extend(self.tell_reparse_point(&mut inode, mft).err());
        } else if record.header.is_directory() {
            inode.mode = mode::DIRECTORY | mode::ALL;
            inode.size = self.index_bytes;
            inode.links = 1; // As ntfs-3g shows it: names of what lies below aren't counted.
        } else {
            if !self.data.present {
                problems.push(lacks("$DATA"));
            }
            self.tell_file(&mut inode, mft, problems);
        }
        if wanted.xattrs {
            problems.extend(self.tell_xattrs(&mut inode, mft).err());
        }
        inode.streams.extend(self.named.drain(..).map(|(name, stream)| (name, stream.size)));
        inode
    }

    /// A plain file, or one that stands for another kind.
    fn tell_file<B: BlockRead>(&mut self, inode: &mut Inode, mft: &Mft<B>, problems: &mut Vec<TableError>) {
        let is_hidden = self.standard.flags & HIDDEN != 0;
        inode.mode = mode::FILE | mode::ALL;
        inode.size = self.data.size;
        inode.allocated = self.data.allocated;
        if self.standard.flags & SYSTEM != 0 && self.data.present && self.data.size <= SPECIAL_BYTES_MAX {
            // Where it can't be read, it's a plain file that can't be read.
            let content = content_of(&self.data, mft, SPECIAL_BYTES_MAX).map_err(|problem| problems.push(problem));
            if let Some(special) = content.ok().and_then(|content| Special::parse(&content, is_hidden)) {
                inode.flags = InodeFlags::empty();
                let kind = match special {
                    Special::Fifo => mode::FIFO,
                    Special::Socket => mode::SOCKET,
                    Special::CharacterDevice(device) => {
                        inode.rdev = device;
                        mode::CHARACTER_DEVICE
                    }
                    Special::BlockDevice(device) => {
                        inode.rdev = device;
                        mode::BLOCK_DEVICE
                    }
                    Special::Link(target) => {
                        inode.size = target.len() as u64;
                        inode.inline = Some(target);
                        mode::LINK
                    }
                };
                inode.mode = kind | mode::ALL;
                return;
            }
        }
        inode.inline = self.data.resident.take().filter(|content| !content.is_empty());
        inode.extents = mem::take(&mut self.data.extents);
    }

    fn tell_reparse_point<B: BlockRead>(&mut self, inode: &mut Inode, mft: &Mft<B>) -> Result<(), TableError> {
        inode.mode = mode::LINK | mode::ALL; // Also where its target can't be read.
        self.reparse.finish(&mft.geometry)?;
        let value = content_of(&self.reparse, mft, REPARSE_BYTES_MAX)?;
        inode.flags = InodeFlags::empty();
        let reparse = Reparse::parse(&value);
        inode.flags.set(InodeFlags::UNKNOWN_REPARSE, matches!(reparse, Reparse::Unknown(_)));
        let (kind, is_device) = match reparse {
            Reparse::Link(target) | Reparse::Unknown(target) => {
                inode.size = target.len() as u64;
                inode.inline = Some(target);
                return Ok(());
            }
            // Without permissions, as ntfs-3g shows them.
            Reparse::Socket => (mode::SOCKET, false),
            Reparse::Fifo => (mode::FIFO, false),
            Reparse::CharacterDevice => (mode::CHARACTER_DEVICE, true),
            Reparse::BlockDevice => (mode::BLOCK_DEVICE, true),
        };
        inode.mode = kind;
        if is_device {
            self.ea.finish(&mft.geometry)?;
            let attributes = content_of(&self.ea, mft, EA_BYTES_MAX)?;
            inode.rdev = linux_device(&attributes).unwrap_or(0);
        }
        Ok(())
    }

    /// Named streams as ntfs-3g shows them, as extended attributes of the user, and the keys of an encrypted file as it shows
    /// them to who saves it (`efs_raw`).
    fn tell_xattrs<B: BlockRead>(&mut self, inode: &mut Inode, mft: &Mft<B>) -> Result<(), TableError> {
        if self.keys.present {
            self.keys.finish(&mft.geometry)?;
            inode.xattrs.push((KEYS_XATTR.to_vec(), content_of(&self.keys, mft, XATTR_BYTES_MAX)?));
        }
        let mut left = XATTRS_BYTES_MAX;
        for (name, stream) in self.named.iter_mut().filter(|(_, stream)| stream.size <= XATTR_BYTES_MAX) {
            stream.finish(&mft.geometry)?;
            left = left.checked_sub(stream.size).ok_or_else(|| TableError::Unsupported {
                feature: format!("more than {XATTRS_BYTES_MAX} bytes of streams in file {}", inode.number),
                sign: mft.at(inode.number).map(|at| Sign::new(at, "fewer", "more")),
                advice: "they are listed, but not read",
            })?;
            let value = content_of(stream, mft, XATTR_BYTES_MAX)?;
            inode.xattrs.push(([b"user.", &name[..]].concat(), value));
        }
        Ok(())
    }
}

/// The first bytes of the content, decompressed.
fn content_of<B: BlockRead>(stream: &Stream, mft: &Mft<B>, limit: u64) -> Result<Vec<u8>, TableError> {
    if !stream.flags.contains(ExtentFlags::ENCODED) {
        return stream.read(&mft.device, limit);
    }
    let mut content = vec![0; usize::try_from(stream.size.min(limit)).unwrap_or(0)];
    let unit_bytes = mft.geometry.cluster_bytes << COMPRESSION_UNIT;
    Decompressor::new(&mft.device, &stream.extents, stream.size, unit_bytes).read(0, &mut content)?;
    Ok(content)
}

/// The number of a device out of the extended attributes that Linux on Windows gives it.
fn linux_device(attributes: &[u8]) -> Option<u64> {
    let mut rest = attributes;
    // Each takes at least eight bytes, so they are at most some thousands.
    loop {
        let next = usize::try_from(u32_at(rest, 0)?).ok()?;
        let name_length = usize::from(*rest.get(5)?);
        let value_length = usize::from(u16_at(rest, 6)?);
        if slice_at(rest, 8, name_length)?.eq_ignore_ascii_case(b"$LXDEV") {
            let value = slice_at(rest, 8 + name_length + 1, value_length)?;
            return Some(makedev(u64::from(u32_at(value, 0)?), u64::from(u32_at(value, 4)?)));
        }
        if next < 8 {
            return None;
        }
        rest = rest.get(next..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_linux_on_windows() {
        let attribute = |next: u32, name: &[u8], value: &[u8]| {
            let mut bytes = next.to_le_bytes().to_vec();
            bytes.extend([0, name.len() as u8]);
            bytes.extend((value.len() as u16).to_le_bytes());
            bytes.extend([name, &[0], value].concat());
            bytes.resize(if next == 0 { bytes.len() } else { next as usize }, 0);
            bytes
        };
        let value = [5_u32.to_le_bytes(), 300_u32.to_le_bytes()].concat();
        let all = [attribute(24, b"$LXMOD", &[1; 4]), attribute(0, b"$LXDEV", &value)].concat();
        assert_eq!(linux_device(&all), Some(rustix::fs::makedev(5, 300)));
        for length in 0..all.len() {
            assert_eq!(linux_device(&all[..length]), None);
        }
    }
}
