//! A server of blocks and mounts whose reads it answers, on the two hosts of a [`Network`].

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onesweep_peer::mount::METRICS_ATTRIBUTE;
use onesweep_sys::files::xattr_path;
use onesweep_sys::process;

use super::clock::Clock;
use super::network::{Host, Network};
use crate::bench::pipe::{self, Ended};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::scratch::Scratch;

/// Where mounts show their device.
const SHOWN: &str = "shown";
/// Where servers have blocks that are to outlive them.
const STORE: &str = "store";
/// Where a case makes a tree of its own.
pub(super) const FILES: &str = "files";
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the server listens, where what stands between it and the client, and a server that lies.
pub(super) const PORT: u16 = 7497;
pub(super) const RELAY_PORT: u16 = 7498;
pub(super) const LIAR_PORT: u16 = 7499;

/// Both hosts, with the keys of a trust domain.
pub(super) struct Site<'a> {
    pub(super) network: Network,
    pub(super) programs: &'a Programs,
    pub(super) interrupt: &'a Interrupt,
    pub(super) scratch: Scratch,
    keys: PathBuf,
    memory: String,
    server: Option<Process>,
    /// What the server, or a mount, sees instead of the clock of the day.
    pub(super) clock: Option<Clock>,
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        drop(self.server.take());
        // What a mount that was killed has left.
        let _ = crate::mount::run("umount", ["--lazy".as_ref(), self.scratch.file(SHOWN).as_os_str()]);
        // None of these is ever mounted on.
        for full in [self.keys.clone(), self.scratch.file(STORE), self.scratch.file(FILES)] {
            let _ = fs::remove_dir_all(full);
        }
    }
}

impl<'a> Site<'a> {
    /// With a server that has that many MiB of memory for blocks.
    pub(super) fn new(memory_mib: u64, programs: &'a Programs, interrupt: &'a Interrupt) -> Result<Self, String> {
        let scratch = Scratch::new("peer")?;
        let keys = scratch.file("keys");
        let memory = format!("{memory_mib}M");
        let site =
            Self { network: Network::new()?, programs, interrupt, scratch, keys, memory, server: None, clock: None };
        site.scratch.dir(SHOWN)?;
        let dir = site.keys.display().to_string();
        site.run(Host::Client, &["peer", "keys", &dir])?;
        for role in ["server", "client"] {
            site.add_key(role)?;
        }
        Ok(site)
    }

    /// One more certificate, whose role is its name.
    pub(super) fn add_key(&self, role: &str) -> Result<String, String> {
        self.add_key_of(role, role)
    }

    /// One more certificate.
    pub(super) fn add_key_of(&self, name: &str, role: &str) -> Result<String, String> {
        let dir = self.keys.display().to_string();
        self.run(Host::Client, &["peer", "keys", &dir, "--add", name, "--role", role])?;
        Ok(self.keys.join(name).display().to_string())
    }

    pub(super) fn key(&self) -> String {
        self.keys.join("domain.key").display().to_string()
    }

    /// The certificate of a host.
    pub(super) fn identity(&self, host: Host) -> String {
        self.keys.join(host.identity()).display().to_string()
    }

    pub(super) fn words(&self, words: &[&str]) -> Vec<String> {
        let program = self.programs.onesweep.display().to_string();
        [program].into_iter().chain(words.iter().map(|&word| word.to_owned())).collect()
    }

    /// Runs ours to its end on a host, and gives what it printed.
    pub(super) fn run(&self, host: Host, words: &[&str]) -> Result<String, String> {
        self.run_words(host, &self.words(words))
    }

    pub(super) fn run_words(&self, host: Host, words: &[String]) -> Result<String, String> {
        self.run_to(host, words, 0)
    }

    /// The same of a program that ends with another code than 0 when all is well.
    pub(super) fn run_to(&self, host: Host, words: &[String], code: i32) -> Result<String, String> {
        let argv = [self.network.on(host), words.to_vec()].concat();
        let ended: Ended = pipe::run(&argv, self.interrupt)?;
        if ended.code != code {
            return Err(format!("{} ended with {}: {}", words.join(" "), ended.code, ended.complaint));
        }
        Ok(String::from_utf8_lossy(&ended.output).into_owned())
    }

    /// Words of a program that runs on there, under the clock that is set for that host.
    fn clocked(&self, host: Host, words: Vec<String>) -> Vec<String> {
        let clock = self.clock.as_ref().filter(|clock| clock.host == host);
        [clock.map(Clock::words).unwrap_or_default(), words].concat()
    }

    /// The server of blocks, in memory alone.
    pub(super) fn serve(&mut self) -> Result<(), String> {
        self.serve_with(&["--disk", "0"])
    }

