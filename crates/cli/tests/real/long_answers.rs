//! Answers of more lines than a server gives at once.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::Path,
    process::Command,
};

use onesweep_summary::service::{client::Client, portions::Cursor, protocol::Question};

use serde_json::Value;

use crate::{
    du::{named, sorted_lines},
    image::{Fs, Image},
    run::{finish, onesweep, output, root_test, run, say, text},
    serving::Serving,
    tree::until_another_second,
    web_server::{NOBODY, Web, du, figures},
};

/// Directories side by side, others in each other, one that is private, and files in some of them.
fn tree(root: &Path, side_by_side: usize) -> usize {
    for number in 0..side_by_side {
        fs::create_dir_all(root.join(format!("flat/{number}"))).expect("a directory");
    }
    let (mut count, mut deep) = (side_by_side, root.to_owned());
    for (number, name) in ["deep", "a", "b c", "private", "inside", "d"].into_iter().enumerate() {
        deep.push(name);
        for below in 0..1200 {
            fs::create_dir_all(deep.join(below.to_string())).expect("a directory");
        }
        fs::write(deep.join("file"), vec![1; number * 5000 + 1]).expect("a file");
        fs::write(deep.join("7/file"), vec![1; number * 7000 + 1]).expect("a file");
        count += 1201;
    }
    fs::set_permissions(root.join("deep/a/b c/private"), fs::Permissions::from_mode(0o700)).expect("a mode");
    crate::tree::sync(root);
    count
}

/// Names in several directories, more in one of them than a portion has.
fn link(root: &Path) {
    let names = [("deep/a/7/file", "flat/9/l"), ("deep/a/7/file", "deep/l"), ("deep/a/b c/private/file", "flat/77/l")];
    for (from, to) in names {
        fs::hard_link(root.join(from), root.join(to)).expect("a link");
    }
    for number in 0..6000 {
        let file = root.join(format!("flat/3/f{number}"));
        File::create(&file).expect("a file");
        fs::hard_link(&file, root.join(format!("deep/a/l{number}"))).expect("a link");
    }
    fs::write(root.join("flat/3/f5999"), "content").expect("a file");
    crate::tree::sync(root);
}

fn as_user(command: &Command) -> Command {
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(command.get_program()).args(command.get_args());
    user
}

#[test]
fn many_lines_are_those_of_gnu_du() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Btrfs] {
        let image = Image::new(fs, 1 << 30);
        let root = image.root();
        tree(&root, 20_500);
        let mut options = vec![&["-x"][..]];
        if fs == Fs::Ext4 {
            options.extend([&[][..], &["-Sb"], &["-d1"], &["--inodes", "-cd2"]]);
        } else {
            run(Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(root.join("deep/subvolume")));
            fs::create_dir(root.join("deep/subvolume/below")).expect("a directory");
            crate::tree::sync(&root);
        }
        let serving = Serving::start(&image);
        for options in options {
            let mut du = Command::new("du");
            du.args(options).arg(&root);
            let asked = finish(serving.du(options, &root).arg("-v"), 0);
            assert_eq!(sorted_lines(&asked.stdout), sorted_lines(&output(&mut du)), "{options:?}");
            let is_long = options != ["-d1"];
            assert_eq!(text(&asked.stderr).contains("in portions"), is_long, "{options:?}: {}", text(&asked.stderr));
            let (expected, seen) = (
                as_user(&du).output().expect("du runs"),
                as_user(&serving.du(options, &root)).output().expect("it runs"),
            );
            assert_eq!(sorted_lines(&seen.stdout), sorted_lines(&expected.stdout), "{options:?}");
            assert_eq!((seen.status.code(), named(&seen.stderr)), (Some(1), named(&expected.stderr)), "{options:?}");
        }
        if fs == Fs::Btrfs {
            continue;
        }
        link(&root);
        let nowhere = |options: &[&str]| {
            let mut walk = onesweep(["du", "--socket", "/nowhere"]);
            walk.args(options).arg(&root);
            walk
        };
        for options in [&[][..], &["-Sb"], &["--inodes", "-d2"]] {
            let (asked, walked) = (finish(&mut serving.du(options, &root), 0), finish(&mut nowhere(options), 0));
            assert!(asked.stdout == walked.stdout, "{options:?}: lines, their order, and what links come to");
            let seen = [serving.du(options, &root), nowhere(options)].map(|du| as_user(&du).output().expect("it runs"));
            assert!(seen[0].stdout == seen[1].stdout, "{options:?} by another user");
            let whole =
                output(Command::new("du").arg("-s").args(options.iter().filter(|&&with| with != "-d2")).arg(&root));
            let is_whole = text(&asked.stdout).ends_with(&text(&whole));
            assert!(is_whole || options == ["-Sb"], "{options:?}: {}", text(&whole));
        }
        let freed = |du: &mut Command| finish(du.arg("--freed"), 0).stdout;
        assert!(freed(&mut serving.du(&[], &root)) == freed(&mut nowhere(&[])), "what is freed");
        serving.end();
    }
}

