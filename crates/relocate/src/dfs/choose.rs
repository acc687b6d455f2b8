//! Which files come into the free places of a region (3.5, figures 3c, 3d and 4; section 4 on read-ahead).

use super::{Domains, FileId, SMALL, gather::Gathered};

/// Files that come in whole.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// Some of their blocks are in the region already.
    pub(super) completed: Vec<FileId>,
    /// None is.
    pub(super) fetched: Vec<FileId>,
}

/// Below so many blocks FreeBSD's and OpenBSD's read-ahead reads block by block, however they lie.
const READ_AHEAD_PAYS: usize = 4;

pub(super) fn choose(domains: &Domains, gathered: &Gathered) -> Chosen {
    let mut chosen = Chosen::default();
    let mut free = gathered.free();

    for file in half_outside(domains, gathered) {
        let outside = outside(domains, gathered, file);
        if outside <= free {
            free -= outside;
            chosen.completed.push(file);
        }
    }

    let pays = READ_AHEAD_PAYS..=*SMALL.end();
    let rest = (*SMALL.start()..READ_AHEAD_PAYS).rev();
    for blocks in pays.chain(rest) {
        for file in domains.chain_of(gathered.domain, blocks) {
            if blocks > free {
                break;
            }
            if outside(domains, gathered, file) == blocks {
                free -= blocks;
                chosen.fetched.push(file);
            }
        }
    }
    chosen
}

/// Fragmented files with blocks on both sides, the smallest first, then by place.
fn half_outside(domains: &Domains, gathered: &Gathered) -> Vec<FileId> {
    let mut files = Vec::new();
    for (_, cached) in &gathered.blocks {
        let file = cached.file;
        if !files.contains(&file) && domains.is_relocatable(file) && outside(domains, gathered, file) > 0 {
            files.push(file);
        }
    }
    files.sort_by_key(|&file| domains.places(file).len());
    files
}

/// How many blocks of a file lie outside.
fn outside(domains: &Domains, gathered: &Gathered, file: FileId) -> usize {
    domains.places(file).iter().filter(|place| place.is_none_or(|place| !gathered.holds(place))).count()
}
