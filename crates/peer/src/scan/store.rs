//! Statements that are kept, by engine, epoch and content: on disk, crash-safe, or in memory.
//!
//! "Infected" beats "clean": of one signer, for one content and epoch, it is never replaced by it. Where there is no room,
//! the epoch that was added to least recently goes as a whole.

use std::{io, path::Path};

use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    backends::{FileBackend, InMemoryBackend},
};

use super::{
    engine::{EngineId, Verdict},
    statement::{SignerId, Statement},
};
use crate::id::{Hash, TrustDomain};

const HEADER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("header");
/// By engine and epoch: a number that rises with each change, and both names.
const EPOCHS: TableDefinition<'_, &[u8; EPOCH_BYTES], &[u8]> = TableDefinition::new("epochs");
/// By engine and epoch, content, signer.
const VERDICTS: TableDefinition<'_, &[u8; KEY_BYTES], &[u8]> = TableDefinition::new("verdicts");
const WHAT: &[u8] = b"onesweep verdicts";
const VERSION: u32 = 1;
/// Memory for pages of the file, at most.
const CACHE_BYTES: usize = 64 << 20;
const EPOCH_BYTES: usize = 16;
const KEY_BYTES: usize = EPOCH_BYTES + Hash::BYTES + SignerId::BYTES;

/// Why verdicts can't be kept or looked up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerdictsError {
    /// The file is something else, or of another version.
    #[error("it holds no verdicts, or those of another version")]
    Kind,
    /// Its contents are named by another key.
    #[error("it belongs to another trust domain")]
    Domain,
    /// Another process has it open.
    #[error("it is in use")]
    InUse,
    /// There is no room, though only one epoch is left.
    #[error("there are as many verdicts as may be kept")]
    Full,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn io_error(error: impl Into<redb::Error>) -> VerdictsError {
    VerdictsError::Io(match error.into() {
        redb::Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    })
}

/// The statements.
#[derive(Debug)]
pub struct Verdicts {
    database: Database,
    most: u64,
}

