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
    library::{archive, directory, run, sanitizer, sources},
    server,
};

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Valgrind,
    /// The program has the sanitizers of the compiler of C, the library none.
    SanitizedProgram,
    /// The library has the address sanitizer, too.
    SanitizedThroughout,
}

/// All ways in which the library that there is can be looked at.
fn ways() -> &'static [Way] {
    match sanitizer() {
        None => &[Way::Plain, Way::Valgrind, Way::SanitizedProgram],
        Some(_) => &[Way::SanitizedThroughout],
    }
}

/// Builds a program of `tests/c`, or of other text, for its caller alone: two tests may take the same at the same time, and the
/// linker makes it executable at its end.
fn build(source: &Path, way: Way) -> PathBuf {
    build_with(source, way, &[format!("-L{}", directory().display()), "-lonesweep".into()])
}

fn build_with(source: &Path, way: Way, library: &[String]) -> PathBuf {
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = directory().join(format!("{name}-{way:?}-{}", BUILT.fetch_add(1, Relaxed)));
    let object = program.with_extension("o");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    if matches!(way, Way::SanitizedProgram | Way::SanitizedThroughout) {
        compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]);
    }
    compile.arg("-I").arg(sources().join("include")).arg("-I").arg(sources().join("tests/c"));
    run(compile.arg("-c").arg("-o").arg(&object).arg(source));
    let mut link = Command::new("cc");
    link.arg("-pthread").arg("-o").arg(&program).arg(&object);
    match way {
        Way::Plain | Way::Valgrind => {}
        Way::SanitizedProgram => _ = link.arg("-fsanitize=address,undefined"),
        // Only one can be in a process: the compiler of C, which is told nothing here, would add its own. A library finds
        // what a program has where it's exported. It stands before what it watches over.
        Way::SanitizedThroughout => {
            link.args(["-Wl,--export-dynamic", "-Wl,--whole-archive"]).arg(sanitizer().unwrap());
            link.args(["-Wl,--no-whole-archive", "-lm", "-ldl", "-lrt"]);
        }
    }
    run(link.args(library).arg(format!("-Wl,-rpath,{}", directory().display())));
    program
}

/// A stack that is gone is looked at, too.
const SANITIZER_OPTIONS: &str = "exitcode=99:detect_stack_use_after_return=1:detect_leaks=1:abort_on_error=0";

