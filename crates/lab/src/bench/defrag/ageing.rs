//! A recipe done at the pace of *DFS* 5.2, with what the daemon does beside it or without.
//!
//! The clock is the recipe's: 200 operations are a second, so that the daemon looks at a directory after as many writes to it as on a
//! machine that works at that pace. Which directories were written to is known here, and not asked of the kernel. And nothing asks
//! whether the machine is busy: the kernel counts who waits for disks by the machine's clock, and this disk has its own. So it is
//! the daemon with `relocate-pressure = 100`. Everything else is the daemon's own.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onesweep_relocate::carry::Ended;
use onesweep_relocate::ext4::Ext4;
use onesweep_relocate::follow::{Follower, Moment, Policy};
use onesweep_relocate::host::Uncached;
use onesweep_sys::block;
use onesweep_sys::files::{open_dir, statx_fd};
use serde::{Deserialize, Serialize};

use crate::age::apply;
use crate::age::recipe::{Amount, Op, Recipe};
use crate::age::tree::Tree;
use crate::interrupt::Interrupt;

/// The paper's pace.
const OPERATIONS_A_SECOND: u64 = 200;

/// What is asked for, as one process tells it the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ageing {
    /// The control group is entered by writing here.
    pub(super) door: PathBuf,
    /// Where the file system is mounted.
    pub(super) root: PathBuf,
    pub(super) scale: f64,
    pub(super) steps: Option<u32>,
    pub(super) seed: u64,
    pub(super) image_bytes: u64,
    pub(super) daemon: Option<Daemon>,
}

/// The daemon's settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Daemon {
    /// Blocks for each hundred that others write; `None` without a budget.
    pub(super) percent: Option<u32>,
}

/// What the daemon did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Did {
    pub(crate) operations: u64,
    /// How often a directory was looked at.
    pub(crate) looks: u64,
    pub(crate) moved_files: u64,
    pub(crate) moved_blocks: u64,
    pub(crate) moved_regions: u64,
    pub(crate) left_not_better: u64,
    pub(crate) left_no_room: u64,
    pub(crate) large_page_files: u64,
    /// Files that were read to be moved.
    pub(crate) read_files: u64,
}

/// Does it, in the control group, and tells as JSON what the daemon did.
pub(crate) fn run(text: &str) -> Result<String, String> {
    let ageing: Ageing = serde_json::from_str(text).map_err(|error| error.to_string())?;
    fs::write(&ageing.door, "0").map_err(|error| format!("{}: {error}", ageing.door.display()))?;
    let amount =
        Amount { seed: ageing.seed, scale: ageing.scale, steps: ageing.steps, image_bytes: ageing.image_bytes };
    let mut beside = Beside::new(&ageing)?;
    let each = &mut |op: &Op| beside.after(op);
    let done =
        apply::apply_with(Recipe::Dfs.ops(&amount), &ageing.root, &mut Tree::default(), &Interrupt::default(), each)?;
    let did = Did { operations: done.operations, ..beside.did };
    serde_json::to_string(&did).map_err(|error| error.to_string())
}

/// What happens beside the operations.
struct Beside {
    root: PathBuf,
    dev: u64,
    host: Ext4,
    /// With the directories' names.
    follower: Option<Follower<String>>,
    operations: u64,
    did: Did,
}

impl Beside {
    fn new(ageing: &Ageing) -> Result<Self, String> {
        let root = ageing.root.clone();
        let said = |error: io::Error| format!("{}: {error}", root.display());
        let open = open_dir(root.as_path()).map_err(said)?;
        let dev = statx_fd(open.as_fd()).map_err(said)?.dev;
        let host = Ext4::of(&root, Uncached::Stays).map_err(|refusal| format!("{}: {refusal}", root.display()))?;
        let follower = ageing.daemon.map(|daemon| Follower::new(Policy::usual(daemon.percent)));
        Ok(Self { root, dev, host, follower, operations: 0, did: Did::default() })
    }

    fn after(&mut self, op: &Op) -> io::Result<()> {
        if let Op::Read(path) = op {
            fs::read(self.root.join(path))?;
        }
        self.operations += u64::from(!matches!(op, Op::Dir(_) | Op::Sync));
        let now = Duration::from_millis(self.operations * 1000 / OPERATIONS_A_SECOND);
        let Some(follower) = &mut self.follower else { return Ok(()) };
        if let Op::Create(path, _) | Op::Rewrite(path, _) | Op::Overwrite(path, _) | Op::Append(path, _) = op
            && let Some((directory, _)) = path.split_once('/')
        {
            follower.written(directory.to_owned(), now);
        }
        if self.operations.is_multiple_of(OPERATIONS_A_SECOND) {
            self.put_in_order(now)?;
        }
        Ok(())
    }

    fn put_in_order(&mut self, now: Duration) -> io::Result<()> {
        let Some(follower) = &mut self.follower else { return Ok(()) };
        while let Some(directory) = follower.take(now) {
            let written = block::written_bytes(self.dev)? / self.host.block_bytes();
            let path: &Path = &self.root.join(&directory);
            let moment = Moment { now, written };
            let told = follower.put_in_order(&mut self.host, (directory, path), moment, &mut || true);
            let told = told.map_err(io::Error::other)?;
            self.did.read_files += told.read;
            let report = told.report;
            if let Some(Ended::Failed(failure)) = report.ended {
                return Err(io::Error::other(failure));
            }
            self.did.looks += 1;
            self.did.moved_files += report.files;
            self.did.moved_blocks += report.blocks;
            self.did.moved_regions += report.regions;
            self.did.left_not_better += report.not_better;
            self.did.left_no_room += report.no_room;
            self.did.large_page_files += report.large;
        }
        Ok(())
    }
}
