//! `onesweep export` over several hosts, read by DuckDB as docs/export.md does it.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, long, onesweep, output, program, root_test, run, say, text},
    summaries::Serving,
};

/// Rows that DuckDB gives for a query, in a directory.
fn query(folder: &Path, sql: &str) -> Vec<Vec<Value>> {
    // Of which `make deps` makes one beside the programs that cargo builds.
    let target = program();
    let target = target.ancestors().nth(2).expect("a target directory");
    let python =
        std::env::var_os("ONESWEEP_TEST_DUCKDB").map_or_else(|| target.join("tools/duckdb/bin/python3"), PathBuf::from);
    let script = "import duckdb, json, sys\n\
         rows = duckdb.connect().execute(sys.stdin.read()).fetchall()\n\
         print(json.dumps(rows, default=lambda value: value.hex() if isinstance(value, bytes) else str(value)))";
    let mut asked = Command::new(&python);
    asked.args(["-c", script]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut asked = asked.spawn().unwrap_or_else(|error| panic!("{}: {error}; try `make deps`", python.display()));
    asked.stdin.take().expect("a pipe").write_all(sql.as_bytes()).expect("it is asked");
    let out = asked.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{sql}");
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// The query of docs/export.md that begins with a line.
fn documented(title: &str) -> String {
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/export.md")).expect("the page");
    let mut queries = docs.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let found = queries.find(|query| query.starts_with(&format!("-- {title}")));
    found.unwrap_or_else(|| panic!("no query {title:?}")).to_owned()
}

fn write(path: PathBuf, kib: usize) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, vec![1; kib << 10]).expect("a file");
}

fn export(serving: &Serving, file: &Path, host: &str, root: &Path) -> Command {
    let mut export = onesweep(["export", "--parquet"]);
    export.arg(file).args(["--host", host, "--socket"]).arg(&serving.socket).arg(root);
    export
}

/// What GNU du says of a directory alone: apparent and allocated bytes, inodes; run by a user.
fn du(uid: u32, path: &Path) -> [i64; 3] {
    [&["-sb"][..], &["-sB1"], &["-s", "--inodes"]].map(|options| {
        let mut user = Command::new("setpriv");
        user.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "du"]);
        let said = user.args(options).arg(path).output().expect("du runs").stdout;
        text(&said).split('\t').next().and_then(|figure| figure.parse().ok()).expect("a figure")
    })
}

/// The directories for which GNU du, run by a user, prints a line.
fn lines_of_du(uid: u32, root: &Path) -> Vec<Vec<u8>> {
    let mut user = Command::new("setpriv");
    user.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "du", "-0"]);
    let said = user.arg(root).output().expect("du runs").stdout;
    let line = |line: &[u8]| line.split(|&byte| byte == b'\t').nth(1).expect("a path").to_vec();
    let mut paths: Vec<_> = said.split(|&byte| byte == 0).filter(|line| !line.is_empty()).map(line).collect();
    paths.sort();
    paths
}

