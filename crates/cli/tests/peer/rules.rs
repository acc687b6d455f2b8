//! `onesweep scan --rules` as it is typed, by a YARA-X that is built in (`make yara-test`), and what it says where none is.

use std::fs;

use crate::{finish, onesweep, path, scan::place};

#[cfg(not(feature = "yara"))]
#[test]
fn a_program_without_it_says_so_and_how_to_get_it() {
    let dir = place();
    let (root, rules) = (path(dir.path(), "tree"), path(dir.path(), "a.yar"));
    fs::write(&rules, "rule A { condition: true }").unwrap();
    for words in [&["scan", "--rules", &rules, &root][..], &["guard", "--fail-open", "--rules", &rules, &root]] {
        let (out, told) = finish(&mut onesweep(words), 2);
        assert_eq!(out, "");
        let told: Vec<&str> = told.lines().filter(|line| line.contains("--rules")).collect();
        assert!(
            matches!(told[..], [line] if line.contains("without YARA-X") && line.contains("FEATURES=yara")),
            "{told:?}"
        );
    }
}

#[cfg(feature = "yara")]
mod built_in {
    use std::{fs::File, path::Path, process::Stdio, time::Duration};

    use onesweep_peer::scan::Verdicts;
    use serde_json::Value;

    use super::*;
    use crate::{
        clamd::{Clamd, eicar},
        scan::{BAD, EMPTY, NAMES, details, domain, machine, scan, server},
    };

    const LARGE: &str = "rule Large_file { condition: filesize > 250KB }";
    /// Takes hours for each content but an empty one.
    const SLOW: &str = "rule Slow { condition: for all i in (0..1000000000) : \
        (for all j in (0..1000000000) : (uint8(i % filesize) + uint8(j % filesize) < 1000)) }";

    /// Of the EICAR text. In two parts, so that the rules are no virus for anybody.
    fn eicar_rule(more: &str) -> String {
        let digits: String = eicar().iter().map(|byte| format!("{byte:02x} ")).collect();
        format!("rule Eicar {{ strings: $text = {{ {digits} }} condition: $text {more} }}")
    }

    fn write(dir: &Path, files: &[(&str, &str)]) -> String {
        fs::create_dir_all(dir).unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        dir.to_str().unwrap().to_owned()
    }

    fn names(summary: &Value) -> Vec<(String, String)> {
        let all = summary["details"]["findings"].as_array().unwrap();
        let text = |found: &Value, name: &str| found[name].as_str().unwrap().to_owned();
        let last = |path: String| path.rsplit('/').next().unwrap().to_owned();
        let mut names: Vec<_> = all.iter().map(|found| (last(text(found, "path")), text(found, "name"))).collect();
        names.sort();
        names
    }

