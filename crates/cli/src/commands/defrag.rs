//! `onesweep defrag`: plan, show, move.

mod peer;
mod undo;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, IsTerminal, Write},
    mem,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onesweep_layout::{Devices, LayoutScore};
use onesweep_relocate::{
    btrfs::Btrfs,
    carry::{Ended, Report, Settings},
    ext4,
    host::{Failure as Failed, Host, Uncached},
    mounted::{Chosen, Mounted, Refusal, host_of},
    pack::{Plan, Rules, Score, score},
    passes::{Done, Packing, plan_for},
    shown::Shown,
    survey::{Candidate, Order, files_below, survey},
};
use serde::Serialize;
use signal_hook::flag;

use crate::{
    args::{DefragArgs, OrderName},
    message,
    report::{self, Failure},
    session::heeded_signals,
    size::{Size, duration},
};

/// So many that each run comes to rest: a pass saves a tenth of what it was planned to save, or moves nothing.
const PASSES: u32 = 100;

/// The most that is put side by side, unless another size is asked for, and where free space is short.
const REGION: Size = Size(2 << 20);
const REGION_WHERE_SHORT: Size = Size(256 << 10);

/// How many times the budget the last seeks of a region may cost: by default as much as a disk streams in the time of a seek or so.
const DEAREST: u64 = 8;

pub(crate) fn run(args: DefragArgs) -> Result<u8, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in heeded_signals() {
        // Whoever asks twice doesn't wait for the region: what was moved is whole whenever it ends.
        flag::register_conditional_shutdown(signal, report::INTERRUPTED.into(), Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::told(format!("cannot listen to signals: {}", message::why(&error))))?;
    }
    if let Some(id) = &args.undo {
        return undo::undo(&args, id, &stop);
    }
    if let Some(id) = &args.forget {
        return undo::forget(&args, id);
    }
    let until = args.max_time.map(|time| Instant::now() + Duration::from_secs(time.0.unsigned_abs()));
    // Who may not have the time for all wants the best of all first; else one after the other is read and told.
    let at_once = if until.is_some() { args.paths.len() } else { 1 };
    let mut all = All { args: &args, stop: &stop, until, errors: 0 };
    for paths in args.paths.chunks(at_once.max(1)) {
        all.pack(paths)?;
    }
    Ok(report::exit_code(stop.load(Ordering::SeqCst), all.errors))
}

/// All paths, in groups that are packed together.
struct All<'a> {
    args: &'a DefragArgs,
    stop: &'a AtomicBool,
    until: Option<Instant>,
    /// That were told.
    errors: u64,
}

impl<'a> All<'a> {
    /// Looks at each, packs whatever gains most until nothing gains any more, and tells what was done.
    fn pack(&mut self, paths: &'a [PathBuf]) -> Result<(), Failure> {
        let mut trees: Vec<Box<dyn Packed + 'a>> = Vec::new();
        for path in paths {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            let run = Run { is_named: paths.len() > 1, ..Run::new(self.args, path, self.stop, self.until) };
            let planned = run.planned();
            trees.extend(self.heed(planned)?);
        }
        let bar = self.bar(trees.iter().map(|tree| tree.planned_blocks()).sum());
        while let Some(turn) = of_most_gain(trees.iter().map(|tree| tree.gain())) {
            let others = trees.iter().enumerate().filter(|(other, _)| *other != turn);
            let moved = others.map(|(_, tree)| tree.moved()).fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
            let stepped = trees[turn].step(&bar, moved);
            if self.heed(stepped)?.is_none() {
                trees.remove(turn);
            }
        }
        bar.finish_and_clear();
        for mut tree in trees {
            let told = tree.tell();
            self.errors += self.heed(told)?.unwrap_or(0);
        }
        Ok(())
    }

