//! The client: one connection to each server that stays, many requests in flight on it, and a way out of each wait.
//!
//! A block is asked for by [`Peers::get`], which neither waits nor starts anything: it puts the request into a queue and
//! gives a [`Ticket`], by which the request can be cancelled. Whoever asked is told by a function that runs on the thread of
//! that connection; it should be short, and must not wait or panic. Bytes that are handed to it were checked against the hash.
//!
//! ```text
//!   get ──► queue ──► thread of the best server ──► wire ──► answer ──► hash? ──► done(Ok(bytes))
//!                       │ cancel, deadline, breaker            └─ wrong, absent, late, lost ──► done(Err(why))
//! ```

mod breaker;
mod counters;
mod link;
mod names;
mod network;
mod rank;
mod talk;

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use link::Link;
use network::Network;

pub use self::{counters::Counted, link::Ticket};
use crate::{
    id::{Hash, TrustDomain},
    scan::{EngineId, Statement},
    tls::ClientTls,
    wire::{BATCH_MAX, Closing, Priority, Refusal, VERDICT_BATCH_MAX},
};

/// How a client is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose blocks are asked for.
    pub domain: TrustDomain,
    /// Without it, only servers on the loopback are asked.
    pub tls: Option<ClientTls>,
    /// A connection has to be made, and a welcome to come, each within this time.
    pub connect: Duration,
    /// A ping has to be answered within this time.
    pub ping: Duration,
    /// After so long without a word the server is asked whether it is there.
    pub quiet: Duration,
    /// A connection on which nothing comes for so long, though something was asked, is given up.
    pub silence: Duration,
    /// Requests without an answer, at most; a server may allow fewer.
    pub in_flight: u32,
    /// [`Peers::put_and_wait`] and its like wait for an answer so long.
    pub patience: Duration,
}

impl Settings {
    /// For servers on the loopback alone.
    #[must_use]
    pub fn plain(domain: TrustDomain) -> Self {
        Self {
            domain,
            tls: None,
            connect: Duration::from_secs(2),
            ping: Duration::from_secs(1),
            quiet: Duration::from_secs(5),
            silence: Duration::from_secs(3),
            in_flight: 1024,
            patience: Duration::from_secs(30),
        }
    }

    /// For all servers of the authority.
    #[must_use]
    pub fn encrypted(domain: TrustDomain, tls: ClientTls) -> Self {
        Self { tls: Some(tls), ..Self::plain(domain) }
    }
}

/// Why a request was not made. Nobody is told of it otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// No server is connected and to be trusted at the moment.
    #[error("no server can be asked")]
    NoPeer,
    /// Too many requests wait for their answers.
    #[error("too many requests wait for their answers")]
    Full,
    /// It is larger than the server takes, or nothing.
    #[error("it is larger than the server takes, or empty")]
    Size,
}

/// Why there is no answer that helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server doesn't have the block.
    #[error("the server doesn't have it")]
    Absent,
    /// It did not come in time.
    #[error("it did not come in time")]
    Late,
    /// The connection broke.
    #[error("the connection broke")]
    Disconnected,
    /// What came is something else.
    #[error("what came are other bytes than were asked for")]
    WrongBytes,
    /// The server said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The request was not made.
    #[error("{0}")]
    NotAsked(Refused),
}

impl From<Refused> for Failure {
    fn from(why: Refused) -> Self {
        Self::NotAsked(why)
    }
}

/// How a server is doing.
#[derive(Clone, Debug)]
pub struct Health {
    /// The server, as it was named.
    pub address: String,
    /// There is a connection.
    pub is_connected: bool,
    /// And it is asked.
    pub is_usable: bool,
    /// Why there is no connection.
    pub last_error: Option<String>,
    /// What was counted of it.
    pub counted: Counted,
}

/// Servers, each with the places of what belongs to it.
type Shares<'a> = Vec<(&'a Arc<Link>, Vec<usize>)>;

/// Some servers. Dropping it ends all connections; requests that have no answer then are told that they are lost.
#[derive(Debug)]
pub struct Peers {
    links: Vec<Arc<Link>>,
    network: Arc<Network>,
}

impl Peers {
    /// Begins to connect to servers, each named as `HOST:PORT`; does not wait for any. For each there is one thread, and one more
    /// watches links and addresses of the network, which has to be that of the calling thread: when they change, all servers are
    /// tried at once.
    /// Which server is asked for a block depends on how servers are named, so all clients should name them alike.
    pub fn connect<A: Into<String>>(addresses: impl IntoIterator<Item = A>, settings: Settings) -> io::Result<Self> {
        let link = |address: A| Link::new(address.into(), settings.clone()).map(Arc::new);
        let links = addresses.into_iter().map(link).collect::<io::Result<Vec<_>>>()?;
        // Before the first try, so that no change is missed.
        let peers = Self { network: Network::watch(links.clone())?, links };
        for link in &peers.links {
            let talking = Arc::clone(link);
            thread::Builder::new().name("peer-talk".into()).spawn(move || talk::talk(&talking))?;
        }
        Ok(peers)
    }

