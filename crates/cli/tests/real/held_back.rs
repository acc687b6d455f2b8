//! Programs that are held back while they read. A view of the kernel's keeps nobody waiting until it is told that somebody walks over what isn't
//! in memory, and on a quick disk, or where others keep the processors, a program has read much or all until then.

use std::{
    io::Read,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::{cache::pages, run::short};

/// What is taken of a program's output at once, and the time between two of these: 800 KB in a second.
const PIECE: u64 = 16 << 10;
const BETWEEN: Duration = Duration::from_millis(20);

/// Carries out a program that writes what it reads, and takes it slowly until `is_ahead`. A pipe takes 64 KiB more, and so much it reads, too.
pub(crate) fn until(mut is_ahead: impl FnMut() -> bool, command: &mut Command) -> Output {
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut out = running.stdout.take().expect("a pipe");
    let mut written = Vec::new();
    while !is_ahead() && out.by_ref().take(PIECE).read_to_end(&mut written).expect("what it writes") > 0 {
        thread::sleep(BETWEEN);
    }
    out.read_to_end(&mut written).expect("what it writes");
    drop(out);
    let ended = running.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{command:?}: {}\n{}", ended.status, short(&ended.stderr));
    Output { stdout: written, ..ended }
}

/// How many of these files are in memory, in part at least.
pub(crate) fn in_memory(files: &[PathBuf]) -> usize {
    pages(files).values().filter(|pages| **pages > 0).count()
}
