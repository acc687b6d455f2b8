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
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_sys::{
    memfd,
    peer::{connect_unix, process_of, send_with_file},
};

use super::engine::{Content, EPOCH_BYTES_MAX, Engine, EngineError, EngineId, Verdict};

/// What it is called.
pub const NAME: &str = "clamd";
/// A connection is made within this time.
const CONNECT: Duration = Duration::from_secs(10);
/// It says within this time which it is.
const VERSION: Duration = Duration::from_secs(30);
/// How long it may take until a stop is heeded.
const LOOK: Duration = Duration::from_millis(50);
/// After a stop it may say for so long which it is: without that, what was found before can't be kept.
const LAST_WORD: Duration = Duration::from_secs(1);
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
    stop: Arc<AtomicBool>,
    /// Who listened at the socket last; 0 where nobody did.
    process: AtomicU32,
}

/// How long one call may wait.
#[derive(Clone, Debug)]
struct Wait {
    patience: Duration,
    stop: Arc<AtomicBool>,
    /// For so long after a stop.
    last: Duration,
}

impl Wait {
    /// Tries until it is done, or has failed for another reason than that it has to wait. One try waits for [`LOOK`] at most.
    fn during<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let since = Instant::now();
        let mut stopped = None;
        loop {
            match attempt() {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                done => return done,
            }
            if self.stop.load(Relaxed) && stopped.get_or_insert_with(Instant::now).elapsed() >= self.last {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if since.elapsed() >= self.patience {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Whether nothing more is to be begun.
    fn is_over(&self) -> bool {
        self.last.is_zero() && self.stop.load(Relaxed)
    }
}

/// A connection on which each call may wait for so long.
struct Line<S> {
    stream: S,
    wait: Wait,
}

impl<S: Read> Read for Line<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Self { stream, wait } = self;
        wait.during(|| stream.read(bytes))
    }
}

impl<S: Write> Write for Line<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { stream, wait } = self;
        wait.during(|| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

enum Connection {
    Unix(Line<UnixStream>),
    Tcp(Line<TcpStream>),
}

impl Connection {
    fn stream(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Unix(line) => line,
            Self::Tcp(line) => line,
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn connect_tcp(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// In a thread of its own, since neither looking a name up nor connecting can be ended. It is left alone where nobody waits any more.
fn begin_tcp(address: &str) -> io::Result<mpsc::Receiver<io::Result<TcpStream>>> {
    let (tell, told) = mpsc::channel();
    let address = address.to_owned();
    thread::Builder::new().name("connect".into()).spawn(move || {
        let _ = tell.send(connect_tcp(&address));
    })?;
    Ok(told)
}

impl Clamd {
    /// The clamd at an address, which gets so much time for each content. `epoch` is for signatures that clamd counts no
    /// versions of: those of databases other than main and daily.
    #[must_use]
    pub fn new(address: Address, epoch: Option<String>, patience: Duration) -> Self {
        Self { address, epoch, patience, stop: Arc::default(), process: AtomicU32::new(0) }
    }

    /// When this is set, nothing is waited for any more: [`EngineError::Stopped`]. Which it is, it may still say at once.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> EngineError + use<> {
        let engine = format!("clamd at {}", self.address);
        move |source| EngineError::Io { engine: engine.clone(), step, source }
    }

    /// As it failed, or stopped where that was asked for meanwhile.
    fn ended<T>(&self, ended: Result<T, EngineError>) -> Result<T, EngineError> {
        ended.map_err(|error| if self.stop.load(Relaxed) { EngineError::Stopped } else { error })
    }

    fn wait(&self, patience: Duration, last: Duration) -> Wait {
        Wait { patience, stop: Arc::clone(&self.stop), last }
    }

    fn connect(&self, wait: Wait) -> Result<Connection, EngineError> {
        let connect = || match &self.address {
            Address::Unix(path) => {
                // As many may wait there already as can.
                let connected = wait.during(|| {
                    connect_unix(path).inspect_err(|error| {
                        if error.kind() == io::ErrorKind::WouldBlock {
                            thread::sleep(LOOK);
                        }
                    })
                });
                let stream = connected.inspect_err(|_| self.process.store(0, Relaxed))?;
                self.process.store(process_of(stream.as_fd()).ok().flatten().unwrap_or(0), Relaxed);
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(LOOK))?;
                Ok(Connection::Unix(Line { stream, wait }))
            }
            Address::Tcp(address) => {
                let told = begin_tcp(address)?;
                let stream = wait.during(|| match told.recv_timeout(LOOK) {
                    Ok(connected) => connected.map_err(|error| match error.kind() {
                        // It has waited for as long as it may.
                        io::ErrorKind::TimedOut => io::Error::other(error),
                        _ => error,
                    }),
                    Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the thread that connects has ended")),
                })?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(LOOK))?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(Line { stream, wait }))
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

    fn ask_which(&self) -> Result<EngineId, EngineError> {
        let mut connection = self.connect(self.wait(self.patience.min(VERSION), LAST_WORD))?;
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

    fn look_at(&self, content: Content<'_>) -> Result<Verdict, EngineError> {
        let rewound = |mut file: &File| file.rewind().map_err(self.failed("read a file from its start"));
        match (self.connect(self.wait(self.patience, Duration::ZERO))?, content) {
            (Connection::Unix(line), Content::Bytes(bytes)) => {
                let file = memfd::sealed(bytes).map_err(self.failed("make a file in memory"))?;
                self.hand_over(line, file.as_fd())
            }
            (Connection::Unix(line), Content::File(file)) => {
                rewound(file)?;
                self.hand_over(line, file.as_fd())
            }
            (Connection::Tcp(line), Content::Bytes(mut bytes)) => self.send(line, &mut bytes),
            (Connection::Tcp(line), Content::File(mut file)) => {
                rewound(file)?;
                self.send(line, &mut file)
            }
        }
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

    fn hand_over(&self, mut line: Line<UnixStream>, file: BorrowedFd<'_>) -> Result<Verdict, EngineError> {
        let mut send = || {
            line.write_all(b"zFILDES\0")?;
            // The file goes with a byte that means nothing.
            let Line { stream, wait } = &line;
            wait.during(|| send_with_file(stream.as_fd(), b"\0", file))
        };
        send().map_err(self.failed("hand over a file"))?;
        let answer = self.answer(&mut line)?;
        self.verdict(&answer)
    }

    fn send(&self, mut line: Line<TcpStream>, content: &mut dyn Read) -> Result<Verdict, EngineError> {
        let send = send_chunks(&mut line, content);
        // Where it has had enough, it says so and doesn't listen any more.
        match (self.answer(&mut line), send) {
            (Ok(answer), _) => self.verdict(&answer),
            (Err(_), Err(error)) => Err(self.failed("send a content")(error)),
            (Err(error), Ok(())) => Err(error),
        }
    }
}

fn send_chunks(line: &mut Line<TcpStream>, content: &mut dyn Read) -> io::Result<()> {
    line.write_all(b"zINSTREAM\0")?;
    let mut chunk = vec![0; 4 + CHUNK_BYTES];
    loop {
        if line.wait.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let count = match content.read(&mut chunk[4..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        chunk[..4].copy_from_slice(&(count as u32).to_be_bytes());
        line.write_all(&chunk[..4 + count])?;
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
        self.ended(self.ask_which())
    }

    fn scan(&self, content: Content<'_>) -> Result<Verdict, EngineError> {
        if self.stop.load(Relaxed) {
            return Err(EngineError::Stopped);
        }
        self.ended(self.look_at(content))
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
    use std::{net::TcpListener, os::unix::net::UnixListener};

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

    /// Who never says anything, and takes nobody: those who wait to be taken fill its list.
    #[test]
    fn nobody_is_waited_for_after_a_stop() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let long = Duration::from_secs(100_000);
        let ask = |address: Address| {
            let stop = Arc::new(AtomicBool::new(false));
            let clamd = Clamd::new(address, None, long).stopped_by(Arc::clone(&stop));
            let asked = thread::scope(|scope| {
                let asked =
                    [scope.spawn(|| clamd.scan(Content::Bytes(b"x")).map(drop)), scope.spawn(|| clamd.id().map(drop))];
                thread::sleep(LOOK);
                stop.store(true, Relaxed);
                asked.map(|asked| asked.join().unwrap())
            });
            assert!(asked.iter().all(|asked| matches!(asked, Err(EngineError::Stopped))), "{asked:?}");
        };
        ask(Address::Tcp(tcp.local_addr().unwrap().to_string()));
        ask(Address::Unix(socket.clone()));
        // As many as may wait are more than a process may have open, usually.
        onesweep_sys::limits::raise_open_files().unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect_unix(&socket) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        ask(Address::Unix(socket));
        drop(listener);
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
