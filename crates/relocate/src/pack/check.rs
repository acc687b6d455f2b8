//! Whether the places that files are to come to do any harm: asked of each region before anything is moved.

use thiserror::Error;

use super::Piece;
use crate::places::{Places, Run};

/// Why files must not come to these places.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Flaw {
    /// There are more files than places for them, or fewer.
    #[error("{files} files would have the places of {fitted}")]
    Count {
        /// Files.
        files: usize,
        /// Those that have places.
        fitted: usize,
    },
    /// The file, by its turn among these, would have other blocks than before.
    #[error("file {0} would have other blocks than before")]
    Blocks(usize),
    /// Two blocks would lie there.
    #[error("two blocks would lie at place {0}")]
    Twice(u64),
    /// The place is not held for them.
    #[error("place {0} is not held")]
    NotHeld(u64),
}

/// Does each file keep the blocks that it has, each at a place of its own that is held? Pieces may come in any order.
///
/// # Errors
///
/// The first flaw that is found.
pub fn check(files: &[&Places], fitted: &[Places], held: impl IntoIterator<Item = Piece>) -> Result<(), Flaw> {
    if files.len() != fitted.len() {
        return Err(Flaw::Count { files: files.len(), fitted: fitted.len() });
    }
    let differs = |(before, after): (&&Places, &Places)| blocks_of(before) != blocks_of(after);
    if let Some(turn) = files.iter().zip(fitted).position(differs) {
        return Err(Flaw::Blocks(turn));
    }
    let mut runs: Vec<Run> = fitted.iter().flat_map(Places::runs).copied().collect();
    runs.sort_by_key(|run| run.place);
    if let Some(pair) = runs.windows(2).find(|pair| pair[1].place < pair[0].end()) {
        return Err(Flaw::Twice(pair[1].place));
    }
    let mut held: Vec<Piece> = held.into_iter().collect();
    held.sort_by_key(|piece| piece.place);
    let mut pieces = held.into_iter().peekable();
    for run in runs {
        let mut place = run.place;
        while place < run.end() {
            while pieces.next_if(|piece| piece.place + piece.blocks <= place).is_some() {}
            match pieces.peek() {
                Some(piece) if piece.place <= place => place = piece.place + piece.blocks,
                _ => return Err(Flaw::NotHeld(place)),
            }
        }
    }
    Ok(())
}

/// The numbers of the blocks that a file has: first and behind the last, those that go on from each other as one.
fn blocks_of(places: &Places) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for run in places.runs() {
        match all.last_mut() {
            Some(last) if last.1 == run.logical => last.1 = run.logical_end(),
            _ => all.push((run.logical, run.logical_end())),
        }
    }
    all
}
