//! What `onesweep serve --http` answers: to whom, and how much. The page itself is looked at by `web/tests`.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader, Lines, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;

use crate::{
    image::{Fs, Image},
    openmetrics,
    run::{finish, onesweep, output, root_test, run, text},
};

pub(crate) const NOBODY: u32 = 65_534;

pub(crate) type Said = Lines<BufReader<ChildStderr>>;

/// A server with HTTP over an image, and tokens of root and of somebody who is no one special.
pub(crate) struct Web {
    running: Child,
    address: SocketAddr,
    pub(crate) root: String,
    pub(crate) nobody: String,
}

impl Web {
    fn start(image: &Image, metrics: &[&Path]) -> Self {
        Self::start_with(image, metrics, &[])
    }

    /// The same with further options.
    pub(crate) fn start_with(image: &Image, metrics: &[&Path], options: &[&OsStr]) -> Self {
        let (web, mut said) = Self::begin(image, metrics, options);
        assert!(said.any(|line| line.expect("a line").contains(" directories harvested in ")), "it knows all");
        web
    }

    /// It answers, and what it knows comes later; what it says.
    pub(crate) fn begin(image: &Image, metrics: &[&Path], options: &[&OsStr]) -> (Self, Said) {
        let tokens = image.beside("tokens");
        let token = |uid: u32| new_token(&tokens, uid);
        let (root, nobody) = (token(0), token(NOBODY));
        let mut serve = onesweep(["serve", "--http", "127.0.0.1:0", "--http-tokens"]);
        serve.arg(&tokens).arg("--socket").arg(image.beside("socket")).arg("--store").arg(image.beside("stores"));
        for path in metrics {
            serve.arg("--metrics").arg(path);
        }
        let mut running = serve.args(options).arg(image.root()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(running.stderr.take().expect("a pipe")).lines();
        let address = said.by_ref().find_map(|line| {
            let line = line.expect("a line");
            line.split_once("http://").map(|(_, rest)| rest.trim_end_matches('/').parse().expect("an address"))
        });
        (Self { running, address: address.expect("it listens"), root, nobody }, said)
    }

    /// All that comes back for a request, head and body.
    fn exchange(&self, request: &str) -> String {
        let mut connection = TcpStream::connect(self.address).expect("it connects");
        connection.write_all(request.as_bytes()).expect("it is sent");
        let mut said = Vec::new();
        // Of what was refused unread the kernel may say so.
        let _ = connection.read_to_end(&mut said);
        text(&said)
    }

    pub(crate) fn get(&self, token: &str, target: &str) -> (u16, String) {
        let said = self.exchange(&format!(
            "GET {target} HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        ));
        let (head, body) = said.split_once("\r\n\r\n").expect("an empty line");
        (status(head), body.to_owned())
    }

    pub(crate) fn listing(&self, token: &str, query: &str) -> Value {
        let (status, body) = self.get(token, &format!("/api/directory?{query}"));
        assert_eq!(status, 200, "{query}: {body}");
        let mut listing: Value = serde_json::from_str(&body).expect("JSON");
        // These go with the clock, whatever is asked about.
        for moment in ["answered_at", "checked_at"] {
            listing.as_object_mut().expect("an object").remove(moment).expect("it is told");
        }
        listing
    }
}

impl Web {
    /// Ends it in good order, so that what it knows is kept.
    fn end(mut self) {
        run(Command::new("kill").args(["-TERM", &self.running.id().to_string()]));
        assert!(self.running.wait().expect("it ends").success());
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

fn new_token(tokens: &Path, uid: u32) -> String {
    let mut make = onesweep(["serve", "--new-token", &uid.to_string(), "--http-tokens"]);
    text(&output(make.arg(tokens))).trim().to_owned()
}

fn status(said: &str) -> u16 {
    said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {said}"))
}

/// What GNU du, run by a user, says of a directory: allocated bytes, bytes, inodes.
pub(crate) fn du(uid: u32, path: &Path) -> [i64; 3] {
    [&["-sB1"][..], &["-sb"], &["-s", "--inodes"]].map(|options| {
        let mut user = Command::new("setpriv");
        user.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "du"]);
        let said = user.args(options).arg(path).output().expect("du runs").stdout;
        text(&said).split('\t').next().and_then(|figure| figure.parse().ok()).expect("a figure")
    })
}

/// The same of `total`, `own` or the like.
pub(crate) fn figures(of: &Value) -> [i64; 3] {
    let figure = |name: &str| of[name].as_i64().unwrap_or_else(|| panic!("no {name}: {of}"));
    [
        figure("allocated"),
        figure("bytes") + figure("directory_bytes"),
        figure("files") + figure("directories") + figure("others"),
    ]
}

fn child<'a>(listing: &'a Value, name: &str) -> &'a Value {
    let children = listing["children"].as_array().expect("a list");
    children.iter().find(|child| child["name"] == name).unwrap_or_else(|| panic!("no {name}: {listing}"))
}

fn tree(root: &Path) {
    for (number, name) in ["a/b", "c", "private/inside", "mixed/shut", "way/home"].into_iter().enumerate() {
        fs::create_dir_all(root.join(name)).expect("a directory");
        for file in 0..=number {
            fs::write(root.join(name).join(format!("f{file}")), vec![1; 3000 * (number + 1)]).expect("a file");
        }
    }
    fs::hard_link(root.join("private/inside/f0"), root.join("c/shared")).expect("a link");
    fs::hard_link(root.join("a/b/f0"), root.join("c/twice")).expect("a link");
    for (name, mode) in [("private", 0o700), ("mixed/shut", 0o744), ("way", 0o711)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
    }
    chown(root.join("way/home"), Some(NOBODY), None).expect("an owner");
    fs::set_permissions(root.join("way/home"), fs::Permissions::from_mode(0o700)).expect("a mode");
    crate::tree::sync(root);
}

/// Each directory by path and by numbers: what GNU du, run by the owner of the token, says of it and of those in it.
#[test]
fn a_token_shows_what_du_would_show_its_user() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let web = Web::start(&image, &[]);
    for (uid, token) in [(0, &web.root), (NOBODY, &web.nobody)] {
        for below in ["", "a", "a/b", "c", "mixed", "private", "way/home"] {
            let path = root.join(below);
            let listing = web.listing(token, &format!("path={}", path.display()));
            assert_eq!(figures(&listing["total"]), du(uid, &path), "{uid} {below}: {listing}");
            assert_eq!(listing["path"], path.to_str().expect("text").trim_end_matches('/'));
            for child in listing["children"].as_array().expect("a list") {
                let inside = path.join(child["name"].as_str().expect("text"));
                assert_eq!(figures(&child["total"]), du(uid, &inside), "{uid} {}", inside.display());
            }
            let facts = fs::metadata(&path).expect("its facts");
            let by_numbers = web.listing(token, &format!("dev={}&ino={}", facts.dev(), facts.ino()));
            assert_eq!(by_numbers, listing, "{uid} {below}");
        }
    }
    let whole = web.listing(&web.root, &format!("path={}", root.display()));
    assert_eq!((&whole["partial"], &whole["denied"]), (&Value::Bool(false), &Value::Bool(false)));
    let seen = web.listing(&web.nobody, &format!("path={}", root.display()));
    assert_eq!((&seen["partial"], &seen["denied"]), (&Value::Bool(true), &Value::Bool(false)));
    assert_eq!(child(&seen, "private")["denied"], true);
    assert_eq!((&child(&seen, "mixed")["denied"], &child(&seen, "mixed")["partial"]), (&false.into(), &true.into()));
    assert_eq!(child(&seen, "a")["partial"], false);
    let private = web.listing(&web.nobody, &format!("path={}", root.join("private").display()));
    assert_eq!((&private["denied"], &private["children"]), (&true.into(), &Value::Array(vec![])));

