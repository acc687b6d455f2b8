//! Addresses of several devices in one order, in which all of them are at work.
//!
//! A plan has one order. If it took a btrfs device by device, one disk would work at a time. So each device is a lane, and
//! the order goes over the lanes in turns, a unit of each: with requests for a few units in flight, all heads move, each of
//! them forward. Who knows what is to be read makes better turns of it, by the work on each lane. What is spread over several
//! devices in any case (RAID 0, 10, 5, 6) is one lane of its own, in the order of btrfs's addresses: the kernel splits each
//! read. Where copies take turns, each device has its own turns of them, and those of RAID 10 are a lane for each copy. Where
//! there is but one lane, its addresses are those of the device.

use std::collections::{BTreeMap, BTreeSet};

use super::chunks::{COPY_TURN, Chunk, ChunkMap, Mirror, Place, Profile};

/// Bytes of a lane before the order goes on to the next: several small files, or one large read.
pub const UNIT: u64 = 256 << 10;

/// No file system is so large; addresses of an order stay below.
const SPAN_MAX: u64 = 1 << 56;

const _: () = assert!(COPY_TURN.is_multiple_of(UNIT));

/// One order for all addresses of a btrfs.
#[derive(Clone, Debug)]
pub struct Lanes {
    map: ChunkMap,
    lanes: u64,
    /// By the chunk's address: the way of each copy that takes turns.
    ways: BTreeMap<u64, Vec<Way>>,
    /// What begins at a place of a lane.
    begun: BTreeMap<(u64, u64), Begun>,
    span: u64,
    devices: usize,
    stages: Vec<u64>,
}

/// The place of a chunk in its lane, or of the turns of a copy.
#[derive(Clone, Copy, Debug)]
struct Way {
    lane: u64,
    first: u64,
}

/// The address of a chunk, and which of so many copies.
#[derive(Clone, Copy, Debug)]
struct Begun {
    address: u64,
    copy: u16,
    copies: u16,
}

/// What is read in an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    /// The copy of what several devices share in any case.
    Spread(u16),
    Device(u64),
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
        let lanes: Vec<Lane> = data()
            .flat_map(|chunk| turns(&map, chunk))
            .map(|(chunk, copy)| lane_of(&map, chunk, copy))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let devices: BTreeSet<u64> =
            map.chunks().flat_map(|chunk| &chunk.stripes).map(|stripe| stripe.device).collect();
        let is_one_device = lanes.len() < 2 && !lanes.iter().any(|lane| matches!(lane, Lane::Spread(_)));
        let mut on_devices: Vec<(u64, &Chunk, u16)> = data()
            .flat_map(|chunk| turns(&map, chunk))
            .map(|(chunk, copy)| (first_byte(&map, chunk, copy), chunk, copy))
            .collect();
        on_devices.sort_by_key(|&(byte, chunk, copy)| (byte, chunk.address, copy));
        let mut ends = vec![0_u64; lanes.len()];
        let (mut ways, mut begun, mut span) = (BTreeMap::<u64, Vec<(u16, Way)>>::new(), BTreeMap::new(), 0);
        for (byte, chunk, copy) in on_devices {
            let lane = lanes.binary_search(&lane_of(&map, chunk, copy)).ok()?;
            let first = if is_one_device { byte } else { ends[lane] };
            let copies = map.turns_of(chunk);
            ends[lane] = first.checked_add(room(chunk.length, copies)?)?.checked_next_multiple_of(UNIT)?;
            let way = Way { lane: lane as u64, first };
            ways.entry(chunk.address).or_default().push((copy, way));
            begun.insert((way.lane, first), Begun { address: chunk.address, copy, copies });
            span = span.max(ends[lane].checked_mul(lanes.len() as u64).filter(|&span| span <= SPAN_MAX)?);
        }
        let by_copy = |mut ways: Vec<(u16, Way)>| {
            ways.sort_by_key(|&(copy, _)| copy);
            ways.into_iter().map(|(_, way)| way).collect()
        };
        let ways = ways.into_iter().map(|(address, ways)| (address, by_copy(ways))).collect();
        let firsts = || begun.keys().map(|&(_, first)| first).collect::<BTreeSet<u64>>().into_iter().collect();
        let stages = if change_lanes(&map, &lanes) { firsts() } else { Vec::new() };
        Some(Lanes { lanes: lanes.len() as u64, ways, begun, span, devices: devices.len(), stages, map })
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
        let ways = self.ways.get(&chunk.address)?;
        let offset = address - chunk.address;
        let (copy, within, left) = turn_of(offset, ways.len() as u64);
        let way = ways.get(usize::try_from(copy).ok()?)?;
        let at = way.first + within;
        let left = left.min(chunk.length - offset);
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

    /// The same where turns of copies are not told apart: what has copies that take turns is a lane of its own, behind the
    /// others, in the order of btrfs's addresses.
    pub fn undivided(&self, place: u64) -> Option<(u64, u64)> {
        match self.address(place) {
            Some((address, begun)) if begun.copies > 1 => Some((self.lanes, address)),
            _ => self.in_lane(place),
        }
    }

    /// How many lanes there are.
    pub fn count(&self) -> u64 {
        self.lanes
    }

    /// The device and the byte of it that have this place in the order.
    pub fn on_device(&self, place: u64) -> Option<Place> {
        self.address(place).and_then(|(address, _)| self.map.place(address))
    }

    /// How far along in every lane others of the devices are read there than before; empty where none ever changes its lane. Who
    /// doesn't keep in step from one to the next has a device read in two lanes, and so in two places, at a time.
    pub fn stages(&self) -> &[u64] {
        &self.stages
    }

    /// Which copy of what lies at this place in the order is to be read; `None` where there is no choice.
    pub fn copy(&self, place: u64) -> Option<u16> {
        self.address(place).filter(|(_, begun)| begun.copies > 1).map(|(_, begun)| begun.copy)
    }

    /// The address of a place in the order.
    fn address(&self, place: u64) -> Option<(u64, Begun)> {
        let (lane, at) = self.in_lane(place)?;
        let (&(_, first), &begun) = self.begun.range((lane, 0)..=(lane, at)).next_back()?;
        let (chunk, at) = (self.map.chunk(begun.address)?, at - first);
        let offset = match begun.copies {
            0 | 1 => at,
            copies => {
                let turn = (at / COPY_TURN).checked_mul(copies.into())?.checked_add(begun.copy.into())?;
                turn.checked_mul(COPY_TURN)?.checked_add(at % COPY_TURN)?
            }
        };
        (offset < chunk.length).then(|| (chunk.address + offset, begun))
    }
}

