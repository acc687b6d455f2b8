//! clamd, the daemon of ClamAV.
//!
//! Over its Unix socket it gets an open file: a sealed one in memory, so that what was read once isn't read again. Over TCP it
//! gets the bytes, in the clear: that is for networks where nobody listens.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, Write},
    net::{TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    str::FromStr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use onesweep_sys::{
    memfd,
    peer::{process_of, send_with_file},
};

use super::engine::{Content, EPOCH_BYTES_MAX, Engine, EngineError, EngineId, Verdict};

/// What it is called.
pub const NAME: &str = "clamd";
/// A connection is made within this time.
const CONNECT: Duration = Duration::from_secs(10);
/// It says within this time which it is.
const VERSION: Duration = Duration::from_secs(30);
/// Bytes of an answer, at most.
const ANSWER_BYTES_MAX: u64 = 4096;
/// Bytes that are sent at once over TCP.
const CHUNK_BYTES: usize = 128 << 10;

/// Where a clamd listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// On this machine.
    Unix(PathBuf),
    /// Anywhere: `HOST:PORT`.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse().ok());
        let port: u16 = port.ok_or_else(|| format!("'{text}' is neither the path of a socket nor HOST:PORT"))?;
        if port == 0 { Err("nobody listens at port 0".to_owned()) } else { Ok(Self::Tcp(text.to_owned())) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

/// A clamd. Each question has a connection of its own.
#[derive(Debug)]
pub struct Clamd {
    address: Address,
    /// What is said of its signatures beyond what it says itself.
    epoch: Option<String>,
    patience: Duration,
    /// Who listened at the socket last; 0 where nobody did.
    process: AtomicU32,
}

enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    fn stream(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Unix(stream) => stream,
            Self::Tcp(stream) => stream,
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

impl Clamd {
    /// The clamd at an address, which gets so much time for each content. `epoch` is for signatures that clamd counts no
    /// versions of: those of databases other than main and daily.
    #[must_use]
    pub fn new(address: Address, epoch: Option<String>, patience: Duration) -> Self {
        Self { address, epoch, patience, process: AtomicU32::new(0) }
    }

    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> EngineError + use<> {
        let engine = format!("clamd at {}", self.address);
        move |source| EngineError::Io { engine: engine.clone(), step, source }
    }

    fn connect(&self, patience: Duration) -> Result<Connection, EngineError> {
        let connect = || match &self.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).inspect_err(|_| self.process.store(0, Relaxed))?;
                self.process.store(process_of(stream.as_fd()).ok().flatten().unwrap_or(0), Relaxed);
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                Ok(Connection::Unix(stream))
            }
            Address::Tcp(address) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT) {
                        Ok(stream) => {
                            stream.set_read_timeout(Some(patience))?;
                            stream.set_write_timeout(Some(patience))?;
                            stream.set_nodelay(true)?;
                            return Ok(Connection::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        };
        connect().map_err(self.failed("connect"))
    }

    fn answer(&self, stream: &mut dyn ReadWrite) -> Result<String, EngineError> {
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                EngineError::Failed(format!("clamd at {} has not answered in time", self.address))
            }
            _ => self.failed("read its answer")(error),
        })?;
        let end = answer.iter().position(|byte| matches!(byte, 0 | b'\n')).unwrap_or(answer.len());
        if end == 0 {
            let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "it has closed the connection");
            return Err(self.failed("read its answer")(gone));
        }
        Ok(String::from_utf8_lossy(&answer[..end]).into_owned())
    }

    fn verdict(&self, answer: &str) -> Result<Verdict, EngineError> {
        match said(answer) {
            Said::Clean => Ok(Verdict::Clean),
            Said::Found(name) => Ok(Verdict::infected(name)),
            Said::Failed(why) => Err(EngineError::Failed(format!("clamd: {why}"))),
            Said::Nothing => Err(EngineError::Garbled {
                engine: format!("clamd at {}", self.address),
                said: answer.chars().take(100).collect(),
            }),
        }
    }

    fn hand_over(&self, mut stream: UnixStream, file: BorrowedFd<'_>) -> Result<Verdict, EngineError> {
        // The file goes with a byte that means nothing.
        let send = stream.write_all(b"zFILDES\0").and_then(|()| send_with_file(stream.as_fd(), b"\0", file).map(drop));
        send.map_err(self.failed("hand over a file"))?;
        let answer = self.answer(&mut stream)?;
        self.verdict(&answer)
    }

    fn send(&self, mut stream: TcpStream, content: &mut dyn Read) -> Result<Verdict, EngineError> {
        let send = send_chunks(&mut stream, content);
        // Where it has had enough, it says so and doesn't listen any more.
        match (self.answer(&mut stream), send) {
            (Ok(answer), _) => self.verdict(&answer),
            (Err(_), Err(error)) => Err(self.failed("send a content")(error)),
            (Err(error), Ok(())) => Err(error),
        }
    }
}

