//! What it costs to read a directory file by file.

use super::{LaidDirectory, LaidFile};
use crate::{
    placement::place_on_device,
    plan::{Budget, DiskModel, Estimate, Piece, PlanSource, RequestShape, Requests, Schedule, SweepOrder},
};

impl LaidDirectory {
    /// What a program pays that reads the files one after the other, each from its front to its back, with one request at a
    /// time, from a disk of that model, its stroke stretched over the disk that there is. The head comes from the start of the
    /// disk. Content alone: names and inodes are not counted.
    pub fn cost(&self, model: &DiskModel) -> Estimate {
        let model = match self.on_disk.1 {
            Some(bytes) => model.clone().with_capacity(bytes),
            None => model.clone(),
        };
        let files: Vec<&LaidFile> = self.files.iter().filter(|file| !file.runs().is_empty()).collect();
        let order = SweepOrder::WholeFiles((0..files.len() as u32).collect());
        let source = Reader { files, start: self.on_disk.0 };
        match Schedule::new(source, order, Budget::unlimited()) {
            Ok(schedule) => Estimate::of(Requests::new(schedule, RequestShape::vanilla()), &model, 1),
            // Only lists that name a file twice are refused.
            Err(_) => Estimate::default(),
        }
    }
}

struct Reader<'a> {
    files: Vec<&'a LaidFile>,
    start: u64,
}

impl PlanSource for Reader<'_> {
    fn files(&self) -> u32 {
        self.files.len() as u32
    }

    fn cost(&self, _file: u32) -> u64 {
        0
    }

    fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
        let mut offset = 0;
        for run in self.files[file as usize].runs() {
            let length = run.end - run.start;
            visit(Piece { file, address: run.start, offset, length, shared: false });
            offset += length;
        }
    }

    fn place_on_disk(&self, address: u64) -> u64 {
        place_on_device(self.start.saturating_add(address))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BLOCK, directory};
    use crate::plan::DiskModel;

    /// 10 ms a turn and 100 MB/s everywhere, so a track has 1 MB.
    fn disk() -> DiskModel {
        DiskModel {
            name: "test".into(),
            capacity: 1_200_000_000,
            rpm: 6000.0,
            seek_track_ms: 1.0,
            seek_average_ms: 9.0,
            seek_full_ms: 19.0,
            outer_rate: 100e6,
            inner_rate: 100e6,
            zones: 1,
            overhead_ms: 0.0,
        }
    }

    #[test]
    fn a_seek_is_paid_where_the_next_run_lies_elsewhere() {
        let laid = directory(&[&[(1000, 1), (5000, 1)], &[(5001, 2)], &[(200, 1)], &[]]);
        let before = laid.cost(&disk());
        // To the first file, to its second run, and back to the third; the second file lies behind the first.
        assert_eq!((before.seeks, before.files, before.useful), (3, 3, 5 * BLOCK));
        let after = laid.packed().cost(&disk());
        assert_eq!((after.seeks, after.useful), (1, 5 * BLOCK));
        assert!(after.seconds < before.seconds, "{} {}", after.seconds, before.seconds);
    }

    #[test]
    fn side_by_side_only_the_transfer_is_left() {
        let laid = directory(&[&[(0, 100)], &[(100, 100)]]);
        let milliseconds = laid.cost(&disk()).seconds * 1000.0;
        assert!((milliseconds - 200.0 * BLOCK as f64 / 100_000.0).abs() < 1e-6, "{milliseconds}");
        assert_eq!(directory(&[&[]]).cost(&disk()).seconds, 0.0);
    }
}
