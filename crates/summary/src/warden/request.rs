//! What the daemon may ask of the warden. That is all that a daemon which somebody else has taken over could do.

use super::wire::{all, asker, id, put_all, put_asker, put_id};
use crate::{
    access::Asker,
    code::{Reader, Writer},
    identity::{Family, NodeId},
    survey::Method,
};

/// Bytes of a request, at most.
pub(super) const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Bytes of a reply, at most: a directory of a hundred million files.
pub(super) const REPLY_BYTES_MAX: usize = 1 << 30;
/// Directories that are named in one request.
pub(super) const IDS_MAX: usize = 4096;

/// How a reply begins.
pub(super) const DONE: u64 = 0;
pub(super) const FAILED: u64 = 1;
/// Something on the way to it: a question back, or a part.
pub(super) const PART: u64 = 2;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Reads the settings again, and tells the summaries and the file systems that they name.
    FileSystems,
    /// Opens a directory where the asker could come to it, if it is on one of the file systems.
    Open(Asker, Vec<u8>),
    /// Whether the asker could have come to the open directory that is sent along.
    CheckWay(Asker),
    /// Who has which token by HTTP.
    Tokens,
    /// Much was asked, and isn't any more: memory that is free is given back.
    GiveBack,
    /// One of the file systems isn't tracked after all: nothing of it stays open, and it is watched no longer.
    Forget(u32),
    /// About one of the file systems.
    Of(u32, Ask),
}

/// What is asked about a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    SetKey(u64),
    Read(Vec<NodeId>, u64),
    Look(NodeId),
    LookEach(Vec<NodeId>),
    BeginBulk,
    EndBulk,
    IsWritten(NodeId),
    AreWritten(Vec<NodeId>),
    OpenByLostNames,
    OpenForWriting,
    Sync,
    /// Most of it, or these and what the daemon says when asked.
    BringIn(Option<Vec<NodeId>>),
    Parent(NodeId),
    Remounted,
    Generation,
    Survey(u64, Vec<u64>),
    Ignore(Vec<NodeId>),
    Heed(Vec<NodeId>),
    /// A directory, for its facts alone.
    HandleOf(NodeId),
    AccessList(NodeId),
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Request::FileSystems => out.unsigned(0),
            Request::Open(asker, path) => {
                out.unsigned(1);
                put_asker(&mut out, asker);
                out.bytes(path);
            }
            Request::CheckWay(asker) => {
                out.unsigned(2);
                put_asker(&mut out, asker);
            }
            Request::Tokens => out.unsigned(3),
            Request::GiveBack => out.unsigned(5),
            Request::Forget(number) => {
                out.unsigned(6);
                out.unsigned((*number).into());
            }
            Request::Of(number, ask) => {
                out.unsigned(4);
                out.unsigned((*number).into());
                ask.put(&mut out);
            }
        }
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Request> {
        let mut from = Reader(bytes);
        let request = match from.unsigned()? {
            0 => Request::FileSystems,
            1 => Request::Open(asker(&mut from)?, from.bytes()?.to_vec()),
            2 => Request::CheckWay(asker(&mut from)?),
            3 => Request::Tokens,
            4 => Request::Of(from.small()?, Ask::take(&mut from)?),
            5 => Request::GiveBack,
            6 => Request::Forget(from.small()?),
            _ => return None,
        };
        from.is_done().then_some(request)
    }
}

