//! `onesweep defrag --peer` on each file system whose files can be moved: what is moved comes from a server that has it, and is
//! right whatever a server says.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use onesweep_peer::wire::{Answer, FRAME_BYTES_MAX, answer};
use serde_json::Value;

use crate::{
    image::unmount,
    peer::{Place, Raced, Server, counted},
    peer_mount::{of_servers, push, wait_until},
    run::{figure, finish, onesweep, output, root_test, run, text},
    tree::{self, Rng},
};

const FILES: u64 = 200;
const BLOCK: usize = 4096;
/// Of a file.
const BLOCKS: usize = 4;

/// A file system, what moves its files, and what checks it.
struct Kind {
    megabytes: u64,
    mkfs: &'static [&'static str],
    asked: &'static [&'static str],
    check: &'static [&'static str],
}

const EXT4: Kind =
    Kind { megabytes: 64, mkfs: &["mkfs.ext4", "-q", "-F", "-b", "4096"], asked: &[], check: &["e2fsck", "-fn"] };
/// With reflinks.
const XFS: Kind = Kind { megabytes: 320, mkfs: &["mkfs.xfs", "-q", "-f"], asked: &[], check: &["xfs_repair", "-n"] };
/// Where all places of a file change at once.
const XFS_WHOLE: Kind = Kind { mkfs: &["mkfs.xfs", "-q", "-f", "-m", "reflink=0"], ..XFS };
const BTRFS: Kind = Kind {
    megabytes: 256,
    mkfs: &["mkfs.btrfs", "-q", "-f"],
    asked: &["--dedupe"],
    check: &["btrfs", "check", "--force", "--check-data-csum"],
};

fn content(file: u64) -> Vec<u8> {
    Rng::new(file + 1).bytes(BLOCKS * BLOCK)
}

/// Mounts an image past the race for as long as something is done there.
fn mounted<T>(place: &Place, image: &Path, work: impl FnOnce(&Path) -> T) -> T {
    let mnt = place.path("mnt");
    let _ = fs::create_dir(&mnt);
    run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&mnt));
    let done = work(&mnt);
    unmount(&mnt);
    wait_until("the loop device goes", || output(Command::new("losetup").arg("--associated").arg(image)).is_empty());
    done
}

/// An image with an index, whose files grew by turns, so that each lies in pieces.
fn scattered(place: &Place, kind: &Kind) -> PathBuf {
    let image = place.path("image");
    File::create(&image).expect("an image").set_len(kind.megabytes << 20).expect("its size");
    run(Command::new(kind.mkfs[0]).args(&kind.mkfs[1..]).arg(&image));
    mounted(place, &image, |mnt| {
        fs::create_dir(mnt.join("mail")).expect("a folder");
        for at in (0..BLOCKS).map(|block| block * BLOCK) {
            for number in 0..FILES {
                let path = mnt.join(format!("mail/{number}"));
                let file = File::options().create(true).append(true).open(path).expect("a file");
                file.write_all_at(&content(number)[at..at + BLOCK], at as u64).expect("it grows");
            }
            tree::sync(mnt);
        }
    });
    place.index(&[], &image, 0);
    image
}

fn defrag(place: &Place, kind: &Kind) -> Value {
    let mut command = onesweep(["defrag", "--peer", "--force", "--json"]);
    let told = text(&finish(command.args(kind.asked).arg(place.path("mnt/mail")), 0).stdout);
    let told: Value = serde_json::from_str(told.trim()).expect("JSON");
    assert!(figure(&told, "moved_files") > FILES / 2, "{:?}: {told}", kind.mkfs);
    told
}

/// On the disk, without the race, and without what was in memory.
fn is_all_right(place: &Place, kind: &Kind, image: &Path) {
    mounted(place, image, |mnt| {
        for number in 0..FILES {
            let read = fs::read(mnt.join(format!("mail/{number}"))).expect("it is read");
            assert!(read == content(number), "{:?}: {number}", kind.mkfs);
        }
        // Nobody races it now.
        let mut command = onesweep(["defrag", "--peer", "--force"]);
        let refused = text(&finish(command.args(kind.asked).arg(mnt.join("mail")), 2).stderr);
        assert!(refused.contains("are not raced") && refused.contains("onesweep peer mount"), "{refused}");
    });
    output(Command::new(kind.check[0]).args(&kind.check[1..]).arg(image));
}

fn come_from_a_server(kind: &Kind) {
    let place = Place::new();
    let image = scattered(&place, kind);
    let server = Server::start(&place);
    push(&place, &image, &[&server]);
    let raced = Raced::start(&place, &image, &server.address, &["--policy", "quiet-disk"]);
    wait_until("the server is not reached", || of_servers(&place, "server_usable") == [1]);
    let of_mount = || ["reads_remote", "read_bytes_remote", "answers_wrong"].map(|name| counted(&place, name));
    let (before, hits) = (of_mount(), of_servers(&place, "server_hits")[0]);
    defrag(&place, kind);
    let [reads, bytes, wrong] = of_mount();
    let (bytes, hits) = (bytes - before[1], of_servers(&place, "server_hits")[0] - hits);
    assert!(reads > before[0], "{:?}: nothing came from the server", kind.mkfs);
    // Tables and directories are less: so it was what the files hold. Of zeros between no server is asked.
    let content = FILES * (BLOCKS * BLOCK) as u64;
    assert!(bytes.min(hits * BLOCK as u64) > content / 2, "{:?}: {bytes} bytes, {hits} blocks of {content}", kind.mkfs);
    assert_eq!((wrong, counted(&place, "reads_failed")), (0, 0));
    assert_eq!(raced.end(), Some(0));
    is_all_right(&place, kind, &image);
}