#[test]
fn three_hosts_are_one_query() {
    root_test!();
    let images = [0; 3].map(|_| Image::new(Fs::Ext4, 128 << 20));
    let [mail, web, small] = [0, 1, 2].map(|at| images[at].root());
    write(mail.join("spool/inbox/f"), 7000);
    write(mail.join("log/f"), 1000);
    write(web.join("log/old/f"), 3000);
    write(web.join("www/site/f"), 2000);
    write(web.join("gone/inside/f"), 40);
    write(small.join("copy/site/f"), 2000);
    write(small.join("still/deep/f"), 100);
    // Each with the same times, so that nothing of it is of this year.
    run(Command::new("find").arg(small.join("still")).args(["-exec", "touch", "-d", "2001-02-03", "{}", "+"]));
    images.iter().for_each(|image| crate::tree::sync(&image.root()));
    let serving = Serving::start_on(&[&images[0], &images[1], &images[2]]);
    let folder = Folder::new();
    let hosts = [("mail", &mail), ("web", &web), ("small", &small)];
    for day in ["before", "now"] {
        fs::create_dir_all(folder.join(day)).expect("a directory");
        for (host, root) in hosts {
            let file = folder.join(day).join(format!("{host}.parquet"));
            finish(&mut export(&serving, &file, host, root), 0);
        }
        if day == "before" {
            write(mail.join("log/more"), 5000);
            fs::rename(web.join("www"), web.join("sites")).expect("a rename");
            write(web.join("sites/new/f"), 300);
            fs::remove_dir_all(web.join("gone")).expect("it goes");
            [&mail, &web].into_iter().for_each(|root| crate::tree::sync(root));
        }
    }
    let folder = folder.join("");
    let ask = |title: &str| query(&folder, &documented(title));
    let names = |rows: &[Vec<Value>]| -> Vec<String> {
        let name = |row: &Vec<Value>| {
            let path = row[1].as_str().expect("a path");
            let root = hosts.iter().find(|(host, _)| row[0] == *host).expect("a host").1;
            format!(
                "{}:{}",
                row[0].as_str().expect("a host"),
                path.strip_prefix(root.to_str().expect("text")).expect("below it")
            )
        };
        rows.iter().map(name).collect()
    };

    let all = ask("All that each host has");
    let expected: BTreeMap<&str, i64> = hosts.iter().map(|(host, root)| (*host, du(0, root)[1])).collect();
    assert_eq!(all.len(), 3);
    for row in &all {
        assert_eq!(row[2].as_i64(), expected.get(row[0].as_str().expect("a host")).copied(), "{row:?}");
    }
    let largest = ask("The largest directories");
    assert_eq!(names(&largest)[..3], ["mail:/spool", "mail:/spool/inbox", "mail:/log"]);
    assert_eq!(largest[2][2].as_i64(), Some(du(0, &mail.join("log"))[1]));
    let own = ask("Directories whose own files");
    assert_eq!(names(&own)[..3], ["mail:/spool/inbox", "mail:/log", "web:/log/old"]);
    assert_eq!((&own[1][2], &own[1][3]), (&du(0, &mail.join("log"))[1].into(), &2.into()));
    let grew = ask("What grew most");
    assert_eq!(names(&grew)[..3], ["mail:/log", "web:/sites", "web:/sites/new"]);
    let grown: Vec<i64> = grew.iter().map(|row| row[2].as_i64().expect("a figure")).collect();
    assert_eq!(grown[..3], [5000 << 10, 304 << 10, 304 << 10]);
    assert!(grown[3..].iter().all(|&grew| grew == 0), "a rename is no growth: {grew:?}");
    assert_eq!(names(&ask("Directories that are gone")), ["web:/gone"]);
    let shares = ask("The share of one subtree");
    let share = |root: &Path| (1000.0 * du(0, &root.join("log"))[1] as f64 / du(0, root)[1] as f64).round() / 10.0;
    assert_eq!(shares[0], [Value::from("web"), share(&web).into()], "{shares:?}");
    assert_eq!(shares[1], [Value::from("mail"), share(&mail).into()], "{shares:?}");
    assert_eq!(shares[2], [Value::from("small"), Value::Null]);
    let copies = ask("What looks like the same directory");
    let places = [("small", small.join("copy/site")), ("web", web.join("sites/site"))]
        .map(|(host, path)| Value::from(format!("{host}:{}", path.display())));
    assert_eq!(
        (&copies[0][0], &copies[0][3], &copies[0][4]),
        (&"site".into(), &2.into(), &Value::from(places.to_vec()))
    );
    assert_eq!(names(&ask("Trees in which nothing has changed")), ["small:/still"]);
    assert_eq!(ask("Whose rows"), Vec::<Vec<Value>>::new());
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/export.md")).expect("the page");
    assert_eq!(docs.matches("```sql").count(), 9, "each query of the page is tried here");

    // The first day's is replaced at once, and nothing else lies there.
    let left: Vec<_> =
        fs::read_dir(folder.join("now")).expect("it is there").map(|e| e.expect("a name").file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    serving.end();
}

#[test]
fn rows_are_what_du_says_for_root_and_for_a_user() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 320 << 20);
        let root = image.root();
        write(root.join("a/b/f"), 300);
        write(root.join("a/g"), 20);
        write(root.join("private/inside/secret"), 900);
        write(root.join("mixed/shut/secret"), 90);
        write(root.join("mixed/f"), 9);
        let odd = root.join(OsStr::from_bytes(b"odd\xff\n'"));
        write(odd.join("f"), 30);
        fs::hard_link(root.join("a/g"), root.join("mixed/linked")).expect("a link");
        fs::hard_link(root.join("private/inside/secret"), root.join("a/b/seen")).expect("a link");
        // More than one page, and depths.
        let mut deep = root.join("many");
        for number in 0..2300 {
            fs::create_dir_all(deep.join(format!("d{number}"))).expect("a directory");
            if number % 100 == 99 {
                deep = deep.join(format!("d{number}"));
            }
        }
        fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o700)).expect("a mode");
        fs::set_permissions(root.join("mixed/shut"), fs::Permissions::from_mode(0o744)).expect("a mode");
        crate::tree::sync(&root);
        let serving = Serving::start(&image);
        let open = Folder::new();
        fs::set_permissions(open.join(""), fs::Permissions::from_mode(0o777)).expect("a mode");
        for uid in [0, 65_534] {
            let file = open.join(&format!("{}-{uid}.parquet", fs.name()));
            let mut user = Command::new("setpriv");
            let export = export(&serving, &file, "h", &root);
            user.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"])
                .arg(export.get_program());
            let out = finish(user.args(export.get_args()), i32::from(uid != 0));
            assert_eq!(text(&out.stderr).contains("are left out"), uid != 0, "{}", text(&out.stderr));
            let rows = query(
                &open.join(""),
                &format!(
                    "SELECT coalesce(hex(path_bytes), hex(encode(path))), apparent_bytes, allocated_bytes, \
                     files + directories + others, partial, depth, directory_id, parent_id, name, \
                     coalesce(hex(name_bytes), '') FROM '{}'",
                    file.display()
                ),
            );
            let unhex = |hex: &Value| -> Vec<u8> {
                let digits = hex.as_str().expect("digits").as_bytes();
                digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).expect("a byte")).collect()
            };
            let by_path: BTreeMap<Vec<u8>, &Vec<Value>> = rows.iter().map(|row| (unhex(&row[0]), row)).collect();
            assert_eq!(by_path.len(), rows.len(), "each once");
            assert_eq!(by_path.keys().cloned().collect::<Vec<_>>(), lines_of_du(uid, &root), "{fs:?} {uid}");
            for below in ["", "a", "a/b", "mixed", "mixed/shut", "private", "many", "many/d0"] {
                let path = root.join(below);
                let path = Path::new(OsStr::from_bytes(
                    path.as_os_str().as_bytes().strip_suffix(b"/").unwrap_or(path.as_os_str().as_bytes()),
                ));
                let row = by_path[path.as_os_str().as_bytes()];
                let told = [1, 2, 3].map(|at| row[at].as_i64().expect("a figure"));
                assert_eq!(told, du(uid, path), "{fs:?} {uid} {below}: {row:?}");
                let is_partial = uid != 0 && ["", "mixed", "mixed/shut", "private"].contains(&below);
                assert_eq!(row[4], is_partial, "{uid} {below}");
            }
            let odd = by_path[odd.as_os_str().as_bytes()];
            assert_eq!((&odd[8], &odd[9], &odd[5]), (&"odd\u{fffd}\n'".into(), &"6F6464FF0A27".into(), &1.into()));
            let ids: BTreeMap<&str, &Vec<Value>> =
                rows.iter().map(|row| (row[6].as_str().expect("an id"), row)).collect();
            assert_eq!(ids.len(), rows.len());
            for row in &rows {
                let above = row[7].as_str().map(|id| ids[id]);
                assert_eq!(
                    above.map_or(0, |above| above[5].as_i64().expect("a depth") + 1),
                    row[5].as_i64().expect("a depth")
                );
                let path = unhex(&row[0]);
                let is_below = |above: &Vec<Value>| {
                    Path::new(OsStr::from_bytes(&path)).parent()
                        == Some(Path::new(OsStr::from_bytes(&unhex(&above[0]))))
                };
                assert!(above.is_none_or(is_below), "{row:?}");
            }
            // A part of it, as lines of JSON: nothing of what lies elsewhere.
            let mut json = Command::new("setpriv");
            json.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"]).arg(program());
            json.args(["export", "--json-lines", "-", "--cached", "--socket"]).arg(&serving.socket).arg(root.join("a"));
            let lines = text(&output(&mut json));
            let told: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let mut paths: Vec<_> =
                told.iter().map(|row| row["path"].as_str().expect("text").as_bytes().to_vec()).collect();
            paths.sort();
            assert_eq!(paths, lines_of_du(uid, &root.join("a")));
            let top = told.iter().find(|row| row["parent_id"].is_null()).expect("the top");
            assert_eq!((&top["name"], &top["depth"], &top["own_files"]), (&"a".into(), &0.into(), &1.into()));
        }
        // What is out of reach is as if it weren't there.
        let mut hidden = Command::new("setpriv");
        hidden.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program());
        hidden.args(["export", "--json-lines", "-", "--socket"]).arg(&serving.socket).arg(root.join("private/inside"));
        let out = finish(&mut hidden, 2);
        assert!(out.stdout.is_empty() && text(&out.stderr).contains("Permission denied"), "{}", text(&out.stderr));
        serving.end();
    }
}

