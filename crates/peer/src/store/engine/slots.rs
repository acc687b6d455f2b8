//! Which node of a Redis Cluster has which key. Pure.

use super::EngineError;

/// Slots of a cluster; never another number.
const SLOTS: u16 = 16_384;

/// A node: its name or address, and its port.
pub(super) type Node = (String, u16);

/// The slot of a key without braces: CRC-16/XMODEM of it.
pub(super) fn slot(key: &[u8]) -> u16 {
    let crc = key.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % SLOTS
}

/// The nodes, and the ranges of slots that each has, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    ranges: Vec<Range>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    node: Node,
}

impl Slots {
    /// Of the ranges that a node told.
    pub(super) fn new(ranges: impl IntoIterator<Item = (u16, u16, Node)>) -> Result<Self, EngineError> {
        let range = |(first, last, node)| Range { first, last, node };
        let mut ranges: Vec<Range> = ranges.into_iter().map(range).collect();
        ranges.sort_unstable_by_key(|range| range.first);
        let is_sound = ranges.iter().all(|range| range.first <= range.last && range.last < SLOTS)
            && ranges.windows(2).all(|pair| pair[0].last < pair[1].first);
        if ranges.is_empty() || !is_sound {
            return Err(EngineError::new("the cluster's list of slots makes no sense, or is empty"));
        }
        Ok(Self { ranges })
    }

    /// Who has a slot; none where nobody has.
    pub(super) fn node(&self, slot: u16) -> Option<&Node> {
        let at = self.ranges.partition_point(|range| range.last < slot);
        self.ranges.get(at).filter(|range| range.first <= slot).map(|range| &range.node)
    }

    /// All nodes, each once.
    pub(super) fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.ranges.iter().map(|range| range.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// Where an error `MOVED 3999 host:port` or `ASK 3999 host:port` leads to. The host may be missing: then it is the same one.
pub(super) fn redirected(detail: &str, asked: &Node) -> Option<Node> {
    let (_, place) = detail.trim().split_once(' ')?;
    let (host, port) = place.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host == "?" {
        return None;
    }
    Some((if host.is_empty() { asked.0.clone() } else { host.to_owned() }, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> Node {
        ("box".to_owned(), port)
    }

    #[test]
    fn slots_of_keys_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` tells.
        for (key, expected) in [("", 0), ("foo", 12_182), ("123456789", 12_739)] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn each_slot_has_the_node_of_its_range() {
        let slots = Slots::new([(5462, 10_922, node(2)), (0, 5460, node(1)), (10_923, 16_383, node(3))]).unwrap();
        for (slot, port) in
            [(0, Some(1)), (5460, Some(1)), (5461, None), (5462, Some(2)), (10_922, Some(2)), (16_383, Some(3))]
        {
            assert_eq!(slots.node(slot).map(|node| node.1), port, "{slot}");
        }
        assert_eq!(slots.nodes(), [node(1), node(2), node(3)]);
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for ranges in
            [vec![], vec![(5, 4, node(1))], vec![(0, 16_384, node(1))], vec![(0, 9, node(1)), (9, 20, node(2))]]
        {
            Slots::new(ranges).unwrap_err();
        }
    }

    #[test]
    fn redirections_are_understood() {
        let asked = node(1);
        for (detail, expected) in [
            ("3999 127.0.0.1:6381", Some(("127.0.0.1".to_owned(), 6381))),
            ("3999 ::1:6381", Some(("::1".to_owned(), 6381))),
            ("3999 :6381", Some(node(6381))),
            ("3999 ?:6381", None),
            ("3999 box", None),
            ("3999", None),
            ("", None),
        ] {
            assert_eq!(redirected(detail, &asked), expected, "{detail}");
        }
    }
}
