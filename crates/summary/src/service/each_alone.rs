//! Lines of directories, each as if it were asked for alone: as their history is noted, so that what was and what is can be compared.
//!
//! So an inode with names in several of them counts in each, and others have their turn while they are looked at.

use super::{
    left_out::left_out_by_now,
    looking::{LOOKS_MAX, Look, Looking},
    protocol::{Head, Question, Refusal, Row},
    server::{Held, MOST, Reached, TOO_MUCH},
    ways::Ways,
};
use crate::{access::Asker, identity::NodeId, nodes::Slot, view::Line};

/// A directory on the way down.
struct Entered {
    id: NodeId,
    name: Vec<u8>,
    line: Line,
    /// So often others had had their turn when it was known last that it may be listed, and all on the way to it.
    known_at: u64,
    /// Those in it that aren't done, the last first.
    children: Vec<(Vec<u8>, NodeId)>,
}

/// The answer to a question for lines: each directory after those in it, these in the order of their names.
pub(super) fn each_alone(
    reached: Reached<'_>,
    asker: &Asker,
    question: &Question,
) -> Result<(Head, Vec<Row>), Refusal> {
    let may_note = matches!(reached.tracked, Held::Alone(_));
    let mut looks = LOOKS_MAX;
    let looking = Looking::at(&reached, reached.slot, true);
    let (mut reached, looking) = looking.go_through(reached, asker, &mut looks)?;
    let Look { line, mut is_partial, is_denied } = looking.look(&reached).ok_or(Refusal::NotTracked)?;
    let leads_out = line.totals.sums.freed_blocks < line.totals.sums.blocks;
    let mut left = MOST.lines - 1;
    let depth = if is_denied { 0 } else { question.depth };
    let is_open = may_list(&reached, asker, line.slot)?;
    let depth = if is_open { depth } else { 0 };
    let mut way = vec![enter(&reached, (Vec::new(), line), depth, &mut left)?];
    let mut done: Vec<(NodeId, Vec<u8>, Line)> = Vec::new();
    while let Some(at) = way.last_mut() {
        let Some((name, child)) = at.children.pop() else {
            done.extend(way.pop().map(|Entered { id, name, line, .. }| (id, name, line)));
            continue;
        };
        let Some(slot) = child_of(&reached, asker, at, child)? else { continue };
        let look;
        (reached, look) = Looking::at(&reached, slot, true).finish(reached, asker, &mut looks)?;
        // It may be gone by now.
        let Some(look) = look else { continue };
        // Also where all was open when the topmost was looked at.
        is_partial |= look.is_partial;
        // It may have been closed while what is below was looked at, and any on the way to it.
        let is_open = match at.known_at == reached.turns {
            true => may_list(&reached, asker, look.line.slot)?,
            false => Ways::new(&reached, asker, false).is_open(look.line.slot)?,
        };
        let below = way.len() as u32;
        let depth = if look.is_denied || !is_open { 0 } else { question.depth.saturating_sub(below) };
        way.push(enter(&reached, (name, Line { depth: below, ..look.line }), depth, &mut left)?);
    }
    let since = question.since.filter(|_| !is_partial);
    if since.is_some() && may_note {
        reached = reached.alone().ok_or(Refusal::NotTracked)?;
    }
    // Numbers may have become others'.
    let nodes = &reached.tracked.ledger().nodes;
    done.retain_mut(|(id, _, line)| nodes.find(*id).map(|slot| line.slot = slot).is_some());
    if since.is_some() {
        let lines: Vec<Line> = done.iter().map(|(_, _, line)| line.clone()).collect();
        reached.remember_largest(&lines)?;
    }
    let left_out = left_out_by_now(&reached, asker, &looking.hidden(&reached))?;
    let mut rows = Vec::with_capacity(done.len());
    for (_, name, line) in done {
        let mut row = Row::of(&line, &name, is_partial);
        // What was left out then can't be told from what is left out now.
        if let Some(since) = since {
            row.past = reached.past(line.slot, since)?;
        }
        rows.push(row);
    }
    Ok((Head { leads_out, left_out, ..reached.head(rows.len(), is_partial) }, rows))
}

/// One of the directories in another one, where it still lies there and the asker still comes to it.
fn child_of(reached: &Reached<'_>, asker: &Asker, at: &mut Entered, child: NodeId) -> Result<Option<Slot>, Refusal> {
    let nodes = &reached.tracked.ledger().nodes;
    let Some(slot) = nodes.find(child) else { return Ok(None) };
    let Some(parent) = nodes.parent(slot).filter(|&parent| nodes.id(parent) == at.id) else { return Ok(None) };
    if at.known_at != reached.turns {
        if !Ways::new(reached, asker, false).is_open(parent)? {
            return Ok(None);
        }
        at.known_at = reached.turns;
    }
    Ok(Some(slot))
}

fn may_list(reached: &Reached<'_>, asker: &Asker, slot: Slot) -> Result<bool, Refusal> {
    Ok(reached.may_list(asker, slot, &reached.record(slot)?.access))
}

fn enter(
    reached: &Reached<'_>,
    (name, line): (Vec<u8>, Line),
    depth: u32,
    left: &mut usize,
) -> Result<Entered, Refusal> {
    let ledger = reached.tracked.ledger();
    let nodes = &ledger.nodes;
    let mut children = Vec::new();
    if depth > 0 {
        let count = nodes.children(line.slot).take(left.saturating_add(1)).count();
        *left = left.checked_sub(count).ok_or_else(|| Refusal::Failed(TOO_MUCH.to_owned()))?;
        for child in nodes.children(line.slot) {
            children.push((reached.record(child)?.name.into_vec(), nodes.id(child)));
        }
        children.sort_unstable_by(|one, other| other.cmp(one));
    }
    Ok(Entered { id: nodes.id(line.slot), name, line, known_at: reached.turns, children })
}