    // A private file grows, and nothing of that shows; a public one does.
    fs::write(root.join("private/inside/grown"), vec![1; 1 << 20]).expect("a file");
    assert_eq!(web.listing(&web.nobody, &format!("path={}", root.display())), seen);
    fs::write(root.join("a/b/grown"), vec![1; 1 << 20]).expect("a file");
    crate::tree::sync(&root);
    let grown = web.listing(&web.nobody, &format!("path={}", root.display()));
    assert_eq!(figures(&grown["total"]), du(NOBODY, &root));
}

/// Who may only come through a directory has to know the names in it, which numbers would tell.
#[test]
fn numbers_tell_no_names_that_nobody_may_list() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let named = |below: &str| {
        let facts = fs::metadata(root.join(below)).expect("its facts");
        (format!("path={}", root.join(below).display()), format!("dev={}&ino={}", facts.dev(), facts.ino()))
    };
    for below in ["way/secret/deeper", "way/home/own"] {
        fs::create_dir_all(root.join(below)).expect("a directory");
        fs::write(root.join(below).join("f"), [1; 5000]).expect("a file");
    }
    // Everybody is told where file systems are mounted.
    let above = root.parent().expect("it is mounted somewhere").to_owned();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o711)).expect("a mode");
    crate::tree::sync(&root);
    let web = Web::start(&image, &[]);
    for (below, is_known) in
        [("way/secret", false), ("way/secret/deeper", false), ("way/home", true), ("a/b", true), ("way", true)]
    {
        let (path, numbers) = named(below);
        let (by_path, by_numbers) = (web.listing(&web.nobody, &path), web.listing(&web.root, &numbers));
        assert_eq!(by_path["path"], by_numbers["path"]);
        for freshness in ["exact", "cached"] {
            let (status, said) = web.get(&web.nobody, &format!("/api/directory?{numbers}&freshness={freshness}"));
            assert_eq!(status, if is_known { 200 } else { 404 }, "{below}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
    // It is the user's own, but nobody who may not list it is told what is in it.
    chown(root.join("way/home/own"), Some(0), None).expect("an owner");
    fs::set_permissions(root.join("way/home"), fs::Permissions::from_mode(0o300)).expect("a mode");
    let (path, numbers) = named("way/home/own");
    web.listing(&web.nobody, &path);
    assert_eq!(web.get(&web.nobody, &format!("/api/directory?{numbers}")).0, 404);
    assert_eq!(web.get(&web.root, &format!("/api/directory?{numbers}")).0, 200);
}

/// Nothing that happens in hidden directories changes what is told to who can't see it, however little time there is.
#[test]
fn what_happens_in_hidden_directories_shows_nowhere() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let web = Web::start_with(&image, &[], &["--check-open-every", "1s", "--harvest-after", "1h"].map(OsStr::new));
    let ask = |token: &str, more: &str| web.listing(token, &format!("path={}{more}", root.display()));
    let seen = ask(&web.nobody, "");
    assert_eq!(seen["exact"], true, "{seen}");
    // More than anybody reads at once.
    for number in 0..300 {
        let inside = root.join(format!("private/inside/{number}"));
        fs::create_dir(&inside).expect("a directory");
        fs::write(inside.join("f"), vec![1; 5000]).expect("a file");
        fs::write(root.join(format!("private/{number}")), "x").expect("a file");
    }
    for more in ["&max_ms=0", "", "&max_ms=0"] {
        assert_eq!(ask(&web.nobody, more), seen, "{more}");
    }
    assert_eq!(ask(&web.root, "")["exact"], true);
    let mut mapping = Command::new("xfs_io");
    let mut mapping = mapping
        .arg(root.join("private/inside/f1"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("xfs_io; try `make deps`");
    mapping.stdin.as_mut().expect("a pipe").write_all(b"mmap -rw 0 4096\n").expect("it is told");
    while ask(&web.root, "")["exact"] == true {
        assert!(mapping.try_wait().expect("its state").is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for more in ["", "&max_ms=0"] {
        assert_eq!(ask(&web.nobody, more), seen, "a hidden file is mapped: {more}");
    }
    drop(mapping.stdin.take());
    mapping.wait().expect("it ends");
}

/// What a directory came to is kept over restarts, and told to those who see all of it.
#[test]
fn a_history_is_told_to_who_sees_all_of_it() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let history = |web: &Web, token: &str, below: &str| {
        let (status, body) =
            web.get(token, &format!("/api/history?freshness=cached&path={}", root.join(below).display()));
        assert_eq!(status, 200, "{below}: {body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    let points = |history: &Value| {
        let point = |point: &Value| ["allocated", "bytes", "inodes"].map(|key| point[key].as_i64().expect("a figure"));
        history["points"].as_array().expect("a list").iter().map(point).collect::<Vec<_>>()
    };
    let web = Web::start(&image, &[]);
    assert_eq!(points(&history(&web, &web.root, "a")), Vec::<[i64; 3]>::new(), "nobody has asked yet");
    for below in ["", "a", "private"] {
        web.listing(&web.root, &format!("path={}", root.join(below).display()));
    }
    let before = du(0, &root.join("a"));
    for token in [&web.root, &web.nobody] {
        let told = history(&web, token, "a");
        assert_eq!((points(&told), &told["partial"]), (vec![before], &Value::Bool(false)));
        assert_eq!(told["path"], root.join("a").to_str().expect("text"));
    }
    assert_eq!(points(&history(&web, &web.root, "")), [du(0, &root)]);
    for below in ["", "private"] {
        let told = history(&web, &web.nobody, below);
        assert_eq!((points(&told), &told["partial"]), (Vec::new(), &Value::Bool(true)), "{below}");
    }
    let hidden = |name: &str| web.get(&web.nobody, &format!("/api/history?path={}", root.join(name).display()));
    assert_eq!((hidden("private/inside"), hidden("nothing").0), (hidden("private/nothing"), 404));
    let (status, said) = web.get(&web.root, &format!("/api/history?limit=3&path={}", root.display()));
    assert!(status == 400 && said.contains("limit isn't known here"), "{said}");
    fs::write(root.join("a/b/grown"), vec![1; 1 << 20]).expect("a file");
    crate::tree::sync(&root);
    let after = du(0, &root.join("a"));
    // Of each second the last point is kept.
    let is_of_this_second = |told: &Value| told["answered_at"] == told["points"][0]["at"];
    while is_of_this_second(&history(&web, &web.root, "a")) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    web.end();
    // A server that starts notes what it finds.
    let web = Web::start(&image, &[]);
    while points(&history(&web, &web.nobody, "a")) != [before, after] {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// What was closed while it was noted isn't told when it is open, moved elsewhere or gone, but to who owns it.
#[test]
fn a_history_tells_nothing_of_what_was_closed_then() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let web = Web::start(&image, &[]);
    let bytes = |token: &str, below: &str| {
        let (status, body) = web.get(token, &format!("/api/history?path={}", root.join(below).display()));
        let told: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &told["partial"]), (200, &Value::Bool(false)), "{below}: {body}");
        let points = told["points"].as_array().expect("a list");
        points.iter().map(|point| point["bytes"].as_i64().expect("a figure")).collect::<Vec<_>>()
    };
    let names = ["a", "private", "private/inside", "mixed", "way/home"];
    let before = names.map(|below| bytes(&web.root, below));
    assert!(before.iter().all(|points| points.len() == 1), "{before:?}");
    fs::rename(root.join("private/inside"), root.join("inside")).expect("it moves");
    fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::remove_dir_all(root.join("mixed/shut")).expect("it goes");
    for (number, below) in ["a", "private", "inside", "mixed", "way/home"].into_iter().enumerate() {
        assert_eq!(bytes(&web.root, below), before[number], "{below}");
        let is_told = ["a", "way/home"].contains(&below);
        assert_eq!(bytes(&web.nobody, below), if is_told { &before[number][..] } else { &[] }, "{below}");
    }
}

/// There is room for so many, and who asks for the lines of a large tree doesn't take all of that.
#[test]
fn of_many_lines_the_largest_are_noted() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root().join("many");
    let name = |number: usize| root.join(format!("d{number:03}"));
    for number in 0..250 {
        fs::create_dir_all(name(number)).expect("a directory");
        fs::write(name(number).join("file"), vec![1; 4096 * (1 + number)]).expect("a file");
    }
    crate::tree::sync(&root);
    let web = Web::start(&image, &[]);
    let mut top = onesweep(["top", "--socket"]);
    crate::run::run(top.arg(image.beside("socket")).arg(&root));
    let is_noted = |directory: &Path| {
        let (status, body) = web.get(&web.root, &format!("/api/history?freshness=cached&path={}", directory.display()));
        assert_eq!(status, 200, "{body}");
        let told: Value = serde_json::from_str(&body).expect("JSON");
        !told["points"].as_array().expect("a list").is_empty()
    };
    assert!(is_noted(&root) && (160..250).all(|number| is_noted(&name(number))));
    let noted = (0..250).filter(|&number| is_noted(&name(number))).count();
    assert!(noted <= 200, "{noted}");
}

/// Nothing comes to light of what lies in a directory that the user can't search: not even whether it is there.
#[test]
fn what_is_hidden_is_as_if_it_were_not_there() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    std::os::unix::fs::symlink(root.join("a"), root.join("private/link")).expect("a link");
    let web = Web::start(&image, &[]);
    let ask = |path: &Path| web.get(&web.nobody, &format!("/api/directory?path={}", path.display()));
    let none = ask(&root.join("nothing"));
    assert_eq!(none.0, 404);
    for hidden in ["private/inside", "private/nothing", "private/link", "private/../a", "way/home/../../private/inside"]
    {
        let said = ask(&root.join(hidden));
        assert!(said == none || hidden.contains("..") && said.0 == 400, "{hidden}: {said:?}");
    }
    let inside = fs::metadata(root.join("private/inside")).expect("its facts");
    let by_numbers = |token: &str, ino: u64| web.get(token, &format!("/api/directory?dev={}&ino={ino}", inside.dev()));
    assert_eq!(by_numbers(&web.nobody, inside.ino()), none);
    assert_eq!(by_numbers(&web.nobody, 999_999), none);
    assert_eq!(by_numbers(&web.root, inside.ino()).0, 200);
    // The mount point lies in a directory that is closed: what is mounted there is out of reach as well.
    let above = root.parent().expect("a folder");
    let mode = fs::metadata(above).expect("its facts").permissions();
    fs::set_permissions(above, fs::Permissions::from_mode(0o700)).expect("a mode");
    let closed = (ask(&root.join("a")), by_numbers(&web.nobody, fs::metadata(root.join("a")).expect("facts").ino()));
    fs::set_permissions(above, mode).expect("a mode");
    assert_eq!(closed, (none.clone(), none));
    assert_eq!(ask(&root.join("a")).0, 200);
}

/// Others have their turn while they are looked at, and may change them.
#[test]
fn very_many_in_one_are_looked_at_between_changes() {
    const MANY: u64 = 25_000;
    root_test!();
    let image = Image::new(Fs::Ext4, 1 << 30);
    let (wide, shown) = (image.root().join("wide"), 20_u64);
    let directory = |number: u64| wide.join(format!("d{number}"));
    (0..MANY).for_each(|number| fs::create_dir_all(directory(number)).expect("a directory"));
    for number in 0..shown {
        fs::write(directory(number * 1000).join("file"), vec![1; 10_000 + number as usize]).expect("a file");
    }
    crate::tree::sync(&wide);
    let web = Web::start(&image, &[]);
    let query = format!("path={}&limit={shown}&by=bytes", wide.display());
    let at_rest = || {
        let listing = web.listing(&web.nobody, &query);
        let largest: Vec<_> = (0..shown).rev().map(|number| format!("d{}", number * 1000)).collect();
        let children = listing["children"].as_array().expect("a list");
        assert!(children.iter().map(|child| child["name"].as_str().expect("a name")).eq(&largest), "{children:?}");
        assert_eq!(listing["rest"]["count"], MANY - shown);
        assert_eq!(figures(&listing["total"]), du(NOBODY, &wide));
        let parts = children.iter().map(|child| figures(&child["total"]));
        let parts = parts.chain([figures(&listing["own"]), figures(&listing["rest"]["total"])]);
        let sum = parts.fold([0; 3], |sum, part| [0, 1, 2].map(|at| sum[at] + part[at]));
        assert_eq!(sum, figures(&listing["total"]));
    };
    at_rest();
    // Half of those that aren't shown go and come and go, so that their numbers in the store are given to others.
    let changing: Vec<u64> = (0..MANY).filter(|number| number % 1000 != 0 && number % 2 == 1).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for &number in changing.iter().take(5000) {
                fs::remove_dir(directory(number)).expect("it is empty");
                fs::create_dir(wide.join(format!("other{number}"))).expect("a directory");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut asked = 0;
        while asked < 3 || !is_over.load(Ordering::Relaxed) {
            let listing = web.listing(&web.nobody, &query);
            let told = listing["children"].as_array().expect("a list");
            let names: HashSet<_> = told.iter().map(|child| child["name"].as_str().expect("a name")).collect();
            assert_eq!((names.len(), told.len()), (shown as usize, shown as usize));
            assert!((0..shown).all(|number| names.contains(format!("d{}", number * 1000).as_str())), "{names:?}");
            let count = listing["rest"]["count"].as_u64().expect("a number");
            assert!((MANY - shown - 5000..=MANY - shown).contains(&count), "{count}");
            asked += 1;
        }
    });
    at_rest();
}

#[test]
fn the_largest_are_named_and_the_rest_summed_up() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    for number in 0..30_usize {
        fs::create_dir(root.join(format!("d{number}"))).expect("a directory");
        // Large ones hold few files, and small ones many.
        for file in 0..30 - number {
            fs::write(root.join(format!("d{number}/f{file}")), vec![1; 512 * number * number]).expect("a file");
        }
    }
    crate::tree::sync(&root);
    let web = Web::start(&image, &[]);
    let path = root.display();
    let names = |listing: &Value| -> Vec<String> {
        let children = listing["children"].as_array().expect("a list");
        children.iter().map(|child| child["name"].as_str().expect("text").to_owned()).collect()
    };
    for (measure, at) in [("allocated", 0), ("bytes", 1), ("inodes", 2)] {
        let all = web.listing(&web.root, &format!("path={path}&by={measure}"));
        let some = web.listing(&web.root, &format!("path={path}&by={measure}&limit=7"));
        assert_eq!((names(&all).len(), &all["rest"]["count"]), (31, &0.into()), "with lost+found");
        let sizes: Vec<i64> =
            all["children"].as_array().expect("a list").iter().map(|child| figures(&child["total"])[at]).collect();
        assert!(sizes.is_sorted_by(|one, other| one >= other), "{measure}: {sizes:?}");
        assert_eq!(names(&some), names(&all)[..7]);
        assert_eq!(some["rest"]["count"], 24);
        assert_eq!(figures(&some["rest"]["total"])[at], sizes[7..].iter().sum::<i64>());
        // Together with what lies in the directory itself that is all.
        let together = sizes.iter().sum::<i64>() + figures(&all["own"])[at];
        assert_eq!(together, figures(&all["total"])[at], "{measure}");
        let none = web.listing(&web.root, &format!("path={path}&by={measure}&limit=0"));
        assert_eq!((names(&none).len(), &none["rest"]["count"]), (0, &31.into()));
    }
}

