//! Dirty blocks on their way to the disk, and DFS beside them.

use onesweep_relocate::dfs::{Block, Plan, Region, relocate};

use super::around;
use super::system::{FileSystem, Held, What};
use super::wish::DIRECT;

impl FileSystem {
    /// Everything that is dirty comes to the disk.
    pub(crate) fn write_back(&mut self) -> Result<(), String> {
        let dirty = self.cache.iter().filter(|(_, held)| held.dirty);
        let mut data: Vec<(usize, u32, Block)> = dirty
            .filter_map(|(block, held)| match held.what {
                What::Data { file, logical, .. } => Some((file, logical, block)),
                What::Metadata => None,
            })
            .collect();
        // File after file, as BSD goes over its vnodes. The driver has the requests in the order of their places.
        data.sort_unstable();
        for (_, _, block) in data {
            // What a region took along is clean.
            if self.cache.get(block).is_some_and(|held| held.dirty) {
                self.flush(block)?;
            }
        }
        let dirty = self.cache.iter().filter(|(_, held)| held.dirty);
        let mut metadata: Vec<Block> = dirty.map(|(block, _)| block).collect();
        metadata.sort_unstable();
        for block in metadata {
            self.flush(block)?;
        }
        self.drain();
        Ok(())
    }

    /// The writes that wait go to the disk.
    pub(super) fn drain(&mut self) {
        let before = self.disk.write_ms;
        self.disk.write_all();
        self.books.flush_ms += self.disk.write_ms - before;
    }

    /// A dirty block comes to the disk; it is clean then, and perhaps elsewhere.
    pub(super) fn flush(&mut self, block: Block) -> Result<(), String> {
        let Some(held) = self.cache.get_mut(block) else { return Ok(()) };
        if matches!(held.what, What::Metadata) {
            held.dirty = false;
            self.books.metadata += 1;
            self.disk.write_later(block, 1);
            return Ok(());
        }
        if let Some(plan) = self.plan(block)? {
            return self.carry_out(&plan);
        }
        if let Some(Held { what: What::Data { stamp, .. }, dirty }) = self.cache.get_mut(block) {
            *dirty = false;
            self.medium[block as usize] = *stamp;
        }
        self.books.flushed += 1;
        self.books.requests += 1;
        self.disk.write_later(block, 1);
        Ok(())
    }

    fn plan(&self, block: Block) -> Result<Option<Plan>, String> {
        let Some(relocation) = self.relocation else { return Ok(None) };
        let is_allocated = |block| self.space.is_used(block);
        let region = Region { start: block, blocks: relocation.region };
        let planned = if relocation.around {
            around::relocate(&self.domains, &is_allocated, region)
        } else {
            relocate(&self.domains, &is_allocated, region)
        };
        planned.map_err(|flaw| format!("a plan for block {block}: {flaw}"))
    }

    fn carry_out(&mut self, plan: &Plan) -> Result<(), String> {
        let space = &self.space;
        plan.check(&self.domains, &|block| space.is_used(block)).map_err(|flaw| format!("{flaw}: {plan:?}"))?;
        self.books.requests += 1;
        self.books.regions += 1;
        self.books.region_blocks += plan.blocks.len() as u64;
        self.disk.write_later(plan.region.start, plan.blocks.len() as u32);
        for (placed, to) in plan.blocks.iter().zip(plan.region.start..) {
            let Some(Held { what: What::Data { stamp, .. }, dirty }) = self.cache.get_mut(placed.from) else {
                return Err(format!("block {} isn't in memory", placed.from));
            };
            self.medium[to as usize] = *stamp;
            let was_dirty = std::mem::replace(dirty, false);
            self.books.flushed += u64::from(was_dirty);
            self.books.region_dirty += u64::from(was_dirty);
        }
        let moves: Vec<(Block, Block)> = plan.moves().map(|change| (change.from, change.to)).collect();
        self.books.moved += moves.len() as u64;
        moves.iter().for_each(|(from, _)| self.space.release(*from));
        moves.iter().for_each(|(_, to)| self.space.take(*to));
        self.cache.rename(&moves);
        self.domains.moved(plan);
        for change in plan.moves() {
            self.files[change.file.0 as usize].places[change.logical as usize] = change.to;
        }
        self.change_metadata(plan);
        Ok(())
    }

    /// What points to the blocks, and the maps.
    fn change_metadata(&mut self, plan: &Plan) {
        let (mut inodes, mut indirects, mut maps) = (Vec::new(), Vec::new(), Vec::new());
        for change in plan.moves() {
            let file = &self.files[change.file.0 as usize];
            match file.indirect.filter(|_| change.logical as usize >= DIRECT) {
                Some(indirect) => indirects.push(indirect),
                None => inodes.push(self.shape.block_of_inode(file.inode)),
            }
            maps.extend([change.from, change.to].map(|block| self.shape.group_of(block)));
        }
        maps.sort_unstable();
        maps.dedup();
        // Where no block goes from one group to another and none becomes free, the map stays; that is rare.
        let before = self.disk.read_ms;
        for kind in [&mut inodes, &mut indirects] {
            kind.sort_unstable();
            kind.dedup();
        }
        self.books.inode_blocks += inodes.len() as u64;
        self.books.indirect_blocks += indirects.len() as u64;
        for block in inodes {
            self.books.inode_blocks_more += u64::from(!self.use_metadata(block, true));
        }
        for block in indirects {
            self.use_metadata(block, true);
        }
        for group in maps {
            self.use_metadata(self.shape.maps(group), true);
        }
        // Nobody waits for what a flush has to read.
        self.books.flush_ms += self.disk.read_ms - before;
        self.disk.read_ms = before;
    }
}
