//! `onesweep du` of what a server tracks, beside GNU du.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, onesweep, output, root_test, text},
    serving::Serving,
    tracked::du,
    tree::{Rng, until_another_second},
    walk::Bind,
};

pub(crate) fn sorted_lines(said: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(said).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Options in which both must print the same lines, in whatever order.
const OPTIONS: [&[&str]; 10] = [
    &[],
    &["-s"],
    &["-sS"],
    &["-sh"],
    &["-b", "-d1"],
    &["--inodes"],
    &["-S"],
    &["-c", "-d2"],
    &["-B", "4K"],
    &["-t", "20K"],
];

fn tree_without_links(root: &Path) {
    for (number, name) in ["a", "a/b", "a/b/c", "d", "d/e f", "private", "private/inside"].into_iter().enumerate() {
        fs::create_dir(root.join(name)).expect("a folder");
        for file in 0..5 {
            let content = Rng::new((number * 10 + file) as u64).bytes(number * 7000 + file * 100);
            fs::write(root.join(name).join(format!("f{file}")), content).expect("a file");
        }
    }
    symlink("f0", root.join("a/link")).expect("a link");
    crate::tree::sync(root);
}

#[test]
fn du_prints_what_gnu_du_prints() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 512 << 20);
        tree_without_links(&image.root());
        let serving = Serving::start(&image);
        for path in ["", "a", "d/e f"].map(|below| image.root().join(below)) {
            for options in OPTIONS {
                let expected = sorted_lines(&output(Command::new("du").args(options).arg(&path)));
                let asked = finish(serving.du(options, &path).arg("-v"), 0);
                assert_eq!(sorted_lines(&asked.stdout), expected, "{options:?} {} of a server", path.display());
                assert!(text(&asked.stderr).contains("from the server, up to date"), "{}", text(&asked.stderr));
                let walked = finish(onesweep(["du", "--socket", "/nowhere"]).args(options).arg(&path), 0);
                assert_eq!(sorted_lines(&walked.stdout), expected, "{options:?} {} walked", path.display());
            }
        }
        // What has been closed is counted at once.
        fs::write(image.root().join("a/b/c/new"), vec![1; 100_000]).expect("a file");
        let asked = output(&mut serving.du(&["-sb"], &image.root()));
        assert_eq!(text(&asked), text(&output(Command::new("du").arg("-sb").arg(image.root()))));
        serving.end();
    }
}