    /// What fails for one of several paths is told, and the others go on.
    fn heed<T>(&mut self, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(failure @ Failure::Closed(_)) => Err(failure),
            Err(failure) if self.args.paths.len() == 1 => Err(failure),
            Err(failure) => {
                failure.print();
                self.errors += 1;
                Ok(None)
            }
        }
    }

    fn bar(&self, blocks: u64) -> ProgressBar {
        let is_shown = blocks > 0 && !self.args.quiet && io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(blocks), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}, {eta} left") {
            bar.set_style(style);
        }
        bar
    }
}

/// Which of those that gain anything gains most; of equal ones the first.
fn of_most_gain(gains: impl Iterator<Item = Option<f64>>) -> Option<usize> {
    let gaining = gains.enumerate().filter_map(|(turn, gain)| Some((turn, gain?)));
    gaining.max_by(|(one, gain), (other, more)| gain.total_cmp(more).then(other.cmp(one))).map(|(turn, _)| turn)
}

/// What lies at a path, planned and packed step by step, whatever its file system.
trait Packed {
    /// Of the plan, in blocks of its file system.
    fn planned_blocks(&self) -> u64;

    /// Seeks that the next step saves for each byte; `None` when nothing is to be moved any more.
    fn gain(&self) -> Option<f64>;

    /// So many files were moved, and their blocks.
    fn moved(&self) -> (u64, u64);

    /// Moves the next regions. Others have moved so much.
    fn step(&mut self, bar: &ProgressBar, others: (u64, u64)) -> Result<(), Failure>;

    /// Tells what was done. Gives how many errors were told.
    fn tell(&mut self) -> Result<u64, Failure>;
}

/// One directory, or one file.
struct Run<'a> {
    args: &'a DefragArgs,
    path: &'a Path,
    is_file: bool,
    /// Where donors are made: itself, or where the file is.
    directory: &'a Path,
    stop: &'a AtomicBool,
    until: Option<Instant>,
    /// What was done is told with the path, since it doesn't follow its plan.
    is_named: bool,
}

impl<'a> Run<'a> {
    fn new(args: &'a DefragArgs, path: &'a Path, stop: &'a AtomicBool, until: Option<Instant>) -> Self {
        let is_file = path.metadata().is_ok_and(|facts| facts.is_file());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Run { args, path, is_file, directory: if is_file { parent } else { path }, stop, until, is_named: false }
    }

