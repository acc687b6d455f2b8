//! One member's headers: which attribute goes into the ustar block, and which into pax records before it.

use onesweep::{Metadata, Timestamp, Xattr};

use super::{
    TarOptions, acl,
    error::TarWarning,
    header::{BLOCK, Header, Type, device_numbers},
    name::needs_binary,
    owner::{Accounts, Owner},
    pax::{number_record, record, time_record},
    sparse::Map,
};
use crate::attributes::{ACCESS_ACL, DEFAULT_ACL};

const SELINUX: &[u8] = b"security.selinux";

/// What a header says.
pub(super) struct Member<'a> {
    pub(super) kind: Type,
    pub(super) name: &'a [u8],
    /// The target of a hard or symbolic link.
    pub(super) link: &'a [u8],
    pub(super) metadata: &'a Metadata,
    /// Permission bits, which need not be those of the metadata.
    pub(super) mode: u32,
    /// Bytes of the file, for a file.
    pub(super) size: u64,
    /// Only the regions of this map follow.
    pub(super) map: Option<&'a Map>,
    pub(super) xattrs: &'a [Xattr],
    /// Its file system was not closed.
    pub(super) is_dirty: bool,
}

/// What says so. GNU tar warns of each keyword that it doesn't know; this one everybody knows, and nobody heeds.
const DIRTY: (&[u8], &[u8]) = (b"comment", b"onesweep: dirty");

