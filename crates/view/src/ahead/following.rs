//! Follows a program over the files of its trees, and brings in what it comes to.

use std::{collections::HashSet, fs, os::unix::fs::MetadataExt, time::Duration};

use onesweep::{BulkRead, FileError, Files, MetadataSource, Route, Sweep, SweepError, SweptFile};
use onesweep_deliver::warm::Warmer;

use super::{Figures, Helper, Reader, are_quick, guided::Guided};
use crate::{
    board::{Board, Phase, State},
    course::Course,
    pace::{Load, Opens, Pace, Step, Waiting},
};

/// How long a file that is wanted is waited for before it is looked whether all is to end.
const PATIENCE: Duration = Duration::from_millis(250);
/// Until so many files were wanted it is looked in the page cache what the program may have read before the trees were known.
const EARLY: usize = 16;

pub(super) struct Following<'a> {
    helper: &'a Helper,
    board: &'a Board,
    guided: Guided<'a>,
    /// Page-cache bytes of each file.
    bytes: Vec<u64>,
    limit: u64,
    course: Course,
    pace: Pace,
    /// How many were wanted.
    wanted: usize,
    /// What programs wait for.
    all: Load,
    /// There is room for all of that.
    all_fit: bool,
    /// What the last sweeps have brought in, where that has to go before more can come.
    former: Vec<u32>,
    /// What the last one was to bring in, until it is looked whether that was of use.
    batch: Vec<u32>,
}

/// What a sweep did.
struct Brought {
    /// Files that were not in memory before, as far as anybody can tell.
    files: Vec<u32>,
    /// Of these, such that were not for certain. What others have in memory is never dropped.
    for_certain: Vec<u32>,
    /// It came to its end.
    is_whole: bool,
}

