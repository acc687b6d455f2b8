//! What a race is told, what it has done, and what it counts.

use super::{Micros, Policy};

/// A read. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// A request to a peer. A read can have several, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A peer of the configuration, or several that answer one request together: one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u16);

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants to read.
    Asked {
        /// The new read.
        read: ReadId,
        /// How many bytes.
        bytes: u64,
        /// Whether the index has hashes for all of it that hold: neither unknown nor suspect. Otherwise no answer of a
        /// peer could be checked, and none is asked.
        checkable: bool,
        /// Who may be asked, the likeliest first.
        peers: Vec<PeerId>,
        /// Who is asked first, where that is another one than usual.
        policy: Option<Policy>,
    },
    /// The device has answered or failed.
    Local {
        /// The read that was in service.
        read: ReadId,
        /// Whether the bytes are there.
        done: bool,
    },
    /// A peer has answered, or will not. Each request ends with one such event, except that one that was cancelled may end
    /// without any.
    Remote {
        /// The read that it was for.
        read: ReadId,
        /// Which request.
        request: RequestId,
        /// Who was asked.
        peer: PeerId,
        /// How many bytes came over the wire.
        bytes: u64,
        /// What came.
        answer: Answer,
    },
    /// The time of an [`Action::Wake`] has come. Early, late and needless ones do no harm.
    Timer {
        /// The read that it was for.
        read: ReadId,
    },
    /// Links have changed: peers that failed are tried at once, and how long they took until now counts no more.
    NetworkChanged,
}

/// What came from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Bytes with the right hash.
    Valid,
    /// Other bytes.
    Invalid,
    /// It doesn't have the block.
    Absent,
    /// An error, a time-out, a connection that broke.
    Failed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read from the device now. It ends with [`Event::Local`], also when the read was answered meanwhile.
    StartLocal {
        /// The read.
        read: ReadId,
    },
    /// Ask the peer now.
    StartRemote {
        /// The read.
        read: ReadId,
        /// The new request.
        request: RequestId,
        /// Who is asked.
        peer: PeerId,
    },
    /// Tell the peer that its answer is of no use any more.
    CancelRemote {
        /// The read.
        read: ReadId,
        /// Which request.
        request: RequestId,
        /// Who was asked.
        peer: PeerId,
    },
    /// Report [`Event::Timer`] at this time. A read has one timer; a new time takes the place of the old.
    Wake {
        /// The read.
        read: ReadId,
        /// When.
        at: Micros,
    },
    /// The read is answered.
    Answer {
        /// The read.
        read: ReadId,
        /// Whose bytes.
        source: Source,
    },
    /// The device failed, and no peer could help.
    Fail {
        /// The read.
        read: ReadId,
    },
}

/// Whose bytes answer a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The local disk.
    Local,
    /// A peer, checked.
    Remote(PeerId),
}

/// How the race is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who is asked first, where a read doesn't say otherwise.
    pub policy: Policy,
    /// How many reads the device truly serves at the same time: 1 for a disk with one head.
    pub lanes: usize,
}

/// Why reads went where they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads asked.
    pub reads: u64,
    /// Of them without a hash that holds.
    pub not_checkable: u64,
    /// Of them that no peer was to be asked for: none is configured, or all are left alone after failures.
    pub no_peer: u64,
    /// Of them that the budget left to the local disk.
    pub no_budget: u64,
    /// Of them that no peer has a chance to answer first, unless the disk is much later than usual. A trial is one of them.
    pub no_chance: u64,
    /// Answered by the local disk.
    pub local: u64,
    /// Answered by a peer.
    pub remote: u64,
    /// Of them after the local disk had failed.
    pub rescued: u64,
    /// Failed on both sides.
    pub failed: u64,
    /// Requests sent to peers.
    pub requests: u64,
    /// Of them without use: lost, failed, absent, wrong. Not those after the local disk had failed.
    pub extra: u64,
    /// Answers with a wrong hash.
    pub invalid: u64,
    /// Answers that came when nobody waited.
    pub late: u64,
    /// The bytes of these.
    pub late_bytes: u64,
    /// Local reads that waited here and were not needed.
    pub withdrawn: u64,
    /// Local reads in service when their read had been answered.
    pub abandoned: u64,
    /// Waiting local reads that went out since the answer of the peer was late.
    pub hurried: u64,
}