#[test]
fn requests_are_held_against_rules() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let web = Web::start(&image, &[]);
    let path = format!("/api/directory?path={}", image.root().display());
    for token in ["", "wrong", &web.root[1..], &format!("{}0", web.root)] {
        assert_eq!(web.get(token, &path).0, 401, "{token}");
        assert_eq!(web.get(token, "/metrics").0, 401, "{token}");
        assert_eq!(web.get(token, "/api/nothing").0, 401, "{token}");
    }
    for (address, expected) in [
        (path.clone(), 200),
        (format!("{path}&limit=x"), 400),
        (format!("{path}&by=weight"), 400),
        (format!("{path}&colour=red"), 400),
        (format!("{path}&dev=1&ino=1"), 400),
        ("/api/directory".into(), 400),
        ("/api/directory?dev=1".into(), 400),
        ("/api/directory?path=relative".into(), 400),
        ("/api/directory?path=/a/../b".into(), 400),
        ("/api/directory?path=/a%00b".into(), 400),
        ("/api/directory?path=/proc".into(), 404),
        ("/api/nothing".into(), 404),
        ("/api/file-systems".into(), 200),
    ] {
        let (status, body) = web.get(&web.root, &address);
        assert_eq!(status, expected, "{address}: {body}");
        assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
    }
    let with = |method: &str, host: &str, more: &str| {
        let token = &web.root;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{more}");
        web.exchange(&format!("{head}Connection: close\r\n\r\n"))
    };
    assert_eq!(status(&with("GET", "127.0.0.1:80", "")), 200);
    assert_eq!(status(&with("GET", "rebound.example:80", "")), 421);
    assert_eq!(status(&with("POST", "localhost", "Content-Length: 5\r\n")), 413);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let said = with(method, "localhost", "Origin: https://example.org\r\n");
        assert_eq!(status(&said), 405, "{method}");
        assert!(!said.to_ascii_lowercase().contains("access-control"), "no other origin is let in: {said}");
    }
    let head = with("HEAD", "localhost", "");
    assert!(status(&head) == 200 && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(status(&with("GET", "localhost", &format!("X: {}\r\n", "x".repeat(20_000)))), 431);
    // The page comes to everybody, and lets nothing in from elsewhere.
    for (address, kind) in
        [("/", "text/html"), ("/app.js", "text/javascript"), ("/app.css", "text/css"), ("/icon.svg", "image/svg")]
    {
        let said = web.exchange(&format!("GET {address} HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"));
        assert_eq!(status(&said), 200);
        assert!(said.contains(&format!("Content-Type: {kind}")), "{said}");
        assert!(said.contains("Content-Security-Policy: default-src 'none'; script-src 'self'"), "{said}");
        assert!(!said.contains("unsafe-inline"));
    }
    // Whose line is taken out is out at once; and nobody is let in by a file that others may write.
    let tokens = image.beside("tokens");
    let lines = fs::read_to_string(&tokens).expect("a text");
    fs::write(
        &tokens,
        lines.lines().filter(|line| !line.starts_with("0 ")).map(|line| format!("{line}\n")).collect::<String>(),
    )
    .expect("a file");
    assert_eq!((web.get(&web.root, &path).0, web.get(&web.nobody, &path).0), (401, 200));
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o620)).expect("a mode");
    assert_eq!(web.get(&web.nobody, &path).0, 503);
}

