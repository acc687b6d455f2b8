//! What the store keeps of a directory, and how it is written (docs/FORMATS.md).

use onesweep_sys::files::Time;

use crate::{
    code::{Reader, Writer},
    identity::NodeId,
    links::{Charges, Linked},
    nodes::{Count, Known, NameHash, Slot},
    reading::EntryName,
    totals::{Extremes, Largest, Sums, Totals},
};

/// Who may look into a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Type and permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// A hash of its access list; 0 where there is none.
    pub acl: u64,
}

impl Access {
    /// Whether everybody may list and enter it, its owner and those of its group as well, who may have fewer rights than all others. What
    /// an access list says isn't known here.
    pub fn is_open_to_all(&self) -> bool {
        self.mode & 0o555 == 0o555 && self.acl == 0
    }
}

/// One directory: the paper's `{<dev, ino>, mtime, dutime, AggregatedProperty[]}` (FastDu, 1.2), `harvested` being its `dutime`.
///
/// Its `mtime`, by which a directory is dirty, is a count in memory alone ([`crate::nodes`]): after a start it could tell nothing of what
/// happened meanwhile. What did is told by `stamp`, or by the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its inode.
    pub id: NodeId,
    /// The directory that it is in; `None` of the root.
    pub parent: Option<Slot>,
    /// Its name there; empty of the root.
    pub name: EntryName,
    /// Who may look into it.
    pub access: Access,
    /// The number of its last harvest.
    pub harvested: Count,
    /// When that was, in seconds since 1970; for people.
    pub harvested_at: i64,
    /// By which it can be told later whether it is still as it was read ([`crate::survey`]); 0 where it can't.
    pub stamp: u64,
    /// Units of 512 bytes that are allocated to the directory itself.
    pub blocks: i64,
    /// The directory itself and its entries, but for inodes with several names and for what is in directories below.
    pub own: Totals,
    /// What inodes with several names add here and take off.
    pub charged: Sums,
    /// Everything below, its own among it.
    pub subtree: Totals,
    /// The inodes with several names that it names, in rising order, one for each name.
    pub links: Vec<u64>,
}

/// Most records have no more.
const ENCODED_BYTES: usize = 192;

