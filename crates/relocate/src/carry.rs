//! A plan carried out on a host: region by region, each into the free space that there really is.
//!
//! Free space is captured for a batch of regions before anything is read for them. Where so little of it lies side by side that the
//! batch would save less than a tenth of what was planned, it is left as it is: else each run would find a little more to do, and
//! would read all files for it.

mod space;

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};

use self::space::Space;
use crate::host::{Failure, Host, Moved, Moves, Stays, Trouble};
use crate::pack::{Fitted, Item, Plan, Region, Rules, check, fit, plan};
use crate::places::Places;
use crate::survey::Candidate;

/// How a plan is carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// By which the plan was made.
    pub rules: Rules,
    /// How many times the blocks of a region may be captured to find places that lie side by side; 1 or more.
    pub capture: u64,
    /// Blocks after which there is a commit: so many of the old places are not free yet.
    pub commit: u64,
    /// Blocks of a batch: of regions for which free space is found, and which are then read in one sweep, before the first of them is
    /// packed.
    pub batch: u64,
    /// Regions that save most for what is written come first, for who may not have the time for all; else the first in
    /// the order of reading, so that regions lie side by side, too. Heeded by [`passes`](crate::passes).
    pub gain_first: bool,
    /// Whether it is waited until all that was moved is on the disk. Else the journal brings it there in its own time, with no less safety.
    pub is_durable: bool,
}

impl Settings {
    /// Up to four times a region is captured; every 256 MiB (with blocks of 4 KiB) there is a commit, and 64 MiB are a batch.
    #[must_use]
    pub fn new(rules: Rules) -> Settings {
        Settings { rules, capture: 4, commit: 65_536, batch: 16_384, gain_first: false, is_durable: true }
    }
}

/// A batch has to save one of so many breaks that it was planned to save.
const LEAST_SHARE: u64 = 10;

/// Why a plan was not carried out to its end.
#[derive(Debug)]
pub enum Ended {
    /// The caller wanted no more.
    Stopped,
    /// Something failed. What was moved before is whole.
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Failed(failure)
    }
}

/// What was done.
#[derive(Debug, Default)]
pub struct Report {
    /// Regions that were packed.
    pub regions: u64,
    /// Files that have new places, but for those that had new ones before, since they were looked at.
    pub files: u64,
    /// Blocks that were written for them.
    pub blocks: u64,
    /// Regions that free space in pieces would not have made better, or with the others of their batch by so little that it was left.
    pub not_better: u64,
    /// Regions for which there was no free space, or that lie where the caller may make no files.
    pub no_room: u64,
    /// Files that had large pages in memory, which were made small.
    pub large: u64,
    /// Files that stayed, by their turns, and why.
    pub stayed: BTreeMap<usize, Stays>,
    /// Files that came to lie elsewhere than planned, or in part, by their turns. Their bytes are right.
    pub torn: Vec<usize>,
    /// Commits.
    pub commits: u64,
    /// Why it ended before its time.
    pub ended: Option<Ended>,
}

/// Carries out a plan that was made of `files`, whose places and reasons to stay are kept up to date.
///
/// `goes_on` is asked before each region with what was done so far: a place to stop without any loss. All that was moved is on
/// the disk at the end, where that is asked for.
pub fn carry_out<H: Host>(
    host: &mut H,
    files: &mut [Candidate],
    plan: &Plan,
    settings: &Settings,
    goes_on: &mut dyn FnMut(&Report) -> bool,
) -> Report {
    let mut carrier =
        Carrier { host, files, settings, report: Report::default(), uncommitted: 0, near: PathBuf::new() };
    for batch in batches(&plan.regions, settings.batch) {
        if let Err(ended) = carrier.carry_batch(batch, goes_on) {
            carrier.report.ended = Some(ended);
            break;
        }
    }
    if settings.is_durable
        && let Err(failure) = carrier.commit(0)
        && carrier.report.ended.is_none()
    {
        carrier.report.ended = Some(Ended::Failed(failure));
    }
    carrier.report
}