/// However many connections there are, and whatever they don't say, who has a token is answered, and the number has an end.
#[test]
fn connections_are_counted() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let web = Web::start(&image, &[]);
    // A connection that is let in gets an answer at once; it is kept open then.
    let begin = |head: &str| {
        let mut connection = TcpStream::connect(web.address).expect("it connects");
        let _ = connection.write_all(format!("{head}Host: localhost\r\n\r\n").as_bytes());
        let mut said = [0; 12];
        connection.read_exact(&mut said).expect("an answer");
        (text(&said), connection)
    };
    let icon = "GET /icon.svg HTTP/1.1\r\n";
    let mut strangers: Vec<TcpStream> = Vec::new();
    while strangers.len() < 200 {
        // Those that have lost their places end sooner or later.
        match begin(icon) {
            (said, connection) if said == "HTTP/1.1 200" => strangers.push(connection),
            (said, _) => assert_eq!(said, "HTTP/1.1 503"),
        }
    }
    assert_eq!(web.get(&web.root, "/api/file-systems").0, 200);
    let _ = strangers[0].read_to_end(&mut Vec::new());
    let asks = format!("GET /api/file-systems HTTP/1.1\r\nAuthorization: Bearer {}\r\n", web.root);
    let mut known: Vec<TcpStream> = Vec::new();
    let turned_away = (0..200).find_map(|_| {
        let (said, connection) = begin(&asks);
        known.push(connection);
        (said != "HTTP/1.1 200").then_some(said)
    });
    assert_eq!((turned_away.as_deref(), known.len()), (Some("HTTP/1.1 503"), 33), "one user has 32 at most");
    known.pop();
    let asks = format!("GET /api/file-systems HTTP/1.1\r\nAuthorization: Bearer {}\r\n", web.nobody);
    let turned_away = (0..200).find_map(|_| {
        let (said, connection) = begin(&asks);
        known.push(connection);
        (said != "HTTP/1.1 200").then_some(said)
    });
    assert_eq!((turned_away.as_deref(), known.len()), (Some("HTTP/1.1 503"), 65));
    drop(known);
    // Those that were closed make room, sooner or later. Half a request is waited for, but not for ever.
    let mut half = loop {
        match begin(icon) {
            (said, connection) if said == "HTTP/1.1 200" => break connection,
            _ => std::thread::yield_now(),
        }
    };
    half.write_all(b"GET / HTT").expect("it is sent");
    // Its first answer is still there to be read.
    let mut said = String::new();
    half.read_to_string(&mut said).expect("an answer");
    assert!(said.contains("HTTP/1.1 408"), "{said}");
}

