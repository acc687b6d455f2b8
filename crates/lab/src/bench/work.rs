//! The programs: how each is called, and what a table calls it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::user;

/// A program that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tool {
    GnuTar,
    GnuTarByInode,
    /// As data sets are packed by hand: in the order of the names, so that the files of a sample are neighbours.
    GnuTarByName,
    BsdTar,
    Cp,
    FindCat,
    Rsync,
    /// `grep -r` for what no file has.
    Grep,
    Sha256,
    Zip,
    Restic,
    Borg,
    /// By a single signature, so that reading is what takes its time.
    Clamscan,
    /// As a second back-up does: it looks at all, and reads one file in a hundred.
    Picked,
    Du,
    Ls,
    /// Of all that is in the tree, until it is written to the disk.
    Remove,
    Fclones,
    Rmlint,
    /// Directory order, with 500 files in flight: a part of this program.
    InFlight,
    Tar,
    Sum,
    Copy,
    /// Tar shards for training runs, written into memory.
    Shard,
    /// What `onesweep plan` predicts: nothing of the content is read.
    Plan,
    /// Paths, by what the tables of the file system say.
    Find,
    /// `find -size +0`: every inode is looked at, no content.
    GnuFind,
    /// How many inodes a second one core takes from tables in memory: a part of this program.
    Scan,
    /// `onesweep plan` of the image's file, for the memory that it takes.
    Memory,
    /// One rising pass over the sectors that finding the files and their places reads: computed, not run.
    MetadataBound,
    /// One perfect sweep, and streaming: computed, not run.
    Bound,
}

/// A part of what the plan says that a sweep without a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) of: u64,
    pub(crate) parts: u64,
}

impl Share {
    pub(crate) fn bytes(self, peak: u64) -> u64 {
        (peak * self.of / self.parts).max(1 << 20)
    }
}

/// How a budget is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Threshold {
    /// As the program chooses.
    Auto,
    Deferred,
    FirstFit,
    /// That many sixteenths of the budget.
    Sixteenths(u64),
    OnDemand,
}

/// A budget that depends on the image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Budget {
    pub(crate) share: Share,
    pub(crate) threshold: Threshold,
}

impl Budget {
    fn args(self, peak: u64) -> Vec<String> {
        let bytes = self.share.bytes(peak);
        let mut args = vec!["--budget".to_owned(), bytes.to_string()];
        args.extend(match self.threshold {
            Threshold::Auto => Vec::new(),
            Threshold::Deferred => vec!["--reassembly".to_owned(), "deferred".to_owned()],
            Threshold::FirstFit => vec!["--reassembly".to_owned(), "first-fit".to_owned()],
            Threshold::OnDemand => vec!["--reassembly".to_owned(), "on-demand".to_owned()],
            Threshold::Sixteenths(part) => vec!["--threshold".to_owned(), (bytes * part / 16).to_string()],
        });
        args
    }
}

/// A program with what is asked of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) tool: Tool,
    /// Options of ours.
    pub(crate) options: Vec<String>,
    pub(crate) budget: Option<Budget>,
    /// Larger files are left out, by a list of their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) most_kib: Option<u64>,
    /// The disk's device is read, and nothing is mounted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unmounted: bool,
    /// Under `onesweep run`, with memory for one of so many parts of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ahead: Option<u64>,
    /// Through `onesweep view`, with as much memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) viewed: Option<u64>,
    /// Through a view that may be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) read_write: bool,
    /// By FUSE, where the kernel could show it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fuse: bool,
    /// By an ordinary user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_user: bool,
    /// Once more behind that, in the same state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) twice: bool,
}

/// Where things are when a program is called.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    /// The mounted tree, or the device with nothing mounted.
    pub(crate) root: &'a Path,
    /// The file of the image.
    pub(crate) image: &'a Path,
    /// An empty directory for copies.
    pub(crate) copies: &'a Path,
    /// An empty directory for a view of the tree.
    pub(crate) view: &'a Path,
    pub(crate) programs: &'a Programs,
    /// The names of files that are left out.
    pub(crate) without: Option<&'a Path>,
    /// What a sweep without a limit would hold.
    pub(crate) peak: u64,
    /// What is in the files.
    pub(crate) content_bytes: u64,
}