/// Regions by batches of about so many blocks, in their order.
fn batches(regions: &[Region], blocks: u64) -> impl Iterator<Item = &[Region]> {
    let mut rest = regions;
    std::iter::from_fn(move || {
        let mut left = blocks;
        let taken = rest.iter().take_while(|region| {
            let fits = left > 0;
            left = left.saturating_sub(region.blocks);
            fits
        });
        let count = taken.count().max(1);
        let (batch, behind) = rest.split_at_checked(count)?;
        rest = behind;
        Some(batch)
    })
}

/// A region, and where its files are to lie.
struct Placed<'a> {
    region: &'a Region,
    turns: Vec<usize>,
    fitted: Fitted,
}

struct Carrier<'a, H: Host> {
    host: &'a mut H,
    files: &'a mut [Candidate],
    settings: &'a Settings,
    report: Report,
    /// Blocks that were moved, or captured in vain, since the last commit: what they leave is not free yet.
    uncommitted: u64,
    near: PathBuf,
}

/// Files that are open, by their turns.
type Open<F> = BTreeMap<usize, F>;

impl<H: Host> Carrier<'_, H> {
    fn carry_batch(&mut self, batch: &[Region], goes_on: &mut dyn FnMut(&Report) -> bool) -> Result<(), Ended> {
        let mut space = self.no_space(&batch[0])?;
        let mut placed = Vec::new();
        for region in batch {
            if !goes_on(&self.report) {
                return Err(Ended::Stopped);
            }
            placed.extend(self.place(region, &mut space)?);
        }
        let planned: u64 = batch.iter().map(|region| region.saves).sum();
        let saved: u64 = placed.iter().map(|one| one.region.saves.saturating_sub(one.fitted.breaks)).sum();
        if saved.saturating_mul(LEAST_SHARE) < planned {
            self.report.not_better += placed.len() as u64;
            placed.clear();
            space.let_go();
        }
        self.uncommitted += space.give_back_unused();
        self.announce(&placed);
        for one in placed {
            if !goes_on(&self.report) {
                return Err(Ended::Stopped);
            }
            self.carry(one, &mut space)?;
        }
        drop(space);
        Ok(self.commit(self.settings.commit)?)
    }

    fn no_space(&mut self, near: &Region) -> Result<Space<H>, Failure> {
        let free = self.host.free_blocks();
        let near = &self.files[near.files.start].path;
        Ok(Space::of(free.map_err(|source| Failure::new("ask how much is free", near, source))?))
    }

    /// Has the files of a batch brought into memory, in the order of the disk.
    fn announce(&mut self, placed: &[Placed<'_>]) {
        let mut turns: Vec<usize> = placed.iter().flat_map(|one| one.turns.iter().copied()).collect();
        turns.sort_by_key(|&turn| self.files[turn].places.first());
        for turn in turns {
            self.host.announce(&self.files[turn].path);
        }
    }

    /// Finds free space for a region, where there is some in which it is worth it.
    fn place<'r>(&mut self, region: &'r Region, space: &mut Space<H>) -> Result<Option<Placed<'r>>, Failure> {
        let turns: Vec<usize> = region.files.clone().filter(|&turn| self.files[turn].places.blocks() > 0).collect();
        let Some(first) = turns.first() else { return Ok(None) };
        self.near = self.files[*first].path.parent().unwrap_or(Path::new(".")).to_owned();
        let own = self.capture_for(region, &turns, space)?;
        let found = own.map_or_else(|| self.find_space(region, &turns, space), |fitted| Ok(Some(fitted)));
        let Some(fitted) = found? else { return Ok(None) };
        let files: Vec<&Places> = turns.iter().map(|&turn| &self.files[turn].places).collect();
        check(&files, &fitted.files, space.pieces())
            .map_err(|flaw| Failure::new("use a plan that would do harm", &self.near, io::Error::other(flaw)))?;
        space.take(&fitted.files, self.settings.rules.slack);
        Ok(Some(Placed { region, turns, fitted }))
    }

    fn carry(&mut self, placed: Placed<'_>, space: &mut Space<H>) -> Result<(), Failure> {
        let (open, as_planned) = self.open(&placed.turns)?;
        if as_planned {
            return self.pack(&placed, &open, space);
        }
        // What can't be moved lies between what can: is the rest still worth it?
        for region in self.plan_again(&placed.region.files) {
            if let Some(placed) = self.place(&region, space)? {
                self.pack(&placed, &open, space)?;
            }
        }
        Ok(())
    }

    /// Opens files in the order of the disk; false when some can't be moved, or lie elsewhere than planned.
    fn open(&mut self, turns: &[usize]) -> Result<(Open<H::File>, bool), Failure> {
        let mut on_disk = turns.to_vec();
        on_disk.sort_by_key(|&turn| self.files[turn].places.first());
        let (mut open, mut as_planned) = (Open::new(), true);
        for turn in on_disk {
            let known = &mut self.files[turn];
            match self.host.open(&known.path, known.inode) {
                Ok(opened) => {
                    self.report.large += u64::from(opened.was_large);
                    if opened.places != known.places {
                        known.places = opened.places;
                        as_planned = false;
                    }
                    open.insert(turn, opened.file);
                }
                Err(Trouble::Stays(stays)) => {
                    self.stays(turn, stays);
                    as_planned = false;
                }
                Err(Trouble::Failed(failure)) => return Err(failure),
            }
        }
        Ok((open, as_planned))
    }

    fn stays(&mut self, turn: usize, stays: Stays) {
        self.files[turn].stays = Some(stays);
        self.report.stayed.insert(turn, stays);
    }

    /// The regions among these files that are worth it as they are now, with the files around as they are.
    fn plan_again(&self, files: &Range<usize>) -> Vec<Region> {
        let has_blocks = |turn: &usize| self.files[*turn].places.blocks() > 0;
        let start = (0..files.start).rev().find(has_blocks).unwrap_or(files.start);
        let end = (files.end..self.files.len()).find(has_blocks).map_or(files.end, |turn| turn + 1);
        let items: Vec<Item<'_>> = (start..end)
            .map(|turn| {
                let item = self.files[turn].item();
                Item { may_move: item.may_move && files.contains(&turn), ..item }
            })
            .collect();
        let mut regions = plan(&items, &self.settings.rules).regions;
        for region in &mut regions {
            region.files = region.files.start + start..region.files.end + start;
        }
        regions
    }

    /// Packs a region, all files of which are open.
    fn pack(&mut self, placed: &Placed<'_>, open: &Open<H::File>, space: &Space<H>) -> Result<(), Failure> {
        self.tell_moves(placed, space, open)?;
        self.report.regions += 1;
        for (&turn, planned) in placed.turns.iter().zip(&placed.fitted.files) {
            let Some(file) = open.get(&turn) else { continue };
            self.move_file(turn, file, space, planned)?;
        }
        Ok(())
    }

    fn tell_moves(&mut self, placed: &Placed<'_>, space: &Space<H>, open: &Open<H::File>) -> Result<(), Failure> {
        let of_file = |(turn, to): (&usize, &Places)| {
            let file = &self.files[*turn];
            Some(Moves { path: &file.path, file: open.get(turn)?, places: &file.places, steps: space.steps(to) })
        };
        let moves: Vec<_> = placed.turns.iter().zip(&placed.fitted.files).filter_map(of_file).collect();
        self.host.prepare(&moves)
    }

    /// A donor for this region alone, where the host wants one and it is worth it.
    fn capture_for(
        &mut self,
        region: &Region,
        turns: &[usize],
        space: &mut Space<H>,
    ) -> Result<Option<Fitted>, Failure> {
        let files: Vec<&Places> = turns.iter().map(|&turn| &self.files[turn].places).collect();
        let rules = self.settings.rules;
        let is_worth = |fitted: &Fitted| is_worth(&rules, region, &files, fitted);
        space.capture_for(self.host, &self.near, &files, &is_worth, &mut self.uncommitted)
    }

    /// Where the region is worth it, in space that no other has.
    fn find_space(
        &mut self,
        region: &Region,
        turns: &[usize],
        space: &mut Space<H>,
    ) -> Result<Option<Fitted>, Failure> {
        let rules = self.settings.rules;
        let needed = region.blocks.saturating_add(rules.slack);
        let most = needed.saturating_mul(self.settings.capture.max(1));
        let (mut captured, mut may_capture) = (0, true);
        loop {
            let files: Vec<&Places> = turns.iter().map(|&turn| &self.files[turn].places).collect();
            let fitted = fit(&files, &space.pieces().collect::<Vec<_>>(), rules.slack);
            let worth = fitted.filter(|fitted| is_worth(&rules, region, &files, fitted));
            let is_all = space.is_exhausted || captured >= most || !may_capture;
            match worth {
                // More free space may hold a longer piece.
                Some(fitted) if fitted.breaks > 0 && !is_all => {}
                Some(fitted) => return Ok(Some(fitted)),
                // What was left and given back is free after a commit.
                None if space.is_exhausted && self.uncommitted >= needed => {
                    self.committed(H::settle)?;
                    space.is_exhausted = false;
                }
                None if space.is_exhausted || !may_capture => {
                    self.report.no_room += 1;
                    return Ok(None);
                }
                None if is_all => {
                    self.report.not_better += 1;
                    return Ok(None);
                }
                None => {}
            }
            let wanted = needed.saturating_sub(space.unused()).max(needed.div_ceil(2));
            may_capture = space.capture(self.host, &self.near, wanted)?;
            captured += wanted;
        }
    }

    fn move_file(&mut self, turn: usize, file: &H::File, space: &Space<H>, to: &Places) -> Result<(), Failure> {
        let Moved { blocks: moved, trouble } = self.host.exchange_all(file, &space.steps(to));
        self.report.blocks += moved;
        self.uncommitted += moved;
        if moved > 0 && !mem::replace(&mut self.files[turn].was_moved, true) {
            self.report.files += 1;
        }
        // The file system is asked where it lies now, not the plan.
        let now = self.host.places(file);
        match now {
            Ok(places) => {
                if moved > 0 && places != *to {
                    self.report.torn.push(turn);
                }
                self.files[turn].places = places;
            }
            Err(_) if trouble.is_some() => {}
            Err(Trouble::Stays(stays)) => self.stays(turn, stays),
            Err(Trouble::Failed(failure)) => return Err(failure),
        }
        match trouble {
            Some(Trouble::Failed(failure)) => Err(failure),
            Some(Trouble::Stays(stays)) => {
                self.stays(turn, stays);
                Ok(())
            }
            // It was cut, or holes were made in it.
            None if moved < to.blocks() => {
                self.stays(turn, Stays::Changed);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Commits when more than so many blocks are not free yet.
    fn commit(&mut self, above: u64) -> Result<(), Failure> {
        if self.uncommitted <= above { Ok(()) } else { self.committed(|host, _| host.commit()) }
    }

    fn committed(&mut self, commit: impl FnOnce(&mut H, &Path) -> io::Result<()>) -> Result<(), Failure> {
        self.uncommitted = 0;
        self.report.commits += 1;
        commit(self.host, &self.near)
            .map_err(|source| Failure::new("write what was moved to its new place", &self.near, source))
    }
}

/// Whether a region gains enough by lying so, and no file is torn for it.
fn is_worth(rules: &Rules, region: &Region, files: &[&Places], fitted: &Fitted) -> bool {
    let torn = files.iter().zip(&fitted.files).any(|(before, after)| after.breaks() > before.breaks());
    !torn && rules.is_worth(region.saves.saturating_sub(fitted.breaks), region.blocks)
}
