//! What stands between a client and a server, and spoils what is said. Kernels of tests may have no netem.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use onesweep_peer::{
    id::Hash,
    wire::{Priority, Request, request},
};

/// What becomes of what the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Pass,
    /// Nothing comes any more, and nothing is closed: half-open.
    Hold,
    /// Connections are closed at once, old ones and new ones.
    Cut,
    /// A byte in a millisecond.
    Drip,
    /// Each portion comes later than it could.
    Delay,
    /// What TCP makes of lost packets: some portions come late, and what is behind them waits.
    Lose,
    /// Some portions never come, though what is behind them does.
    Drop,
    /// Other bytes in the same number.
    Garbage,
    /// A byte of what is long enough to be a block is another one.
    Flip,
}

impl Treatment {
    pub(crate) const BAD: [Self; 8] =
        [Self::Hold, Self::Cut, Self::Drip, Self::Delay, Self::Lose, Self::Drop, Self::Garbage, Self::Flip];
}

const LOOK: Duration = Duration::from_millis(2);

struct Shared {
    treatment: Mutex<Treatment>,
    portions: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
    /// What clients have said, by connection.
    asked: Mutex<Vec<Vec<u8>>>,
    is_ending: AtomicBool,
}

impl Shared {
    fn now(&self) -> Treatment {
        *self.treatment.lock().unwrap()
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

pub(crate) struct Relay {
    pub(crate) address: String,
    shared: Arc<Shared>,
}

impl Relay {
    pub(crate) fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            treatment: Mutex::new(Treatment::Pass),
            portions: AtomicU64::new(0),
            open: Mutex::default(),
            asked: Mutex::default(),
            is_ending: AtomicBool::new(false),
        });
        let all = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if all.is_ending.load(Ordering::Acquire) {
                    return;
                }
                if all.now() == Treatment::Cut {
                    continue;
                }
                let Ok(to) = TcpStream::connect(&server) else { continue };
                let both = [client.try_clone().unwrap(), to.try_clone().unwrap()];
                all.open.lock().unwrap().extend(both);
                let connection = {
                    let mut asked = all.asked.lock().unwrap();
                    asked.push(Vec::new());
                    asked.len() - 1
                };
                for (from, to, asks) in
                    [(client.try_clone().unwrap(), to.try_clone().unwrap(), Some(connection)), (to, client, None)]
                {
                    let shared = Arc::clone(&all);
                    thread::spawn(move || pass(from, to, asks, &shared));
                }
            }
        });
        Self { address, shared }
    }

    /// The blocks that clients have asked for, and how urgently.
    pub(crate) fn gets(&self) -> Vec<(Priority, Hash)> {
        let mut gets = Vec::new();
        for said in self.shared.asked.lock().unwrap().iter() {
            let mut rest = &said[..];
            while let Some((frame, used)) = request(rest).unwrap() {
                if let Request::Get { priority, hashes, .. } = frame {
                    gets.extend(hashes.iter().map(|hash| (priority, hash)));
                }
                rest = &rest[used..];
            }
        }
        gets
    }

    pub(crate) fn treat(&self, treatment: Treatment) {
        *self.shared.treatment.lock().unwrap() = treatment;
        if treatment == Treatment::Cut {
            self.shared.cut();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.treat(Treatment::Cut);
        self.shared.is_ending.store(true, Ordering::Release);
        let _ = TcpStream::connect(&self.address);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, asks: Option<usize>, shared: &Shared) {
    let is_answer = asks.is_none();
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        let portion = shared.portions.fetch_add(1, Ordering::Relaxed);
        let bytes = &mut buffer[..count];
        if let Some(connection) = asks {
            shared.asked.lock().unwrap()[connection].extend_from_slice(bytes);
        }
        while shared.now() == Treatment::Hold {
            thread::sleep(LOOK);
        }
        match shared.now() {
            Treatment::Delay => thread::sleep(Duration::from_millis(20)),
            Treatment::Lose if portion.is_multiple_of(5) => thread::sleep(Duration::from_millis(200)),
            Treatment::Drop if is_answer && portion.is_multiple_of(3) => continue,
            Treatment::Garbage if is_answer => {
                bytes.iter_mut().zip(portion..).for_each(|(byte, other)| *byte = (other * 167) as u8);
            }
            Treatment::Flip if is_answer && count > 2048 => bytes[count / 2] ^= 1,
            _ => {}
        }
        let written = match shared.now() {
            Treatment::Drip if is_answer => bytes.iter().try_for_each(|byte| {
                if shared.now() == Treatment::Drip {
                    thread::sleep(Duration::from_millis(1));
                }
                to.write_all(&[*byte])
            }),
            _ => to.write_all(bytes),
        };
        if written.is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
