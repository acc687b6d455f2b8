//! Asks a server.

use std::{
    io::{self, BufRead, BufReader},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::Path,
    time::Duration,
};

use onesweep_sys::peer;
use serde::de::DeserializeOwned;

use super::{
    breakdown::Breakdown,
    listing::{Largest, Listing},
    pages::{Entry, Page, PageHead},
    patience::Progress,
    portions::{Cursor, Piece, PortionHead},
    protocol::{Beginning, Head, Inode, Name, Question, Refusal, Row},
};
use crate::summaries::Freshness;

/// Bytes of a line, at most. A breakdown by very many keys has the longest.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// So long nothing is said to who waits and didn't ask how far it is.
const SILENCE: Duration = Duration::from_secs(30);

/// How a directory is named that isn't open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory<'a> {
    /// By its absolute path. No symbolic link may be on it, but for who gets whole totals.
    Path(&'a Path),
    /// By its numbers.
    Inode {
        /// The device, as `makedev` packs it.
        dev: u64,
        /// The number on it.
        ino: u64,
    },
}

/// A connection to a server.
pub struct Client {
    connection: BufReader<UnixStream>,
    silence: Duration,
}

impl Client {
    /// Connects to the server that listens at `socket`.
    pub fn connect(socket: &Path) -> io::Result<Client> {
        Ok(Client { connection: BufReader::new(UnixStream::connect(socket)?), silence: SILENCE })
    }

    /// The socket once more, for another thread: when that one shuts it down, a question that waits for its answer fails.
    pub fn socket(&self) -> io::Result<UnixStream> {
        self.connection.get_ref().try_clone()
    }

    /// What a directory comes to with all below, by its absolute path or by the numbers that `stat` tells of it: the paper's
    /// `QueryDirStatistics`. The inner error is why the server has no answer; it refuses what the asker could not come to.
    pub fn query(
        &mut self,
        directory: &Directory<'_>,
        freshness: Freshness,
    ) -> io::Result<Result<(Head, Row), Refusal>> {
        let (path, inode) = match *directory {
            Directory::Path(path) => (Some(Name::of(path.as_os_str().as_bytes())), None),
            Directory::Inode { dev, ino } => (None, Some(Inode { dev, ino })),
        };
        self.send_line(&Question { path, inode, freshness, ..Question::plain() }, None)?;
        match self.line()? {
            Beginning::Refused(refusal) => Ok(Err(refusal)),
            Beginning::Answer(head) if head.lines == 1 => Ok(Ok((head, self.line()?))),
            _ => Err(another_answer()),
        }
    }

    /// Asks for an open directory; `each` gets its lines. The inner error is why the server has no answer.
    pub fn ask(
        &mut self,
        directory: BorrowedFd<'_>,
        question: &Question,
        mut each: impl FnMut(Row),
    ) -> io::Result<Result<Head, Refusal>> {
        self.ask_and_wait(directory, question, |_| {}, &mut each)
    }

    /// The same; `working` is told how far it is where the question wants that, else once, and no figures, when half a minute has
    /// passed without an answer.
    pub fn ask_and_wait(
        &mut self,
        directory: BorrowedFd<'_>,
        question: &Question,
        mut working: impl FnMut(Progress),
        mut each: impl FnMut(Row),
    ) -> io::Result<Result<Head, Refusal>> {
        self.send(directory, question)?;
        if !question.progress && !self.begins_within(self.silence)? {
            working(Progress::default());
        }
        loop {
            match self.line()? {
                Beginning::Working(progress) if question.progress => working(progress),
                Beginning::Refused(refusal) => return Ok(Err(refusal)),
                Beginning::Answer(head) => {
                    for _ in 0..head.lines {
                        each(self.line()?);
                    }
                    return Ok(Ok(head));
                }
                _ => return Err(another_answer()),
            }
        }
    }

    /// Asks for an open directory and the largest of those in it.
    pub fn list(
        &mut self,
        directory: BorrowedFd<'_>,
        question: &Question,
        largest: Largest,
    ) -> io::Result<Result<Listing, Refusal>> {
        self.send(directory, &Question { list: Some(largest), ..question.clone() })?;
        match self.line()? {
            Beginning::Refused(refusal) => Ok(Err(refusal)),
            Beginning::Listing(listing) => Ok(Ok(*listing)),
            _ => Err(another_answer()),
        }
    }

