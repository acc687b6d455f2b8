//! What a directory came to over time, for one asker.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::{
    listing::path_in,
    looking::{LOOKS_MAX, Look, Looking},
    protocol::{Name, Past, Question, Refusal},
    server::{Held, Reached, Server, refusal},
};
use crate::{access::Asker, history::History, nodes::Slot, view::Line};

/// So many lines of an answer are noted from then on, of each order.
const NOTED_LINES_MAX: usize = 100;

/// A directory over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// Where it is, from the root of all.
    pub path: Name,
    /// Something in it is left out for the asker: then there are no points, for they count that, too.
    pub partial: bool,
    /// What it came to, from the oldest on: from when somebody asked for it first.
    pub points: Vec<Past>,
}

impl Server {
    /// The directory of a question over time.
    pub fn growth(&self, asker: &Asker, question: &Question) -> Result<Growth, Refusal> {
        let volumes = self.volumes();
        let mut reached = self.reach(&volumes, (asker, question), None)?;
        let slot = reached.slot;
        let (mut looking, mut looks) = (Looking::at(&reached, slot, false), LOOKS_MAX);
        if !looking.go_on(&reached, asker, &mut looks)? && !reached.is_denied {
            // Others change what is stored meanwhile, and then nothing can be noted.
            reached.remember(slot)?;
        }
        let (mut reached, look) = looking.finish(reached, asker, &mut looks)?;
        let Look { is_partial: partial, .. } = look.ok_or(Refusal::NotTracked)?;
        let points = if partial { Vec::new() } else { reached.points(reached.slot)? };
        Ok(Growth { path: path_in(&reached)?, partial, points })
    }
}

impl Reached<'_> {
    /// What a directory came to then.
    pub(super) fn past(&self, slot: Slot, since: i64) -> Result<Option<Past>, Refusal> {
        Ok(Past::since(&self.history(slot)?, since))
    }

    /// All that is known of what a directory came to; from now on it is noted.
    pub(super) fn points(&mut self, slot: Slot) -> Result<Vec<Past>, Refusal> {
        self.remember(slot)?;
        Ok(self.history(slot)?.points().iter().map(Past::of).collect())
    }

    /// From now on the largest are noted, by what is allocated and by inodes: who asks for lines tells the first of them, and there is no
    /// room for all.
    pub(super) fn remember_largest(&mut self, lines: &[Line]) -> Result<(), Refusal> {
        let keys: [fn(&Line) -> i64; 2] = [|line| line.totals.sums.blocks, |line| line.totals.sums.inodes()];
        for key in keys {
            let mut largest: Vec<&Line> = lines.iter().collect();
            if largest.len() > NOTED_LINES_MAX {
                largest.select_nth_unstable_by_key(NOTED_LINES_MAX, |line| Reverse(key(line)));
            }
            largest.iter().take(NOTED_LINES_MAX).try_for_each(|line| self.remember(line.slot))?;
        }
        Ok(())
    }

    fn remember(&mut self, slot: Slot) -> Result<(), Refusal> {
        match &mut self.tracked {
            Held::Alone(tracked) => tracked.remember(slot).map_err(refusal),
            Held::Shared(_) => Ok(()),
        }
    }

    fn history(&self, slot: Slot) -> Result<History, Refusal> {
        let history = self.tracked.history(slot).map_err(refusal)?;
        Ok(match self.user {
            Some(uid) => history.for_user(uid),
            None => history,
        })
    }
}
