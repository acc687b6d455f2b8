//! What a server has counted, as OpenMetrics.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{store::BlockStore, wire::TEXT_BYTES_MAX};

/// What a server has counted since it began.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that are open.
    pub open: AtomicU64,
    /// Connections that were taken.
    pub connections: AtomicU64,
    /// Connections that were refused: too many, another version or domain, no role.
    pub refused: AtomicU64,
    /// Those of them that came from an address that had too many.
    pub crowded: AtomicU64,
    /// Connections that were ended before they were greeted, since others came.
    pub displaced: AtomicU64,
    /// Connections that were ended for what came over them: bytes that are no frames, silence, nobody who reads.
    pub broken: AtomicU64,
    /// Blocks that were asked for.
    pub gets: AtomicU64,
    /// Blocks that were sent.
    pub hits: AtomicU64,
    /// Their bytes.
    pub hit_bytes: AtomicU64,
    /// Blocks that were cancelled before they were sent.
    pub cancelled: AtomicU64,
    /// Requests beyond the limit of a connection.
    pub busy: AtomicU64,
    /// Hashes that somebody wanted to know of whether they are there.
    pub asked: AtomicU64,
    /// Blocks that were put.
    pub puts: AtomicU64,
    /// Their bytes.
    pub put_bytes: AtomicU64,
    /// Blocks that were put and were there.
    pub known: AtomicU64,
    /// Blocks that were put under another hash than theirs.
    pub wrong: AtomicU64,
    /// What the store could not do.
    pub store_failures: AtomicU64,
    /// Contents that somebody wanted a verdict of.
    pub verdicts_asked: AtomicU64,
    /// Those of which there was one.
    pub verdicts_known: AtomicU64,
    /// Verdicts that were told.
    pub verdicts_told: AtomicU64,
    /// Those that were not taken: of who may not tell any, or not signed by him.
    pub verdicts_refused: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// All of it, and what the store tells, in the text form of OpenMetrics 1.0.
    #[must_use]
    pub fn exposition(&self, store: &dyn BlockStore) -> String {
        let mut text = String::new();
        let mut family = |name: &str, help: &str, is_counter: bool, value: u64| {
            let (kind, suffix) = if is_counter { ("counter", "_total") } else { ("gauge", "") };
            // Writing to a text can't fail.
            let _ = writeln!(text, "# TYPE onesweep_peer_{name} {kind}");
            let _ = writeln!(text, "# HELP onesweep_peer_{name} {help}");
            let _ = writeln!(text, "onesweep_peer_{name}{suffix} {value}");
        };
        for (name, help, is_counter, counter) in [
            ("connections_open", "Connections that are open.", false, &self.open),
            ("connections", "Connections that were taken.", true, &self.connections),
            ("connections_refused", "Connections that were refused.", true, &self.refused),
            ("connections_crowded", "Connections that were refused: too many from there.", true, &self.crowded),
            ("connections_displaced", "Connections that went ungreeted, since others came.", true, &self.displaced),
            ("connections_broken", "Connections that were ended for what came over them.", true, &self.broken),
            ("gets", "Blocks that were asked for.", true, &self.gets),
            ("hits", "Blocks that were sent.", true, &self.hits),
            ("hit_bytes", "Bytes of the blocks that were sent.", true, &self.hit_bytes),
            ("cancelled", "Blocks that were cancelled before they were sent.", true, &self.cancelled),
            ("busy", "Requests beyond the limit of a connection.", true, &self.busy),
            ("asked", "Hashes that somebody asked about.", true, &self.asked),
            ("puts", "Blocks that were put.", true, &self.puts),
            ("put_bytes", "Bytes of the blocks that were put.", true, &self.put_bytes),
            ("puts_known", "Blocks that were put and were there.", true, &self.known),
            ("puts_wrong", "Blocks that were put under another hash than theirs.", true, &self.wrong),
            ("store_failures", "What the store could not do.", true, &self.store_failures),
            ("verdicts_asked", "Contents that somebody wanted a verdict of.", true, &self.verdicts_asked),
            ("verdicts_known", "Contents of which a verdict was known.", true, &self.verdicts_known),
            ("verdicts_told", "Verdicts that were told.", true, &self.verdicts_told),
            ("verdicts_refused", "Verdicts that were not taken.", true, &self.verdicts_refused),
        ] {
            family(name, help, is_counter, counter.load(Ordering::Relaxed));
        }
        family("blocks", "Blocks that are kept.", false, store.blocks());
        family("block_bytes", "Bytes of the blocks that are kept.", false, store.bytes());
        for figure in store.figures() {
            family(&format!("store_{}", figure.name), figure.help, figure.is_counter, figure.value);
        }
        text.push_str("# EOF\n");
        // It is far from that; a frame must never be longer.
        text.truncate(TEXT_BYTES_MAX);
        text
    }
}
