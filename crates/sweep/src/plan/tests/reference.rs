//! The algorithms of DAFT II.C once more, as the paper tells them and without a thought for speed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Layout, Piece};

/// Which bin each file is in, by first fit: "when the first fragment of a file is encountered, the algorithm checks the
/// first bin to see if it has enough free space [...]. Otherwise, the algorithm checks subsequent bins the same way and
/// creates a new bin if no existing bin can hold the file. After the last fragment of a file is fetched, the algorithm
/// removes the file from its bin".
pub(super) fn first_fit(layout: &Layout, budget: u64) -> BTreeMap<u32, u32> {
    let mut bins: Vec<u64> = Vec::new();
    let mut bin_of = BTreeMap::new();
    let all = layout.sorted();
    for (at, piece) in all.iter().enumerate() {
        let cost = layout.costs[piece.file as usize];
        let bin = *bin_of.entry(piece.file).or_insert_with(|| {
            let bin = bins.iter().position(|used| used + cost <= budget).unwrap_or(bins.len());
            bins.resize(bins.len().max(bin + 1), 0);
            bins[bin] += cost;
            bin as u32
        });
        if !all[at + 1..].iter().any(|later| later.file == piece.file) {
            bins[bin as usize] -= cost;
        }
    }
    bin_of
}

/// The order in which on-demand cleaning reads the pieces: when the file that comes next doesn't fit, it "reads in all
/// the remaining fragments of the pending files in the sorted order, and completes all the pending files", then
/// "proceeds from the last fetched fragment that triggers the on-demand cleaning".
pub(super) fn on_demand(layout: &Layout, budget: u64) -> Vec<Piece> {
    let all = layout.sorted();
    let mut read: Vec<Piece> = Vec::new();
    let mut pending: BTreeSet<u32> = BTreeSet::new();
    for piece in &all {
        if read.contains(piece) {
            continue;
        }
        if !pending.contains(&piece.file) {
            let held: u64 = pending.iter().map(|&file| layout.costs[file as usize]).sum();
            if held + layout.costs[piece.file as usize] > budget {
                let rest: Vec<_> = all.iter().filter(|p| pending.contains(&p.file) && !read.contains(p)).collect();
                read.extend(rest);
                pending.clear();
            }
            pending.insert(piece.file);
        }
        read.push(*piece);
        if all.iter().filter(|other| other.file == piece.file).all(|other| read.contains(other)) {
            pending.remove(&piece.file);
        }
    }
    read
}

/// One step of [`batched`]: the piece, its bin, and the clean-ups that the bin has begun.
pub(super) type Read = (Piece, u32, u32);

/// Both and all between, by the definition of the batch threshold.
pub(super) fn batched(layout: &Layout, budget: u64, threshold: u64) -> Vec<Read> {
    let mut bins = Bins { layout, all: layout.sorted(), budget, read: Vec::new(), pending: BTreeSet::new() };
    let mut waiting: BTreeSet<u32> = bins.all.iter().map(|piece| piece.file).collect();
    for bin in 0.. {
        if waiting.is_empty() {
            break;
        }
        waiting = bins.pass(waiting, bin, threshold);
    }
    bins.read
}

struct Bins<'a> {
    layout: &'a Layout,
    all: Vec<Piece>,
    budget: u64,
    read: Vec<Read>,
    pending: BTreeSet<u32>,
}

impl Bins<'_> {
    fn free(&self) -> u64 {
        self.budget - self.pending.iter().map(|&file| self.layout.costs[file as usize]).sum::<u64>()
    }

    fn is_read(&self, piece: &Piece) -> bool {
        self.read.iter().any(|(read, ..)| read == piece)
    }

    fn take(&mut self, piece: Piece, bin: u32, epoch: u32) {
        self.read.push((piece, bin, epoch));
        if self.all.iter().filter(|other| other.file == piece.file).all(|other| self.is_read(other)) {
            self.pending.remove(&piece.file);
        }
    }

    /// Returns the files that the bin refuses.
    fn pass(&mut self, mut considered: BTreeSet<u32>, bin: u32, threshold: u64) -> BTreeSet<u32> {
        let mut epoch = 0;
        let mut refused = BTreeSet::new();
        for piece in self.all.clone() {
            if self.is_read(&piece) {
                continue;
            }
            while considered.contains(&piece.file) {
                if self.layout.costs[piece.file as usize] <= self.free() {
                    self.pending.insert(piece.file);
                } else if self.free() < threshold {
                    epoch += 1;
                    self.clean_up(bin, epoch, threshold);
                    continue;
                } else {
                    refused.insert(piece.file);
                }
                considered.remove(&piece.file);
            }
            if self.pending.contains(&piece.file) {
                self.take(piece, bin, epoch);
            }
        }
        refused
    }

    fn clean_up(&mut self, bin: u32, epoch: u32, threshold: u64) {
        for piece in self.all.clone() {
            if self.free() >= threshold {
                return;
            }
            if self.pending.contains(&piece.file) && !self.is_read(&piece) {
                self.take(piece, bin, epoch);
            }
        }
    }
}
