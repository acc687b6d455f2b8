//! A directory that is closed, or moved into a closed one, shows nobody what is harvested below it, before it is read itself.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use onesweep_summary::{
    clock::Clock,
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    record::{Access, Record},
    store::Store,
    summaries::{Asking, Freshness, Staying, Summaries, Viewer},
    tracker::{Change, Drained, Tracker},
    view::view,
};
use onesweep_sys::fanotify::Happened;

const ROOT: u64 = 1;
const USER: u32 = 1000;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

struct Directory {
    parent: u64,
    mode: u32,
    files: i64,
}

#[derive(Default)]
struct Tree {
    all: Mutex<BTreeMap<u64, Directory>>,
    told: Mutex<Vec<Change>>,
    /// Of what happens after the first one is read nobody is told: that the second one is closed.
    closes_after: Mutex<Option<(u64, u64)>>,
    has_lost: AtomicBool,
}

impl Tree {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Directory>> {
        self.all.lock().expect("not poisoned")
    }

    fn tell(&self, ino: u64, happened: Happened) {
        let change = Change { directory: Some(id(ino)), object: None, happened };
        self.told.lock().expect("not poisoned").push(change);
    }

    fn set_mode(&self, ino: u64, mode: u32) {
        self.all().get_mut(&ino).expect("it is there").mode = mode;
        self.tell(ino, Happened::ATTRIB | Happened::ON_DIRECTORY);
    }

    fn add_file(&self, ino: u64) {
        self.all().get_mut(&ino).expect("it is there").files += 1;
        self.tell(ino, Happened::CREATE);
    }

    fn move_into(&self, ino: u64, parent: u64) {
        let from = std::mem::replace(&mut self.all().get_mut(&ino).expect("it is there").parent, parent);
        self.tell(from, Happened::MOVED_FROM | Happened::ON_DIRECTORY);
        self.tell(parent, Happened::MOVED_TO | Happened::ON_DIRECTORY);
    }

    fn access(&self, ino: u64) -> Option<Access> {
        self.all().get(&ino).map(|directory| Access { mode: 0o40000 | directory.mode, uid: 0, gid: 0, acl: 0 })
    }
}

impl Directories for Tree {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let access = self.access(directory.ino).ok_or(io::ErrorKind::NotFound)?;
        let all = self.all();
        let mut reading = Reading { access, ..Reading::default() };
        reading.own.sums.directories = 1;
        reading.own.sums.files = all[&directory.ino].files;
        reading.own.sums.closed = i64::from(!access.is_open_to_all());
        drop(all);
        let closes = self.closes_after.lock().expect("not poisoned").take_if(|(read, _)| *read == directory.ino);
        if let Some((_, closed)) = closes {
            self.all().get_mut(&closed).expect("it is there").mode = 0o700;
            self.has_lost.store(true, Ordering::SeqCst);
        }
        let all = self.all();
        let below = all.iter().filter(|(ino, other)| other.parent == directory.ino && **ino != ROOT);
        reading.directories = below.map(|(&ino, _)| (id(ino), ino.to_string().into_bytes().into())).collect();
        Ok(reading)
    }

    fn look(&self, _: NodeId) -> io::Result<LinkedName> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn settling_seconds(&self) -> i64 {
        0
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        self.all().get(&directory.ino).map(|found| id(found.parent)).ok_or(io::ErrorKind::NotFound.into())
    }
}

struct Told(Arc<Tree>);

impl Tracker for Told {
    fn drain(&self) -> io::Result<Drained> {
        let changes = std::mem::take(&mut *self.0.told.lock().expect("not poisoned"));
        Ok(Drained { changes, lost: self.0.has_lost.swap(false, Ordering::SeqCst) })
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, _: NodeId, _: bool) {}

    fn start_anew(&self) {}
}

/// Somebody whom nothing belongs to.
struct Other<'a>(&'a Tree);

impl std::fmt::Debug for Other<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Other")
    }
}

