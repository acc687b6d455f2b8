//! One run: settings, signals, messages, the plan when it is to be shown, and reading.

use std::{
    fs,
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use onesweep::{
    BulkRead, Cancel, FileError, Filter, Kind, MetadataSource, Observer, Progress, Reassembly, Summary, Sweep,
    SweptFile,
};
use onesweep_deliver::temporary;
use onesweep_layout::image::{ImageName, ImageOptions};
use onesweep_sys::{files::EntryType, signals::was_ignored, stall};
use serde::Serialize;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level,
};

use crate::{
    args::{Common, Settings},
    config, forecast, message, named,
    progress::Bar,
    remarks,
    report::{self, Failure, Report},
};

/// What a command writes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandardOutput {
    /// Its result; a JSON summary then goes to standard error.
    Data,
    /// Nothing but the summary.
    Summary,
}

/// A run of one command.
pub(crate) struct Session {
    common: Common,
    stdout: StandardOutput,
    cancel: Cancel,
    interrupted: Arc<AtomicBool>,
    bar: Arc<Bar>,
    errors: AtomicU64,
    /// Paths that are named, and those that are not there, as far as only the tables of an image could tell.
    roots: AtomicU64,
    not_inside: AtomicU64,
    started: Instant,
}

impl Session {
    /// Completes the settings and begins to listen to signals.
    pub(crate) fn start(mut common: Common, stdout: StandardOutput) -> Result<Self, Failure> {
        common.settings = config::complete(common.settings)?;
        if common.settings.idle == Some(true) {
            // Named paths are looked at and streams are read by this thread. A kernel without I/O priorities reads all the same.
            let _ = onesweep_sys::priority::set_idle_io();
        }
        let cancel = Cancel::new();
        let interrupted = Arc::new(AtomicBool::new(false));
        listen(cancel.clone(), Arc::clone(&interrupted))?;
        // A bar among lines of data on the same terminal is unreadable.
        let hidden = common.output.quiet || (stdout == StandardOutput::Data && io::stdout().is_terminal());
        let bar = Arc::new(Bar::new(common.settings.progress.unwrap_or_default(), hidden));
        let (errors, roots, not_inside) = Default::default();
        Ok(Self { common, stdout, cancel, interrupted, bar, errors, roots, not_inside, started: Instant::now() })
    }

    /// The settings, complete.
    pub(crate) fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// What the command writes to standard output.
    pub(crate) fn standard_output(&self) -> StandardOutput {
        self.stdout
    }

    /// Whether only errors are told.
    pub(crate) fn is_quiet(&self) -> bool {
        self.common.output.quiet
    }

