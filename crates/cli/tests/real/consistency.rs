//! Reading the device under a mounted file system must never deliver old bytes, another file's bytes, or a mixture.
//!
//! Contents describe themselves: each record of 64 bytes holds the file's number, the version of the file, the place
//! of the record, and a check of all three. So any bytes that were delivered tell where they come from.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    image::{Folder, Fs, Image},
    run::{
        disk_bytes_read, figure, finish, hold, long, onesweep, path_of, root_test, run, say, seed, short, summary, text,
    },
    tree::{self, Rng, sum_lines, sums},
};

const RECORD: usize = 64;
const BLOCK: usize = 4096;

fn record(file: u64, version: u64, place: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let check = Rng::new(file ^ version.rotate_left(20) ^ place.rotate_left(40)).next();
    for (slot, number) in record.chunks_mut(8).zip([file, version, place, check, check, file, version, place]) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    record
}

/// Records of one version of a file, from one place on.
fn content(file: u64, version: u64, from_block: u64, blocks: u64) -> Vec<u8> {
    let per_block = (BLOCK / RECORD) as u64;
    (from_block * per_block..(from_block + blocks) * per_block).flat_map(|place| record(file, version, place)).collect()
}

/// Why bytes are no state that file number `file` ever had; `None` when they are one.
///
/// A write that the kernel is in the midst of leaves the new version up to some place and the version before from there
/// on: that is a state too, and any reader may see it. Within the block at that place the records may alternate, for the
/// kernel copies a page in whatever order it likes. Anything else is a mixture that no reader of the file could get.
fn fault(file: u64, bytes: &[u8]) -> Option<String> {
    if !bytes.len().is_multiple_of(BLOCK) {
        return Some(format!("{} bytes, not a number of blocks", bytes.len()));
    }
    let mut versions = Vec::new();
    for (place, bytes) in bytes.chunks(RECORD).enumerate() {
        let number = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
        let (owner, version) = (number(0), number(1));
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(format!("zeros at record {place}"));
        }
        if bytes != record(owner, version, number(2)) {
            return Some(format!("a broken record at {place}"));
        }
        if owner != file {
            return Some(format!("a record of file {owner} at {place}"));
        }
        if number(2) != place as u64 {
            return Some(format!("the record of place {} at {place}", number(2)));
        }
        versions.push(version);
    }
    let (newest, oldest) = (versions.iter().max()?, versions.iter().min()?);
    let per_block = BLOCK / RECORD;
    let first_old = versions.iter().position(|version| version != newest).unwrap_or(versions.len()) / per_block;
    let after = ((first_old + 1) * per_block).min(versions.len());
    if *newest > oldest + 1 || versions[after..].iter().any(|version| version != oldest) {
        let runs: Vec<String> =
            versions.chunk_by(|a, b| a == b).take(12).map(|run| format!("{}×{}", run[0], run.len())).collect();
        return Some(format!("a mixture of versions: {}", runs.join(" ")));
    }
    None
}

/// A fifo that has taken the place of a file which waits to be read: nobody may be kept waiting for what is written to it.
#[test]
fn a_file_that_becomes_a_fifo_is_an_error() {
    root_test!();
    for hidden in ["", "io_uring"] {
        let mut image = Image::new(Fs::Ext4, 128 << 20);
        let root = image.root().join("tree");
        fs::create_dir(&root).expect("a folder");
        for number in 0..60 {
            fs::write(root.join(format!("{number:02}")), Rng::new(number).bytes(128 << 10)).expect("a file");
        }
        tree::sync(&root);
        image.cold();
        let mut tar = onesweep(["tar", "--order", "inode", "--budget", "1M", "--queue-depth", "1", "-cf", "-", "-C"]);
        tar.arg(&root).arg(".").env("ONESWEEP_HIDE", hidden);
        let mut running = tar.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        // Its inode is the last: when the first bytes come it is planned, and it isn't open before more of them are taken.
        let mut archive = vec![0; 256 << 10];
        running.stdout.as_mut().expect("a pipe").read_exact(&mut archive).expect("the first bytes");
        let last = root.join("59");
        fs::remove_file(&last).expect("it goes");
        run(Command::new("mkfifo").arg(&last));
        let writer = File::options().read(true).write(true).open(&last).expect("a silent writer");
        let out = running.wait_with_output().expect("it ends");
        drop(writer);
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains("no regular file"), "{}", text(&out.stderr));
        let (whole, folder) = (image.beside("whole.tar"), image.beside("out"));
        archive.extend(out.stdout);
        fs::write(&whole, archive).and_then(|()| fs::create_dir(&folder)).expect("the archive");
        run(Command::new("tar").arg("-xf").arg(&whole).arg("-C").arg(&folder));
        for number in 0..59 {
            let there = fs::read(folder.join(format!("{number:02}"))).expect("a file");
            assert!(there == Rng::new(number).bytes(128 << 10), "{number}");
        }
        assert!(!folder.join("59").exists());
    }
}