/// Turns members into header blocks. Its buffers are used again for each.
pub(super) struct Encoder {
    accounts: Option<Accounts>,
    owner: Option<Owner>,
    group: Option<Owner>,
    mtime: Option<Timestamp>,
    clamp_mtime: bool,
    xattrs: bool,
    acls: bool,
    selinux: bool,
    records: Vec<u8>,
    text: Vec<u8>,
    blocks: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(options: &TarOptions) -> Self {
        Self {
            accounts: (!options.numeric_owner).then(Accounts::of_system),
            owner: options.owner.clone(),
            group: options.group.clone(),
            mtime: options.mtime,
            clamp_mtime: options.clamp_mtime,
            xattrs: options.xattrs,
            acls: options.acls,
            selinux: options.selinux,
            records: Vec::new(),
            text: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The blocks before a member's content: the header, and before it a pax header where one is needed.
    /// For a sparse file, the map follows.
    pub(super) fn encode(&mut self, member: &Member<'_>) -> (&[u8], Result<(), &'static str>) {
        self.records.clear();
        let mut header = Header::new(member.kind);
        header.mode(member.mode);
        self.names(&mut header, member);
        self.size(&mut header, member);
        self.owners(&mut header, member.metadata);
        let time = match self.mtime {
            Some(latest) if self.clamp_mtime => latest.min(member.metadata.mtime),
            Some(time) => time,
            None => member.metadata.mtime,
        };
        if !header.mtime(time.seconds) || time.nanoseconds != 0 {
            time_record(&mut self.records, "mtime", time);
        }
        if matches!(member.kind, Type::CharDevice | Type::BlockDevice) {
            let (major, minor) = device_numbers(member.metadata.rdev);
            if !header.major(major) {
                number_record(&mut self.records, "SCHILY.devmajor", major.into());
            }
            if !header.minor(minor) {
                number_record(&mut self.records, "SCHILY.devminor", minor.into());
            }
        }
        if member.is_dirty {
            record(&mut self.records, &[DIRTY.0], DIRTY.1);
        }
        let acls = self.attributes(member.xattrs);

        self.blocks.clear();
        if !self.records.is_empty() {
            self.extended(member.name, time);
        }
        self.blocks.extend_from_slice(&header.seal());
        if let Some(map) = member.map {
            self.blocks.extend_from_slice(&map.text());
        }
        (&self.blocks, acls)
    }

    /// The pax header: a block of its own, and the records.
    fn extended(&mut self, name: &[u8], time: Timestamp) {
        let mut header = Header::new(Type::Extended);
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        self.text.clear();
        self.text.extend_from_slice(b"PaxHeaders/");
        self.text.extend_from_slice(&last[..last.len().min(80)]);
        header.name(&self.text);
        header.mode(0o644);
        header.size(self.records.len() as u64);
        header.mtime(time.seconds);
        self.blocks.extend_from_slice(&header.seal());
        self.blocks.extend_from_slice(&self.records);
        self.blocks.resize(self.blocks.len().next_multiple_of(BLOCK), 0);
    }

    fn names(&mut self, header: &mut Header, member: &Member<'_>) {
        let (name_fits, link_fits) = match member.map {
            Some(_) => {
                // Readers that don't know sparse files must not take the stored regions for the file.
                self.text.clear();
                self.text.extend_from_slice(b"GNUSparseFile.0/");
                self.text.extend_from_slice(member.name);
                header.name(&self.text);
                (false, true)
            }
            None => (header.name(member.name), header.link(member.link)),
        };
        let is_harmed = |fits: bool, name: &[u8]| !fits && needs_binary(name);
        if is_harmed(name_fits, member.name) || is_harmed(link_fits, member.link) {
            record(&mut self.records, &[b"hdrcharset"], b"BINARY");
        }
        if !name_fits && member.map.is_none() {
            record(&mut self.records, &[b"path"], member.name);
        }
        if !link_fits {
            record(&mut self.records, &[b"linkpath"], member.link);
        }
    }

    fn size(&mut self, header: &mut Header, member: &Member<'_>) {
        let stored = match member.map {
            Some(map) => {
                record(&mut self.records, &[b"GNU.sparse.major"], b"1");
                record(&mut self.records, &[b"GNU.sparse.minor"], b"0");
                record(&mut self.records, &[b"GNU.sparse.name"], member.name);
                number_record(&mut self.records, "GNU.sparse.realsize", map.size());
                map.text().len() as u64 + map.data_len()
            }
            None => member.size,
        };
        if !header.size(stored) {
            number_record(&mut self.records, "size", stored);
        }
    }

    fn owners(&mut self, header: &mut Header, metadata: &Metadata) {
        let uid = self.owner.as_ref().and_then(|owner| owner.id).unwrap_or(metadata.uid);
        let gid = self.group.as_ref().and_then(|group| group.id).unwrap_or(metadata.gid);
        if !header.uid(uid) {
            number_record(&mut self.records, "uid", uid.into());
        }
        if !header.gid(gid) {
            number_record(&mut self.records, "gid", gid.into());
        }
        let Some(accounts) = &mut self.accounts else { return };
        let uname = match &self.owner {
            Some(Owner { name: Some(name), .. }) => name.as_bytes(),
            _ => accounts.user(uid),
        };
        if !header.uname(uname) {
            record(&mut self.records, &[b"uname"], uname);
        }
        let gname = match &self.group {
            Some(Owner { name: Some(name), .. }) => name.as_bytes(),
            _ => accounts.group(gid),
        };
        if !header.gname(gname) {
            record(&mut self.records, &[b"gname"], gname);
        }
    }

    /// Extended attributes in the order of their names, so that the same tree gives the same bytes on every file
    /// system. Fails when an ACL can't be told; the rest is written.
    fn attributes(&mut self, xattrs: &[Xattr]) -> Result<(), &'static str> {
        if xattrs.is_empty() {
            return Ok(());
        }
        let mut sorted: Vec<&Xattr> = xattrs.iter().collect();
        sorted.sort();
        let mut outcome = Ok(());
        for (name, value) in sorted {
            match name.as_slice() {
                ACCESS_ACL | DEFAULT_ACL if !self.acls => {}
                ACCESS_ACL => outcome = outcome.and(self.acl(b"SCHILY.acl.access", value)),
                DEFAULT_ACL => outcome = outcome.and(self.acl(b"SCHILY.acl.default", value)),
                SELINUX if !self.selinux => {}
                SELINUX => {
                    let context = value.strip_suffix(b"\0").unwrap_or(value);
                    record(&mut self.records, &[b"RHT.security.selinux"], context);
                }
                _ if !self.xattrs => {}
                name => {
                    escape(name, &mut self.text);
                    record(&mut self.records, &[b"SCHILY.xattr.", &self.text], value);
                }
            }
        }
        outcome
    }

    fn acl(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        acl::to_text(value, self.accounts.as_mut(), &mut self.text)?;
        record(&mut self.records, &[key], &self.text);
        Ok(())
    }
}

/// An `=` would end the key of a record; GNU tar writes it, and `%`, in hexadecimal.
fn escape(name: &[u8], text: &mut Vec<u8>) {
    text.clear();
    for &byte in name {
        match byte {
            b'=' => text.extend_from_slice(b"%3D"),
            b'%' => text.extend_from_slice(b"%25"),
            _ => text.push(byte),
        }
    }
}

/// The ACL that a directory hands down to what is made in it.
pub(super) fn default_acl(xattrs: &[Xattr]) -> Option<&Xattr> {
    xattrs.iter().find(|(name, _)| name == DEFAULT_ACL)
}

/// What an ACL that could not be stored is told as.
pub(super) fn acl_warning(path: &std::path::Path, reason: &'static str) -> TarWarning {
    TarWarning::Acl { path: path.to_path_buf(), reason }
}
