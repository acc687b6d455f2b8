//! `bench dfs` from its start to what it leaves. Needs no privileges.

use std::fs;
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onesweep-lab")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_small_run_prints_its_tables_and_keeps_its_figures() {
    let home = tempfile::Builder::new().prefix("onesweep-lab-dfs-").tempdir().unwrap();
    let out = home.path().join("out");
    let out = out.to_str().unwrap();
    let ran = lab(&["bench", "dfs", "--out", out, "--scale", "0.01", "--seeds", "2"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let printed = text(&ran.stdout);
    for row in [
        "dfs-small\n",
        "| aggregate layout score at the end, % |",
        "| table 3, where a region is written: blocks of inodes",
        "| dirty blocks flushed |",
    ] {
        assert!(printed.contains(row), "{printed}");
    }
    assert!(text(&ran.stderr).contains("dfs-small, around-24: 100 %"), "{}", text(&ran.stderr));

    let kept: serde_json::Value = serde_json::from_slice(&fs::read(home.path().join("out/dfs.json")).unwrap()).unwrap();
    for recipe in ["dfs", "dfs-small", "dfs-short"] {
        let variants = &kept["recipes"][recipe]["variants"];
        for variant in ["ffs", "ffs-realloc", "dfs-16", "dfs-24", "around-16", "around-24"] {
            let figures = &variants[variant];
            assert_eq!(figures["curve"].as_array().unwrap().len(), 21, "{recipe}, {variant}");
            assert!(figures["flush"]["flush_ms"].as_f64().unwrap() > 0.0, "{recipe}, {variant}");
            // The operations are the same, and so are the files that they leave.
            let files = |name: &str| variants[name]["second"]["sizes"]["2"]["files"].as_u64().unwrap();
            assert_eq!(files(variant), files("ffs"), "{recipe}, {variant}");
        }
        assert_eq!(variants["ffs"]["flush"]["regions"], 0);
        assert_ne!(
            &kept["further"]["2"][recipe]["variants"]["ffs"]["flush"], &variants["ffs"]["flush"],
            "another seed"
        );
    }

    // A page shows what was measured at full size alone.
    let page = home.path().join("page.md");
    fs::write(&page, "# Mine\n").unwrap();
    let report = lab(&["bench", "report", out, "--only", "dfs", "--page", page.to_str().unwrap()]);
    assert!(!report.status.success() && text(&report.stderr).contains("bench dfs"), "{}", text(&report.stderr));
    assert_eq!(fs::read_to_string(&page).unwrap(), "# Mine\n");
}

/// What would hang on the drive's rates, which are not from its data sheet, can be tried; it is no result.
#[test]
fn another_disk_is_tried_and_not_kept() {
    let home = tempfile::Builder::new().prefix("onesweep-lab-dfs-").tempdir().unwrap();
    let out = home.path().join("out");
    let run = |disk: &[&str]| {
        let ran = lab(&[&["bench", "dfs", "--out", out.to_str().unwrap(), "--scale", "0.01"], disk].concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        text(&ran.stdout)
    };
    let model = text(&lab(&["models", "fireball-ex"]).stdout);
    let slower = home.path().join("slower.toml");
    fs::write(&slower, model.replace("17500000.0", "11500000.0")).unwrap();
    let tried = run(&["--model", slower.to_str().unwrap()]);
    assert!(!out.join("dfs.json").exists());
    assert_ne!(tried, run(&[]), "slower tracks change figures");
    assert!(out.join("dfs.json").exists());
}

#[test]
fn a_scale_that_makes_no_sense_is_refused() {
    let home = tempfile::Builder::new().prefix("onesweep-lab-dfs-").tempdir().unwrap();
    for scale in ["0", "2", "nan"] {
        let ran = lab(&["bench", "dfs", "--out", home.path().to_str().unwrap(), "--scale", scale]);
        assert_eq!(ran.status.code(), Some(2));
        assert!(text(&ran.stderr).contains("from 0.01 to 1"), "{}", text(&ran.stderr));
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}
