//! What of a file, by whoever knows: the own store, servers, the engine.

use std::{
    fs::File,
    io::{self, Read, Seek},
    time::{Duration, Instant},
};

use crate::{
    id::BlockSize,
    scan::{Content, Engine, Judge, Known, Source, content},
};

/// What is larger is not held in memory, but read to be hashed, and handed over as it lies.
const IN_MEMORY_MAX: u64 = 16 << 20;

/// A verdict, and who knew it.
pub(super) type Looked = Known;

/// Reads a file, and asks. `is_same`: nobody can have changed it since it was first looked at. The error is why there is
/// no verdict.
pub(super) fn look(
    engine: &dyn Engine,
    judge: Option<&Judge>,
    file: &File,
    is_same: &dyn Fn() -> bool,
    hash_time: Duration,
) -> Result<Looked, String> {
    let failed = |error: io::Error| format!("cannot read it: {error}");
    engine.takes(file.metadata().map_err(failed)?.len()).map_err(|error| error.to_string())?;
    let bytes = in_memory(file).map_err(failed)?;
    let hash = match (judge, &bytes) {
        (None, _) => None,
        (Some(judge), Some(bytes)) => Some(content::of_bytes(judge.domain(), BlockSize::default(), bytes)),
        (Some(judge), None) => {
            let read = (&mut &*file).rewind().and_then(|()| {
                content::of_reader(judge.domain(), BlockSize::default(), &mut Until::now(file, hash_time))
            });
            // What was hashed is what will be opened, or its verdict says nothing.
            Some(read.map_err(failed)?.0)
        }
    };
    if let (Some(judge), Some(hash)) = (judge, &hash) {
        // What is too large for memory isn't read once more for other names.
        let others = || match &bytes {
            Some(bytes) => content::of_bytes_by_others(judge.domain(), BlockSize::default(), bytes),
            None => Vec::new(),
        };
        let known = judge.known_here(hash).or_else(|| judge.known_by_any(hash, others));
        if let Some(known) = known {
            return Ok(known);
        }
    }
    let engine_id = judge.map(Judge::engine);
    let what = bytes.as_deref().map_or(Content::File(file), Content::Bytes);
    let verdict = engine.scan(what).map_err(|error| error.to_string())?;
    if let (Some(judge), Some(engine_id), Some(hash)) = (judge, engine_id, hash)
        && (bytes.is_some() || is_same())
    {
        judge.found(&engine_id, hash, verdict.clone());
    }
    Ok(Looked { verdict, source: Source::Scan })
}

/// A file that is read for so long at most: a hole of a tebibyte is written in no time.
struct Until<'a> {
    file: &'a File,
    end: Instant,
}

impl<'a> Until<'a> {
    fn now(file: &'a File, time: Duration) -> Self {
        Self { file, end: Instant::now() + time }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes longer to read than a scan may"));
        }
        self.file.read(buffer)
    }
}

/// The bytes of a file, or none where it is too large.
fn in_memory(mut file: &File) -> io::Result<Option<Vec<u8>>> {
    let size = file.metadata()?.len();
    if size > IN_MEMORY_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(size as usize + 1);
    file.rewind()?;
    file.take(IN_MEMORY_MAX + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= IN_MEMORY_MAX))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::atomic::{AtomicU64, Ordering::Relaxed},
    };

    use super::*;
    use crate::{
        id::TrustDomain,
        scan::{EngineError, EngineId, Trust, Verdict, Verdicts, judge::Sources},
    };

    /// Finds what says so, and counts how often it is asked.
    #[derive(Debug, Default)]
    struct Finds(AtomicU64);

    impl Engine for Finds {
        fn name(&self) -> &'static str {
            "finds"
        }

        fn id(&self) -> Result<EngineId, EngineError> {
            Ok(EngineId::new("finds", "1").unwrap())
        }

        fn scan(&self, content: Content<'_>) -> Result<Verdict, EngineError> {
            self.0.fetch_add(1, Relaxed);
            let mut bytes = Vec::new();
            match content {
                Content::Bytes(all) => bytes.extend(all),
                Content::File(mut file) => {
                    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
                }
            }
            match bytes.windows(3).any(|some| some == b"bad") {
                true => Ok(Verdict::infected("Bad")),
                false => Ok(Verdict::Clean),
            }
        }
    }

    fn judge() -> Judge {
        let domain = TrustDomain::from_key([1; 32]);
        let store = Some(Verdicts::in_memory(&domain, 100).unwrap());
        let sources = Sources { store, peers: None, trust: Trust::nobody(), signer: None, domain };
        Judge::new(sources, Finds::default().id().unwrap())
    }

    const LONG: Duration = Duration::from_secs(3600);

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_content_is_scanned_once_whichever_file_has_it() {
        let (engine, judge) = (Finds::default(), judge());
        let large = [vec![b'.'; IN_MEMORY_MAX as usize], b"bad".to_vec()].concat();
        for content in [&b"good"[..], b"a bad one", &large] {
            let verdicts: Vec<(bool, Source)> = (0..2)
                .map(|_| look(&engine, Some(&judge), &file(content), &|| true, LONG).unwrap())
                .map(|looked| (looked.verdict.is_infected(), looked.source))
                .collect();
            assert!(
                verdicts.iter().all(|(is_bad, _)| *is_bad == content.ends_with(b"bad") | content.starts_with(b"a"))
            );
        }
        assert_eq!(engine.0.load(Relaxed), 3);
    }

    #[test]
    fn a_large_file_that_may_have_changed_says_nothing_of_its_hash() {
        let (engine, judge) = (Finds::default(), judge());
        let large = file(&vec![b'.'; IN_MEMORY_MAX as usize + 1]);
        for times in 1..3 {
            assert_eq!(look(&engine, Some(&judge), &large, &|| false, LONG).unwrap().verdict, Verdict::Clean);
            assert_eq!(engine.0.load(Relaxed), times);
        }
        // Of what was in memory as a whole the hash is right, whatever became of the file.
        for _ in 0..2 {
            look(&engine, Some(&judge), &file(b"small"), &|| false, LONG).unwrap();
        }
        assert_eq!(engine.0.load(Relaxed), 3);
    }

    #[test]
    fn what_takes_too_long_to_be_hashed_has_no_verdict() {
        let (engine, judge) = (Finds::default(), judge());
        let hole = file(b"bad");
        hole.set_len(1 << 40).unwrap();
        let why = look(&engine, Some(&judge), &hole, &|| true, Duration::ZERO).unwrap_err();
        assert_eq!(why, "cannot read it: it takes longer to read than a scan may");
        assert!(look(&engine, Some(&judge), &file(b"bad"), &|| true, Duration::ZERO).is_ok(), "what fits into memory");
    }

    #[test]
    fn without_a_key_each_is_scanned() {
        let engine = Finds::default();
        for _ in 0..2 {
            assert!(look(&engine, None, &file(b"bad"), &|| true, LONG).unwrap().verdict.is_infected());
        }
        assert_eq!(engine.0.load(Relaxed), 2);
    }
}
