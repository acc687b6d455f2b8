//! The track buffer: what the drive read on its own while no command waited.

use std::collections::VecDeque;

/// One run of bytes that was read ahead.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    start: u64,
    end: u64,
}

/// Segments in the order in which reading ahead began, the last at the back: that one grows while the head reads on, and
/// the one at the front makes room. A hit moves none: which one a drive gives up is its maker's secret.
#[derive(Debug, Clone)]
pub(crate) struct TrackBuffer {
    segments: VecDeque<Segment>,
    segments_max: usize,
    segment_bytes: u64,
    /// Where the segment at the back may grow to.
    limit: u64,
}

impl TrackBuffer {
    /// `None` when the drive has none.
    pub(crate) fn new(segments_max: usize, segment_bytes: u64) -> Option<Self> {
        let exists = segments_max > 0 && segment_bytes > 0;
        exists.then(|| Self { segments: VecDeque::new(), segments_max, segment_bytes, limit: 0 })
    }

    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.limit = 0;
    }

    /// How far the bytes from `start` on are held, at most up to `end`.
    pub(crate) fn held_to(&self, start: u64, end: u64) -> u64 {
        let holds = |segment: &&Segment| segment.start <= start && start < segment.end;
        self.segments.iter().find(holds).map_or(start, |segment| segment.end.min(end))
    }

    /// A command that ended at `end` was served from here alone: its segment may read on from there.
    pub(crate) fn used_to(&mut self, end: u64) {
        let Some(index) = self.segments.iter().position(|segment| segment.start < end && end <= segment.end) else {
            return;
        };
        if index + 1 == self.segments.len() {
            self.limit = end + self.segment_bytes;
        }
    }

    /// The head came to `end` for a command: from there it may read on.
    pub(crate) fn begin(&mut self, end: u64) {
        self.limit = end + self.segment_bytes;
        if self.segments.back().is_some_and(|last| last.end == end) {
            return;
        }
        self.segments.retain(|segment| segment.end > segment.start);
        while self.segments.len() >= self.segments_max {
            self.segments.pop_front();
        }
        self.segments.push_back(Segment { start: end, end });
    }

    /// Where the head reads on from and up to, if there is room.
    pub(crate) fn room(&self) -> Option<(u64, u64)> {
        let last = self.segments.back()?;
        (last.end < self.limit).then_some((last.end, self.limit))
    }

    /// The head has read on up to `end`.
    pub(crate) fn grow(&mut self, end: u64) {
        if let Some(last) = self.segments.back_mut() {
            last.end = last.end.max(end);
            last.start = last.start.max(last.end.saturating_sub(self.segment_bytes));
        }
    }

    /// What is held of `start..end` is no longer true.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        if self.segments.iter().any(|segment| segment.start < end && start < segment.end) {
            self.segments.retain(|segment| segment.end <= start || end <= segment.start);
            self.limit = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_read_ahead_and_nothing_else() {
        let mut buffer = TrackBuffer::new(2, 1000).unwrap();
        buffer.begin(100);
        assert_eq!(buffer.room(), Some((100, 1100)));
        buffer.grow(600);
        assert_eq!(buffer.held_to(50, 200), 50);
        assert_eq!(buffer.held_to(100, 200), 200);
        assert_eq!(buffer.held_to(500, 900), 600);
        buffer.used_to(500);
        assert_eq!(buffer.room(), Some((600, 1500)));
        buffer.grow(1500);
        assert_eq!(buffer.held_to(450, 460), 450, "a segment holds 1000 bytes");
        assert_eq!(buffer.room(), None);
    }

    #[test]
    fn the_oldest_segment_makes_room_and_a_write_makes_untrue() {
        let mut buffer = TrackBuffer::new(2, 1000).unwrap();
        for start in [0, 10_000, 20_000] {
            buffer.begin(start);
            buffer.grow(start + 500);
        }
        assert_eq!(buffer.held_to(0, 10), 0);
        assert_eq!(buffer.held_to(10_000, 10_010), 10_010);
        buffer.forget(10_100, 10_200);
        assert_eq!(buffer.held_to(10_000, 10_010), 10_000);
        assert_eq!(buffer.held_to(20_000, 20_010), 20_010);
        assert!(TrackBuffer::new(0, 1000).is_none());
    }
}