impl<'a> Following<'a> {
    pub(super) fn new(helper: &'a Helper, mut guided: Guided<'a>, limit: u64) -> Self {
        let bytes = guided.page_cache_bytes();
        let is_awaited = |file: u32| guided.has_slot(file) && (1..=limit).contains(&bytes[file as usize]);
        let mut all = Load::default();
        for (file, bytes) in (0..).zip(&bytes) {
            if is_awaited(file) {
                all.add(*bytes);
            } else {
                guided.set(file, State::Left);
            }
        }
        let course = Course::new(guided.take_walks(), bytes.clone());
        Self {
            helper,
            board: &helper.board,
            guided,
            bytes,
            limit,
            course,
            pace: Pace::new(all, limit, !are_quick(&helper.devices)),
            wanted: 0,
            all,
            all_fit: all.bytes <= limit,
            former: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// Until the program ends, or all was brought in. `planned` is a sweep over all, `bulk` the settings of others.
    pub(super) fn run(
        mut self,
        planned: Sweep,
        bulk: impl Fn() -> BulkRead,
        figures: &mut Figures,
    ) -> Result<(), SweepError> {
        // It would bring in what is larger than the limit, too.
        let mut planned = (self.bytes.iter().sum::<u64>() <= self.limit).then_some(planned);
        self.board.enter_phase(Phase::Guided);
        while !self.helper.end.is_due() {
            let Some(wanted) = self.board.wait_for_wanted(PATIENCE) else { continue };
            let Some(asked) = self.guided.by_slot(wanted).filter(|_| self.board.is_due(wanted)) else {
                self.board.tell();
                continue;
            };
            let step = self.step(asked);
            let batch = self.next(asked, step);
            if batch.is_empty() {
                self.guided.tell(asked, State::Left);
                continue;
            }
            self.batch = batch;
            self.batch.iter().for_each(|file| self.guided.set(*file, State::Coming));
            let load: Load = self.batch.iter().map(|file| self.bytes[*file as usize]).collect();
            let begun = match planned.take_if(|_| step.is_over_everything(load, self.all)) {
                Some(planned) => planned.run(),
                None => {
                    let paths = self.batch.iter().map(|file| self.guided.path(*file));
                    // It is the pages of an image that are wanted, not what is in it.
                    bulk().roots(paths).metadata(MetadataSource::Walk).notes_cached(!self.all_fit).start()
                }
            };
            let files = match begun {
                Ok(files) => files,
                // All that was to come is gone.
                Err(SweepError::Root { .. }) => {
                    self.leave(self.batch.iter().copied(), State::Left);
                    self.batch.clear();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let brought = self.bring_in(files);
            figures.sweeps += 1;
            figures.files += brought.files.len() as u64;
            figures.bytes += brought.files.iter().map(|file| self.guided.bytes(*file)).sum::<u64>();
            if step == Step::All && brought.is_whole {
                break;
            }
            self.former.extend(brought.for_certain);
        }
        Ok(())
    }

    fn is_awaited(&self, file: u32) -> bool {
        self.guided.has_slot(file) && (1..=self.limit).contains(&self.bytes[file as usize])
    }

    /// Whether the program has read a file, as far as that can be told; `None` of files that nobody waits for.
    fn was_read(&self, file: u32) -> Option<bool> {
        self.is_awaited(file).then(|| {
            self.guided.was_opened(file)
                || (!self.helper.hears_of_all && self.guided.is_in(file))
                // Before the trees were known it was told of nothing.
                || (self.wanted <= EARLY && self.guided.is_told_cached(file))
        })
    }

    fn is_on_the_way(&self, file: u32) -> bool {
        self.course.is_on_the_way(file, |file| self.was_read(file))
    }

    /// Whether a file that is wanted is in memory.
    fn is_in_memory(&self, asked: u32) -> bool {
        match self.helper.reader {
            Reader::Itself => self.guided.is_cached(asked) == Some(true),
            // It was tried before the request was to wait, and a page that was missing may be there by now.
            Reader::ThroughFuse => self.guided.is_told_cached(asked),
        }
    }

    /// A file is wanted that isn't coming: learns from that, and what there was of the last sweep.
    fn step(&mut self, asked: u32) -> Step {
        // To read that costs nobody anything.
        if self.is_in_memory(asked) {
            return Step::Alone;
        }
        self.wanted += 1;
        let is_on_the_way = self.is_on_the_way(asked);
        // Who is out of the way may be another one, and the one for whom the sweep was made still comes to the rest of it.
        let is_waiting_to_be_read = || self.batch.iter().any(|file| self.guided.is_in(*file));
        if is_on_the_way || !is_waiting_to_be_read() {
            self.judge_sweep(asked);
        }
        let last = self.board.last().and_then(|slot| self.guided.by_slot(slot));
        self.course.learn(last, asked);
        let is_at_an_end = self.wanted <= EARLY && self.course.is_at_an_end(asked, |file| self.was_read(file));
        let step = self.pace.wanted(Opens { is_on_the_way, is_at_an_end, bytes: self.bytes[asked as usize] });
        if !self.all_fit && matches!(step, Step::Some(_)) {
            // Not the one that was opened last: it may still be read.
            let (kept, gone) = std::mem::take(&mut self.former).into_iter().partition(|file| Some(*file) == last);
            self.former = kept;
            let gone: Vec<u32> = gone;
            self.guided.drop_cached(gone.into_iter());
        }
        step
    }

    /// Learns of what use the last sweep was to who comes to `asked` now.
    fn judge_sweep(&mut self, asked: u32) {
        let batch: HashSet<u32> = std::mem::take(&mut self.batch).into_iter().collect();
        if batch.is_empty() {
            return;
        }
        // Who comes to what stands behind the batch has come through it, though not all that is opened may be told.
        let was_brought_in = |file: u32| self.is_awaited(file).then(|| batch.contains(&file));
        let is_behind_it = !self.helper.hears_of_all && self.course.is_on_the_way(asked, was_brought_in);
        let opened = match is_behind_it {
            true => batch.len(),
            false => batch.iter().filter(|file| self.guided.was_opened(**file)).count(),
        };
        self.pace.swept(batch.len(), opened);
    }

    /// What comes next.
    fn next(&self, asked: u32, step: Step) -> Vec<u32> {
        let is_due = |file: u32| self.is_awaited(file) && self.guided.is_due(file);
        match step {
            Step::Alone => Vec::new(),
            Step::Some(bytes) => {
                let kept: u64 =
                    if self.all_fit { 0 } else { self.former.iter().map(|file| self.bytes[*file as usize]).sum() };
                self.course.next(asked, bytes.saturating_sub(kept), is_due)
            }
            Step::All => (0..self.bytes.len() as u32).filter(|file| is_due(*file)).collect(),
        }
    }

    /// Brings the batch in. Whoever waits for one of its files goes on as soon as that file is there, or failed; who waits for another
    /// one, or for one out of the way, reads it alone, and when that goes on and is told, the sweep ends.
    fn bring_in(&mut self, mut files: Files) -> Brought {
        let mut warmer = Warmer::new(u64::MAX);
        let mut brought = Brought { files: Vec::new(), for_certain: Vec::new(), is_whole: true };
        let mut missing: HashSet<u32> = self.batch.iter().copied().collect();
        let mut heard = HashSet::new();
        while brought.is_whole {
            let Some(item) = files.next() else { break };
            let (inode, was_cached) = match item {
                Ok(file) => {
                    let inode = (file.metadata().dev, file.metadata().ino);
                    let was_cached = self.was_cached(&file, inode);
                    // What failed is told by the program, which comes to the same file.
                    let _ = warmer.warm(file);
                    (Some(inode), was_cached)
                }
                Err(error) => (inode_of(&error), Some(true)),
            };
            if let Some(file) = inode.and_then(|inode| self.guided.by_inode(inode)) {
                missing.remove(&file);
                // One that failed is read by the program itself, too.
                self.guided.tell(file, State::In);
                brought.files.extend((was_cached != Some(true)).then_some(file));
                brought.for_certain.extend((was_cached == Some(false)).then_some(file));
            }
            brought.is_whole = !self.helper.end.is_due() && self.is_still_wanted(&mut heard);
        }
        // Before anybody goes on: it would read on beside the program.
        drop(files);
        self.leave(missing.into_iter(), if brought.is_whole { State::Left } else { State::Later });
        brought
    }

    /// Whether a file that has come was in memory before, where that is to be known and can be.
    fn was_cached(&self, file: &SweptFile, inode: (u64, u64)) -> Option<bool> {
        match file.route() {
            Route::NoRead | Route::Cached => Some(true),
            Route::Swept | Route::Reread => file.was_cached(),
            // It is read only now. Where nothing has to go for what comes, that is all the same.
            Route::Streamed if self.all_fit => None,
            Route::Streamed => self.guided.by_inode(inode).and_then(|file| self.guided.is_cached(file)),
        }
    }

    /// Looks who waits while a sweep is under way; for a file of which it has `heard` somebody says so again at each one that comes. False
    /// when the sweep is to end.
    fn is_still_wanted(&mut self, heard: &mut HashSet<u32>) -> bool {
        while let Some(wanted) = self.board.take_wanted() {
            let awaited = |file: &u32| self.guided.is_due(*file) || self.guided.is_coming(*file);
            let Some(file) = self.guided.by_slot(wanted).filter(awaited).filter(|file| heard.insert(*file)) else {
                continue;
            };
            match self.waits(file) {
                Waiting::GoesOn => {}
                Waiting::Ends => self.guided.tell(file, State::Left),
                Waiting::EndsAll => {
                    self.guided.tell(file, State::Left);
                    return false;
                }
            }
        }
        true
    }

    /// Somebody waits for a file while a sweep is under way.
    fn waits(&mut self, file: u32) -> Waiting {
        let is_coming = self.guided.is_coming(file);
        // Who has come through all of it, a part of which may be in memory before it is told, wants the next one.
        if !is_coming && !self.batch.iter().any(|file| self.guided.is_coming(*file)) {
            return Waiting::GoesOn;
        }
        match (self.helper.hears_of_all, is_coming) {
            // What isn't coming is another reader's, or this one has left what is: the sweep may last for minutes.
            (true, _) => self.pace.waits(is_coming && self.is_on_the_way(file)),
            // That is all that is known. Who reads on may have read what nobody tells of, and had the kernel forget it, as borg does: no sweep
            // is ended for that.
            (false, true) => Waiting::GoesOn,
            (false, false) => Waiting::Ends,
        }
    }

    /// These don't come, or not yet.
    fn leave(&self, files: impl Iterator<Item = u32>, state: State) {
        // What was left to the program meanwhile stays so.
        files.filter(|file| self.guided.is_coming(*file)).for_each(|file| self.guided.set(file, state));
        self.board.tell();
    }
}

/// Device and number of the file that an error is about, if that is there.
fn inode_of(error: &FileError) -> Option<(u64, u64)> {
    let facts = error.path().and_then(|path| fs::symlink_metadata(path).ok())?;
    Some((facts.dev(), facts.ino()))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        ops::Range,
        os::fd::AsFd,
        path::{Path, PathBuf},
        sync::Arc,
    };

    use onesweep_sys::cache;
    use tempfile::TempDir;

    use super::*;
    use crate::{board::Slot, order::Order, testing, tree::Tree};

    const FILES: u32 = 200;
    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 1 << 30;

    fn folder_of(fill: impl Fn(&Path)) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        (0..FILES).for_each(|number| fill(&folder.path().join(format!("{number:03}"))));
        folder
    }

    /// Files of a MiB of which nothing is in memory.
    fn holes() -> TempDir {
        folder_of(|path| File::create(path).unwrap().set_len(MIB).unwrap())
    }

    fn helper(folder: &TempDir, hears_of_all: bool) -> Helper {
        let devices = vec![fs::metadata(folder.path().join("000")).unwrap().dev()];
        Helper {
            board: Arc::new(Board::new(&devices, None).unwrap()),
            end: Arc::default(),
            is_warm: Arc::default(),
            devices,
            limit: Some(LIMIT),
            reader: Reader::Itself,
            hears_of_all,
            order: Order::Name,
        }
    }

    /// The files stand by their numbers in every walk.
    fn following<'a>(helper: &'a Helper, folder: &TempDir) -> Following<'a> {
        let mut tree = Tree::look(&[folder.path().to_owned()], Order::Name, || false);
        tree.walks = std::array::from_fn(|_| (0..FILES).collect());
        let guided = Guided::enter(tree, &helper.board, &helper.devices).unwrap();
        helper.board.enter_phase(Phase::Guided);
        Following::new(helper, guided, LIMIT)
    }