/// What has grown since it was asked for, and nothing of it for whom not all may be shown.
#[test]
fn growth_is_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let serving = Serving::start(&image);
    let top = |options: &[&str]| {
        let mut top = onesweep(["top"]);
        top.args(options).arg("--socket").arg(image.beside("socket")).arg(image.root());
        top
    };
    let line = |said: &[u8], name: &str| {
        let path = if name.is_empty() { image.root() } else { image.root().join(name) }.display().to_string();
        let said = text(said);
        let line = said.lines().find(|line| line.ends_with(&path)).unwrap_or_else(|| panic!("no {path} in {said}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line(&output(&mut top(&[])), "a")[1], "+0");
    // Of each second the last total is kept, and the server notes them from time to time.
    until_another_second();
    fs::write(image.root().join("a/grown"), vec![1; 1 << 20]).expect("a file");
    fs::remove_file(image.root().join("d/f4")).expect("it goes");
    crate::tree::sync(&image.root());
    let grown = output(&mut top(&["--by", "grew", "--since", "4w"]));
    assert_eq!((&*line(&grown, "a")[1], &*line(&grown, "")[1]), ("+1.0M", "+1000K"), "{}", text(&grown));
    let first = text(&grown).lines().nth(1).map(str::to_owned).unwrap_or_default();
    assert!(first.ends_with("/a"), "{first}");
    assert_eq!(text(&output(&mut top(&["-n", "1"]))).lines().count(), 3);
    let told = |options: &[&str]| {
        let said = output(top(&["--json", "--by", "grew", "--since", "4w"]).args(options));
        serde_json::from_slice::<serde_json::Value>(&said).expect("an object")
    };
    let value = told(&[]);
    assert_eq!(value["exact"].as_bool(), Some(true), "{value}");
    assert_eq!(value["directories"][0]["path"].as_str(), image.root().join("a").to_str(), "{value}");
    assert!(value["directories"][0]["grew"].as_i64().is_some_and(|grew| grew >= 1 << 20), "{value}");
    let before = told(&["--cached"]);
    fs::write(image.root().join("a/more"), vec![1; 1 << 20]).expect("a file");
    let (stored, exact) = (told(&["--cached"]), told(&["--sync"]));
    assert_eq!(stored["exact"].as_bool(), Some(false), "{stored}");
    let grown = exact["total"]["bytes"].as_i64().zip(before["total"]["bytes"].as_i64());
    assert!(grown.is_some_and(|(now, before)| now >= before + (1 << 20)), "{exact}");
    fs::remove_file(image.root().join("a/more")).expect("it goes");
    crate::tree::sync(&image.root());
    output(&mut top(&["--sync"]));
    serving.end();
    let found = finish(&mut top(&[]), 2);
    assert!(text(&found.stderr).contains("start `onesweep serve`"), "{}", text(&found.stderr));
    // A server that is started again knows it still.
    let again = Serving::start(&image);
    assert_eq!(line(&output(&mut top(&["--since", "4w"])), "a")[1], "+1.0M");
    again.end();
}

/// Links across directories: once in all, whatever is asked for.
#[test]
fn links_are_counted_once() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let at = |name: &str| image.root().join(name);
    for (from, to) in [("a/f4", "a/b/l"), ("a/f4", "d/l"), ("a/b/f4", "a/b/l2"), ("d/f4", "private/l")] {
        fs::hard_link(at(from), at(to)).expect("a link");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    for below in ["", "a", "a/b", "d", "private"] {
        for options in [&["-s"][..], &["-sb"], &["-s", "--inodes"]] {
            let expected = text(&output(Command::new("du").args(options).arg(at(below))));
            assert_eq!(text(&output(&mut serving.du(options, &at(below)))), expected, "{options:?} {below:?}");
        }
    }
    // The lines of all directories come to what the topmost says.
    let lines = text(&output(&mut serving.du(&["-S", "-b"], &image.root())));
    let sum: u64 = lines.lines().filter_map(|line| line.split('\t').next()?.parse::<u64>().ok()).sum();
    let whole = text(&output(Command::new("du").arg("-sb").arg(image.root())));
    assert_eq!(Some(sum), whole.split('\t').next().and_then(|figure| figure.parse().ok()), "{lines}");
}

/// The directories that can't be read, as du and we name them. In one that can be listed, and not searched, du names the entries.
pub(crate) fn named(said: &[u8]) -> Vec<String> {
    let path = |line: &str| {
        let rest = line.split_once("/mnt/").map(|(_, rest)| rest.split(['\'', ':']).next().unwrap_or_default());
        let rest = rest.unwrap_or_else(|| panic!("no path in {line}"));
        if line.contains("cannot access") { rest.rsplit_once('/').map_or(rest, |(above, _)| above) } else { rest }
            .to_owned()
    };
    let mut named: Vec<String> = text(said).lines().map(path).collect();
    named.sort();
    named.dedup();
    named
}

/// Another user sees no more than du run by that user does, and nothing of it changes with what is hidden.
#[test]
fn a_user_sees_what_du_would_show() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let private = image.root().join("private");
    // Seen, and hidden: the same inode.
    fs::hard_link(private.join("inside/f3"), image.root().join("d/shared")).expect("a link");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::set_permissions(image.root().join("d/e f"), fs::Permissions::from_mode(0o744)).expect("a mode");
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    let as_user = |command: &Command| {
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(command.get_program());
        user.args(command.get_args());
        user
    };
    let mut before = Vec::new();
    for options in [&["-s"][..], &["-sb"], &["-s", "--inodes"], &["-d1"], &["-b"]] {
        let mut plain = Command::new("du");
        let expected = as_user(plain.args(options).arg(image.root())).output().expect("du runs");
        let shown = as_user(&serving.du(options, &image.root())).output().expect("it runs");
        assert_eq!(sorted_lines(&shown.stdout), sorted_lines(&expected.stdout), "{options:?}");
        assert_eq!(shown.status.code(), Some(1), "something is left out: {}", text(&shown.stderr));
        assert_eq!(named(&shown.stderr), named(&expected.stderr), "{options:?}: {}", text(&shown.stderr));
        before.push(shown.stdout);
    }
    let whole_answer = |options: &[&str]| {
        let out = as_user(&serving.du(options, &image.root())).output().expect("it runs");
        // How long ago the last look was is the same for all who ask, and grows.
        let said = text(&out.stderr);
        let said: Vec<&str> = said.split(' ').filter(|word| word.parse::<u64>().is_err()).collect();
        (text(&out.stdout), said.join(" "), out.status.code())
    };
    let told = [&["-sv"][..], &["-sv", "--within", "0s"], &["-sv", "--cached"]].map(whole_answer);
    fs::write(private.join("inside/grown"), vec![1; 1 << 20]).expect("a file");
    for number in 0..300 {
        fs::create_dir(private.join(format!("inside/{number}"))).expect("a directory");
    }
    let late = whole_answer(&["-sv", "--within", "0s"]);
    assert_eq!(late, told[1], "what is hidden delays nothing");
    assert_eq!([&["-sv"][..], &["-sv", "--within", "0s"], &["-sv", "--cached"]].map(whole_answer), told);
    let mut again = Vec::new();
    for options in [&["-s"][..], &["-sb"], &["-s", "--inodes"], &["-d1"], &["-b"]] {
        again.push(as_user(&serving.du(options, &image.root())).output().expect("it runs").stdout);
    }
    assert_eq!(again, before);
    let whole = text(&output(&mut serving.du(&["-sb"], &image.root())));
    assert_eq!(whole, text(&output(Command::new("du").arg("-sb").arg(image.root()))), "root sees all");
}

/// Several paths of which something is left out are a server's affair, unless they share an inode; what is left out is told once.
#[test]
fn several_partial_paths_are_not_walked() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let at = |name: &str| image.root().join(name);
    for name in ["one/private", "other/private", "other/open"] {
        fs::create_dir_all(at(name)).expect("a directory");
        fs::write(at(name).join("f"), vec![1; 10_000]).expect("a file");
    }
    // All names of it lie in one of the paths.
    fs::hard_link(at("other/open/f"), at("other/g")).expect("a link");
    for name in ["one/private", "other/private"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o700)).expect("a mode");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    let as_user = |mut du: Command| {
        du.arg(at("other"));
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(du.get_program()).args(du.get_args());
        user.output().expect("it runs")
    };
    let both = |way: &str| {
        let mut plain = Command::new("du");
        plain.arg("-sc").arg(at("one"));
        let (expected, seen) = (as_user(plain), as_user(serving.du(&["-scv"], &at("one"))));
        let said = text(&seen.stderr);
        assert_eq!((text(&seen.stdout), seen.status.code()), (text(&expected.stdout), Some(1)), "{said}");
        assert_eq!((said.matches(way).count(), said.matches("cannot read").count()), (2, 2), "{said}");
        assert_eq!(said.lines().count(), 4, "{said}");
    };
    both("from the server");
    // One of which both have a name, and one of which a name is hidden.
    fs::hard_link(at("other/open/f"), at("one/f")).expect("a link");
    fs::hard_link(at("other/private/f"), at("other/h")).expect("a link");
    crate::tree::sync(&image.root());
    both("walked");
    fs::remove_file(at("one/f")).expect("it goes");
    fs::hard_link(at("one/private/f"), at("one/f")).expect("a link");
    crate::tree::sync(&image.root());
    both("walked");
    // Then but one leads out.
    fs::remove_file(at("other/h")).expect("it goes");
    crate::tree::sync(&image.root());
    both("from the server");
    serving.end();
}

