//! Which directories an asker comes to from the one that was asked for.

use std::collections::HashMap;

use super::{protocol::Refusal, server::Reached};
use crate::{access::Asker, nodes::Slot};

/// Ways down to directories, as far as they are known.
pub(super) struct Ways<'a> {
    pub(super) reached: &'a Reached<'a>,
    asker: &'a Asker,
    /// The only one in which directories count.
    subvolume: Option<u64>,
    /// Whether directories lie there, and they and all on the way may be listed.
    known: HashMap<Slot, bool>,
}

impl<'a> Ways<'a> {
    /// From the directory that was asked for; without those into other subvolumes where only its own counts.
    pub(super) fn new(reached: &'a Reached<'a>, asker: &'a Asker, one_subvolume: bool) -> Ways<'a> {
        let subvolume = one_subvolume.then(|| reached.tracked.ledger().nodes.id(reached.slot).subvolume);
        Ways { reached, asker, subvolume, known: HashMap::new() }
    }

    /// Whether a directory lies at or below the top, and it and all on the way may be listed.
    pub(super) fn is_open(&mut self, slot: Slot) -> Result<bool, Refusal> {
        let nodes = &self.reached.tracked.ledger().nodes;
        let mut way = Vec::new();
        let mut is_open = false;
        for at in nodes.upwards(slot) {
            if let Some(&known) = self.known.get(&at) {
                is_open = known;
                break;
            }
            way.push(at);
            if at == self.reached.slot {
                is_open = true;
                break;
            }
        }
        for at in way.into_iter().rev() {
            is_open = is_open && self.counts(at) && {
                *self.asker == Asker::Everything
                    || self.reached.may_list(self.asker, at, &self.reached.record(at)?.access)
            };
            self.known.insert(at, is_open);
        }
        Ok(is_open)
    }

    /// Whether a directory is in a subvolume that counts.
    pub(super) fn counts(&self, slot: Slot) -> bool {
        self.subvolume.is_none_or(|subvolume| self.reached.tracked.ledger().nodes.id(slot).subvolume == subvolume)
    }
}