impl Verdicts {
    /// Those of a file, which is made where there is none. About 200 bytes each; `most` may be kept.
    pub fn open(path: &Path, domain: &TrustDomain, most: u64) -> Result<Self, VerdictsError> {
        use std::os::unix::fs::OpenOptionsExt;
        // Nobody else may read what is on this machine.
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let open = || Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(FileBackend::new(file)?);
        let database = open().map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => VerdictsError::InUse,
            redb::DatabaseError::Storage(redb::StorageError::Io(error))
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                VerdictsError::Kind
            }
            error => io_error(error),
        })?;
        Self::with(database, domain, most)
    }

    /// In memory alone.
    pub fn in_memory(domain: &TrustDomain, most: u64) -> Result<Self, VerdictsError> {
        Self::with(Database::builder().create_with_backend(InMemoryBackend::new()).map_err(io_error)?, domain, most)
    }

    fn with(database: Database, domain: &TrustDomain, most: u64) -> Result<Self, VerdictsError> {
        let begin = database.begin_write().map_err(io_error)?;
        {
            let mut header = begin.open_table(HEADER).map_err(|_| VerdictsError::Kind)?;
            let fields = [("what", WHAT.to_vec()), ("version", VERSION.to_le_bytes().to_vec())];
            let is_new = header.is_empty().map_err(io_error)?;
            for (name, value) in fields.into_iter().chain([("domain", domain.name().0.to_vec())]) {
                if is_new {
                    header.insert(name, &value[..]).map_err(io_error)?;
                } else if header.get(name).map_err(io_error)?.is_none_or(|kept| kept.value() != value) {
                    return Err(if name == "domain" { VerdictsError::Domain } else { VerdictsError::Kind });
                }
            }
            begin.open_table(EPOCHS).map_err(|_| VerdictsError::Kind)?;
            begin.open_table(VERDICTS).map_err(|_| VerdictsError::Kind)?;
        }
        begin.commit().map_err(io_error)?;
        Ok(Self { database, most })
    }

    /// How many are kept.
    pub fn len(&self) -> Result<u64, VerdictsError> {
        let count = || -> Result<u64, redb::Error> { Ok(self.database.begin_read()?.open_table(VERDICTS)?.len()?) };
        count().map_err(io_error)
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> Result<bool, VerdictsError> {
        Ok(self.len()? == 0)
    }

    /// Keeps statements of an engine, all or none, durably; how many changed something.
    pub fn keep(&self, engine: &EngineId, statements: &[Statement]) -> Result<u64, VerdictsError> {
        if statements.is_empty() {
            return Ok(0);
        }
        let digest = epoch_digest(engine);
        let keep = || -> Result<Option<u64>, redb::Error> {
            let writing = self.database.begin_write()?;
            let mut kept = 0;
            {
                let (mut epochs, mut verdicts) = (writing.open_table(EPOCHS)?, writing.open_table(VERDICTS)?);
                for statement in statements {
                    let key = key(&digest, &statement.hash, &statement.signer);
                    let before = verdicts.get(&key)?.and_then(|value| decode(&key, value.value()));
                    let is_bad = before.as_ref().is_some_and(|before| before.verdict.is_infected());
                    if before.as_ref() == Some(statement) || (is_bad && !statement.verdict.is_infected()) {
                        continue;
                    }
                    verdicts.insert(&key, &encode(statement)[..])?;
                    kept += 1;
                }
                let mut latest = 0;
                for epoch in epochs.iter()? {
                    latest = latest.max(number(epoch?.1.value()));
                }
                let mut value = (latest + 1).to_le_bytes().to_vec();
                value.extend(engine.to_string().as_bytes());
                epochs.insert(&digest, &value[..])?;
                while verdicts.len()? > self.most {
                    let mut oldest: Option<(u64, [u8; EPOCH_BYTES])> = None;
                    for epoch in epochs.iter()? {
                        let (other, value) = epoch?;
                        let (other, at) = (*other.value(), number(value.value()));
                        if other != digest && oldest.is_none_or(|(least, _)| at < least) {
                            oldest = Some((at, other));
                        }
                    }
                    // Nothing of this is kept then.
                    let Some((_, oldest)) = oldest else { return Ok(None) };
                    let [first, last] = bounds(&oldest, None);
                    verdicts.retain_in::<&[u8; KEY_BYTES], _>(&first..=&last, |_, _| false)?;
                    epochs.remove(&oldest)?;
                }
            }
            writing.commit()?;
            Ok(Some(kept))
        };
        keep().map_err(io_error)?.ok_or(VerdictsError::Full)
    }

    /// The epoch of an engine that was added to last: what it most likely still has, where it can't be asked.
    pub fn latest(&self, engine: &str) -> Result<Option<EngineId>, VerdictsError> {
        let find = || -> Result<Option<EngineId>, redb::Error> {
            let mut latest: Option<(u64, EngineId)> = None;
            for entry in self.database.begin_read()?.open_table(EPOCHS)?.iter()? {
                let value = entry?.1;
                let at = number(value.value());
                let names = value.value().get(8..).and_then(|names| str::from_utf8(names).ok()).unwrap_or_default();
                let epoch = names.strip_prefix(engine).and_then(|rest| rest.strip_prefix(' '));
                if let Some(id) = epoch.and_then(|epoch| EngineId::new(engine, epoch))
                    && latest.as_ref().is_none_or(|(before, _)| *before < at)
                {
                    latest = Some((at, id));
                }
            }
            Ok(latest.map(|(_, id)| id))
        };
        find().map_err(io_error)
    }

    /// What is said of each of these contents by an engine.
    pub fn get(&self, engine: &EngineId, hashes: &[Hash]) -> Result<Vec<Vec<Statement>>, VerdictsError> {
        let digest = epoch_digest(engine);
        let get = || -> Result<Vec<Vec<Statement>>, redb::Error> {
            let verdicts = self.database.begin_read()?.open_table(VERDICTS)?;
            let mut all = Vec::with_capacity(hashes.len());
            for hash in hashes {
                let mut found = Vec::new();
                let [first, last] = bounds(&digest, Some(hash));
                for entry in verdicts.range::<&[u8; KEY_BYTES]>(&first..=&last)? {
                    let (key, value) = entry?;
                    found.extend(decode(key.value(), value.value()));
                }
                all.push(found);
            }
            Ok(all)
        };
        get().map_err(io_error)
    }
}