impl Ask {
    fn put(&self, out: &mut Writer) {
        let number = match self {
            Ask::SetKey(_) => 0,
            Ask::Read(..) => 1,
            Ask::Look(_) => 2,
            Ask::IsWritten(_) => 3,
            Ask::OpenByLostNames => 4,
            Ask::Sync => 5,
            Ask::BringIn(None) => 6,
            Ask::BringIn(Some(_)) => 7,
            Ask::Parent(_) => 8,
            Ask::Remounted => 9,
            Ask::Generation => 10,
            Ask::Survey(..) => 11,
            Ask::Ignore(_) => 12,
            Ask::Heed(_) => 13,
            Ask::HandleOf(_) => 14,
            Ask::AccessList(_) => 15,
            Ask::OpenForWriting => 16,
            Ask::LookEach(_) => 17,
            Ask::AreWritten(_) => 18,
            Ask::BeginBulk => 19,
            Ask::EndBulk => 20,
        };
        out.unsigned(number);
        match self {
            Ask::SetKey(key) => out.fixed(*key),
            Ask::Read(ids, entries_max) => {
                put_all(out, ids, |out, &id| put_id(out, id));
                out.unsigned(*entries_max);
            }
            Ask::BringIn(Some(ids)) | Ask::Ignore(ids) | Ask::Heed(ids) | Ask::LookEach(ids) | Ask::AreWritten(ids) => {
                put_all(out, ids, |out, &id| put_id(out, id))
            }
            Ask::Look(id) | Ask::IsWritten(id) | Ask::Parent(id) => put_id(out, *id),
            Ask::HandleOf(id) | Ask::AccessList(id) => put_id(out, *id),
            Ask::Survey(since, subvolumes) => {
                out.unsigned(*since);
                put_all(out, subvolumes, |out, &subvolume| out.unsigned(subvolume));
            }
            Ask::OpenByLostNames
            | Ask::BeginBulk
            | Ask::EndBulk
            | Ask::OpenForWriting
            | Ask::Sync
            | Ask::BringIn(None)
            | Ask::Remounted
            | Ask::Generation => {}
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Ask> {
        Some(match from.unsigned()? {
            0 => Ask::SetKey(from.fixed()?),
            1 => Ask::Read(all(from, id)?, from.unsigned()?),
            2 => Ask::Look(id(from)?),
            3 => Ask::IsWritten(id(from)?),
            4 => Ask::OpenByLostNames,
            5 => Ask::Sync,
            6 => Ask::BringIn(None),
            7 => Ask::BringIn(Some(all(from, id)?)),
            8 => Ask::Parent(id(from)?),
            9 => Ask::Remounted,
            10 => Ask::Generation,
            11 => Ask::Survey(from.unsigned()?, all(from, Reader::unsigned)?),
            12 => Ask::Ignore(all(from, id)?),
            13 => Ask::Heed(all(from, id)?),
            14 => Ask::HandleOf(id(from)?),
            15 => Ask::AccessList(id(from)?),
            16 => Ask::OpenForWriting,
            17 => Ask::LookEach(all(from, id)?),
            18 => Ask::AreWritten(all(from, id)?),
            19 => Ask::BeginBulk,
            20 => Ask::EndBulk,
            _ => return None,
        })
    }
}

/// The number of a method, and the other way around.
pub(super) const METHODS: [Option<Method>; 3] = [None, Some(Method::Sums), Some(Method::Generations)];

/// How handles are laid out, as it is told; none where there are none.
pub(super) const FAMILIES: [Option<Family>; 5] =
    [Some(Family::Short), Some(Family::Long), Some(Family::Btrfs), Some(Family::Shmem), None];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_arrive_as_they_left(number: u32, key: u64, path: Vec<u8>, groups: Vec<u32>) {
            let node = NodeId { subvolume: key, ino: key.rotate_left(9), generation: number };
            let user = Asker::User { uid: number, groups };
            let asks = [
                Ask::SetKey(key),
                Ask::Read(vec![node; 3], key),
                Ask::Look(node),
                Ask::LookEach(vec![node; 2]),
                Ask::IsWritten(node),
                Ask::AreWritten(vec![node; 2]),
                Ask::BeginBulk,
                Ask::EndBulk,
                Ask::OpenByLostNames,
                Ask::OpenForWriting,
                Ask::Sync,
                Ask::BringIn(None),
                Ask::BringIn(Some(vec![node])),
                Ask::Parent(node),
                Ask::Remounted,
                Ask::Generation,
                Ask::Survey(key, vec![5, key]),
                Ask::Ignore(Vec::new()),
                Ask::Heed(vec![node; 2]),
                Ask::HandleOf(node),
                Ask::AccessList(node),
            ];
            let others = [
                Request::FileSystems,
                Request::Open(Asker::Everything, path.clone()),
                Request::Open(user.clone(), path),
                Request::CheckWay(user),
                Request::Tokens,
                Request::GiveBack,
                Request::Forget(number),
            ];
            for request in asks.into_iter().map(|ask| Request::Of(number, ask)).chain(others) {
                let bytes = request.encode();
                prop_assert_eq!(Request::decode(&bytes), Some(request));
                prop_assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None);
                for length in 0..bytes.len() {
                    prop_assert_eq!(Request::decode(&bytes[..length]), None);
                }
            }
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let _ = Request::decode(&bytes);
        }
    }
}
