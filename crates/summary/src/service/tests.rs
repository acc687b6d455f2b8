//! What others change while somebody looks in pieces: nobody learns by that what may not be seen, and nothing is called exact that isn't.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
};

use onesweep_sys::{fanotify::Group, files::Stat, handle::FileHandle};

use super::{
    each_alone::each_alone,
    listing::{Child, Listing, Measure},
    pages::Page,
    protocol::{Head, Inode, Name, Question, Refusal, Row},
    reach::Reach,
    server::{Served, Server, find_inode},
};
use crate::{
    access::Asker,
    access_lists::AccessLists,
    custom::{
        declare::Declared,
        found::Found,
        tally::{INODE_BYTES, Merge, Tally},
    },
    file_system::FileSystem,
    identity::{Family, NodeId},
    nodes::Slot,
    reading::{Directories, LinkedName, OpenFile, Reading},
    record::Access,
    store::Store,
    summaries::{Freshness, Summaries},
    tracker::Fanotify,
};

const ROOT: u64 = 1;
/// Nothing here is looked at in more pieces.
const TURNS_MAX: usize = 12;

type Turn = Box<dyn FnOnce()>;

thread_local! {
    static TURNS: RefCell<VecDeque<Turn>> = const { RefCell::new(VecDeque::new()) };
}

/// Who looks in pieces holds nothing just now.
pub(super) fn others_have_their_turn() {
    let turn = TURNS.with_borrow_mut(VecDeque::pop_front);
    turn.into_iter().for_each(|turn| turn());
}

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

#[derive(Clone, Copy, Debug)]
struct Directory {
    parent: u64,
    mode: u32,
    bytes: i64,
}

/// Directories, each of which has its number for a name, and belongs to root.
#[derive(Debug)]
struct Tree {
    top: File,
    all: Mutex<BTreeMap<u64, Directory>>,
    lists: AccessLists,
    declared: Arc<Declared>,
}

impl Tree {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Directory>> {
        self.all.lock().expect("not poisoned")
    }
}

impl Directories for Tree {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let all = self.all();
        let &Directory { mode, bytes, .. } = all.get(&directory.ino).ok_or(io::ErrorKind::NotFound)?;
        let access = Access { mode: 0o40_000 | mode, uid: 0, gid: 0, acl: 0 };
        let mut reading = Reading { access, ..Reading::default() };
        (reading.own.sums.directories, reading.own.sums.bytes) = (1, bytes);
        reading.own.sums.closed = i64::from(!access.is_open_to_all());
        let below = all.iter().filter(|(ino, other)| other.parent == directory.ino && **ino != ROOT);
        reading.directories = below.map(|(&ino, _)| (id(ino), ino.to_string().into_bytes().into())).collect();
        let mut files = Tally::default();
        let key = [&[0; INODE_BYTES - 8][..], &directory.ino.to_be_bytes(), b"file"].concat();
        files.add(&key, [directory.ino as i64, 0, 0], Merge::Files);
        reading.custom = Some(Found { itself: vec![Tally::default()], own: vec![files], ..Found::default() });
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

    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        Ok(Vec::new())
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        self.all().get(&directory.ino).map(|found| id(found.parent)).ok_or(io::ErrorKind::NotFound.into())
    }

    fn declared(&self) -> Option<Arc<Declared>> {
        Some(Arc::clone(&self.declared))
    }
}

impl FileSystem for Tree {
    fn may_hold(&self, _: u64) -> bool {
        true
    }

    fn is_it(&self, _: &Stat, _: NodeId) -> bool {
        true
    }

    fn root(&self) -> NodeId {
        id(ROOT)
    }

    fn family(&self) -> Option<Family> {
        None
    }

    fn id_of(&self, _: &Stat, _: Option<&FileHandle>) -> Option<NodeId> {
        Some(id(ROOT))
    }

    fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    fn identity(&self) -> io::Result<Vec<u8>> {
        Ok(b"tree".to_vec())
    }

    fn handle_of(&self, _: NodeId) -> io::Result<OwnedFd> {
        File::open("/").map(Into::into)
    }

    fn access_list(&self, _: NodeId) -> Option<Vec<u8>> {
        None
    }

    fn access_lists(&self) -> &AccessLists {
        &self.lists
    }