fn epoch_digest(engine: &EngineId) -> [u8; EPOCH_BYTES] {
    let mut hasher = blake3::Hasher::new();
    for text in [engine.name(), engine.epoch()] {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    let mut digest = [0; EPOCH_BYTES];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..EPOCH_BYTES]);
    digest
}

fn key(epoch: &[u8; EPOCH_BYTES], hash: &Hash, signer: &SignerId) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..EPOCH_BYTES].copy_from_slice(epoch);
    key[EPOCH_BYTES..EPOCH_BYTES + Hash::BYTES].copy_from_slice(hash.as_bytes());
    key[EPOCH_BYTES + Hash::BYTES..].copy_from_slice(&signer.0);
    key
}

/// The first and the last key of an epoch, or of a content in it.
fn bounds(epoch: &[u8; EPOCH_BYTES], hash: Option<&Hash>) -> [[u8; KEY_BYTES]; 2] {
    let bound = |fill| {
        let hash = hash.map_or(Hash::from_bytes([fill; Hash::BYTES]), |hash| *hash);
        key(epoch, &hash, &SignerId([fill; SignerId::BYTES]))
    };
    [bound(0), bound(0xff)]
}

fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Time, kind, length of the name, name, signature.
fn encode(statement: &Statement) -> Vec<u8> {
    let mut value = statement.time.to_le_bytes().to_vec();
    match &statement.verdict {
        Verdict::Clean => value.extend([0, 0]),
        Verdict::Infected(name) => {
            value.extend([1, name.len() as u8]);
            value.extend(name.as_bytes());
        }
    }
    value.extend(&statement.signature);
    value
}