    /// The usable server that has a block, if one has.
    fn link(&self, hash: &Hash) -> Option<&Arc<Link>> {
        if let [link] = &self.links[..] {
            return Some(link);
        }
        rank::best(self.links.iter().filter(|link| link.state().is_usable()), |link| link.seed, hash)
    }

    /// Asks for a block. `done` is run once: with the right bytes, or with why there are none, at the latest when `time` is
    /// over and the thread gets to it; not at all after [`Ticket::cancel`] said so. Takes microseconds.
    pub fn get(
        &self,
        hash: &Hash,
        priority: Priority,
        time: Duration,
        done: impl FnOnce(Result<&[u8], Failure>) + Send + 'static,
    ) -> Result<Ticket, Refused> {
        self.link(hash).ok_or(Refused::NoPeer)?.get(hash, priority, time, Box::new(done))
    }

    /// The servers that can be asked for a block, as numbers in the order in which they were named; the likeliest to have it
    /// first.
    #[must_use]
    pub fn servers_of(&self, hash: &Hash) -> Vec<usize> {
        let usable = |at: &usize| self.links[*at].state().is_usable();
        let mut servers: Vec<usize> = (0..self.links.len()).filter(usable).collect();
        rank::sort(&mut servers, |at| self.links[*at].seed, hash);
        servers
    }

    /// [`Self::get`] from the server with this number.
    pub fn get_from(
        &self,
        server: usize,
        hash: &Hash,
        priority: Priority,
        time: Duration,
        done: impl FnOnce(Result<&[u8], Failure>) + Send + 'static,
    ) -> Result<Ticket, Refused> {
        self.links.get(server).ok_or(Refused::NoPeer)?.get(hash, priority, time, Box::new(done))
    }

    /// Offers a block; `done` is run once, and told whether the server had it.
    pub fn put(
        &self,
        hash: &Hash,
        bytes: &[u8],
        time: Duration,
        done: impl FnOnce(Result<bool, Failure>) + Send + 'static,
    ) -> Result<(), Refused> {
        self.link(hash).ok_or(Refused::NoPeer)?.put(hash, bytes, time, Box::new(done))
    }

    /// Asks for a block, and waits for it.
    pub fn get_and_wait(&self, hash: &Hash) -> Result<Vec<u8>, Failure> {
        let (tell, told) = mpsc::channel();
        let time = self.patience();
        self.get(hash, Priority::Waiting, time, move |got| _ = tell.send(got.map(<[u8]>::to_vec)))?;
        told.recv().unwrap_or(Err(Failure::Disconnected))
    }

    /// Offers a block, and waits until the server has it; whether it had it before.
    pub fn put_and_wait(&self, hash: &Hash, bytes: &[u8]) -> Result<bool, Failure> {
        let (tell, told) = mpsc::channel();
        self.put(hash, bytes, self.patience(), move |put| _ = tell.send(put))?;
        told.recv().unwrap_or(Err(Failure::Disconnected))
    }

    /// Which of these blocks are there, each on its own server. Waits for it.
    pub fn has_and_wait(&self, hashes: &[Hash]) -> Result<Vec<bool>, Failure> {
        self.has_within(hashes, self.patience())
    }

    /// [`Self::has_and_wait`], waiting for each answer so long.
    pub(crate) fn has_within(&self, hashes: &[Hash], patience: Duration) -> Result<Vec<bool>, Failure> {
        let mut are_there = vec![false; hashes.len()];
        for (link, places) in self.by_link(hashes.iter())? {
            for places in places.chunks(BATCH_MAX) {
                let (tell, told) = mpsc::channel();
                let some: Vec<Hash> = places.iter().map(|at| hashes[*at]).collect();
                link.has(&some, patience, Box::new(move |has| _ = tell.send(has)))?;
                let answer = told.recv().unwrap_or(Err(Failure::Disconnected))?;
                places.iter().zip(answer).for_each(|(at, is_there)| are_there[*at] = is_there);
            }
        }
        Ok(are_there)
    }

