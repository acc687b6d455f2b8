//! A server over images.

use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    image::Image,
    run::{ended, onesweep, run},
};

/// A server over an image; ended and waited for when it is dropped.
pub(crate) struct Serving {
    pub(crate) running: Child,
    pub(crate) socket: PathBuf,
}

impl Serving {
    pub(crate) fn start(image: &Image) -> Self {
        Self::start_on(&[image])
    }

    /// One server over several; what it keeps lies beside the first.
    pub(crate) fn start_on(images: &[&Image]) -> Self {
        Self::start_with(images, &[])
    }

    /// The same with further options.
    pub(crate) fn start_with(images: &[&Image], options: &[&OsStr]) -> Self {
        let mut serve = onesweep(["serve", "--store"]);
        serve.arg(images[0].beside("stores")).args(options).args(images.iter().map(|image| image.root()));
        Self::run(serve, images[0])
    }

    /// The same with a folder for what it keeps.
    pub(crate) fn start_keeping(images: &[&Image], stores: &Path, options: &[&str]) -> Self {
        let mut serve = onesweep(["serve", "--store"]);
        serve.arg(stores).args(options).args(images.iter().map(|image| image.root()));
        Self::run(serve, images[0])
    }

    /// By a file of settings that names the file systems.
    pub(crate) fn start_by(image: &Image, settings: &Path) -> Self {
        let mut serve = onesweep(["serve", "--config"]);
        serve.arg(settings).arg("--store").arg(image.beside("stores"));
        Self::run(serve, image)
    }

    /// The same by a command that lacks but the socket, which lies beside the image.
    pub(crate) fn run(mut serve: Command, image: &Image) -> Self {
        let socket = image.beside("socket");
        serve.arg("--socket").arg(&socket);
        let mut running = serve.stderr(Stdio::piped()).spawn().expect("it starts");
        while UnixStream::connect(&socket).is_err() {
            assert!(running.try_wait().expect("its state").is_none(), "the server ended");
            thread::sleep(Duration::from_millis(5));
        }
        Self { running, socket }
    }

    pub(crate) fn du(&self, options: &[&str], path: &Path) -> Command {
        let mut du = onesweep(["du", "--socket"]);
        du.arg(&self.socket).args(options).arg(path);
        du
    }

    /// Ends it in good order, and gives what it said.
    pub(crate) fn end(mut self) -> String {
        run(Command::new("kill").args(["-TERM", &self.running.id().to_string()]));
        assert!(ended(&mut self.running).success());
        assert!(!self.socket.exists());
        self.said()
    }

    /// Kills it, and gives what it said.
    pub(crate) fn kill(mut self) -> String {
        self.running.kill().expect("it is killed");
        self.running.wait().expect("it is gone");
        self.said()
    }

    /// The same when all that it has harvested first is stored: who asks is answered before that.
    pub(crate) fn kill_when_stored(mut self) -> String {
        let mut from = BufReader::new(self.running.stderr.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("what was harvested is stored") {
            assert!(from.read_line(&mut said).expect("it says something") > 0, "{said}");
        }
        self.running.kill().expect("it is killed");
        self.running.wait().expect("it is gone");
        from.read_to_string(&mut said).expect("it ends");
        said
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        // Somebody may have taken it before.
        if let Some(mut from) = self.running.stderr.take() {
            io::Read::read_to_string(&mut from, &mut said).expect("it ends");
        }
        said
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}
