//! How messages travel between the warden and the daemon: a length of four bytes, then as many; an open file may come with the
//! first of them.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use onesweep_sys::peer;

use crate::{
    access::Asker,
    code::{Reader, Writer},
    custom::found::Found,
    identity::NodeId,
    reading::{Empty, LinkedName, OpenFile, Reading},
    record::{self, Access},
    survey::Seen,
    totals::{Sums, Totals},
};

const LENGTH_BYTES: usize = 4;
const ANNOUNCED_MAX: usize = 64 << 10;

/// Sends one message.
pub(super) fn send(mut stream: &UnixStream, message: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let bytes = [&length.to_le_bytes(), message].concat();
    let sent = match file {
        Some(file) => peer::send_with_file(stream.as_fd(), &bytes, file)?,
        None => 0,
    };
    stream.write_all(bytes.get(sent..).unwrap_or_default())
}

/// Receives one message of at most so many bytes; `None` when the other end has closed.
pub(super) fn receive(mut stream: &UnixStream, most: usize) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut length = [0; LENGTH_BYTES];
    let (read, file) = peer::receive_with_file(stream.as_fd(), &mut length)?;
    if read == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[read..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // As it comes: nobody gets much memory for what is only announced.
    let mut message = Vec::with_capacity(length.min(ANNOUNCED_MAX));
    stream.take(length as u64).read_to_end(&mut message)?;
    if message.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((message, file)))
}

pub(crate) fn put_id(out: &mut Writer, id: NodeId) {
    out.unsigned(id.subvolume);
    out.unsigned(id.ino);
    out.unsigned(id.generation.into());
}

pub(crate) fn id(from: &mut Reader<'_>) -> Option<NodeId> {
    Some(NodeId { subvolume: from.unsigned()?, ino: from.unsigned()?, generation: from.small()? })
}

/// A list; each takes one byte at least, so that no list is longer than its message.
pub(crate) fn put_all<T>(out: &mut Writer, all: &[T], mut put: impl FnMut(&mut Writer, &T)) {
    out.unsigned(all.len() as u64);
    all.iter().for_each(|one| put(out, one));
}

pub(crate) fn all<'a, T>(from: &mut Reader<'a>, mut one: impl FnMut(&mut Reader<'a>) -> Option<T>) -> Option<Vec<T>> {
    let count = from.unsigned()?;
    if count > from.0.len() as u64 {
        return None;
    }
    (0..count).map(|_| one(from)).collect()
}

/// What errors of this program itself are told apart by; any other is `Other`.
const KINDS: [io::ErrorKind; 9] = [
    io::ErrorKind::Other,
    io::ErrorKind::NotFound,
    io::ErrorKind::Unsupported,
    io::ErrorKind::StaleNetworkFileHandle,
    io::ErrorKind::NotADirectory,
    io::ErrorKind::InvalidInput,
    io::ErrorKind::InvalidData,
    io::ErrorKind::PermissionDenied,
    io::ErrorKind::TimedOut,
];

pub(super) fn put_error(out: &mut Writer, error: &io::Error) {
    match error.raw_os_error() {
        Some(number) => out.unsigned(u64::from(number.unsigned_abs()) + KINDS.len() as u64),
        None => {
            let kind = KINDS.iter().position(|&kind| kind == error.kind()).unwrap_or(0);
            out.unsigned(kind as u64);
            out.bytes(error.to_string().as_bytes());
        }
    }
}

pub(super) fn error(from: &mut Reader<'_>) -> Option<io::Error> {
    let number = from.unsigned()?;
    Some(match KINDS.get(usize::try_from(number).ok()?) {
        Some(&kind) => io::Error::new(kind, String::from_utf8_lossy(from.bytes()?).into_owned()),
        None => io::Error::from_raw_os_error(i32::try_from(number - KINDS.len() as u64).ok()?),
    })
}

pub(super) fn put_asker(out: &mut Writer, asker: &Asker) {
    match asker {
        Asker::Everything => out.unsigned(0),
        Asker::User { uid, groups } => {
            out.unsigned(1);
            out.unsigned((*uid).into());
            put_all(out, groups, |out, &group| out.unsigned(group.into()));
        }
    }
}

pub(super) fn asker(from: &mut Reader<'_>) -> Option<Asker> {
    match from.unsigned()? {
        0 => Some(Asker::Everything),
        1 => Some(Asker::User { uid: from.small()?, groups: all(from, Reader::small)? }),
        _ => None,
    }
}

