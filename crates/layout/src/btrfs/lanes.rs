//! Addresses of several devices in one order, in which all of them are at work.
//!
//! A plan has one order. If it took a btrfs device by device, one disk would work at a time. So each device is a lane, and
//! the order goes over the lanes in turns, a unit of each: with requests for a few units in flight, all heads move, each of
//! them forward. What is spread over several devices in any case (RAID 0, 10, 5, 6) is one lane of its own, in the order
//! of btrfs's addresses: the kernel splits each read. Where there is but one lane, its addresses are those of the device.

use std::collections::{BTreeMap, BTreeSet};

use super::chunks::{Chunk, ChunkMap, Place};

/// Bytes of a lane before the order goes on to the next: several small files, or one large read.
const UNIT: u64 = 256 << 10;

/// No file system is so large; addresses of an order stay below.
const SPAN_MAX: u64 = 1 << 56;

/// One order for all addresses of a btrfs.
#[derive(Clone, Debug)]
pub struct Lanes {
    map: ChunkMap,
    lanes: u64,
    /// By the chunk's address.
    ways: BTreeMap<u64, Way>,
    /// The address of a chunk, by its lane and where it begins there.
    chunks: BTreeMap<(u64, u64), u64>,
    span: u64,
    devices: usize,
}

/// The place of a chunk in its lane.
#[derive(Clone, Copy, Debug)]
struct Way {
    lane: u64,
    first: u64,
}

/// A run of addresses that is also one of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it begins in the order; `None` when no chunk has its address.
    pub place: Option<u64>,
    /// Bytes of what was asked for that lie before it.
    pub skip: u64,
    /// Its bytes.
    pub length: u64,
}

impl Lanes {
    /// The order of what the map holds. `None` when its chunks lie further out than any device reaches.
    pub fn new(map: ChunkMap) -> Option<Lanes> {
        let data = || map.chunks().filter(|chunk| chunk.is_data);
        let lanes: Vec<Option<u64>> =
            data().map(|chunk| device_of(&map, chunk)).collect::<BTreeSet<_>>().into_iter().collect();
        let devices: BTreeSet<u64> =
            map.chunks().flat_map(|chunk| &chunk.stripes).map(|stripe| stripe.device).collect();
        let is_one_device = lanes.len() < 2 && lanes.first().is_none_or(Option::is_some);
        let mut on_devices: Vec<(u64, &Chunk)> =
            data().map(|chunk| (map.place(chunk.address).map_or(0, |place| place.byte), chunk)).collect();
        on_devices.sort_by_key(|&(byte, chunk)| (byte, chunk.address));
        let mut ends = vec![0_u64; lanes.len()];
        let (mut ways, mut chunks, mut span) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (byte, chunk) in on_devices {
            let lane = lanes.binary_search(&device_of(&map, chunk)).ok()?;
            let first = if is_one_device { byte } else { ends[lane] };
            ends[lane] = first.checked_add(chunk.length)?.checked_next_multiple_of(UNIT)?;
            let way = Way { lane: lane as u64, first };
            ways.insert(chunk.address, way);
            chunks.insert((way.lane, first), chunk.address);
            span = span.max(ends[lane].checked_mul(lanes.len() as u64).filter(|&span| span <= SPAN_MAX)?);
        }
        Some(Lanes { lanes: lanes.len() as u64, ways, chunks, span, devices: devices.len(), map })
    }

    /// The map that the order was made from.
    pub fn map(&self) -> &ChunkMap {
        &self.map
    }

    /// Devices that anything lies on.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Places in the order are below this.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Visits the runs of `length` bytes (one at least) from an address on.
    pub fn runs(&self, address: u64, length: u64, visit: &mut dyn FnMut(Run)) {
        let mut skip = 0;
        while skip < length {
            let left = length - skip;
            let (place, most) = match address.checked_add(skip).and_then(|at| self.run_at(at)) {
                Some((place, most)) => (Some(place), most),
                None => (None, left),
            };
            let run = Run { place, skip, length: left.min(most) };
            visit(run);
            skip += run.length;
        }
    }

