//! The plan, before anything is read: it counts what will be read, and to be shown it changes nothing.

use std::{collections::BTreeSet, fs, io::Write};

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, onesweep, root_test, summary, text},
    tree::Rng,
};

/// A file that is too large to wait in memory is read all the same, so a plan counts it.
#[test]
fn the_bytes_of_a_large_file_are_in_the_plan() {
    const SIZE: u64 = 5 << 20;
    let folder = Folder::new();
    let path = folder.join("large");
    fs::write(&path, Rng::new(3).bytes(SIZE as usize)).expect("a file");
    let plan = summary(&finish(onesweep(["plan", "--json", "--large", "1M"]).arg(&path), 0).stdout);
    assert_eq!(plan["files"], 1, "{plan}");
    let rows = plan["plans"].as_array().expect("plans");
    assert!(rows.len() > 6, "a row for each order: {plan}");
    for row in rows {
        assert_eq!(row["bytes_useful"], SIZE, "{row}");
        assert!(row["requests"].as_u64() > Some(0) && row["bytes_read"].as_u64() >= Some(SIZE), "{row}");
    }
    assert!(plan["disks"][0]["requests"].as_u64() > Some(0), "{plan}");
    let people = text(&finish(onesweep(["plan", "--large", "1M"]).arg(&path), 0).stdout);
    let chosen = people.lines().find(|line| line.starts_with('*')).expect("a chosen row");
    assert_eq!(chosen.matches("5.0 MiB").count(), 2, "useful and read: {people}");
}

/// Whichever order is chosen, the rows are what each order would cost.
#[test]
fn the_rows_of_a_plan_are_the_same_for_every_order() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    let paths: Vec<_> = (0..8).map(|number| root.join(format!("{number}"))).collect();
    // In turns, so that each lies in pieces.
    for _ in 0..6 {
        for path in &paths {
            let file = fs::File::options().create(true).append(true).open(path).expect("a file");
            (&file).write_all(&[7; 64 << 10]).and_then(|()| file.sync_all()).expect("a piece");
        }
    }
    let rows = |options: &[&str]| {
        let plan = summary(&finish(onesweep(["plan", "--json"]).args(options).arg(&root), 0).stdout);
        let rows = plan["plans"].as_array().expect("plans");
        let figures = |row: &serde_json::Value| {
            let text = |key: &str| row[key].to_string();
            let milliseconds = (row["seconds"].as_f64().expect("a time") * 1e3).round() as u64;
            (["order", "strategy", "requests", "seeks", "bytes_read", "passes", "peak_memory"].map(text), milliseconds)
        };
        rows.iter().map(figures).collect::<Vec<_>>()
    };
    let by_fragment = rows(&["--order", "fragment"]);
    assert!(by_fragment.iter().any(|row| row.1 > by_fragment[0].1), "orders differ: {by_fragment:?}");
    for order in ["first-extent", "inode", "inode-per-directory", "first-extent-per-directory", "directory"] {
        assert_eq!(rows(&["--order", order]), by_fragment, "{order}");
    }
    assert_eq!(rows(&["--strategy", "vanilla"]), by_fragment);
}

/// A catalogue takes no more than it promises: 120 bytes an entry, its name, and 16 bytes a fragment.
#[test]
fn the_plan_tells_what_it_keeps_of_the_tree() {
    let folder = Folder::new();
    let root = folder.join("tree");
    fs::create_dir(&root).expect("a folder");
    for number in 0..100 {
        fs::write(root.join(format!("file {number:03}")), [1; 5000]).expect("a file");
    }
    let plan = summary(&finish(onesweep(["plan", "--json"]).arg(&root), 0).stdout);
    let figure = |name: &str| plan["catalog"][name].as_u64().expect("a figure");
    assert_eq!(figure("entries"), 101, "files and their folder: {plan}");
    assert!(figure("name_bytes") >= 100 * 8 && figure("fragments") >= 100, "{plan}");
    let apart = figure("name_bytes") + 16 * figure("fragments");
    assert!((apart + 1..=apart + 120 * 101).contains(&figure("bytes")), "{plan}");
}

/// More threads take items than the budget has room for files: each comes, and the plan goes elsewhere.
#[test]
fn showing_the_plan_changes_no_line() {
    let folder = Folder::new();
    let root = folder.join("tree");
    fs::create_dir(&root).expect("a folder");
    let mut rng = Rng::new(4);
    for number in 0..400 {
        fs::write(root.join(format!("{number:03}")), rng.bytes(60_000)).expect("a file");
    }
    let lines = |options: &[&str]| {
        let out = finish(onesweep(["sum", "--budget", "256K"]).args(options).arg(&root), 0);
        let count = text(&out.stdout).lines().count();
        let lines: BTreeSet<String> = text(&out.stdout).lines().map(str::to_owned).collect();
        assert_eq!((count, lines.len()), (400, 400), "{options:?}");
        (lines, text(&out.stderr))
    };
    let ((plain, silence), (planned, plan)) = (lines(&[]), lines(&["--show-plan"]));
    assert!(plain == planned, "other lines beside the plan");
    assert_eq!(silence, "");
    assert!(plan.starts_with("plan: ") && plan.contains(" requests, "), "{plan}");
}
