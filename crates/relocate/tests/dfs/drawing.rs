//! A disk drawn as a line of blocks: `a0` is the first block of the file a, `.` a free block, `#` one of metadata, `x0` one of a
//! file in another directory (x, y and z are such). A tilde before a block says that it is not in memory.

use std::collections::BTreeMap;

use onesweep_relocate::dfs::{Block, DomainId, Domains, FileId, Flaw, Plan, Region, relocate};

pub(crate) struct Disk {
    pub(crate) domains: Domains,
    pub(crate) places: Vec<String>,
}

pub(crate) fn disk(drawn: &str) -> Disk {
    let places: Vec<String> = drawn.split_whitespace().map(str::to_owned).collect();
    let mut files: BTreeMap<u8, BTreeMap<u32, (Block, bool)>> = BTreeMap::new();
    for (place, drawn) in (0..).zip(&places) {
        let block = drawn.trim_start_matches('~');
        if block != "." && block != "#" {
            let logical = block[1..].parse().expect("the number of a block");
            let twice = files.entry(block.as_bytes()[0]).or_default().insert(logical, (place, block == drawn));
            assert!(twice.is_none(), "{block} is drawn twice");
        }
    }
    let mut domains = Domains::new();
    for (name, blocks) in files {
        let length = blocks.keys().last().map_or(0, |last| last + 1);
        let file = FileId(u64::from(name));
        let domain = DomainId(if name >= b'x' { u64::from(name) } else { 1 });
        domains.open(domain, file, (0..length).map(|logical| Some(blocks.get(&logical)?.0)).collect());
        for (logical, (place, is_cached)) in blocks {
            if is_cached {
                domains.load(file, logical, place);
            }
        }
    }
    Disk { domains, places }
}

impl Disk {
    /// What is planned when the block at a place is flushed.
    pub(crate) fn plan(&self, start: Block, blocks: u32) -> Option<Plan> {
        relocate(&self.domains, &self.allocation(), Region { start, blocks }).unwrap()
    }

    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Flaw> {
        plan.check(&self.domains, &self.allocation())
    }

    fn allocation(&self) -> impl Fn(Block) -> bool {
        |block| self.places.get(block as usize).is_none_or(|drawn| drawn != ".")
    }

    /// Does what a plan says.
    pub(crate) fn carry_out(&mut self, plan: &Plan) {
        let moves: Vec<_> = plan.moves().collect();
        let blocks: Vec<String> = moves.iter().map(|change| self.places[change.from as usize].clone()).collect();
        moves.iter().for_each(|change| ".".clone_into(&mut self.places[change.from as usize]));
        for (change, block) in moves.iter().zip(blocks) {
            assert_eq!(self.places[change.to as usize], ".", "a block is lost");
            self.places[change.to as usize] = block;
        }
        self.domains.moved(plan);
    }

    /// Flushes a block, and draws what comes of it.
    pub(crate) fn flushed(&mut self, start: Block, blocks: u32) -> String {
        if let Some(plan) = self.plan(start, blocks) {
            self.carry_out(&plan);
        }
        self.places.join(" ")
    }
}

/// Flushes the first block.
pub(crate) fn flushed(drawn: &str, blocks: u32) -> String {
    disk(drawn).flushed(0, blocks)
}
