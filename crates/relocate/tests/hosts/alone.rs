//! Tests in a process of their own.
//!
//! A program that another test starts holds, between fork and exec, what the mover has just open for writing. Where the mover asks
//! whether anybody has a file open for writing, as on XFS without reflinks, that file stays, rightly: no test can then say
//! how many are moved.

use std::io::Write;
use std::process::Command;
use std::{env, thread};

/// Runs the test of this thread alone.
pub(crate) fn alone(test: fn()) {
    const ALONE: &str = "ONESWEEP_TEST_ALONE";
    let thread = thread::current();
    let name = thread.name().expect("the harness names it");
    // The harness runs a single one at a time in the main thread.
    if env::var_os(ALONE).is_some() || name == "main" {
        return test();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let out = command.args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    // Past the test harness, which would keep back that it was skipped.
    let _ = std::io::stderr().write_all(&out.stderr);
    assert!(out.status.success() && said.contains(" 1 passed;"), "{said}");
}
