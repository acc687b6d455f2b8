//! What a whole content is called: a hash over the hashes of its blocks.
//!
//! So whoever has an index of a file has this, too, and reads nothing for it. Two machines of one trust domain have the same name for
//! a content when they have the same size of blocks. Hashes of blocks of one size can't be made of those of another: who
//! has the bytes makes the other names of them.

use std::io::{self, Read};

use crate::id::{BlockSize, Hash, TrustDomain};

/// What the key of such hashes is derived for; never to be changed.
const CONTEXT: &str = "onesweep peer 2026-11 content of a file";

/// Makes the hash of a content, block by block.
#[derive(Debug)]
struct Hasher<'a> {
    domain: &'a TrustDomain,
    outer: blake3::Hasher,
    size: BlockSize,
    bytes: u64,
}

impl<'a> Hasher<'a> {
    fn new(domain: &'a TrustDomain, size: BlockSize) -> Self {
        Self { domain, outer: blake3::Hasher::new_keyed(&domain.derived(CONTEXT)), size, bytes: 0 }
    }

    fn block(&mut self, block: &[u8]) {
        self.outer.update(self.domain.hash(block).as_bytes());
        self.bytes += block.len() as u64;
    }

    /// What it is made of ends with its sizes.
    fn finish(mut self) -> Hash {
        self.outer.update(&(self.size.bytes() as u32).to_le_bytes());
        self.outer.update(&self.bytes.to_le_bytes());
        Hash::from_bytes(*self.outer.finalize().as_bytes())
    }
}

/// The hash of a content in memory.
#[must_use]
pub fn of_bytes(domain: &TrustDomain, size: BlockSize, content: &[u8]) -> Hash {
    let mut hasher = Hasher::new(domain, size);
    content.chunks(size.bytes()).for_each(|block| hasher.block(block));
    hasher.finish()
}

/// The hashes of a content in memory by all other sizes of blocks: by these machines may know it whose index has them.
#[must_use]
pub fn of_bytes_by_others(domain: &TrustDomain, size: BlockSize, content: &[u8]) -> Vec<Hash> {
    BlockSize::all().filter(|other| *other != size).map(|other| of_bytes(domain, other, content)).collect()
}

/// The hash of what can be read, and its bytes.
pub fn of_reader(domain: &TrustDomain, size: BlockSize, from: &mut dyn Read) -> io::Result<(Hash, u64)> {
    let mut hasher = Hasher::new(domain, size);
    let mut block = Vec::with_capacity(size.bytes());
    loop {
        block.clear();
        if from.take(size.bytes() as u64).read_to_end(&mut block)? == 0 {
            let bytes = hasher.bytes;
            return Ok((hasher.finish(), bytes));
        }
        hasher.block(&block);
    }
}

/// The hash of a content of `bytes` bytes, whose blocks have these hashes.
#[must_use]
pub fn of_blocks(domain: &TrustDomain, size: BlockSize, bytes: u64, blocks: &[Hash]) -> Hash {
    let mut hasher = Hasher::new(domain, size);
    blocks.iter().for_each(|hash| _ = hasher.outer.update(hash.as_bytes()));
    hasher.bytes = bytes;
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::tree::hashes;

    #[test]
    fn all_ways_lead_to_one_hash() {
        let domain = TrustDomain::from_key([1; 32]);
        for bytes in [0, 1, 4095, 4096, 4097, 20_000, 65_536] {
            let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            for size in [4096, 65_536].map(|size| BlockSize::new(size).unwrap()) {
                let hash = of_bytes(&domain, size, &content);
                assert_eq!(of_reader(&domain, size, &mut &content[..]).unwrap(), (hash, bytes as u64));
                let blocks = hashes(&domain, size.bytes() as u32, &content);
                assert_eq!(of_blocks(&domain, size, bytes as u64, &blocks), hash);
            }
        }
    }

    #[test]
    fn a_content_has_a_name_by_each_other_size() {
        let domain = TrustDomain::from_key([1; 32]);
        let content = vec![7; 100_000];
        let by = |bytes| of_bytes(&domain, BlockSize::new(bytes).unwrap(), &content);
        let others = of_bytes_by_others(&domain, BlockSize::new(16_384).unwrap(), &content);
        assert_eq!(others, [4096, 8192, 32_768, 65_536].map(by));
    }

    #[test]
    fn what_differs_has_another_hash() {
        let size = BlockSize::default();
        let domain = TrustDomain::from_key([1; 32]);
        let hash = of_bytes(&domain, size, &[7; 5000]);
        assert_ne!(of_bytes(&TrustDomain::from_key([2; 32]), size, &[7; 5000]), hash);
        assert_ne!(of_bytes(&domain, BlockSize::new(8192).unwrap(), &[7; 5000]), hash);
        assert_ne!(of_bytes(&domain, size, &[7; 5001]), hash);
        // A file that holds what another's hash is made of is not taken for it.
        let inner = [domain.hash(&[7; 4096]).as_bytes().to_vec(), domain.hash(&[7; 904]).as_bytes().to_vec()].concat();
        assert_ne!(domain.hash(&inner), hash);
        // A change here would make every verdict useless.
        assert_eq!(hash.to_string(), "c02c222dee9f1d2fe7b2939a59e89da8b867076836708c63444914e54be3e2f0");
    }
}