    /// Whether results are told as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.common.output.json
    }

    /// What a signal sets.
    pub(crate) fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Set after a signal, before all else is stopped.
    pub(crate) fn interruption(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// True after a signal: nothing may then pass for complete.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Tells an error. The exit code will know.
    pub(crate) fn complain(&self, message: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        // What fails because all is to end is no news.
        if !self.is_interrupted() {
            self.tell(message);
        }
    }

    /// Counts errors that were told in another way.
    pub(crate) fn count_errors(&self, errors: u64) {
        self.errors.fetch_add(errors, Ordering::Relaxed);
    }

    /// Errors so far.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// A bar of its own for what is no sweep.
    pub(crate) fn bytes_bar(&self, bytes: u64) -> indicatif::ProgressBar {
        self.bar.of_bytes(bytes)
    }

    /// Takes the bar away, before results are printed.
    pub(crate) fn end_progress(&self) {
        self.bar.finish();
    }

    /// Tells something that is no error.
    pub(crate) fn tell(&self, message: &str) {
        self.bar.aside(|| tell(message));
    }

    /// Tells of a file of a volume that was not closed, where what is written has no place for it.
    pub(crate) fn tell_of_dirty(&self, file: &SweptFile) {
        if file.marks().dirty && file.metadata().kind == Kind::File && !self.is_quiet() {
            let names = std::iter::once(file.path()).chain(file.links().iter().map(PathBuf::as_path));
            names.for_each(|name| self.tell(&format!("{}: dirty", message::path_text(name))));
        }
    }

    /// Tells an error item of the sweep.
    pub(crate) fn complain_of(&self, error: &FileError) {
        if matches!(error, FileError::NotInside { .. }) {
            self.not_inside.fetch_add(1, Ordering::Relaxed);
        }
        // Memory that is lent comes back when the item before is dropped; nothing is lost.
        if !matches!(error, FileError::BudgetLent { .. }) {
            self.complain(&message::of_file(error));
        }
    }

    /// Fails when no named path is there, before anything is written. Where some are, the sweep reports the others.
    pub(crate) fn check_roots(&self, base: Option<&Path>, roots: &[PathBuf]) -> Result<(), Failure> {
        let why_missing = |root: &PathBuf| {
            let path = base.map_or_else(|| root.clone(), |base| base.join(root));
            let found = named::look(&path, self.follows_roots());
            // What is inside of an image is known when its tables are read.
            let found = found.map(drop).or_else(|error| self.names_image(&path).then_some(()).ok_or(error));
            found.err().map(|error| message::of_step(root, "read", &error))
        };
        self.roots.store(roots.len() as u64, Ordering::Relaxed);
        self.tell_of_idle_options(base, roots);
        if self.reads_images() && !self.is_quiet() {
            for root in roots {
                let path = base.map_or_else(|| root.clone(), |base| base.join(root));
                let remark = onesweep::remark_on(&path, roots.len(), self.follows_roots(), &self.image_options());
                if let Some(remark) = remark {
                    self.tell(&remarks::of_path(root, &remark));
                }
            }
        }
        let messages: Option<Vec<_>> = roots.iter().map(why_missing).collect();
        messages.filter(|messages| !messages.is_empty()).map_or(Ok(()), |messages| Err(Failure::Told(messages)))
    }

    /// Tells of options that mean nothing where no image is named.
    fn tell_of_idle_options(&self, base: Option<&Path>, roots: &[PathBuf]) {
        let options = self.common.selection.for_images_alone();
        if self.is_quiet() || options.is_empty() {
            return;
        }
        let is_image = |root: &PathBuf| {
            let path = base.map_or_else(|| root.clone(), |base| base.join(root));
            onesweep::is_image(&path, roots.len(), self.follows_roots())
        };
        if !(self.reads_images() && roots.iter().any(is_image)) {
            self.tell(&remarks::of_idle(&options));
        }
    }

    /// Whether a path names something inside of an image.
    pub(crate) fn names_image(&self, path: &Path) -> bool {
        self.reads_images() && ImageName::of(path).is_some()
    }

    /// Whether the files of an image are to be read, not the image.
    pub(crate) fn reads_images(&self) -> bool {
        self.settings().metadata != Some(MetadataSource::Walk)
    }

    /// How images are opened.
    pub(crate) fn image_options(&self) -> ImageOptions {
        self.common.selection.image_options()
    }

    /// Takes images and devices for what they are, unless somebody asked for another source of names.
    pub(crate) fn take_images_as_files(&mut self) {
        self.common.settings.metadata.get_or_insert(MetadataSource::Walk);
    }

    /// Whether symbolic links that are named as paths are followed.
    pub(crate) fn follows_roots(&self) -> bool {
        self.common.selection.follow_roots
    }

    /// Tells of named paths that are left out since they are neither files nor directories.
    pub(crate) fn tell_of_unread(&self, roots: &[PathBuf]) {
        if !self.is_quiet() {
            self.unread(roots).iter().for_each(|message| self.tell(message));
        }
    }

    /// What to say of named paths that are left out since they are neither files nor directories.
    pub(crate) fn unread(&self, roots: &[PathBuf]) -> Vec<String> {
        let follow = self.follows_roots();
        let is_read = |root: &&PathBuf| self.reads_images() && onesweep::is_image(root, roots.len(), follow);
        roots.iter().filter(|root| !is_read(root)).filter_map(|root| unread(root, follow)).collect()
    }

    /// A bulk read with all common options.
    pub(crate) fn bulk_read(&self, roots: &[PathBuf]) -> Result<BulkRead, Failure> {
        let (bar, quiet) = (Arc::clone(&self.bar), self.is_quiet());
        let observer = move |event| match event {
            Progress::Remark { text } if !quiet => bar.aside(|| tell(&message::one_line(&text))),
            event => bar.on(event),
        };
        let read = BulkRead::new(roots.iter().cloned())
            .filter(self.filter()?)
            .follow_roots(self.follows_roots())
            .cancel(self.cancel.clone())
            .metadata(MetadataSource::Auto)
            .force_dirty(self.common.selection.force_dirty)
            .lost(self.common.selection.lost)
            .observer(observer)
            .writes_to(["/dev/stdout", "/dev/stderr"]);
        let read = self.common.selection.logdev.iter().fold(read, BulkRead::logdev);
        let read = self.common.selection.rtdev.iter().fold(read, BulkRead::rtdev);
        Ok(with_settings(read, self.settings().clone()))
    }

    fn filter(&self) -> Result<Filter, Failure> {
        use std::os::unix::ffi::OsStrExt;
        let mut filter = Filter::new();
        let selection = &self.common.selection;
        selection.exclude.iter().for_each(|pattern| filter.exclude(pattern.as_bytes()));
        for file in &selection.exclude_from {
            let text = input(file).map_err(|error| Failure::io(file, "read patterns", &error))?;
            filter.exclude_lines(&text);
        }
        Ok(filter)
    }

    /// Reads, and gives each item to `each`, which returns false to stop.
    pub(crate) fn run(
        &self,
        read: BulkRead,
        mut each: impl FnMut(Result<SweptFile, FileError>) -> bool,
    ) -> Result<Summary, Failure> {
        if self.common.output.show_plan {
            return self.run_planned(read.plan()?, each);
        }
        Ok(read.run(|item| {
            self.bar.deliver(&item);
            each(item)
        })?)
    }

    /// Shows the plan when that was asked for, then reads as [`Session::run`] does.
    pub(crate) fn run_planned(
        &self,
        sweep: Sweep,
        mut each: impl FnMut(Result<SweptFile, FileError>) -> bool,
    ) -> Result<Summary, Failure> {
        self.show_plan(&sweep);
        let mut files = sweep.run()?;
        for item in files.by_ref() {
            self.bar.deliver(&item);
            if !each(item) {
                break;
            }
        }
        Ok(files.summary())
    }

    /// As [`Session::run`], on all cores.
    pub(crate) fn run_parallel(
        &self,
        read: BulkRead,
        each: impl Fn(Result<SweptFile, FileError>) -> bool + Send + Sync,
    ) -> Result<Summary, Failure> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let each = |item| {
            self.bar.deliver(&item);
            each(item)
        };
        if !self.common.output.show_plan {
            return Ok(read.run_parallel(threads, each)?);
        }
        let sweep = read.plan()?;
        self.show_plan(&sweep);
        Ok(sweep.run()?.run_parallel(threads, each))
    }

    fn show_plan(&self, sweep: &Sweep) {
        if self.common.output.show_plan {
            let plan = forecast::short(sweep);
            self.bar.aside(|| {
                let _ = io::stderr().lock().write_all(plan.as_bytes());
            });
        }
    }

    /// Takes the bar away, writes the JSON summary, gives the exit code.
    pub(crate) fn finish(
        &self,
        command: &'static str,
        summary: &Summary,
        details: impl Serialize,
    ) -> Result<u8, Failure> {
        self.bar.finish();
        if self.is_interrupted() {
            self.tell("interrupted");
        }
        self.tell_of_doubts(summary);
        let errors = self.errors.load(Ordering::Relaxed);
        if self.is_json() {
            let seconds = self.started.elapsed().as_secs_f64();
            let report = Report::new(command, summary, errors, seconds, details);
            match self.stdout {
                StandardOutput::Data => report.write_json(&mut io::stderr().lock()),
                StandardOutput::Summary => report.write_json(&mut io::stdout().lock()),
            }
            .map_err(|error| self.output(&error))?;
        }
        Ok(self.exit_code())
    }

    /// Warns of files that are not what they seem to be.
    pub(crate) fn tell_of_doubts(&self, summary: &Summary) {
        let files = |count: u64| if count == 1 { "1 file comes".to_owned() } else { format!("{count} files come") };
        if summary.dirty_files > 0 && !self.is_quiet() {
            let what = "from a file system that was not closed; what was written last may be missing or half there";
            self.tell(&format!("{} {what}", files(summary.dirty_files)));
        }
        if summary.encrypted_files > 0 && !self.is_quiet() {
            self.tell(&format!("{} encrypted, as the disk has the content", files(summary.encrypted_files)));
        }
        if summary.unknown_reparse_points > 0 && !self.is_quiet() {
            let what = match summary.unknown_reparse_points {
                1 => "1 file needs a driver of Windows, and is missing; in its place is a link that names the driver's tag".to_owned(),
                many => format!("{many} files need drivers of Windows, and are missing; in their places are links that name the drivers' tags"),
            };
            self.tell(&what);
        }
    }

    /// How it went so far.
    pub(crate) fn exit_code(&self) -> u8 {
        let (roots, not_inside) = (self.roots.load(Ordering::Relaxed), self.not_inside.load(Ordering::Relaxed));
        if not_inside > 0 && not_inside >= roots && !self.is_interrupted() {
            return report::CANNOT_RUN;
        }
        report::exit_code(self.is_interrupted(), self.errors.load(Ordering::Relaxed))
    }

    /// Writing to standard output failed.
    pub(crate) fn output(&self, error: &io::Error) -> Failure {
        Failure::output(error, self.exit_code())
    }
}

