//! All directories below one, a portion at a time, each by itself: for who wants more lines than one answer has.
//!
//! All that waits while a portion is gathered, and all that it takes, is bounded, whatever lies below. In return who asks puts the
//! directories together: adds up what is in each, and counts an inode with several names where it comes first. Directories come
//! in the order of their numbers in the store, as in pages, each as it is when its portion is asked for.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::{
    left_out::DENIED,
    protocol::{Figures, Name, Question, Refusal},
    server::{Reached, Server},
    ways::Ways,
};
use crate::{access::Asker, identity::NodeId, links::LinkKey, nodes::Slot};

/// Directories of a portion, at most.
const PIECES_MAX: usize = 1000;
/// Numbers that are looked at for a portion, at most.
const SCAN_MAX: usize = 200_000;
/// Inodes with several names of a portion, at most: each takes a look into the store.
const LINKS_MAX: usize = 5000;

/// Where a portion begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// The number of its first directory; 0 at first, then as [`PortionHead::next`] says.
    pub from: u32,
    /// So many inodes with several names of that directory were told before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub links: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How a portion begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortionHead {
    /// Directories that follow, which may be none though there is a next portion.
    pub lines: u64,
    /// Where the next one begins; none after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Tells a directory from all others of the file system: subvolume, inode, generation.
pub type PieceId = [u64; 3];

/// One directory. One with very many links comes in several portions, the rest of which tell further links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Which it is.
    pub id: PieceId,
    /// The directory that it is in; none of the one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<PieceId>,
    /// Its name there; empty of the one that was asked for.
    pub name: Name,
    /// The directory itself and its entries, but for the directories in it and for inodes with several names; `freed` is what
    /// removing the entries would free.
    pub own: Figures,
    /// Bytes that removing it with all below would free; 0 where something below may be left out.
    pub freed: i64,
    /// The inodes with several names that it names, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Why not all that is in it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// An inode with several names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its number in the subvolume of the directory.
    pub ino: u64,
    /// Bytes as its size tells them.
    pub bytes: i64,
    /// Bytes that are allocated.
    pub allocated: i64,
    /// It is a regular file.
    pub is_file: bool,
}

impl Server {
    /// A portion of the directories at and below the one of a question, of which the asker would see lines in `du`.
    pub(super) fn portion(
        &self,
        asker: &Asker,
        question: &Question,
        file: Option<OwnedFd>,
        cursor: Cursor,
    ) -> Result<(PortionHead, Vec<Piece>), Refusal> {
        let volumes = self.volumes();
        let reached = self.reach(&volumes, (asker, question), file)?;
        let nodes = &reached.tracked.ledger().nodes;
        let mut ways = Ways::new(&reached, asker, question.one_file_system);
        let (mut pieces, mut room) = (Vec::new(), LINKS_MAX);
        let (mut at, mut told, bound) = (cursor.from as usize, cursor.links as usize, nodes.bound());
        let end = bound.min(at.saturating_add(SCAN_MAX));
        while at < end && pieces.len() < PIECES_MAX && room > 0 {
            // There are no more than 4 billion.
            let slot = Slot(at as u32);
            if let Some((piece, is_whole)) = piece(&reached, asker, &mut ways, slot, (told, room))? {
                room -= piece.links.len();
                told += piece.links.len();
                pieces.push(piece);
                if !is_whole {
                    break;
                }
            }
            (at, told) = (at + 1, 0);
        }
        let next = (at < bound).then_some(Cursor { from: at as u32, links: u32::try_from(told).unwrap_or(u32::MAX) });
        Ok((PortionHead { lines: pieces.len() as u64, next }, pieces))
    }
}

/// A directory, with so many links behind those that were told, and whether these are the last; `None` when it lies elsewhere, or
/// the asker may not know of it.
fn piece(
    reached: &Reached<'_>,
    asker: &Asker,
    ways: &mut Ways<'_>,
    slot: Slot,
    (told, room): (usize, usize),
) -> Result<Option<(Piece, bool)>, Refusal> {
    let ledger = reached.tracked.ledger();
    let nodes = &ledger.nodes;
    if !nodes.is_used(slot) {
        return Ok(None);
    }
    let above = match nodes.parent(slot) {
        _ if slot == reached.slot => None,
        Some(above) if ways.counts(slot) && ways.is_open(above)? => Some(above),
        _ => return Ok(None),
    };
    let record = reached.record(slot)?;
    let name: &[u8] = if above.is_some() { &record.name } else { b"" };
    let (id, parent) = (numbers(nodes.id(slot)), above.map(|above| numbers(nodes.id(above))));
    let piece =
        Piece { id, parent, name: Name::of(name), own: Figures::default(), freed: 0, links: vec![], left_out: None };
    let sees_all = *asker == Asker::Everything;
    if !sees_all && !reached.may_list(asker, slot, &record.access) {
        let own = Figures::of(&record.itself());
        return Ok(Some((Piece { own, left_out: Some(DENIED.to_owned()), ..piece }, true)));
    }
    let subvolume = nodes.id(slot).subvolume;
    let mut inodes = record.links.clone();
    inodes.dedup();
    let mut links = Vec::new();
    for &ino in inodes.iter().skip(told).take(room) {
        // One of which nothing is known counts nowhere.
        let linked = ledger.linked(LinkKey { subvolume, ino }).map_err(|error| Refusal::Failed(error.to_string()))?;
        let Figures { bytes, allocated, files, .. } =
            linked.map(|linked| Figures::of(&linked.weight)).unwrap_or_default();
        links.push(Link { ino, bytes, allocated, is_file: files > 0 });
    }
    let is_whole = sees_all || (record.subtree.sums.closed == 0 && !nodes.may_be_unsure(slot));
    let freed = if is_whole { Figures::of(&record.subtree.sums).freed } else { 0 };
    let own = Figures { freed: Figures::of(&record.alone().sums).freed, ..Figures::of(&record.own.sums) };
    let left_out = reached.why_unreadable(slot);
    let is_whole = told + links.len() >= inodes.len();
    Ok(Some((Piece { own, freed, links, left_out, ..piece }, is_whole)))
}

fn numbers(NodeId { subvolume, ino, generation }: NodeId) -> PieceId {
    [subvolume, ino, generation.into()]
}
