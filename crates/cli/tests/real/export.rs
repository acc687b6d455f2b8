//! `onesweep export` over several hosts, read by DuckDB as docs/export.md does it.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, chown},
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
    serving::Serving,
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
    assert_eq!(docs.matches("```sql").count(), 9 + 3, "each query of the page is tried here or below");

    // The first day's is replaced at once, and nothing else lies there.
    let left: Vec<_> =
        fs::read_dir(folder.join("now")).expect("it is there").map(|e| e.expect("a name").file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    serving.end();
}

/// What `find` adds up below a directory by the text that it prints for each inode: inodes, apparent and allocated bytes.
fn added_up(uid: u32, root: &Path, key: &str) -> BTreeMap<String, [i64; 3]> {
    let mut user = Command::new("setpriv");
    user.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "find"]).arg(root);
    let said = user.args(["-printf", &format!("{key} %s %b\\n")]).output().expect("find runs").stdout;
    let mut sums = BTreeMap::<String, [i64; 3]>::new();
    for line in text(&said).lines() {
        let mut fields = line.rsplit(' ').map(|field| field.to_owned());
        let [blocks, bytes, key] = [0; 3].map(|_| fields.next().expect("a field"));
        let sum = sums.entry(key).or_default();
        let number = |text: &str| text.parse::<i64>().expect("a number");
        for (sum, more) in sum.iter_mut().zip([1, number(&bytes), number(&blocks) * 512]) {
            *sum += more;
        }
    }
    sums
}

fn declared(image: &Image, text: &str) -> Serving {
    let file = image.beside("summaries.toml");
    fs::write(&file, text).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a mode");
    Serving::start_with(&[image], &[OsStr::new("--summaries"), file.as_os_str()])
}

