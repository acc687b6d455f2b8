//! `onesweep shard`: tar shards for training runs. Which sample goes where, and writing it, is in `onesweep_deliver::shard`.

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use onesweep::{FileError, Summary, Sweep, SweptFile};
use onesweep_deliver::shard::{Directory, Layout, LeftOut, Packer, Planned, Rules, ShardError, ShardTotals, deal};
use serde::Serialize;

use crate::{
    args::ShardArgs,
    message,
    report::Failure,
    session::{Session, StandardOutput},
};

#[derive(Serialize)]
struct Details {
    shards: u64,
    samples: u64,
    members: u64,
    content_bytes: u64,
    shard_bytes: u64,
    incomplete_samples: u64,
    files_without_sample: u64,
}

pub(crate) fn run(args: ShardArgs) -> Result<u8, Failure> {
    let session = Session::start(args.common, StandardOutput::Summary)?;
    let roots = [args.source.clone()];
    session.check_roots(None, &roots)?;
    let is_image = session.reads_images() && onesweep::is_image(&args.source, 1, session.follows_roots());
    let root = if is_image { onesweep::path_of_image(&args.source) } else { args.source.clone() };
    let store = Directory::open(&args.out, &args.source).map_err(failure)?;
    let rules = Rules {
        max_count: args.max_count.map_or(u64::MAX, u64::from),
        max_bytes: args.max_size.0,
        reach: args.shuffle.0,
        seed: args.seed,
    };
    let read = session.bulk_read(&roots)?.writes_to([&args.out]);
    // What is cached must not decide what comes first, or a seed would not give the same shards again.
    let sweep = read.clone().ignore_cache(true).plan()?;
    if session.is_interrupted() {
        return session.finish("shard", &Summary::default(), details(ShardTotals::default(), 0));
    }
    let (layout, left_out) = layout_of(&sweep, &root, rules)?;
    let mut told: HashSet<String> = sweep.errors().map(message::of_file).collect();
    let without_sample = tell_of_left_out(&session, &left_out);
    if layout.samples() == 0 {
        session.tell_of_unread(&roots);
        let why = "no file in it belongs to a sample; names need a dot, as in a.jpg and a.json";
        return Err(Failure::could_not_run(&args.source, "pack", why));
    }
    let mut packer = Packer::new(layout, store, &root, &args.out, &args.name).map_err(failure)?;
    let mut failed = None;
    let mut each = |item: Result<SweptFile, FileError>| {
        if let Err(error) = &item {
            told.remove(&message::of_file(error));
        }
        match pack_one(&session, &mut packer, item) {
            Ok(()) => true,
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    };
    // A moment that is held is that of the plan; nothing of an image is cached.
    let is_final = is_image || session.settings().snapshot.unwrap_or_default();
    let summary = if is_final {
        session.run_planned(sweep, &mut each)?
    } else {
        drop(sweep);
        session.run(read, &mut each)?
    };
    if session.is_interrupted() {
        drop(packer);
        return session.finish("shard", &summary, details(ShardTotals::default(), without_sample));
    }
    if let Some(error) = failed {
        return Err(failure(error));
    }
    // What only the plan could not read is missing all the same.
    told.iter().for_each(|text| session.complain(text));
    packer.vanished().for_each(|warning| session.complain(&message::of_error(&warning)));
    if packer.strangers() > 0 && !session.is_quiet() {
        session.tell(&format!("{} files came after the plan was made, and are not packed", packer.strangers()));
    }
    let totals = packer.finish().map_err(failure)?;
    if totals.incomplete_samples > 0 {
        session.tell(&format!("{} samples are left out, since a file of each is missing", totals.incomplete_samples));
    }
    if totals.without_lines > 0 && !session.is_quiet() {
        let what = "have no .idx file, which can't hold names with spaces";
        session.tell(&format!("{} shards {what}", totals.without_lines));
    }
    session.finish("shard", &summary, details(totals, without_sample))
}

fn details(totals: ShardTotals, files_without_sample: u64) -> Details {
    Details {
        shards: totals.shards,
        samples: totals.samples,
        members: totals.members,
        content_bytes: totals.content_bytes,
        shard_bytes: totals.shard_bytes,
        incomplete_samples: totals.incomplete_samples,
        files_without_sample,
    }
}

fn layout_of(sweep: &Sweep, root: &Path, rules: Rules) -> Result<(Layout, Vec<LeftOut>), Failure> {
    if sweep.is_partial() {
        let what = "its names don't fit --catalog-limit, and a shuffle needs them all";
        let why = format!("{what}; raise it, or pack its directories one at a time");
        return Err(Failure::could_not_run(root, "pack", why));
    }
    let planned = sweep.files().filter_map(|file| {
        let name = file.path.strip_prefix(root).ok()?.as_os_str().to_owned().into_vec();
        Some(Planned { name, size: file.size })
    });
    Ok(deal(planned, rules))
}

/// Tells of files that are in no sample; gives how many have no extension, which is no error.
fn tell_of_left_out(session: &Session, left_out: &[LeftOut]) -> u64 {
    let shown = |name: &[u8]| message::path_text(Path::new(OsStr::from_bytes(name)));
    let mut without: Vec<&[u8]> = Vec::new();
    for file in left_out {
        match file {
            LeftOut::NoSample { name } => without.push(name),
            LeftOut::SameExtension { name, other } => session.complain(&format!(
                "{}: cannot pack: for readers of shards {} has the same extension; rename one",
                shown(name),
                shown(other)
            )),
        }
    }
    if let Some(first) = without.first().filter(|_| !session.is_quiet()) {
        let what = "files belong to no sample, and are not packed; the first";
        session.tell(&format!("{} {what}: {}", without.len(), shown(first)));
    }
    without.len() as u64
}

fn pack_one(
    session: &Session,
    packer: &mut Packer<Directory>,
    item: Result<SweptFile, FileError>,
) -> Result<(), ShardError> {
    match item {
        Ok(file) => {
            session.tell_of_dirty(&file);
            let warnings = packer.pack(file)?;
            warnings.iter().for_each(|warning| session.complain(&message::of_error(warning)));
        }
        Err(error) => {
            session.complain_of(&error);
            error.path().into_iter().for_each(|path| packer.give_up(path));
        }
    }
    Ok(())
}

fn failure(error: ShardError) -> Failure {
    match error.failed_step() {
        Some((path, step, source)) => Failure::io(path, step, source),
        None => Failure::told(message::of_error(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    #[test]
    fn a_tree_without_samples_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, out) = (dir.path().join("tree"), dir.path().join("out"));
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("README"), "x").unwrap();
        let line = format!("shard -q {} {}", tree.display(), out.display());
        let Command::Shard(args) = parse_line(&line).unwrap() else { panic!("another command") };
        assert!(matches!(run(*args), Err(Failure::Told(_))));
        assert!(!out.exists());
    }
}