    /// Where an address comes in the order.
    pub fn place(&self, address: u64) -> Option<u64> {
        self.run_at(address).map(|(place, _)| place)
    }

    /// Where an address comes in the order, and how many bytes follow there; never none.
    fn run_at(&self, address: u64) -> Option<(u64, u64)> {
        let chunk = self.map.chunk(address)?;
        let way = self.ways.get(&chunk.address)?;
        let at = way.first + (address - chunk.address);
        let left = chunk.end() - address;
        if self.lanes == 1 {
            return Some((at, left));
        }
        let (unit, within) = (at / UNIT, at % UNIT);
        Some(((unit * self.lanes + way.lane) * UNIT + within, left.min(UNIT - within)))
    }

    /// The lane of a place in the order, and how far along that it is: what follows in a lane follows there. `None` where there
    /// is no lane.
    pub fn in_lane(&self, place: u64) -> Option<(u64, u64)> {
        match self.lanes {
            0 => None,
            1 => Some((0, place)),
            lanes => Some(((place / UNIT) % lanes, place / UNIT / lanes * UNIT + place % UNIT)),
        }
    }

    /// How many lanes there are.
    pub fn count(&self) -> u64 {
        self.lanes
    }

    /// The device and the byte of it that have this place in the order.
    pub fn on_device(&self, place: u64) -> Option<Place> {
        let (lane, at) = self.in_lane(place)?;
        let (&(_, first), &address) = self.chunks.range((lane, 0)..=(lane, at)).next_back()?;
        let chunk = self.map.chunk(address)?;
        (at - first < chunk.length).then(|| self.map.place(address + (at - first)))?
    }
}

/// The device that a chunk is read from; `None` when it is spread over several.
fn device_of(map: &ChunkMap, chunk: &Chunk) -> Option<u64> {
    let place = map.place(chunk.address)?;
    (place.run == chunk.length).then_some(place.device)
}

#[cfg(test)]
mod tests {
    use super::super::chunks::{Mirror, Profile, Stripe};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn chunk(address: u64, profile: Profile, stripes: &[(u64, u64)]) -> Chunk {
        let stripes = stripes.iter().map(|&(device, offset)| Stripe { device, offset: offset * MIB }).collect();
        Chunk {
            address: address * MIB,
            length: 8 * MIB,
            is_data: true,
            profile,
            stripe_bytes: 64 << 10,
            sub_stripes: 0,
            stripes,
        }
    }

    fn lanes(chunks: &[Chunk]) -> Lanes {
        Lanes::new(ChunkMap::new(chunks.to_vec(), Mirror(0)).unwrap()).unwrap()
    }

    fn runs(lanes: &Lanes, address: u64, length: u64) -> Vec<(Option<u64>, u64)> {
        let (mut runs, mut next) = (Vec::new(), 0);
        lanes.runs(address, length, &mut |run| {
            assert_eq!(run.skip, next);
            next += run.length;
            runs.push((run.place, run.length));
        });
        assert_eq!(next, length);
        runs
    }

    #[test]
    fn one_device_keeps_its_addresses() {
        let lanes = lanes(&[
            chunk(100, Profile::Single, &[(1, 50)]),
            chunk(108, Profile::Single, &[(1, 20)]),
            chunk(116, Profile::Mirrored, &[(1, 70), (1, 90)]),
        ]);
        assert_eq!(runs(&lanes, 100 * MIB, 9 * MIB), [(Some(50 * MIB), 8 * MIB), (Some(20 * MIB), MIB)]);
        assert_eq!(lanes.place(116 * MIB + 5), Some(70 * MIB + 5));
        assert_eq!(runs(&lanes, 123 * MIB, 2 * MIB), [(Some(77 * MIB), MIB), (None, MIB)]);
        assert_eq!(runs(&lanes, u64::MAX, 2), [(None, 2)]);
        assert_eq!((lanes.span(), lanes.devices()), (78 * MIB, 1));
    }

