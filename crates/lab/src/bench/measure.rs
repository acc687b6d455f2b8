//! One run: the image on its disk, the program beside it, the books after it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::{Value, json};

use super::company::Companion;
use super::images::{self, Facts, Images};
use super::pipe::{self, Ended};
use super::results::{NOT_INSTALLED, Outcome};
use super::run::{Cache, Company, Run};
use super::share::{self, Content};
use super::user;
use super::viewed;
use super::work::{Places, Programs, Tool, Work};
use crate::age::image::{Fs, PlainMount};
use crate::bound::{self, Survey};
use crate::disk::trace::Entry;
use crate::emulate::{Emulation, MountSpec, Spec};
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

/// An unpacked image, and what is known of it.
pub(crate) struct Unpacked {
    pub(crate) image: PathBuf,
    pub(crate) facts: Facts,
    /// Where content lies; `None` where addresses aren't those of the device.
    pub(crate) content: Option<Content>,
    /// What a sweep without a limit would hold, by its plan.
    pub(crate) peak: u64,
    /// What bounds are computed from, once the first is: by the KiB of the largest file that counts.
    pub(crate) surveys: Surveys,
}

/// What is read of an image, by the KiB of the largest file that counts.
pub(crate) type Surveys = RefCell<HashMap<Option<u64>, Rc<Survey>>>;

/// What stands for the device until there is one.
const DEVICE: &str = "DEVICE";

/// Runs of which the whole way of the head is kept.
fn keeps_head(run: &Run) -> bool {
    let Run { work, round, .. } = run;
    let plain = work.options.is_empty() || work.options == ["--order", "first-extent"];
    *round == 0 && matches!(work.tool, Tool::GnuTar | Tool::Tar) && plain && work.budget.is_none()
}