    /// Looks at what is there, and tells the plan.
    fn planned(self) -> Result<Box<dyn Packed + 'a>, Failure> {
        if self.args.peer {
            peer::is_raced(self.path)?;
        }
        let uncached = if self.args.cached { Uncached::Stays } else { Uncached::Read };
        match host_of(self.directory, uncached).map_err(|refusal| refused(self.path, &refusal))? {
            Chosen::Ext4(mut host) => {
                // Where no file can be made, nothing can be moved either; that is told when it is tried.
                if let Err(refusal @ (ext4::Refusal::Bigalloc | ext4::Refusal::FastCommits)) =
                    host.rehearse(self.directory)
                {
                    return Err(refused(self.path, &refusal.into()));
                }
                self.planned_on(*host)
            }
            Chosen::Xfs(host) => {
                self.refuse_to_keep("XFS")?;
                self.planned_on(host)
            }
            Chosen::Shown(_, Refusal::OnlyAsked) if self.args.dedupe => {
                self.refuse_to_keep("btrfs")?;
                let host = Btrfs::of(self.directory, uncached);
                let host = host.map_err(|refusal| refused(self.path, &refusal.into()))?;
                self.planned_on(host)
            }
            Chosen::Shown(mut host, refusal) => {
                self.show_scores(&mut host)?;
                Err(refused(self.path, &refusal))
            }
        }
    }

    fn refuse_to_keep(&self, name: &str) -> Result<(), Failure> {
        if !self.args.keep {
            return Ok(());
        }
        let why = format!("on {name} a file's old place is given back; leave --keep out");
        Err(Failure::could_not_run(self.path, "keep old places", why))
    }

    /// Tells how files lie that can't be moved; nothing where the file system tells no places.
    fn show_scores(&self, host: &mut Shown) -> Result<(), Failure> {
        let (files, _) = self.survey(host, None)?;
        if files.iter().any(|file| file.places.blocks() > 0) {
            let told = Told::new(self.path, &files, &as_it_lies(&files), host.block_bytes());
            let told = Told { is_complete: false, ..told };
            self.show(|out| told.show_before(out))?;
            self.write_json(&told)?;
        }
        Ok(())
    }

    /// The files in the order of the reader, but for those in the folder of kept places, and how many errors were told.
    fn survey(&self, host: &mut impl Host, kept: Option<&Path>) -> Result<(Vec<Candidate>, u64), Failure> {
        // Places of what was written lately are not known before.
        host.commit().map_err(|error| Failure::io(self.path, "write what is dirty", &error))?;
        let order = match self.args.order {
            OrderName::Readdir => Order::Readdir,
            OrderName::Inode => Order::Inode,
            OrderName::Name => Order::Name,
        };
        let mut errors = 0;
        if self.is_file {
            let files = survey(host, [self.path.to_owned()]).map_err(|failed| Failure::told(message_of(&failed)))?;
            return Ok((files, errors));
        }
        let paths = files_below(self.path, order, &mut |path, error| {
            tell(&message::of_step(path, "list it", &error));
            errors += 1;
        });
        let mut paths = paths.map_err(|error| Failure::io(self.path, "list it", &error))?;
        if let Some(kept) = kept {
            paths.retain(|path| !path.starts_with(kept));
        }
        let goes_on = |_: &PathBuf| !self.is_over();
        let files = survey(host, paths.into_iter().take_while(goes_on));
        Ok((files.map_err(|failed| Failure::told(message_of(&failed)))?, errors))
    }

    /// Whether somebody wants an end, or the time is up.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst) || self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn planned_on<H: Mounted + 'a>(self, mut host: H) -> Result<Box<dyn Packed + 'a>, Failure> {
        let kept = host.kept_below(self.directory);
        let (files, errors) = self.survey(&mut host, kept.as_deref())?;
        let free = host.free_blocks().map_err(|error| Failure::io(self.path, "ask how much is free", &error))?;
        let settings = self.settings(host.block_bytes(), free, &files);
        let is_over = self.is_over();
        let plan = if is_over { as_it_lies(&files) } else { plan_for(&files, &settings) };
        let mut told = Told::new(self.path, &files, &plan, host.block_bytes());
        told.held_blocks = self.args.keep.then(|| plan.blocks());
        if is_over {
            told.is_complete = false;
            let path = message::path_text(self.path);
            tell(&format!("{path}: it was ended before all of its files were looked at; nothing was moved"));
        } else {
            self.show(|out| told.show_plan(out))?;
        }
        let is_seekless = self.is_seekless();
        if is_seekless && !self.args.force && !self.args.dry_run && !plan.regions.is_empty() {
            let path = message::path_text(self.path);
            tell(&format!("{path}: its disk does not seek, so nothing was moved; --force moves all the same"));
        }
        let is_moved = !self.args.dry_run && (!is_seekless || self.args.force) && !plan.regions.is_empty();
        // What is kept frees no room for another pass.
        let passes = if self.args.keep { 1 } else { PASSES };
        let packing = is_moved.then(|| Packing::new(&files, &settings, passes));
        // Alone it goes through each pass at once; else the reads of a step are still one sweep.
        let step = if self.is_named { settings.batch } else { u64::MAX };
        let (planned, keeps, took) = (plan.blocks(), false, Duration::ZERO);
        Ok(Box::new(Tree { run: self, host, files, settings, told, packing, planned, step, keeps, took, errors }))
    }

    fn write_json(&self, told: &Told) -> Result<(), Failure> {
        if !self.args.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let written = serde_json::to_writer(&mut out, told).map_err(io::Error::from);
        written.and_then(|()| writeln!(out)).map_err(|error| Failure::output(&error, 0))
    }

    fn settings(&self, block_bytes: u64, free_blocks: u64, files: &[Candidate]) -> Settings {
        let blocks = |size: Size| size.0 / block_bytes.max(1);
        let region = |size: Size| blocks(size).clamp(16, 2048);
        let (region, region_where_short) = match self.args.region {
            Some(asked) => (region(asked), region(asked)),
            None => (region(REGION), region(REGION_WHERE_SHORT)),
        };
        let budget = blocks(self.args.write_budget).max(1);
        let rules = Rules { budget, dearest: budget.saturating_mul(DEAREST), ..Rules::for_regions(region) };
        let settings = Settings { gain_first: self.args.max_time.is_some(), ..Settings::new(rules) };
        settings.with_free(free_blocks, files, region_where_short)
    }

    /// Where nobody can tell, the disk seeks.
    fn is_seekless(&self) -> bool {
        let stack = || Devices::of_system().ok()?.by_fd(File::open(self.path).ok()?.as_fd()).ok();
        stack().is_some_and(|stack| !stack.disks.is_empty() && stack.is_seekless())
    }

    fn show(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        if self.args.quiet || self.args.json {
            return Ok(());
        }
        write(&mut io::stdout().lock()).map_err(|error| Failure::output(&error, 0))
    }
}

