//! `peer mount` whose server is above an engine: reads come from there, what is written through it comes there, and an engine that
//! stands still costs no byte.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write as _},
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::{
    processes::{Cluster, Moto, RedisServer},
    s3,
    site::{BLOCKS, Serving, Site, program},
    support::{block, eventually},
};

const BLOCK: u64 = 4096;
/// Blocks that are written while all is well, and while the engine stands still: none of the image.
const WRITTEN: std::ops::Range<u32> = 1000..1020;
const WRITTEN_LATER: std::ops::Range<u32> = 2000..2005;

/// What is asked of an engine that is a process, or several.
trait Engine {
    fn address(&self) -> String;
    /// Blocks that it has.
    fn blocks(&self) -> u64;
    /// It, or a part of it.
    fn signal(&self, signal: &str);
}

impl Engine for RedisServer {
    fn address(&self) -> String {
        format!("redis://127.0.0.1:{}?timeout=2s", self.port)
    }

    fn blocks(&self) -> u64 {
        self.keys()
    }

    fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }
}

impl Engine for Cluster {
    fn address(&self) -> String {
        Cluster::address(self)
    }

    fn blocks(&self) -> u64 {
        self.nodes.iter().map(RedisServer::keys).sum()
    }

    fn signal(&self, signal: &str) {
        self.nodes[1].process.signal(signal);
    }
}

impl Engine for Moto {
    fn address(&self) -> String {
        s3::address(self, "")
    }

    fn blocks(&self) -> u64 {
        s3::objects(self) as u64
    }

    fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }
}

/// Whether nothing can be mounted here; says why.
fn is_skipped() -> bool {
    let reason = match fs::metadata("/proc/self").unwrap().uid() == 0 {
        false => "not root",
        true if fs::metadata("/dev/fuse").is_err() => "no /dev/fuse",
        true => return false,
    };
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", std::thread::current().name().unwrap_or("a test"));
    true
}

/// The image of a site as a mount shows it; the mount ends with this.
struct Mounted {
    child: Child,
    dir: PathBuf,
}

impl Mounted {
    fn start(site: &Site, server: &Serving<'_>) -> Self {
        let dir = site.path("shown");
        fs::create_dir(&dir).unwrap();
        let mut mount = program();
        mount.args(["peer", "mount", "--policy", "quiet-disk", "--write-through", "--server", &server.address]);
        mount.arg("--key").arg(site.path("keys/domain.key")).arg("--tls").arg(site.path("keys/notebook"));
        mount.arg("--index").arg(site.path("index")).arg("--device").arg(site.path("image")).arg(&dir);
        let mut child = mount.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mounted = Self { child, dir };
        assert!(said.any(|line| line.contains(" is shown at ")), "it did not come up");
        std::thread::spawn(move || said.for_each(drop));
        eventually("the server is reached", || mounted.figure("server_usable") == 1);
        mounted
    }

    fn figure(&self, name: &str) -> u64 {
        let told = fs::read_to_string(self.dir.join("metrics")).unwrap();
        let value = |line: &str| {
            let rest = line.strip_prefix("onesweep_peer_mount_")?.strip_prefix(name)?;
            let rest = rest.strip_prefix("_total").unwrap_or(rest);
            rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next().unwrap().parse().unwrap())
        };
        told.lines().find_map(value).unwrap_or_else(|| panic!("{name}: {told}"))
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(self.dir.join("block")).unwrap()
    }

    fn terminate(&mut self) -> Option<i32> {
        // It may have ended by itself.
        let _ = Command::new("kill").arg(self.child.id().to_string()).output();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.terminate();
        }
    }
}

fn is_read_and_written_above(engine: &impl Engine) {
    if is_skipped() {
        return;
    }
    let site = Site::new();
    let first = Serving::start(&site, &engine.address());
    assert_eq!(first.push(), (0, u64::from(BLOCKS)));
    eventually("all is written", || first.figure("store_engine_written") == u64::from(BLOCKS));
    drop(first);
    let mut index = program();
    index.args(["peer", "index", "--key"]).arg(site.path("keys/domain.key")).arg("--index").arg(site.path("index"));
    assert!(index.arg(site.path("image")).output().unwrap().status.success());

    // It has no memory of its own: what it sends, the engine has.
    let second = Serving::start(&site, &engine.address());
    let mut mounted = Mounted::start(&site, &second);
    let file = mounted.file();
    let mut contents: Vec<u32> = (0..BLOCKS).collect();
    let are_read = |contents: &[u32]| {
        for (content, at) in contents.iter().zip(0..) {
            let mut bytes = vec![0; BLOCK as usize];
            file.read_exact_at(&mut bytes, at * BLOCK).unwrap();
            assert!(bytes == block(*content).1, "block {at} is not {content}");
        }
    };
    let write = |contents: &mut [u32], from: usize, new: std::ops::Range<u32>| {
        for (at, content) in (from..).zip(new) {
            file.write_all_at(&block(content).1, at as u64 * BLOCK).unwrap();
            contents[at] = content;
        }
        file.sync_all().unwrap();
    };
    are_read(&contents);
    let (remote, hits) = (mounted.figure("reads_remote"), second.figure("store_engine_hits"));
    assert!(remote > 0 && hits >= remote, "{remote} from the server, {hits} of the engine");

    write(&mut contents, 10, WRITTEN);
    eventually("all is sent", || mounted.figure("offers_waiting") == 0);
    let blocks = u64::from(BLOCKS) + WRITTEN.len() as u64;
    eventually("the engine has what was written", || engine.blocks() == blocks);
    are_read(&contents);

    engine.signal("-STOP");
    are_read(&contents);
    write(&mut contents, 100, WRITTEN_LATER);
    are_read(&contents);
    engine.signal("-CONT");
    are_read(&contents);
    drop(file);
    assert_eq!(mounted.terminate(), Some(0));
    // What the engine couldn't take is sent by whoever fills it.
    let blocks = blocks + WRITTEN_LATER.len() as u64;
    eventually("the engine has all", || {
        second.push();
        engine.blocks() == blocks
    });
    let image = fs::read(site.path("image")).unwrap();
    assert!(image == contents.iter().flat_map(|content| block(*content).1).collect::<Vec<_>>(), "the disk has it all");
}

#[test]
fn a_mount_reads_from_a_redis_server_and_writes_through_to_it() {
    let dir = tempfile::tempdir().unwrap();
    is_read_and_written_above(&RedisServer::start(dir.path(), &[]));
}

#[test]
fn a_mount_reads_from_a_cluster_and_writes_through_to_it() {
    is_read_and_written_above(&Cluster::start());
}

#[test]
fn a_mount_reads_from_s3_and_writes_through_to_it() {
    is_read_and_written_above(&s3::start());
}
