//! When a dirty block is flushed, small files of its directory that lie in memory are written side by side with it.
//!
//! This is the algorithm of *DFS: A De-fragmented File System* (Ahn and others, sections 3 and 4) without a file system
//! under it. A host says what it has in memory ([`Domains`]) and which blocks are allocated ([`Allocation`]), asks for a
//! [`Plan`] before it flushes a block, and writes what the plan says by one request.
//!
//! | the paper | here |
//! |---|---|
//! | de-fragmentation domain, de-fragmentation table, block fragmentation bitmap | [`Domains`] |
//! | block allocation bitmap | [`Allocation`] |
//! | target region; the decision (3.3) | [`Region`] |
//! | gathering (3.4) | `gather` |
//! | the choice of files (3.5, 4) | `choose` |
//! | IAD and IED (3.4) | `arrange` |
//!
//! Beyond the paper: no file comes to a worse layout score than it had. Blocks that adjoin a block of their own file just
//! outside what was gathered stay where they are.

mod arrange;
mod choose;
mod domains;
mod gather;
mod plan;
mod region;

pub use self::{
    domains::{Cached, Domains},
    plan::{Flaw, Move, Placed, Plan},
    region::{Allocation, Region},
};

/// The number of a block of the file system.
pub type Block = u64;

/// A file, by whatever number the host knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId(pub u64);

/// A directory, whose files that are in memory are a de-fragmentation domain.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DomainId(pub u64);

/// Files with so many blocks are small, and may be moved whole. One block can't be fragmented; more than twelve need
/// indirect blocks.
pub const SMALL: std::ops::RangeInclusive<usize> = 2..=12;

/// What to write by one request when the block at the start of the region is flushed, or nothing where that block alone
/// is to be written.
///
/// Costs a look at each block of the region, and at each fragmented file of the domain until the region is full.
///
/// # Errors
///
/// A plan that would do harm, as when what is allocated has changed meanwhile.
pub fn relocate(domains: &Domains, allocation: &impl Allocation, region: Region) -> Result<Option<Plan>, Flaw> {
    if !region.is_candidate(domains, allocation) {
        return Ok(None);
    }
    let plan = gather::gather(domains, allocation, region).and_then(|gathered| {
        let chosen = choose::choose(domains, &gathered);
        arrange::arrange(domains, gathered, &chosen)
    });
    if let Some(plan) = &plan {
        plan.check(domains, allocation)?;
    }
    Ok(plan)
}
