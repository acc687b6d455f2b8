//! How far a question, or a harvest, has got with looking at inodes that change where nothing is told: between some of these and the next
//! ones others have their turn.

use crate::{identity::NodeId, links::LinkKey, nodes::Slot, order::Set};

/// What is still to be looked at, and what needs no further look. Directories are known by their inodes: between two portions the number of
/// one that is gone may be given to another.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Where it looks, and how often it had been found out by then what had changed.
    of: Option<(NodeId, u64)>,
    /// `None` before they are listed.
    pub(super) open: Option<OpenLeft>,
    /// `None` before they are listed.
    pub(super) aliens: Option<Vec<LinkKey>>,
    /// Each was looked at since this began: what it was before that is counted.
    pub(super) open_checked: Set<LinkKey>,
    pub(super) aliens_checked: Set<LinkKey>,
    /// Directories that were listed since it looks through all of them once.
    pub(super) listed: Set<NodeId>,
    /// It has given way since then: others may have come to be below.
    pub(super) has_given_way: bool,
    /// So many had been looked at when that was asked last, and so often there were more.
    got_on_to: usize,
    portions: usize,
}

/// Who makes new ones all the time has nobody wait for ever.
const PORTIONS_MAX: usize = 1 << 12;

/// Of those of which a name may be where nothing is told.
#[derive(Debug, Default)]
pub(super) struct OpenLeft {
    /// The directories that may name some.
    pub(super) places: Vec<NodeId>,
    /// The one that is gone through.
    pub(super) at: Option<At>,
}

/// A directory that names some.
#[derive(Debug)]
pub(super) struct At {
    pub(super) id: NodeId,
    pub(super) slot: Slot,
    pub(super) is_shown: bool,
    /// It names one that is open, or may have come to since it was begun.
    pub(super) has_open: bool,
    pub(super) left: Vec<LinkKey>,
}

impl OpenLeft {
    pub(super) fn is_over(&self) -> bool {
        self.places.is_empty() && self.at.is_none()
    }
}

impl Looks {
    /// Goes on below a directory: from the beginning where it isn't the one it was, or what was known has been found out anew meanwhile.
    pub(super) fn go_on(&mut self, below: NodeId, searches: u64) {
        if self.of != Some((below, searches)) {
            *self = Looks { of: Some((below, searches)), ..Looks::default() };
        }
    }

    /// All is looked through, once.
    pub(super) fn is_through(&mut self) {
        (self.has_given_way, self.listed) = (false, Set::default());
    }

    /// Whether more were looked at since this was asked.
    pub(super) fn have_got_on(&mut self) -> bool {
        let looked_at = self.open_checked.len() + self.aliens_checked.len();
        let have_got_on = std::mem::replace(&mut self.got_on_to, looked_at) < looked_at;
        self.portions += usize::from(have_got_on);
        have_got_on && self.portions <= PORTIONS_MAX
    }
}
