//! S3, by OpenDAL: an object for each block, with its hash as its name.

use std::{future::Future, time::Duration};

use futures_util::TryStreamExt;
use opendal::{ErrorKind, Operator, services};
use tokio::{runtime::Runtime, time::timeout};

use super::{Engine, EngineError, Kept, S3Address, Variable, hexadecimal, redis::use_ring, short};
use crate::{
    id::{BLOCK_BYTES_MAX, DomainName, Hash},
    store::Put,
};

/// Threads of the runtime. Whoever asks has a thread of his own, and only waits for these.
const THREADS: usize = 2;
/// Each is a request of its own.
const LOOKUP_MOST: usize = 16;
/// The region of servers that have none.
const REGION: &str = "us-east-1";

/// A folder of a bucket.
pub(super) struct S3 {
    operator: Operator,
    runtime: Runtime,
    timeout: Duration,
}

impl S3 {
    /// Credentials are found as Amazon's own programs find them: the environment, its files, the machine's role.
    pub(super) fn new(
        place: &S3Address,
        timeout: Duration,
        domain: DomainName,
        variable: Variable<'_>,
    ) -> Result<Self, EngineError> {
        use_ring();
        opendal_http_transport_reqwest::install_default();
        let root = format!("/{}/onesweep-1/{}/", place.prefix, hexadecimal(domain));
        let region =
            place.region.clone().or_else(|| ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(variable));
        let mut builder =
            services::S3::default().bucket(&place.bucket).root(&root).region(region.as_deref().unwrap_or(REGION));
        if let Some(endpoint) = &place.endpoint {
            builder = builder.endpoint(endpoint);
        }
        if let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            builder = builder.access_key_id(&id).secret_access_key(&secret);
            if let Some(token) = variable("AWS_SESSION_TOKEN") {
                builder = builder.session_token(&token);
            }
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("peer-s3")
            .enable_all()
            .build()
            .map_err(|error| EngineError::new(format!("cannot start threads: {error}")))?;
        // A client's tasks begin where it is made.
        let operator = {
            let _inside = runtime.enter();
            Operator::new(builder).map_err(|error| told(&error))?
        };
        Ok(Self { operator, runtime, timeout })
    }

    /// Waits for an answer, as long as one may take.
    fn wait<T>(&self, answer: impl Future<Output = opendal::Result<T>>) -> Result<opendal::Result<T>, EngineError> {
        let timed = async { timeout(self.timeout, answer).await };
        self.runtime.block_on(timed).map_err(|_| EngineError::new("no answer in time"))
    }
}

fn told(error: &opendal::Error) -> EngineError {
    EngineError::new(short(&error.to_string()))
}

/// An object's name: two digits first, so that a bucket that is shown as folders can be looked at.
fn name(hash: &Hash) -> String {
    let hash = hash.to_string();
    format!("{}/{hash}", &hash[..2])
}

fn hash_of(name: &str) -> Option<Hash> {
    let digits = name.rsplit('/').next()?;
    if digits.len() != 2 * Hash::BYTES || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; Hash::BYTES];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(Hash::from_bytes(bytes))
}

impl Engine for S3 {
    fn part(&self, _: &Hash) -> u64 {
        0
    }

    fn get(&self, hash: &Hash) -> Result<Option<Vec<u8>>, EngineError> {
        let name = name(hash);
        // Part by part: whatever somebody has put there, no more than a block is kept of it.
        let read = async {
            let mut parts = self.operator.reader(&name).await?.into_stream(..).await?;
            let mut bytes = Vec::new();
            while let Some(part) = parts.try_next().await? {
                part.for_each(|part| bytes.extend_from_slice(&part));
                if bytes.len() > BLOCK_BYTES_MAX {
                    bytes.truncate(BLOCK_BYTES_MAX + 1);
                    break;
                }
            }
            Ok::<_, opendal::Error>(bytes)
        };
        match self.wait(read)? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(told(&error)),
        }
    }

    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, EngineError> {
        // What is there already is the same, or wrong.
        match self.wait(self.operator.write(&name(hash), bytes.to_vec()))? {
            Ok(_) => Ok(Put::New),
            Err(error) => Err(told(&error)),
        }
    }

    fn has(&self, hashes: &[Hash]) -> Result<Vec<bool>, EngineError> {
        let ask = |hash: &Hash| self.wait(self.operator.exists(&name(hash)))?.map_err(|error| told(&error));
        hashes.iter().map(ask).collect()
    }

    fn remove(&self, hash: &Hash) -> Result<(), EngineError> {
        self.wait(self.operator.delete(&name(hash)))?.map_err(|error| told(&error))
    }

    fn list(&self, each: &mut dyn FnMut(Kept) -> bool) -> Result<(), EngineError> {
        let begin = async { self.operator.lister_with("/").recursive(true).await };
        let mut lister = self.wait(begin)?.map_err(|error| told(&error))?;
        // Each page has the time of a request.
        while let Some(entry) = self.wait(lister.try_next())?.map_err(|error| told(&error))? {
            let metadata = entry.metadata();
            let Some(hash) = hash_of(entry.path()) else { continue };
            let bytes = metadata.content_length().try_into().unwrap_or(u32::MAX);
            let written = metadata.last_modified().map_or(0, |at| at.into_inner().as_second());
            if !each(Kept { hash, bytes, written }) {
                break;
            }
        }
        Ok(())
    }

    fn lookup_most(&self) -> usize {
        LOOKUP_MOST
    }
}