/// Each as it is if it is asked for alone; and from then on it is noted what they come to.
#[test]
fn the_largest_of_very_many_directories_are_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 1 << 30);
    let (root, flat) = (image.root(), image.root().join("flat"));
    tree(&root, 20_500);
    link(&root);
    for (number, kib) in [(17, 700), (9_000, 500), (20_499, 900)] {
        fs::write(flat.join(format!("{number}/large")), vec![1; kib << 10]).expect("a file");
    }
    crate::tree::sync(&root);
    let serving = Serving::start(&image);
    let top = |options: &[&str], path: &Path| {
        let mut top = onesweep(["top", "--json", "--socket"]);
        top.arg(image.beside("socket")).args(options).arg(path);
        top
    };
    let told = |said: &[u8]| -> Value { serde_json::from_slice(said).expect("an object") };
    let key = |line: &Value, by: &str| line[by].as_i64().expect("a figure");
    for (options, by, path) in [
        (&["-d1"][..], "allocated", &flat),
        (&["-d9", "-n30"], "allocated", &root),
        (&["-d9", "--by", "inodes"], "inodes", &root),
    ] {
        for uid in [0, NOBODY] {
            let mut top = top(options, path);
            let said = if uid == 0 { output(&mut top) } else { as_user(&top).output().expect("it runs").stdout };
            let said = told(&said);
            let lines = said["directories"].as_array().expect("a list");
            assert_eq!(lines.len(), if options.contains(&"-n30") { 30 } else { 20 }, "{options:?}, {uid}");
            assert!(lines.windows(2).all(|two| key(&two[0], by) >= key(&two[1], by)), "{options:?}, {uid}: {said}");
            for line in lines.iter().chain([&said["total"]]) {
                let path = Path::new(line["path"].as_str().expect("a path"));
                let figures = ["allocated", "bytes", "inodes"].map(|name| key(line, name));
                assert_eq!(figures, du(uid, path), "{options:?}, {uid}: {line}");
            }
            assert_eq!(
                (said["exact"].as_bool(), said["partial"].as_bool()),
                (Some(true), Some(uid != 0 && *path == root))
            );
        }
    }
    let said = told(&output(&mut top(&["-n4"], &flat)));
    let names = said["directories"].as_array().expect("a list").iter().map(|line| line["path"].as_str());
    let mut names: Vec<_> = names.map(|path| path.and_then(|path| path.rsplit('/').next())).collect();
    names.sort_unstable();
    assert_eq!(names, [Some("17"), Some("20499"), Some("3"), Some("9000")]);
    // Of each second the last total is kept.
    until_another_second();
    fs::write(flat.join("9000/grown"), vec![1; 1 << 20]).expect("a file");
    crate::tree::sync(&root);
    let said = told(&output(&mut top(&["-n1", "--by", "grew"], &flat)));
    let grew = &said["directories"][0];
    assert_eq!(grew["path"].as_str(), flat.join("9000").to_str(), "{said}");
    assert!(grew["grew"].as_i64().is_some_and(|grew| grew >= 1 << 20), "{said}");
    serving.end();
}

/// The memory of a server's processes in KiB: now, and the most since the last look.
fn memory(serving: &Serving) -> (u64, u64) {
    let pid = serving.running.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    let mut sums = (0, 0);
    for pid in children.split_whitespace().map(str::to_owned).chain([pid.to_string()]) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let figure = |key: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a figure");
            line.split_whitespace().next().expect("a number").parse().expect("a number")
        };
        sums = (sums.0 + figure("VmRSS:"), sums.1 + figure("VmHWM:"));
        fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak begins anew");
    }
    sums
}