    /// What servers know of these contents: of each, what others say. Nobody has checked yet whose word it is. Waits for it.
    pub fn verdicts_and_wait(&self, engine: &EngineId, hashes: &[Hash]) -> Result<Vec<Vec<Statement>>, Failure> {
        let (tell, told) = mpsc::channel();
        let mut asked = 0;
        for (link, places) in self.by_link(hashes.iter())? {
            for places in places.chunks(VERDICT_BATCH_MAX) {
                let some: Vec<Hash> = places.iter().map(|at| hashes[*at]).collect();
                let (tell, places) = (tell.clone(), places.to_vec());
                let done = move |found| _ = tell.send((places, found));
                link.verdicts(engine, &some, self.patience(), Box::new(done))?;
                asked += 1;
            }
        }
        let mut all = vec![Vec::new(); hashes.len()];
        for _ in 0..asked {
            let (places, found) = told.recv().map_err(|_| Failure::Disconnected)?;
            places.into_iter().zip(found?).for_each(|(at, found): (usize, _)| all[at] = found);
        }
        Ok(all)
    }

    /// Tells servers what was found, and waits until it is kept; how much of it was new to them.
    pub fn tell_and_wait(&self, engine: &EngineId, statements: &[Statement]) -> Result<u64, Failure> {
        let mut new = 0;
        for (link, places) in self.by_link(statements.iter().map(|statement| &statement.hash))? {
            for places in places.chunks(VERDICT_BATCH_MAX) {
                let (tell, told) = mpsc::channel();
                let some: Vec<&Statement> = places.iter().map(|at| &statements[*at]).collect();
                link.tell(engine, &some, self.patience(), Box::new(move |kept| _ = tell.send(kept)))?;
                new += told.recv().unwrap_or(Err(Failure::Disconnected))?;
            }
        }
        Ok(new)
    }

    /// Which of these belong to which server, by their places.
    fn by_link<'a>(&self, hashes: impl Iterator<Item = &'a Hash>) -> Result<Shares<'_>, Refused> {
        let mut groups: Shares<'_> = Vec::new();
        for (at, hash) in hashes.enumerate() {
            let link = self.link(hash).ok_or(Refused::NoPeer)?;
            match groups.iter_mut().find(|(other, _)| Arc::ptr_eq(other, link)) {
                Some((_, places)) => places.push(at),
                None => groups.push((link, vec![at])),
            }
        }
        Ok(groups)
    }

    /// What each server has counted, as OpenMetrics.
    #[must_use]
    pub fn stat_and_wait(&self) -> Vec<(String, Result<String, Failure>)> {
        let ask = |link: &Arc<Link>| {
            let (tell, told) = mpsc::channel();
            link.stat(self.patience(), Box::new(move |text| _ = tell.send(text)))?;
            told.recv().unwrap_or(Err(Failure::Disconnected))
        };
        self.links.iter().map(|link| (link.address.clone(), ask(link))).collect()
    }

    fn patience(&self) -> Duration {
        self.links.first().map_or(Duration::ZERO, |link| link.settings.patience)
    }

    /// Whether any server can be asked now.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.links.iter().any(|link| link.state().is_usable())
    }

    /// Waits until each server can be asked, or the time is over; whether one can.
    #[must_use]
    pub fn wait_until_usable(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        for link in &self.links {
            let mut state = link.state();
            while !state.is_usable() {
                // Another key or version will not be another one in a moment.
                let is_hopeless = matches!(state.closing, Some(Closing::Version | Closing::Domain | Closing::Role));
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || is_hopeless {
                    break;
                }
                state = link.wait(state, left);
            }
        }
        self.is_usable()
    }

    /// The network is another one: all servers are tried at once. Changes of links and addresses are noticed without it.
    pub fn network_changed(&self) {
        self.network.changed();
    }

    /// How often the network has changed.
    #[must_use]
    pub fn network_changes(&self) -> u64 {
        self.network.changes()
    }

    /// Runs `tell` after each change of the network, when all servers are being tried already. It runs on the thread that noticed it;
    /// it should be short, and must not call this or [`Self::network_changed`].
    pub fn on_network_change(&self, tell: impl Fn() + Send + 'static) {
        self.network.tell(Box::new(tell));
    }

    /// How each server is doing.
    #[must_use]
    pub fn health(&self) -> Vec<Health> {
        let health = |link: &Arc<Link>| {
            let state = link.state();
            Health {
                address: link.address.clone(),
                is_connected: state.welcome.is_some(),
                is_usable: state.is_usable(),
                last_error: state.last_error.as_deref().map(str::to_owned),
                counted: link.counters.counted(),
            }
        };
        self.links.iter().map(health).collect()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.network.end();
        self.links.iter().for_each(|link| link.end());
    }
}