    /// Asks for a page of the directories below an open one; `each` gets them.
    pub fn page(
        &mut self,
        directory: BorrowedFd<'_>,
        question: &Question,
        page: Page,
        mut each: impl FnMut(Entry),
    ) -> io::Result<Result<PageHead, Refusal>> {
        self.send(directory, &Question { page: Some(page), ..question.clone() })?;
        match self.line()? {
            Beginning::Refused(refusal) => Ok(Err(refusal)),
            Beginning::Page(head) => {
                for _ in 0..head.lines {
                    each(self.line()?);
                }
                Ok(Ok(head))
            }
            _ => Err(another_answer()),
        }
    }

    /// Asks for a portion of the directories below an open one; `each` gets them.
    pub fn portion(
        &mut self,
        directory: BorrowedFd<'_>,
        question: &Question,
        cursor: Cursor,
        mut each: impl FnMut(Piece),
    ) -> io::Result<Result<PortionHead, Refusal>> {
        self.send(directory, &Question { portion: Some(cursor), ..question.clone() })?;
        match self.line()? {
            Beginning::Refused(refusal) => Ok(Err(refusal)),
            Beginning::Portion(head) => {
                for _ in 0..head.lines {
                    each(self.line()?);
                }
                Ok(Ok(head))
            }
            _ => Err(another_answer()),
        }
    }

    /// Asks for a declared summary, the one that the question is by.
    pub fn break_down(
        &mut self,
        directory: BorrowedFd<'_>,
        question: &Question,
    ) -> io::Result<Result<Breakdown, Refusal>> {
        self.send(directory, question)?;
        match self.line()? {
            Beginning::Refused(refusal) => Ok(Err(refusal)),
            Beginning::Breakdown(breakdown) => Ok(Ok(*breakdown)),
            _ => Err(another_answer()),
        }
    }

    fn send(&mut self, directory: BorrowedFd<'_>, question: &Question) -> io::Result<()> {
        self.send_line(question, Some(directory))
    }

    fn send_line(&mut self, question: &Question, directory: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        let socket = self.connection.get_ref();
        let sent = match directory {
            Some(directory) => peer::send_with_file(socket.as_fd(), &line, directory)?,
            None => 0,
        };
        io::Write::write_all(&mut &*socket, line.get(sent..).unwrap_or_default())
    }

    /// False where so long nothing comes. None of what comes later is lost by that.
    fn begins_within(&mut self, time: Duration) -> io::Result<bool> {
        self.connection.get_ref().set_read_timeout(Some(time))?;
        // A signal ends the waiting where a time is set, also one that only stops the process for a while.
        let begun = loop {
            match self.connection.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                begun => break begun.map(drop),
            }
        };
        self.connection.get_ref().set_read_timeout(None)?;
        match begun {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            // An end is told by who reads a line.
            begun => begun.map(|()| true),
        }
    }

    fn line<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        io::Read::take(&mut self.connection, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

fn another_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server has answered another question")
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixListener, sync::mpsc, thread};

    use super::*;
    use crate::service::protocol::Refusal;

    #[test]
    fn who_waits_for_long_hears_of_it_once_and_gets_the_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (tell, told) = mpsc::channel();
        let server = thread::spawn(move || {
            let (connection, _) = listener.accept().expect("a client");
            for _ in 0..2 {
                BufReader::new(&connection).read_until(b'\n', &mut Vec::new()).expect("a question");
                // Only then there is an answer.
                told.recv().expect("who asked hears that it waits");
                let mut answer = serde_json::to_vec(&Beginning::Refused(Refusal::Late)).expect("a line");
                answer.push(b'\n');
                (&connection).write_all(&answer).expect("an answer");
            }
        });
        let mut client = Client::connect(&socket).expect("a server");
        client.silence = Duration::from_millis(20);
        let here = std::fs::File::open(folder.path()).expect("a folder");
        for _ in 0..2 {
            let mut times = 0;
            let working = |progress| {
                assert_eq!(progress, Progress::default());
                times += 1;
                tell.send(()).expect("a server");
            };
            let answer = client.ask_and_wait(here.as_fd(), &Question::plain(), working, |_| {}).expect("an answer");
            assert_eq!((answer.err(), times), (Some(Refusal::Late), 1));
        }
        server.join().expect("a server");
    }
}
