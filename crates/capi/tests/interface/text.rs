//! What is in the tree beside the code: the header, the list of symbols, the guide, the pkg-config file.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    process::Command,
};

use crate::library::{directory, run, sources};

fn read(path: &str) -> String {
    let path = sources().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All words of a text that begin so.
fn words(text: &str, begins: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !is_part(letter)).filter(|word| word.starts_with(begins)).map(str::to_owned).collect()
}

/// The functions that the header declares.
fn functions() -> BTreeSet<String> {
    let header = read("include/onesweep.h");
    let declared = header.lines().filter(|line| !line.starts_with("//") && !line.contains("typedef"));
    let name = |line: &str| {
        let before = line.split_once('(')?.0;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("onesweep_").then(|| name.to_owned())
    };
    declared.filter_map(name).collect()
}

/// The version that each function came with, by the map that the linker is given.
fn versions() -> BTreeMap<String, String> {
    let map = read("onesweep.map");
    let nodes = map.split("\nONESWEEP_").skip(1);
    let of_node = |node: &str| {
        let version = format!("ONESWEEP_{}", node.split(' ').next().unwrap());
        words(node, "onesweep_").into_iter().map(move |name| (name, version.clone())).collect::<Vec<_>>()
    };
    nodes.flat_map(of_node).collect()
}

/// What is there stays: who was linked against a version finds all of it in later ones, by that version.
#[test]
fn functions_stay_in_the_version_that_they_came_with() {
    let count = |version: &str| versions().values().filter(|of| *of == version).count();
    assert_eq!((count("ONESWEEP_1.0"), count("ONESWEEP_1.1")), (75, 1));
}

/// All programs in C, without their comments.
fn programs() -> String {
    let entries = fs::read_dir(sources().join("tests/c")).unwrap();
    let text: String = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let rest_of = |comment: &str| comment.split_once("*/").expect("a comment has an end").1.to_owned();
    let mut parts = text.split("/*");
    parts.next().unwrap_or_default().to_owned() + &parts.map(rest_of).collect::<String>()
}

/// The words that stand directly behind one of these.
fn words_behind(text: &str, before: &[&str], begins: &str) -> BTreeSet<String> {
    let found = before.iter().flat_map(|before| text.split(before).skip(1));
    found.flat_map(|rest| words(rest.split([')', ',', ';', ' ']).next().unwrap_or_default(), begins)).collect()
}

#[test]
fn the_header_is_that_of_the_source() {
    let config = cbindgen::Config::from_file(sources().join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_src(sources().join("src/lib.rs")).with_config(config).generate();
    let mut text = Vec::new();
    made.expect("the source can be read").write(&mut text);
    // A heading of Rust's documentation.
    let text = String::from_utf8(text).unwrap().replace("// # Safety\n//\n// ", "// The caller sees to it: ");
    let path = sources().join("include/onesweep.h");
    if env::var_os("ONESWEEP_WRITE_HEADER").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(
        text == kept,
        "{} is not what the source says: run `make header`; first difference: {differs:?}",
        path.display()
    );
}

#[test]
fn the_library_has_the_functions_of_the_header_and_no_others() {
    let declared = functions();
    assert!(declared.len() > 60, "{declared:?}");
    let versions = versions();
    assert_eq!(versions.keys().cloned().collect::<BTreeSet<_>>(), declared, "onesweep.map against include/onesweep.h");
    let library = directory().join("libonesweep.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let exported: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let versioned: BTreeSet<String> = versions.iter().map(|(name, version)| format!("{name}@@{version}")).collect();
    assert_eq!(
        // The versions themselves are among them.
        exported.into_iter().filter(|name| !name.starts_with("ONESWEEP_")).collect::<BTreeSet<_>>(),
        versioned.iter().map(String::as_str).collect()
    );
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("[libonesweep.so.1]"), "{dynamic}");
}

#[test]
fn every_function_and_every_error_has_a_test() {
    let programs = programs();
    let is_called = |name: &String| programs.contains(&format!("{name}("));
    let untested: Vec<_> = functions().into_iter().filter(|name| !is_called(name)).collect();
    assert!(untested.is_empty(), "no program in tests/c calls {untested:?}");
    let header = read("include/onesweep.h");
    let met = words_behind(&programs, &["GIVES(", "code == ", "streamed == "], "ONESWEEP_ERROR_");
    let unmet: Vec<_> = words(&header, "ONESWEEP_ERROR_").difference(&met).cloned().collect();
    // A comment names the constants by what they begin with.
    assert!(unmet.iter().all(|name| name == "ONESWEEP_ERROR_"), "no program in tests/c meets {unmet:?}");
}

#[test]
fn the_header_is_that_of_c_and_of_cplusplus() {
    for (compiler, standard, language) in [("cc", "-std=c99", "c"), ("c++", "-std=c++11", "c++")] {
        let mut compile = Command::new(compiler);
        compile.args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language]);
        run(compile.arg(sources().join("include/onesweep.h")));
    }
}

#[test]
fn versions_are_one() {
    let header = read("include/onesweep.h");
    let number = |name: &str| {
        let line = header.lines().find(|line| line.contains(&format!("#define ONESWEEP_VERSION_{name} "))).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let version = [number("MAJOR"), number("MINOR"), number("PATCH")].join(".");
    assert!(read("link").contains(&format!("libonesweep.so.{version}")), "{version}");
    let makefile = read("../../Makefile");
    assert!(makefile.contains(&format!("CAPI_VERSION := {version}\n")), "{version}");
}