fn send_chunks(stream: &mut TcpStream, content: &mut dyn Read) -> io::Result<()> {
    stream.write_all(b"zINSTREAM\0")?;
    let mut chunk = vec![0; 4 + CHUNK_BYTES];
    loop {
        let count = match content.read(&mut chunk[4..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        chunk[..4].copy_from_slice(&(count as u32).to_be_bytes());
        stream.write_all(&chunk[..4 + count])?;
        if count == 0 {
            return Ok(());
        }
    }
}

impl Engine for Clamd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.load(Relaxed)).filter(|pid| *pid != 0)
    }

    fn id(&self) -> Result<EngineId, EngineError> {
        let mut connection = self.connect(self.patience.min(VERSION))?;
        let stream = connection.stream();
        stream.write_all(b"zVERSION\0").map_err(self.failed("ask for its version"))?;
        let answer = self.answer(stream)?;
        let epoch = match &self.epoch {
            Some(more) => format!("{answer} {more}"),
            None => answer.clone(),
        };
        let is_version = answer.starts_with("ClamAV ") && epoch.len() <= EPOCH_BYTES_MAX;
        EngineId::new(NAME, &epoch).filter(|_| is_version).ok_or_else(|| EngineError::Garbled {
            engine: format!("clamd at {}", self.address),
            said: answer.chars().take(100).collect(),
        })
    }

    fn scan(&self, content: Content<'_>) -> Result<Verdict, EngineError> {
        let rewound = |mut file: &File| file.rewind().map_err(self.failed("read a file from its start"));
        match (self.connect(self.patience)?, content) {
            (Connection::Unix(stream), Content::Bytes(bytes)) => {
                let file = memfd::sealed(bytes).map_err(self.failed("make a file in memory"))?;
                self.hand_over(stream, file.as_fd())
            }
            (Connection::Unix(stream), Content::File(file)) => {
                rewound(file)?;
                self.hand_over(stream, file.as_fd())
            }
            (Connection::Tcp(stream), Content::Bytes(mut bytes)) => self.send(stream, &mut bytes),
            (Connection::Tcp(stream), Content::File(mut file)) => {
                rewound(file)?;
                self.send(stream, &mut file)
            }
        }
    }
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    Clean,
    Found(&'a str),
    Failed(&'a str),
    Nothing,
}

/// `fd[9]: OK`, `stream: NAME FOUND`, `fd[9]: why. ERROR`, `INSTREAM size limit exceeded. ERROR`.
fn said(answer: &str) -> Said<'_> {
    let (what, result) = answer.split_once(": ").unwrap_or(("", answer));
    let is_content = what == "stream" || what.starts_with("fd[");
    if let Some(why) = result.strip_suffix(" ERROR") {
        return Said::Failed(why);
    }
    match result.strip_suffix(" FOUND") {
        Some(name) if is_content => Said::Found(name),
        _ if is_content && result == "OK" => Said::Clean,
        _ => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        for (answer, means) in [
            ("fd[9]: OK", Said::Clean),
            ("stream: OK", Said::Clean),
            ("stream: Eicar-Test-Signature FOUND", Said::Found("Eicar-Test-Signature")),
            ("fd[9]: A name: of its own FOUND", Said::Found("A name: of its own")),
            ("INSTREAM size limit exceeded. ERROR", Said::Failed("INSTREAM size limit exceeded.")),
            ("fd[9]: Can't read file ERROR", Said::Failed("Can't read file")),
            ("UNKNOWN COMMAND", Said::Nothing),
            ("OK", Said::Nothing),
            ("/etc/passwd: OK", Said::Nothing),
            ("", Said::Nothing),
        ] {
            assert_eq!(said(answer), means, "{answer}");
        }
    }

    #[test]
    fn addresses_are_sockets_or_hosts() {
        assert_eq!("/run/clamd".parse(), Ok(Address::Unix("/run/clamd".into())));
        assert_eq!("./clamd".parse(), Ok(Address::Unix("./clamd".into())));
        assert_eq!("box:3310".parse(), Ok(Address::Tcp("box:3310".to_owned())));
        for wrong in ["", "box", ":3310", "box:", "box:0", "box:99999"] {
            wrong.parse::<Address>().unwrap_err();
        }
    }
}
