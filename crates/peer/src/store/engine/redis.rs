//! Redis, one server or a cluster. A connection is used by one thread at a time, and dropped when anything is odd with it.
//!
//! Which node has a block is told by a list of slots, as clients of a cluster do it. It is asked for again when a node says that
//! it is wrong, or does not answer; whoever waits for the list waits for nothing else.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher},
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::{Duration, Instant},
};

use ::redis::{
    Client, Cmd, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError, RedisResult, Value, cmd, pipe,
};

use super::{
    Engine, EngineError, Kept, RedisAddress, Variable, hexadecimal, short,
    slots::{Node, Slots, redirected, slot},
};
use crate::{
    id::{BLOCK_BYTES_MAX, DomainName, Hash},
    store::Put,
};

/// Connections to a node that wait for their next use.
const IDLE_MOST: usize = 16;
/// The list of slots is asked for so often at most.
const REFRESH: Duration = Duration::from_secs(1);
/// Hashes of one question.
const LOOKUP_MOST: usize = 256;

/// A Redis server, or a cluster of them.
pub(super) struct Redis {
    place: RedisAddress,
    timeout: Duration,
    prefix: String,
    user: Option<String>,
    password: Option<String>,
    idle: Mutex<HashMap<Node, Vec<Connection>>>,
    slots: Mutex<Option<Arc<Slots>>>,
    /// When the list was asked for; held while it is.
    refreshed: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Redis {
    /// Credentials are those of the environment.
    pub(super) fn new(place: &RedisAddress, timeout: Duration, domain: DomainName, variable: Variable<'_>) -> Self {
        use_ring();
        Self {
            place: place.clone(),
            timeout,
            prefix: format!("onesweep:1:{}:", hexadecimal(domain)),
            user: variable("ONESWEEP_REDIS_USER"),
            password: variable("ONESWEEP_REDIS_PASSWORD"),
            idle: Mutex::default(),
            slots: Mutex::new(None),
            refreshed: Mutex::new(None),
        }
    }

    fn key(&self, hash: &Hash) -> String {
        format!("{}{hash}", self.prefix)
    }

    /// Who has it, as far as is known.
    fn node(&self, hash: &Hash) -> Node {
        let first = || self.place.hosts[0].clone();
        if !self.place.is_cluster {
            return first();
        }
        let slots = lock(&self.slots).clone();
        slots.and_then(|slots| slots.node(slot(self.key(hash).as_bytes())).cloned()).unwrap_or_else(first)
    }

    fn connect(&self, node: &Node) -> RedisResult<Connection> {
        let (host, port) = node.clone();
        let address = match self.place.is_encrypted {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let info = address.into_connection_info()?;
        let mut settings = info.redis_settings().clone().set_db(self.place.database.into()).set_skip_set_lib_name();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let client = Client::open(info.set_redis_settings(settings))?;
        let connection = client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }

    /// Asks a node. A connection that waited may have been closed by it meanwhile: then a new one is made, once.
    fn ask<T>(&self, node: &Node, question: &dyn Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let waiting = lock(&self.idle).get_mut(node).and_then(Vec::pop);
        if let Some(mut connection) = waiting {
            match question(&mut connection) {
                Err(error) if error.is_io_error() && !error.is_timeout() => {
                    lock(&self.idle).remove(node);
                }
                answer => return self.keep(node, connection, answer),
            }
        }
        let mut connection = self.connect(node)?;
        let answer = question(&mut connection);
        self.keep(node, connection, answer)
    }

    /// After an error of the server a connection is as good as before, after any other nobody knows what comes next.
    fn keep<T>(&self, node: &Node, connection: Connection, answer: RedisResult<T>) -> RedisResult<T> {
        let is_sound = match &answer {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension),
        };
        if is_sound {
            let mut idle = lock(&self.idle);
            let idle = idle.entry(node.clone()).or_default();
            if idle.len() < IDLE_MOST {
                idle.push(connection);
            }
        }
        answer
    }

    /// Asks whoever has a block.
    fn ask_for<T>(&self, hash: &Hash, question: &dyn Fn(&mut Connection) -> RedisResult<T>) -> Result<T, EngineError> {
        if !self.place.is_cluster {
            let node = self.node(hash);
            return self.ask(&node, question).map_err(|error| told(&node, &error));
        }
        if lock(&self.slots).is_none() {
            self.refresh(None)?;
        }
        let node = self.node(hash);
        let error = match self.ask(&node, question) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let other = match code(&error) {
            "MOVED" => {
                let _ = self.refresh(None);
                // Errors of many questions at a time have no details.
                let told = redirected(error.detail().unwrap_or_default(), &node);
                told.or_else(|| Some(self.node(hash)).filter(|other| *other != node))
            }
            "ASK" => {
                let other = redirected(error.detail().unwrap_or_default(), &node).ok_or_else(|| told(&node, &error))?;
                let asking = |connection: &mut Connection| {
                    cmd("ASKING").exec(connection)?;
                    question(connection)
                };
                return self.ask(&other, &asking).map_err(|error| told(&other, &error));
            }
            // Somebody else may have its slots by now.
            _ if error.is_io_error() || matches!(code(&error), "CLUSTERDOWN" | "READONLY" | "MASTERDOWN") => {
                let _ = self.refresh(Some(&node));
                Some(self.node(hash)).filter(|other| *other != node)
            }
            _ => None,
        };
        let other = other.ok_or_else(|| told(&node, &error))?;
        self.ask(&other, question).map_err(|error| told(&other, &error))
    }

    /// Asks for the list of slots whoever answers first; `not` is asked last. Only one thread does, and not too often.
    fn refresh(&self, not: Option<&Node>) -> Result<(), EngineError> {
        let known = lock(&self.slots).clone();
        let mut refreshed = match self.refreshed.try_lock() {
            Ok(refreshed) => refreshed,
            // Without any list there is nothing to do but to wait for it.
            Err(_) if known.is_none() => lock(&self.refreshed),
            Err(_) => return Ok(()),
        };
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH) {
            let has_list = lock(&self.slots).is_some();
            return if has_list { Ok(()) } else { Err(EngineError::new("no node tells which slots there are")) };
        }
        let mut nodes = known.map(|slots| slots.nodes()).unwrap_or_default();
        nodes.extend(self.place.hosts.iter().filter(|host| !nodes.contains(host)).cloned().collect::<Vec<_>>());
        nodes.sort_by_key(|node| Some(node) == not);
        let mut why = EngineError::new("no node tells which slots there are");
        for node in &nodes {
            let ask = |connection: &mut Connection| cmd("CLUSTER").arg("SLOTS").query::<Value>(connection);
            let read = self
                .ask(node, &ask)
                .map_err(|error| told(node, &error))
                .and_then(|value| Slots::new(ranges(value, node)));
            match read {
                Ok(slots) => {
                    *lock(&self.slots) = Some(Arc::new(slots));
                    *refreshed = Some(Instant::now());
                    return Ok(());
                }
                Err(error) => why = error,
            }
        }
        *refreshed = Some(Instant::now());
        Err(why)
    }

