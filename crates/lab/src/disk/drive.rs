//! The drive: mechanics, track buffer, write cache and standby behind one command at a time.

use super::buffer::TrackBuffer;
use super::cache::WriteCache;
use super::geometry::{self, Geometry, Span};
use super::model::DiskModel;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    /// Everything written so far reaches the medium.
    Flush,
}

/// A command as the drive sees it: no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) op: Op,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Command {
    pub(crate) const FLUSH: Self = Self { op: Op::Flush, start: 0, len: 0 };

    pub(crate) fn read(start: u64, len: u64) -> Self {
        Self { op: Op::Read, start, len }
    }

    pub(crate) fn write(start: u64, len: u64) -> Self {
        Self { op: Op::Write, start, len }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Whether both touch the same byte and one of them changes it.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let touch = self.start < other.end() && other.start < self.end();
        touch && (self.op == Op::Write || other.op == Op::Write)
    }
}

/// What a command cost, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Service {
    pub(crate) spin_up_ms: f64,
    pub(crate) seek_ms: f64,
    pub(crate) rotation_ms: f64,
    pub(crate) transfer_ms: f64,
    /// What the overhead adds to a command that was quicker than it.
    pub(crate) overhead_ms: f64,
    /// How often the arm moved.
    pub(crate) seeks: u64,
    /// Bytes that came from or went to the drive's memory alone.
    pub(crate) buffered_bytes: u64,
}

impl Service {
    pub(crate) fn ms(&self) -> f64 {
        self.spin_up_ms + self.seek_ms + self.rotation_ms + self.transfer_ms + self.overhead_ms
    }
}

/// A drive with an image on a span of it.
#[derive(Debug, Clone)]
pub(crate) struct Drive {
    model: DiskModel,
    geometry: Geometry,
    /// Where the head stood `idle_ms` ago.
    head: u64,
    idle_ms: f64,
    buffer: Option<TrackBuffer>,
    cache: WriteCache,
    asleep: bool,
}

impl Drive {
    /// The drive with its head at the image's first byte.
    pub(crate) fn new(model: DiskModel, len: u64, span: Span) -> Self {
        Self {
            geometry: geometry::of(&model, len, span),
            buffer: TrackBuffer::new(model.buffer_segments, model.buffer_segment_bytes),
            head: 0,
            idle_ms: 0.0,
            cache: WriteCache::default(),
            asleep: false,
            model,
        }
    }

    pub(crate) fn model(&self) -> &DiskModel {
        &self.model
    }

    /// As after switching it on: nothing held, the head at the image's first byte. What is in the write cache stays.
    pub(crate) fn park(&mut self) {
        self.head = 0;
        self.idle_ms = 0.0;
        self.asleep = false;
        if let Some(buffer) = &mut self.buffer {
            buffer.clear();
        }
    }

    /// That time passes with no command waiting: the drive reads on, or falls asleep.
    pub(crate) fn think(&mut self, ms: f64) {
        let standby_ms = self.model.standby_after_s * 1000.0;
        if self.model.has_head() && standby_ms > 0.0 && ms >= standby_ms {
            self.asleep = true;
            if let Some(buffer) = &mut self.buffer {
                buffer.clear();
            }
        }
        self.read_on(ms);
    }

    /// Reads ahead for that long, then lets the disk turn.
    fn read_on(&mut self, ms: f64) {
        let mut left_ms = ms;
        if let Some(buffer) = &mut self.buffer
            && !self.asleep
            && let Some((from, limit)) = buffer.room()
            && from == self.head
            && self.idle_ms == 0.0
        {
            let end = self.geometry.reach(from, left_ms).min(limit);
            buffer.grow(end);
            // Less than a byte's time is not worth a missed turn.
            left_ms -= self.geometry.transfer_ms(from, end);
            self.head = end;
            if end < limit {
                left_ms = 0.0;
            }
        }
        self.idle_ms += left_ms.max(0.0);
    }

