//! A tree that is shown, by one process: nothing stands on it that would hang.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use onesweep_peer::{
    id::TrustDomain,
    index::tree::TreeIndex,
    mount::{METRICS_ATTRIBUTE, SHOWN, Tree, TreeFile, TreeSettings},
};
use onesweep_sys::files::{self, Stat};
use onesweep_view::{
    mount::{
        Settings, View,
        contents::{Content, Contents, Done},
    },
    order::Order,
};
use signal_hook::iterator::Signals;

use super::{
    patterns::Policies,
    serve::{LANES, is_seekless},
};
use crate::{
    args::PeerMountArgs,
    commands::{
        peer::{
            begin_to_connect,
            index::{draft, index_failure, place_of, put_in_place},
        },
        serve::ready,
        view::{place, shown},
    },
    message,
    report::{Failure, SOME_FAILED},
    session::heeded_signals,
};

pub(super) fn run(args: &PeerMountArgs, source: &Path) -> Result<u8, Failure> {
    if args.write_through && !args.read_write {
        return Err(Failure::told(
            "nothing is written at a tree that is only read: give --read-write with --write-through",
        ));
    }
    let dir = place::prepared(source, &args.dir, SHOWN)?;
    // Before it is shown: no signal may leave it there.
    let signals = Signals::new(heeded_signals());
    let signals = signals.map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let open = |error: io::Error| Failure::io(source, "show it", &error);
    let root = OwnedFd::from(File::open(source).map_err(open)?);
    let (peers, domain) = begin_to_connect(&args.servers)?;
    let index_path = match &args.index {
        Some(index) => index.clone(),
        None => place_of(source)?,
    };
    let index = open_index(args, &index_path, &root, &domain)?;
    let trace =
        args.trace.as_ref().map(|path| File::create(path).map_err(|error| Failure::io(path, "make it", &error)));
    let is_seekless = is_seekless(source);
    let settings = TreeSettings {
        lanes: args.lanes.map_or(if is_seekless { LANES } else { 1 }, usize::from),
        is_seekless,
        share: args.share,
        write_through: args.write_through,
        trace: trace.transpose()?,
        ..TreeSettings::new(args.policy.into())
    };
    let tree = Arc::new(Tree::start(root, index, peers, domain, settings).map_err(open)?);
    let contents = Raced { tree: Arc::clone(&tree), policies: Policies::new(&args.policies_of) };
    let settings = Settings {
        order: Order::Source,
        limit: None,
        read_write: args.read_write,
        // It would read from the disk what servers have.
        sweeps_ahead: false,
        passthrough: true,
        awake: !args.low_power,
        name: SHOWN,
        allow_other: args.allow_other,
    };
    let told = shown::listen(signals)?;
    let view = View::show_with(source, &dir, &settings, Arc::new(contents));
    let view = view.map_err(|error| shown::refused(&args.dir, &error))?;
    tracing::info!("{} is shown at {}", message::path_text(source), message::path_text(&args.dir));
    tracing::debug!("{}", view.how());
    ready::ready("showing a tree");
    shown::wait_for_end(|| view.is_over(), &told);
    ready::stopping();
    tracing::info!("taking it down");
    shown::take_away(view, (&args.dir, &dir), &told)?;
    match tree.end() {
        Ok(()) => Ok(0),
        Err(error) => {
            index_failure(&index_path, "keep in the index what was learnt", &error).print();
            Ok(SOME_FAILED)
        }
    }
}

fn open_index(args: &PeerMountArgs, path: &Path, root: &OwnedFd, domain: &TrustDomain) -> Result<TreeIndex, Failure> {
    let file_system = files::file_system(root.as_fd()).map_err(|error| Failure::io(path, "use the index", &error))?.id;
    if !path.exists() {
        if !args.learn {
            let what = "there is none; make one with onesweep peer index, or begin with none by --learn";
            return Err(Failure::could_not_run(path, "use the index", what));
        }
        let draft = draft(path);
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::io(&draft, "remove", &error));
            }
            _ => {}
        }
        let made = TreeIndex::create(&draft, args.block_size, file_system, domain);
        drop(made.map_err(|error| index_failure(&draft, "make the index", &error))?);
        put_in_place(&draft, path)?;
    }
    TreeIndex::open(path, file_system, domain).map_err(|error| index_failure(path, "use the index", &error))
}

/// Has the files of a view read by the race.
struct Raced {
    tree: Arc<Tree>,
    policies: Policies,
}

impl Contents for Raced {
    fn open(
        &self,
        file: Arc<OwnedFd>,
        _stat: &Stat,
        path: &dyn Fn() -> Option<Vec<u8>>,
    ) -> io::Result<Arc<dyn Content>> {
        let file = self.tree.file(file, self.policies.of(path))?;
        Ok(Arc::new(RacedFile { tree: Arc::clone(&self.tree), file }))
    }

    fn before_change(&self, inode: u64) {
        self.tree.before_change(inode);
    }

    fn changed(&self, inode: u64, file: &OwnedFd, bytes: Range<u64>) {
        self.tree.changed(inode, file, bytes);
    }

    fn closed(&self, inode: u64) {
        self.tree.closed(inode);
    }

    fn attribute(&self, name: &OsStr) -> Option<Vec<u8>> {
        (name == METRICS_ATTRIBUTE).then(|| self.tree.metrics().into_bytes())
    }
}

struct RacedFile {
    tree: Arc<Tree>,
    file: TreeFile,
}

impl Content for RacedFile {
    fn read(&self, offset: u64, len: usize, done: Done) {
        self.file.read(offset, len, done);
    }

    fn suits_kernel(&self, stat: &Stat) -> bool {
        self.file.suits_kernel(stat)
    }

    fn left_to_kernel(&self) {
        self.tree.note_left_to_kernel();
    }
}
