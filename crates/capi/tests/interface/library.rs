//! The shared library, made of what cargo has built for this test, once for all tests.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// Where the sources of this crate are.
pub(crate) fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the library itself was built with rustc's address sanitizer, what the sanitizer calls, which belongs into each program
/// (`make capi-asan-test`).
pub(crate) fn sanitizer() -> Option<PathBuf> {
    env::var_os("ONESWEEP_CAPI_SANITIZER").map(PathBuf::from)
}

/// A directory with `libonesweep.so` and what is made of it.
pub(crate) fn directory() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let (name, program_has_the_rest) = match sanitizer() {
            None => ("capi", None),
            Some(_) => ("capi-sanitized", Some("-Wl,-z,undefs")),
        };
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).unwrap();
        run(Command::new(sources().join("link")).arg(archive()).arg(&directory).args(program_has_the_rest));
        directory
    });
    &DIRECTORY
}

/// The static library: the one that is named, or that was built last, since cargo has brought it up to date before this test began.
pub(crate) fn archive() -> PathBuf {
    if let Some(named) = env::var_os("ONESWEEP_CAPI_ARCHIVE") {
        return named.into();
    }
    let program = env::current_exe().unwrap();
    let built = fs::read_dir(program.parent().unwrap()).unwrap().map(Result::unwrap).filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libonesweep_capi") && name.ends_with(".a")
    });
    built.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap()).expect("libonesweep_capi.a").path()
}

/// Runs a command that must succeed; gives what it wrote.
pub(crate) fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{stdout}{stderr}", out.status);
    format!("{stdout}{stderr}")
}