impl Record {
    /// The bytes of a record. Most directories have none in them: then the subtree isn't written a second time.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENCODED_BYTES);
        self.encode_to(&mut bytes);
        bytes
    }

    /// The same behind other bytes.
    pub(crate) fn encode_to(&self, bytes: &mut Vec<u8>) {
        bytes.reserve(ENCODED_BYTES);
        let mut out = Writer(std::mem::take(bytes));
        out.unsigned(self.id.subvolume);
        out.unsigned(self.id.ino);
        out.unsigned(self.id.generation.into());
        out.unsigned(self.parent.map_or(0, |parent| u64::from(parent.0) + 1));
        out.bytes(&self.name);
        out.unsigned(self.access.mode.into());
        out.unsigned(self.access.uid.into());
        out.unsigned(self.access.gid.into());
        out.unsigned(self.access.acl);
        out.unsigned(self.harvested.into());
        out.signed(self.harvested_at);
        out.fixed(self.stamp);
        out.signed(self.blocks);
        let alone = self.alone();
        let is_alone = self.subtree == alone;
        out.unsigned(u64::from(is_alone) | u64::from(!self.charged.is_zero()) << 1);
        put_totals(&mut out, &self.own);
        if !self.charged.is_zero() {
            out.sparse(&self.charged.fields());
        }
        if !is_alone {
            put_totals(&mut out, &self.subtree);
        }
        ascending(&mut out, self.links.iter().copied());
        *bytes = out.0;
    }

    /// A record from its bytes; `None` when they are none.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let mut from = Reader(bytes);
        let id = NodeId { subvolume: from.unsigned()?, ino: from.unsigned()?, generation: from.small()? };
        let parent = match from.unsigned()? {
            0 => None,
            above => Some(Slot(u32::try_from(above - 1).ok()?)),
        };
        let name = from.bytes()?.into();
        let (mode, uid, gid, acl) = (from.small()?, from.small()?, from.small()?, from.unsigned()?);
        let (harvested, harvested_at, stamp, blocks) = (from.small()?, from.signed()?, from.fixed()?, from.signed()?);
        let marks = from.unsigned()?;
        let own = read_totals(&mut from)?;
        let charged = if marks & 2 != 0 { Sums::of_fields(from.sparse()?) } else { Sums::default() };
        let access = Access { mode, uid, gid, acl };
        let mut record = Record {
            id,
            parent,
            name,
            access,
            harvested,
            harvested_at,
            stamp,
            blocks,
            own,
            charged,
            ..Record::default()
        };
        record.subtree = if marks & 1 != 0 { record.alone() } else { read_totals(&mut from)? };
        record.links = read_ascending(&mut from)?;
        from.is_done().then_some(record)
    }

    /// What the tree knows of it, from its bytes: most of them are passed over. `None` when they are no record.
    pub(crate) fn known(bytes: &[u8], names: &NameHash) -> Option<Known> {
        let mut from = Reader(bytes);
        let id = NodeId { subvolume: from.unsigned()?, ino: from.unsigned()?, generation: from.small()? };
        let parent = match from.unsigned()? {
            0 => None,
            above => Some(Slot(u32::try_from(above - 1).ok()?)),
        };
        let name = names.of(from.bytes()?);
        let (_mode, _uid, _gid, _acl) = (from.small()?, from.small()?, from.small()?, from.unsigned()?);
        let (harvested, _at, stamp, _blocks) = (from.small()?, from.signed()?, from.fixed()?, from.signed()?);
        let marks = from.unsigned()?;
        read_totals(&mut from)?;
        if marks & 2 != 0 {
            from.sparse::<{ Sums::FIELDS }>()?;
        }
        if marks & 1 == 0 {
            read_totals(&mut from)?;
        }
        let has_links = !read_ascending(&mut from)?.is_empty();
        from.is_done().then_some(Known { id, parent, name, harvested, stamp, has_links })
    }

    /// The directory itself, without its entries.
    pub fn itself(&self) -> Sums {
        let (blocks, closed) = (self.blocks, self.own.sums.closed);
        let directory_bytes = self.own.sums.directory_bytes;
        Sums { blocks, freed_blocks: blocks, directory_bytes, directories: 1, closed, ..Sums::default() }
    }

    /// What it comes to without the directories in it.
    pub fn alone(&self) -> Totals {
        let mut alone = self.own;
        alone.sums += self.charged;
        alone
    }
}

pub(crate) fn put_totals(out: &mut Writer, totals: &Totals) {
    out.sparse(&totals.sums.fields());
    match totals.extremes.newest {
        None => out.unsigned(0),
        Some(time) => {
            out.unsigned(u64::from(time.nanos) + 1);
            out.signed(time.secs);
        }
    }
    match totals.extremes.largest {
        None => out.unsigned(0),
        Some(largest) => {
            out.unsigned(u64::from(largest.directory) + 1);
            out.unsigned(largest.bytes);
            out.unsigned(largest.ino);
        }
    }
}

pub(crate) fn read_totals(from: &mut Reader<'_>) -> Option<Totals> {
    let sums = Sums::of_fields(from.sparse()?);
    let newest = match from.unsigned()? {
        0 => None,
        nanos => Some(Time { nanos: u32::try_from(nanos - 1).ok()?, secs: from.signed()? }),
    };
    let largest = match from.unsigned()? {
        0 => None,
        directory => Some(Largest {
            directory: u32::try_from(directory - 1).ok()?,
            bytes: from.unsigned()?,
            ino: from.unsigned()?,
        }),
    };
    Some(Totals { sums, extremes: Extremes { newest, largest } })
}

/// How many there are, then the distance of each from the one before.
fn ascending(out: &mut Writer, values: impl ExactSizeIterator<Item = u64>) {
    out.unsigned(values.len() as u64);
    let mut before = 0_u64;
    for value in values {
        out.unsigned(value.wrapping_sub(before));
        before = value;
    }
}

