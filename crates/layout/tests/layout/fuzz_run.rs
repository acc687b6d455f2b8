//! What `make fuzz` makes of what the fuzzer says, by a stand-in for cargo.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

fn program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    // By another process: what other tests start meanwhile would have it open for writing, and nobody could run it ("text file busy").
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut written = install.stdin.take().expect("a pipe");
    written.write_all(format!("#!/bin/bash\n{script}\n").as_bytes()).expect("a script");
    drop(written);
    assert!(install.wait().expect("it ends").success());
}

/// Runs the script on two targets, with a cargo that does this when it is to fuzz one: `$6` is its name.
fn run(nightly: &str, install: &str, fuzz: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let (cargo, target) = (folder.path().join("cargo"), folder.path().join("target"));
    let cases = format!(
        "case \"$*\" in '+nightly --version') {nightly} ;; install*) {install} ;; 'fuzz list') echo one two ;; \
         '+nightly fuzz run -s none '*) {fuzz} ;; *) echo \"odd: $*\" >&2; exit 9 ;; esac"
    );
    program(&cargo, &cases);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/run");
    let variables = [("CARGO", cargo), ("TARGET", target), ("FUZZ", "-runs=5".into()), ("CARGO_FUZZ", "0.13".into())];
    let out = Command::new(script).envs(variables).env_remove("FUZZ_TARGETS").output();
    out.expect("the script runs")
}

const RAN: &str = "echo stat::number_of_executed_units: 5";

fn fails(out: &Output, expected: &[&str]) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success(), "{said}");
    for expected in expected {
        assert!(said.contains(expected), "no {expected:?} in {said}");
    }
}

#[test]
fn all_targets_are_fuzzed() {
    let out = run("true", "true", &format!("[[ $* = *-runs=5* ]] && {RAN}"));
    assert!(out.status.success(), "{out:?}");
    let said = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines, ["one", "stat::number_of_executed_units: 5", "two", "stat::number_of_executed_units: 5"]);
}

#[test]
fn what_was_not_fuzzed_is_a_failure() {
    let build = "echo 'error: could not compile'; exit 101";
    let out = run("true", "true", &format!("if [[ $6 = one ]]; then {RAN}; else {build}; fi"));
    fails(&out, &["two was not fuzzed", "could not compile"]);
    fails(&run("true", "true", "true"), &["one was not fuzzed"]);
    fails(&run("true", "true", "echo stat::number_of_executed_units: 0"), &["one was not fuzzed"]);
    let crash = format!("{RAN}; echo 'Test unit written to fuzz/artifacts/one/crash'; exit 77");
    fails(&run("true", "true", &crash), &["one broke a promise", "fuzz/artifacts/one"]);
}

#[test]
fn what_is_missing_is_told() {
    let out = run("echo no such toolchain >&2; exit 1", "true", RAN);
    fails(&out, &["no such toolchain", "a nightly Rust is needed", "rustup toolchain install nightly"]);
    fails(&run("true", "exit 101", RAN), &["cargo-fuzz cannot be installed", "tools/bin"]);
}
