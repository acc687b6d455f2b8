//! What a mount counts, as OpenMetrics.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    client::Health,
    race::{Counts, Policy},
};

/// Beside what the race counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) read_bytes: AtomicU64,
    pub(super) local_bytes: AtomicU64,
    pub(super) remote_bytes: AtomicU64,
    pub(super) zeros: AtomicU64,
    pub(super) memory: AtomicU64,
    pub(super) overtaken: AtomicU64,
    pub(super) left_to_kernel: AtomicU64,
    by_policy: [AtomicU64; 4],
    pub(super) split: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) write_bytes: AtomicU64,
    pub(super) write_failures: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) learned: AtomicU64,
    pub(super) confirmed: AtomicU64,
    pub(super) changed: AtomicU64,
    pub(super) forgotten: AtomicU64,
    pub(super) reclaimed: AtomicU64,
    pub(super) not_reclaimed: AtomicU64,
    pub(super) offered: AtomicU64,
    pub(super) not_offered: AtomicU64,
    pub(super) untraced: AtomicU64,
    pub(super) network_changes: AtomicU64,
}

/// What servers may lack of what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owed {
    /// Places that are remembered, and sent when a server is there.
    pub(super) waiting: u64,
    /// Places that were to be, and were too many.
    pub(super) let_go: u64,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// A read goes by this policy.
    pub(super) fn count_policy(&self, policy: Policy) {
        add(self.of_policy(policy), 1);
    }

    fn of_policy(&self, policy: Policy) -> &AtomicU64 {
        &self.by_policy[match policy {
            Policy::Race => 0,
            Policy::LocalFirst => 1,
            Policy::RemoteFirst => 2,
            Policy::QuietDisk => 3,
        }]
    }

    /// All of it in the text form of OpenMetrics 1.0.
    pub(super) fn exposition(&self, race: &Counts, index_works: bool, owed: Owed, servers: &[Health]) -> String {
        let mut text = Text::default();
        let own = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let by = |policy| own(self.of_policy(policy));
        for (name, help, value) in [
            ("reads", "Reads that were raced, or could have been.", race.reads),
            ("reads_zero", "Reads of blocks that are known to be zeros; nobody is asked.", own(&self.zeros)),
            ("reads_memory", "Reads of a tree that the page cache answered; nobody is asked.", own(&self.memory)),
            ("reads_local", "Reads that the local disk answered.", race.local),
            ("reads_remote", "Reads that a server answered.", race.remote),
            ("reads_rescued", "Of them after the local disk had failed.", race.rescued),
            ("reads_split", "Reads that failed as a whole, and were read block by block.", own(&self.split)),
            ("reads_failed", "Reads that failed.", own(&self.failed)),
            (
                "reads_overtaken",
                "Reads of a tree whose file was changed before the answer came, and that the local disk answered.",
                own(&self.overtaken),
            ),
            (
                "opens_kernel",
                "Openings of files, or of an image, that were left to the kernel.",
                own(&self.left_to_kernel),
            ),
            ("reads_by_race", "Reads by the policy race.", by(Policy::Race)),
            ("reads_by_local_first", "Reads by the policy local-first.", by(Policy::LocalFirst)),
            ("reads_by_remote_first", "Reads by the policy remote-first.", by(Policy::RemoteFirst)),
            ("reads_by_quiet_disk", "Reads by the policy quiet-disk.", by(Policy::QuietDisk)),
            ("read_bytes", "Bytes that were read.", own(&self.read_bytes)),
            ("read_bytes_local", "Of them from the local disk.", own(&self.local_bytes)),
            ("read_bytes_remote", "Of them from servers.", own(&self.remote_bytes)),
            ("local_no_hash", "Reads left to the local disk: not all hashes are known to hold.", race.not_checkable),
            ("local_no_server", "Reads left to the local disk: no server can be asked.", race.no_peer),
            ("local_no_chance", "Reads left to the local disk: no server would be the first.", race.no_chance),
            ("local_no_budget", "Reads left to the local disk: requests were of no use lately.", race.no_budget),
            ("requests", "Requests to servers.", race.requests),
            ("requests_extra", "Of them without use.", race.extra),
            ("answers_wrong", "Answers with other bytes.", race.invalid),
            ("answers_late", "Answers that came when nobody waited.", race.late),
            ("answer_bytes_late", "Their bytes.", race.late_bytes),
            ("local_withdrawn", "Local reads that waited here and were not needed.", race.withdrawn),
            ("local_abandoned", "Local reads in service when their read had been answered.", race.abandoned),
            ("local_hurried", "Local reads that went out since the answer of a server was late.", race.hurried),
            ("writes", "Writes.", own(&self.writes)),
            ("write_bytes", "Bytes that were written.", own(&self.write_bytes)),
            ("writes_failed", "Writes that failed.", own(&self.write_failures)),
            ("flushes", "Flushes.", own(&self.flushes)),
            ("index_learned", "Blocks whose hash became known by a read.", own(&self.learned)),
            ("index_confirmed", "Suspect blocks that a read has confirmed.", own(&self.confirmed)),
            ("index_changed", "Suspect blocks that had changed.", own(&self.changed)),
            (
                "index_forgotten",
                "Files of a tree that the index knew, and that were about to be written.",
                own(&self.forgotten),
            ),
            ("reclaimed", "Blocks that were unreadable, and written again.", own(&self.reclaimed)),
            ("reclaim_failures", "Blocks that could not be written again.", own(&self.not_reclaimed)),
            ("offered", "Blocks that servers were sent.", own(&self.offered)),
            (
                "offers_dropped",
                "Blocks that they were not sent at once: too many waited, or they didn't take them.",
                own(&self.not_offered),
            ),
            (
                "offers_let_go",
                "Files with writes that servers may lack, and that are not sent later: too many waited. They are when they are read again.",
                owed.let_go,
            ),
            ("trace_dropped", "Reads that are not in the trace: it could not be written as fast.", own(&self.untraced)),
            ("network_changes", "Changes of links and addresses.", own(&self.network_changes)),
        ] {
            text.family(name, help, true);
            text.sample(name, "_total", "", value);
        }
        text.family("index_works", "Whether the index can be written.", false);
        text.sample("index_works", "", "", index_works.into());
        text.family("offers_waiting", "Regions of 1 MiB, or files, with writes that servers may lack.", false);
        text.sample("offers_waiting", "", "", owed.waiting);
        for (name, help, is_counter, value) in SERVER {
            text.family(name, help, is_counter);
            for server in servers {
                text.sample(name, if is_counter { "_total" } else { "" }, &server.address, value(server));
            }
        }
        text.0.push_str("# EOF\n");
        text.0
    }
}