    fn with_ttl(&self, mut command: Cmd) -> Cmd {
        if let Some(ttl) = self.place.ttl {
            command.arg("PX").arg(ttl.as_millis() as u64);
        }
        command
    }
}

/// The only one of rustls's providers that is built in; both clients ask for the default.
pub(super) fn use_ring() {
    static ONCE: Once = Once::new();
    // Somebody else may have chosen already, which is as good.
    ONCE.call_once(|| _ = rustls::crypto::ring::default_provider().install_default());
}

fn code(error: &RedisError) -> &str {
    error.code().unwrap_or_default()
}

fn told((host, port): &Node, error: &RedisError) -> EngineError {
    EngineError::new(short(&format!("{host}:{port}: {error}")))
}

/// The ranges of an answer to CLUSTER SLOTS: first, last, and the nodes, the first of which writes.
fn ranges(value: Value, asked: &Node) -> Vec<(u16, u16, Node)> {
    let number = |value: Option<&Value>| match value {
        Some(Value::Int(number)) => u16::try_from(*number).ok(),
        _ => None,
    };
    let host = |value: Option<&Value>| match value {
        Some(Value::BulkString(name)) if name != b"?" && !name.is_empty() => String::from_utf8(name.clone()).ok(),
        Some(Value::BulkString(name)) if name.is_empty() => Some(asked.0.clone()),
        Some(Value::Nil) => Some(asked.0.clone()),
        _ => None,
    };
    let range = |item: &Value| {
        let Value::Array(item) = item else { return None };
        let Some(Value::Array(node)) = item.get(2) else { return None };
        Some((number(item.first())?, number(item.get(1))?, (host(node.first())?, number(node.get(1))?)))
    };
    match value {
        Value::Array(items) => items.iter().filter_map(range).collect(),
        _ => Vec::new(),
    }
}

impl Engine for Redis {
    fn part(&self, hash: &Hash) -> u64 {
        if !self.place.is_cluster {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        self.node(hash).hash(&mut hasher);
        hasher.finish()
    }

    fn get(&self, hash: &Hash) -> Result<Option<Vec<u8>>, EngineError> {
        let key = self.key(hash);
        // Whatever somebody has put there: no more than a block and one byte of it comes.
        let question = |connection: &mut Connection| {
            let read = cmd("GETRANGE").arg(&key).arg(0).arg(BLOCK_BYTES_MAX).query::<Vec<u8>>(connection);
            let bytes = match read {
                // Something else than a text is there: other bytes than ours.
                Err(error) if code(&error) == "WRONGTYPE" => return Ok(Some(Vec::new())),
                Err(error) => return Err(error),
                Ok(bytes) if bytes.is_empty() => return Ok(None),
                Ok(bytes) => bytes,
            };
            if let Some(ttl) = self.place.ttl {
                cmd("PEXPIRE").arg(&key).arg(ttl.as_millis() as u64).exec(connection)?;
            }
            Ok(Some(bytes))
        };
        self.ask_for(hash, &question)
    }

    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, EngineError> {
        let mut command = cmd("SET");
        command.arg(self.key(hash)).arg(bytes).arg("NX");
        let command = self.with_ttl(command);
        let answer = self.ask_for(hash, &|connection| command.query::<Value>(connection))?;
        Ok(if answer == Value::Nil { Put::Known } else { Put::New })
    }

    fn has(&self, hashes: &[Hash]) -> Result<Vec<bool>, EngineError> {
        let Some(first) = hashes.first() else { return Ok(Vec::new()) };
        // They are of one node, as long as the list of slots is right; else it says that it isn't, and they are not there.
        let question = |connection: &mut Connection| {
            let mut commands = pipe();
            hashes.iter().for_each(|hash| _ = commands.cmd("EXISTS").arg(self.key(hash)));
            commands.query::<Vec<bool>>(connection)
        };
        self.ask_for(first, &question)
    }

    fn remove(&self, hash: &Hash) -> Result<(), EngineError> {
        let mut command = cmd("DEL");
        command.arg(self.key(hash));
        self.ask_for(hash, &|connection| command.exec(connection))
    }

    fn list(&self, _: &mut dyn FnMut(Kept) -> bool) -> Result<(), EngineError> {
        // Its size is its own affair: maxmemory.
        Ok(())
    }

    fn lookup_most(&self) -> usize {
        LOOKUP_MOST
    }
}
