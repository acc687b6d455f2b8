//! One of several parts of a tree: who reads one each reads the tree together.

/// One of several parts of a tree, by the names of its files: each file is in exactly one of them, whoever asks, on whatever machine,
/// and whatever else is in the tree. Files whose paths are the same up to the first dot of the last name (`cat/1.jpg`,
/// `cat/1.json`) are in the same part.
///
/// In the order of the disk, a part is a thinned sweep: those who read one each side by side go over the disk together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    index: u32,
    of: u32,
    seed: u64,
}

impl Part {
    /// The part of that number, from 0 on, of so many; a text that says why there is none. Another seed deals the files out anew.
    pub fn new(index: u32, of: u32, seed: u64) -> Result<Self, String> {
        if index < of {
            Ok(Self { index, of, seed })
        } else {
            Err(format!("there is no part {index} of {of}: parts are numbered from 0"))
        }
    }

    /// True when the file at `path` (as it is delivered) is in this part.
    pub fn holds(&self, path: &[u8]) -> bool {
        let dealt = mixed(self.seed, &path[..key_len(path)]);
        // As good as a remainder, and evener: the product of 64 bits by 32.
        (u128::from(dealt) * u128::from(self.of)) >> 64 == u128::from(self.index)
    }
}

/// Bytes up to the first dot of the last name, but for one that the name begins with.
fn key_len(path: &[u8]) -> usize {
    let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = path.iter().skip(name + 1).position(|&byte| byte == b'.');
    dot.map_or(path.len(), |dot| name + 1 + dot)
}

/// FNV-1a with the end of splitmix64, which spreads what names differ in over all bits. It is the same for ever and everywhere.
fn mixed(seed: u64, bytes: &[u8]) -> u64 {
    let begun = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let folded = bytes.iter().fold(begun, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mut hash = folded;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(path: &[u8], of: u32, seed: u64) -> Vec<u32> {
        (0..of).filter(|&index| Part::new(index, of, seed).unwrap().holds(path)).collect()
    }

    #[test]
    fn each_file_is_in_exactly_one_part() {
        for of in [1, 2, 3, 7, 1000] {
            for n in 0..200 {
                assert_eq!(dealt(format!("tree/d{}/f{n}", n % 5).as_bytes(), of, 1).len(), 1);
            }
        }
    }

    #[test]
    fn parts_are_about_as_large_as_each_other() {
        let mut counts = [0; 8];
        (0..8000).for_each(|n| counts[dealt(format!("/data/{n}.jpg").as_bytes(), 8, 0)[0] as usize] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn samples_stay_together_and_seeds_deal_anew() {
        let differ = (0..50).filter(|n| {
            let of = |seed, end: &str| dealt(format!("a.b/{n}{end}").as_bytes(), 4, seed);
            assert_eq!(of(0, ".jpg"), of(0, ".seg.png"));
            assert_eq!(of(0, ".jpg"), of(0, ""));
            of(0, "") != of(1, "")
        });
        assert!(differ.count() > 20);
        let hidden = (0..50).filter(|n| dealt(format!("a/.{n}").as_bytes(), 4, 0) != dealt(b"a/.", 4, 0));
        assert!(hidden.count() > 20, "a dot in front ends no key");
    }

    #[test]
    fn who_deals_is_the_same_for_ever() {
        // Machines of different versions read one tree together.
        let of = |path: &[u8]| dealt(path, 1000, 7)[0];
        assert_eq!([of(b"a"), of(b"/srv/data/1.jpg"), of(b"\xff/x")], [860, 559, 988]);
    }

    #[test]
    fn there_is_no_part_beyond_the_last() {
        assert!(Part::new(2, 2, 0).unwrap_err().contains("no part 2 of 2"));
        assert!(Part::new(0, 0, 0).is_err());
    }
}