type OfServer = (&'static str, &'static str, bool, fn(&Health) -> u64);

const SERVER: [OfServer; 8] = [
    ("server_usable", "Whether it is asked.", false, |server| server.is_usable.into()),
    ("server_gets", "Blocks that it was asked for.", true, |server| server.counted.gets),
    ("server_hits", "Blocks that came, and were what was asked for.", true, |server| server.counted.hits),
    ("server_absent", "Blocks that it doesn't have.", true, |server| server.counted.absent),
    ("server_cancelled", "Blocks that were cancelled.", true, |server| server.counted.cancelled),
    ("server_wrong", "Blocks that were not what was asked for.", true, |server| server.counted.wrong),
    ("server_connections", "Connections that were made.", true, |server| server.counted.connections),
    ("server_ping_us", "How long the last ping by this network took, in microseconds.", false, |server| {
        server.counted.ping_us
    }),
];

#[derive(Default)]
struct Text(String);

/// Writing to a text can't fail.
impl Text {
    fn family(&mut self, name: &str, help: &str, is_counter: bool) {
        let kind = if is_counter { "counter" } else { "gauge" };
        let _ = writeln!(self.0, "# TYPE onesweep_peer_mount_{name} {kind}");
        let _ = writeln!(self.0, "# HELP onesweep_peer_mount_{name} {help}");
    }

    fn sample(&mut self, name: &str, suffix: &str, server: &str, value: u64) {
        let _ = write!(self.0, "onesweep_peer_mount_{name}{suffix}");
        if !server.is_empty() {
            let server = server.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{{server=\"{server}\"}}");
        }
        let _ = writeln!(self.0, " {value}");
    }
}