    #[test]
    fn devices_take_turns_and_each_goes_forward() {
        // Two chunks on each device, in another order than their addresses.
        let lanes = lanes(&[
            chunk(0, Profile::Single, &[(1, 900)]),
            chunk(8, Profile::Single, &[(2, 10)]),
            chunk(16, Profile::Single, &[(1, 30)]),
            chunk(24, Profile::Mirrored, &[(2, 500), (1, 60)]),
        ]);
        let mut order: Vec<(u64, u64, u64)> = Vec::new();
        for address in (0..32 * MIB).step_by(UNIT as usize) {
            let place = lanes.map().place(address).unwrap();
            order.push((lanes.place(address).unwrap(), place.device, place.byte));
        }
        order.sort_unstable();
        for device in [1, 2] {
            let bytes: Vec<u64> = order.iter().filter(|entry| entry.1 == device).map(|entry| entry.2).collect();
            assert!(bytes.is_sorted() && bytes.len() == 64, "{bytes:?}");
        }
        assert!(order.chunks(2).all(|pair| pair[0].1 != pair[1].1), "{order:?}");
        // In a lane, what follows in a chunk follows without a gap.
        let ways = [0, UNIT, 2 * UNIT].map(|address| lanes.in_lane(lanes.place(address).unwrap()).unwrap());
        assert_eq!((lanes.count(), ways[1]), (2, (ways[0].0, ways[0].1 + UNIT)));
        assert_eq!(ways[2], (ways[0].0, ways[0].1 + 2 * UNIT));
    }

    #[test]
    fn what_is_spread_over_all_devices_is_one_run() {
        let lanes = lanes(&[
            chunk(100, Profile::Striped, &[(1, 50), (2, 70)]),
            chunk(200, Profile::Striped, &[(2, 10), (1, 20)]),
        ]);
        assert_eq!(runs(&lanes, 100 * MIB, 8 * MIB), [(Some(8 * MIB), 8 * MIB)], "behind the chunk at byte 10");
        assert_eq!(lanes.place(200 * MIB), Some(0));
        assert_eq!(lanes.devices(), 2);
    }

    /// Every place of the order is that of one address only, and leads back to its byte.
    #[test]
    fn no_two_addresses_share_a_place() {
        let all = [
            vec![chunk(3, Profile::Single, &[(1, 7)]), chunk(50, Profile::Single, &[(1, 40)])],
            vec![chunk(3, Profile::Single, &[(1, 7)]), chunk(50, Profile::Single, &[(2, 40)])],
            vec![
                chunk(3, Profile::Single, &[(1, 7)]),
                chunk(50, Profile::Mirrored, &[(4, 40), (2, 4)]),
                chunk(60, Profile::Striped, &[(1, 100), (2, 90), (4, 7)]),
                chunk(70, Profile::Parity(1), &[(1, 200), (2, 190), (4, 107)]),
            ],
        ];
        for chunks in all {
            let lanes = lanes(&chunks);
            let mut covered: Vec<(u64, u64)> = Vec::new();
            for chunk in &chunks {
                // Odd ends and lengths.
                lanes.runs(chunk.address, chunk.length - 5, &mut |run| {
                    let place = run.place.unwrap();
                    covered.push((place, run.length));
                    let found = lanes.on_device(place).unwrap();
                    assert_eq!(found, lanes.map().place(chunk.address + run.skip).unwrap());
                    assert!(place + run.length <= lanes.span());
                });
            }
            covered.sort_unstable();
            assert!(covered.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{covered:?}");
        }
    }

    #[test]
    fn nothing_is_somewhere_where_there_is_nothing() {
        let empty = Lanes::new(ChunkMap::default()).unwrap();
        assert_eq!((empty.place(0), empty.on_device(0)), (None, None));
        let far = chunk(3, Profile::Single, &[(1, SPAN_MAX / MIB)]);
        assert!(Lanes::new(ChunkMap::new(vec![far], Mirror(0)).unwrap()).is_none());
    }
}
