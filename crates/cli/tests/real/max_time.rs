//! `onesweep du --within`: who waits no longer is told what is stored, and that it is old.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::MetadataExt, net::UnixListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, onesweep, program, root_test, run, text, wait_until},
    serving::Serving,
    tracked::du,
    web_server::Web,
};

/// A server that gives the same lines to each question, and what it was asked first.
fn saying(folder: &Folder, lines: String) -> (PathBuf, thread::JoinHandle<Value>) {
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let asked = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        let mut question = String::new();
        let mut from = BufReader::new(connection.try_clone().expect("its other half"));
        from.read_line(&mut question).expect("a question");
        connection.write_all(lines.as_bytes()).expect("it is said");
        serde_json::from_str(&question).expect("JSON")
    });
    (socket, asked)
}

fn late_answer() -> String {
    let figures = r#"{"bytes": 1, "directory_bytes": 0, "allocated": 409600, "freed": 0, "files": 3, "directories": 1, "others": 0}"#;
    format!(
        "{{\"answer\": {{\"lines\": 1, \"partial\": false, \"exact\": false, \"harvested_at\": 1700000000, \"unreadable\": 0, \"late\": 3, \"age\": 17}}}}\n\
         {{\"name\": \"\", \"depth\": 0, \"total\": {figures}, \"own\": {figures}}}\n"
    )
}

#[test]
fn a_late_answer_is_never_told_as_a_right_one() {
    let folder = Folder::new();
    let (socket, asked) = saying(&folder, late_answer());
    let mut du = onesweep(["du", "-s", "--within", "5s", "--socket"]);
    let out = finish(du.arg(&socket).arg(folder.join("")), 1);
    assert!(text(&out.stdout).starts_with("400\t"), "{}", text(&out.stdout));
    let said = text(&out.stderr);
    assert!(said.contains("time is up: as it was 17 s ago; 3 directories or more have changed since\n"), "{said}");
    let question = asked.join().expect("no panic");
    assert_eq!((&question["max_ms"], &question["progress"]), (&5000.into(), &Value::Null), "{question}");

    let folder = Folder::new();
    let (socket, _) = saying(&folder, "{\"refused\": \"late\"}\n".to_owned());
    let mut du = onesweep(["du", "-s", "--within", "0s", "--socket"]);
    let out = finish(du.arg(&socket).arg(folder.join("")), 1);
    assert!(
        out.stdout.is_empty() && text(&out.stderr).contains("the server doesn't know it yet"),
        "{}",
        text(&out.stderr)
    );
    for line in ["--within 5", "--within 5s --cached", "--within 5s -a"] {
        let said = text(&finish(onesweep(["du"]).args(line.split(' ')), 1).stderr);
        assert!(said.contains("--within"), "{line}: {said}");
    }
}

#[test]
fn who_waits_at_a_terminal_sees_how_far_it_is() {
    // `export` asks for a page next, and the server is gone by then.
    for (command, code) in [("du -s", 1), ("top", 0), ("export --json-lines -", 2)] {
        let folder = Folder::new();
        let working = "{\"working\": {\"read\": 12, \"left\": 345}}\n";
        let (socket, asked) = saying(&folder, format!("{working}{working}{}", late_answer()));
        let out = folder.join("out");
        let line = format!(
            "'{}' {command} --socket '{}' '{}' > '{}'",
            program().display(),
            socket.display(),
            folder.join("").display(),
            out.display()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
        let seen = text(&finish(&mut script, code).stdout);
        assert!(seen.contains("reading what has changed: 12 directories read, 345 left"), "{command}: {seen:?}");
        // It is gone before anything else is told.
        let rest = &seen[seen.rfind("345 left").expect("it is there")..];
        assert!(rest.starts_with("345 left\r\u{1b}[Konesweep: "), "{command}: {rest:?}");
        if command == "du -s" {
            assert!(text(&fs::read(&out).expect("the line")).starts_with("400\t"));
        }
        assert_eq!(asked.join().expect("no panic")["progress"], true);
    }
}

/// With no time at all the answer is right or says that it isn't, and becomes right without anybody waiting.
#[test]
fn what_is_late_becomes_right_by_itself() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 320 << 20);
        let at = |name: &str| image.root().join(name);
        fs::create_dir(at("d")).expect("a directory");
        crate::tree::sync(&image.root());
        let serving = Serving::start(&image);
        let ask = |time: &str, code| {
            let du = serving.du(&["-sB1", "--within", time], &at("d")).output().expect("it runs");
            let said = text(&du.stderr);
            assert_eq!(du.status.code(), Some(i32::from(said.contains("time is up"))), "{said}");
            assert!(code != Some(0) || du.status.success(), "{said}");
            du.status
                .success()
                .then(|| text(&du.stdout).split('\t').next().and_then(|figure| figure.parse().ok()).expect("a figure"))
        };
        for round in 0..3 {
            for number in 0..300 {
                fs::write(at(&format!("d/{round}-{number}")), [1; 5000]).expect("a file");
            }
            crate::tree::sync(&image.root());
            let mut told: Option<i64> = None;
            wait_until("what is right", || {
                told = ask("0s", None);
                told.is_some()
            });
            assert_eq!(told.expect("a figure"), du(&at("d"))[0], "{} {round}", fs.name());
            assert_eq!(ask("1h", Some(0)), Some(du(&at("d"))[0]));
        }
        serving.end();
    }
}