/// Bytes that were written just now are in memory and not on the disk, and no time stamp need have changed since the
/// mapping: what is delivered is what was written.
#[test]
fn an_overwrite_just_before_the_read_is_delivered() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Ext4Small, Fs::Xfs] {
        let mut image = Image::new(fs, 400 << 20);
        let root = image.root().join("tree");
        fs::create_dir(&root).expect("a folder");
        let path = |file: u64| root.join(format!("{file:03}"));
        for file in 0..200 {
            fs::write(path(file), content(file, 1, 0, 1 + file % 9)).expect("a file");
        }
        image.cold();
        for round in 2..if long() { 30 } else { 6 } {
            let mut rng = Rng::new(seed() + round);
            for file in (0..200).filter(|_| rng.below(2) == 0) {
                // In place and without a sync: the same blocks, dirty in memory.
                let version = content(file, round, 0, 1 + file % 9);
                let place = File::options().write(true).open(path(file)).expect("a file");
                place.write_all_at(&version, 0).expect("an overwrite");
            }
            let there = sums(&[&root]);
            let out = finish(onesweep(["sum", "--device", "--algorithm", "sha256"]).arg(&root), 0);
            let delivered: BTreeMap<_, _> = sum_lines(&out.stdout).into_iter().collect();
            let stale = there.iter().filter(|(name, sum)| delivered.get(*name) != Some(*sum)).count();
            assert_eq!(stale, 0, "{}: {stale} files came with other bytes than were written", fs.name());
            if round % 3 == 0 {
                image.cold();
            }
        }
    }
}

/// Files that have lain still for long are changed when the sweep has begun and has not come to them yet. Nothing that the
/// survey saw tells of it; the check after the read does.
#[test]
fn changes_between_the_survey_and_the_read_are_found() {
    root_test!();
    const FILES: u64 = 48;
    const BLOCKS: u64 = 64;
    for fs in [Fs::Ext4, Fs::Ext4Small, Fs::Xfs] {
        let mut image = Image::new(fs, 400 << 20);
        let root = image.root().join("tree");
        fs::create_dir(&root).expect("a folder");
        let path = |file: u64| root.join(format!("{file:03}"));
        for file in 0..FILES {
            fs::write(path(file), content(file, 1, 0, BLOCKS)).expect("a file");
            // One after the other on the disk.
            File::open(path(file)).and_then(|file| file.sync_all()).expect("its blocks");
        }
        tree::sync(&root);
        let mut states: BTreeMap<Vec<u8>, Vec<String>> =
            sums(&[&root]).into_iter().map(|(name, sum)| (name, vec![sum])).collect();
        // What was changed just now is read through the file system at once.
        thread::sleep(Duration::from_millis(3200));
        image.cold();
        let listed = finish(onesweep(["list", "-0"]).arg(&root), 0).stdout;
        let order: Vec<PathBuf> =
            listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(path_of).collect();
        let mut sum = onesweep(["sum", "--device", "--json", "--algorithm", "sha256", "--max-request", "256K"]);
        sum.args(["--bwlimit", "4M", "--budget", "1M", "--large", "1M"]).arg(&root);
        let running = sum.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = running.expect("it starts");
        // More than all metadata, which come before the plan.
        while disk_bytes_read(&running) < 5 << 20 {
            assert!(running.try_wait().expect("its state").is_none(), "it ended before anything was changed");
            thread::sleep(Duration::from_millis(2));
        }
        let held = hold(&running);
        // The last third, long before its turn.
        for (number, path) in order.iter().skip(2 * FILES as usize / 3).enumerate() {
            let file = path.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
            let open = File::options().write(true).open(path).expect("a file");
            match number % 3 {
                0 => open.write_all_at(&content(file, 2, 0, BLOCKS), 0).expect("an overwrite"),
                1 => {
                    let aside = root.with_extension("aside");
                    fs::write(&aside, content(file, 3, 0, BLOCKS)).expect("a new file");
                    fs::rename(&aside, path).expect("a replacement");
                }
                _ => open.set_len(BLOCKS / 2 * BLOCK as u64).expect("a cut"),
            }
        }
        drop(held);
        for (name, sum) in sums(&[&root]) {
            states.entry(name).or_default().push(sum);
        }
        let out = running.wait_with_output().expect("it ends");
        assert_eq!(out.status.code(), Some(0), "{}", short(&out.stderr));
        let delivered = sum_lines(&out.stdout);
        assert_eq!(delivered.len() as u64, FILES);
        for (name, sum) in &delivered {
            assert!(states[name].contains(sum), "{}: {:?} came in a state that it never had", fs.name(), text(name));
        }
        let reread = figure(&summary(&out.stderr), "reread.files");
        assert!(reread > 0, "{}: nothing was read a second time", fs.name());
    }
}