    /// The server of blocks, which has them on disk, too: also those of before.
    pub(super) fn serve_with_store(&mut self) -> Result<(), String> {
        let store = self.scratch.file(STORE).display().to_string();
        self.serve_with(&["--store", &store])
    }

    /// What servers have on disk goes. None may run that uses it.
    pub(super) fn remove_store(&self) -> Result<(), String> {
        let store = self.scratch.file(STORE);
        match fs::remove_dir_all(&store) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", store.display())),
            _ => Ok(()),
        }
    }

    fn serve_with(&mut self, store: &[&str]) -> Result<(), String> {
        let listen = format!("{}:{PORT}", Host::Server.address());
        let (key, identity) = (self.key(), self.identity(Host::Server));
        let words = ["peer", "serve", "--memory", &self.memory, "--listen", &listen, "--key", &key, "--tls", &identity];
        let words = self.words(&[&words[..], store].concat());
        let words = self.clocked(Host::Server, words);
        drop(self.server.take());
        let log = self.scratch.file("server.log");
        self.server = Some(Process::start(self.network.command(Host::Server, &words), &log, "listening at ")?);
        Ok(())
    }

    pub(super) fn server(&self) -> Result<&Process, String> {
        self.server.as_ref().ok_or_else(|| "no server".to_owned())
    }

    /// The server is killed. What it had in memory is gone.
    pub(super) fn kill_server(&mut self) {
        drop(self.server.take());
    }

    /// A program of the lab's own on a host, which says a word when it is ready.
    pub(super) fn helper(&self, host: Host, words: &[&str], says: &str) -> Result<Process, String> {
        let program = self.programs.lab.display().to_string();
        let words: Vec<String> = [program].into_iter().chain(words.iter().map(|&word| word.to_owned())).collect();
        self.process(host, &words, says)
    }

    /// Any program on a host.
    pub(super) fn process(&self, host: Host, words: &[String], says: &str) -> Result<Process, String> {
        let log = self.scratch.file(&format!("{}.log", words.get(1).map_or("helper", String::as_str)));
        Process::start(self.network.command(host, words), &log, says)
    }

    pub(super) fn index(&self, index: &Path, device: &Path, more: &[&str]) -> Result<String, String> {
        let (key, index, device) = (self.key(), index.display().to_string(), device.display().to_string());
        let words = ["peer", "index", "--json", "--key", &key, "--index", &index];
        self.run(Host::Client, &[&words, more, &[&device]].concat())
    }

    /// The server gets what is in a file.
    pub(super) fn push(&self, path: &Path) -> Result<String, String> {
        self.push_as(Host::Client.identity(), path, &[])
    }

    /// The same by whom this certificate names.
    pub(super) fn push_as(&self, name: &str, path: &Path, more: &[&str]) -> Result<String, String> {
        let (key, identity) = (self.key(), self.keys.join(name).display().to_string());
        let (server, path) = (format!("{}:{PORT}", Host::Server.address()), path.display().to_string());
        let words = ["peer", "push", "--json", "--server", &server, "--key", &key, "--tls", &identity];
        self.run(Host::Client, &[&words[..], more, &[&path]].concat())
    }

    /// Shows a device whose reads are raced at `dir`, which is new.
    pub(super) fn mount(&self, port: u16, index: &Path, device: &Path, more: &[&str]) -> Result<Raced, String> {
        self.show(port, index, "--device", device, more)
    }

    /// The same of a tree.
    pub(super) fn mount_tree(&self, port: u16, index: &Path, tree: &Path, more: &[&str]) -> Result<Raced, String> {
        self.show(port, index, "--dir", tree, more)
    }

    fn show(&self, port: u16, index: &Path, what: &str, path: &Path, more: &[&str]) -> Result<Raced, String> {
        let (key, identity) = (self.key(), self.identity(Host::Client));
        let (index, path) = (index.display().to_string(), path.display().to_string());
        let dir = self.scratch.file(SHOWN);
        let server = format!("{}:{port}", Host::Server.address());
        let shown = dir.display().to_string();
        let words = ["peer", "mount", "--server", &server, "--key", &key, "--tls", &identity, "--index", &index];
        let words = self.words(&[&words[..], more, &[what, &path, &shown]].concat());
        let words = self.clocked(Host::Client, words);
        let log = self.scratch.file("mount.log");
        let process = Process::start(self.network.command(Host::Client, &words), &log, " is shown at ")?;
        Ok(Raced { process, dir, is_tree: what == "--dir" })
    }
}