    #[test]
    fn what_matches_is_infected_and_the_verdict_names_the_rules() {
        let dir = place();
        let dir = dir.path();
        let (root, words) = (path(dir, "tree"), machine(dir, "note"));
        let rules = write(&dir.join("rules"), &[("eicar.yar", &eicar_rule("")), ("more.yara", LARGE)]);
        let expected = [("bad", "Eicar"), ("large", "Eicar,Large_file"), ("other name", "Eicar")];
        let expected = expected.map(|(path, name)| (path.to_owned(), name.to_owned())).to_vec();
        let first = scan(&words, &["--rules", &rules, &root], 1);
        assert_eq!((details(&first), names(&first)), ([NAMES - EMPTY, EMPTY, 0, 3], expected.clone()));
        assert_eq!(first["details"]["engine"], "yara");
        assert!(first["details"]["epoch"].as_str().unwrap().starts_with("YARA-X 1."), "{first}");
        let again = scan(&words, &["--rules", &rules, &root], 1);
        assert_eq!((details(&again), names(&again)), ([0, NAMES, 0, 3], expected));
        // The files one by one, with a comment: the same rules.
        let commented = write(dir, &[("of another name", &format!("// more\n{}", eicar_rule("")))]);
        let [one, other] = [format!("{commented}/of another name"), format!("{rules}/more.yara")];
        assert_eq!(details(&scan(&words, &["--rules", &one, "--rules", &other, &root], 1)), [0, NAMES, 0, 3]);
        // Rules that were changed, of which a verdict from before says nothing.
        write(Path::new(&rules), &[("eicar.yar", &eicar_rule("and filesize < 1KB"))]);
        let changed = scan(&words, &["--rules", &rules, &root], 1);
        assert_eq!(
            (details(&changed), &names(&changed)[1].1),
            ([NAMES - EMPTY, EMPTY, 0, 3], &"Large_file".to_owned())
        );
        let other_epoch = scan(&words, &["--rules", &rules, "--epoch", "2", &root], 1);
        assert_eq!(details(&other_epoch)[..2], [NAMES - EMPTY, EMPTY]);

        let (key, store) = (path(dir, "keys/domain.key"), path(dir, "v"));
        let words = ["scan", "--key", &key, "--verdicts", &store, "--rules", &rules];
        let (out, _) = finish(&mut onesweep(&[&words[..], &[&root]].concat()), 1);
        let mut lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.pop(), Some("3 of 24 files infected; 23 scanned, 1 known here, 0 to others"));
        lines.sort_unstable();
        let found = BAD
            .map(|name| format!("{root}/{name}: {} FOUND", if name == "sub/large" { "Large_file" } else { "Eicar" }));
        assert_eq!(lines, found);
        let (out, _) = finish(&mut onesweep(&[&words[..], &["--sarif", &root]].concat()), 1);
        let log: Value = serde_json::from_str(&out).unwrap();
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"], serde_json::json!([{ "id": "Eicar" }, { "id": "Large_file" }]));
        assert_eq!((run["results"].as_array().unwrap().len(), &run["properties"]["engine"]), (3, &"yara".into()));
        finish(&mut onesweep(&[&words[..], &["-q", &format!("{root}/good1")]].concat()), 0);
    }

    #[test]
    fn no_engine_counts_what_another_one_has_found() {
        let dir = place();
        let dir = dir.path();
        let clamd = Clamd::start(dir, "");
        let socket = clamd.socket.to_str().unwrap();
        let (root, words) = (path(dir, "tree"), machine(dir, "note"));
        let [blind, sharp] = [LARGE.replace("250KB", "250MB"), eicar_rule("")].map(|text| {
            let name = format!("rules{}", text.len());
            write(&dir.join(&name), &[("a.yar", &text)])
        });
        for (engine, found) in
            [(["--rules", &blind], 0), (["--clamd", socket], 3), (["--command", "exit 0"], 0), (["--rules", &sharp], 3)]
        {
            let scanned = scan(&words, &[&engine[..], &[&root]].concat(), u8::from(found > 0).into());
            assert_eq!(details(&scanned), [NAMES - EMPTY, EMPTY, 0, found], "{engine:?}");
        }
    }

    #[test]
    fn machines_with_the_same_rules_know_each_others_verdicts() {
        let dir = place();
        let dir = dir.path();
        let server = server(dir, Verdicts::in_memory(&domain(dir), 1000).unwrap());
        let address = server.address().to_string();
        let (root, trusted) = (path(dir, "tree"), path(dir, "keys/scan1.pem"));
        let own = write(&dir.join("rules"), &[("a.yar", &eicar_rule("")), ("b.yar", LARGE)]);
        let theirs = write(&dir.join("others"), &[("x.yara", &eicar_rule("")), ("y.yara", &format!("{LARGE}\n"))]);
        let other = write(&dir.join("less"), &[("a.yar", LARGE)]);
        let told = scan(&machine(dir, "scan1"), &["--server", &address, "--rules", &own, &root], 1);
        assert_eq!((details(&told), &told["details"]["verdicts_told"]), ([NAMES - EMPTY, EMPTY, 0, 3], &22.into()));
        let ask = |rules: &str| {
            details(&scan(
                &machine(dir, "note"),
                &["--server", &address, "--trust", &trusted, "--rules", rules, &root],
                1,
            ))
        };
        assert_eq!(ask(&theirs), [0, EMPTY, NAMES - EMPTY, 3]);
        assert_eq!(ask(&other), [NAMES - EMPTY, EMPTY, 0, 1]);
    }

    #[test]
    fn what_is_wrong_with_rules_is_told_in_one_line() {
        let dir = place();
        let dir = dir.path();
        let root = path(dir, "tree");
        let wrong =
            write(&dir.join("wrong"), &[("a.yar", LARGE), ("wrong.yar", "rule X {\n  condition:\n    $nothing\n}")]);
        let none = write(&dir.join("none"), &[("README", "none")]);
        let empty = write(&dir.join("empty"), &[("a.yar", "// none\n")]);
        for (rules, why) in [
            (&wrong, "wrong/wrong.yar:3:5: "),
            (&none, "none: cannot use its rules: no file below it"),
            (&empty, "would call everything clean"),
            (&path(dir, "gone.yar"), "gone.yar: cannot read its rules: "),
        ] {
            let (out, told) = finish(&mut onesweep(&["scan", "-q", "--rules", rules, &root]), 2);
            assert!(out.is_empty() && told.contains(why) && told.lines().count() == 1, "{out}{told}");
        }
    }

    #[test]
    fn what_is_late_or_too_large_has_no_verdict() {
        let dir = place();
        let dir = dir.path();
        let (root, words) = (path(dir, "tree"), machine(dir, "note"));
        let slow = write(&dir.join("slow"), &[("a.yar", SLOW)]);
        let late = scan(&words, &["--rules", &slow, "--scan-time", "1s", &path(dir, "tree/good1")], 2);
        assert_eq!((details(&late), &late["errors"]), ([0; 4], &1.into()));
        let rules = write(&dir.join("rules"), &[("a.yar", &eicar_rule(""))]);
        // Nobody reads a hole of eight tebibytes, not even to hash it.
        File::create(dir.join("tree/hole")).unwrap().set_len(8 << 40).unwrap();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let bounded = [&words[..], &["--rules", &rules, "--scan-size", "100K", &root]].concat();
        let (out, told) = finish(&mut onesweep(&bounded), 1);
        assert!(out.contains("/tree/bad: Eicar FOUND") && out.contains("\n2 of 23 files infected"), "{out}");
        for name in ["sub/large", "hole"] {
            assert!(told.contains(&format!("/{name}: cannot scan it: it has ")), "{told}");
        }
        let (_, told) = finish(&mut onesweep(&[&words[..], &["--rules", &rules, &path(dir, "tree/hole")]].concat()), 2);
        assert!(told.contains("8.0 TiB") && told.contains("(--scan-size)"), "{told}");
    }

    #[test]
    fn an_interrupt_waits_for_no_rule() {
        let dir = place();
        let dir = dir.path();
        let slow = write(&dir.join("slow"), &[("a.yar", SLOW)]);
        let mut scan = onesweep(&["scan", "--scan-time", "1h", "--rules", &slow, &path(dir, "tree")]);
        let running = scan.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let tasks = format!("/proc/{}/task", running.id());
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        while !fs::read_dir(&tasks).unwrap().flatten().any(|task| name(task) == "yara\n") {
            std::thread::sleep(Duration::from_millis(5));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&running), rustix::process::Signal::INT)
            .unwrap();
        let out = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(130), "{said}");
        assert!(said.contains("interrupted") && !said.contains("cannot scan it"), "{said}");
    }
}
