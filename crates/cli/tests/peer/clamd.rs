//! A real clamd with a configuration and one signature of our own: the EICAR text, wherever it stands in a file.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// What all scanners call a virus, and what is none. In two parts, so that this file is none for them.
pub(crate) fn eicar() -> Vec<u8> {
    ["X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR-", "STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"].concat().into_bytes()
}

/// What the signature calls it; clamd says so of signatures that are not its makers'.
pub(crate) const NAME: &str = "Test.Eicar.UNOFFICIAL";

pub(crate) struct Clamd {
    child: Child,
    pub(crate) socket: PathBuf,
    /// A TCP address.
    pub(crate) address: String,
}

impl Clamd {
    /// Started in a folder of its own, with more lines of configuration.
    pub(crate) fn start(dir: &Path, more: &str) -> Clamd {
        let dir = dir.join("clamd");
        fs::create_dir_all(dir.join("signatures")).unwrap();
        let digits: String = eicar().iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(dir.join("signatures/own.ndb"), format!("Test.Eicar:0:*:{digits}\n")).unwrap();
        let socket = dir.join("socket");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // As root it would become its own user, who may not come here.
        let user = if rustix::process::geteuid().is_root() { "User root\n" } else { "" };
        let config = format!(
            "Foreground yes\nLocalSocket {}\nDatabaseDirectory {}\nTCPSocket {}\nTCPAddr 127.0.0.1\n{user}{more}\n",
            socket.display(),
            dir.join("signatures").display(),
            free.port(),
        );
        fs::write(dir.join("clamd.conf"), config).unwrap();
        let path = format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("clamd");
        command.env("PATH", path).arg("-c").arg(dir.join("clamd.conf")).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("clamd: {error}; try `make deps`"));
        let mut clamd = Clamd { child, socket, address: free.to_string() };
        let until = Instant::now() + Duration::from_secs(60);
        while !clamd.answers() {
            assert!(Instant::now() < until && clamd.child.try_wait().unwrap().is_none(), "clamd doesn't start");
            std::thread::sleep(Duration::from_millis(20));
        }
        clamd
    }

    fn answers(&self) -> bool {
        let ask = || {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.write_all(b"zPING\0")?;
            let mut said = String::new();
            stream.read_to_string(&mut said)?;
            Ok::<_, std::io::Error>(said)
        };
        ask().is_ok_and(|said| said == "PONG\0")
    }
}

impl Drop for Clamd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