/// Hosts that declare other summaries, or none, are one query all the same.
#[test]
fn keys_of_three_hosts_are_one_query() {
    root_test!();
    let images = [Fs::Ext4, Fs::Xfs, Fs::Ext4].map(|fs| Image::new(fs, 320 << 20));
    let [mail, web, small] = [0, 1, 2].map(|at| images[at].root());
    let owned = |path: PathBuf, kib: usize, uid: u32| {
        write(path.clone(), kib);
        chown(&path, Some(uid), Some(uid + 7)).expect("an owner");
    };
    owned(mail.join("spool/a/box.gz"), 3000, 1_234_001);
    owned(mail.join("spool/b/box"), 500, 1_234_002);
    owned(mail.join("spool/b/note.txt"), 5, 65_534);
    owned(web.join("www/page.txt"), 40, 1_234_001);
    owned(web.join("www/old.gz"), 700, 1_234_001);
    owned(web.join("private/secret.gz"), 900, 1_234_003);
    owned(small.join("deep/er/f.gz"), 20, 1_234_002);
    fs::hard_link(mail.join("spool/a/box.gz"), mail.join("spool/b/again.gz")).expect("a link");
    run(Command::new("touch").args(["-d", "2001-02-03 12:00"]).arg(web.join("www/old.gz")));
    fs::set_permissions(web.join("private"), fs::Permissions::from_mode(0o700)).expect("a mode");
    images.iter().for_each(|image| crate::tree::sync(&image.root()));
    let of_web = "[who]\nby = \"owner\"\n[months]\nby = \"age\"\n[top]\nby = \"largest\"\ncount = 2\n[size]\nby = \"size\"\n\
         [lines]\nby = \"command\"\nuser = 65534\nmerge = \"sum\"\n\
         command = ['/usr/bin/awk', 'END { print \"{\\\"rows\\\": \" NR \"}\" }']\n";
    let servings = [
        declared(
            &images[0],
            "[owner]\nby = \"owner\"\n[group]\nby = \"group\"\n[type]\nby = \"extension\"\nkeys = 3\n",
        ),
        declared(&images[1], of_web),
        Serving::start(&images[2]),
    ];
    let folder = Folder::new();
    let hosts = [("mail", &mail, &servings[0]), ("web", &web, &servings[1]), ("small", &small, &servings[2])];
    for day in ["before", "now"] {
        fs::create_dir_all(folder.join(day)).expect("a directory");
        for (host, root, serving) in &hosts {
            finish(&mut export(serving, &folder.join(day).join(format!("{host}.parquet")), host, root), 0);
        }
        if day == "before" {
            owned(mail.join("spool/b/more.gz"), 2000, 1_234_002);
            owned(web.join("www/new.txt"), 300, 1_234_003);
            crate::tree::sync(&mail);
            crate::tree::sync(&web);
        }
    }
    let folder = folder.join("");
    let ask = |title: &str| query(&folder, &documented(title));

    // One summary of two hosts, though it has another name on each.
    let owners = ask("What each owner has");
    let (of_mail, of_web) = (added_up(0, &mail.join("spool/a"), "%U"), added_up(0, &web, "%U"));
    let of_one: Vec<&Value> = owners.iter().find(|row| row[0] == "1234001").expect("an owner").iter().collect();
    let bytes = of_mail["1234001"][2] + of_web["1234001"][2];
    assert_eq!(of_one, [&Value::from("1234001"), &2.into(), &3.into(), &bytes.into()], "{owners:?}");
    assert!(owners.iter().any(|row| row[0] == "root") && owners.iter().all(|row| row[0] != "0"), "{owners:?}");
    let places = ask("Where the files of one type are");
    assert_eq!(places.len(), 2, "{places:?}");
    assert_eq!(places[0][1], mail.join("spool/b").to_str().expect("text"));
    assert_eq!(places[1][1], mail.join("spool/a").to_str().expect("text"));
    let grew = ask("Whose files grew most");
    let told: Vec<_> = grew.iter().map(|row| (&row[0], &row[1], row[2].as_i64().expect("a figure") >> 10)).collect();
    assert_eq!(told[0], (&"mail".into(), &"1234002".into(), 2000), "{grew:?}");
    assert_eq!(told[1], (&"web".into(), &"1234003".into(), 300), "{grew:?}");

    // Each pair of each directory is what find adds up there.
    let of = |host: &str, summary: &str, path: &Path| -> BTreeMap<String, [i64; 3]> {
        let rows = query(
            &folder,
            &format!(
                "SELECT pair.key, pair.inodes, pair.apparent_bytes, pair.allocated_bytes \
                 FROM (SELECT unnest(keys) AS pair FROM 'now/*.parquet' WHERE host = '{host}' AND path = '{}') \
                 WHERE pair.summary = '{summary}'",
                path.display()
            ),
        );
        let key = |row: &Vec<Value>| row[0].as_str().unwrap_or("(all others)").to_owned();
        rows.iter().map(|row| (key(row), [1, 2, 3].map(|at| row[at].as_i64().unwrap_or(-1)))).collect()
    };
    for below in ["spool/a", "spool"] {
        // The link counts once wherever both names are.
        let path = mail.join(below);
        let mut expected = added_up(0, &path, "%U");
        if below == "spool" {
            let twice = added_up(0, &mail.join("spool/a/box.gz"), "%U")["1234001"];
            expected.get_mut("1234001").expect("it is there").iter_mut().zip(twice).for_each(|(sum, one)| *sum -= one);
        }
        assert_eq!(of("mail", "owner", &path), expected, "{below}");
        assert_eq!(of("mail", "group", &path).len(), expected.len());
    }
    for below in ["", "www", "private"] {
        let path = web.join(below);
        let path = Path::new(path.to_str().expect("text").trim_end_matches('/'));
        assert_eq!(of("web", "who", path), added_up(0, path, "%U"), "{below}");
        assert_eq!(of("web", "months", path), added_up(0, path, "%TY-%Tm"), "{below}");
        let sizes = of("web", "size", path);
        assert_eq!(sizes.values().map(|sum| sum[0]).sum::<i64>(), du(0, path)[2], "{below}: {sizes:?}");
    }
    // Beyond three keys all others are one, which has none.
    let types = of("mail", "type", &mail.join("spool"));
    assert_eq!(types.keys().collect::<Vec<_>>(), ["(all others)", "(directory)", "(none)", ".gz"], "{types:?}");
    let largest = query(
        &folder,
        &format!(
            "SELECT pair.key, pair.by, pair.apparent_bytes FROM (SELECT unnest(keys) AS pair FROM 'now/*.parquet' \
             WHERE path = '{}') WHERE pair.summary = 'top' ORDER BY 3 DESC",
            web.join("www").display()
        ),
    );
    assert_eq!(
        largest,
        [("old.gz", 700), ("new.txt", 300)].map(|(name, kib)| [name.into(), "largest".into(), Value::from(kib << 10)])
    );
    let lines = query(
        &folder,
        "SELECT path, pair.key, pair.value, pair.inodes, keys_unknown FROM (SELECT path, keys_unknown, unnest(keys) AS pair \
         FROM 'now/web.parquet' WHERE name = 'www') WHERE pair.by = 'command'",
    );
    assert_eq!(lines.len(), 1, "{lines:?}");
    // The directory itself and three files, of which a command says no more than that.
    assert_eq!(lines[0][1..], ["rows".into(), 4.into(), Value::Null, false.into()] as [Value; 4]);
    // Nothing declared: no pairs, and the same columns.
    let none = query(&folder, "SELECT max(len(keys)), bool_or(keys_unknown), count(*) FROM 'now/small.parquet'");
    assert_eq!(none, [vec![0.into(), false.into(), 4.into()] as Vec<Value>]);

    // A user gets what is seen by that user, and who wants no keys gets none.
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program()).args([
        "export",
        "--json-lines",
        "-",
    ]);
    let lines = finish(user.arg("--socket").arg(&servings[1].socket).arg(&web), 1).stdout;
    let rows: Vec<Value> = text(&lines).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let top = rows.iter().find(|row| row["parent_id"].is_null()).expect("the top");
    let mut told = BTreeMap::new();
    for pair in top["keys"].as_array().expect("pairs").iter().filter(|pair| pair["summary"] == "who") {
        let sums = ["inodes", "apparent_bytes", "allocated_bytes"].map(|name| pair[name].as_i64().expect("a figure"));
        told.insert(pair["key"].as_str().expect("a key").to_owned(), sums);
    }
    assert_eq!(told, added_up(65_534, &web, "%U"), "what lies in a closed directory counts for nobody else");
    let mut bare = onesweep(["export", "--json-lines", "-", "--no-keys", "--socket"]);
    let lines = output(bare.arg(&servings[1].socket).arg(&web));
    assert!(!text(&lines).contains("who") && text(&lines).contains("\"keys\":[]"), "{}", text(&lines));
    servings.into_iter().for_each(|serving| drop(serving.end()));
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
    // One that doesn't know it yet.
    let early = Folder::new();
    let socket = answering(&early, |connection, _| {
        writeln!(connection, r#"{{"refused": "late"}}"#).expect("it is said");
    });
    let said = text(&finish(&mut export(&socket), 2).stderr);
    assert!(said.contains("the server doesn't know it yet; ask again later") && is_untouched(), "{said}");
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
        // First it is waited for.
        let Some(number) = number.checked_sub(1) else {
            return writeln!(connection, r#"{{"refused": "late"}}"#).expect("it is said");
        };
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
