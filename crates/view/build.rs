//! Compiles the library that `onesweep run` loads into programs. It is part of the binary, so there is nothing to install.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=preload");
    let library = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("ahead.so");
    let compiler = cc::Build::new().warnings(true).extra_warnings(true).opt_level(2).get_compiler();
    let mut command: Command = compiler.to_command();
    command.args(["-shared", "-fPIC", "-fvisibility=default", "-Wl,-z,now", "-s", "-o"]);
    command.arg(&library).args(["preload/ahead.c", "preload/sort.c"]);
    // Where glibc is older than 2.34, dlsym is in this library, and not every program has it; newer ones keep one that is empty.
    if env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|libc| libc == "gnu") {
        command.args(["-Wl,--no-as-needed", "-l:libdl.so.2"]);
    }
    let status = command.status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{}: {status}", compiler.path().display()),
        Err(error) => panic!("{}: {error}; a C compiler is needed", compiler.path().display()),
    }
}
