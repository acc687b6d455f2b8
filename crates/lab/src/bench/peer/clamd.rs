//! A real clamd with a configuration and one signature of our own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::series::said;
use crate::interrupt::Interrupt;

const PATIENCE: Duration = Duration::from_secs(60);
const FILES: [&str; 4] = ["clamd.conf", "clamd.log", "clamd.socket", "signatures"];
/// What the signature is of; no block of known bytes holds it.
pub(super) const INFECTED: &str = "what the scanner of this bench is told to find";

/// It ends when this goes, with what it has.
pub(super) struct Clamd {
    child: Child,
    dir: PathBuf,
}

impl Clamd {
    /// In a directory that is there already.
    pub(super) fn start(dir: &Path, interrupt: &Interrupt) -> Result<Self, String> {
        let [config, log, socket, signatures] = FILES.map(|name| dir.join(name));
        fs::create_dir(&signatures).map_err(said(&signatures))?;
        let digits: String = INFECTED.bytes().map(|byte| format!("{byte:02x}")).collect();
        let own = signatures.join("own.ndb");
        fs::write(&own, format!("Bench:0:*:{digits}\n")).map_err(said(&own))?;
        // As root it would become its own user, who may not come here.
        let words = format!(
            "Foreground yes\nUser root\nLogFile {}\nLocalSocket {}\nDatabaseDirectory {}\n",
            log.display(),
            socket.display(),
            signatures.display()
        );
        fs::write(&config, words).map_err(said(&config))?;
        let mut command = Command::new("clamd");
        command.arg("--config-file").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("can't run clamd: {error}; try `make deps`"))?;
        let mut clamd = Self { child, dir: dir.to_owned() };
        let until = Instant::now() + PATIENCE;
        while !clamd.answers() {
            interrupt.check()?;
            if Instant::now() > until || !matches!(clamd.child.try_wait(), Ok(None)) {
                let log = fs::read_to_string(log).unwrap_or_default();
                return Err(format!("clamd doesn't answer: {}", log.trim()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(clamd)
    }

    pub(super) fn socket(&self) -> String {
        self.dir.join("clamd.socket").display().to_string()
    }

    pub(super) fn config(&self) -> String {
        self.dir.join("clamd.conf").display().to_string()
    }

    fn answers(&self) -> bool {
        let ask = || {
            let mut stream = UnixStream::connect(self.socket())?;
            stream.write_all(b"zPING\0")?;
            let mut told = String::new();
            stream.read_to_string(&mut told)?;
            Ok::<_, std::io::Error>(told)
        };
        ask().is_ok_and(|told| told == "PONG\0")
    }
}

impl Drop for Clamd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for name in FILES {
            let _ = fs::remove_file(self.dir.join("signatures").join("own.ndb"));
            let path = self.dir.join(name);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
    }
}
