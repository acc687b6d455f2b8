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

    /// The same with so many free blocks. Where they are too few for all files, regions are of `region_where_short` blocks at most: free space is
    /// in small pieces then, and a larger region is one write for each of many. And no break may cost more than the budget: large files would
    /// take room that others save more with. What a run has moved changes nothing of that for the next.
    #[must_use]
    pub fn with_free(mut self, free_blocks: u64, files: &[Candidate], region_where_short: u64) -> Settings {
        let blocks = files.iter().map(|file| file.places.blocks()).filter(|&blocks| blocks <= self.rules.room());
        if blocks.sum::<u64>() > space::for_regions(free_blocks) {
            self.rules.dearest = self.rules.budget;
            if region_where_short < self.rules.region {
                let Rules { region, slack, .. } = Rules::for_regions(region_where_short);
                self.rules = Rules { region, slack, ..self.rules };
            }
        }
        self
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
    /// Planned regions that were packed, or of which something was.
    pub regions: u64,
    /// Pieces of free space that they came to, by the plan.
    pub pieces: u64,
    /// Files that have new places, but for those that had new ones before, since they were looked at.
    pub files: u64,
    /// Blocks that were written for them.
    pub blocks: u64,
    /// Planned regions that free space in pieces would not have made better, or with the others of their batch by so little that it was left.
    pub not_better: u64,
    /// Planned regions for which there was no free space, or that lie where the caller may make no files.
    pub no_room: u64,
    /// Files that had large pages in memory, which were made small.
    pub large: u64,
    /// Files that stayed, by their turns, and why.
    pub stayed: BTreeMap<usize, Stays>,
    /// Files that came to lie elsewhere than planned, or in part, by their turns. Their bytes are right.
    pub torn: Vec<usize>,
    /// Breaks that regions for which there was free space were to save.
    pub saves: u64,
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
    let (report, slack) = (Report::default(), Vec::new());
    let near = PathBuf::new();
    let mut carrier = Carrier { host, files, settings, report, uncommitted: 0, near, placed: 0, packed: 0, slack };
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

/// A region, or what of one lies in one piece of free space, and where its files are to lie.
struct Placed {
    /// Whose part it is, by the order in which planned regions found places.
    number: u64,
    region: Region,
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
    /// Planned regions for which places were looked for, and the last one of which something was packed.
    placed: u64,
    packed: u64,
    /// Free places behind each batch, for what grows: they are held until the end, so that no later batch comes to lie there.
    slack: Vec<H::Donor>,
}

/// Files that are open, by their turns.
type Open<F> = BTreeMap<usize, F>;

impl<H: Host> Carrier<'_, H> {
    fn carry_batch(&mut self, batch: &[Region], goes_on: &mut dyn FnMut(&Report) -> bool) -> Result<(), Ended> {
        let mut space = self.no_space(batch)?;
        let (mut placed, mut found) = (Vec::new(), 0);
        for region in batch {
            if !goes_on(&self.report) {
                return Err(Ended::Stopped);
            }
            let parts = self.place(region, &mut space)?;
            found += u64::from(!parts.is_empty());
            placed.extend(parts);
        }
        let planned: u64 = batch.iter().map(|region| region.saves).sum();
        let saved: u64 = placed.iter().map(|one| one.region.saves.saturating_sub(one.fitted.breaks)).sum();
        if saved.saturating_mul(LEAST_SHARE) < planned {
            self.report.not_better += found;
            placed.clear();
            space.let_go();
        } else {
            self.report.saves += saved;
            self.leave_slack(found, &mut space);
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

    fn no_space(&mut self, batch: &[Region]) -> Result<Space<H>, Failure> {
        let free = self.host.free_blocks();
        let near = &self.files[batch[0].files.start].path;
        let free = free.map_err(|source| Failure::new("ask how much is free", near, source))?;
        let shares_donors = self.host.shares_donors();
        let slack = if shares_donors && batch.len() > 1 { 0 } else { self.settings.rules.slack };
        Ok(Space::of(free, shares_donors, slack))
    }

    /// Leaves places free behind regions that lie side by side, as many as are to be free behind so many.
    fn leave_slack(&mut self, regions: u64, space: &mut Space<H>) {
        if space.slack == 0 {
            let blocks = regions.saturating_mul(self.settings.rules.slack);
            self.slack.extend(space.capture_slack(self.host, &self.near, blocks));
        }
    }

    /// Has the files of a batch brought into memory, in the order of the disk.
    fn announce(&mut self, placed: &[Placed]) {
        let mut turns: Vec<usize> = placed.iter().flat_map(|one| one.turns.iter().copied()).collect();
        turns.sort_by_key(|&turn| self.files[turn].places.first());
        for turn in turns {
            self.host.announce(&self.files[turn].path);
        }
    }

    /// Finds free space for a region, where there is some in which it is worth it, or for what of it comes to lie in one piece.
    fn place(&mut self, region: &Region, space: &mut Space<H>) -> Result<Vec<Placed>, Failure> {
        let turns: Vec<usize> = region.files.clone().filter(|&turn| self.files[turn].places.blocks() > 0).collect();
        let Some(first) = turns.first() else { return Ok(Vec::new()) };
        self.near = self.files[*first].path.parent().unwrap_or(Path::new(".")).to_owned();
        self.placed += 1;
        let number = self.placed;
        let parts = match self.capture_for(region, &turns, space)? {
            Some(fitted) => vec![Placed { number, region: region.clone(), turns: turns.clone(), fitted }],
            None => self.find_space(region, &turns, space)?,
        };
        let turns = parts.iter().flat_map(|part| &part.turns);
        let files: Vec<&Places> = turns.map(|&turn| &self.files[turn].places).collect();
        let fitted: Vec<Places> = parts.iter().flat_map(|part| part.fitted.files.iter().cloned()).collect();
        check(&files, &fitted, space.unused_at(&fitted))
            .map_err(|flaw| Failure::new("use a plan that would do harm", &self.near, io::Error::other(flaw)))?;
        space.take(&fitted);
        Ok(parts)
    }

    /// A region that lies so, by what of it lies in one piece: those parts that save enough for what they write, where together they are worth
    /// it. Where each region has donors of its own, all of it or nothing.
    fn parts(&self, region: &Region, turns: &[usize], fitted: &Fitted, space: &Space<H>) -> Vec<Placed> {
        let all = 0..turns.len();
        let parts = if space.shares_donors { fitted.parts() } else { vec![all] };
        let is_whole = parts.len() == 1;
        let part = |files: Range<usize>| {
            let (turns, fitted) = (turns[files.clone()].to_vec(), fitted.part(files));
            let blocks = turns.iter().map(|&turn| self.files[turn].places.blocks()).sum();
            let own = || Region { files: turns[0]..turns[turns.len() - 1] + 1, blocks, saves: self.saves(&turns) };
            let region = if is_whole { region.clone() } else { own() };
            Placed { number: self.placed, region, turns, fitted }
        };
        let gains = Rules { margin: 0, ..self.settings.rules };
        let mut placed: Vec<Placed> = parts.into_iter().map(part).collect();
        placed.retain(|part| {
            let old: Vec<&Places> = part.turns.iter().map(|&turn| &self.files[turn].places).collect();
            is_worth(&gains, &part.region, &old, &part.fitted)
        });
        let saves = placed.iter().map(|part| part.region.saves.saturating_sub(part.fitted.breaks)).sum();
        let blocks = placed.iter().map(|part| part.region.blocks).sum();
        if self.settings.rules.is_worth(saves, blocks) { placed } else { Vec::new() }
    }

    /// Breaks that it saves when these files, and none around them, come to lie in one piece.
    fn saves(&self, turns: &[usize]) -> u64 {
        let places = |turn: usize| &self.files[turn].places;
        let inside: u64 = turns.iter().map(|&turn| places(turn).breaks()).sum();
        let between = turns.windows(2).filter(|pair| !places(pair[0]).leads_to(places(pair[1]))).count() as u64;
        let (first, last) = (turns[0], turns[turns.len() - 1]);
        let has_blocks = |turn: &usize| places(*turn).blocks() > 0;
        let before = (0..first).rev().find(has_blocks);
        let after = (last + 1..self.files.len()).find(has_blocks);
        let is_led_to = before.is_some_and(|before| places(before).leads_to(places(first)));
        let leads = after.is_some_and(|after| places(last).leads_to(places(after)));
        (inside + between).saturating_sub(u64::from(is_led_to) + u64::from(leads))
    }

    fn carry(&mut self, placed: Placed, space: &mut Space<H>) -> Result<(), Failure> {
        let (open, as_planned) = self.open(&placed.turns)?;
        if as_planned {
            return self.pack(&placed, &open, space);
        }
        // What can't be moved lies between what can: is the rest still worth it?
        for region in self.plan_again(&placed.region.files) {
            for placed in self.place(&region, space)? {
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
    fn pack(&mut self, placed: &Placed, open: &Open<H::File>, space: &Space<H>) -> Result<(), Failure> {
        self.tell_moves(placed, space, open)?;
        self.report.regions += u64::from(mem::replace(&mut self.packed, placed.number) != placed.number);
        self.report.pieces += 1 + placed.fitted.breaks;
        for (&turn, planned) in placed.turns.iter().zip(&placed.fitted.files) {
            let Some(file) = open.get(&turn) else { continue };
            self.move_file(turn, file, space, planned)?;
        }
        Ok(())
    }

    fn tell_moves(&mut self, placed: &Placed, space: &Space<H>, open: &Open<H::File>) -> Result<(), Failure> {
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

    /// Where the region, or what of it lies in one piece, is worth it, in space that no other has; nothing where none of it is.
    fn find_space(&mut self, region: &Region, turns: &[usize], space: &mut Space<H>) -> Result<Vec<Placed>, Failure> {
        let needed = region.blocks.saturating_add(space.slack);
        let most = needed.saturating_mul(self.settings.capture.max(1));
        let (mut captured, mut may_capture) = (0, true);
        loop {
            let files: Vec<&Places> = turns.iter().map(|&turn| &self.files[turn].places).collect();
            let fitted = fit(&files, space.unused(), space.slack);
            let is_in_pieces = fitted.as_ref().is_some_and(|fitted| fitted.breaks > 0);
            let parts = fitted.map_or_else(Vec::new, |fitted| self.parts(region, turns, &fitted, space));
            let is_all = space.is_exhausted || captured >= most || !may_capture;
            if !parts.is_empty() {
                // More free space may hold a longer piece.
                if !is_in_pieces || is_all {
                    return Ok(parts);
                }
            } else if space.is_exhausted && self.uncommitted >= needed {
                // What was left and given back is free after a commit.
                self.committed(H::settle)?;
                space.is_exhausted = false;
            } else if space.is_exhausted || !may_capture {
                self.report.no_room += 1;
                return Ok(Vec::new());
            } else if is_all {
                self.report.not_better += 1;
                return Ok(Vec::new());
            }
            let wanted = needed.saturating_sub(space.unused().blocks()).max(needed.div_ceil(2));
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

/// Whether a region gains enough by lying so, and no file of it is torn for that.
fn is_worth(rules: &Rules, region: &Region, files: &[&Places], fitted: &Fitted) -> bool {
    let torn = files.iter().zip(&fitted.files).any(|(before, after)| after.breaks() > before.breaks());
    !torn && rules.is_worth(region.saves.saturating_sub(fitted.breaks), region.blocks)
}
