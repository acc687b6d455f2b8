//! Servers of directory summaries: one that answers by the name of the directory, and a real one.

use std::{
    ffi::OsString,
    fs,
    io::{BufWriter, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::{
            ffi::OsStrExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use onesweep_summary::{
    file_system::FileSystem,
    service::{
        protocol::{Beginning, Figures, Head, Name, Question, Refusal, Row},
        reach::Itself,
        server::{Served, Server},
    },
    store::Store,
    summaries::{Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};
use onesweep_sys::peer;
use serde::Serialize;

/// Says what the program in C expects, in the words of the real protocol, until this process ends.
pub(crate) fn stand_in(directory: &Path) -> PathBuf {
    let socket = directory.join("stand-in");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        listener.incoming().for_each(|connection| drop(thread::spawn(|| answer_all(&connection.unwrap()))))
    });
    socket
}

fn answer_all(connection: &UnixStream) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let Ok((length, Some(directory))) = peer::receive_with_file(connection.as_fd(), &mut bytes) else { return };
        let question: Question = serde_json::from_slice(&bytes[..length]).unwrap();
        let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap();
        let name: OsString = path.file_name().unwrap().to_owned();
        let mut out = BufWriter::new(connection);
        let begins = match question.freshness {
            Freshness::Exact => 1000,
            Freshness::Cached => 1100,
            Freshness::Synced => 1200,
        };
        let head = Head { lines: 1, exact: true, harvested_at: 9, unreadable: 10, ..Head::default() };
        let row = Row {
            name: Name::of(b""),
            depth: 0,
            total: figures(begins),
            own: figures(begins + 10),
            newest: Some(7),
            largest: Some(8),
            past: None,
        };
        match name.as_bytes() {
            b"answers" => {
                say(&mut out, &Beginning::Answer(head));
                say(&mut out, &row);
            }
            b"partial" => {
                say(&mut out, &Beginning::Answer(Head { exact: false, partial: true, ..head }));
                say(&mut out, &Row { newest: None, largest: None, ..row });
            }
            b"without" => say(&mut out, &Beginning::Answer(Head { lines: 0, ..head })),
            b"untracked" => say(&mut out, &Beginning::Refused(Refusal::NotTracked)),
            b"denied" => say(&mut out, &Beginning::Refused(Refusal::Denied)),
            b"fails" => say(&mut out, &Beginning::Refused(Refusal::Failed("the store is in pieces".into()))),
            // Tells that it was asked, and has no answer until who asked has gone.
            b"waits" => {
                fs::write(path.join("asked"), "").unwrap();
                let ended = peer::receive_with_file(connection.as_fd(), &mut bytes);
                assert!(matches!(ended, Ok((0, None)) | Err(_)), "nothing else is asked meanwhile");
                return;
            }
            b"nonsense" => out.write_all(b"what?\n").unwrap(),
            _ => return,
        }
        out.flush().unwrap();
    }
}

fn figures(begins: i64) -> Figures {
    Figures {
        bytes: begins,
        directory_bytes: begins + 1,
        allocated: begins + 2,
        freed: begins + 3,
        files: begins + 4,
        directories: begins + 5,
        others: begins + 6,
    }
}

fn say(out: &mut impl Write, what: &impl Serialize) {
    serde_json::to_writer(&mut *out, what).unwrap();
    out.write_all(b"\n").unwrap();
}

/// Tracks the file system that is mounted at `volume`, until this process ends. Needs root.
pub(crate) fn real(volume: &Path, directory: &Path) -> PathBuf {
    let file_system: Arc<dyn FileSystem> = Arc::new(Volume::of(volume).unwrap());
    let tracker = Fanotify::start(Arc::clone(&file_system)).unwrap();
    let store = Store::open(&directory.join("store")).unwrap();
    let root = file_system.root();
    let summaries = Summaries::open(store, (file_system, tracker), root, b"a test").unwrap();
    let served = Served::new(volume.to_owned(), summaries);
    let server = Arc::new(Server::new(vec![Arc::clone(&served)], Box::new(Itself), Vec::new()));
    served.catch_up(|_, done| done.unwrap()).unwrap();
    let socket = directory.join("real");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let server = Arc::clone(&server);
            thread::spawn(move || server.converse(&connection.unwrap()));
        }
    });
    socket
}