    impl Following<'_> {
        fn slot(&self, file: u32) -> Slot {
            let facts = fs::metadata(self.guided.path(file)).unwrap();
            self.board.find(facts.dev(), facts.ino()).unwrap()
        }

        fn opens(&self, files: Range<u32>) {
            files.for_each(|file| self.board.note_opened(self.slot(file)));
        }

        /// Reads one after the other from there on, until some are brought in.
        fn reads_until_a_sweep(&mut self, from: u32) -> (u32, Step) {
            for file in from.. {
                match self.step(file) {
                    Step::Alone => self.opens(file..file + 1),
                    step => return (file, step),
                }
            }
            unreachable!("there are fewer")
        }

        /// Reads some, and has the next eight brought in, of which it opens the first: gives them.
        fn is_helped(&mut self) -> Range<u32> {
            let (first, step) = self.reads_until_a_sweep(FILES / 2);
            assert_eq!(step, Step::Some(8 * MIB));
            let batch = first..first + 8;
            self.batch = self.next(first, step);
            assert!(self.batch.iter().copied().eq(batch.clone()));
            batch.clone().for_each(|file| self.guided.set(file, State::In));
            self.opens(first..first + 1);
            batch
        }

        /// Somebody waits for a file during a sweep: whether it goes on.
        fn goes_on_when_somebody_wants(&mut self, file: u32) -> bool {
            self.board.want(self.slot(file), true);
            self.is_still_wanted(&mut HashSet::new())
        }
    }

    #[test]
    fn who_comes_from_elsewhere_does_not_tell_of_what_use_a_sweep_was() {
        for hears_of_all in [true, false] {
            let folder = holes();
            let helper = helper(&folder, hears_of_all);
            let mut following = following(&helper, &folder);
            let batch = following.is_helped();
            assert_eq!(following.step(30), Step::Alone);
            // Where not all is told it isn't known who has read what is in memory.
            if hears_of_all {
                following.opens(batch.clone());
            }
            assert_eq!(following.reads_until_a_sweep(batch.end).1, Step::Some(32 * MIB), "{hears_of_all}");
        }
    }

    #[test]
    fn a_sweep_was_of_no_use_to_who_reads_on_elsewhere() {
        for hears_of_all in [true, false] {
            let folder = holes();
            let helper = helper(&folder, hears_of_all);
            let mut following = following(&helper, &folder);
            following.is_helped();
            assert_eq!(following.reads_until_a_sweep(30).1, Step::Some(8 * MIB), "{hears_of_all}");
        }
    }

    #[test]
    fn who_wants_what_is_not_coming_reads_it_during_the_sweep() {
        for hears_of_all in [true, false] {
            let folder = holes();
            let helper = helper(&folder, hears_of_all);
            let mut following = following(&helper, &folder);
            following.batch = (100..150).collect();
            following.batch.iter().for_each(|file| following.guided.set(*file, State::Coming));
            following.opens(50..58);
            following.opens(100..105);
            assert!(following.goes_on_when_somebody_wants(58) && following.board.is_ready(following.slot(58)));
            assert!(following.goes_on_when_somebody_wants(105) && !following.board.is_ready(following.slot(105)));
            // Where not all is told, that is no sign that nobody needs the sweep.
            let ends = (60..90).any(|file| !following.goes_on_when_somebody_wants(file));
            assert_eq!(ends, hears_of_all);
            assert!(following.board.is_ready(following.slot(60)));
            // All of it was opened: the next sweep is about to begin.
            following.opens(100..150);
            assert!(following.goes_on_when_somebody_wants(150) && !following.board.is_ready(following.slot(150)));
        }
    }

    #[test]
    fn what_is_in_memory_costs_nothing_to_read_alone() {
        let folder = folder_of(|path| fs::write(path, [1; 5000]).unwrap());
        let helper = helper(&folder, true);
        let mut following = following(&helper, &folder);
        for file in (0..2 * FILES).map(|number| number * 77 % FILES) {
            assert_eq!(following.step(file), Step::Alone);
        }
    }

    #[test]
    fn what_is_others_and_in_memory_costs_nothing_to_read_alone() {
        let folder = folder_of(|path| fs::write(path, [1; 20_000]).unwrap());
        testing::open(folder.path());
        let helper = helper(&folder, true);
        let mut following = following(&helper, &folder);
        testing::as_stranger(folder.path(), || {
            for file in (0..2 * FILES).map(|number| number * 77 % FILES) {
                assert_eq!(following.step(file), Step::Alone);
            }
        });
    }

    /// Who tries files beside it brings them in, and would take them for read the next time.
    #[test]
    fn a_user_reads_nothing_to_find_out_where_a_program_is() {
        let folder = folder_of(|path| {
            fs::write(path, [1; 2000]).unwrap();
            File::open(path).unwrap().sync_all().unwrap();
        });
        testing::open(folder.path());
        let helper = helper(&folder, true);
        let mut following = following(&helper, &folder);
        let paths: Vec<PathBuf> = (0..FILES).map(|file| following.guided.path(file)).collect();
        let there = || {
            let pages = |path: &PathBuf| cache::residency(File::open(path).unwrap().as_fd(), 0, 0).unwrap().cached;
            paths.iter().filter(|path| pages(path) > 0).count()
        };
        paths.iter().for_each(|path| cache::drop_cached(File::open(path).unwrap().as_fd(), 0, 0).unwrap());
        if there() > 0 {
            return;
        }
        const WANTED: usize = 5;
        testing::as_stranger(folder.path(), || {
            (0..WANTED as u32).for_each(|file| _ = following.step(FILES / 2 + 2 * file));
        });
        assert!(there() <= WANTED, "{} files", there());
    }
}