#[test]
fn many_lines_take_little_memory_and_let_others_in() {
    root_test!();
    let image = Image::new(Fs::Ext4, 1 << 30);
    let root = image.root();
    let count = tree(&root, 45_000);
    let serving = Serving::start(&image);
    output(&mut serving.du(&["-s"], &root));
    let (before, _) = memory(&serving);
    let lines = text(&output(&mut serving.du(&[], &root))).lines().count();
    let took = memory(&serving).1.saturating_sub(before);
    say(&format!("{lines} lines: {took} KiB"));
    assert!(lines > count && took < 12 << 10, "{lines} lines: {took} KiB");

    // Between two portions all is as if nobody had asked.
    let mut client = Client::connect(&serving.socket).expect("a server");
    let directory = File::open(&root).expect("a directory");
    let question = Question { depth: u32::MAX, takes_portions: true, ..Question::plain() };
    let head = client.ask(directory.as_fd(), &question, |_| panic!("no line")).expect("an answer").expect("no refusal");
    assert!(head.long && head.exact, "{head:?}");
    let refused = client.ask(directory.as_fd(), &Question { depth: 2, ..Question::plain() }, |_| {});
    assert!(refused.expect("an answer").is_err(), "who takes no portions gets none");
    let (mut cursor, mut told, mut portions) = (Cursor::default(), 0, 0);
    loop {
        let head = client.portion(directory.as_fd(), &Question::plain(), cursor, |_| told += 1);
        portions += 1;
        if portions % 10 == 1 {
            fs::write(root.join(format!("new {portions}")), "new").expect("a file");
            assert_eq!(output(&mut serving.du(&["-sb"], &root)), output(Command::new("du").arg("-sb").arg(&root)));
        }
        match head.expect("an answer").expect("no refusal").next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert!(told > count && portions > 40, "{told} directories in {portions} portions");
    serving.end();
}

/// Each inode with several names is looked at for lines: of many, those come in portions, too.
#[test]
fn lines_of_very_many_links_are_those_of_gnu_du() {
    root_test!();
    let image = Image::with(Fs::Ext4, 512 << 20, &["-N", "60000"]);
    let at = |name: &str| image.root().join(name);
    for name in ["daily.0/in", "daily.1/in", "other"] {
        fs::create_dir_all(at(name)).expect("a directory");
    }
    for number in 0..=20_000 {
        let file = at(&format!("daily.0/in/{number}"));
        fs::write(&file, if number % 100 == 0 { "content" } else { "" }).expect("a file");
        fs::hard_link(&file, at(&format!("daily.1/in/{number}"))).expect("a link");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    let ask = |options: &[&str], below: &str, is_long: bool| {
        let asked = finish(serving.du(options, &at(below)).arg("-v"), 0);
        let walked = finish(onesweep(["du", "--socket", "/nowhere"]).args(options).arg(at(below)), 0);
        assert_eq!(text(&asked.stdout), text(&walked.stdout), "{options:?}");
        let said = text(&asked.stderr);
        assert_eq!(said.contains("in portions"), is_long, "{options:?}: {said}");
        let whole = text(&output(Command::new("du").args(options).arg("-s").arg(at(below))));
        assert!(text(&asked.stdout).ends_with(&whole), "{options:?}: {whole}");
    };
    ask(&[], "", true);
    ask(&["--inodes"], "", true);
    ask(&["-b"], "daily.1", true);
    ask(&["-s"], "", false);
    ask(&[], "other", false);
    for number in 0..2 {
        fs::remove_file(at(&format!("daily.1/in/{number}"))).expect("it goes");
    }
    ask(&[], "", false);
    serving.end();
}

/// A user's own directories, each closed to all others, are looked at a piece at a time for that user; and each line of `top` is its
/// directory alone, whatever others share with it.
#[test]
fn what_is_looked_at_in_pieces_is_what_gnu_du_says() {
    root_test!();
    let image = Image::with(Fs::Ext4, 512 << 20, &["-N", "60000"]);
    let root = image.root();
    for name in ["a", "b"] {
        for number in 0..11_000 {
            fs::create_dir_all(root.join(format!("mine/{name}/{number}"))).expect("a directory");
        }
        fs::write(root.join(format!("mine/{name}/77/{name}")), vec![1; 70_000]).expect("a file");
    }
    run(Command::new("chown").arg("-R").arg(format!("{NOBODY}:{NOBODY}")).arg(root.join("mine")));
    run(Command::new("chmod").args(["-R", "u=rwX,go="]).arg(root.join("mine")));
    fs::create_dir_all(root.join("mine/a/5/private/in")).expect("a directory");
    fs::write(root.join("mine/a/5/private/in/file"), vec![1; 20_000]).expect("a file");
    fs::set_permissions(root.join("mine/a/5/private"), fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::create_dir(root.join("open")).expect("a directory");
    for (from, to) in [
        ("mine/a/5/private/in/file", "mine/b/7/linked"),
        ("mine/a/5/private/in/file", "open/linked"),
        ("mine/a/77/a", "mine/b/9/linked"),
    ] {
        fs::hard_link(root.join(from), root.join(to)).expect("a link");
    }
    crate::tree::sync(&root);
    let declared = image.beside("summaries");
    fs::write(&declared, "[owner]\nby = \"owner\"\n").expect("a file");
    let web = Web::start_with(&image, &[], &[OsStr::new("--summaries"), declared.as_os_str()]);
    for (uid, token) in [(0, &web.root), (NOBODY, &web.nobody)] {
        for below in ["", "mine"] {
            let path = root.join(below);
            let listing = web.listing(token, &format!("path={}", path.display()));
            assert_eq!(figures(&listing["total"]), du(uid, &path), "{uid}: {below:?}: {}", listing["total"]);
            assert_eq!(listing["partial"], uid != 0);
            let children = listing["children"].as_array().expect("a list");
            assert_eq!(children.len(), 3 - below.len() / 4);
            for child in children {
                let path = path.join(child["name"].as_str().expect("a name"));
                assert_eq!(figures(&child["total"]), du(uid, &path), "{uid}: {child}");
            }
            let (status, said) = web.get(token, &format!("/api/breakdown?by=owner&path={}", path.display()));
            assert_eq!(status, 200, "{said}");
            let breakdown: Value = serde_json::from_str(&said).expect("an object");
            let sum = |what: &str| -> i64 {
                let shares = breakdown["shares"].as_array().expect("a list");
                shares.iter().map(|share| share[what].as_i64().expect("a figure")).sum()
            };
            assert_eq!(["allocated", "bytes", "inodes"].map(sum), du(uid, &path), "{uid}: {below:?}: {breakdown}");
        }
        let mut top = onesweep(["top", "--json", "-d2", "-n", "20", "--socket"]);
        top.arg(image.beside("socket")).arg(&root);
        let said = if uid == 0 { output(&mut top) } else { as_user(&top).output().expect("it runs").stdout };
        let said: Value = serde_json::from_slice(&said).expect("an object");
        let lines = said["directories"].as_array().expect("a list");
        assert_eq!(lines.len(), 5);
        for line in lines.iter().chain([&said["total"]]) {
            let path = Path::new(line["path"].as_str().expect("a path"));
            let figure = |name: &str| line[name].as_i64().expect("a figure");
            assert_eq!(["allocated", "bytes", "inodes"].map(figure), du(uid, path), "{uid}: {line}");
        }
        // Some of these take more looks by themselves than a page has.
        let mut export = onesweep(["export", "--json-lines", "-", "--socket"]);
        export.arg(image.beside("socket")).arg(&root);
        let said = if uid == 0 { output(&mut export) } else { as_user(&export).output().expect("it runs").stdout };
        let rows = text(&said).lines().map(|row| serde_json::from_str(row).expect("an object")).collect::<Vec<Value>>();
        assert_eq!(rows.len(), if uid == 0 { 22_008 } else { 22_007 }, "{uid}");
        for row in rows.iter().filter(|row| row["depth"].as_i64().is_some_and(|depth| depth < 3)) {
            let path = Path::new(row["path"].as_str().expect("a path"));
            let figure = |name: &str| row[name].as_i64().expect("a figure");
            let inodes = figure("files") + figure("directories") + figure("others");
            let told = [figure("allocated_bytes"), figure("apparent_bytes"), inodes];
            assert_eq!(told, du(uid, path), "{uid}: {row}");
            let keys: i64 =
                row["keys"].as_array().expect("a list").iter().filter_map(|key| key["inodes"].as_i64()).sum();
            assert_eq!(keys, inodes, "{uid}: {row}");
        }
    }
}
