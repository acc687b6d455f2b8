//! What `onesweep serve --http` answers: how much, to which requests, and metrics. The page itself is looked at by `web/tests`.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;

use crate::{
    image::{Fs, Image},
    openmetrics,
    run::{finish, onesweep, root_test, text},
    web_server::{NOBODY, Web, du, figures, new_token, status, tree},
};

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
