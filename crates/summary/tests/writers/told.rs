//! What the tree tells of its changes.

use std::{collections::BTreeSet, io};

use onesweep_summary::{
    identity::NodeId,
    tracker::{Drained, Tracker},
};

use crate::tree::Tree;

impl Tracker for Tree {
    fn drain(&self) -> io::Result<Drained> {
        let mut state = self.state();
        state.end_round();
        for ino in std::mem::take(&mut state.to_heed) {
            state.ignored.remove(&ino);
        }
        let lost = std::mem::take(&mut state.lose);
        let changes = std::mem::take(&mut state.told);
        Ok(Drained { changes: if lost { Vec::new() } else { changes }, lost })
    }

    fn is_quiet(&self) -> bool {
        let mut state = self.state();
        state.end_round();
        state.told.is_empty() && !state.lose
    }

    fn heed(&self, directory: NodeId) {
        let mut state = self.state();
        state.trace.push(("heed", directory.ino));
        if state.is_woven {
            state.to_heed.insert(directory.ino);
        } else {
            state.ignored.remove(&directory.ino);
        }
    }

    fn heed_all(&self) -> bool {
        let mut state = self.state();
        (state.ignored, state.to_heed) = (BTreeSet::new(), BTreeSet::new());
        true
    }

    fn keep_heeding(&self, directory: NodeId, keep: bool) {
        let mut state = self.state();
        if keep {
            state.heeded.insert(directory.ino);
            state.ignored.remove(&directory.ino);
        } else {
            state.heeded.remove(&directory.ino);
        }
    }

    fn start_anew(&self) {
        let mut state = self.state();
        (state.ignored, state.heeded, state.lose) = (BTreeSet::new(), BTreeSet::new(), true);
    }
}
