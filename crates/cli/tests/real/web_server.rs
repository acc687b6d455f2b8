//! A server with HTTP over an image, and what GNU du says in its place.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Lines, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{
    image::Image,
    run::{ended, onesweep, output, run, text},
};

pub(crate) const NOBODY: u32 = 65_534;

pub(crate) type Said = Lines<BufReader<ChildStderr>>;

/// A server with HTTP over an image, and tokens of root and of somebody who is no one special.
pub(crate) struct Web {
    running: Child,
    pub(crate) address: SocketAddr,
    pub(crate) root: String,
    pub(crate) nobody: String,
}

impl Web {
    pub(crate) fn start(image: &Image, metrics: &[&Path]) -> Self {
        Self::start_with(image, metrics, &[])
    }

    /// The same with further options.
    pub(crate) fn start_with(image: &Image, metrics: &[&Path], options: &[&OsStr]) -> Self {
        let (web, mut said) = Self::begin(image, metrics, options);
        assert!(said.any(|line| line.expect("a line").contains(" directories harvested in ")), "it knows all");
        web
    }

    /// It answers, and what it knows comes later; what it says.
    pub(crate) fn begin(image: &Image, metrics: &[&Path], options: &[&OsStr]) -> (Self, Said) {
        let tokens = image.beside("tokens");
        let token = |uid: u32| new_token(&tokens, uid);
        let (root, nobody) = (token(0), token(NOBODY));
        let mut serve = onesweep(["serve", "--http", "127.0.0.1:0", "--http-tokens"]);
        serve.arg(&tokens).arg("--socket").arg(image.beside("socket")).arg("--store").arg(image.beside("stores"));
        for path in metrics {
            serve.arg("--metrics").arg(path);
        }
        let mut running = serve.args(options).arg(image.root()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(running.stderr.take().expect("a pipe")).lines();
        let address = said.by_ref().find_map(|line| {
            let line = line.expect("a line");
            line.split_once("http://").map(|(_, rest)| rest.trim_end_matches('/').parse().expect("an address"))
        });
        (Self { running, address: address.expect("it listens"), root, nobody }, said)
    }

    /// All that comes back for a request, head and body.
    pub(crate) fn exchange(&self, request: &str) -> String {
        let mut connection = TcpStream::connect(self.address).expect("it connects");
        // What never answers is no answer.
        connection.set_read_timeout(Some(Duration::from_secs(600))).expect("a time");
        connection.write_all(request.as_bytes()).expect("it is sent");
        let mut said = Vec::new();
        // Of what was refused unread the kernel may say so.
        let _ = connection.read_to_end(&mut said);
        text(&said)
    }

    pub(crate) fn get(&self, token: &str, target: &str) -> (u16, String) {
        let said = self.exchange(&format!(
            "GET {target} HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        ));
        let (head, body) = said.split_once("\r\n\r\n").expect("an empty line");
        (status(head), body.to_owned())
    }

    pub(crate) fn listing(&self, token: &str, query: &str) -> Value {
        let (status, body) = self.get(token, &format!("/api/directory?{query}"));
        assert_eq!(status, 200, "{query}: {body}");
        let mut listing: Value = serde_json::from_str(&body).expect("JSON");
        // These go with the clock, whatever is asked about.
        for moment in ["answered_at", "checked_at"] {
            listing.as_object_mut().expect("an object").remove(moment).expect("it is told");
        }
        listing
    }

    /// Has it read its settings again.
    pub(crate) fn hang_up(&self) {
        run(Command::new("kill").args(["-HUP", &self.running.id().to_string()]));
    }

    /// Ends it in good order, so that what it knows is kept.
    pub(crate) fn end(mut self) {
        run(Command::new("kill").args(["-TERM", &self.running.id().to_string()]));
        assert!(ended(&mut self.running).success());
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

pub(crate) fn new_token(tokens: &Path, uid: u32) -> String {
    let mut make = onesweep(["serve", "--new-token", &uid.to_string(), "--http-tokens"]);
    text(&output(make.arg(tokens))).trim().to_owned()
}

pub(crate) fn status(said: &str) -> u16 {
    said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {said}"))
}

/// What GNU du, run by a user, says of a directory: allocated bytes, bytes, inodes.
pub(crate) fn du(uid: u32, path: &Path) -> [i64; 3] {
    [&["-sB1"][..], &["-sb"], &["-s", "--inodes"]].map(|options| {
        let mut user = Command::new("setpriv");
        user.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "du"]);
        let said = user.args(options).arg(path).output().expect("du runs").stdout;
        text(&said).split('\t').next().and_then(|figure| figure.parse().ok()).expect("a figure")
    })
}

/// The same of `total`, `own` or the like.
pub(crate) fn figures(of: &Value) -> [i64; 3] {
    let figure = |name: &str| of[name].as_i64().unwrap_or_else(|| panic!("no {name}: {of}"));
    [
        figure("allocated"),
        figure("bytes") + figure("directory_bytes"),
        figure("files") + figure("directories") + figure("others"),
    ]
}

pub(crate) fn child<'a>(listing: &'a Value, name: &str) -> &'a Value {
    let children = listing["children"].as_array().expect("a list");
    children.iter().find(|child| child["name"] == name).unwrap_or_else(|| panic!("no {name}: {listing}"))
}

pub(crate) fn tree(root: &Path) {
    for (number, name) in ["a/b", "c", "private/inside", "mixed/shut", "way/home"].into_iter().enumerate() {
        fs::create_dir_all(root.join(name)).expect("a directory");
        for file in 0..=number {
            fs::write(root.join(name).join(format!("f{file}")), vec![1; 3000 * (number + 1)]).expect("a file");
        }
    }
    fs::hard_link(root.join("private/inside/f0"), root.join("c/shared")).expect("a link");
    fs::hard_link(root.join("a/b/f0"), root.join("c/twice")).expect("a link");
    for (name, mode) in [("private", 0o700), ("mixed/shut", 0o744), ("way", 0o711)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
    }
    chown(root.join("way/home"), Some(NOBODY), None).expect("an owner");
    fs::set_permissions(root.join("way/home"), fs::Permissions::from_mode(0o700)).expect("a mode");
    crate::tree::sync(root);
}