/// What a restless writer does to one of its files.
fn disturb(fs: Fs, root: &Path, rng: &mut Rng, versions: &mut [u64], sizes: &mut [u64]) {
    let file = rng.below(versions.len() as u64);
    let at = file as usize;
    let path = root.join(format!("{file:04}"));
    let fresh = |versions: &mut [u64]| {
        // Two on, so that a mixture across a new making of the file is always seen.
        versions[at] += 2;
        versions[at]
    };
    match rng.below(7) {
        // Overwritten in place, by one write.
        0 | 1 => {
            let Ok(open) = File::options().write(true).open(&path) else { return };
            versions[at] += 1;
            open.write_all_at(&content(file, versions[at], 0, sizes[at]), 0).expect("an overwrite");
            if rng.below(4) == 0 {
                open.sync_data().expect("a sync");
            }
        }
        // Made anew and put in place of the old one.
        2 => {
            sizes[at] = 1 + rng.below(40);
            let aside = root.join("aside");
            fs::write(&aside, content(file, fresh(versions), 0, sizes[at])).expect("a new file");
            fs::rename(&aside, &path).expect("a replacement");
        }
        // Cut.
        3 => {
            let Ok(open) = File::options().write(true).open(&path) else { return };
            sizes[at] = rng.below(sizes[at] + 1);
            open.set_len(sizes[at] * BLOCK as u64).expect("a cut");
        }
        // Longer.
        4 => {
            let Ok(open) = File::options().write(true).open(&path) else { return };
            let more = 1 + rng.below(8);
            open.write_all_at(&content(file, versions[at], sizes[at], more), sizes[at] * BLOCK as u64).expect("growth");
            sizes[at] += more;
        }
        // Gone, and made anew with blocks that were another file's.
        5 => {
            let _ = fs::remove_file(&path);
            sizes[at] = 1 + rng.below(40);
            fs::write(&path, content(file, fresh(versions), 0, sizes[at])).expect("a file");
        }
        // Moved on the disk, with nothing else changed.
        _ => {
            let mover: &[&str] = match fs.kernel_name() {
                "ext4" => &["e4defrag"],
                "xfs" => &["xfs_fsr"],
                _ => &["btrfs", "filesystem", "defragment"],
            };
            // It gives up on a file that somebody writes to; but it must be there.
            let moved = Command::new(mover[0]).args(&mover[1..]).arg(&path).output();
            moved.unwrap_or_else(|e| panic!("{mover:?}: {e}; try `make deps`"));
        }
    }
}