impl Viewer for Other<'_> {
    fn may_list(&self, _: NodeId, access: &Access) -> bool {
        access.mode & 0o5 == 0o5
    }

    fn access_now(&self, id: NodeId) -> Option<Access> {
        self.0.access(id.ino)
    }

    fn parent_now(&self, id: NodeId) -> Option<NodeId> {
        self.0.parent(id).ok()
    }

    fn is_as_stored(&self, id: NodeId, record: &Record) -> bool {
        self.0.access(id.ino) == Some(record.access)
    }

    fn staying(&self) -> Staying {
        unreachable!("nobody waits for so long")
    }
}

#[derive(Debug, Default)]
struct Hands(AtomicU64);

impl Clock for Hands {
    fn time(&self) -> Duration {
        self.passed() + Duration::from_secs(1_700_000_000)
    }

    fn passed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

struct Asked {
    tree: Arc<Tree>,
    hands: Arc<Hands>,
    summaries: Summaries<Arc<Tree>, Told>,
}

impl Asked {
    /// 1 holds 2, 4 and the closed 5, and 2 holds 3; all of it is known.
    fn new() -> Asked {
        let tree = Arc::new(Tree::default());
        for (ino, parent, mode) in [(ROOT, ROOT, 0o755), (2, 1, 0o755), (3, 2, 0o755), (4, 1, 0o755), (5, 1, 0o700)] {
            tree.all().insert(ino, Directory { parent, mode, files: 10 });
        }
        let (store, told) = (Store::in_memory().expect("a store"), Told(Arc::clone(&tree)));
        let summaries = Summaries::open(store, (Arc::clone(&tree), told), id(ROOT), b"tree").expect("summaries");
        let hands = Arc::<Hands>::default();
        let mut asked = Asked { tree, summaries: summaries.with_clock(hands.clone()), hands };
        assert_eq!(asked.files(ROOT), 50);
        asked
    }

    /// By who sees all.
    fn files(&mut self, ino: u64) -> i64 {
        let answer = self.summaries.query(id(ino), Freshness::Exact).expect("an answer");
        assert!(answer.is_exact, "{answer:?}");
        answer.totals.sums.files
    }

    /// Whether something is hidden from somebody else, by what is stored.
    fn hides(&self, ino: u64) -> bool {
        let slot = self.summaries.ledger().nodes.find(id(ino)).expect("it is known");
        self.summaries.hides_below(slot, Some(&Other(&self.tree))).expect("it reads")
    }

    /// The files that each point of the history tells a user.
    fn noted(&self, ino: u64) -> Vec<i64> {
        let slot = self.summaries.ledger().nodes.find(id(ino)).expect("it is known");
        let history = self.summaries.history(slot).expect("it reads").for_user(USER);
        history.points().iter().map(|point| point.inodes).collect()
    }