    /// What the command would cost now. Only for choosing: a flush costs nothing here.
    pub(crate) fn cost_ms(&self, command: &Command) -> f64 {
        match self.held_to(command) {
            _ if command.op == Op::Flush => 0.0,
            held if held == command.end() => self.memory_ms(command.len),
            held => self.geometry.position(self.head, self.idle_ms, held).ms(),
        }
    }

    /// How far from its start on the drive's memory serves a command.
    fn held_to(&self, command: &Command) -> u64 {
        match (command.op, &self.buffer) {
            (Op::Write, _) if self.caches_writes() => command.end(),
            (Op::Read, _) if self.cache.holds(command.start, command.end()) => command.end(),
            (Op::Read, Some(buffer)) => buffer.held_to(command.start, command.end()),
            _ => command.start,
        }
    }

    /// Whether a write is done when the drive's memory has it.
    pub(crate) fn caches_writes(&self) -> bool {
        self.model.write_cache > 0
    }

    fn memory_ms(&self, len: u64) -> f64 {
        (len as f64 / self.model.interface_rate * 1000.0).max(self.model.overhead_ms)
    }

    /// Serves a command; `waiting` says whether others wait, in which case the drive doesn't read ahead beside it.
    pub(crate) fn serve(&mut self, command: &Command, waiting: bool) -> Service {
        match command.op {
            Op::Read => self.read(command, waiting),
            Op::Write => self.write(command),
            Op::Flush => self.flush(),
        }
    }

    fn read(&mut self, command: &Command, waiting: bool) -> Service {
        let held = self.held_to(command);
        if held == command.end() {
            let took = self.memory_ms(command.len);
            if let Some(buffer) = &mut self.buffer {
                buffer.used_to(held);
            }
            if waiting {
                self.idle_ms += took;
            } else {
                self.read_on(took);
            }
            return Service { overhead_ms: took, buffered_bytes: command.len, ..Service::default() };
        }
        let mut service = self.visit(held, command.end());
        service.buffered_bytes = held - command.start;
        if let Some(buffer) = &mut self.buffer {
            buffer.begin(command.end());
        }
        service
    }

    fn write(&mut self, command: &Command) -> Service {
        if let Some(buffer) = &mut self.buffer {
            buffer.forget(command.start, command.end());
        }
        if !self.caches_writes() {
            return self.visit(command.start, command.end());
        }
        let full = self.cache.bytes() + command.len > self.model.write_cache;
        let mut service = if full { self.flush() } else { Service::default() };
        self.cache.add(command.start, command.end());
        let took = self.memory_ms(command.len);
        self.idle_ms += took;
        service.overhead_ms += took;
        service.buffered_bytes = command.len;
        service
    }

    /// Brings the write cache to the medium in one turn of the elevator.
    fn flush(&mut self) -> Service {
        let mut service = Service::default();
        for (start, end) in self.cache.drain_from(self.head) {
            let one = self.visit(start, end);
            service.spin_up_ms += one.spin_up_ms;
            service.seek_ms += one.seek_ms;
            service.rotation_ms += one.rotation_ms;
            service.transfer_ms += one.transfer_ms;
            service.seeks += one.seeks;
        }
        let short_ms = self.model.overhead_ms - service.ms();
        service.overhead_ms = short_ms.max(0.0);
        service
    }

