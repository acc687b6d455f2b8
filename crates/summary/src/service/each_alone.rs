//! Lines of directories, each as if it were asked for alone: as their history is noted, so that what was and what is can be compared.
//!
//! So an inode with names in several of them counts in each, and others have their turn while they are looked at.

use super::{
    looking::{LOOKS_MAX, Look, Looking},
    protocol::{Head, Question, Refusal, Row},
    server::{Held, MOST, Reached, TOO_MUCH},
};
use crate::{access::Asker, identity::NodeId, nodes::Slot, view::Line};

/// A directory on the way down.
struct Entered {
    id: NodeId,
    name: Vec<u8>,
    line: Line,
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
    let Look { line, is_partial, is_denied } = looking.look(&reached)?;
    let leads_out = line.totals.sums.freed_blocks < line.totals.sums.blocks;
    let mut left = MOST.lines - 1;
    let depth = if is_denied { 0 } else { question.depth };
    let mut way = vec![enter(&reached, (Vec::new(), line), depth, &mut left)?];
    let mut done: Vec<(NodeId, Vec<u8>, Line)> = Vec::new();
    while let Some(at) = way.last_mut() {
        let Some((name, child)) = at.children.pop() else {
            done.extend(way.pop().map(|Entered { id, name, line, .. }| (id, name, line)));
            continue;
        };
        let nodes = &reached.tracked.ledger().nodes;
        let is_in = |slot: &Slot| nodes.parent(*slot).is_some_and(|parent| nodes.id(parent) == at.id);
        let Some(slot) = nodes.find(child).filter(is_in) else { continue };
        let look;
        (reached, look) = Looking::at(&reached, slot, true).finish(reached, asker, &mut looks)?;
        let below = way.len() as u32;
        let depth = if look.is_denied { 0 } else { question.depth.saturating_sub(below) };
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
    let left_out = reached.left_out(&looking.hidden(&reached))?;
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
            children.push((reached.record(child)?.name, nodes.id(child)));
        }
        children.sort_unstable_by(|one, other| other.cmp(one));
    }
    Ok(Entered { id: nodes.id(line.slot), name, line, children })
}