#[test]
fn metrics_tell_of_the_directories_that_were_chosen() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let odd = root.join("odd \"\\ name\n");
    fs::create_dir(&odd).expect("a directory");
    let (private, gone) = (root.join("private"), root.join("gone"));
    let web = Web::start(&image, &[&root, &private, &odd, &gone, &root]);
    let sample = |said: &str, family: &str, path: &str| {
        let wanted = format!("onesweep_directory_{family}{{path=\"{path}\"}} ");
        let mut found = said.lines().filter_map(|line| line.strip_prefix(&wanted)?.parse::<i64>().ok());
        (found.next(), found.next())
    };
    let odd_label = format!("{}/odd \\\"\\\\ name\\n", root.display());
    for (uid, token) in [(0, &web.root), (NOBODY, &web.nobody)] {
        let (status, said) = web.get(token, "/metrics");
        assert_eq!(status, 200, "{said}");
        openmetrics::parse(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
        for path in [&root, &private] {
            let of = |family: &str| sample(&said, family, path.to_str().expect("text"));
            assert_eq!(
                [of("allocated_bytes"), of("size_bytes")],
                [du(uid, path)[0], du(uid, path)[1]].map(|figure| (Some(figure), None)),
                "{uid}"
            );
        }
        // For others that is a file of the closed directory, by its name elsewhere; the larger one has none.
        let largest = if uid == 0 { 15_000 } else { 9000 };
        assert_eq!(sample(&said, "largest_file_bytes", root.to_str().expect("text")), (Some(largest), None), "{uid}");
        assert_eq!(sample(&said, "known", &odd_label), (Some(1), None), "{said}");
        assert_eq!(sample(&said, "known", gone.to_str().expect("text")), (Some(0), None));
        assert_eq!(sample(&said, "files", gone.to_str().expect("text")), (None, None));
        let is_partial = i64::from(uid != 0);
        assert_eq!(sample(&said, "partial", root.to_str().expect("text")), (Some(is_partial), None));
    }
    let head = web.exchange(&format!(
        "GET /metrics?freshness=cached HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        web.root
    ));
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{head}");
    assert!(head.contains("onesweep_directory_exact{"), "{head}");
}

