//! The hashes of names, by which ext4 finds them in indexed directories. Here they are needed for the names that encrypted
//! directories show without their key: the hash is a part of them.

use super::fields::le32;
use crate::tables::cast::to_u32;

/// A hash of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameHash {
    algorithm: Algorithm,
    /// Whether bytes from 128 on count as negative.
    signed: bool,
    seed: [u32; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Legacy,
    HalfMd4,
    Tea,
}

impl NameHash {
    /// The hash with that number, of 16 bytes of seed; all zeros for the seed of MD4. `None` for one that names alone don't tell.
    pub(super) fn new(version: u8, unsigned: bool, seed: &[u8]) -> Option<NameHash> {
        let (algorithm, signed) = match version {
            0 => (Algorithm::Legacy, !unsigned),
            1 => (Algorithm::HalfMd4, !unsigned),
            2 => (Algorithm::Tea, !unsigned),
            3 => (Algorithm::Legacy, false),
            4 => (Algorithm::HalfMd4, false),
            5 => (Algorithm::Tea, false),
            _ => return None,
        };
        let mut seed = [le32(seed, 0), le32(seed, 4), le32(seed, 8), le32(seed, 12)];
        if seed == [0; 4] {
            seed = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
        }
        Some(NameHash { algorithm, signed, seed })
    }

    /// The hash and the minor hash of a name.
    pub(super) fn of(&self, name: &[u8]) -> [u32; 2] {
        let mut state = self.seed;
        let [hash, minor] = match self.algorithm {
            Algorithm::Legacy => [self.legacy(name), 0],
            Algorithm::HalfMd4 => {
                for (index, part) in name.chunks(32).enumerate() {
                    half_md4(&mut state, &self.words(part, name.len() - 32 * index));
                }
                [state[1], state[2]]
            }
            Algorithm::Tea => {
                for (index, part) in name.chunks(16).enumerate() {
                    tea(&mut state, &self.words(part, name.len() - 16 * index));
                }
                [state[0], state[1]]
            }
        };
        // The highest hash marks the end of a directory.
        let hash = hash & !1;
        [if hash == 0xFFFF_FFFE { 0xFFFF_FFFC } else { hash }, minor]
    }

    fn number(&self, byte: u8) -> u32 {
        if self.signed { byte as i8 as u32 } else { byte.into() }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
        for &byte in name {
            let mut hash = before.wrapping_add(last ^ self.number(byte).wrapping_mul(7_152_373));
            if hash & 0x8000_0000 != 0 {
                hash = hash.wrapping_sub(0x7FFF_FFFF);
            }
            (before, last) = (last, hash);
        }
        last << 1
    }

    /// A part of a name as words, filled up with its length, of which `left` is that to the end of the name.
    fn words<const N: usize>(&self, part: &[u8], left: usize) -> [u32; N] {
        let left = to_u32(left as u64);
        let padding = (left | left << 8).wrapping_mul(0x1_0001);
        let mut words = [padding; N];
        for (word, bytes) in words.iter_mut().zip(part.chunks(4)) {
            for &byte in bytes {
                *word = self.number(byte).wrapping_add(*word << 8);
            }
        }
        words
    }
}

fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [u32; 4], [usize; 8]); 3] = [
        (|x, y, z| z ^ x & (y ^ z), 0, [3, 7, 11, 19], [0, 1, 2, 3, 4, 5, 6, 7]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5A82_7999, [3, 5, 9, 13], [1, 3, 5, 7, 0, 2, 4, 6]),
        (|x, y, z| x ^ y ^ z, 0x6ED9_EBA1, [3, 9, 11, 15], [3, 7, 2, 6, 1, 5, 0, 4]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, turns, order) in rounds {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(constant);
            (a, d, c, b) = (d, c, b, sum.rotate_left(turns[step % 4]));
        }
    }
    for (word, added) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(added);
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut x, mut y, mut sum) = (state[0], state[1], 0_u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let mixed = (y << 4).wrapping_add(key[0]) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(key[1]);
        x = x.wrapping_add(mixed);
        let mixed = (x << 4).wrapping_add(key[2]) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(key[3]);
        y = y.wrapping_add(mixed);
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_debugfs() {
        // By `dx_hash -h … name` of debugfs.
        for (version, name, expected) in CASES {
            let hash = NameHash::new(*version, false, &[0; 16]).unwrap();
            assert_eq!(hash.of(name), *expected, "{version} {}", name.escape_ascii());
        }
        assert_eq!(NameHash::new(6, false, &[0; 16]), None);
    }

    const LONG: &[u8] = b"a-rather-long-name-which-goes-over-32-bytes.txt";
    const CASES: &[(u8, &[u8], [u32; 2])] = &[
        (0, b"hello_world", [0xF42D_112E, 0]),
        (0, LONG, [0x7DCF_8170, 0]),
        (0, "n\u{e9}".as_bytes(), [0xCC98_69F0, 0]),
        (1, b"a", [0xD5FA_7D7A, 0xACB4_8187]),
        (1, LONG, [0xD49C_AEA8, 0x4589_A1B7]),
        (1, "n\u{e9}".as_bytes(), [0xCD4F_5976, 0xAC36_20A1]),
        (2, b"hello_world", [0x6CF0_D90E, 0x5FC3_632A]),
        (2, LONG, [0x3833_D1C6, 0xB3E6_C529]),
        (2, "n\u{e9}".as_bytes(), [0x8DD8_D3D0, 0xAD48_0893]),
    ];
}