    /// Moves the head to `start` and over everything up to `end`.
    fn visit(&mut self, start: u64, end: u64) -> Service {
        let mut service = Service::default();
        if std::mem::take(&mut self.asleep) {
            service.spin_up_ms = self.model.spin_up_s * 1000.0;
        }
        let positioning = self.geometry.position(self.head, self.idle_ms, start);
        service.seek_ms = positioning.seek_ms;
        service.rotation_ms = positioning.rotation_ms;
        service.seeks = u64::from(positioning.seek_ms > 0.0);
        service.transfer_ms = self.geometry.transfer_ms(start, end);
        let short_ms = self.model.overhead_ms - service.ms();
        service.overhead_ms = short_ms.max(0.0);
        self.head = end;
        self.idle_ms = 0.0;
        service
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::tests::{close, round};
    use super::*;

    fn drive(model: DiskModel) -> Drive {
        let len = model.capacity;
        Drive::new(model, len, Span::WHOLE)
    }

    fn unbuffered(model: DiskModel) -> Drive {
        drive(DiskModel { buffer_segments: 0, ..model })
    }

    /// A little generator for places: the same on every run.
    fn places(below: u64) -> impl Iterator<Item = u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        })
    }

    #[test]
    fn sequential_reads_reach_the_transfer_rate() {
        for (name, _) in DiskModel::presets() {
            let model = DiskModel::named(name).unwrap();
            let zones = f64::from(model.zones);
            let mut disk = unbuffered(model.clone());
            let (len, count) = (1_u64 << 20, 1000);
            let took: f64 = (0..count).map(|index| disk.serve(&Command::read(index * len, len), false).ms()).sum();
            let in_first_zone = ((count * len) as f64) < model.capacity as f64 / zones;
            assert!(in_first_zone || name == "fireball-ex", "{name}");
            let expected = disk.geometry.transfer_ms(0, count * len);
            assert!((took / expected - 1.0).abs() < 0.01, "{name}: {took} ms, the rate allows {expected}");
            if in_first_zone {
                let rate = (count * len) as f64 / took * 1000.0;
                assert!((rate / model.outer_rate - 1.0).abs() < 0.01, "{name}: {rate}");
            }
        }
    }

    /// Seek + half a turn + transfer. The mean seek of the curve over two random places is
    /// 0.2 track + 0.652 average + 0.148 full, from the integral of the curve over 2 (1 - d).
    #[test]
    fn random_reads_take_a_seek_and_half_a_turn() {
        for (name, _) in DiskModel::presets().filter(|&(name, _)| name != "ssd") {
            let model = DiskModel::named(name).unwrap();
            let mut disk = unbuffered(model.clone());
            let blocks = model.capacity / 4096;
            let count = 20_000;
            let took: f64 = places(blocks)
                .take(count)
                .map(|block| disk.serve(&Command::read(block * 4096, 4096), false).ms())
                .sum();
            let mean = took / count as f64;
            let exact = 0.2 * model.seek_track_ms + 0.652 * model.seek_average_ms + 0.148 * model.seek_full_ms;
            let transfer = 4096.0 / (model.outer_rate + model.inner_rate) * 2000.0;
            let by_curve = exact + model.revolution_ms() / 2.0 + transfer;
            assert!((mean / by_curve - 1.0).abs() < 0.01, "{name}: {mean} by {by_curve}");
            let by_sheet = model.seek_average_ms + model.revolution_ms() / 2.0 + transfer;
            assert!((mean / by_sheet - 1.0).abs() < 0.05, "{name}: {mean} by {by_sheet}");
        }
    }

    #[test]
    fn access_times_are_those_of_the_papers() {
        for (name, access_ms) in [("st373455lw", 5.8), ("6y160p0", 19.8)] {
            let model = DiskModel::named(name).unwrap();
            let by_sheet = model.seek_average_ms + model.revolution_ms() / 2.0;
            assert!((by_sheet / access_ms - 1.0).abs() < 0.01, "{name}: {by_sheet}");
        }
    }

    /// "A 64 KB access time is nearly the same as that of 4 KB" (DFS, section 4).
    #[test]
    fn on_the_fireball_64_kb_cost_hardly_more_than_4() {
        let model = DiskModel::named("fireball-ex").unwrap();
        let mean = |len: u64| {
            let mut disk = unbuffered(model.clone());
            let blocks = (model.capacity - len) / 4096;
            places(blocks)
                .take(20_000)
                .map(|block| disk.serve(&Command::read(block * 4096, len), false).ms())
                .sum::<f64>()
        };
        let ratio = mean(65_536) / mean(4096);
        assert!(ratio <= 1.3 && ratio > 1.1, "{ratio}");
    }

    #[test]
    fn the_track_buffer_reads_on_while_no_command_waits() {
        let mut disk = drive(round());
        assert!(disk.serve(&Command::read(0, 100_000), false).ms() >= 1.0);
        disk.think(2.0); // 200,000 bytes at 100 MB/s
        let hit = disk.serve(&Command::read(150_000, 100_000), false);
        assert_eq!(hit.buffered_bytes, 100_000);
        close(hit.ms(), 100_000.0 / 300e6 * 1000.0); // the interface is slower than the overhead here
        // While it was served the head read on: 33,333 bytes. 83,333 are held, the rest is read without waiting.
        let part = disk.serve(&Command::read(250_000, 100_000), false);
        assert_eq!(part.buffered_bytes, 83_333);
        close(part.ms(), 16_667.0 / 100_000.0);
        // A segment is 512 KiB: after a long time no more than that is held.
        disk.think(1000.0);
        assert_eq!(disk.serve(&Command::read(350_000, 524_288), false).seeks, 0);
        assert_eq!(disk.serve(&Command::read(900_000_000, 4096), false).buffered_bytes, 0);
    }

    #[test]
    fn without_the_buffer_thinking_costs_a_turn() {
        let mut disk = unbuffered(round());
        disk.serve(&Command::read(0, 100_000), false);
        disk.think(2.0);
        // 0.5 ms of gap went by 1.5 ms ago: the rest of the turn is waited for.
        close(disk.serve(&Command::read(150_000, 100_000), false).ms(), 8.5 + 1.0);
        disk.think(2.0);
        close(disk.serve(&Command::read(250_000, 100_000), false).ms(), 1.0); // starts where the last ended
    }

    #[test]
    fn a_command_that_waits_stops_the_read_ahead() {
        let mut disk = drive(round());
        disk.serve(&Command::read(0, 100_000), true);
        let next = disk.serve(&Command::read(150_000, 100_000), true);
        assert_eq!(next.buffered_bytes, 0);
        close(next.ms(), 0.5 + 1.0);
    }

    #[test]
    fn writes_are_cheap_until_the_flush() {
        let mut disk = drive(round());
        disk.serve(&Command::read(0, 4096), false);
        close(disk.serve(&Command::write(400_000_000, 4096), false).ms(), 0.1);
        close(disk.serve(&Command::write(400_004_096, 4096), false).ms(), 0.1);
        close(disk.serve(&Command::read(400_000_000, 8192), false).ms(), 0.1); // its own memory knows
        let flush = disk.serve(&Command::FLUSH, false);
        assert_eq!(flush.seeks, 1);
        close(flush.transfer_ms, 0.08192);
        assert!(flush.seek_ms > 8.9 && flush.seek_ms < 9.1, "{flush:?}");
        close(disk.serve(&Command::FLUSH, false).ms(), 0.1);
    }

    #[test]
    fn a_full_cache_writes_back_and_no_cache_writes_through() {
        let mut disk = drive(DiskModel { write_cache: 1 << 20, ..round() });
        let took: f64 = (0..3).map(|index| disk.serve(&Command::write(index * 500_000_000, 1 << 19), false).ms()).sum();
        assert!(took > 10.0, "the first two had to go: {took}");
        let mut through = drive(DiskModel { write_cache: 0, ..round() });
        assert!(through.serve(&Command::write(400_000_000, 4096), false).seek_ms > 8.9);
    }

    #[test]
    fn standby_costs_a_spin_up() {
        let mut disk = drive(DiskModel { standby_after_s: 5.0, spin_up_s: 8.0, ..round() });
        disk.think(4999.0);
        assert_eq!(disk.serve(&Command::read(0, 4096), false).spin_up_ms, 0.0);
        disk.think(5000.0);
        assert_eq!(disk.serve(&Command::read(0, 4096), false).spin_up_ms, 8000.0);
        assert_eq!(disk.serve(&Command::read(8192, 4096), false).spin_up_ms, 0.0);
    }

    #[test]
    fn a_disk_without_a_head_only_transfers() {
        let mut disk = drive(DiskModel::named("ssd").unwrap());
        close(disk.serve(&Command::read(1 << 38, 4096), false).ms(), 0.02);
        close(disk.serve(&Command::read(0, 520_000), false).ms(), 1.0);
    }
}
