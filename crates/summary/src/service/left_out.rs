//! What an answer leaves out, by name, and why.

use std::collections::HashSet;

use super::{
    protocol::{LEFT_OUT_MAX, LeftOut, Name, Refusal},
    server::{Reached, refusal},
    ways::Ways,
};
use crate::{access::Asker, nodes::Slot};

/// Why a directory is left out that the asker may not list.
pub(super) const DENIED: &str = "Permission denied";
/// Names of a path that is told of what is left out, at most.
const PATH_STEPS_MAX: usize = 256;

/// The directories that are hidden from the asker, and those that could not be read, as far as the asker would come to them.
pub(super) fn left_out(reached: &Reached<'_>, hidden: &[Slot]) -> Result<Vec<LeftOut>, Refusal> {
    let (nodes, top) = (&reached.tracked.ledger().nodes, reached.slot);
    let is_hidden: HashSet<Slot> = hidden.iter().copied().collect();
    let is_seen = |slot| !nodes.upwards(slot).take_while(|&at| at != top).any(|at| is_hidden.contains(&at));
    let unreadable = reached.tracked.unreadable(top).filter(|(slot, _)| !is_hidden.contains(&top) && is_seen(*slot));
    named(reached, hidden.iter().map(|&slot| (slot, DENIED)).chain(unreadable))
}

/// The same where others had their turn since these were found to be hidden: where they lie by now is told only where the asker would
/// come to them there.
pub(super) fn left_out_by_now(reached: &Reached<'_>, asker: &Asker, hidden: &[Slot]) -> Result<Vec<LeftOut>, Refusal> {
    let nodes = &reached.tracked.ledger().nodes;
    let mut ways = Ways::new(reached, asker, false);
    let mut denied = Vec::new();
    for &slot in hidden {
        let is_named = match nodes.parent(slot) {
            _ if slot == reached.slot => true,
            Some(above) => ways.is_open(above)?,
            None => false,
        };
        denied.extend(is_named.then_some((slot, DENIED)));
        if denied.len() == LEFT_OUT_MAX {
            break;
        }
    }
    let shown: HashSet<Slot> = reached.unreadable(asker)?.into_iter().collect();
    let unreadable = reached.tracked.unreadable(reached.slot).filter(|(slot, _)| shown.contains(slot));
    named(reached, denied.into_iter().chain(unreadable))
}

fn named<'a>(reached: &Reached<'_>, all: impl Iterator<Item = (Slot, &'a str)>) -> Result<Vec<LeftOut>, Refusal> {
    let nodes = &reached.tracked.ledger().nodes;
    let mut left_out = Vec::new();
    for (slot, why) in all.take(LEFT_OUT_MAX) {
        // One that is deeper than a path can be isn't named.
        if nodes.upwards(slot).take(PATH_STEPS_MAX + 1).count() <= PATH_STEPS_MAX {
            let path = reached.tracked.path(reached.slot, slot).map_err(refusal)?.join(&b'/');
            left_out.push(LeftOut { path: Name::of(&path), why: why.to_owned() });
        }
    }
    left_out.sort();
    Ok(left_out)
}