    fn ignore(&self, _: &Group, _: &[NodeId]) -> Vec<bool> {
        Vec::new()
    }

    fn heed(&self, _: &Group, _: &[NodeId]) -> Vec<io::Result<()>> {
        Vec::new()
    }
}

/// Everybody comes to the root, and to nothing else.
#[derive(Debug)]
struct ToTheRoot;

impl Reach for ToTheRoot {
    fn open(&self, _: &Asker, _: &Name) -> Result<OwnedFd, Refusal> {
        Ok(File::open("/").expect("a directory").into())
    }

    fn check_way_to(&self, _: &Asker, _: BorrowedFd<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

#[derive(Clone)]
struct Model {
    tree: Arc<Tree>,
    served: Arc<Served>,
    server: Arc<Server>,
}

impl Model {
    /// The directory of each, and its mode.
    fn of(directories: &[(u64, u64, u32)]) -> Model {
        let model = Model::begin(directories, Store::in_memory().expect("a store"), "[files]\nby = \"largest\"\n");
        model.served.catch_up(|_, caught_up| caught_up.expect("it is read")).expect("it is written");
        model
    }

    /// One that has still to be caught up with.
    fn begin(directories: &[(u64, u64, u32)], store: Store, declared: &str) -> Model {
        let directory = |&(ino, parent, mode): &(u64, u64, u32)| (ino, Directory { parent, mode, bytes: ino as i64 });
        let mut all: BTreeMap<u64, Directory> = directories.iter().map(directory).collect();
        all.insert(ROOT, Directory { parent: ROOT, mode: 0o755, bytes: 1 });
        let declared = Arc::new(Declared::parse(declared).expect("a summary"));
        let (top, lists) = (File::open("/").expect("a directory"), AccessLists::default());
        let tree = Arc::new(Tree { top, all: Mutex::new(all), lists, declared });
        let volume = Arc::clone(&tree) as Arc<dyn FileSystem>;
        let group = Group::new(false).expect("a group that watches nothing");
        let tracker = Fanotify::take_up(Arc::clone(&volume), group).expect("a tracker");
        let summaries = Summaries::open(store, (volume, tracker), id(ROOT), b"tree").expect("summaries");
        let served = Served::new("/".into(), summaries);
        let server = Arc::new(Server::new(vec![Arc::clone(&served)], Box::new(ToTheRoot), Vec::new()));
        Model { tree, served, server }
    }

    /// Something changes, and that is known.
    fn now(&self, change: impl FnOnce(&mut BTreeMap<u64, Directory>)) {
        change(&mut self.tree.all());
        let mut tracked = self.served.summaries().alone();
        let all: Vec<NodeId> = tracked.ledger().nodes.all().map(|slot| tracked.ledger().nodes.id(slot)).collect();
        all.into_iter().for_each(|id| tracked.tracker().tell(id));
        tracked.query(id(ROOT), Freshness::Exact).expect("an answer");
    }

    /// What others do in their next turn.
    fn then(&self, turn: impl FnOnce(&Model) + 'static) -> &Self {
        let model = self.clone();
        TURNS.with_borrow_mut(|turns| turns.push_back(Box::new(move || turn(&model))));
        self
    }

    /// In their next turn others change nothing.
    fn then_nothing(&self) -> &Self {
        self.then(|_| {})
    }

    fn slot(&self, ino: u64) -> Option<Slot> {
        self.served.summaries().shared().ledger().nodes.find(id(ino))
    }

    /// Lines, where others change something after so many turns.
    fn lines(&self, turns: usize, change: impl FnOnce(&Model) + 'static) -> (Head, Vec<Row>) {
        (0..turns).for_each(|_| _ = self.then_nothing());
        self.then(change);
        let question = Question { since: Some(0), depth: u32::MAX, ..question() };
        let volumes = self.server.volumes();
        let reached = self.server.reach(&volumes, (&somebody(), &question), None).expect("it is reached");
        let told = each_alone(reached, &somebody(), &question).expect("an answer");
        // They may come too late.
        TURNS.with_borrow_mut(VecDeque::clear);
        told
    }

    fn listing(&self) -> Listing {
        let listing = self.server.list(&somebody(), &question(), 100, Measure::Bytes).expect("an answer");
        assert!(TURNS.with_borrow(VecDeque::is_empty), "others have not had all of their turns");
        listing
    }
}

fn somebody() -> Asker {
    Asker::User { uid: 7, groups: vec![7] }
}

fn question() -> Question {
    Question { path: Some(Name::of(b"/")), ..Question::plain() }
}

fn name(ino: u64) -> Name {
    Name::of(ino.to_string().as_bytes())
}

fn names(rows: &[Row]) -> Vec<Name> {
    rows.iter().map(|row| row.name.clone()).collect()
}

/// Its number becomes that of a closed one that is made next.
fn replace(old: u64, new: (u64, u64)) -> impl FnOnce(&Model) {
    move |model| {
        model.now(|all| all.retain(|&ino, directory| ino != old && directory.parent != old));
        model.now(|all| _ = all.insert(new.0, Directory { parent: new.1, mode: 0o700, bytes: new.0 as i64 }));
    }
}

fn set_mode(ino: u64, mode: u32) -> impl FnOnce(&Model) {
    move |model| model.now(|all| all.get_mut(&ino).expect("it is there").mode = mode)
}

fn move_into(ino: u64, parent: u64) -> impl FnOnce(&Model) {
    move |model| model.now(|all| all.get_mut(&ino).expect("it is there").parent = parent)
}

/// 2 to 6 lie side by side.
fn wide() -> Model {
    Model::of(&[(2, 1, 0o755), (3, 1, 0o755), (4, 1, 0o755), (5, 1, 0o700), (6, 1, 0o755)])
}

#[test]
fn a_number_that_has_become_anothers_tells_nothing_of_that_one() {
    for (turns, old) in (0..TURNS_MAX).flat_map(|turns| [2, 3, 4, 6].map(|old| (turns, old))) {
        let model = wide();
        let before = model.slot(old);
        (0..turns).for_each(|_| _ = model.then_nothing());
        model.then(replace(old, (20, ROOT)));
        let listing = model.server.list(&somebody(), &question(), 100, Measure::Bytes).expect("an answer");
        TURNS.with_borrow_mut(VecDeque::clear);
        // It may have come in time to be looked at itself.
        let is_itself = |child: &Child| child.name != name(20) || child.denied;
        assert!(listing.children.iter().all(is_itself), "{turns} {old}: {listing:?}");
        let others = [2, 3, 4, 5, 6].into_iter().filter(|&ino| ino != old).map(name);
        let told: Vec<Name> = listing.children.iter().map(|child| child.name.clone()).collect();
        assert!(others.into_iter().all(|name| told.contains(&name)), "{turns} {old}: {told:?}");
        let is_replaced = model.slot(20) == before;
        assert_eq!((is_replaced, listing.exact), (model.slot(old).is_none(), !is_replaced), "{turns} {old}");
        assert!(turns > 0 || is_replaced);
    }
}

#[test]
fn a_file_is_told_only_where_the_asker_comes_to_it_by_now() {
    let files = |model: &Model| {
        let question = Question { by: Some("files".to_owned()), ..question() };
        let told = model.server.break_down(&somebody(), &question, None).expect("an answer");
        TURNS.with_borrow_mut(VecDeque::clear);
        (told.shares.into_iter().map(|share| share.key).collect::<Vec<_>>(), told.exact)
    };
    let all = ["6/file", "4/file", "3/file", "2/file", "file"].map(|path| Name::of(path.as_bytes()));
    let model = wide();
    assert_eq!(files(model.then_nothing()), (all.to_vec(), true));
    type Change = Box<dyn FnOnce(&Model)>;
    for (turns, one) in (0..TURNS_MAX).flat_map(|turns| [2, 3, 4, 6].map(|one| (turns, one))) {
        // Its number becomes that of one in the closed 5; it goes there; it is closed.
        let changes: [Change; 3] =
            [Box::new(replace(one, (20, 5))), Box::new(move_into(one, 5)), Box::new(set_mode(one, 0o700))];
        for (number, change) in changes.into_iter().enumerate() {
            let model = wide();
            (0..turns).for_each(|_| _ = model.then_nothing());
            let (told, is_exact) = files(model.then(change));
            let still = all.iter().filter(|&path| *path != Name::of(format!("{one}/file").as_bytes()));
            let is_late = told == all && is_exact;
            assert!(is_late || told.iter().eq(still) && !is_exact, "{turns} {one} {number}: {told:?} {is_exact}");
            assert!(turns > 0 || !is_late);
        }
    }
}

/// 2 holds the closed 7, and 8 to 10.
fn deep() -> Model {
    let below = [(7, 0o700), (8, 0o755), (9, 0o755), (10, 0o755)].map(|(ino, mode)| (ino, 2, mode));
    Model::of(&[&[(2, 1, 0o755), (3, 1, 0o755)], &below[..]].concat())
}

/// One that goes while it is looked at is passed over, and all others are told.
#[test]
fn what_is_gone_by_the_end_of_a_look_refuses_nothing() {
    let model = deep();
    model.then(replace(2, (20, 1)));
    let listing = model.listing();
    let told: Vec<Name> = listing.children.iter().map(|child| child.name.clone()).collect();
    assert_eq!((told, listing.exact), (vec![name(3)], false));

    for turns in 0..TURNS_MAX {
        let model = deep();
        let (head, rows) = model.lines(turns, replace(2, (20, 1)));
        assert!(names(&rows).contains(&name(3)), "{turns}: {:?}", names(&rows));
        // It may have come in time to be looked at itself.
        let is_itself = |row: &Row| row.name != name(20) || (row.total.bytes, row.total.directories) == (0, 1);
        assert!(rows.iter().all(is_itself), "{turns}: {rows:?}");
        assert_eq!(head.exact, model.slot(2).is_some(), "{turns}");
    }
}

/// Closed ones that go into another closed one, or out of what was asked for.
#[test]
fn what_was_hidden_is_named_only_where_the_asker_comes_to_it_by_now() {
    for turns in 0..TURNS_MAX {
        let model = deep();
        let (head, _) = model.lines(turns, |model| {
            model.now(|all| _ = all.insert(4, Directory { parent: ROOT, mode: 0o700, bytes: 4 }));
            move_into(7, 4)(model);
        });
        let told: Vec<Name> = head.left_out.into_iter().map(|left_out| left_out.path).collect();
        // Where they had their turn only after it was looked for, it is where it was.
        assert!(told.iter().all(|path| [Name::of(b"2/7"), name(4)].contains(path)), "{turns}: {told:?}");
        assert_eq!(told.contains(&Name::of(b"2/7")), model.slot(4).is_none(), "{turns}: {told:?}");
    }
}

/// What came into a directory, or has changed in it, since it was closed is told nobody.
#[test]
fn what_is_closed_meanwhile_is_looked_at_no_more() {
    for (turns, closed) in (0..TURNS_MAX).flat_map(|turns| [(turns, 2), (turns, ROOT)]) {
        let close = move |model: &Model| {
            set_mode(closed, 0o700)(model);
            model.now(|all| {
                all.insert(11, Directory { parent: 2, mode: 0o755, bytes: 11 });
                all.values_mut().filter(|inner| inner.parent == 2).for_each(|inner| inner.bytes += 1000);
            });
        };
        let model = deep();
        let (head, rows) = model.lines(turns, close);
        let told = |row: &Row| row.name != name(11) && row.total.bytes < 1000;
        assert!(rows.iter().all(told), "{turns} {closed}: {:?}", rows.iter().find(|row| !told(row)));
        assert!(head.partial && rows.iter().all(|row| row.past.is_none()));

        let model = deep();
        (0..turns).for_each(|_| _ = model.then_nothing());
        model.then(close);
        let listing = model.server.list(&somebody(), &question(), 100, Measure::Bytes).expect("an answer");
        TURNS.with_borrow_mut(VecDeque::clear);
        let most = listing.children.iter().map(|child| child.total.bytes).max();
        assert!(listing.total.bytes < 1000 && most < Some(1000), "{turns} {closed}: {listing:?}");
        let is_told = !listing.denied && !listing.children.is_empty();
        assert!(is_told || (model.slot(11).is_some() && closed == ROOT), "{turns} {closed}: {listing:?}");
    }
}

/// Also where all was open when the one that was asked for was looked at.
#[test]
fn lines_of_which_one_leaves_something_out_say_so() {
    let mut is_closed = false;
    for turns in 0..TURNS_MAX {
        let model = Model::of(&[(2, 1, 0o755), (3, 1, 0o755), (8, 3, 0o755), (9, 3, 0o755)]);
        let (head, rows) = model.lines(turns, set_mode(3, 0o700));
        let three = rows.iter().find(|row| row.name == name(3)).expect("it is told");
        assert_eq!(head.partial, three.total.directories == 1, "{turns}: {rows:?}");
        is_closed |= head.partial;
    }
    assert!(is_closed);
}

/// It may count twice, or not at all.
#[test]
fn what_moves_meanwhile_makes_an_answer_inexact() {
    for turns in 0..TURNS_MAX {
        let model = deep();
        (0..turns).for_each(|_| _ = model.then_nothing());
        model.then(move_into(9, 3));
        let listing = model.server.list(&somebody(), &question(), 100, Measure::Bytes).expect("an answer");
        let had_turn = TURNS.with_borrow(VecDeque::is_empty);
        TURNS.with_borrow_mut(VecDeque::clear);
        let is_exact = (listing.exact, listing.age > 0, listing.checked_at.is_some());
        assert_eq!(is_exact, (!had_turn, had_turn, !had_turn), "{turns}");
        assert!(turns > 0 || had_turn);
        let listing = model.listing();
        assert_eq!((listing.exact, listing.age), (true, 0), "asked again");
    }
}

/// Totals are known as they were stored; what newly declared summaries come to is a part until all was read again.
#[test]
fn a_part_of_what_is_declared_anew_is_told_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("store");
    let begin = |declared: &str| Model::begin(&[(2, 1, 0o755)], Store::open(&at).expect("a store"), declared);
    let stored = Question { freshness: Freshness::Cached, by: Some("files".to_owned()), ..question() };
    let late = Question { freshness: Freshness::Exact, max_ms: Some(0), ..stored.clone() };
    let (by_one, by_other) = ("[files]\nby = \"largest\"\n", "[files]\nby = \"largest\"\ncount = 2\n");
    let model = begin(by_one);
    model.served.catch_up(|_, caught_up| caught_up.expect("it is read")).expect("it is written");
    assert!(model.served.close().expect("it is written"));
    drop(model);
    for (declared, is_told) in [(by_one, true), (by_other, false)] {
        let model = begin(declared);
        let page =
            |keys: bool| model.server.page(&somebody(), &stored, None, Page { limit: 10, keys, ..Page::default() });
        for question in [&stored, &late] {
            let told = model.server.break_down(&somebody(), question, None).map(|told| told.shares.len());
            assert_eq!(told, if is_told { Ok(2) } else { Err(Refusal::Late) }, "{declared}");
        }
        let known = model.server.alone(&somebody(), &stored).expect("an answer").total.directories;
        assert_eq!((known, page(false).is_ok(), page(true).is_ok()), (2, true, is_told), "{declared}");
        model.served.catch_up(|_, caught_up| caught_up.expect("it is read")).expect("it is written");
        let told = model.server.break_down(&somebody(), &stored, None).map(|told| told.shares.len());
        assert_eq!((told, page(true).is_ok()), (Ok(2), true), "{declared}");
        assert!(model.served.close().expect("it is written"));
    }
}

/// Of btrfs nobody knows which one an inode is of before it is looked for.
#[test]
fn an_inode_of_one_that_is_known_waits_for_no_other() {
    // What every handle leads to here.
    let stat = onesweep_sys::files::statx_fd(File::open("/").expect("a directory").as_fd()).expect("its facts");
    let directories = [(stat.ino, ROOT, 0o755)];
    let declared = "[files]\nby = \"largest\"\n";
    let unknown = Model::begin(&directories, Store::in_memory().expect("a store"), declared);
    let known = Model::of(&directories);
    let volumes = [&unknown, &known].map(|model| Arc::clone(&model.served));
    for (ino, is_found) in [(stat.ino, true), (stat.ino + 1, false)] {
        let inode = Inode { dev: stat.dev, ino };
        let found = find_inode(&volumes, (&somebody(), inode), Freshness::Cached, None);
        assert_eq!(found.map(drop), if is_found { Ok(()) } else { Err(Refusal::Late) }, "{ino}");
    }
}