fn read_ascending(from: &mut Reader<'_>) -> Option<Vec<u64>> {
    let count = from.unsigned()?;
    // Each takes a byte at least.
    if count > from.0.len() as u64 {
        return None;
    }
    let mut before = 0_u64;
    (0..count)
        .map(|_| {
            before = before.wrapping_add(from.unsigned()?);
            Some(before)
        })
        .collect()
}

impl Linked {
    /// The bytes that the store keeps.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.encode_names(&mut out);
        self.charges.encode(&mut out, self.weight);
        out.fixed(self.facts);
        out.0
    }

    /// What comes first in them: all but the charges and the facts.
    pub(crate) fn encode_names(&self, out: &mut Writer) {
        out.unsigned(self.generation.into());
        out.unsigned(self.links.into());
        out.sparse(&self.weight.fields());
        ascending(out, self.places.iter().map(|place| place.0.into()));
    }

    /// A linked inode from its bytes; `None` when they are none.
    pub fn decode(bytes: &[u8]) -> Option<Linked> {
        let mut from = Reader(bytes);
        let mut linked = Linked::decode_names(&mut from)?;
        linked.charges = Charges::decode(&mut from, linked.weight)?;
        linked.facts = from.fixed()?;
        from.is_done().then_some(linked)
    }

    /// What [`Self::encode_names`] has written.
    pub(crate) fn decode_names(from: &mut Reader<'_>) -> Option<Linked> {
        let (generation, links) = (from.small()?, from.small()?);
        let weight = Sums::of_fields(from.sparse()?);
        let places = read_ascending(from)?;
        let places = places.into_iter().map(|place| u32::try_from(place).ok().map(Slot)).collect::<Option<_>>()?;
        Some(Linked { generation, weight, links, places, ..Linked::default() })
    }
}

impl Charges {
    /// `weight`, the inode's, is mostly that of the charges, too.
    fn encode(&self, out: &mut Writer, weight: Sums) {
        let mut more = self.weight;
        more -= weight;
        out.sparse(&more.fields());
        out.unsigned(self.freed_at.map_or(0, |slot| u64::from(slot.0) + 1));
        ascending(out, self.times.iter().map(|(slot, _)| slot.0.into()));
        self.times.iter().for_each(|(_, times)| out.signed((*times).into()));
    }