/// So many directories are tried until one is found in which the caller may make files.
const DIRECTORIES_TRIED: usize = 1000;

fn is_denied(refusal: &Refusal) -> bool {
    refusal.unknown().is_some_and(|(_, source)| source.kind() == io::ErrorKind::PermissionDenied)
}

/// A plan that moves nothing.
fn as_it_lies(files: &[Candidate]) -> Plan {
    let score = score(&files.iter().map(Candidate::item).collect::<Vec<_>>());
    Plan { before: score, after: score, ..Plan::default() }
}

/// A directory on its file system, or a file.
struct Tree<'a, H> {
    run: Run<'a>,
    host: H,
    files: Vec<Candidate>,
    settings: Settings,
    told: Told,
    /// `None` where nothing is to be moved.
    packing: Option<Packing>,
    /// Blocks.
    planned: u64,
    /// Blocks that are moved at once, before another's turn may come.
    step: u64,
    /// Old places are kept already.
    keeps: bool,
    took: Duration,
    errors: u64,
}

impl<H: Mounted> Packed for Tree<'_, H> {
    fn planned_blocks(&self) -> u64 {
        if self.packing.is_some() { self.planned } else { 0 }
    }

    fn gain(&self) -> Option<f64> {
        Some(self.packing.as_ref()?.gain(self.step)? / self.host.block_bytes() as f64)
    }

    fn moved(&self) -> (u64, u64) {
        self.packing.as_ref().map_or((0, 0), Packing::moved)
    }

    fn step(&mut self, bar: &ProgressBar, others: (u64, u64)) -> Result<(), Failure> {
        let Some(packing) = &mut self.packing else { return Ok(()) };
        let (run, started) = (&self.run, Instant::now());
        let mut ready = self.host.get_ready(run.directory, self.settings.rules.region, run.args.near);
        // Below a directory of somebody else's there may be some of the caller's own.
        let mut below = BTreeSet::from([run.directory]);
        for directory in self.files.iter().filter(|file| file.stays.is_none()).filter_map(|file| file.path.parent()) {
            if !ready.as_ref().is_err_and(is_denied) || below.len() > DIRECTORIES_TRIED {
                break;
            }
            if below.insert(directory) {
                ready = self.host.get_ready(directory, self.settings.rules.region, run.args.near);
            }
        }
        ready.map_err(|refusal| refused(run.path, &refusal))?;
        if run.args.keep && !mem::replace(&mut self.keeps, true) {
            self.host.keep_old_places(run.directory).map_err(|failed| Failure::told(message_of(&failed)))?;
        }
        let mut goes_on = |report: &Report| {
            let (files, blocks) = (others.0 + report.files, others.1 + report.blocks);
            // Later passes move more than was planned.
            bar.set_length(bar.length().unwrap_or(0).max(blocks));
            bar.set_position(blocks);
            bar.set_message(format!("{files} files moved"));
            !run.is_over()
        };
        packing.step(&mut self.host, &mut self.files, self.step, &mut goes_on);
        // The next turn may be another's on the same file system.
        self.host.set_back();
        self.took += started.elapsed();
        Ok(())
    }

    fn tell(&mut self) -> Result<u64, Failure> {
        let run = &self.run;
        if let Some(packing) = self.packing.take() {
            let done = packing.end(&self.files);
            if let Some(Ended::Failed(failed)) = &done.report.ended {
                tell(&format!("{}; what was moved before is whole", message_of(failed)));
                self.errors += 1;
            }
            self.told.add(&done, self.took, self.host.block_bytes());
            self.told.undo = self.host.kept_run().map(str::to_owned);
            self.told.new_ctime_files = self.host.new_ctime_files();
            run.show(|out| self.told.show_done(run.is_named, out))?;
        }
        self.told.count_stayed(&self.files);
        run.show(|out| self.told.show_stayed(out))?;
        if run.args.verbose {
            for (file, stays) in self.files.iter().filter_map(|file| Some((file, file.stays?))) {
                let path = message::path_text(&file.path);
                run.show(|out| writeln!(out, "  {path}: {stays}"))?;
            }
        }
        run.write_json(&self.told)?;
        Ok(self.errors)
    }
}