    fn note(&mut self) {
        self.hands.0.fetch_add(600, Ordering::SeqCst);
        self.summaries.tend(i64::MAX, 1000, &|| false).expect("no error");
    }
}

#[test]
fn what_is_closed_shows_nothing_of_what_comes_after() {
    let mut asked = Asked::new();
    assert!(!asked.hides(2) && asked.hides(ROOT));
    asked.tree.set_mode(2, 0o700);
    asked.tree.add_file(3);
    assert_eq!(asked.files(3), 11);
    assert!(asked.hides(2));
    assert!(!asked.hides(4), "nothing is known of that");
    assert_eq!(asked.files(2), 21);
    assert!(asked.hides(2));
    asked.tree.set_mode(2, 0o755);
    asked.files(3);
    assert!(!asked.hides(2), "it is open again");
}

#[test]
fn what_goes_into_a_closed_one_shows_nothing_of_what_comes_after() {
    let mut asked = Asked::new();
    asked.tree.move_into(3, 5);
    asked.tree.add_file(3);
    assert_eq!(asked.files(3), 11);
    assert!(asked.hides(2), "it is stored there");
    assert_eq!((asked.files(2), asked.hides(2)), (10, false));
    // Where everybody comes to it, it is shown.
    asked.tree.move_into(3, 2);
    asked.files(ROOT);
    asked.tree.move_into(3, 4);
    assert_eq!((asked.files(3), asked.hides(2)), (11, false));
}

/// What is stored is told until it is known what was lost.
#[test]
fn what_may_have_been_closed_when_events_were_lost_is_looked_at_before_that_is_known() {
    let mut asked = Asked::new();
    asked.summaries.leave_searches();
    asked.tree.add_file(3);
    *asked.tree.closes_after.lock().expect("not poisoned") = Some((3, 2));
    let answer = asked.summaries.query_within(id(3), Freshness::Exact, &mut Asking::default(), &|| false);
    assert!(answer.expect("no error").is_none() && asked.summaries.is_behind());
    assert!(asked.hides(2) && !asked.hides(4), "what was read lies below");
    assert_eq!((asked.files(3), asked.hides(2)), (11, true));
}

/// What stands above is taken from what is stored.
#[test]
fn lines_leave_out_what_may_not_be_seen_by_now() {
    let mut asked = Asked::new();
    asked.tree.all().get_mut(&5).expect("it is there").mode = 0o755;
    asked.tree.tell(5, Happened::ATTRIB | Happened::ON_DIRECTORY);
    asked.files(ROOT);
    let shown = |asked: &Asked, depth| {
        let (nodes, tree) = (&asked.summaries.ledger().nodes, &asked.tree);
        let may_list = |slot, _: &Access| tree.access(nodes.id(slot).ino).is_some_and(|now| now.mode & 0o5 == 0o5);
        let root = nodes.find(id(ROOT)).expect("it is known");
        let seen = view(asked.summaries.ledger(), root, depth, Some(&may_list)).expect("it reads");
        (seen.lines.len(), seen.lines.last().expect("a line").totals.sums.files, seen.is_partial)
    };
    assert_eq!((shown(&asked, 0), shown(&asked, 9)), ((1, 50, false), (5, 50, false)));
    asked.tree.set_mode(2, 0o700);
    asked.tree.add_file(3);
    asked.files(3);
    assert_eq!((shown(&asked, 0), shown(&asked, 9)), ((1, 30, true), (4, 30, true)));
}

#[test]
fn a_history_tells_nobody_what_was_closed_by_then() {
    for is_moved in [false, true] {
        let mut asked = Asked::new();
        asked.tree.set_mode(5, 0o755);
        asked.files(ROOT);
        asked.summaries.begin_noting();
        asked.note();
        let before = asked.noted(ROOT).len();
        match is_moved {
            true => {
                asked.tree.set_mode(5, 0o700);
                asked.files(5);
                asked.tree.move_into(3, 5);
            }
            false => asked.tree.set_mode(2, 0o700),
        }
        asked.tree.add_file(3);
        assert_eq!(asked.files(3), 11);
        asked.note();
        asked.note();
        assert_eq!(asked.noted(ROOT).len(), before, "moved: {is_moved}");
        // It goes, and nobody is told what it held.
        asked.tree.all().retain(|ino, _| ![2, 3].contains(ino));
        asked.tree.all().get_mut(&5).expect("it is there").mode = 0o755;
        asked.tree.tell(5, Happened::ATTRIB | Happened::ON_DIRECTORY);
        for gone_from in [ROOT, 2, 5] {
            asked.tree.tell(gone_from, Happened::DELETE | Happened::ON_DIRECTORY);
        }
        asked.note();
        assert!(asked.noted(ROOT).iter().all(|&inodes| inodes <= 55), "{:?}", asked.noted(ROOT));
        asked.files(ROOT);
        asked.note();
        assert!(asked.noted(ROOT).len() > before, "all of it may be seen again");
    }
}