/// A chunk once for each copy that takes turns.
fn turns<'a>(map: &ChunkMap, chunk: &'a Chunk) -> impl Iterator<Item = (&'a Chunk, u16)> + use<'a> {
    (0..map.turns_of(chunk)).map(move |copy| (chunk, copy))
}

/// Which of so many copies has its turn at a byte of a chunk, how many bytes of its turns lie before that, and how many are
/// left of this one.
fn turn_of(offset: u64, copies: u64) -> (u64, u64, u64) {
    if copies < 2 {
        return (0, offset, u64::MAX);
    }
    let (turn, within) = (offset / COPY_TURN, offset % COPY_TURN);
    (turn % copies, turn / copies * COPY_TURN + within, COPY_TURN - within)
}

/// Bytes that a copy takes in its lane: all of the chunk, or room for its turns, the same for each copy, so that lanes which
/// have devices in common keep step.
fn room(length: u64, copies: u16) -> Option<u64> {
    match copies {
        0 | 1 => Some(length),
        copies => length.div_ceil(COPY_TURN).div_ceil(copies.into()).checked_mul(COPY_TURN),
    }
}

/// Where the first turn of a copy begins on its device, or would. Copies that are spread have one order, so that they keep step.
fn first_byte(map: &ChunkMap, chunk: &Chunk, copy: u16) -> u64 {
    match (map.turns_of(chunk), lane_of(map, chunk, copy)) {
        (0 | 1, _) => map.place(chunk.address).map_or(0, |place| place.byte),
        (_, Lane::Spread(_)) => chunk.place(0, Mirror(0)).byte,
        (_, Lane::Device(_)) => chunk.place(0, Mirror(copy)).byte,
    }
}

/// Whether a device is read for one copy in a chunk and for another one elsewhere, where all copies are spread.
fn change_lanes(map: &ChunkMap, lanes: &[Lane]) -> bool {
    let are_spread = lanes.len() > 1 && lanes.iter().all(|lane| matches!(lane, Lane::Spread(_)));
    let mut roles = BTreeMap::new();
    are_spread
        && map.chunks().filter(|chunk| chunk.is_data && chunk.profile == Profile::StripedMirrors).any(|chunk| {
            let copies = (0..chunk.sub_stripes.max(1)).cycle();
            chunk.stripes.iter().zip(copies).any(|(stripe, copy)| *roles.entry(stripe.device).or_insert(copy) != copy)
        })
}

/// The lane that a chunk is read in, or the turns of a copy.
fn lane_of(map: &ChunkMap, chunk: &Chunk, copy: u16) -> Lane {
    let place = match map.turns_of(chunk) {
        0 | 1 => map.place(chunk.address),
        _ => Some(chunk.place(0, Mirror(copy))),
    };
    let whole = place.filter(|place| place.run == chunk.length);
    whole.map_or(Lane::Spread(copy), |place| Lane::Device(place.device))
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

    /// Of four chunks with two copies, each device reads every other 16 MiB, in the order of its own addresses.
    #[test]
    fn copies_in_turns_are_shared_out_among_the_devices() {
        let large = |address, profile, stripes: &[(u64, u64)]| Chunk {
            length: 100 * MIB,
            sub_stripes: 2,
            ..chunk(address, profile, stripes)
        };
        let turns =
            |chunks: &[Chunk]| Lanes::new(ChunkMap::new(chunks.to_vec(), Mirror(0)).unwrap().in_turns()).unwrap();
        let mirrored = [
            large(0, Profile::Mirrored, &[(1, 300), (2, 900)]),
            large(200, Profile::Mirrored, &[(2, 700), (1, 500)]),
            large(400, Profile::Mirrored, &[(1, 100), (2, 100)]),
        ];
        let striped = [
            large(0, Profile::StripedMirrors, &[(1, 0), (2, 0), (3, 0), (4, 0)]),
            large(200, Profile::StripedMirrors, &[(2, 100), (4, 100), (1, 100), (3, 100)]),
        ];
        for (chunks, devices) in [(&mirrored[..], 2), (&striped[..], 4)] {
            let lanes = turns(chunks);
            assert_eq!((lanes.count(), lanes.devices()), (2, devices));
            let mut order: Vec<(u64, u64, u64)> = Vec::new();
            for chunk in chunks {
                for address in (chunk.address..chunk.end()).step_by(64 << 10) {
                    let (at, place) = (lanes.place(address).unwrap(), lanes.map().place(address).unwrap());
                    assert_eq!(lanes.on_device(at), Some(place));
                    let copy = lanes.copy(at).unwrap();
                    assert_eq!(u64::from(copy), (address - chunk.address) / COPY_TURN % 2);
                    assert_eq!(lanes.undivided(at), Some((2, address)));
                    order.push((at, place.device, place.byte));
                }
            }
            order.sort_unstable();
            let all = order.len();
            for device in 1..=devices as u64 {
                let bytes: Vec<u64> = order.iter().filter(|entry| entry.1 == device).map(|entry| entry.2).collect();
                assert!(bytes.is_sorted(), "each head goes forward");
                let share = bytes.len() as f64 / all as f64 * devices as f64;
                assert!((0.8..1.2).contains(&share), "device {device} has {share} of its share");
            }
            let spans: Vec<u64> = chunks.iter().map(|chunk| lanes.place(chunk.end() - 1).unwrap()).collect();
            assert!(spans.iter().all(|&place| place < lanes.span()));
        }
        assert_eq!(lanes(&mirrored).copy(0), None, "nobody chooses");
        let room = 2 * 2 * COPY_TURN;
        assert_eq!(turns(&striped).stages(), [0, room]);
        // Places on the devices of the second copies tell nothing else.
        let late = large(0, Profile::StripedMirrors, &[(1, 0), (2, 500), (3, 0), (4, 500)]);
        let late = turns(&[late, striped[1].clone()]);
        let along = |address| late.in_lane(late.place(address).unwrap()).unwrap().1;
        assert_eq!((late.stages(), along(0), along(COPY_TURN)), (&[0, room][..], 0, 0));
        let alike = large(200, Profile::StripedMirrors, &[(3, 100), (4, 100), (1, 100), (2, 100)]);
        for chunks in [&mirrored[..], &[striped[0].clone(), alike]] {
            assert_eq!(turns(chunks).stages(), [0; 0], "each device stays in its lane");
        }
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
            vec![
                Chunk { length: 71 * MIB, ..chunk(3, Profile::Mirrored, &[(1, 7), (2, 9)]) },
                Chunk { length: 33 * MIB, ..chunk(90, Profile::Mirrored, &[(2, 100), (1, 300)]) },
                chunk(140, Profile::Mirrored, &[(1, 500), (2, 500)]),
                chunk(150, Profile::Single, &[(1, 600)]),
            ],
        ];
        let maps = all.iter().flat_map(|chunks| {
            let map = ChunkMap::new(chunks.clone(), Mirror(0)).unwrap();
            [(chunks, map.clone()), (chunks, map.in_turns())]
        });
        for (chunks, map) in maps {
            let lanes = Lanes::new(map).unwrap();
            let mut covered: Vec<(u64, u64)> = Vec::new();
            for chunk in chunks {
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