fn refused(path: &Path, refusal: &Refusal) -> Failure {
    match refusal.unknown() {
        Some((what, source)) => Failure::io(path, what, source),
        None => Failure::could_not_run(path, "move its files", refusal),
    }
}

/// The bytes in hexadecimal, when the path is not UTF-8.
fn path_hex(path: &Path) -> Option<String> {
    let hex = || path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    path.to_str().is_none().then(hex)
}

fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "onesweep: {text}");
}

fn message_of(failed: &Failed) -> String {
    message::of_other(&failed.path, failed.doing, &failed.source)
}

/// Scores of one moment.
#[derive(Serialize)]
struct Scores {
    /// Seeks of who reads all in the order.
    seeks: u64,
    /// Of the files alone, 0 to 1.
    layout_score: Option<f64>,
    /// Between the files, too.
    dynamic_score: Option<f64>,
}

impl Scores {
    fn of(score: &Score) -> Scores {
        let ratio = LayoutScore::ratio;
        Scores { seeks: score.breaks(), layout_score: ratio(score.files), dynamic_score: ratio(score.order) }
    }
}

/// What is said of one directory.
#[derive(Serialize)]
struct Told {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    files: usize,
    bytes: u64,
    before: Scores,
    planned: Scores,
    planned_regions: usize,
    planned_bytes: u64,
    /// With `--keep`: those of the old places, when all is carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_blocks: Option<u64>,
    /// The name by which they are undone and forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
    /// Null when nothing was to be moved.
    after: Option<Scores>,
    moved_files: u64,
    moved_bytes: u64,
    moved_regions: u64,
    moved_pieces: u64,
    passes: u32,
    large_page_files: u64,
    /// XFS without reflinks, not root: the kernel has set ctime anew.
    new_ctime_files: u64,
    torn_files: usize,
    left_not_better: u64,
    left_no_room: u64,
    stayed: BTreeMap<String, u64>,
    is_complete: bool,
    seconds: f64,
}

impl Told {
    fn new(path: &Path, files: &[Candidate], plan: &Plan, block_bytes: u64) -> Told {
        Told {
            path: path.to_string_lossy().into_owned(),
            path_hex: path_hex(path),
            files: files.len(),
            bytes: files.iter().map(|file| file.places.blocks()).sum::<u64>() * block_bytes,
            before: Scores::of(&plan.before),
            planned: Scores::of(&plan.after),
            planned_regions: plan.regions.len(),
            planned_bytes: plan.blocks() * block_bytes,
            held_blocks: None,
            undo: None,
            after: None,
            moved_files: 0,
            moved_bytes: 0,
            moved_regions: 0,
            moved_pieces: 0,
            passes: 0,
            large_page_files: 0,
            new_ctime_files: 0,
            torn_files: 0,
            left_not_better: 0,
            left_no_room: 0,
            stayed: BTreeMap::new(),
            is_complete: plan.regions.is_empty(),
            seconds: 0.0,
        }
    }

