//! The requests that reach a disk, as the block layer's own trace shows them.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{
    image::{Folder, Image},
    run::run,
};

/// A read request as it was issued to the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The device's numbers.
    pub(crate) device: (u32, u32),
    /// First byte on the device.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// True for what the file system marks as metadata: inodes, directories, maps.
    pub(crate) metadata: bool,
    /// The class of its priority: `none`, `rt`, `be` or `idle`. `None` where the kernel's trace doesn't show it.
    pub(crate) class: Option<String>,
    /// The thread that asked.
    pub(crate) thread: String,
}

impl Request {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The read requests that reach the image's devices while `what` runs, in the order of issue.
fn reads(image: &Image, what: impl FnOnce()) -> Vec<Request> {
    let instance = Instance::new(&image.device_numbers());
    instance.write("tracing_on", "1");
    what();
    instance.write("tracing_on", "0");
    instance.lines().lines().filter_map(read_request).collect()
}

/// The read requests of an archiver that starts with cold caches. It writes into a pipe that somebody reads: tar leaves
/// out all reading when its output is /dev/null.
pub(crate) fn from_cold(image: &mut Image, mut archiver: Command) -> Vec<Request> {
    image.cold();
    reads(image, || {
        let mut running = archiver.stdout(Stdio::piped()).spawn().expect("the archiver starts");
        let mut out = running.stdout.take().expect("a pipe");
        std::io::copy(&mut out, &mut std::io::sink()).expect("an archive");
        assert!(running.wait().expect("the archiver ends").success(), "{archiver:?}");
    })
}

/// The read requests of a command that starts with cold caches.
pub(crate) fn of_command(image: &mut Image, mut command: Command) -> Vec<Request> {
    image.cold();
    reads(image, || run(&mut command))
}

/// A ring buffer of our own: traces of other programs don't meet it, and it ends with the test.
struct Instance {
    folder: PathBuf,
    _tracefs: Option<Folder>,
}

impl Instance {
    fn new(devices: &[(u32, u32)]) -> Self {
        let (tracefs, mounted) = tracefs();
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = tracefs.join(format!("instances/onesweep-test-{}-{number}", std::process::id()));
        fs::create_dir(&folder).expect("a trace instance");
        let instance = Self { folder, _tracefs: mounted };
        instance.write("tracing_on", "0");
        // One clock for all processors, else requests from two of them may change places.
        instance.write("trace_clock", "global");
        instance.write("buffer_size_kb", "16384");
        // The kernel's own dev_t, not that of stat(2).
        let device = |&(major, minor): &(u32, u32)| (u64::from(major) << 20) | u64::from(minor);
        let is_one: Vec<String> = devices.iter().map(|numbers| format!("dev == {}", device(numbers))).collect();
        instance.write("events/block/block_rq_issue/filter", &is_one.join(" || "));
        instance.write("events/block/block_rq_issue/enable", "1");
        instance
    }

    fn write(&self, file: &str, value: &str) {
        let file = self.folder.join(file);
        fs::write(&file, value).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }

    fn lines(&self) -> String {
        for cpu in fs::read_dir(self.folder.join("per_cpu")).expect("the processors").flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).expect("figures of the buffer");
            assert!(stats.lines().any(|line| line == "overrun: 0"), "the trace buffer was too small:\n{stats}");
        }
        String::from_utf8_lossy(&fs::read(self.folder.join("trace")).expect("the trace")).into_owned()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The machine's tracefs, or one mounted for the while of a trace.
fn tracefs() -> (PathBuf, Option<Folder>) {
    let usual = PathBuf::from("/sys/kernel/tracing");
    if usual.join("instances").exists() {
        return (usual, None);
    }
    let folder = Folder::new();
    let point = folder.join("tracing");
    fs::create_dir(&point).expect("a mount point");
    run(Command::new("mount").args(["-t", "tracefs", "none"]).arg(&point));
    (point, Some(folder))
}

/// The read request that a line tells of:
/// `tar-123 [001] d..1. 12.5: block_rq_issue: 7,0 RM 4096 () 18496 + 8 none,0,0 [tar]`.
fn read_request(line: &str) -> Option<Request> {
    let (_, event) = line.split_once(" block_rq_issue: ")?;
    let mut words = event.split(' ');
    let (major, minor) = words.next()?.split_once(',')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let kind = words.next()?;
    if !kind.starts_with('R') {
        return None;
    }
    let bytes = words.next()?.parse().ok()?;
    // The command of a pass-through request; empty parentheses for all others.
    let _command = words.next()?;
    let sector: u64 = words.next()?.parse().ok()?;
    let (asked, thread) = event.rsplit_once('[')?;
    let class = asked.trim_end().rsplit(' ').next()?.split_once(',').map(|(class, _)| class.to_owned());
    let thread = thread.trim_end_matches(']').to_owned();
    Some(Request { device, start: sector * 512, bytes, metadata: kind.contains('M'), class, thread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let line = " tar-123     [001] d..1.  12.5: block_rq_issue: 7,0 RAM 4096 () 18496 + 8 none,0,0 [a b]";
        assert_eq!(
            read_request(line),
            Some(Request {
                device: (7, 0),
                start: 18496 * 512,
                bytes: 4096,
                metadata: true,
                class: Some("none".into()),
                thread: "a b".into()
            })
        );
        let line = " tar-123     [001] d..1.  12.5: block_rq_issue: 7,0 RA 8192 () 8 + 16 [tar]";
        assert_eq!(
            read_request(line),
            Some(Request {
                device: (7, 0),
                start: 4096,
                bytes: 8192,
                metadata: false,
                class: None,
                thread: "tar".into()
            })
        );
        let write = " k-1 [000] d..1. 12.5: block_rq_issue: 7,0 WS 4096 () 18496 + 8 none,0,0 [k]";
        assert_eq!(read_request(write), None);
        assert_eq!(read_request("# entries-in-buffer/entries-written: 0/0"), None);
    }
}
