//! Which of the waiting commands comes next.

use super::drive::{Command, Drive, Op};

/// A command that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) command: Command,
    /// How long it has waited, in milliseconds of virtual time.
    pub(crate) waited_ms: f64,
}

/// The index of the next command, `None` when there is none. `queue` is in order of arrival; the drive sees the first
/// of them, as many as its queue holds.
///
/// Shortest positioning first, with these exceptions, in this order: a flush or a command out of patience at the head
/// of the queue goes first; a command that ends where the best one begins goes before it, so that a stream that was
/// split is served from its front; commands that touch the same bytes keep their order.
pub(crate) fn choose(queue: &[Waiting], drive: &Drive) -> Option<usize> {
    let oldest = queue.first()?;
    if oldest.command.op == Op::Flush || oldest.waited_ms > drive.model().patience_ms {
        return Some(0);
    }
    let seen = &queue[..queue.len().min(drive.model().queue_depth)];
    let moves =
        || seen.iter().map(|waiting| &waiting.command).enumerate().filter(|(_, command)| command.op != Op::Flush);
    let mut best = (0, f64::INFINITY);
    for (index, command) in moves() {
        let cost_ms = drive.cost_ms(command);
        if cost_ms < best.1 {
            best = (index, cost_ms);
        }
    }
    let mut best = best.0;
    for _ in 0..seen.len() {
        let front = seen[best].command;
        let leads = |command: &Command| command.op == front.op && command.len > 0 && command.end() == front.start;
        match moves().find(|(_, command)| leads(command)) {
            Some((index, _)) => best = index,
            None => break,
        }
    }
    // What goes before the best one for touching the same bytes may itself have to wait for another.
    while let Some(earlier) = seen[..best].iter().position(|waiting| waiting.command.conflicts(&seen[best].command)) {
        best = earlier;
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::super::geometry::Span;
    use super::super::geometry::tests::round;
    use super::super::model::DiskModel;
    use super::*;

    fn drive() -> Drive {
        let model = DiskModel { buffer_segments: 0, ..round() };
        Drive::new(model, 1_200_000_000, Span::WHOLE)
    }

    fn queue(commands: &[(Op, u64, u64)]) -> Vec<Waiting> {
        let waiting = |&(op, start, len)| Waiting { command: Command { op, start, len }, waited_ms: 0.0 };
        commands.iter().map(waiting).collect()
    }

    #[test]
    fn the_nearest_in_time_comes_first() {
        let queue = queue(&[(Op::Read, 800_000_000, 4096), (Op::Read, 50_000, 4096), (Op::Read, 400_000_000, 4096)]);
        assert_eq!(choose(&queue, &drive()), Some(1));
        assert_eq!(choose(&[], &drive()), None);
    }

    /// Nearness is measured in time, not in bytes: what has just gone by is a turn away.
    #[test]
    fn angle_counts() {
        let mut disk = drive();
        disk.serve(&Command { op: Op::Read, start: 0, len: 1_000_000 }, true);
        let queue = queue(&[(Op::Read, 950_000, 4096), (Op::Read, 3_200_000, 4096)]);
        assert_eq!(choose(&queue, &disk), Some(1));
    }

    #[test]
    fn a_stream_is_served_from_its_front() {
        let mut disk = drive();
        disk.serve(&Command { op: Op::Read, start: 0, len: 1000 }, true);
        // The head is just past the front of the stream, so its middle is nearest: serving that first would split it.
        disk.think(1.5);
        let queue = queue(&[
            (Op::Read, 300_000, 100_000),
            (Op::Read, 200_000, 100_000),
            (Op::Read, 100_000, 100_000),
            (Op::Read, 900_000_000, 4096),
        ]);
        assert_eq!(choose(&queue, &disk), Some(2));
    }

    /// A reader with two requests in flight: each pair must be served in order, without waiting.
    #[test]
    fn sequential_reads_in_pairs_cost_their_transfer() {
        let mut disk = drive();
        let mut took = 0.0;
        for pair in 0..100_u64 {
            let mut waiting =
                queue(&[(Op::Read, pair * 200_000 + 100_000, 100_000), (Op::Read, pair * 200_000, 100_000)]);
            while let Some(next) = choose(&waiting, &disk) {
                let command = waiting.remove(next).command;
                took += disk.serve(&command, !waiting.is_empty()).ms();
            }
        }
        assert!((took - 200.0).abs() < 2.0, "{took}"); // 20 MB at 100 MB/s
    }

    #[test]
    fn only_what_the_drive_holds_is_seen_and_patience_ends() {
        let mut far: Vec<(Op, u64, u64)> = vec![(Op::Read, 800_000_000, 4096); 32];
        far.push((Op::Read, 4096, 4096));
        let mut queue = queue(&far);
        assert_eq!(choose(&queue, &drive()), Some(0));
        queue.truncate(20);
        queue[7].command.start = 4096;
        assert_eq!(choose(&queue, &drive()), Some(7));
        queue[0].waited_ms = 1001.0;
        assert_eq!(choose(&queue, &drive()), Some(0));
    }

    #[test]
    fn a_flush_waits_its_turn_and_overlaps_keep_their_order() {
        let waiting = queue(&[(Op::Read, 800_000_000, 4096), (Op::Flush, 0, 0), (Op::Read, 50_000, 4096)]);
        assert_eq!(choose(&waiting, &drive()), Some(2));
        assert_eq!(choose(&waiting[1..], &drive()), Some(0));
        let overlap = queue(&[(Op::Read, 8192, 4096), (Op::Write, 8192, 4096)]);
        assert_eq!(choose(&overlap, &drive()), Some(0));
        // The last one is nearest, waits for the second, and that for the first.
        let chain = queue(&[(Op::Write, 900_000_000, 8192), (Op::Write, 0, 900_004_096), (Op::Read, 0, 4096)]);
        assert_eq!(choose(&chain, &drive()), Some(0));
    }
}