/// Where programs are that a search along `PATH` wouldn't find.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) onesweep: PathBuf,
    pub(crate) lab: PathBuf,
    /// A directory that is looked into before `PATH`.
    pub(crate) tools: PathBuf,
}

impl Programs {
    /// The path of a program, `None` when it isn't installed.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        if Path::new(name).is_absolute() {
            return Path::new(name).is_file().then(|| name.into());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(self.tools.clone()).chain(std::env::split_paths(&path));
        dirs.map(|dir| dir.join(name)).find(|program| program.is_file())
    }
}

/// What `onesweep tar` writes of a file, and no more.
const GNU_TAR: [&str; 3] = ["tar", "--format=posix", "--pax-option=delete=atime,delete=ctime"];

impl Work {
    pub(crate) fn of(tool: Tool) -> Self {
        Self {
            tool,
            options: Vec::new(),
            budget: None,
            most_kib: None,
            unmounted: false,
            ahead: None,
            viewed: None,
            read_write: false,
            fuse: false,
            by_user: false,
            twice: false,
        }
    }

    pub(crate) fn with(tool: Tool, options: &[&str]) -> Self {
        Self { options: options.iter().map(|&option| option.to_owned()).collect(), ..Self::of(tool) }
    }

    pub(crate) fn budget(self, budget: Budget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// The same without files of more KiB.
    pub(crate) fn at_most(self, kib: u64) -> Self {
        Self { most_kib: Some(kib), ..self }
    }

    /// The same from the disk's device, with nothing mounted.
    pub(crate) fn unmounted(self) -> Self {
        Self { unmounted: true, ..self }
    }

    /// The same under `onesweep run`, with memory for one of so many parts of the content; for 1, with what there is to spare.
    pub(crate) fn ahead(self, parts: u64) -> Self {
        Self { ahead: Some(parts), ..self }
    }

    /// The same through `onesweep view`, with memory as of [`Work::ahead`].
    pub(crate) fn viewed(self, parts: u64) -> Self {
        Self { viewed: Some(parts), ..self }
    }

    /// The same through a view that may be written.
    pub(crate) fn read_write(self) -> Self {
        Self { read_write: true, ..self }
    }

    /// The same by FUSE.
    pub(crate) fn by_fuse(self) -> Self {
        Self { fuse: true, ..self }
    }

    /// The same by an ordinary user.
    pub(crate) fn by_user(self) -> Self {
        Self { by_user: true, ..self }
    }

    /// The same, and once more behind it. Who goes through a view that stands does so anyway.
    pub(crate) fn twice(self) -> Self {
        Self { twice: true, ..self }
    }

    /// Whether it may write to the image, so that a copy has to be mounted.
    pub(crate) fn writes(&self) -> bool {
        self.read_write || self.tool == Tool::Remove
    }

    /// A program that has to be installed, where another one starts it.
    pub(crate) fn needs(&self) -> Option<&'static str> {
        match self.tool {
            Tool::Restic => Some("restic"),
            Tool::Borg => Some("borg"),
            Tool::Clamscan => Some("clamscan"),
            Tool::Zip => Some("zip"),
            Tool::Rsync => Some("rsync"),
            _ => None,
        }
    }

    /// Whether it is a program of ours, whose figures change with the code.
    pub(crate) fn is_ours(&self) -> bool {
        use Tool::{Copy, Find, Memory, Plan, Scan, Shard, Sum, Tar};
        self.ahead.is_some()
            || self.viewed.is_some()
            || matches!(self.tool, Tar | Sum | Copy | Shard | Plan | Find | Scan | Memory)
    }