/// Measures. What a program complains of is an outcome; an error is a fault of the lab.
pub(crate) fn measure(
    run: &Run,
    unpacked: &Unpacked,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Outcome, String> {
    interrupt.check()?;
    if run.work.is_bound() {
        return bounds(run, unpacked);
    }
    let scratch = Scratch::new("bench")?;
    let copies = Copies::new(&scratch)?;
    let (target, view) = (scratch.dir("tree")?, scratch.dir("view")?);
    if run.work.by_user {
        scratch.let_others_through()?;
        for dir in [&copies.dir, &view] {
            let owned = chown(dir, Some(user::NOBODY), Some(user::NOBODY));
            owned.map_err(|error| format!("{}: {error}", dir.display()))?;
        }
    }
    let fs = run.setting.image.fs()?;
    let without = run.work.most_kib.map(|kib| larger_than(kib, unpacked, fs, &scratch)).transpose()?;
    let places = Places {
        root: if run.work.unmounted { Path::new(DEVICE) } else { &target },
        image: &unpacked.image,
        copies: &copies.dir,
        view: &view,
        programs,
        without: without.as_deref(),
        peak: unpacked.peak,
        content_bytes: unpacked.facts.file_bytes,
    };
    let mut argv = run.work.argv(&places);
    let absent = [Some(&*argv[0]), run.work.needs()].into_iter().flatten().find(|name| programs.find(name).is_none());
    let missing = absent.map(|name| format!("{name} {NOT_INSTALLED}"));
    let Some(program) = programs.find(&argv[0]).filter(|_| missing.is_none()) else {
        return Ok(Outcome { missing, argv, ..Outcome::default() });
    };
    let named = std::mem::replace(&mut argv[0], program.display().to_string());
    let mut outcome = match run.setting.cache {
        _ if run.work.is_of_the_file() => of_the_file(run, &argv, interrupt)?,
        Cache::Cold => cold(run, unpacked, &scratch, &target, &argv, interrupt)?,
        Cache::Warm => warm(run, unpacked, &scratch, &places, &argv, interrupt)?,
    };
    argv[0] = named;
    // Places of the day say nothing.
    let plain = |arg: &String| {
        let arg = arg.replace(&*target.to_string_lossy(), "TREE");
        let arg = arg.replace(&*unpacked.image.to_string_lossy(), "IMAGE");
        let arg = arg.replace(&*copies.dir.to_string_lossy(), "COPIES");
        let arg = arg.replace(&*view.to_string_lossy(), "VIEW");
        let list = without.as_ref().map(|list| list.display().to_string());
        let arg = list.map_or(arg.clone(), |list| arg.replace(&list, "LARGE"));
        let arg = arg.replace(&*programs.onesweep.to_string_lossy(), "onesweep");
        arg.replace(&*programs.lab.to_string_lossy(), "onesweep-lab")
    };
    outcome.argv = argv.iter().map(plain).collect();
    outcome.missing = outcome.missing.as_ref().map(plain);
    Ok(outcome)
}

/// A list of the files of more than so many KiB.
fn larger_than(kib: u64, unpacked: &Unpacked, fs: Fs, scratch: &Scratch) -> Result<PathBuf, String> {
    let (target, list) = (scratch.dir("list-tree")?, scratch.file("list"));
    let mut mounted = PlainMount::read_only(&unpacked.image, &target, fs.mount_type(), "")?;
    let size = format!("+{}c", kib << 10);
    let root = target.display().to_string();
    let found = mount::run("find", [root.as_str(), "-type", "f", "-size", &size, "-printf", "%P\\n"]);
    mounted.end()?;
    fs::write(&list, found?.stdout).map_err(|error| format!("{}: {error}", list.display()))?;
    Ok(list)
}

/// Memory for copies: what is written there costs the measured disk nothing.
struct Copies {
    dir: PathBuf,
}

impl Copies {
    fn new(scratch: &Scratch) -> Result<Self, String> {
        let dir = scratch.dir("copies")?;
        mount::mount(Path::new("onesweep-lab"), &dir, Some("tmpfs"), None)?;
        Ok(Self { dir })
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Err(complaint) = mount::unmount(&self.dir) {
            eprintln!("onesweep-lab: {complaint}");
        }
    }
}

/// Options of the mount: nothing is written that nobody asked for, and copies of one image may be up at once.
pub(super) fn mount_options(fs: &str, writable: bool) -> String {
    let mut options = vec!["noatime"];
    options.extend((fs == "xfs").then_some("nouuid"));
    options.extend((fs == "ext4" && writable).then_some("noinit_itable"));
    options.join(",")
}

/// What mkfs leaves to root alone on ext4: programs fail that may not read all of a tree.
fn open_to_all(image: &Path, fs: Fs, scratch: &Scratch) -> Result<(), String> {
    let target = scratch.dir("opened")?;
    let mut mounted = PlainMount::writable(image, &target, fs.mount_type(), &mount_options(fs.mount_type(), true))?;
    let opened = mount::run("chmod", ["755".as_ref(), target.join("lost+found").as_os_str()]);
    mounted.end()?;
    opened.map(drop)
}

/// A copy of the image, where the image itself won't do: something may be written, or all of it is to be read by others than root.
fn copied(run: &Run, unpacked: &Unpacked, writable: bool, scratch: &Scratch) -> Result<Option<images::Copy>, String> {
    let copy = if writable || run.work.by_user { Some(Images::copy(&unpacked.image)?) } else { None };
    if let Some(copy) = copy.as_ref().filter(|_| run.work.by_user) {
        open_to_all(&copy.0, run.setting.image.fs()?, scratch)?;
    }
    Ok(copy)
}

/// From an emulated disk that was mounted just now: a fresh mount has nothing in the page cache. Or from the device of such
/// a disk, which nobody has read before.
fn cold(
    run: &Run,
    unpacked: &Unpacked,
    scratch: &Scratch,
    target: &Path,
    argv: &[String],
    interrupt: &Interrupt,
) -> Result<Outcome, String> {
    let setting = &run.setting;
    let writable = setting.company == Company::Writer || run.work.writes();
    let copy = copied(run, unpacked, writable, scratch)?;
    let trace = scratch.file("trace");
    let model = setting.disk.emulated()?;
    let spec = Spec {
        image: copy.as_ref().map_or_else(|| unpacked.image.clone(), |copy| copy.0.clone()),
        dir: scratch.dir("disk")?,
        span: setting.disk.span.span(unpacked.facts.image_bytes, &model),
        model,
        real: setting.disk.real,
        trace: Some(trace.clone()),
        faults: Vec::new(),
        read_only: !writable,
    };
    let mount = MountSpec {
        target: target.to_owned(),
        fs: Some(setting.image.fs()?.mount_type().to_owned()),
        options: Some(mount_options(&setting.image.fs, writable)),
        scheduler: Some(setting.disk.scheduler.clone()),
        read_ahead_kb: setting.disk.read_ahead_kib,
        ..MountSpec::default()
    };
    let mut emulation = Emulation::start(&spec, (!run.work.unmounted).then_some(&mount))?;
    let mut argv = argv.to_vec();
    if run.work.unmounted {
        let device = emulation.attach(&spec, &mount)?.device.display().to_string();
        argv.iter_mut().filter(|arg| *arg == DEVICE).for_each(|arg| arg.clone_from(&device));
    }
    emulation.reset()?;
    let began_ms = number(&stats(&emulation)?, "now_ms");
    let companion = match setting.company {
        Company::Alone => None,
        Company::Reader => {
            let device = mount::source_of(target).ok_or("the mount has no device")?;
            Some(Companion::reader(emulation.stats_path(), &device, unpacked.facts.image_bytes)?)
        }
        Company::Writer => Some(Companion::writer(emulation.stats_path(), target)?),
    };
    let ended = pipe::run(&argv, interrupt);
    let books = stats(&emulation);
    let busy_ms = books.as_ref().map_or(0.0, |books| number(books, "busy_ms"));
    let acted = companion.map(|companion| companion.end(busy_ms));
    let complaints = emulation.stop();
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    let (ended, books, acted) = (ended?, books?, acted.transpose()?);
    let text = fs::read_to_string(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
    let until_ms = number(&books, "now_ms");
    let entries: Vec<Entry> = text.lines().filter_map(Entry::parse).collect();
    // The trace is rounded to three digits.
    let ours = |entry: &&Entry| entry.time_ms >= began_ms - 0.001 && entry.time_ms < until_ms;
    let data = unpacked.content.as_ref().map(|content| share::of_content(entries.iter().filter(ours), content));
    let mut detail = detail(&run.work, &ended);
    if let (Some(acted), Value::Object(detail)) = (acted, &mut detail) {
        detail.insert("companion".into(), acted.into());
    }
    Ok(Outcome {
        missing: failure(run, &ended),
        busy_ms,
        data_ms: data.as_ref().map(|data| data.ms),
        data_requests: data.map_or(0, |data| data.requests),
        requests: count(&books["reads"], "requests"),
        bytes: count(&books["reads"], "bytes"),
        writes: count(&books["writes"], "requests"),
        seeks: count(&books, "seeks"),
        wall_s: ended.wall_s,
        queue: share::queue(entries.iter().filter(ours)),
        head: if keeps_head(run) { share::head(entries.iter().filter(ours)) } else { Vec::new() },
        detail,
        ..Outcome::default()
    })
}

/// With everything cached, on a plain mount. What is measured may leave the cache as it was, so another brings the files in.
fn warm(
    run: &Run,
    unpacked: &Unpacked,
    scratch: &Scratch,
    places: &Places<'_>,
    argv: &[String],
    interrupt: &Interrupt,
) -> Result<Outcome, String> {
    let (fs, target) = (run.setting.image.fs()?, places.root);
    let writable = run.work.writes();
    let options = mount_options(&run.setting.image.fs, writable);
    let copy = copied(run, unpacked, writable, scratch)?;
    let image = copy.as_ref().map_or(&unpacked.image, |copy| &copy.0);
    let mut mounted = match writable {
        true => PlainMount::writable(image, target, fs.mount_type(), &options)?,
        false => PlainMount::read_only(image, target, fs.mount_type(), &options)?,
    };
    let program = argv.first().map_or(Path::new(""), Path::new);
    let by_whom = if run.work.by_user { user::words() } else { Vec::new() };
    let ended = bring_in(target, program, interrupt).and_then(|()| match run.work.viewed {
        // What is removed can't be removed again.
        Some(_) if run.work.tool != Tool::Remove => {
            viewed::run_twice(argv, &by_whom, places.view, places.copies, interrupt)
                .map(|(ended, again_s)| (ended, Some(again_s)))
        }
        None if run.work.twice => {
            viewed::twice(argv, places.copies, interrupt).map(|(ended, again_s)| (ended, Some(again_s)))
        }
        _ => pipe::run(argv, interrupt).map(|ended| (ended, None)),
    });
    mounted.end()?;
    let (ended, again_s) = ended?;
    let (missing, detail) = (failure(run, &ended), detail(&run.work, &ended));
    Ok(Outcome { missing, wall_s: ended.wall_s, again_s, detail, ..Outcome::default() })
}

/// Has all files of a tree cached, and the program, where it is named by its path: there are kernels that take pages which nobody has used
/// for a minute, of programs, too.
fn bring_in(tree: &Path, program: &Path, interrupt: &Interrupt) -> Result<(), String> {
    let tar = ["tar", "-cf", "-", "-C"].into_iter().map(String::from).chain([tree.display().to_string(), ".".into()]);
    pipe::run(&tar.collect::<Vec<_>>(), interrupt)?;
    if let Ok(mut program) = File::open(program) {
        io::copy(&mut program, &mut io::sink()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// From the image's file. No disk's time is measured.
fn of_the_file(run: &Run, argv: &[String], interrupt: &Interrupt) -> Result<Outcome, String> {
    let ended = pipe::run(argv, interrupt)?;
    let (missing, detail) = (failure(run, &ended), detail(&run.work, &ended));
    Ok(Outcome { missing, wall_s: ended.wall_s, detail, ..Outcome::default() })
}

fn bounds(run: &Run, unpacked: &Unpacked) -> Result<Outcome, String> {
    let model = run.setting.disk.emulated()?;
    let span = run.setting.disk.span.span(unpacked.facts.image_bytes, &model);
    let fs = run.setting.image.fs()?.mount_type().to_owned();
    let most_kib = run.work.most_kib;
    let known = unpacked.surveys.borrow().get(&most_kib).cloned();
    let survey = match known {
        Some(survey) => survey,
        None => {
            let (image, model) = (unpacked.image.clone(), model.clone());
            let survey = Rc::new(bound::survey(&bound::Subject { image, fs: Some(fs), model, span, most_kib })?);
            unpacked.surveys.borrow_mut().insert(most_kib, Rc::clone(&survey));
            survey
        }
    };
    let detail = serde_json::to_value(survey.bound(&model, span)).map_err(|error| error.to_string())?;
    let of_metadata = run.work.tool == Tool::MetadataBound;
    let sweep = &detail[if of_metadata { "metadata_sweep" } else { "sweep" }];
    let (busy_ms, seeks, requests) = (number(sweep, "ms"), count(sweep, "seeks"), count(sweep, "runs"));
    let data_bytes = if of_metadata { 0 } else { count(&detail, "data_bytes") };
    let bytes = data_bytes + count(&detail, "metadata_bytes");
    Ok(Outcome { busy_ms, seeks, bytes, requests, detail, ..Outcome::default() })
}

pub(super) fn stats(emulation: &Emulation) -> Result<Value, String> {
    serde_json::from_str(&emulation.stats()?).map_err(|error| error.to_string())
}

pub(super) fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_default()
}

pub(super) fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

/// What a program of ours said of itself: the plan on its output, a summary as the last line of its complaints.
fn detail(work: &Work, ended: &Ended) -> Value {
    let said = match work.tool {
        Tool::Plan | Tool::Scan => serde_json::from_slice(&ended.output).ok(),
        Tool::Memory => {
            let peak: Option<Value> = ended.complaint.lines().last().and_then(|line| serde_json::from_str(line).ok());
            let plan: Option<Value> = serde_json::from_slice(&ended.output).ok();
            peak.zip(plan).map(|(peak, plan)| memory(count(&peak, "peak_kib"), &plan["catalog"]))
        }
        Tool::Tar | Tool::Sum => ended.complaint.lines().last().and_then(|line| serde_json::from_str(line).ok()),
        _ => None,
    };
    said.unwrap_or_else(|| Value::Object(serde_json::Map::new()))
}

/// Memory in all, and of the catalogue, for each entry. A name costs its bytes, a fragment 16.
fn memory(peak_kib: u64, catalog: &Value) -> Value {
    let entries = count(catalog, "entries").max(1) as f64;
    let apart = count(catalog, "name_bytes") + 16 * count(catalog, "fragments");
    let entry_bytes = count(catalog, "bytes").saturating_sub(apart) as f64 / entries;
    let peak_bytes = (peak_kib << 10) as f64 / entries;
    json!({"peak_kib": peak_kib, "peak_bytes": peak_bytes, "entry_bytes": entry_bytes, "catalog": catalog})
}

/// Why a run doesn't count. rmlint ends with 1 when it found something, an archiver when files changed under it.
fn failure(run: &Run, ended: &Ended) -> Option<String> {
    let may_say_1 = run.work.tool == Tool::Rmlint || run.setting.company == Company::Writer;
    let fine = ended.code == 0 || (may_say_1 && ended.code == 1);
    let why = ended.complaint.lines().next().unwrap_or_default();
    (!fine).then(|| format!("ended with {}: {why}", ended.code))
}

/// Where content lies in an image, and what a sweep without a limit would hold: as far as a run needs it.
pub(crate) fn look_at(
    image: &Path,
    fs: &str,
    runs: &[Run],
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<(Option<Content>, u64), String> {
    let needs_places = runs.iter().any(|run| run.work.reads_content());
    let needs_peak = runs.iter().any(|run| run.work.budget.is_some());
    if !needs_places && !needs_peak {
        return Ok((None, 0));
    }
    let scratch = Scratch::new("bench-look")?;
    let target = scratch.dir("tree")?;
    let mut mounted = PlainMount::read_only(image, &target, fs, &mount_options(fs, false))?;
    let places = if needs_places { bound::places(&target) } else { Ok(None) };
    if !needs_peak {
        mounted.end()?;
        return Ok((places?.map(Content::new), 0));
    }
    let root = target.display().to_string();
    let plan = ["plan", "--json", "--order", "fragment", "--budget", "1T"].map(String::from);
    let onesweep = programs.onesweep.display().to_string();
    let planned = pipe::run(&[&[onesweep], &plan[..], &[root]].concat(), interrupt);
    mounted.end()?;
    let content = places?.map(Content::new);
    Ok((content, peak(&planned?)?))
}

/// What the sweep that a plan chose would hold. Budgets are parts of it, so there must be one.
fn peak(planned: &Ended) -> Result<u64, String> {
    if planned.code != 0 {
        let why = planned.complaint.lines().next().unwrap_or_default();
        return Err(format!("`onesweep plan` ended with {}: {why}", planned.code));
    }
    let plan: Value =
        serde_json::from_slice(&planned.output).map_err(|error| format!("what `onesweep plan` printed: {error}"))?;
    let mut plans = plan["plans"].as_array().into_iter().flatten();
    let chosen = plans.find(|plan| plan["chosen"] == true).ok_or("`onesweep plan` chose no plan")?;
    chosen["peak_memory"].as_u64().ok_or_else(|| "the plan tells no peak_memory".into())
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::AsFd as _};

    use onesweep_sys::cache;

    use super::*;
    use crate::age::image::sha256;
    use crate::bench::results::tests::setting;

    fn ended(code: i32, output: &str, complaint: &str) -> Ended {
        Ended { code, wall_s: 1.0, output: output.into(), complaint: complaint.to_owned() }
    }

    #[test]
    fn what_a_program_said_is_kept() {
        let sum = ended(0, "digest  name", "one warning\n{\"files\":3}");
        assert_eq!(detail(&Work::of(Tool::Sum), &sum)["files"], 3);
        let plan = ended(0, "{\"model\":\"ssd\"}\n", "");
        assert_eq!(detail(&Work::of(Tool::Plan), &plan)["model"], "ssd");
        assert!(detail(&Work::of(Tool::GnuTar), &sum).as_object().unwrap().is_empty());
    }

    /// A budget of nothing would be measured as one of a mebibyte.
    #[test]
    fn a_plan_without_a_peak_is_an_error() {
        let plan = |text: &str| peak(&ended(0, text, ""));
        let chosen = r#"{"plans": [{"chosen": false, "peak_memory": 1}, {"chosen": true, "peak_memory": 90}]}"#;
        assert_eq!(plan(chosen), Ok(90));
        assert!(plan(&chosen.replace("true", "false")).unwrap_err().contains("chose no plan"));
        assert!(plan(&chosen.replace("peak_memory", "memory")).unwrap_err().contains("no peak_memory"));
        assert!(plan("").unwrap_err().contains("EOF"));
        let failed = peak(&ended(2, "", "onesweep: no such tree\nmore")).unwrap_err();
        assert_eq!(failed, "`onesweep plan` ended with 2: onesweep: no such tree");
    }

    #[test]
    fn the_memory_of_a_plan_stands_beside_its_catalogue() {
        let catalog = r#"{"catalog":{"entries":10,"name_bytes":80,"fragments":5,"bytes":1280}}"#;
        let found = detail(&Work::of(Tool::Memory), &ended(0, catalog, "a warning\n{\"peak_kib\":2048}"));
        assert_eq!((&found["peak_kib"], &found["entry_bytes"]), (&json!(2048), &json!(112.0)));
        assert_eq!(found["peak_bytes"], json!((2 << 20) as f64 / 10.0));
        let failed = ended(2, "", "onesweep: no\n{\"peak_kib\":2048}");
        assert!(detail(&Work::of(Tool::Memory), &failed).as_object().unwrap().is_empty());
    }

    #[test]
    fn a_failed_program_has_no_figure() {
        let [tar, rmlint] = [Tool::GnuTar, Tool::Rmlint].map(|tool| setting().run(Work::of(tool)));
        let disturbed = setting().beside(Company::Writer).run(Work::of(Tool::GnuTar));
        assert_eq!(failure(&tar, &ended(0, "", "warning")), None);
        assert_eq!(failure(&rmlint, &ended(1, "", "")), None);
        assert_eq!(failure(&disturbed, &ended(1, "", "tar: ./a: file changed as we read it")), None);
        let failed = failure(&tar, &ended(1, "", "tar: bad\nmore")).unwrap();
        assert_eq!(failed, "ended with 1: tar: bad");
    }

    #[test]
    fn the_way_of_the_head_is_kept_once() {
        let kept = |work: Work| setting().run(work).rounds(2).iter().map(keeps_head).collect::<Vec<_>>();
        assert_eq!(kept(Work::of(Tool::Tar)), [true, false]);
        assert_eq!(kept(Work::with(Tool::Tar, &["--order", "first-extent"])), [true, false]);
        assert_eq!(kept(Work::with(Tool::Tar, &["--order", "inode"])), [false, false]);
        assert_eq!(kept(Work::of(Tool::Bound)), [false, false]);
    }

    /// A run that changes the image would make all later ones runs on another.
    #[test]
    fn a_warm_run_changes_nothing_of_the_image() {
        if onesweep_sys::user::effective_uid() != 0 || !Path::new("/dev/loop-control").exists() {
            let _ = writeln!(std::io::stderr(), "skipped: a_warm_run_changes_nothing_of_the_image: no mounts here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        mount::run("mkfs.ext4", ["-q", "-F", image.to_str().unwrap()]).unwrap();
        let before = sha256(&image, &Interrupt::default()).unwrap();
        let unpacked = Unpacked { image, facts: Facts::default(), content: None, peak: 0, surveys: Surveys::default() };
        let programs = Programs { onesweep: "/none".into(), lab: "/none".into(), tools: "/none".into() };
        for tool in [Tool::GnuTar, Tool::Remove] {
            let run = setting().warm().run(Work::of(tool));
            let outcome = measure(&run, &unpacked, &programs, &Interrupt::default()).unwrap();
            assert_eq!(outcome.missing, None);
            assert_eq!(sha256(&unpacked.image, &Interrupt::default()).unwrap(), before);
        }
    }

    #[test]
    fn files_are_cached_before_a_warm_run() {
        // Not in /tmp, which may be a tmpfs, whose pages can't be dropped.
        let [dir, elsewhere] = [(); 2].map(|()| tempfile::tempdir_in("/var/tmp").unwrap());
        let program = elsewhere.path().join("program");
        let files = [dir.path().join("file"), program.clone()].map(|path| {
            fs::write(&path, vec![1; 1 << 20]).unwrap();
            let file = File::open(&path).unwrap();
            file.sync_all().unwrap();
            file
        });
        let whole = 0..1 << 20;
        let uncached = || files.each_ref().map(|file| cache::uncached_runs(file.as_fd(), &whole).unwrap());
        for file in &files {
            cache::drop_cached(file.as_fd(), 0, 0).unwrap();
        }
        assert_eq!(uncached(), [[whole.clone()], [whole.clone()]]);
        bring_in(dir.path(), &program, &Interrupt::default()).unwrap();
        assert_eq!(uncached().concat(), []);
    }

    #[test]
    fn mounts_write_nothing_by_themselves() {
        assert_eq!(mount_options("xfs", false), "noatime,nouuid");
        assert_eq!(mount_options("ext4", true), "noatime,noinit_itable");
        assert_eq!(mount_options("btrfs", false), "noatime");
    }
}
