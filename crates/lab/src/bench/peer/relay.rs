//! What stands between a client and a server and spoils what is said: the kernels of tests may have no netem.
//!
//! A word on standard input, and each connection, old and new, is from then on passed, held without being closed
//! (half-open), dripped at 1,000 bytes a second, followed by garbage, or closed when the next is said.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// How what comes from the server is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    Pass,
    Hold,
    Drip,
    Garbage,
    Cut,
}

impl Treatment {
    const ALL: [Self; 5] = [Self::Pass, Self::Hold, Self::Drip, Self::Garbage, Self::Cut];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Hold => "hold",
            Self::Drip => "drip",
            Self::Garbage => "garbage",
            Self::Cut => "cut",
        }
    }

    /// What is printed once it holds.
    pub(super) fn told(self) -> String {
        format!("from now on: {}", self.word())
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|treatment| treatment.word() == word)
    }
}

/// What it says when it listens.
pub(super) const READY: &str = "relaying";
const LOOK: Duration = Duration::from_millis(5);

/// The hidden command: until its standard input ends.
pub(crate) fn run(listen: &str, server: &str) -> Result<u8, String> {
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    let treatment = Arc::new(AtomicU8::new(Treatment::Pass as u8));
    let (server, shared) = (server.to_owned(), Arc::clone(&treatment));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // While nothing is passed, nobody is there who could take a connection on.
            let Ok(to) = TcpStream::connect(&server) else { continue };
            for (from, to, is_answer) in [(client.try_clone(), to.try_clone(), false), (Ok(to), Ok(client), true)] {
                let (Ok(from), Ok(to)) = (from, to) else { continue };
                let treatment = Arc::clone(&shared);
                thread::spawn(move || pass(from, to, is_answer, &treatment));
            }
        }
    });
    println!("{READY}");
    let _ = std::io::stdout().flush();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let treated = Treatment::of(line.trim()).ok_or_else(|| format!("{line:?} is no treatment"))?;
        treatment.store(treated as u8, Ordering::Release);
        println!("{}", treated.told());
    }
    Ok(0)
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_answer: bool, treatment: &AtomicU8) {
    let now = || Treatment::ALL[usize::from(treatment.load(Ordering::Acquire)) % Treatment::ALL.len()];
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        while now() == Treatment::Hold {
            thread::sleep(LOOK);
        }
        if now() == Treatment::Cut {
            break;
        }
        let bytes = &mut buffer[..count];
        let written = match now() {
            Treatment::Drip if is_answer => bytes.iter().try_for_each(|byte| {
                if now() == Treatment::Drip {
                    thread::sleep(Duration::from_millis(1));
                }
                to.write_all(&[*byte])
            }),
            Treatment::Garbage if is_answer => {
                let mut random = crate::random::Random::new(count as u64);
                bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
                to.write_all(bytes)
            }
            _ => to.write_all(bytes),
        };
        if written.is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_again() {
        assert!(Treatment::ALL.iter().all(|&treatment| Treatment::of(treatment.word()) == Some(treatment)));
        assert_eq!(Treatment::of("else"), None);
    }

    /// What is passed comes as it was, and what isn't doesn't.
    #[test]
    fn answers_are_treated() {
        let [here, there] = [(), ()].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap().0)
        });
        let ((mut client, to), (mut server, from)) = (here, there);
        let treatment = Arc::new(AtomicU8::new(Treatment::Pass as u8));
        let shared = Arc::clone(&treatment);
        let thread = thread::spawn(move || pass(from, to, true, &shared));
        let mut came = [0; 4];
        server.write_all(b"pass").unwrap();
        client.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"pass");
        treatment.store(Treatment::Garbage as u8, Ordering::Release);
        server.write_all(b"pass").unwrap();
        client.read_exact(&mut came).unwrap();
        assert_ne!(&came, b"pass");
        treatment.store(Treatment::Hold as u8, Ordering::Release);
        server.write_all(b"held").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(client.read(&mut came).is_err());
        client.set_read_timeout(None).unwrap();
        treatment.store(Treatment::Drip as u8, Ordering::Release);
        client.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"held");
        treatment.store(Treatment::Cut as u8, Ordering::Release);
        server.write_all(b"last").unwrap();
        thread.join().unwrap();
        assert_eq!(client.read(&mut came).unwrap(), 0);
    }
}