/// All of a named file; `-` is standard input.
pub(crate) fn input(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return fs::read(file);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}

fn tell(message: &str) {
    let _ = writeln!(io::stderr().lock(), "onesweep: {message}");
}

/// Why a named path has nothing to read, if it has not.
fn unread(path: &Path, follow: bool) -> Option<String> {
    let kind = named::look(path, follow).ok()?.file_type();
    let why = match kind {
        EntryType::Symlink if named::look(path, true).is_ok() => "a symbolic link, not followed; use -H",
        EntryType::Symlink => "a symbolic link to nothing",
        _ => return named::special(kind).map(|what| format!("{}: {what}, not read", message::path_text(path))),
    };
    Some(format!("{}: {why}", message::path_text(path)))
}

/// The first signal ends the sweep in good order. The second ends the process, which has no time then to drop anything; so
/// does a reader of the output that has stopped, since nothing else would.
fn listen(cancel: Cancel, interrupted: Arc<AtomicBool>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::told(format!("cannot listen to signals: {}", message::why(&error)));
    let mut signals = Signals::new(heeded_signals()).map_err(failed)?;
    let listener = move || {
        for _ in signals.forever() {
            if interrupted.swap(true, Ordering::SeqCst) {
                end_at_once();
            }
            cancel.cancel();
            let _ = thread::Builder::new().name("stall".into()).spawn(|| {
                stall::wait_for_stall();
                end_at_once();
            });
        }
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(listener)
        .map(drop)
        .map_err(|error| Failure::told(message::no_thread(&error)))
}

/// How long the end waits for the removal of files that are not complete. A share whose server is gone never answers.
const PATIENCE: Duration = Duration::from_secs(2);

fn end_at_once() -> ! {
    remove_temporaries();
    low_level::exit(report::INTERRUPTED.into())
}

fn remove_temporaries() {
    let (done, removed) = mpsc::channel();
    let remover = move || {
        temporary::remove_all();
        let _ = done.send(());
    };
    if thread::Builder::new().name("remover".into()).spawn(remover).is_ok() {
        let _ = removed.recv_timeout(PATIENCE);
    }
}

/// Signals that end a run. What was started with one ignored goes on: under nohup when the terminal goes, in the background
/// of a script at Ctrl-C.
pub(crate) fn heeded_signals() -> impl Iterator<Item = i32> {
    heeded_of([SIGINT, SIGTERM, SIGHUP])
}

/// Those of some signals that this process wasn't started with ignored.
pub(crate) fn heeded_of(signals: impl IntoIterator<Item = i32>) -> impl Iterator<Item = i32> {
    signals.into_iter().filter(|&signal| !was_ignored(signal))
}

fn with_settings(mut read: BulkRead, settings: Settings) -> BulkRead {
    macro_rules! set {
        ($($setting:ident => $method:ident($value:expr);)*) => {
            $(if let Some($setting) = settings.$setting { read = read.$method($value); })*
        };
    }
    set! {
        metadata => metadata(metadata);
        order => order(order);
        strategy => strategy(strategy);
        reassembly => reassembly(reassembly.0);
        threshold => reassembly(Reassembly::Threshold(threshold.0));
        budget => budget(budget.0);
        large => large(large.0);
        catalog_limit => catalog_limit(catalog_limit.0);
        device => device(device);
        snapshot => snapshot(snapshot);
        one_file_system => one_file_system(one_file_system);
        gitignore => gitignore(gitignore);
        bwlimit => bwlimit(bwlimit.0);
        idle => idle(idle);
        queue_depth => queue_depth(queue_depth.get());
        gap => gap(gap.0);
        max_request => max_request(max_request.0);
        disk => disk_model(disk.0);
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_paths_without_content_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let [link, file_link, dangling, file] =
            ["link", "file-link", "dangling", "file"].map(|name| dir.path().join(name));
        std::fs::write(&file, "x").unwrap();
        for (target, name) in [(dir.path(), &link), (&file, &file_link), (Path::new("gone"), &dangling)] {
            std::os::unix::fs::symlink(target, name).unwrap();
        }
        for (path, followed, told) in [
            (&link, false, Some("/link: a symbolic link, not followed; use -H")),
            (&file_link, false, Some("/file-link: a symbolic link, not followed; use -H")),
            (&dangling, false, Some("/dangling: a symbolic link to nothing")),
            (&link, true, None),
            (&file_link, true, None),
            (&file, false, None),
            (&dir.path().to_owned(), false, None),
            (&"/dev/null".into(), false, Some("/dev/null: a device, not read")),
        ] {
            let said = unread(path, followed);
            assert_eq!(said.is_some(), told.is_some(), "{path:?}");
            assert!(said.is_none_or(|said| said.ends_with(told.unwrap())), "{path:?}");
        }
    }

    #[test]
    fn one_named_path_that_is_there_is_enough() {
        let session = Session::start(Common::default(), StandardOutput::Summary).unwrap();
        let (gone, there) = (PathBuf::from("/nope/x"), PathBuf::from("/"));
        session.check_roots(None, &[gone.clone(), there]).unwrap();
        let failure = session.check_roots(None, &[gone.clone(), gone]).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        assert!(matches!(failure, Failure::Told(messages) if messages.len() == 2));
    }
}
