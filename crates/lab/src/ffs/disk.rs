//! Requests, and what they take on the modelled drive.

use onesweep_relocate::dfs::Block;

use super::shape::{BLOCK_BYTES, Shape};
use crate::disk::drive::{Command, Drive};
use crate::disk::geometry::Span;
use crate::disk::model::DiskModel;

/// What the processor does between two blocks of a file: copies one, at some 100 MB/s.
const THINK_MS: f64 = 0.04;

/// From the end of one command to the start of the next, on a disk without a queue: the model's own overhead of a command.
/// It makes many requests dearer than one, which is what the paper lives by.
const TURNAROUND_MS: f64 = 0.3;

/// The drive behind the driver's queue for writes.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    drive: Drive,
    /// Writes that nobody waits for, until they go in one turn of the elevator.
    pending: Vec<(Block, u32)>,
    /// Milliseconds that reads took.
    pub(crate) read_ms: f64,
    /// The processor's, between them.
    think_ms: f64,
    /// What writes took, for which nobody waited.
    pub(crate) write_ms: f64,
}

impl Disk {
    /// The outermost part of the drive.
    pub(crate) fn new(model: DiskModel, shape: Shape) -> Self {
        let part = (shape.bytes() as f64 / model.capacity as f64).min(1.0);
        let drive = Drive::new(model, shape.bytes(), Span { from: 0.0, to: part });
        Self { drive, pending: Vec::new(), read_ms: 0.0, think_ms: 0.0, write_ms: 0.0 }
    }

    pub(crate) fn read(&mut self, start: Block, blocks: u32) {
        self.read_ms += self.serve(&Command::read(start * BLOCK_BYTES, u64::from(blocks) * BLOCK_BYTES));
    }

    /// A command and what goes with it, in milliseconds.
    fn serve(&mut self, command: &Command) -> f64 {
        let took = self.drive.serve(command, false).ms();
        self.drive.think(TURNAROUND_MS);
        took + TURNAROUND_MS
    }

    /// The processor takes a block.
    pub(crate) fn think(&mut self) {
        self.drive.think(THINK_MS);
        self.think_ms += THINK_MS;
    }

    /// What a program that reads and writes has waited for so far.
    pub(crate) fn foreground_ms(&self) -> f64 {
        self.read_ms + self.think_ms
    }

    pub(crate) fn write_later(&mut self, start: Block, blocks: u32) {
        self.pending.push((start, blocks));
    }

    pub(crate) fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Serves the writes in the order of their places.
    pub(crate) fn write_all(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_unstable();
        for (start, blocks) in pending {
            let command = Command::write(start * BLOCK_BYTES, u64::from(blocks) * BLOCK_BYTES);
            self.write_ms += self.serve(&command);
        }
    }

    /// As after a restart.
    pub(crate) fn park(&mut self) {
        self.drive.park();
    }
}
