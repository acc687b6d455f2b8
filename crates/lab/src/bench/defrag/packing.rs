//! A program that moves files, run on an emulated disk until all that it wrote is there.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::age::image::PlainMount;
use crate::bench::measure::{count, mount_options, number, stats};
use crate::bench::pipe::{self, Ended};
use crate::bench::run::Setting;
use crate::bench::user::{self, NOBODY};
use crate::bench::work::Programs;
use crate::disk::trace::Entry;
use crate::emulate::{Emulation, MountSpec, Spec};
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

/// How files are moved before they are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packing {
    /// What tables call it.
    pub(super) name: &'static str,
    by: By,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    /// They stay where they are.
    Nobody,
    E4defrag,
    Ours {
        options: &'static [&'static str],
        /// By an ordinary user who owns the files.
        is_user: bool,
    },
}

const fn ours(name: &'static str, options: &'static [&'static str]) -> Packing {
    Packing { name, by: By::Ours { options, is_user: false } }
}

pub(super) const NONE: Packing = Packing { name: "as aged", by: By::Nobody };
pub(super) const E4DEFRAG: Packing = Packing { name: "e4defrag", by: By::E4defrag };
pub(super) const ROOT: Packing = ours("onesweep defrag", &[]);
pub(super) const USER: Packing =
    Packing { name: "onesweep defrag, not root", by: By::Ours { options: &[], is_user: true } };
pub(super) const REGION_64K: Packing = ours("onesweep defrag --region 64K", &["--region", "64K"]);
/// For disks whose free space is in pieces.
pub(super) const REGION_2M: Packing = ours("onesweep defrag --region 2M", &["--region", "2M"]);
/// On btrfs, which moves nothing else.
pub(super) const DEDUPE: Packing = ours("onesweep defrag --dedupe", &["--dedupe"]);
pub(super) const INODE: Packing = ours("onesweep defrag --order inode", &["--order", "inode"]);
pub(super) const BY_NAME: Packing = ours("onesweep defrag --order name", &["--order", "name"]);

/// What a run came to.
pub(super) struct Ran {
    pub(super) argv: Vec<String>,
    /// The program's words when it won't.
    pub(super) refused: Option<String>,
    /// What ours said of itself.
    pub(super) said: Value,
    pub(super) busy_ms: f64,
    pub(super) read_bytes: u64,
    pub(super) wall_s: f64,
    pub(super) trace: Vec<Entry>,
}

impl Packing {
    pub(super) fn moves(self) -> bool {
        self.by != By::Nobody
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self.by, By::Ours { .. })
    }

    fn is_by_user(self) -> bool {
        matches!(self.by, By::Ours { is_user: true, .. })
    }

    /// Has the image as it must be for whoever moves.
    pub(super) fn prepare(self, image: &Path, fs: &str) -> Result<(), String> {
        if !self.is_by_user() {
            return Ok(());
        }
        let scratch = Scratch::new("defrag-owner")?;
        let target = scratch.dir("tree")?;
        let mut mounted = PlainMount::writable(image, &target, fs, &mount_options(fs, true))?;
        let owner = format!("{NOBODY}:{NOBODY}");
        let owned = mount::run("chown", ["-R".as_ref(), owner.as_ref(), target.as_os_str()]);
        mounted.end()?;
        owned.map(drop)
    }

    fn argv(self, tree: &Path, programs: &Programs) -> Vec<String> {
        let tree = tree.display().to_string();
        match self.by {
            By::Nobody => Vec::new(),
            By::E4defrag => vec!["e4defrag".to_owned(), tree],
            By::Ours { options, is_user } => {
                let mut argv = if is_user { user::words() } else { Vec::new() };
                argv.extend([programs.onesweep.display().to_string(), "defrag".into(), "--json".into()]);
                argv.extend(options.iter().map(|&option| option.to_owned()));
                argv.push(tree);
                argv
            }
        }
    }

    /// Runs it on the image, which it changes, from cold. The image is whole again when this returns: nothing is mounted.
    pub(super) fn run(
        self,
        setting: &Setting,
        image: &Path,
        programs: &Programs,
        interrupt: &Interrupt,
    ) -> Result<Ran, String> {
        let scratch = Scratch::new("defrag")?;
        if self.is_by_user() {
            scratch.let_others_through()?;
        }
        let fs = setting.image.fs()?.mount_type();
        let (trace, target) = (scratch.file("trace"), scratch.dir("tree")?);
        let (model, bytes) = (setting.disk.emulated()?, fs::metadata(image).map_err(|error| error.to_string())?.len());
        let spec = Spec {
            image: image.to_owned(),
            dir: scratch.dir("disk")?,
            span: setting.disk.span.span(bytes, &model),
            model,
            real: setting.disk.real,
            trace: Some(trace.clone()),
            faults: Vec::new(),
            read_only: false,
        };
        let mount = MountSpec {
            target: target.clone(),
            fs: Some(fs.to_owned()),
            options: Some(mount_options(fs, true)),
            scheduler: Some(setting.disk.scheduler.clone()),
            ..MountSpec::default()
        };
        let mut emulation = Emulation::start(&spec, Some(&mount))?;
        let argv = self.argv(&target, programs);
        programs.find(&argv[0]).ok_or_else(|| format!("{} isn't installed", argv[0]))?;
        emulation.reset()?;
        let began_ms = number(&stats(&emulation)?, "now_ms");
        let ended = pipe::run(&argv, interrupt);
        // What waits in the journal is a part of the cost.
        for option in ["-f", "-u"] {
            mount::run("fsfreeze", [option.as_ref(), target.as_os_str()])?;
        }
        let books = stats(&emulation);
        let complaints = emulation.stop();
        if !complaints.is_empty() {
            return Err(complaints.join("\n"));
        }
        let (ended, books) = (ended?, books?);
        let until_ms = number(&books, "now_ms");
        let text = fs::read_to_string(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
        let ours = |entry: &Entry| entry.time_ms >= began_ms - 0.001 && entry.time_ms < until_ms;
        let refused = refusal(&argv, self.is_ours(), &ended)?;
        Ok(Ran {
            said: said(self.is_ours() && refused.is_none(), &ended)?,
            refused: refused.map(|words| words.replace(&*target.to_string_lossy(), "TREE")),
            busy_ms: number(&books, "busy_ms"),
            read_bytes: count(&books["reads"], "bytes"),
            wall_s: ended.wall_s,
            trace: text.lines().filter_map(Entry::parse).filter(ours).collect(),
            argv: plain(argv, &target, programs),
        })
    }
}

/// Places of the day say nothing.
fn plain(argv: Vec<String>, tree: &Path, programs: &Programs) -> Vec<String> {
    let plain = |arg: String| {
        let arg = arg.replace(&*tree.to_string_lossy(), "TREE");
        arg.replace(&*programs.onesweep.to_string_lossy(), "onesweep")
    };
    argv.into_iter().map(plain).collect()
}

/// What ours says when it won't; another failure is an error.
fn refusal(argv: &[String], is_ours: bool, ended: &Ended) -> Result<Option<String>, String> {
    match ended.code {
        0 => Ok(None),
        2 if is_ours => Ok(Some(ended.complaint.lines().last().unwrap_or_default().to_owned())),
        code => Err(format!("{} ended with {code}: {}", argv.join(" "), ended.complaint)),
    }
}

fn said(is_json: bool, ended: &Ended) -> Result<Value, String> {
    if !is_json {
        return Ok(Value::Null);
    }
    let said = serde_json::from_slice(&ended.output);
    let mut said: Value = said.map_err(|error| format!("the output of onesweep defrag: {error}"))?;
    // Where it was mounted is this machine's.
    if let Some(path) = said.get_mut("path") {
        *path = "TREE".into();
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> Programs {
        Programs { onesweep: "/bin/onesweep".into(), lab: "/bin/lab".into(), tools: "/tools".into() }
    }

    #[test]
    fn each_is_called_as_its_name_says() {
        let argv = |packing: Packing| packing.argv(Path::new("/mnt"), &programs()).join(" ");
        assert_eq!(argv(E4DEFRAG), "e4defrag /mnt");
        assert_eq!(argv(ROOT), "/bin/onesweep defrag --json /mnt");
        assert_eq!(argv(USER), "setpriv --reuid=65534 --regid=65534 --clear-groups /bin/onesweep defrag --json /mnt");
        for packing in [REGION_64K, REGION_2M, DEDUPE, INODE, BY_NAME] {
            let options = packing.name.strip_prefix("onesweep defrag ").unwrap();
            assert_eq!(argv(packing), format!("/bin/onesweep defrag --json {options} /mnt"));
        }
        let argv = vec!["/bin/onesweep".to_owned(), "defrag".to_owned(), "/mnt".to_owned()];
        assert_eq!(plain(argv, Path::new("/mnt"), &programs()), ["onesweep", "defrag", "TREE"]);
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_program_and_a_failure_is_an_error() {
        let ended = |code, complaint: &str| Ended {
            code,
            wall_s: 1.0,
            output: b"{\"moved_files\":3,\"path\":\"/tmp/x/tree\"}\n".to_vec(),
            complaint: complaint.into(),
        };
        let refused = refusal(&[], true, &ended(2, "a warning\nonesweep: no ext4")).unwrap();
        assert_eq!(refused.as_deref(), Some("onesweep: no ext4"));
        assert_eq!(refusal(&[], true, &ended(0, "a warning")).unwrap(), None);
        assert!(
            refusal(&["e4defrag".into()], false, &ended(2, "bad")).unwrap_err().contains("e4defrag ended with 2: bad")
        );
        assert!(refusal(&[], true, &ended(1, "bad")).is_err());
        let told = said(true, &ended(0, "")).unwrap();
        assert_eq!((&told["moved_files"], &told["path"]), (&3.into(), &"TREE".into()));
        assert_eq!(said(false, &ended(0, "")).unwrap(), Value::Null);
    }
}