pub(super) fn put_linked(out: &mut Writer, linked: &LinkedName) {
    put_id(out, linked.id);
    out.sparse(&linked.weight.fields());
    out.unsigned(linked.links.into());
    out.fixed(linked.facts);
}

pub(super) fn linked(from: &mut Reader<'_>) -> Option<LinkedName> {
    let (id, weight) = (id(from)?, Sums::of_fields(from.sparse()?));
    Some(LinkedName { id, weight, links: from.small()?, facts: from.fixed()? })
}

pub(super) fn put_open(out: &mut Writer, open: &OpenFile) {
    put_id(out, open.id);
    out.fixed(open.stamp);
    out.unsigned(open.is_silent.into());
}

pub(super) fn open(from: &mut Reader<'_>) -> Option<OpenFile> {
    Some(OpenFile { id: id(from)?, stamp: from.fixed()?, is_silent: from.unsigned()? == 1 })
}

pub(super) fn put_reading(out: &mut Writer, reading: &Reading) {
    let Reading { access, blocks, own, directories, empty, inodes, linked, custom, changed_at, stamp, .. } = reading;
    let Reading { unreadable, waits, .. } = reading;
    put_itself(out, access, *blocks, own);
    put_all(out, directories, |out, (id, name)| {
        put_id(out, *id);
        out.bytes(name);
    });
    put_all(out, empty, |out, Empty { id, access, blocks, own, stamp }| {
        put_id(out, *id);
        put_itself(out, access, *blocks, own);
        out.fixed(*stamp);
    });
    let mut before = 0_u64;
    put_all(out, inodes, |out, &ino| {
        out.signed(ino.wrapping_sub(before) as i64);
        before = ino;
    });
    put_all(out, linked, put_linked);
    out.unsigned(u64::from(custom.is_some()));
    if let Some(found) = custom {
        found.put(out);
    }
    out.signed(*changed_at);
    out.fixed(*stamp);
    out.unsigned(u64::from(unreadable.is_some()));
    if let Some(error) = unreadable {
        put_error(out, error);
    }
    out.unsigned((*waits).into());
}

pub(super) fn reading(from: &mut Reader<'_>) -> Option<Reading> {
    let (access, blocks, own) = itself(from)?;
    let directories = all(from, |from| Some((id(from)?, from.bytes()?.into())))?;
    let empty = all(from, |from| {
        let (id, (access, blocks, own)) = (id(from)?, itself(from)?);
        Some(Empty { id, access, blocks, own, stamp: from.fixed()? })
    })?;
    let mut before = 0_u64;
    let inodes = all(from, |from| {
        before = before.wrapping_add(from.signed()? as u64);
        Some(before)
    })?;
    let linked = all(from, linked)?;
    let custom = match from.unsigned()? {
        0 => None,
        _ => Some(Found::take(from)?),
    };
    let (changed_at, stamp) = (from.signed()?, from.fixed()?);
    let unreadable = match from.unsigned()? {
        0 => None,
        _ => Some(error(from)?),
    };
    let waits = from.small()?;
    Some(Reading {
        access,
        blocks,
        own,
        directories,
        empty,
        inodes,
        linked,
        custom,
        changed_at,
        stamp,
        unreadable,
        waits,
    })
}

/// What is told of a directory, whatever is in it.
fn put_itself(out: &mut Writer, access: &Access, blocks: i64, own: &Totals) {
    [access.mode, access.uid, access.gid].into_iter().for_each(|number| out.unsigned(number.into()));
    out.unsigned(access.acl);
    out.signed(blocks);
    record::put_totals(out, own);
}

fn itself(from: &mut Reader<'_>) -> Option<(Access, i64, Totals)> {
    let access = Access { mode: from.small()?, uid: from.small()?, gid: from.small()?, acl: from.unsigned()? };
    Some((access, from.signed()?, record::read_totals(from)?))
}

pub(super) fn put_seen(out: &mut Writer, seen: &Seen) {
    put_id(out, seen.id);
    out.unsigned(u64::from(seen.links) << 1 | u64::from(seen.is_directory));
    out.fixed(seen.stamp);
    out.signed(seen.changed_at);
}

pub(super) fn seen(from: &mut Reader<'_>) -> Option<Seen> {
    let (id, marks) = (id(from)?, from.unsigned()?);
    let (stamp, changed_at) = (from.fixed()?, from.signed()?);
    Some(Seen { id, is_directory: marks & 1 == 1, links: u32::try_from(marks >> 1).ok()?, stamp, changed_at })
}