    fn decode(from: &mut Reader<'_>, mut weight: Sums) -> Option<Charges> {
        weight += Sums::of_fields(from.sparse()?);
        let freed_at = match from.unsigned()? {
            0 => None,
            slot => Some(Slot(u32::try_from(slot - 1).ok()?)),
        };
        let slots = read_ascending(from)?;
        let mut times = |slot: u64| Some((Slot(slot.try_into().ok()?), from.signed()?.try_into().ok()?));
        let times = slots.into_iter().map(&mut times).collect::<Option<_>>()?;
        Some(Charges { weight, times, freed_at })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::nodes::Nodes;

    #[test]
    fn what_shuts_anybody_out_is_not_open_to_all() {
        let is_open = |mode, acl| Access { mode, acl, ..Access::default() }.is_open_to_all();
        assert!(is_open(0o40_755, 0) && is_open(0o41_777, 0) && is_open(0o40_555, 0));
        for mode in [0o705, 0o055, 0o715, 0o745, 0o155, 0o750, 0o754, 0o751] {
            assert!(!is_open(0o40_000 | mode, 0), "{mode:o}");
        }
        assert!(!is_open(0o40_755, 7));
    }

    fn any_totals() -> impl Strategy<Value = Totals> {
        let newest = proptest::option::of((any::<i64>(), 0..1_000_000_000_u32));
        let largest = proptest::option::of((any::<u64>(), any::<u64>(), any::<u32>()));
        (any::<[i64; Sums::FIELDS]>(), newest, largest).prop_map(|(fields, newest, largest)| Totals {
            sums: Sums::of_fields(fields),
            extremes: Extremes {
                newest: newest.map(|(secs, nanos)| Time { secs, nanos }),
                largest: largest.map(|(bytes, ino, directory)| Largest { bytes, ino, directory }),
            },
        })
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let id = any::<(u64, u64, u32)>();
        let id = id.prop_map(|(subvolume, ino, generation)| NodeId { subvolume, ino, generation });
        let access = any::<(u32, u32, u32, u64)>();
        let access = access.prop_map(|(mode, uid, gid, acl)| Access { mode, uid, gid, acl });
        let place = (proptest::option::of(any::<u32>()), any::<Vec<u8>>(), any::<(u32, i64, u64, i64)>());
        let sums = (any_totals(), any::<[i64; Sums::FIELDS]>(), proptest::option::of(any_totals()));
        (id, access, place, sums, vec(any::<u64>(), 0..5)).prop_map(
            |(id, access, (parent, name, harvest), (own, charged, subtree), mut links)| {
                let (harvested, harvested_at, stamp, blocks) = harvest;
                links.sort_unstable();
                let charged = Sums::of_fields(charged);
                let parent = parent.filter(|&parent| parent < u32::MAX).map(Slot);
                let subtree = subtree.unwrap_or_default();
                Record {
                    id,
                    parent,
                    name: name.into(),
                    access,
                    harvested,
                    harvested_at,
                    stamp,
                    blocks,
                    own,
                    charged,
                    subtree,
                    links,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn records_come_back(mut record in any_record(), alone: bool, uncharged: bool) {
            if uncharged {
                record.charged = Sums::default();
            }
            if alone {
                record.subtree = record.alone();
            }
            let bytes = record.encode();
            let (nodes, &Record { id, parent, harvested, stamp, .. }) = (Nodes::new(), &record);
            let names = nodes.name_hash();
            let (name, has_links) = (names.of(&record.name), !record.links.is_empty());
            let known = Known { id, parent, name, harvested, stamp, has_links };
            prop_assert_eq!(Record::known(&bytes, names), Some(known));
            prop_assert_eq!(Record::known(&bytes[..bytes.len() - 1], names), None);
            prop_assert_eq!(Record::decode(&bytes), Some(record));
            prop_assert_eq!(Record::decode(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn linked_inodes_come_back(
            generation: u32, links: u32, facts: u64, weights: [[i64; Sums::FIELDS]; 2], mut places: Vec<u32>,
            times in vec(any::<(u32, i32)>(), 0..5), freed_at: Option<u32>,
        ) {
            places.sort_unstable();
            let [weight, weight_then] = weights.map(Sums::of_fields);
            let times = times.into_iter().map(|(slot, times)| (Slot(slot), times)).collect();
            let charges = Charges { weight: weight_then, times, freed_at: freed_at.map(Slot) };
            let places = places.into_iter().map(Slot).collect();
            let linked = Linked { generation, weight, links, facts, places, charges };
            let bytes = linked.encode();
            prop_assert_eq!(Linked::decode(&bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(Linked::decode(&bytes), Some(linked));
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes: Vec<u8>) {
            let known = Record::known(&bytes, Nodes::new().name_hash());
            prop_assert_eq!(Record::decode(&bytes).is_some(), known.is_some());
            let _ = Linked::decode(&bytes);
        }
    }

    /// A directory as most are: ten files, none in it.
    #[test]
    fn a_usual_record_is_short() {
        let sums = Sums {
            bytes: 81_920,
            directory_bytes: 4096,
            blocks: 168,
            freed_blocks: 168,
            files: 10,
            directories: 1,
            ..Sums::default()
        };
        let newest = Some(Time { secs: 1_790_000_000, nanos: 123_456_789 });
        let largest = Some(Largest { bytes: 8192, ino: 1_234_567, directory: 200_000 });
        let own = Totals { sums, extremes: Extremes { newest, largest } };
        let mut record = Record {
            id: NodeId { subvolume: 0, ino: 1_234_560, generation: 3_000_000_000 },
            parent: Some(Slot(180_000)),
            name: b"some-project"[..].into(),
            access: Access { mode: 0o40_755, uid: 1000, gid: 1000, acl: 0 },
            harvested: 77,
            harvested_at: 1_790_000_000,
            stamp: u64::MAX / 3,
            own,
            ..Record::default()
        };
        record.subtree = record.alone();
        assert_eq!(record.encode().len(), 79);
    }
}