fn decode(key: &[u8; KEY_BYTES], value: &[u8]) -> Option<Statement> {
    let (time, rest) = value.split_first_chunk()?;
    let ([kind, length], rest) = rest.split_first_chunk()?;
    let (name, signature) = rest.split_at_checked((*length).into())?;
    let verdict = match kind {
        0 => Verdict::Clean,
        1 => Verdict::infected(str::from_utf8(name).ok()?),
        _ => return None,
    };
    let (hash, signer) = key[EPOCH_BYTES..].split_first_chunk()?;
    Some(Statement {
        hash: Hash::from_bytes(*hash),
        verdict,
        time: u64::from_le_bytes(*time),
        signer: SignerId(*signer.first_chunk()?),
        signature: signature.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(epoch: &str) -> EngineId {
        EngineId::new("clamd", epoch).unwrap()
    }

    fn statement(n: u8, signer: u8, verdict: Verdict) -> Statement {
        let signature = if signer == 0 { Vec::new() } else { vec![signer; 70] };
        Statement {
            hash: Hash::from_bytes([n; 32]),
            verdict,
            time: 1_800_000_000,
            signer: SignerId([signer; 32]),
            signature,
        }
    }

    fn domain() -> TrustDomain {
        TrustDomain::from_key([1; 32])
    }

    #[test]
    fn what_was_kept_is_found_again_under_its_epoch_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verdicts");
        let verdicts = Verdicts::open(&path, &domain(), 100).unwrap();
        let (one, two) = (statement(1, 0, Verdict::Clean), statement(1, 5, Verdict::infected("Bad")));
        let other = statement(255, 0, Verdict::Clean);
        assert_eq!(verdicts.keep(&engine("1"), &[one.clone(), two.clone(), other.clone()]).unwrap(), 3);
        assert_eq!(verdicts.keep(&engine("1"), std::slice::from_ref(&one)).unwrap(), 0, "it was there");
        assert!(matches!(Verdicts::open(&path, &domain(), 100), Err(VerdictsError::InUse)));
        drop(verdicts);
        let verdicts = Verdicts::open(&path, &domain(), 100).unwrap();
        let hashes = [255, 2, 1].map(|n| Hash::from_bytes([n; 32]));
        assert_eq!(verdicts.get(&engine("1"), &hashes).unwrap(), [vec![other], vec![], vec![one, two]]);
        assert_eq!(verdicts.get(&engine("2"), &hashes).unwrap(), [vec![], vec![], vec![]]);
        assert_eq!(verdicts.get(&EngineId::new("yara", "1").unwrap(), &hashes[..1]).unwrap(), [vec![]]);
    }

    #[test]
    fn infected_is_not_replaced_by_clean() {
        let verdicts = Verdicts::in_memory(&domain(), 100).unwrap();
        let (clean, bad) = (statement(1, 3, Verdict::Clean), statement(1, 3, Verdict::infected("Bad")));
        for (kept, changed) in [(&clean, 1), (&bad, 1), (&clean, 0)] {
            assert_eq!(verdicts.keep(&engine("1"), std::slice::from_ref(kept)).unwrap(), changed);
        }
        assert_eq!(verdicts.get(&engine("1"), &[bad.hash]).unwrap(), [vec![bad]]);
    }

    #[test]
    fn the_oldest_epoch_makes_room() {
        let verdicts = Verdicts::in_memory(&domain(), 10).unwrap();
        let some = |n: std::ops::Range<u8>| n.map(|n| statement(n, 0, Verdict::Clean)).collect::<Vec<_>>();
        for epoch in ["1", "2"] {
            verdicts.keep(&engine(epoch), &some(0..4)).unwrap();
        }
        // The first is added to again, so the second goes.
        verdicts.keep(&engine("1"), &some(4..5)).unwrap();
        verdicts.keep(&engine("3"), &some(0..4)).unwrap();
        let has = |epoch| verdicts.get(&engine(epoch), &[Hash::from_bytes([1; 32])]).unwrap()[0].len();
        assert_eq!((has("1"), has("2"), has("3"), verdicts.len().unwrap()), (1, 0, 1, 9));
        assert_eq!(verdicts.latest("clamd").unwrap(), Some(engine("3")));
        verdicts.keep(&EngineId::new("clam", "d 4").unwrap(), &some(0..1)).unwrap();
        assert_eq!(verdicts.latest("clamd").unwrap(), Some(engine("3")));
        assert_eq!(verdicts.latest("cl").unwrap(), None);
        // More than there can be is not kept, and what is there stays.
        assert!(matches!(verdicts.keep(&engine("3"), &some(0..11)), Err(VerdictsError::Full)));
        assert_eq!((has("1"), has("3")), (1, 1));
    }

    #[test]
    fn files_of_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verdicts");
        drop(Verdicts::open(&path, &domain(), 100).unwrap());
        let stranger = TrustDomain::from_key([2; 32]);
        assert!(matches!(Verdicts::open(&path, &stranger, 100), Err(VerdictsError::Domain)));
        std::fs::write(&path, vec![3; 9000]).unwrap();
        assert!(matches!(Verdicts::open(&path, &domain(), 100), Err(VerdictsError::Kind)));
        let tree = dir.path().join("tree");
        drop(crate::index::tree::TreeIndex::create(&tree, 4096, 1, &domain()).unwrap());
        assert!(matches!(Verdicts::open(&tree, &domain(), 100), Err(VerdictsError::Kind)));
    }
}