/// While a writer overwrites, replaces, cuts, extends, deletes and moves files, the sweep runs again and again. Each
/// delivered file is a state that the file had, or it is an error item.
fn delivered_files_are_states_that_they_had(fs: Fs, options: &[&str]) {
    const FILES: usize = 400;
    let image = Image::new(fs, 400 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    let mut rng = Rng::new(seed());
    let mut versions = vec![1; FILES];
    let mut sizes: Vec<u64> = (0..FILES).map(|_| 1 + rng.below(40)).collect();
    for (file, size) in sizes.iter().enumerate() {
        let bytes = content(file as u64, 1, 0, *size);
        fs::write(root.join(format!("{file:04}")), bytes).expect("a file");
    }
    tree::sync(&root);
    let sweeps = if long() { 200 } else { 12 };
    let stop = AtomicBool::new(false);
    let mut delivered = 0;
    let mut failed = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                disturb(fs, &root, &mut rng, &mut versions, &mut sizes);
            }
        });
        // The writer ends when a check fails, else the panic would wait for it for ever.
        let _ended = SetOnDrop(&stop);
        for _ in 0..sweeps {
            let folder = Folder::new();
            let (archive, out) = (folder.join("a.tar"), folder.join("out"));
            fs::create_dir(&out).expect("a folder");
            let mut tar = onesweep(["tar", "-cf"]);
            let told = tar.arg(&archive).args(options).arg("-C").arg(&root).arg(".").output().expect("it runs");
            let code = told.status.code();
            assert!(matches!(code, Some(0 | 1)), "{code:?} {}", short(&told.stderr));
            failed += text(&told.stderr).lines().count();
            run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out));
            for path in files_below(&out) {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                // The replacement that has not been put in place yet may be cut at any byte.
                let Ok(file) = name.parse() else { continue };
                let bytes = fs::read(&path).expect("an extracted file");
                // One that had to be streamed may be cut after its header was written: it is padded with zeros, and told of. What is in
                // front of them was its own, at its place.
                let shrank = format!("/{name}: File shrank");
                let fault = match text(&told.stderr).lines().any(|line| line.contains(&shrank)) {
                    true => fault(file, unpadded(&bytes)).filter(|fault| !fault.starts_with("a mixture")),
                    false => fault(file, &bytes),
                };
                // A file that is filled for the first time grows by whole pages.
                if let Some(fault) = fault {
                    let kept = std::env::temp_dir().join(format!("onesweep-fault-{name}"));
                    fs::copy(&path, &kept).expect("the bytes for the report");
                    let (kept, said) = (kept.display(), short(&told.stderr));
                    panic!("{} {options:?}: file {name}: {fault}; kept as {kept}; {said}", fs.name());
                }
                delivered += 1;
            }
        }
    });
    let least = sweeps * FILES / 2;
    say(&format!("{} {options:?}: {delivered} files in {sweeps} sweeps under a writer, {failed} messages", fs.name()));
    assert!(delivered >= least, "only {delivered} of {} files were delivered", sweeps * FILES);
}

/// Without the blocks of zeros at the end.
fn unpadded(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last + 1).next_multiple_of(BLOCK));
    &bytes[..end.min(bytes.len())]
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    fs::read_dir(root).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn device_mode_under_a_writer_on_ext4() {
    root_test!();
    delivered_files_are_states_that_they_had(Fs::Ext4, &["--device"]);
}

#[test]
fn device_mode_under_a_writer_on_xfs() {
    root_test!();
    delivered_files_are_states_that_they_had(Fs::Xfs, &["--device", "--budget", "1M"]);
}

#[test]
fn the_file_system_under_a_writer() {
    root_test!();
    delivered_files_are_states_that_they_had(Fs::Ext4, &[]);
    delivered_files_are_states_that_they_had(Fs::Btrfs, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_from_mixtures() {
        let old = content(7, 4, 0, 4);
        let new = content(7, 5, 0, 4);
        let joined = |parts: &[&[u8]]| parts.concat();
        assert_eq!(fault(7, &old), None);
        assert_eq!(fault(7, &[]), None);
        assert_eq!(fault(7, &old[..2 * BLOCK]), None, "a cut file");
        assert_eq!(fault(7, &joined(&[&new[..2 * BLOCK], &old[2 * BLOCK..]])), None, "a write half way");
        assert_eq!(fault(7, &joined(&[&new[..2 * BLOCK + 640], &old[2 * BLOCK + 640..]])), None);
        let swapped = joined(&[&old[..BLOCK], &new[BLOCK..2 * BLOCK], &old[2 * BLOCK..]]);
        // Old, new, old: the first block is the one at which a write could be, the second block must be old then.
        assert!(fault(7, &swapped).is_some_and(|fault| fault.contains("mixture")));
        let backwards = joined(&[&old[..2 * BLOCK], &new[2 * BLOCK..]]);
        assert!(fault(7, &backwards).is_some_and(|fault| fault.contains("mixture")));
        let apart = joined(&[&content(7, 6, 0, 1), &old[BLOCK..]]);
        assert!(fault(7, &apart).is_some_and(|fault| fault.contains("mixture")));
        assert!(fault(8, &old).is_some_and(|fault| fault.contains("file 7")));
        assert!(fault(7, &old[BLOCK..]).is_some_and(|fault| fault.contains("place")));
        assert!(fault(7, &[0; BLOCK]).is_some_and(|fault| fault.contains("zeros")));
        assert!(fault(7, &[1; BLOCK]).is_some_and(|fault| fault.contains("broken")));
        assert!(fault(7, &old[..100]).is_some());
    }
}