    /// Whether it is computed from what other programs made the disk do.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.tool, Tool::Bound | Tool::MetadataBound)
    }

    /// Whether it takes the image's file, without a disk.
    pub(crate) fn is_of_the_file(&self) -> bool {
        matches!(self.tool, Tool::Scan | Tool::Memory)
    }

    /// Whether it reads what is in files.
    pub(crate) fn reads_content(&self) -> bool {
        use Tool::{Du, Find, GnuFind, Ls, Plan, Remove};
        !matches!(self.tool, Plan | Find | GnuFind | Du | Ls | Remove) && !self.is_bound() && !self.is_of_the_file()
    }

    /// What tables call it.
    pub(crate) fn name(&self) -> String {
        let name = match self.tool {
            Tool::GnuTar => "GNU tar",
            Tool::GnuTarByInode => "GNU tar --sort=inode",
            Tool::GnuTarByName => "GNU tar --sort=name",
            Tool::BsdTar => "bsdtar",
            Tool::Cp => "cp -a",
            Tool::FindCat => "find -exec cat",
            Tool::Rsync => "rsync -a",
            Tool::Grep => "grep -r",
            Tool::Sha256 => "find -exec sha256sum",
            Tool::Zip => "zip -r",
            Tool::Restic => "restic backup",
            Tool::Borg => "borg create",
            Tool::Clamscan => "clamscan -r",
            Tool::Picked => "a second back-up",
            Tool::Du => "du -s",
            Tool::Ls => "ls -lR",
            Tool::Remove => "rm -r",
            Tool::Fclones => "fclones --transform cat",
            Tool::Rmlint => "rmlint",
            Tool::InFlight => "directory order, 500 in flight",
            Tool::Tar => "onesweep tar",
            Tool::Sum => "onesweep sum",
            Tool::Copy => "onesweep copy",
            Tool::Shard => "onesweep shard",
            Tool::Plan => "onesweep plan",
            Tool::Find => "onesweep find",
            Tool::GnuFind => "find -size +0",
            Tool::Scan => "tables from memory",
            Tool::Memory => "onesweep plan IMAGE",
            Tool::Bound => "one perfect sweep",
            Tool::MetadataBound => "one pass over the metadata",
        };
        let mut name = name.to_owned();
        for option in &self.options {
            name += " ";
            name += option;
        }
        if let Some(Budget { share, threshold }) = self.budget {
            name += &format!(" --budget {}/{}", share.of, share.parts);
            name += &match threshold {
                Threshold::Auto => String::new(),
                Threshold::Deferred => " --reassembly deferred".to_owned(),
                Threshold::FirstFit => " --reassembly first-fit".to_owned(),
                Threshold::OnDemand => " --reassembly on-demand".to_owned(),
                Threshold::Sixteenths(part) => format!(" --threshold {part}/16"),
            };
        }
        if let Some(kib) = self.most_kib {
            name += &format!(" (files up to {kib} KB)");
        }
        if self.unmounted {
            name += " DEVICE";
        }
        let helped = |by: &str, parts: u64| match parts {
            1 => format!("onesweep {by} {name}"),
            _ => format!("onesweep {by} --limit 1/{parts} {name}"),
        };
        let name = match (self.ahead, self.viewed) {
            (Some(parts), _) => helped("run", parts),
            (None, Some(parts)) => {
                let fuse = if self.fuse { " --fuse" } else { "" };
                let read_write = if self.read_write { " --read-write" } else { "" };
                helped(&format!("view{fuse}{read_write}"), parts)
            }
            (None, None) => name,
        };
        if self.by_user { format!("{name}, not root") } else { name }
    }

    /// The program and its arguments.
    pub(crate) fn argv(&self, places: &Places) -> Vec<String> {
        let root = places.root.display().to_string();
        let helped = |by: &str, parts: u64, trees: &[&str], root: &Path| {
            let limit = ["--limit".to_owned(), (places.content_bytes / parts.max(1)).to_string()];
            let mut argv = vec![places.programs.onesweep.display().to_string(), by.to_owned()];
            argv.extend(self.fuse.then(|| "--fuse".to_owned()));
            argv.extend(self.read_write.then(|| "--read-write".to_owned()));
            argv.extend(limit.into_iter().filter(|_| parts > 1));
            argv.extend(trees.iter().map(|&tree| tree.to_owned()));
            argv.push("--".to_owned());
            argv.extend(self.own_argv(places, root));
            argv
        };
        let argv = match (self.ahead, self.viewed) {
            (Some(parts), _) => helped("run", parts, &["--tree", &root], places.root),
            (None, Some(parts)) => helped("view", parts, &[&root, &places.view.display().to_string()], places.view),
            (None, None) => self.own_argv(places, places.root),
        };
        if self.by_user { [user::words(), argv].concat() } else { argv }
    }

    fn own_argv(&self, places: &Places, root: &Path) -> Vec<String> {
        let root = root.display().to_string();
        let image = places.image.display().to_string();
        let copies = places.copies.display().to_string();
        let onesweep = places.programs.onesweep.display().to_string();
        let lab = places.programs.lab.display().to_string();
        let plain = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
        let without: Vec<String> =
            places.without.map(|list| vec!["-X".to_owned(), list.display().to_string()]).unwrap_or_default();
        let ours = |command: &str, rest: &[&str]| {
            let budget = self.budget.map(|budget| budget.args(places.peak)).unwrap_or_default();
            let head = [onesweep.clone(), command.to_owned()];
            let options = head.into_iter().chain(self.options.clone()).chain(budget);
            options.chain(without.clone()).chain(plain(rest)).collect()
        };
        let whole = ["-cf", "-", "-C", &root, "."];
        match self.tool {
            Tool::GnuTar => [plain(&GNU_TAR), without, plain(&whole)].concat(),
            Tool::GnuTarByInode => plain(&[&GNU_TAR[..], &["--sort=inode"], &whole].concat()),
            Tool::GnuTarByName => plain(&[&GNU_TAR[..], &["--sort=name"], &whole].concat()),
            Tool::BsdTar => plain(&[&["bsdtar", "--format=pax"][..], &whole].concat()),
            Tool::Cp => plain(&["cp", "-a", &format!("{root}/."), &copies]),
            Tool::FindCat => plain(&["find", &root, "-type", "f", "-exec", "cat", "{}", "+"]),
            Tool::Rsync => plain(&["rsync", "-a", &format!("{root}/"), &copies]),
            // Its status is 1 where nothing is found.
            Tool::Grep => {
                let script = "grep -rF onesweep-has-no-such-line \"$0\"; test $? -le 1";
                plain(&["sh", "-c", script, &root])
            }
            Tool::Sha256 => plain(&["find", &root, "-type", "f", "-exec", "sha256sum", "{}", "+"]),
            Tool::Zip => plain(&["zip", "-rq1", "-", &root]),
            // A repository, a set of signatures: what they write lies in memory.
            Tool::Restic => {
                let script = "export RESTIC_PASSWORD=lab && cd \"$0\" && restic -q --no-cache -r \"$1/r\" init && \
                              exec restic -q --no-cache -r \"$1/r\" backup .";
                plain(&["sh", "-c", script, &root, &copies])
            }
            Tool::Borg => {
                let script = "export BORG_BASE_DIR=\"$1\" BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes && cd \"$0\" && \
                              borg init -e none \"$1/b\" && exec borg create \"$1/b::a\" .";
                plain(&["sh", "-c", script, &root, &copies])
            }
            // The digest and length of a file that is nowhere.
            Tool::Clamscan => {
                let script = "echo d41d8cd98f00b204e9800998ecf8427f:12345678:Lab > \"$1/lab.hdb\" && \
                              exec clamscan -r -i --no-summary -d \"$1/lab.hdb\" \"$0\"";
                plain(&["sh", "-c", script, &root, &copies])
            }
            Tool::Picked => {
                let script = "find \"$0\" -type f -size +0 -print0 | sed -zn '50~100p' | xargs -0 cat";
                plain(&["sh", "-c", script, &root])
            }
            Tool::Du => plain(&["du", "-s", &root]),
            Tool::Ls => plain(&["ls", "-lR", &root]),
            // A view passes no `sync` of a file system on.
            Tool::Remove => {
                let script = "rm -r \"$0\"/* && sync -f \"$1\"";
                plain(&["sh", "-c", script, &root, &places.root.display().to_string()])
            }
            // A file whose size no other has would not be read at all, were it not for the transformation.
            Tool::Fclones => {
                plain(&["fclones", "group", "--hidden", "--rf-over", "0", "--min", "0", "--transform", "cat", &root])
            }
            Tool::Rmlint => plain(&["rmlint", "-T", "duplicates", "--hidden", "-o", "json:stdout", &root]),
            Tool::InFlight => plain(&[&lab, "in-flight", &root, "500"]),
            Tool::Tar if self.unmounted => ours("tar", &["--json", "-cf", "-", &root]),
            Tool::Tar => ours("tar", &[&["--json"][..], &whole].concat()),
            Tool::Sum => ours("sum", &["--json", &root]),
            Tool::Copy => ours("copy", &["-T", &root, &format!("{copies}/tree")]),
            Tool::Shard => ours("shard", &["--json", &root, &format!("{copies}/shards")]),
            Tool::Plan => ours("plan", &["--json", &root]),
            Tool::Find => ours("find", &[&root]),
            Tool::GnuFind => plain(&["find", &root, "-size", "+0"]),
            Tool::Scan => plain(&[&lab, "scan", &image]),
            Tool::Memory => {
                let weighed = ["time", "--quiet", "--format", "{\"peak_kib\":%M}"];
                [plain(&weighed), ours("plan", &["--json", "--catalog-limit", "64G", &image])].concat()
            }
            Tool::Bound | Tool::MetadataBound => plain(&[&lab, "bound", "IMAGE"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> Programs {
        Programs { onesweep: "/bin/onesweep".into(), lab: "/bin/lab".into(), tools: "/tools".into() }
    }

    #[test]
    fn a_budget_is_a_part_of_the_peak() {
        let programs = programs();
        let places = Places {
            root: Path::new("/mnt"),
            image: Path::new("/image"),
            copies: Path::new("/copies"),
            view: Path::new("/view"),
            programs: &programs,
            without: None,
            peak: 300 << 20,
            content_bytes: 800 << 20,
        };
        let budget = Budget { share: Share { of: 2, parts: 3 }, threshold: Threshold::Sixteenths(4) };
        let work = Work::with(Tool::Tar, &["--order", "fragment"]).budget(budget);
        assert_eq!(work.name(), "onesweep tar --order fragment --budget 2/3 --threshold 4/16");
        let argv = work.argv(&places).join(" ");
        assert_eq!(
            argv,
            "/bin/onesweep tar --order fragment --budget 209715200 --threshold 52428800 --json -cf - -C /mnt ."
        );
        assert_eq!(Share { of: 1, parts: 25 }.bytes(100), 1 << 20);
    }

    #[test]
    fn large_files_are_left_out_by_both_sides_in_the_same_way() {
        let programs = programs();
        let without = Some(Path::new("/list"));
        let (root, image, copies) = (Path::new("/mnt"), Path::new("/image"), Path::new("/"));
        let view = Path::new("/view");
        let places = Places { root, image, copies, view, programs: &programs, without, peak: 0, content_bytes: 0 };
        for tool in [Tool::GnuTar, Tool::Tar, Tool::Plan] {
            let work = Work::of(tool).at_most(128);
            assert!(work.name().ends_with("(files up to 128 KB)"));
            assert!(work.argv(&places).join(" ").contains(" -X /list "), "{work:?}");
        }
    }

    #[test]
    fn the_sweep_goes_ahead_of_a_program_with_a_part_of_the_memory() {
        let programs = programs();
        let (root, image, copies) = (Path::new("/mnt"), Path::new("/image"), Path::new("/copies"));
        let view = Path::new("/view");
        let places =
            Places { root, image, copies, view, programs: &programs, without: None, peak: 0, content_bytes: 800 };
        let work = |parts| Work::of(Tool::Cp).ahead(parts);
        let argv = |parts| work(parts).argv(&places).join(" ");
        assert_eq!(argv(1), "/bin/onesweep run --tree /mnt -- cp -a /mnt/. /copies");
        assert_eq!(argv(8), "/bin/onesweep run --limit 100 --tree /mnt -- cp -a /mnt/. /copies");
        assert!(work(8).is_ours() && !Work::of(Tool::Cp).is_ours());
        assert_eq!([1, 8].map(|parts| work(parts).name()), ["onesweep run cp -a", "onesweep run --limit 1/8 cp -a"]);
        let viewed = |parts| Work::of(Tool::Cp).viewed(parts);
        assert_eq!(viewed(1).argv(&places).join(" "), "/bin/onesweep view /mnt /view -- cp -a /view/. /copies");
        assert_eq!(viewed(8).argv(&places)[..4], ["/bin/onesweep", "view", "--limit", "100"]);
        assert_eq!(viewed(8).name(), "onesweep view --limit 1/8 cp -a");
        assert!(viewed(1).is_ours() && !viewed(1).writes());
        let written = viewed(1).read_write();
        assert_eq!(written.argv(&places)[..4], ["/bin/onesweep", "view", "--read-write", "/mnt"]);
        assert_eq!((written.name().as_str(), written.writes()), ("onesweep view --read-write cp -a", true));
        let by_user = viewed(8).by_user();
        assert_eq!(by_user.name(), "onesweep view --limit 1/8 cp -a, not root");
        assert_eq!(by_user.argv(&places)[..4], user::words());
        assert_eq!(by_user.argv(&places)[4..], viewed(8).argv(&places));
        let by_fuse = viewed(8).by_fuse();
        assert_eq!(by_fuse.argv(&places)[..5], ["/bin/onesweep", "view", "--fuse", "--limit", "100"]);
        assert_eq!(by_fuse.name(), "onesweep view --fuse --limit 1/8 cp -a");
        let removed = Work::of(Tool::Remove).viewed(1).read_write().argv(&places);
        assert_eq!(removed[removed.len() - 2..], ["/view", "/mnt"], "what was removed is written to the disk");
    }

    #[test]
    fn every_program_is_pointed_at_the_tree() {
        let programs = programs();
        let places = Places {
            root: Path::new("/mnt"),
            image: Path::new("/image"),
            copies: Path::new("/copies"),
            view: Path::new("/view"),
            programs: &programs,
            without: None,
            peak: 0,
            content_bytes: 0,
        };
        use Tool::{
            Borg, BsdTar, Clamscan, Cp, Du, Fclones, FindCat, GnuTar, Grep, Ls, Picked, Remove, Restic, Rmlint, Rsync,
            Sha256, Zip,
        };
        let readers =
            [GnuTar, BsdTar, Cp, FindCat, Rsync, Fclones, Rmlint, Grep, Sha256, Zip, Restic, Borg, Clamscan, Picked];
        for tool in readers.into_iter().chain([Du, Ls, Remove]) {
            let argv = Work::of(tool).argv(&places);
            assert!(argv.iter().any(|arg| arg.starts_with("/mnt")), "{argv:?}");
            assert!(!Work::of(tool).is_ours());
        }
    }

    /// Nothing is mounted, so there is no tree to enter.
    #[test]
    fn a_device_is_named_in_the_place_of_the_tree() {
        let programs = programs();
        let (root, image, copies) = (Path::new("/dev/loop7"), Path::new("/image"), Path::new("/"));
        let view = Path::new("/view");
        let places =
            Places { root, image, copies, view, programs: &programs, without: None, peak: 0, content_bytes: 0 };
        let tar = Work::of(Tool::Tar).unmounted();
        assert_eq!(tar.argv(&places).join(" "), "/bin/onesweep tar --json -cf - /dev/loop7");
        assert_eq!(tar.name(), "onesweep tar DEVICE");
        assert!(tar.reads_content() && !Work::of(Tool::Find).reads_content());
        let scan = Work::of(Tool::Scan);
        assert_eq!(scan.argv(&places).join(" "), "/bin/lab scan /image");
        assert!(scan.is_of_the_file() && scan.is_ours());
        // What was measured before a device could be named is known again.
        let old: Work = serde_json::from_str(r#"{"tool":"tar","options":[],"budget":null}"#).unwrap();
        assert_eq!(old, Work::of(Tool::Tar));
        assert!(!serde_json::to_string(&old).unwrap().contains("unmounted"));
    }

    #[test]
    fn a_program_is_found_along_the_path_or_missing() {
        assert!(programs().find("sh").is_some());
        assert_eq!(programs().find("no-such-program"), None);
        assert_eq!(programs().find("/no/such/program"), None);
    }
}