/// Somebody who answers as a server would, or doesn't.
fn answering(folder: &Folder, answer: impl Fn(&mut UnixStream, usize) + Send + 'static) -> PathBuf {
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("a connection");
            let questions = BufReader::new(connection.try_clone().expect("its other half")).lines();
            for number in questions.take_while(Result::is_ok).enumerate().map(|(number, _)| number) {
                answer(&mut connection, number);
            }
        }
    });
    socket
}

fn files_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).expect("it is there").map(|e| text(e.expect("a name").file_name().as_bytes())).collect()
}

#[test]
fn what_is_not_complete_never_has_the_name() {
    let folder = Folder::new();
    let out = folder.join("out");
    fs::create_dir(&out).expect("a directory");
    let file = out.join("table");
    fs::write(&file, "of yesterday").expect("a file");
    let is_untouched = || files_in(&out) == ["table"] && fs::read(&file).expect("a file") == b"of yesterday";
    let export = |socket: &Path| {
        let mut export = crate::run::interruptible(["export", "--parquet"]);
        export.arg(&file).arg("--socket").arg(socket).arg("/");
        export
    };
    let said = text(&finish(&mut export(&folder.join("nowhere")), 2).stderr);
    assert!(
        said.contains("cannot ask the server") && said.contains("start `onesweep serve`") && is_untouched(),
        "{said}"
    );
    // Interrupted while it waits for an answer that never comes.
    for (signal, code) in [("-INT", 130), ("-TERM", 130)] {
        let silent = Folder::new();
        let socket = answering(&silent, |_, _| {});
        let mut running = export(&socket).stderr(Stdio::piped()).spawn().expect("it starts");
        while files_in(&out).len() < 2 {
            assert!(running.try_wait().expect("its state").is_none(), "it ended");
            thread::sleep(Duration::from_millis(5));
        }
        run(Command::new("kill").args([signal, &running.id().to_string()]));
        assert_eq!(running.wait().expect("it ends").code(), Some(code));
        assert!(is_untouched(), "{:?}", files_in(&out));
    }
    // A server that goes away in the middle.
    let leaving = Folder::new();
    let socket = answering(&leaving, |connection, number| {
        if number == 0 {
            writeln!(connection, r#"{{"page": {{"lines": 0, "next": 5, "file_system": "x"}}}}"#).expect("it is said");
        } else {
            connection.shutdown(std::net::Shutdown::Both).expect("it ends");
        }
    });
    finish(&mut export(&socket), 2);
    assert!(is_untouched(), "{:?}", files_in(&out));
    // One that would send it round in circles.
    let circling = Folder::new();
    let socket = answering(&circling, |connection, _| {
        writeln!(connection, r#"{{"page": {{"lines": 0, "next": 0, "file_system": "x"}}}}"#).expect("it is said");
    });
    finish(&mut export(&socket), 0);
    assert_eq!(files_in(&out), ["table"]);
    assert!(fs::read(&file).expect("a file").starts_with(b"PAR1"));
    let said = text(&finish(onesweep(["export", "--parquet", "/", "--socket"]).arg(&socket), 2).stderr);
    assert!(said.contains("is a directory"), "{said}");
    assert!(text(&finish(&mut onesweep(["export", "/"]), 2).stderr).contains("--parquet <FILE>"));
}

/// A million directories (a hundred thousand in the short set) in a hundred MiB.
#[test]
fn very_many_directories_take_little_memory() {
    const PER_PAGE: usize = 1000;
    let count = if long() { 1_000_000 } else { 100_000 };
    let folder = Folder::new();
    let socket = answering(&folder, move |connection, number| {
        let from = number * PER_PAGE;
        let next = if from + PER_PAGE < count { format!(r#""next": {}, "#, from + PER_PAGE) } else { String::new() };
        let mut page = format!("{{\"page\": {{\"lines\": {PER_PAGE}, {next}\"file_system\": \"x\"}}}}\n");
        let zeros = r#""directory_bytes": 4096, "freed": 0, "directories": 3, "others": 0"#;
        for at in from..from + PER_PAGE {
            let figures = format!(r#"{{"bytes": {at}, "allocated": {}, "files": {}, {zeros}}}"#, at * 512, at % 97);
            page += &format!(
                "{{\"id\": \"0.{at}.{}\", \"parent\": \"0.{}.7\", \"path\": \"some/where/far/below/d{}/directory-{at}\", \
                 \"row\": {{\"name\": \"directory-{at}\", \"depth\": 6, \"total\": {figures}, \"own\": {figures}, \
                 \"newest\": {at}}}, \"partial\": false, \"unreadable\": false, \"harvested_at\": 1790000000}}\n",
                at * 7919 % 1_000_003,
                at / 10,
                at / 10,
            );
        }
        connection.write_all(page.as_bytes()).expect("it is said");
    });
    let mut export = Command::new("/usr/bin/time");
    export
        .arg("-v")
        .arg(program())
        .args(["export", "--parquet"])
        .arg(folder.join("table.parquet"))
        .arg("--socket")
        .arg(&socket);
    let said = text(&finish(export.arg("/"), 0).stderr);
    let kib = said.lines().find_map(|line| line.trim().strip_prefix("Maximum resident set size (kbytes): "));
    let peak = kib.expect("a figure").parse::<u64>().expect("a number") >> 10;
    let bytes = fs::metadata(folder.join("table.parquet")).expect("the file").len();
    say(&format!("{count} directories: peak {peak} MiB, {bytes} bytes"));
    assert!(peak < 100, "{peak} MiB");
    let sql = "SELECT count(*), sum(apparent_bytes), count(DISTINCT directory_id) FROM 'table.parquet'";
    let sum = (0..count as i64).sum::<i64>() + 4096 * count as i64;
    assert_eq!(query(&folder.join(""), sql)[0][..3], [count.into(), sum.into(), count.into()] as [Value; 3]);
}
