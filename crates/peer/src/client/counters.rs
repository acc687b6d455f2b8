//! What a client has counted of a server.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// As it is counted.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        /// What a client has counted of a server.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counted {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(super) fn counted(&self) -> Counted {
                Counted { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Connections that were made.
    connections,
    /// Connections that could not be made, or were refused.
    refused,
    /// Connections that broke.
    broken,
    /// Blocks that were asked for.
    gets,
    /// Blocks that came in time, and were what was asked for.
    hits,
    /// Their bytes.
    hit_bytes,
    /// Blocks that the server doesn't have.
    absent,
    /// Blocks that did not come in time.
    late,
    /// Blocks that somebody wanted no more.
    cancelled,
    /// Bytes of blocks that came when nobody wanted them any more.
    late_bytes,
    /// Blocks that were not what was asked for.
    wrong,
    /// Requests that the server could not, or would not, answer.
    failed,
    /// Requests that were lost with their connection.
    lost,
    /// Requests that were not made, since no room was left.
    full,
    /// Blocks that were put.
    puts,
    /// Their bytes.
    put_bytes,
    /// Probes and pings.
    pings,
    /// Pings and tries to connect that came before their time, since the network had changed.
    nudges,
    /// How long the last ping took, in microseconds; 0 as long as none was answered by the network as it is.
    ping_us,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