/// Of what is mounted below a directory that a user can't list, no more is told than of the directory, which is told once.
#[test]
fn what_is_mounted_below_closed_directories_is_left_out() {
    root_test!();
    let (image, folders) = (Image::new(Fs::Ext4, 256 << 20), [(); 4].map(|()| Folder::new()));
    let at = |name: &str| image.root().join(name);
    for (number, folder) in folders.iter().enumerate() {
        fs::write(folder.join("f"), vec![1; 90_000 + number * 20_000]).expect("a file");
        fs::set_permissions(folder.join(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let [shown, closed, searched, shared] = folders.each_ref().map(|folder| folder.join(""));
    let modes = [("open", 0o755), ("closed", 0o700), ("searched", 0o711)];
    let _mounts = [
        Bind::new(&closed, &at("closed/in/mounted")),
        Bind::new(&shown, &at("open/in/mounted")),
        Bind::new(&searched, &at("searched/in/mounted")),
        // The same once more where the user comes, behind it in the table of mounts.
        Bind::new(&shared, &at("closed/shared")),
        Bind::new(&shared, &at("open/shared")),
    ];
    // And what lies itself where the user doesn't come.
    fs::create_dir_all(at("closed/home/public")).expect("directories");
    fs::write(at("closed/home/public/f"), vec![1; 30_000]).expect("a file");
    let _public = Bind::new(&at("closed/home/public"), &at("open/public"));
    for (name, mode) in modes {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("a mode");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    for options in [&[][..], &["-s"], &["-d2"]] {
        let as_user = |du: &Command| {
            let mut user = Command::new("setpriv");
            user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(du.get_program()).args(du.get_args());
            user.output().expect("it runs")
        };
        let (seen, expected) =
            (as_user(&serving.du(options, &image.root())), as_user(Command::new("du").args(options).arg(image.root())));
        assert_eq!(sorted_lines(&seen.stdout), sorted_lines(&expected.stdout), "{options:?}");
        assert_eq!(seen.status.code(), expected.status.code());
        let [said, gnu_du_said] = [&seen, &expected].map(|out| text(&out.stderr));
        assert_eq!(named(&seen.stderr), named(&expected.stderr), "{options:?}");
        assert_eq!(said.lines().count(), gnu_du_said.lines().count(), "{options:?}: {said}{gnu_du_said}");
    }
    serving.end();
}

/// A later mount hides what was mounted below its place: only what is seen there counts, as with GNU du and our walk.
#[test]
fn what_a_mount_hides_is_not_counted() {
    root_test!();
    let (image, hidden, place) = (Image::new(Fs::Ext4, 256 << 20), Folder::new(), Folder::new());
    tree_without_links(&image.root());
    fs::write(hidden.join("f"), vec![1; 90_000]).expect("a file");
    let serving = Serving::start(&image);
    let place = place.join("place");
    let _below = Bind::new(&hidden.join(""), &place.join("a"));
    let _above = Bind::new(&image.root(), &place);
    for options in [&["-s"][..], &["-d1"]] {
        let expected = sorted_lines(&output(Command::new("du").args(options).arg(&place)));
        let asked = finish(serving.du(options, &place).arg("-v"), 0);
        assert_eq!(sorted_lines(&asked.stdout), expected, "{options:?}: {}", text(&asked.stderr));
        assert!(text(&asked.stderr).contains("from the server"), "{}", text(&asked.stderr));
    }
    serving.end();
}

/// A place that is seen twice below a directory counts once, whoever counts.
#[test]
fn what_is_bound_within_counts_once() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let at = |name: &str| image.root().join(name);
    let serving = Serving::start(&image);
    let _bound = [Bind::new(&at("a"), &at("d/bound")), Bind::new(&at("private"), &at("d/again"))];
    let once = ["--exclude=bound", "--exclude=again", "-sb"];
    let whole = text(&output(Command::new("du").args(once).arg(image.root())));
    // Of `private` all is in it, of `a` as well, and none lies in `d` itself.
    let three = text(&output(Command::new("du").args(["-cb", "-d0"]).args(["d", "a", "private"].map(at))));
    let three = three.lines().last().and_then(|line| line.split('\t').next()).expect("a total").to_owned();
    for (below, expected) in [("", whole.split('\t').next().unwrap_or_default()), ("d", &three)] {
        let asked = finish(&mut serving.du(&["-sbv"], &at(below)), 0);
        assert!(text(&asked.stderr).contains("from the server"), "{}", text(&asked.stderr));
        let walked = output(onesweep(["du", "--socket", "/nowhere", "-sb"]).arg(at(below)));
        let told = [&asked.stdout[..], &walked].map(|said| text(said).split('\t').next().map(str::to_owned));
        assert_eq!(told, [Some(expected.to_owned()), Some(expected.to_owned())], "{below:?}");
    }
    // What stays on one file system comes to it, too, but to none of what lies behind another one.
    let _other = Bind::in_memory(&at("d/other"));
    let _deeper = Bind::new(&at("private/inside"), &at("d/other/deeper"));
    let expected = sorted_lines(&output(Command::new("du").arg("-xb").arg(at("d"))));
    let asked = finish(&mut serving.du(&["-xbv"], &at("d")), 0);
    assert!(!text(&asked.stderr).contains("walked"), "{}", text(&asked.stderr));
    assert_eq!(sorted_lines(&asked.stdout), expected);
    serving.end();
}

/// Also where one of the places lies in another file system, and where that one isn't tracked.
#[test]
fn what_is_bound_within_a_mount_counts_once() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let at = |name: &str| image.root().join(name);
    let _in = ["tracked", "untracked"].map(|name| Bind::in_memory(&at(name)));
    for name in ["tracked/f", "untracked/f"] {
        fs::write(at(name), vec![1; 12_345]).expect("a file");
    }
    let serving = Serving::start_with(&[&image], &[at("tracked").as_os_str()]);
    let du = |exclude: &[&str]| text(&output(Command::new("du").args(exclude).arg("-sb").arg(image.root())));
    let ours = |socket: &Path| finish(onesweep(["du", "-sbv", "--socket"]).arg(socket).arg(image.root()), 0);
    let _nested = Bind::new(&at("a"), &at("tracked/nested"));
    let (asked, walked) = (ours(&serving.socket), ours(Path::new("/nowhere")));
    let expected = du(&["--exclude=nested"]);
    assert_eq!([&asked, &walked].map(|told| text(&told.stdout)), [&expected, &expected].map(String::clone));
    assert!(!text(&asked.stderr).contains("for the sake of"), "{}", text(&asked.stderr));
    let _again = Bind::new(&at("d"), &at("untracked/again"));
    let (asked, walked) = (ours(&serving.socket), ours(Path::new("/nowhere")));
    let expected = du(&["--exclude=nested", "--exclude=again"]);
    assert_eq!([asked, walked].map(|told| text(&told.stdout)), [&expected, &expected].map(String::clone));
    serving.end();
}

/// Names of one inode in several places of a file system, which all are mounted below one directory; and files on files.
#[test]
fn links_between_what_is_mounted_count_once() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let at = |name: &str| image.root().join(name);
    for name in ["x/one", "x/other", "p/below"] {
        fs::create_dir_all(at(name)).expect("a directory");
    }
    for (number, name) in ["x/one/f", "x/other/g", "x/alone", "p/h"].into_iter().enumerate() {
        fs::write(at(name), vec![1; 20_000 * (number + 1)]).expect("a file");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    // In which line an inode with several names counts is a matter of the order.
    let (totals, lines) = ([&["-s"][..], &["-s", "--inodes"], &["-d0"]], [&["-b"][..], &["-Sb"], &["-Sd1"]]);
    let agree = |all: &[&[&str]], from: &str| {
        for &options in all {
            let expected = sorted_lines(&output(Command::new("du").args(options).arg(at("p"))));
            let asked = finish(serving.du(options, &at("p")).arg("-v"), 0);
            let said = text(&asked.stderr);
            assert_eq!(sorted_lines(&asked.stdout), expected, "{options:?}: {said}");
            assert!(said.contains(from), "{said}");
        }
    };
    let _places = ["one", "other"].map(|name| Bind::new(&at(&format!("x/{name}")), &at("p").join(name)));
    // A file with one name is a file of its directory's.
    let _alone = Bind::over_file(&at("x/alone"), &at("p/below/covered"));
    agree(&totals, "from the server");
    agree(&lines, "from the server");
    fs::hard_link(at("x/one/f"), at("x/other/f")).expect("a link");
    agree(&totals, "walked, for the sake of single files");
    let cached = finish(&mut serving.du(&["-s", "--cached"], &at("p")), 0);
    assert!(text(&cached.stderr).contains("mounted in it counts in each: with --cached nothing is read"));
    fs::remove_file(at("x/other/f")).expect("it goes");
    agree(&totals, "from the server");
    // All other names of that file lie in the directory itself.
    fs::hard_link(at("p/h"), at("p/below/i")).expect("a link");
    agree(&totals, "from the server");
    let _twice = Bind::over_file(&at("p/h"), &at("p/covered"));
    agree(&totals, "walked, for the sake of single files");
    serving.end();
}

/// Connects as nobody more often than a server takes it, says so, and stays until its input ends.
const MANY_CONNECTIONS: &str = "
import os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
taken = []
for _ in range(300):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    taken.append(one)
print('taken', flush=True)
sys.stdin.read()
";

/// One user who takes all connections that there are keeps nobody else out.
#[test]
fn nobody_takes_all_places() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let serving = Serving::start(&image);
    let user = |uid: u32| {
        let mut user = Command::new("setpriv");
        user.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"]);
        user
    };
    let mut greedy = Command::new("python3");
    greedy.args(["-c", MANY_CONNECTIONS]).arg(&serving.socket);
    let mut greedy = greedy.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
    let mut said = String::new();
    BufReader::new(greedy.stdout.take().expect("a pipe")).read_line(&mut said).expect("it says");
    assert_eq!(said, "taken\n");
    let plain = serving.du(&["-sv"], &image.root().join("a"));
    for uid in [0, 1000] {
        let out = finish(user(uid).arg(plain.get_program()).args(plain.get_args()), 0);
        assert!(text(&out.stderr).contains("from the server"), "{uid}: {}", text(&out.stderr));
    }
    let out = finish(user(65534).arg(plain.get_program()).args(plain.get_args()), 0);
    assert!(text(&out.stderr).contains("walked"), "{}", text(&out.stderr));
    drop(greedy.stdin.take());
    assert!(greedy.wait().expect("it ends").success());
    // What it had is given back, as soon as the server has seen that it is gone.
    let mut again = user(65534);
    again.arg(plain.get_program()).args(plain.get_args());
    while !text(&finish(&mut again, 0).stderr).contains("from the server") {}
    serving.end();
}

/// A server that was killed leaves a store that the next one takes up, whatever has changed meanwhile.
#[test]
fn a_killed_server_is_followed_by_another() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let mut serving = Serving::start(&image);
    serving.running.kill().expect("it is killed");
    serving.running.wait().expect("it is gone");
    fs::rename(image.root().join("a/b"), image.root().join("d/b")).expect("a rename");
    fs::write(image.root().join("d/b/c/f0"), vec![2; 70_000]).expect("a file");
    fs::remove_dir_all(image.root().join("private")).expect("it goes");
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    for below in ["", "a", "d", "d/b"] {
        let path = image.root().join(below);
        let expected = text(&output(Command::new("du").arg("-sb").arg(&path)));
        assert_eq!(text(&output(&mut serving.du(&["-sb"], &path))), expected);
    }
    let out = finish(onesweep(["serve", "--socket"]).arg(&serving.socket).arg(image.root()), 2);
    assert!(text(&out.stderr).contains("another server listens there"), "{}", text(&out.stderr));
    serving.end();
}

