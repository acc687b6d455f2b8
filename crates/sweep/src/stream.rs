//! Files that don't pass through reassembly: read by the consumer, after the sweep (DAFT II.D).

use std::{
    cmp::Ordering,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use onesweep_sys::{features::features, files};

use crate::{
    footprint::Trail, image::ImageContent, moment::Moment, opener::Way, outlet::Counters, progress::Cancel,
    throttle::Throttle,
};

/// The content of a large or special file, read through the file system where the consumer wants it.
///
/// It is opened at the first read. Holes cost no read, and nothing that lay in the page cache before is dropped, nor kept
/// that did not. When the end is reached and the file is not what it was when it was surveyed, that is an error.
#[derive(Debug)]
pub struct FileStream {
    from: From,
    /// What the survey saw.
    expected: State,
    /// The ranges that are no holes, rising.
    data: Vec<Range<u64>>,
    keep_cached: bool,
    throttle: Arc<Throttle>,
    cancel: Cancel,
    counters: Arc<Counters>,
    /// The snapshot that it lies in goes when nobody needs it any more.
    _moment: Option<Arc<Moment>>,
    at: u64,
    open: Option<Open>,
}

/// Where the content comes from.
#[derive(Debug)]
enum From {
    /// Names of the file, any of which may be gone.
    Names(Vec<Way>),
    /// A file system that isn't mounted.
    Image(ImageContent),
}

/// By what a change of a file is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) ctime: (i64, u32),
}

impl State {
    pub(crate) fn of(stat: &files::Stat) -> Self {
        Self {
            ino: stat.ino,
            size: stat.size,
            mtime: (stat.mtime.secs, stat.mtime.nanos),
            ctime: (stat.ctime.secs, stat.ctime.nanos),
        }
    }
}

/// What is common to all streams of a sweep.
#[derive(Debug, Clone)]
pub(crate) struct StreamRules {
    pub(crate) keep_cached: bool,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) cancel: Cancel,
    pub(crate) counters: Arc<Counters>,
    /// What must stay until the stream is read.
    pub(crate) moment: Option<Arc<Moment>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    Data,
    Hole,
}

#[derive(Debug)]
struct Open {
    fd: Arc<OwnedFd>,
    /// Reads leave the page cache alone by themselves (`RWF_DONTCACHE`).
    uncached: bool,
    /// Once they don't, and should.
    trail: Option<Trail<Arc<OwnedFd>>>,
    checked: bool,
}

impl FileStream {
    /// The content of a file, by each of its names.
    pub(crate) fn new(ways: Vec<Way>, expected: State, data: Vec<Range<u64>>, rules: StreamRules) -> Self {
        Self::from(From::Names(ways), expected, data, rules)
    }

    /// The content of a file in an image.
    pub(crate) fn of_image(content: ImageContent, expected: State, data: Vec<Range<u64>>, rules: StreamRules) -> Self {
        Self::from(From::Image(content), expected, data, rules)
    }

    fn from(from: From, expected: State, data: Vec<Range<u64>>, rules: StreamRules) -> Self {
        let StreamRules { keep_cached, throttle, cancel, counters, moment } = rules;
        Self { from, expected, data, keep_cached, throttle, cancel, counters, _moment: moment, at: 0, open: None }
    }

    fn advance(&mut self, read: usize) {
        self.at += read as u64;
        self.counters.add_streamed(read as u64);
    }

    /// Goes back to the front.
    pub(crate) fn rewind(&mut self) {
        self.at = 0;
    }

    fn open(&mut self) -> io::Result<&mut Open> {
        if self.open.is_none() {
            let fd = Arc::new(self.open_by_any_name()?);
            let uncached = features().dontcache && !self.keep_cached;
            self.open = Some(Open { fd, uncached, trail: None, checked: false });
        }
        Ok(self.open.as_mut().expect("just opened"))
    }

    /// By the first name that still leads to the file; where none does, by the first that leads anywhere.
    fn open_by_any_name(&self) -> io::Result<OwnedFd> {
        let From::Names(ways) = &self.from else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut opened = ways.iter().map(Way::open);
        let first = opened.next().unwrap_or(Err(io::ErrorKind::NotFound.into()));
        let is_it = |fd: &OwnedFd| files::statx_fd(fd.as_fd()).is_ok_and(|stat| stat.ino == self.expected.ino);
        if first.as_ref().is_ok_and(is_it) {
            return first;
        }
        opened.filter_map(Result::ok).find(is_it).map_or(first, Ok)
    }

    /// What lies at the present place, and how far it goes. At the end, nothing.
    fn here(&self) -> (Here, u64) {
        let size = self.expected.size;
        let next = self.data.partition_point(|range| range.end <= self.at);
        match self.data.get(next) {
            Some(range) if range.start <= self.at => (Here::Data, range.end.min(size).saturating_sub(self.at)),
            Some(range) => (Here::Hole, range.start.min(size).saturating_sub(self.at)),
            None => (Here::Hole, size.saturating_sub(self.at)),
        }
    }