#[test]
fn bad_settings_are_told_before_anything_is_harvested() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let tokens = image.beside("tokens");
    let said = |words: &[&str]| {
        let mut serve = onesweep(["serve", "--socket"]);
        serve.arg(image.beside("socket")).arg("--store").arg(image.beside("stores")).args(words).arg(image.root());
        text(&finish(&mut serve, 2).stderr)
    };
    let file = tokens.to_str().expect("text");
    assert!(said(&["--http", "127.0.0.1:0"]).contains("--http-tokens"));
    assert!(said(&["--http", "127.0.0.1:0", "--http-tokens", file]).contains("use it as a file of tokens"), "missing");
    let token = new_token(&tokens, 0);
    assert_eq!(token.len(), 64);
    let far = said(&["--http", "0.0.0.0:0", "--http-tokens", file]);
    assert!(far.contains("0.0.0.0:0: cannot listen: only addresses of this machine alone"), "{far}");
    assert!(said(&["--http", "localhost", "--http-tokens", file]).contains("invalid value 'localhost'"));
    let relative = said(&["--http", "127.0.0.1:0", "--http-tokens", file, "--metrics", "a"]);
    assert!(relative.contains("the path isn't absolute"), "{relative}");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o644)).expect("a mode");
    let open = said(&["--http", "127.0.0.1:0", "--http-tokens", file]);
    assert!(open.contains("chown root and chmod 600 it"), "{open}");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).expect("a mode");
    File::options().append(true).open(&tokens).expect("a file").write_all(b"nonsense\n").expect("a line");
    let odd = said(&["--http", "127.0.0.1:0", "--http-tokens", file]);
    assert!(odd.contains("line 2 isn't a user's number and 64 hexadecimal digits"), "{odd}");
    assert!(!image.beside("stores").exists(), "nothing was begun");
}