/// What removing a directory frees is told before, and is what it does free.
#[test]
fn what_is_freed_is_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let at = |name: &str| image.root().join(name);
    // Two names in one directory; one elsewhere; two below it.
    for (from, to) in [("a/f4", "a/other"), ("a/f3", "d/l"), ("a/b/f4", "a/b/c/l")] {
        fs::hard_link(at(from), at(to)).expect("a link");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    for below in ["a/b/c", "a", "d"] {
        let freed = |mut du: Command| {
            let said = text(&output(du.args(["--freed", "-sB1"]).arg(at(below))));
            said.split('\t').next().and_then(|figure| figure.parse::<i64>().ok()).expect("a figure")
        };
        let mut asked = onesweep(["du", "--socket"]);
        asked.arg(&serving.socket);
        let (asked, walked) = (freed(asked), freed(onesweep(["du", "--socket", "/nowhere"])));
        let before = du(&image.root())[0];
        fs::remove_dir_all(at(below)).expect("it goes");
        crate::tree::sync(&image.root());
        let does_free = before - du(&image.root())[0];
        assert_eq!((asked, walked), (does_free, does_free), "{below}");
    }
    // Who may not see all of it is told nothing.
    fs::set_permissions(at("private/inside"), fs::Permissions::from_mode(0o700)).expect("a mode");
    for socket in [&serving.socket, Path::new("/nowhere")] {
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(crate::run::program());
        let shown = finish(user.args(["du", "--freed", "--socket"]).arg(socket).arg(at("private")), 1);
        assert_eq!(text(&shown.stdout), "");
        assert!(text(&shown.stderr).contains("cannot tell what removing it would free"), "{}", text(&shown.stderr));
    }
    serving.end();
}