#[test]
fn files_of_an_ext4_that_are_moved_come_from_a_server() {
    root_test!();
    come_from_a_server(&EXT4);
}

#[test]
fn files_of_an_xfs_that_are_moved_come_from_a_server() {
    root_test!();
    come_from_a_server(&XFS);
    come_from_a_server(&XFS_WHOLE);
}

#[test]
fn files_of_a_btrfs_that_are_moved_come_from_a_server() {
    root_test!();
    come_from_a_server(&BTRFS);
}

/// It is raced, but its files are moved when that is asked for, and not else.
#[test]
fn a_btrfs_is_only_reported_on_unless_it_is_asked_for() {
    root_test!();
    let place = Place::new();
    let image = scattered(&place, &BTRFS);
    let server = Server::start(&place);
    let raced = Raced::start(&place, &image, &server.address, &[]);
    let mut command = onesweep(["defrag", "--peer", "--force"]);
    let refused = text(&finish(command.arg(place.path("mnt/mail")), 2).stderr);
    assert!(refused.contains("--dedupe") && !refused.contains("not raced"), "{refused}");
    assert_eq!(raced.end(), Some(0));
    is_all_right(&place, &BTRFS, &image);
}

/// What becomes of a server's blocks on their way.
const AS_THEY_ARE: u8 = 0;
const OTHER_BYTES: u8 = 1;
const NO_FRAMES: u8 = 2;

/// Stands between a mount and a server, and passes on what they say, until it is told to spoil that.
struct Between {
    address: String,
    treatment: Arc<AtomicU8>,
}

impl Between {
    fn new(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (server, treatment) = (server.address.clone(), Arc::new(AtomicU8::new(AS_THEY_ARE)));
        let of_all = Arc::clone(&treatment);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(&server).expect("the server");
                let (asks, hears) = (client.try_clone().expect("a stream"), server.try_clone().expect("a stream"));
                let treatment = Arc::clone(&of_all);
                thread::spawn(move || pass_on(asks, server));
                thread::spawn(move || treat(hears, client, &treatment));
            }
        });
        Self { address, treatment }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

fn treat(mut from: TcpStream, mut to: TcpStream, treatment: &AtomicU8) {
    let (mut heard, mut bytes) = (Vec::new(), vec![0; FRAME_BYTES_MAX]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        heard.extend_from_slice(&bytes[..count]);
        let mut said = Vec::new();
        while let Ok(Some((heard_of, used))) = answer(&heard) {
            match (treatment.load(Ordering::SeqCst), heard_of) {
                (OTHER_BYTES, Answer::Block { id, bytes }) => {
                    let other: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                    Answer::Block { id, bytes: &other }.encode(&mut said);
                }
                (NO_FRAMES, Answer::Block { .. }) => said.extend([0xff; BLOCK]),
                (_, heard_of) => heard_of.encode(&mut said),
            }
            heard.drain(..used);
        }
        if to.write_all(&said).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The server is as it should be until files are moved.
fn no_other_byte_is_moved(kind: &Kind, treatment: u8) {
    let place = Place::new();
    let image = scattered(&place, kind);
    let server = Server::start(&place);
    push(&place, &image, &[&server]);
    let between = Between::new(&server);
    let raced = Raced::start(&place, &image, &between.address, &["--policy", "quiet-disk"]);
    wait_until("the server is not reached", || of_servers(&place, "server_usable") == [1]);
    // Before it is spoilt: whoever reads meanwhile may be the one who hears of it, and nobody asks again after that.
    let connections = of_servers(&place, "server_connections")[0];
    between.treatment.store(treatment, Ordering::SeqCst);
    let of_mount = || ["reads_remote", "read_bytes_local", "answers_wrong"].map(|name| counted(&place, name));
    let before = of_mount();
    defrag(&place, kind);
    let [remote, local, wrong] = of_mount();
    assert_eq!(remote, before[0], "{:?}: {treatment}: it was believed", kind.mkfs);
    let (local, content) = (local - before[1], FILES * (BLOCKS * BLOCK) as u64);
    assert!(local >= content, "{:?}: the disk's are all {content} bytes, {local} were read", kind.mkfs);
    match treatment {
        OTHER_BYTES => assert!(wrong > 0, "{:?}: nobody asked it", kind.mkfs),
        _ => wait_until("it is asked by another connection", || {
            of_servers(&place, "server_connections")[0] > connections
        }),
    }
    assert_eq!(counted(&place, "reads_failed"), 0);
    assert_eq!(raced.end(), Some(0));
    is_all_right(&place, kind, &image);
}

#[test]
fn a_server_that_lies_moves_no_other_byte() {
    root_test!();
    for kind in [EXT4, XFS, XFS_WHOLE, BTRFS] {
        no_other_byte_is_moved(&kind, OTHER_BYTES);
    }
}

#[test]
fn a_server_that_talks_nonsense_moves_no_other_byte() {
    root_test!();
    for kind in [EXT4, XFS, BTRFS] {
        no_other_byte_is_moved(&kind, NO_FRAMES);
    }
}
