//! The programs in C: plainly, under valgrind, and with the sanitizers.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use tempfile::TempDir;

use crate::{
    library::{directory, run, sources},
    server,
};

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Valgrind,
    Sanitized,
}

/// Builds a program of `tests/c`, or of other text, for its caller alone: two tests may take the same at the same time, and the
/// linker makes it executable at its end.
fn build(source: &Path, way: Way) -> PathBuf {
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = directory().join(format!("{name}-{way:?}-{}", BUILT.fetch_add(1, Relaxed)));
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    if way == Way::Sanitized {
        compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]);
    }
    compile.arg("-I").arg(sources().join("include")).arg("-I").arg(sources().join("tests/c"));
    compile.arg("-o").arg(&program).arg(source).arg("-L").arg(directory());
    compile.arg("-lonesweep").arg(format!("-Wl,-rpath,{}", directory().display()));
    run(&mut compile);
    program
}

/// A command that runs a program in a way that tells of each fault by its exit code.
fn command(program: &Path, way: Way) -> Command {
    if way != Way::Valgrind {
        let mut command = Command::new(program);
        // A stack that is gone, too.
        command.env("ASAN_OPTIONS", "detect_stack_use_after_return=1:detect_leaks=1:abort_on_error=0");
        return command;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=definite,indirect"]);
    command.arg("--errors-for-leak-kinds=definite,indirect");
    command.args(["--child-silent-after-fork=yes", "--fair-sched=yes"]).arg(program);
    // What the kernel writes for io_uring is not seen by valgrind: it would call all of it undefined.
    command.env("ONESWEEP_HIDE", "io_uring");
    command
}

/// Where programs work: on the file system of the tests.
fn scratch() -> TempDir {
    let place = env::var_os("ONESWEEP_TEST_DIR").map_or_else(env::temp_dir, PathBuf::from);
    tempfile::Builder::new().prefix("capi-").tempdir_in(place).unwrap()
}

fn run_all_ways(name: &str, arguments: impl Fn(&Path, Way) -> Vec<PathBuf>) {
    for way in [Way::Plain, Way::Valgrind, Way::Sanitized] {
        let place = scratch();
        let program = build(&sources().join(format!("tests/c/{name}.c")), way);
        let work = place.path().join("work");
        fs::create_dir(&work).unwrap();
        let arguments = arguments(place.path(), way);
        let told = run(command(&program, way).arg(&work).args(arguments));
        assert!(!told.contains("ERROR SUMMARY"), "{told}");
    }
}

fn run_alone(name: &str) {
    run_all_ways(name, |_, _| Vec::new());
}

#[test]
fn constants_and_structures() {
    run_alone("abi");
}

#[test]
fn reading() {
    run_alone("read");
}

#[test]
fn callbacks() {
    run_alone("callbacks");
}

#[test]
fn errors() {
    run_alone("errors");
}

#[test]
fn plans() {
    run_alone("plan");
}

#[test]
fn layouts() {
    run_alone("layout");
}

#[test]
fn summaries() {
    run_all_ways("service", |place, _| vec![server::stand_in(place)]);
}

/// What the tools tell of a fault, so that their silence means something.
#[test]
fn the_tools_see_what_a_program_does_wrong() {
    let wrongs = [
        (
            "use",
            "onesweep_options *o = onesweep_options_new(); onesweep_options_free(o); onesweep_options_set_budget(o, 1);",
        ),
        // Several, since a register may still have the last.
        ("leak", "for (int times = 0; times < 9; times++) onesweep_options_new();"),
    ];
    for (name, body) in wrongs {
        let place = scratch();
        let source = place.path().join(format!("wrong-{name}.c"));
        fs::write(
            &source,
            format!("#include <stddef.h>\n#include <onesweep.h>\nint main(void) {{ {body} return 0; }}\n"),
        )
        .unwrap();
        for way in [Way::Valgrind, Way::Sanitized] {
            // The sanitizer sees only what passes malloc, and that is what the library allocates by.
            let out = command(&build(&source, way), way).output().unwrap();
            assert!(!out.status.success(), "{name} {way:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
    }
}

/// A file system of our own, which goes with this.
struct Mounted {
    place: TempDir,
}

impl Mounted {
    /// `None` with a word, where that can't be had.
    fn new(test: &str) -> Option<Self> {
        if onesweep_sys::user::effective_uid() != 0 {
            // Past the test harness, which would keep it back.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: needs root");
            return None;
        }
        let mounted = Self { place: scratch() };
        let inside = mounted.place.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("file"), "in an image").unwrap();
        for image in [mounted.image(), mounted.other_image()] {
            fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
            run(Command::new("mkfs.ext4").args(["-q", "-d"]).arg(&inside).arg(&image));
        }
        fs::create_dir(mounted.volume()).unwrap();
        run(Command::new("mount").args(["-o", "loop"]).arg(mounted.image()).arg(mounted.volume()));
        Some(mounted)
    }

    fn image(&self) -> PathBuf {
        self.place.path().join("volume.img")
    }

    /// What is never mounted.
    fn other_image(&self) -> PathBuf {
        self.place.path().join("other.img")
    }

    fn volume(&self) -> PathBuf {
        self.place.path().join("volume")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A server of this process has it open until the process ends.
        let ended = Command::new("umount").arg("--lazy").arg(self.volume()).status();
        if !ended.is_ok_and(|status| status.success()) {
            // What is mounted there must not be removed with the directory.
            self.place.disable_cleanup(true);
        }
    }
}

#[test]
fn errors_that_take_root() {
    let Some(mounted) = Mounted::new("errors_that_take_root") else { return };
    for way in [Way::Plain, Way::Valgrind, Way::Sanitized] {
        let program = build(&sources().join("tests/c/privileged.c"), way);
        let work = mounted.place.path().join(format!("work-{way:?}"));
        fs::create_dir(&work).unwrap();
        let held = mounted.volume().join(format!("{way:?}"));
        fs::create_dir(&held).unwrap();
        run(command(&program, way).arg(&work).arg(&held).arg(mounted.other_image()));
    }
}

#[test]
fn summaries_of_a_real_server() {
    let Some(mounted) = Mounted::new("summaries_of_a_real_server") else { return };
    let socket = server::real(&mounted.volume(), mounted.place.path());
    for way in [Way::Plain, Way::Valgrind, Way::Sanitized] {
        let program = build(&sources().join("tests/c/service.c"), way);
        let work = mounted.volume().join(format!("{way:?}"));
        fs::create_dir(&work).unwrap();
        run(command(&program, way).arg(&work).arg(&socket).arg("real"));
    }
}

/// The text of the guide's programs.
fn programs_of_the_guide() -> Vec<String> {
    let guide = fs::read_to_string(sources().join("../../docs/c.md")).unwrap();
    guide.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// As `make install-capi` leaves it, pkg-config leads to it.
#[test]
fn what_is_installed_builds_programs() {
    let place = scratch();
    let installed = place.path().join("installed");
    let makefile = sources().join("../..");
    let mut make = Command::new("make");
    make.arg("--no-print-directory").arg("-C").arg(makefile).args([
        "--old-file=capi",
        "install-capi",
        "PREFIX=/opt/sweep",
    ]);
    run(make.arg(format!("CAPI={}", directory().display())).arg(format!("DESTDIR={}", installed.display())));
    let library = installed.join("opt/sweep/lib");
    let mut config = Command::new("pkg-config");
    config.env("PKG_CONFIG_LIBDIR", library.join("pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", &installed);
    let flags = run(config.args(["--cflags", "--libs", "onesweep = 1.0.0"]));
    let source = place.path().join("guide.c");
    fs::write(&source, &programs_of_the_guide()[0]).unwrap();
    let program = place.path().join("guide");
    run(Command::new("cc").arg(&source).args(flags.split_whitespace()).arg("-o").arg(&program));
    let told = run(Command::new(&program).env("LD_LIBRARY_PATH", &library).arg(&source));
    assert!(told.contains("1 of 1 files, 0 failed"), "{told}");
}

#[test]
fn the_guide_says_what_works() {
    let programs = programs_of_the_guide();
    assert!(!programs.is_empty());
    let place = scratch();
    fs::create_dir(place.path().join("tree")).unwrap();
    fs::write(place.path().join("tree/a"), "hello").unwrap();
    fs::write(place.path().join("tree/b"), "world, hello").unwrap();
    for (number, text) in programs.iter().enumerate() {
        let source = place.path().join(format!("guide{number}.c"));
        fs::write(&source, text).unwrap();
        for way in [Way::Plain, Way::Valgrind, Way::Sanitized] {
            let mut command = command(&build(&source, way), way);
            let out = command.arg(place.path().join("tree")).arg("/nonexistent").output().unwrap();
            let told = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            assert_eq!(out.status.code(), Some(1), "something failed, as the program says: {told}");
            assert!(told.contains("tree/a: byte 0 of 5") && told.contains("tree/b: byte 7 of 12"), "{told}");
            assert!(told.contains("/nonexistent: ") && told.contains("2 of 2 files, 1 failed"), "{told}");
        }
    }
}
