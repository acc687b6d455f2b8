//! The program itself above an engine, by TLS, with certificates that `peer keys` makes.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use onesweep_peer::{
    client::{Peers, Settings},
    id::TrustDomain,
    tls::Identity,
};

use crate::support::{LONG, block};

/// Of the image.
pub(crate) const BLOCKS: u32 = 200;

pub(crate) fn program() -> Command {
    Command::new(std::env::var_os("ONESWEEP_PROGRAM").expect("ONESWEEP_PROGRAM names it (make engines-test sets it)"))
}

/// A figure of what `--json` says.
pub(crate) fn told_figure(told: &str, name: &str) -> u64 {
    let (_, rest) = told.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {told}"));
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Keys of a site, and an image.
pub(crate) struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self { dir: tempfile::tempdir().unwrap() };
        site.keys("keys", &[]);
        site.keys("keys", &["--add", "box", "--role", "server"]);
        site.keys("keys", &["--add", "notebook", "--role", "client"]);
        let image: Vec<u8> = (0..BLOCKS).flat_map(|n| block(n).1).collect();
        fs::write(site.path("image"), image).unwrap();
        site
    }

    pub(crate) fn keys(&self, dir: &str, options: &[&str]) {
        let output = program().args(["peer", "keys"]).arg(self.path(dir)).args(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn domain(&self) -> TrustDomain {
        TrustDomain::read(&self.path("keys/domain.key")).unwrap()
    }
}

pub(crate) struct Serving<'a> {
    child: Child,
    pub(crate) address: String,
    site: &'a Site,
}

impl<'a> Serving<'a> {
    /// At all addresses, and without memory for blocks, so that all of them come from the engine.
    pub(crate) fn start(site: &'a Site, engine: &str) -> Self {
        let mut serve = program();
        serve.args(["peer", "serve", "--listen", "0.0.0.0:0", "--memory", "0", "--engine", engine]);
        serve.arg("--tls").arg(site.path("keys/box")).arg("--key").arg(site.path("keys/domain.key"));
        serve.arg("--store").arg(site.path("store"));
        serve.envs([("AWS_ACCESS_KEY_ID", "testing"), ("AWS_SECRET_ACCESS_KEY", "testing")]);
        let mut child = serve.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let port = said
            .find_map(|line| {
                let place = line.split_once("listening at ")?.1.split(',').next()?.to_owned();
                Some(place.rsplit_once(':')?.1.to_owned())
            })
            .expect("it says where it listens");
        std::thread::spawn(move || said.for_each(drop));
        Self { child, address: format!("127.0.0.1:{port}"), site }
    }

    pub(crate) fn try_ask(&self, words: &[&str], identity: Option<&str>, of: Option<&Path>) -> Output {
        let mut command = program();
        command.arg("peer").args(words).args(["--server", &self.address]);
        command.arg("--key").arg(self.site.path("keys/domain.key"));
        if let Some(identity) = identity {
            command.arg("--tls").arg(self.site.path(identity));
        }
        command.args(of).output().unwrap()
    }

    fn ask(&self, words: &[&str], of: Option<&Path>) -> String {
        let output = self.try_ask(words, Some("keys/notebook"), of);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// How many blocks of the image were known, and how many were sent.
    pub(crate) fn push(&self) -> (u64, u64) {
        let told = self.ask(&["push", "--json"], Some(&self.site.path("image")));
        (told_figure(&told, "known_blocks"), told_figure(&told, "sent_blocks"))
    }

    pub(crate) fn figure(&self, name: &str) -> u64 {
        let told = self.ask(&["stat", "--metrics"], None);
        let value =
            |line: &str| line.strip_prefix("onesweep_peer_")?.strip_prefix(name)?.strip_prefix("_total ")?.parse().ok();
        told.lines().find_map(value).unwrap_or_else(|| panic!("{name}: {told}"))
    }

    pub(crate) fn peers(&self) -> Peers {
        let tls = Identity::read(&self.site.path("keys/notebook")).unwrap().into_client().unwrap();
        // The machine may be busy with anything.
        let settings = Settings { silence: LONG, ..Settings::encrypted(self.site.domain(), tls) };
        let peers = Peers::connect([self.address.clone()], settings).unwrap();
        assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
        peers
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
