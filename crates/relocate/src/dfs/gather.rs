//! What of a target region may be written anew (3.4, figures 3a and 3b).

use super::{Allocation, Block, Cached, DomainId, Domains, Region};

/// Blocks of one domain, and free ones between them: every place from the start to the end is one or the other.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) region: Region,
    pub(super) domain: DomainId,
    pub(super) end: Block,
    /// In the order of their places.
    pub(super) blocks: Vec<(Block, Cached)>,
}

impl Gathered {
    pub(super) fn holds(&self, place: Block) -> bool {
        (self.region.start..self.end).contains(&place)
    }

    pub(super) fn free(&self) -> usize {
        (self.end - self.region.start) as usize - self.blocks.len()
    }
}

/// Ends at the first block that is allocated and is not in memory, is of another domain, or is metadata, which has no domain:
/// writing over it would lose it.
pub(super) fn gather(domains: &Domains, allocation: &impl Allocation, region: Region) -> Option<Gathered> {
    let domain = domains.domain_of(domains.at(region.start)?.file)?;
    let mut gathered = Gathered { region, domain, end: region.start, blocks: Vec::new() };
    for place in region.start..region.end() {
        if allocation.is_allocated(place) {
            match domains.at(place).filter(|cached| domains.domain_of(cached.file) == Some(domain)) {
                Some(cached) => gathered.blocks.push((place, cached)),
                None => break,
            }
        }
        gathered.end = place + 1;
    }
    Some(gathered)
}