/// A program that runs until it is told to end, and writes to a log.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Waits until it has said that.
    fn start(mut command: Command, log: &Path, says: &str) -> Result<Self, String> {
        let said = |error: std::io::Error| format!("{}: {error}", log.display());
        let out = File::create(log).map_err(said)?;
        let err = out.try_clone().map_err(said)?;
        let child = command.stdin(Stdio::piped()).stdout(out).stderr(err).spawn();
        let child = child.map_err(|error| format!("can't run {}: {error}", command.get_program().display()))?;
        let mut process = Self { child, log: log.to_owned() };
        process.wait_for(says).map(|()| process)
    }

    /// Until that is in its log.
    pub(super) fn wait_for(&mut self, says: &str) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while !fs::read_to_string(&self.log).is_ok_and(|log| log.contains(says)) {
            if Instant::now() > until || !self.is_running() {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("it didn't say {says:?}: {}", log.trim()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn input(&mut self) -> Option<&mut ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Stands still, or goes on.
    pub(super) fn hold(&self, is_held: bool) -> Result<(), String> {
        let signal = if is_held { "-STOP" } else { "-CONT" };
        crate::mount::run("kill", [signal, &self.id().to_string()])?;
        // A thread that waits for a processor stops when it gets one.
        let until = Instant::now() + PATIENCE;
        while is_held && !self.stands_still() {
            if Instant::now() > until {
                return Err("it doesn't stop".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn stands_still(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.id())) else { return false };
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// Ends in good order, and gives what it has said.
    pub(super) fn finish(mut self) -> Result<String, String> {
        self.end()?;
        fs::read_to_string(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))
    }

    /// Ends in good order.
    fn end(&mut self) -> Result<(), String> {
        process::terminate(self.id()).map_err(|error| error.to_string())?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Err(format!("it ended with {status}: {}", log.trim()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A device or a tree that is shown, and whose reads are raced. It is taken down when this goes.
pub(super) struct Raced {
    process: Process,
    dir: PathBuf,
    is_tree: bool,
}

impl Raced {
    pub(super) fn block(&self) -> PathBuf {
        self.dir.join("block")
    }

    /// A file of a tree.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The processes of it that serve.
    pub(super) fn serving(&self) -> Vec<u32> {
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
    }

    /// One figure of what it has counted.
    pub(super) fn counted(&self, name: &str) -> Result<u64, String> {
        let text = if self.is_tree {
            let told = xattr_path(&self.dir, METRICS_ATTRIBUTE);
            let told = told.map_err(|error| format!("{}: {error}", self.dir.display()))?;
            String::from_utf8_lossy(&told.unwrap_or_default()).into_owned()
        } else {
            let path = self.dir.join("metrics");
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?
        };
        figure(&text, name).ok_or_else(|| format!("{}: no {name}", self.dir.display()))
    }

    /// Requests without use beyond what is allowed, whatever happened: 8 at the start, 4 % of the reads, two for each that a server
    /// answered, and one for each change of the network.
    pub(super) fn over_budget(&self) -> Result<u64, String> {
        // First, so that what happens meanwhile is allowed.
        let extra = self.counted("requests_extra")?;
        let [reads, won, networks] = ["reads", "reads_remote", "network_changes"].map(|name| self.counted(name));
        Ok(extra.saturating_sub(8 + reads? / 25 + 2 * won? + networks?))
    }

    /// What a server is asked for is answered: it is connected to.
    pub(super) fn wait_for_server(&self, interrupt: &Interrupt) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while self.counted("server_usable")? == 0 {
            interrupt.check()?;
            if Instant::now() > until {
                return Err("the server isn't reached".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Both of its processes at once, without a word.
    pub(super) fn kill(&mut self) {
        for child in self.serving() {
            let _ = process::kill_group(child);
        }
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
    }

    pub(super) fn end(mut self) -> Result<(), String> {
        self.process.end()
    }
}

impl Drop for Raced {
    fn drop(&mut self) {
        if self.process.is_running() {
            let _ = self.process.end();
        }
    }
}

/// The value of a sample, with or without labels.
fn figure(text: &str, name: &str) -> Option<u64> {
    let name = format!("onesweep_peer_mount_{name}");
    let line = text.lines().find(|line| {
        line.strip_prefix(&name).is_some_and(|rest| rest.trim_start_matches("_total").starts_with([' ', '{']))
    });
    line?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_names() {
        let text = "# TYPE onesweep_peer_mount_requests counter\nonesweep_peer_mount_requests_total 5\n\
            onesweep_peer_mount_requests_extra_total 2\nonesweep_peer_mount_server_usable{server=\"a:1\"} 1\n";
        assert_eq!(figure(text, "requests"), Some(5));
        assert_eq!(figure(text, "requests_extra"), Some(2));
        assert_eq!((figure(text, "server_usable"), figure(text, "server")), (Some(1), None));
    }
}
