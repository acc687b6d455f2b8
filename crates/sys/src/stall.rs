//! Writes that nobody takes: a pipe whose reader has stopped keeps an interrupted process for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::FileTypeExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// For how long a write may wait once all is to end. A reader that goes on takes a full pipe in far less.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Returns when a thread of this process has waited for a second in one write, or in one that looks the same. Meant for the
/// time when all is to end: a program that goes on writing may well look like that.
pub fn wait_for_stall() {
    let mut since = BTreeMap::new();
    loop {
        let waiting = writes();
        since.retain(|write, _| waiting.contains(write));
        for write in waiting {
            since.entry(write).or_insert_with(Instant::now);
        }
        if since.values().any(|since| since.elapsed() >= PATIENCE) {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Calls of `write` to pipes, sockets and terminals, as the kernel describes them: thread, arguments, stack.
fn writes() -> BTreeSet<String> {
    let write = format!("{} ", libc::SYS_write);
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    let describe = |thread: fs::DirEntry| {
        let call = fs::read_to_string(thread.path().join("syscall")).ok()?;
        let fd = call.strip_prefix(&write)?.split(' ').next()?;
        let fd = u32::from_str_radix(fd.strip_prefix("0x")?, 16).ok()?;
        takes_what_is_read(Path::new(&format!("/proc/self/fd/{fd}")))
            .then(|| format!("{:?} {call}", thread.file_name()))
    };
    threads.flatten().filter_map(describe).collect()
}

/// Whether writing to it waits for a reader.
fn takes_what_is_read(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_socket() || kind.is_char_device()
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write, pipe},
        thread,
    };

    use super::*;

    #[test]
    fn a_write_that_nobody_takes_is_seen() {
        let (mut reader, mut writer) = pipe().unwrap();
        let writing = thread::spawn(move || writer.write_all(&vec![0; 1 << 20]));
        while writes().is_empty() {
            thread::yield_now();
        }
        let seen = writes();
        thread::sleep(LOOK_EVERY);
        assert!(!seen.is_disjoint(&writes()));
        std::io::copy(&mut reader.by_ref().take(1 << 20), &mut std::io::sink()).unwrap();
        writing.join().unwrap().unwrap();
        assert!(seen.is_disjoint(&writes()));
    }
}