/// By HTTP whoever asks may set a time, and the settings set one for all.
#[test]
fn the_settings_bound_what_is_asked_by_http() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    fs::create_dir(image.root().join("d")).expect("a directory");
    let web = Web::start_with(&image, &[], &["--http-max-time", "0s"].map(std::ffi::OsStr::new));
    let ask = |more: &str| -> Value {
        let (status, body) =
            web.get(&web.root, &format!("/api/directory?path={}{more}", image.root().join("d").display()));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    };
    for round in 1..=5 {
        fs::write(image.root().join(format!("d/{round}")), "bytes").expect("a file");
        // No more than the settings allow, whatever is asked for.
        let mut answer = ask("&max_ms=100000");
        wait_until("what is right", || {
            let is_late = !answer["late"].is_null();
            if is_late {
                assert_eq!(answer["exact"], false, "{answer}");
                answer = ask("");
            }
            !is_late
        });
        assert_eq!((&answer["exact"], &answer["total"]["files"]), (&true.into(), &round.into()), "{answer}");
    }
    let (status, body) = web.get(&web.root, &format!("/api/directory?path={}&max_ms=x", image.root().display()));
    assert!(status == 400 && body.contains("max_ms isn't a number"), "{body}");
}

/// What takes long is here a command for each directory that ends when a file is there; after a second it is killed, and the next one begins.
#[test]
fn by_http_nobody_waits_until_all_is_counted() {
    root_test!();
    let (slow, quick) = (Image::new(Fs::Ext4, 256 << 20), Image::in_memory(Fs::Ext4, 64 << 20));
    for number in 0..200 {
        fs::create_dir(slow.root().join(format!("{number}"))).expect("a directory");
    }
    fs::write(quick.root().join("f"), "bytes").expect("a file");
    let go = quick.beside("go");
    let words =
        format!("until test -e '{}'; do sleep 0.05; done; cat > /dev/null; echo '{{\"seen\": 1}}'\n", go.display());
    let command = crate::breakdowns::script(&quick, "command", &words);
    let declared = quick.beside("summaries.toml");
    let table = format!("[seen]\nby = \"command\"\ncommand = [{command:?}]\nuser = 12345\nmerge = \"sum\"\n");
    fs::write(&declared, &table).expect("a file");
    let first = slow.root();
    let options = ["--summaries".as_ref(), declared.as_os_str(), first.as_os_str()];
    let (web, mut said) = Web::begin(&quick, &[&quick.root(), &first], &options);
    let mut harvested = |image: &Image| {
        let mut lines = said.by_ref().map(|line| line.expect("a line"));
        let line = lines.find(|line| line.contains(" directories harvested in ")).expect("it is said");
        assert!(line.contains(&image.root().display().to_string()), "{line}");
    };
    // What lies on other disks is known long before.
    harvested(&quick);
    let listing = web.listing(&web.root, &format!("path={}", quick.root().display()));
    assert_eq!((&listing["total"]["files"], &listing["exact"]), (&1.into(), &true.into()), "{listing}");
    // Nothing is said of a directory of which nothing is known, or a part.
    let files = |image: &Image| format!("files{{path=\"{}\"}} ", image.root().display());
    let (status, body) = web.get(&web.root, "/metrics");
    assert!(
        status == 200 && body.contains(&(files(&quick) + "1\n")) && !body.contains(&first.display().to_string()),
        "{body}"
    );
    // Nor is any of them said not to be there, however many are asked for.
    for token in [&web.root, &web.nobody] {
        for below in ["", "/1", "/2", "/3", "/4", "/5"] {
            let (status, body) = web.get(token, &format!("/api/directory?path={}{below}&max_ms=10", first.display()));
            assert!(status == 503 && body.contains("\"late\""), "{below}: {status}: {body}");
        }
        let inode = fs::metadata(first.join("6")).expect("facts");
        let (status, body) =
            web.get(token, &format!("/api/directory?dev={}&ino={}&max_ms=10", inode.dev(), inode.ino()));
        assert!(status == 503 && body.contains("\"late\""), "{status}: {body}");
    }
    let (status, body) = web.get(&web.root, &format!("/api/directory?path={}", first.display()));
    assert!(status == 503 && body.contains("\"late\""), "{status}: {body}");
    fs::write(&go, "").expect("a file");
    harvested(&slow);
    let listing = web.listing(&web.root, &format!("path={}", slow.root().display()));
    assert_eq!((&listing["total"]["directories"], &listing["exact"]), (&202.into(), &true.into()), "{listing}");
    let (status, body) = web.get(&web.root, "/metrics");
    assert!(status == 200 && body.contains(&(files(&slow) + "0\n")), "{body}");

    // While all of it is looked at again what was whole before is told, and that it is late, or nothing; never a part.
    web.end();
    fs::remove_file(&go).expect("it goes");
    fs::write(&declared, table + "version = 2\n").expect("a file");
    let (web, mut said) = Web::begin(&quick, &[&quick.root(), &first], &options);
    let mut say = |what: &str| {
        let line = said.by_ref().map(|line| line.expect("a line")).find(|line| line.contains(what));
        line.expect("it is said")
    };
    let (status, body) = web.get(&web.root, &format!("/api/directory?path={}&max_ms=10", first.display()));
    if status == 200 {
        let late: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&late["total"]["directories"], &late["exact"]), (&202.into(), &false.into()), "{late}");
        assert!(!late["late"].is_null(), "{late}");
    } else {
        // Who asks comes behind a portion, each of whose commands takes its second.
        assert!(status == 503 && body.contains("\"late\""), "{status}: {body}");
    }
    // Of what was declared anew there is a part only.
    for how in ["&max_ms=10", "&freshness=cached"] {
        let (status, body) = web.get(&web.root, &format!("/api/breakdown?path={}&by=seen{how}", first.display()));
        assert!(status == 503 && body.contains("\"late\""), "{how}: {status}: {body}");
    }
    let (_, body) = web.get(&web.root, "/metrics?freshness=cached");
    assert!(!body.contains(&format!("breakdown_value{{path=\"{}", first.display())), "{body}");
    // The settings are taken up meanwhile, but for which file systems are tracked.
    web.hang_up();
    say("stays as it is until all are caught up with");
    say("the settings were read again");
    fs::write(&go, "").expect("a file");
    let slow_one = slow.root().display().to_string();
    while !say(" directories harvested in ").contains(&slow_one) {}
    say("the settings were read again");
    let listing = web.listing(&web.root, &format!("path={}", first.display()));
    assert_eq!((&listing["total"]["directories"], &listing["exact"]), (&202.into(), &true.into()), "{listing}");
    let (_, body) = web.get(&web.root, "/metrics");
    assert!(body.contains(&(files(&slow) + "0\n")), "{body}");
    assert!(body.contains(&format!("breakdown_value{{path=\"{}", first.display())), "{body}");
}