/// A command that runs a program in a way that tells of each fault by an exit code of its own.
fn command(program: &Path, way: Way) -> Command {
    if way != Way::Valgrind {
        let mut command = Command::new(program);
        command.env("ASAN_OPTIONS", SANITIZER_OPTIONS).env("UBSAN_OPTIONS", "exitcode=99");
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
    for &way in ways() {
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

/// What a program does wrong.
struct Wrong {
    name: &'static str,
    body: &'static str,
    /// What the sanitizer calls it, and where the access is, if it is one.
    report: &'static str,
    place: Option<&'static str>,
    seen_by: &'static [Way],
}

/// A sanitizer in the program alone sees its accesses, and what passes malloc, by which the library allocates.
const ALL: &[Way] = &[Way::Valgrind, Way::SanitizedProgram, Way::SanitizedThroughout];
const WHO_SEE_THE_LIBRARY: &[Way] = &[Way::Valgrind, Way::SanitizedThroughout];
const WHO_SEE_EACH_FILE: &[Way] = &[Way::SanitizedThroughout];

const WRONGS: [Wrong; 7] = [
    Wrong {
        name: "use",
        body: "onesweep_options *o = onesweep_options_new(); onesweep_options_free(o); onesweep_options_set_budget(o, 1);",
        report: "heap-use-after-free",
        place: Some("libonesweep.so"),
        seen_by: ALL,
    },
    Wrong {
        name: "leak",
        // Several, since a register may still have the last.
        body: "for (int times = 0; times < 9; times++) onesweep_options_new();",
        report: "detected memory leaks",
        place: None,
        seen_by: ALL,
    },
    Wrong {
        name: "after-the-sweep",
        body: "onesweep_bulk_read(&tree, 1, NULL, look, NULL, NULL); byte = *seen;",
        report: "heap-use-after-free",
        place: Some("wrong-after-the-sweep"),
        seen_by: ALL,
    },
    Wrong {
        name: "at-the-next-file",
        body: "onesweep_bulk_read(&tree, 1, NULL, look_back, NULL, NULL);",
        report: "heap-use-after-free",
        place: Some("wrong-at-the-next-file"),
        seen_by: WHO_SEE_EACH_FILE,
    },
    Wrong {
        name: "behind-its-end",
        body: "onesweep_bulk_read(&tree, 1, NULL, look_behind, NULL, NULL);",
        report: "heap-buffer-overflow",
        place: Some("wrong-behind-its-end"),
        seen_by: WHO_SEE_EACH_FILE,
    },
    Wrong {
        name: "freed-buffer",
        body: "onesweep_bulk_read(&tree, 1, NULL, take, NULL, NULL); onesweep_buffer_free(taken); onesweep_buffer_size(taken);",
        report: "heap-use-after-free",
        place: Some("libonesweep.so"),
        seen_by: WHO_SEE_THE_LIBRARY,
    },
    Wrong {
        name: "short-list",
        body: "const char **list = malloc(sizeof *list); list[0] = tree; \
               onesweep_bulk_read(list, 2, NULL, look, NULL, NULL); free(list);",
        report: "heap-buffer-overflow",
        place: Some("libonesweep.so"),
        seen_by: WHO_SEE_THE_LIBRARY,
    },
];

/// A program that does this.
fn text_of(body: &str) -> String {
    let callback = |name: &str, body: &str| {
        format!("int {name}(void *user, onesweep_file *file) {{ (void)user; size_t size; {body} return 0; }}\n")
    };
    let data = "seen = onesweep_file_data(file, &size);";
    let callbacks = [
        callback("look", data),
        callback("look_back", &format!("if (seen) byte = *seen; {data}")),
        callback("look_behind", &format!("{data} byte = seen[size];")),
        callback("take", "(void)size; onesweep_file_take(file, &taken);"),
    ];
    let known = "static const char *seen; static volatile char byte; static onesweep_buffer *taken;\n";
    let begin = "int main(int argc, char **argv) { (void)argc; (void)byte; (void)taken; const char *tree = argv[1]; (void)tree;";
    format!("#include <stdlib.h>\n#include <onesweep.h>\n{known}{}{begin} {body} return 0; }}\n", callbacks.concat())
}

/// What the tools tell of a fault, so that their silence means something.
#[test]
fn the_tools_see_what_a_program_does_wrong() {
    let directory = scratch();
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for file in ["a", "b", "c"] {
        fs::write(tree.join(file), "some bytes, of a length that fills no block").unwrap();
    }
    for Wrong { name, body, report, place, seen_by } in WRONGS {
        let source = directory.path().join(format!("wrong-{name}.c"));
        fs::write(&source, text_of(body)).unwrap();
        for &way in ways().iter().filter(|way| seen_by.contains(way)) {
            let mut command = command(&build(&source, way), way);
            // Places by the file that they are in, whatever tool there is to tell more.
            command.env("ASAN_OPTIONS", format!("{SANITIZER_OPTIONS}:symbolize=0"));
            let out = command.arg(&tree).output().unwrap();
            let told = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(99), "{name} {way:?}: {told}");
            if way == Way::SanitizedThroughout {
                let first = told.lines().find(|line| line.trim_start().starts_with("#0 ")).unwrap_or_default();
                assert!(told.contains(report), "{name}: {told}");
                assert!(place.is_none_or(|place| first.contains(place)), "{name}, at {first}: {told}");
            }
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
    for &way in ways() {
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
    for &way in ways() {
        let program = build(&sources().join("tests/c/service.c"), way);
        let work = mounted.volume().join(format!("{way:?}"));
        fs::create_dir(&work).unwrap();
        run(command(&program, way).arg(&work).arg(&socket).arg("real"));
    }
}

#[test]
fn a_panic_ends_at_the_border() {
    // Statically linked: what makes the library panic on purpose is in no shared one.
    let library = [&*archive().to_string_lossy(), "-lgcc_s", "-lm", "-ldl", "-lc"].map(str::to_owned);
    for &way in ways() {
        let program = build_with(&sources().join("tests/c/fault.c"), way, &library);
        let told = run(command(&program, way).arg("."));
        assert!(told.contains("asked for by a test"), "{told}");
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
    if sanitizer().is_some() {
        return; // Nobody installs such a library.
    }
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
    let flags = run(config.args(["--cflags", "--libs", "onesweep = 1.1.0"]));
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
        for &way in ways() {
            let mut command = command(&build(&source, way), way);
            let out = command.arg(place.path().join("tree")).arg("/nonexistent").output().unwrap();
            let told = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            assert_eq!(out.status.code(), Some(1), "something failed, as the program says: {told}");
            assert!(told.contains("tree/a: byte 0 of 5") && told.contains("tree/b: byte 7 of 12"), "{told}");
            assert!(told.contains("/nonexistent: ") && told.contains("2 of 2 files, 1 failed"), "{told}");
        }
    }
}
