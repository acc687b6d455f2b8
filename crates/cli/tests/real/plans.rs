//! The plan, before anything is read: it counts what will be read, and to be shown it changes nothing.

use std::{collections::BTreeSet, fs};

use crate::{
    image::Folder,
    run::{finish, onesweep, summary, text},
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