#[cfg(test)]
mod tests {
    use onesweep_sys::files::Time;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        custom::{found::FoundName, tally::Tally},
        totals::{Extremes, Largest, Totals},
    };

    #[test]
    fn messages_come_whole_and_bounded() {
        let (one, other) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/").unwrap();
        send(&one, b"hello", Some(file.as_fd())).unwrap();
        send(&one, b"", None).unwrap();
        let (message, came) = receive(&other, 5).unwrap().unwrap();
        assert_eq!((&message[..], came.is_some()), (&b"hello"[..], true));
        assert!(matches!(receive(&other, 5), Ok(Some((message, None))) if message.is_empty()));
        send(&one, b"longer", None).unwrap();
        assert_eq!(receive(&other, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (one, other) = UnixStream::pair().unwrap();
        (&one).write_all(&[9, 0, 0, 0, 1]).unwrap();
        drop(one);
        assert_eq!(receive(&other, 50).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (one, other) = UnixStream::pair().unwrap();
        drop(one);
        assert!(receive(&other, 5).unwrap().is_none());
    }

    #[test]
    fn errors_stay_what_they_are() {
        let told = |error: &io::Error| {
            let mut out = Writer::default();
            put_error(&mut out, error);
            super::error(&mut Reader(&out.0)).unwrap()
        };
        assert_eq!(told(&io::Error::from_raw_os_error(116)).raw_os_error(), Some(116));
        let own = told(&io::Error::new(io::ErrorKind::Unsupported, "not here"));
        assert_eq!((own.kind(), own.to_string()), (io::ErrorKind::Unsupported, "not here".to_owned()));
        assert_eq!(told(&io::ErrorKind::TimedOut.into()).kind(), io::ErrorKind::TimedOut);
        assert_eq!(told(&io::ErrorKind::WriteZero.into()).kind(), io::ErrorKind::Other);
    }

    proptest! {
        #[test]
        fn a_reading_arrives_as_it_left(
            numbers: [u32; 4], acl: u64, fields: [i64; 9], inodes: Vec<u64>, name: Vec<u8>, stamp: u64, error in proptest::option::of(1..200),
            why: Option<String>,
        ) {
            let [ino, generation, links, nanos] = numbers;
            let node = NodeId { subvolume: acl, ino: ino.into(), generation };
            let sums = Sums::of_fields(fields);
            let largest = Largest { directory: 0, bytes: acl, ino: stamp };
            let tally = Tally { entries: [(name.clone(), [fields[3], 0, -1])].into(), unknown: fields[4], ..Tally::default() };
            let found = |why| Found {
                itself: vec![Tally::default(), tally.clone()],
                own: vec![tally.clone(), Tally::default()],
                linked: vec![FoundName { id: node, facts: stamp, tallies: vec![tally.clone(); 2] }],
                failed: vec![(links, why)],
            };
            let newest = Time { secs: fields[0], nanos: nanos % 1_000_000_000 };
            let access = Access { mode: ino, uid: links, gid: generation, acl };
            let own = Totals { sums, extremes: Extremes { newest: Some(newest), largest: Some(largest) } };
            let sent = Reading {
                access,
                blocks: fields[1],
                own,
                directories: vec![(node, name.into())],
                empty: vec![Empty { id: node, access, blocks: fields[4], own, stamp }; inodes.len() % 3],
                inodes,
                linked: vec![LinkedName { id: node, weight: sums, links, facts: stamp }],
                custom: why.map(found),
                changed_at: fields[2],
                stamp,
                unreadable: error.map(io::Error::from_raw_os_error),
                waits: ino,
            };
            let mut out = Writer::default();
            put_reading(&mut out, &sent);
            let mut from = Reader(&out.0);
            let came = reading(&mut from).expect("a reading");
            prop_assert!(from.is_done());
            prop_assert_eq!(format!("{came:?}"), format!("{sent:?}"));
            for length in 0..out.0.len() {
                prop_assert!(reading(&mut Reader(&out.0[..length])).is_none());
            }
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let _ = reading(&mut Reader(&bytes));
            let _ = all(&mut Reader(&bytes), seen);
            let _ = asker(&mut Reader(&bytes));
            let _ = error(&mut Reader(&bytes));
        }
    }
}
