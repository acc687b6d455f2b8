//! Numbers and names of users and groups.

use std::{fs, path::Path};

/// An owner or group that replaces those of the entries: `NAME[:ID]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The name, if it is replaced; else the one that belongs to the number.
    pub name: Option<String>,
    /// The number, if it is replaced.
    pub id: Option<u32>,
}

/// What is wrong with an owner or group of the command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}' is no owner or group; write a name, a number up to 4294967295, or NAME:NUMBER")]
pub struct OwnerError {
    text: String,
}

impl Owner {
    /// Reads `--owner`: a name of `/etc/passwd`, a number, or both with a colon between.
    ///
    /// As in GNU tar, a name that isn't known and has no number leaves the numbers as they are.
    pub fn user(text: &str) -> Result<Self, OwnerError> {
        Self::parse(text, Path::new("/etc/passwd"))
    }

    /// Reads `--group`, with names of `/etc/group`.
    pub fn group(text: &str) -> Result<Self, OwnerError> {
        Self::parse(text, Path::new("/etc/group"))
    }

    fn parse(text: &str, database: &Path) -> Result<Self, OwnerError> {
        let number = |digits: &str| {
            let digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| digits_only).ok_or_else(|| OwnerError { text: text.to_owned() })
        };
        if let Some((name, id)) = text.split_once(':') {
            let name = (!name.is_empty()).then(|| name.to_owned());
            return Ok(Self { name, id: Some(number(id)?) });
        }
        if text.is_empty() || text.starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(Self { name: None, id: Some(number(text)?) });
        }
        // Not in the table, which has one name of each number.
        let id = entries(&fs::read(database).unwrap_or_default())
            .find(|(_, name)| *name == text.as_bytes())
            .map(|(id, _)| id);
        Ok(Self { name: Some(text.to_owned()), id })
    }
}

/// The names of all users and groups of this machine, by number.
pub(super) struct Accounts {
    users: Cached,
    groups: Cached,
}

impl Accounts {
    /// Reads `/etc/passwd` and `/etc/group`. Where there is none, there are no names.
    pub(super) fn of_system() -> Self {
        Self::parse(&fs::read("/etc/passwd").unwrap_or_default(), &fs::read("/etc/group").unwrap_or_default())
    }

    pub(super) fn parse(passwd: &[u8], group: &[u8]) -> Self {
        Self { users: Cached::new(Table::parse(passwd)), groups: Cached::new(Table::parse(group)) }
    }

    /// The user's name; empty when there is none.
    pub(super) fn user(&mut self, uid: u32) -> &[u8] {
        self.users.name(uid)
    }

    /// The group's name; empty when there is none.
    pub(super) fn group(&mut self, gid: u32) -> &[u8] {
        self.groups.name(gid)
    }
}

/// Sorted by number; of several names of one number, the first in the file counts, as for `getpwuid`.
struct Table(Vec<(u32, Vec<u8>)>);

impl Table {
    fn parse(text: &[u8]) -> Self {
        let mut entries: Vec<(u32, Vec<u8>)> = entries(text).map(|(id, name)| (id, name.to_vec())).collect();
        entries.sort_by_key(|(id, _)| *id);
        entries.dedup_by_key(|(id, _)| *id);
        Self(entries)
    }
}

/// Numbers and names, as the lines have them.
fn entries(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    text.split(|&byte| byte == b'\n').filter_map(entry)
}

/// `name:password:number:…`. NIS lines (`+` and `-`) and comments are left out.
fn entry(line: &[u8]) -> Option<(u32, &[u8])> {
    let mut fields = line.split(|&byte| byte == b':');
    let name = fields.next().filter(|name| !name.is_empty() && !matches!(name[0], b'+' | b'-' | b'#'))?;
    let id = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
    Some((id, name))
}

/// A table that remembers where it looked last: neighbours have the same owner.
struct Cached {
    table: Table,
    last: Option<(u32, Option<usize>)>,
}

impl Cached {
    fn new(table: Table) -> Self {
        Self { table, last: None }
    }

    fn name(&mut self, id: u32) -> &[u8] {
        let at = match self.last {
            Some((last, at)) if last == id => at,
            _ => self.table.0.binary_search_by_key(&id, |(id, _)| *id).ok(),
        };
        self.last = Some((id, at));
        at.map_or(&[], |at| &self.table.0[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_owners_as_gnu_tar_does() {
        let parse = |text| Owner::user(text).map(|owner| (owner.name, owner.id));
        assert_eq!(parse("0"), Ok((None, Some(0))));
        assert_eq!(parse("root"), Ok((Some("root".into()), Some(0))));
        assert_eq!(parse("nobody-has-this-name"), Ok((Some("nobody-has-this-name".into()), None)));
        assert_eq!(parse("me:77"), Ok((Some("me".into()), Some(77))));
        assert_eq!(parse(":77"), Ok((None, Some(77))));
        for wrong in ["", "1x", "me:", "me:x", "me:+1", "4294967296", "me:-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_may_have_several_names() {
        let dir = tempfile::tempdir().unwrap();
        let passwd = dir.path().join("passwd");
        fs::write(&passwd, "root:x:0:0::/:\ntoor:x:0:0::/:\nme:x:7:7::/:\nme:x:8:8::/:\n").unwrap();
        let id = |name: &str| Owner::parse(name, &passwd).unwrap().id;
        assert_eq!(["root", "toor", "me", "you"].map(id), [Some(0), Some(0), Some(7), None]);
    }

    #[test]
    fn finds_names_by_number() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n\n+nis:x:7:7::/:\nbroken\nme:x:1000:1000::/:\ntoo:x:1000:1::/:\n";
        let mut accounts = Accounts::parse(passwd, b"wheel:x:10:me,root\n");
        for _ in 0..2 {
            assert_eq!(accounts.user(1000), b"me");
            assert_eq!(accounts.user(0), b"root");
            assert_eq!(accounts.user(7), b"");
            assert_eq!(accounts.group(10), b"wheel");
            assert_eq!(accounts.group(0), b"");
        }
    }
}