    /// An error when the file is not what it was.
    fn check(&mut self) -> io::Result<()> {
        let expected = self.expected;
        let open = self.open()?;
        if open.checked {
            return Ok(());
        }
        open.checked = true;
        // The stream may be kept for long.
        open.trail = None;
        let now = State::of(&files::statx_fd(open.fd.as_fd())?);
        Err(match now.size.cmp(&expected.size) {
            Ordering::Greater => io::Error::other("it grew while it was read"),
            // No failure of the disk, which consumers have to tell apart.
            Ordering::Less => io::Error::new(io::ErrorKind::UnexpectedEof, "it shrank while it was read"),
            Ordering::Equal if now != expected => io::Error::other("it changed while it was read"),
            Ordering::Equal => return Ok(()),
        })
    }

    /// Reads what is no hole up to the end of the buffer.
    fn read_data(&mut self, buffer: &mut [u8], data_end: u64) -> io::Result<usize> {
        let (at, keep_cached) = (self.at, self.keep_cached);
        let open = self.open()?;
        if open.uncached {
            match files::read_at_uncached(open.fd.as_fd(), buffer, at) {
                Err(error) if files::is_refusal(&error) => open.uncached = false,
                read => return read,
            }
        }
        let mut wanted = buffer.len();
        if !keep_cached {
            let trail = open.trail.get_or_insert_with(|| Trail::new(Arc::clone(&open.fd)));
            let known = trail.advance(at, data_end) - at;
            wanted = wanted.min(usize::try_from(known).unwrap_or(usize::MAX));
        }
        files::read_at(open.fd.as_fd(), &mut buffer[..wanted], at)
    }
}

impl Read for FileStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("the sweep was cancelled"));
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let (here, length) = self.here();
        if length == 0 {
            return if matches!(self.from, From::Image(_)) { Ok(0) } else { self.check().map(|()| 0) };
        }
        let wanted = buffer.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        if here == Here::Hole {
            buffer[..wanted].fill(0);
            self.advance(wanted);
            return Ok(wanted);
        }
        self.throttle.pass(wanted as u64, &self.cancel);
        if let From::Image(content) = &mut self.from {
            let read = content.read(&mut buffer[..wanted], self.at)?;
            self.advance(read);
            return Ok(read);
        }
        let read = self.read_data(&mut buffer[..wanted], self.at.saturating_add(length))?;
        self.advance(read);
        if read == 0 {
            // Shorter than it was.
            self.check()?;
        }
        Ok(read)
    }
}

impl Seek for FileStream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(distance) => self.expected.size.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.at.checked_add_signed(distance),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::FileExt};

    fn stream(path: &std::path::Path, data: Vec<Range<u64>>) -> FileStream {
        let stat = files::statx_at(files::CURRENT_DIR, path, true).unwrap();
        let rules = StreamRules {
            keep_cached: false,
            throttle: Arc::new(Throttle::new(None)),
            cancel: Cancel::new(),
            counters: Arc::default(),
            moment: None,
        };
        FileStream::new(vec![Way::to(path)], State::of(&stat), data, rules)
    }

    #[test]
    fn holes_are_zeros_that_nobody_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        // What lies in the "hole" would show if it were read.
        fs::write(&path, vec![7; 10_000]).unwrap();
        let mut content = Vec::new();
        stream(&path, vec![100..200, 9000..10_000]).read_to_end(&mut content).unwrap();
        let expected: Vec<u8> =
            (0..10_000).map(|at| if (100..200).contains(&at) || at >= 9000 { 7 } else { 0 }).collect();
        assert!(content == expected);
    }

    #[test]
    fn one_may_go_where_the_data_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"data", 1 << 39).unwrap();
        let mut stream = stream(&path, std::iter::once(1 << 39..(1 << 39) + 4096).collect());
        stream.seek(SeekFrom::Start(1 << 39)).unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"data");
        stream.seek(SeekFrom::End(0)).unwrap();
        assert_eq!(stream.read(&mut word).unwrap(), 0);
    }

    #[test]
    fn a_change_is_an_error_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, vec![7; 10_000]).unwrap();
        for (size, kind, text) in [
            (10_000, io::ErrorKind::Other, "it changed while it was read"),
            (10_001, io::ErrorKind::Other, "it grew while it was read"),
            (9_000, io::ErrorKind::UnexpectedEof, "it shrank while it was read"),
        ] {
            fs::write(&path, vec![7; 10_000]).unwrap();
            let mut stream = stream(&path, std::iter::once(0..10_000).collect());
            fs::write(&path, vec![8; size]).unwrap();
            let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!((error.kind(), &*error.to_string()), (kind, text));
        }
    }
}