/// Not to start a server: it runs.
#[test]
fn who_asks_too_early_is_told_to_ask_again() {
    let later = "the server doesn't know it yet; ask again later";
    for (words, name, refused, code, why) in [
        (&["top"][..], "", "late", 1, later),
        (&["top"], "file", "not_tracked", 2, "it is no directory"),
        (&["top"], "", "not_tracked", 2, "it tracks another file system; start `onesweep serve`"),
    ] {
        let folder = Folder::new();
        fs::write(folder.join("file"), "").expect("a file");
        let (socket, _) = saying(&folder, format!("{{\"refused\": \"{refused}\"}}\n"));
        let out = finish(onesweep(words).arg("--socket").arg(&socket).arg(folder.join(name)), code);
        let said = text(&out.stderr);
        assert!(said.contains(why) && (why != later || !said.contains("start `onesweep serve`")), "{words:?}: {said}");
    }
}

/// As by ^Z and fg: a signal ends what is waited for until a time.
#[test]
fn who_is_stopped_while_it_waits_gets_the_answer() {
    let folder = Folder::new();
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let mut du = onesweep(["du", "-s", "--socket"]);
    let du =
        du.arg(&socket).arg(folder.join("")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let (mut connection, _) = listener.accept().expect("a connection");
    BufReader::new(connection.try_clone().expect("its other half")).read_line(&mut String::new()).expect("a question");
    let is = |state: &str| {
        let told = fs::read_to_string(format!("/proc/{}/stat", du.id())).expect("it is there");
        told.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
    };
    for (signal, before, after) in [("-STOP", "S", "T"), ("-CONT", "T", "S")] {
        wait_until(before, || is(before));
        run(Command::new("kill").args([signal, &du.id().to_string()]));
        wait_until(after, || is(after));
    }
    connection.write_all(b"{\"refused\": \"late\"}\n").expect("an answer");
    let found = du.wait_with_output().expect("it ends");
    assert!(found.stdout.is_empty(), "it was walked: {}", text(&found.stdout));
    assert!(text(&found.stderr).contains("the server doesn't know it yet"), "{}", text(&found.stderr));
}

/// Without a server there is nothing stored to tell.
#[test]
fn a_walk_that_takes_too_long_tells_nothing() {
    let folder = Folder::new();
    for number in 0..200 {
        fs::create_dir_all(folder.join(&format!("{number}/a/b/c"))).expect("directories");
    }
    let mut du = onesweep(["du", "-s", "--within", "0s", "--socket", "/nowhere"]);
    let out = finish(du.arg(folder.join("")), 1);
    assert!(out.stdout.is_empty() && text(&out.stderr).contains("nothing is stored of it"), "{}", text(&out.stderr));
    let mut du = onesweep(["du", "-s", "--inodes", "--within", "1h", "--socket", "/nowhere"]);
    assert!(text(&finish(du.arg(Path::new(&folder.join(""))), 0).stdout).starts_with("801\t"));
}