    fn add(&mut self, done: &Done, took: Duration, block_bytes: u64) {
        self.after = Some(Scores::of(&done.after));
        self.moved_files = done.report.files;
        self.moved_bytes = done.report.blocks * block_bytes;
        self.moved_regions = done.report.regions;
        self.moved_pieces = done.report.pieces;
        self.passes = done.passes;
        self.large_page_files = done.report.large;
        self.torn_files = done.report.torn.len();
        (self.left_not_better, self.left_no_room) = (done.report.not_better, done.report.no_room);
        // What is kept leaves no room for another pass.
        self.is_complete = done.report.ended.is_none() && (done.is_at_rest || self.held_blocks.is_some());
        self.seconds = took.as_secs_f64();
    }

    fn count_stayed(&mut self, files: &[Candidate]) {
        for stays in files.iter().filter_map(|file| file.stays) {
            *self.stayed.entry(stays.to_string()).or_default() += 1;
        }
    }

    fn show_before(&self, out: &mut dyn Write) -> io::Result<()> {
        let (path, bytes) = (message::one_line(&self.path), Size(self.bytes));
        writeln!(out, "{path}: {} files, {bytes}, {} seeks to read them", self.files, self.before.seeks)
    }

    fn show_plan(&self, out: &mut dyn Write) -> io::Result<()> {
        self.show_before(out)?;
        match self.planned_regions {
            0 => writeln!(out, "nothing to move: it would not be better by enough"),
            regions => writeln!(
                out,
                "plan: {} to write into {regions} regions, {} seeks then",
                Size(self.planned_bytes),
                self.planned.seeks
            ),
        }?;
        match self.held_blocks {
            Some(blocks @ 1..) => {
                writeln!(
                    out,
                    "to keep: {blocks} blocks, {}, are held until they are forgotten",
                    Size(self.planned_bytes)
                )
            }
            _ => Ok(()),
        }
    }

    fn show_done(&self, is_named: bool, out: &mut dyn Write) -> io::Result<()> {
        if is_named {
            write!(out, "{}: ", message::one_line(&self.path))?;
        }
        let (bytes, took) = (Size(self.moved_bytes), duration(self.seconds));
        let seeks = self.after.as_ref().map_or(0, |after| after.seeks);
        let whole = if self.is_complete { "" } else { "stopped early: " };
        writeln!(out, "{whole}{} files moved, {bytes} in {took}, {seeks} seeks now", self.moved_files)?;
        if let Some(id) = &self.undo {
            let path = message::one_line(&self.path);
            writeln!(out, "kept: onesweep defrag --undo {id} {path}, or --forget {id}")?;
        }
        if self.new_ctime_files > 0 {
            let files = self.new_ctime_files;
            writeln!(
                out,
                "{files} of them have a new ctime: without root, exchange-range sets it; backups may read them again"
            )?;
        }
        if self.left_not_better > 0 {
            let left = self.left_not_better;
            writeln!(out, "{left} regions left: free space in pieces would not have made them better by enough")?;
        }
        if self.left_no_room > 0 {
            writeln!(
                out,
                "{} regions left: no free space near them, no permission to make files there, or a limit on their size (ulimit -f)",
                self.left_no_room
            )?;
        }
        Ok(())
    }

    fn show_stayed(&self, out: &mut dyn Write) -> io::Result<()> {
        for (stays, files) in &self.stayed {
            writeln!(out, "{files} files stay: {stays}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gains_most_has_the_first_turn() {
        let turn = |gains: &[Option<f64>]| of_most_gain(gains.iter().copied());
        assert_eq!(turn(&[Some(0.1), Some(0.5), None, Some(0.3)]), Some(1));
        assert_eq!(turn(&[None, Some(0.2), Some(0.2)]), Some(1), "of equal ones the first");
        assert_eq!((turn(&[None, None]), turn(&[])), (None, None));
    }
}
