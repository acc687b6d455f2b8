//! Rules become one set, and a mistake in them one message.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use serde_json::Value;
use yara_x::{Compiler, Rules, errors::CompileError};

use super::RulesError;

/// The version of YARA-X that is built in, which the crate itself doesn't tell.
const VERSION: &str = "1.19.0";

/// The rules of these files, in one namespace, as `yr scan` has them.
pub(super) fn compiled(files: &[PathBuf]) -> Result<Rules, RulesError> {
    let sources = files.iter().map(|file| including(file)).collect::<Result<Vec<String>, RulesError>>()?;
    let rules = catch_unwind(AssertUnwindSafe(|| {
        let mut compiler = Compiler::new();
        for source in &sources {
            // What is wrong in it is among all errors.
            let _ = compiler.add_source(source.as_str());
        }
        match compiler.errors() {
            [] => Ok(compiler.build()),
            [first, more @ ..] => Err(RulesError::Wrong(told(first, more.len()))),
        }
    }));
    let rules =
        rules.unwrap_or_else(|why| Err(RulesError::Wrong(format!("cannot compile the rules: {}", said(&*why)))))?;
    if rules.iter().len() == 0 { Err(RulesError::NoRules) } else { Ok(rules) }
}

/// A source that stands for a file: what that includes in turn is looked for beside it, whatever directory is the current one.
fn including(file: &Path) -> Result<String, RulesError> {
    match file.to_str().filter(|name| !name.contains(['"', '\\', '\n', '\r'])) {
        Some(name) => Ok(format!("include \"{name}\"")),
        None => Err(RulesError::Name { path: file.to_owned() }),
    }
}

/// `FILE:LINE:COLUMN: what is wrong: more of it`, on one line.
fn told(error: &CompileError, more: usize) -> String {
    let report = serde_json::to_value(error).unwrap_or_default();
    let labels = report["labels"].as_array().map_or(&[][..], Vec::as_slice);
    let label = labels.iter().find(|label| label["level"] == "error").or(labels.first()).unwrap_or(&Value::Null);
    let mut told = String::new();
    if let (Some(file), Some(line), Some(column)) =
        (label["code_origin"].as_str(), label["line"].as_u64(), label["column"].as_u64())
    {
        told += &format!("{file}:{line}:{column}: ");
    }
    told += report["title"].as_str().unwrap_or("cannot compile the rules");
    if let Some(text) = label["text"].as_str().filter(|text| !text.is_empty()) {
        told += &format!(": {text}");
    }
    match more {
        0 => {}
        1 => told += " (and one more mistake)",
        more => told += &format!(" (and {more} more mistakes)"),
    }
    on_one_line(&told)
}

/// What a panic said.
pub(super) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    on_one_line(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why"))
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What rules are, whatever their files are called and wherever they lie: the version, and the hash of what they were compiled to.
/// Comments and spaces don't count; the order of the rules does.
pub(super) fn epoch(rules: &Rules) -> Result<String, io::Error> {
    let mut hasher = blake3::Hasher::new();
    rules.serialize_into(&mut hasher).map_err(io::Error::other)?;
    Ok(format!("YARA-X {VERSION} {}", &hasher.finalize().to_hex()[..32]))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// The rules of files with these names and contents.
    pub(crate) fn of(files: &[(&str, &str)]) -> Result<Rules, RulesError> {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| dir.path().join(name)).collect();
        for (path, (_, text)) in paths.iter().zip(files) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        compiled(&paths)
    }

    fn epoch_of(files: &[(&str, &str)]) -> String {
        epoch(&of(files).unwrap()).unwrap()
    }

    const A: &str = "rule A { strings: $a = \"bad\" condition: $a }";
    const B: &str = "import \"math\" rule B { strings: $b = /wo+rse/ $c = { 01 ?? 03 } condition: any of them or math.entropy(0, filesize) > 9 }";

    #[test]
    fn rules_have_an_epoch_that_nothing_but_they_decide() {
        let both = epoch_of(&[("a.yar", A), ("b.yar", B)]);
        assert!(both.starts_with("YARA-X 1.19.0 "), "{both}");
        assert_eq!(epoch_of(&[("a.yar", A), ("b.yar", B)]), both);
        assert_eq!(epoch_of(&[("sub/other.yar", &format!("// Another comment\n{A}\n\n")), ("x", B)]), both);
        assert_eq!(epoch_of(&[("one.yar", &format!("{A} {B}"))]), both);
        let changed = [
            epoch_of(&[("a.yar", A)]),
            epoch_of(&[("a.yar", &A.replace("bad", "bat")), ("b.yar", B)]),
            epoch_of(&[("a.yar", &A.replace("rule A", "rule C")), ("b.yar", B)]),
            epoch_of(&[("a.yar", &A.replace("\"bad\"", "\"bad\" nocase")), ("b.yar", B)]),
            epoch_of(&[("a.yar", A), ("b.yar", &B.replace("o+", "o*"))]),
            epoch_of(&[("a.yar", A), ("b.yar", &B.replace("> 9", "> 8"))]),
            epoch_of(&[("a.yar", A), ("b.yar", &B.replace("any of", "all of"))]),
        ];
        for (at, one) in changed.iter().enumerate() {
            assert!(*one != both && !changed[..at].contains(one), "{at}");
        }
    }

    #[test]
    fn the_version_is_that_which_is_built_in() {
        let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"yara-x\"\nversion = \"{VERSION}\"\n")));
    }

    #[test]
    fn a_mistake_is_told_with_its_file_and_line() {
        let told = |files: &[(&str, &str)]| of(files).unwrap_err().to_string();
        let text = told(&[("a.yar", A), ("wrong.yar", "rule X {\n  condition:\n    $nothing\n}")]);
        assert!(text.contains("/wrong.yar:3:5: ") && text.contains("$nothing"), "{text}");
        let text = told(&[("a.yar", "rule X {\n condition: }"), ("b.yar", "rule Y { condition: 1 + }")]);
        assert!(text.contains("/a.yar:2:13: syntax error") && text.ends_with("(and one more mistake)"), "{text}");
        let text = told(&[("a.yar", A), ("b.yar", A)]);
        assert!(text.contains("/b.yar:1:6: duplicate rule `A`"), "{text}");
        assert!(told(&[("a.yar", "import \"vt\"")]).contains("/a.yar:1:1: unknown module `vt`"));
        assert_eq!(told(&[("a.yar", "// nothing\n")]), RulesError::NoRules.to_string());
        assert!(told(&[("a\".yar", A)]).contains("quotation marks"));
        for text in ["rule X { condition: filename == \"x\" }", "rule X {", "\u{0}", "include \"none.yar\""] {
            assert!(told(&[("a.yar", text)]).contains("/a.yar:1:"), "{text}: {}", told(&[("a.yar", text)]));
        }
    }

    #[test]
    fn what_a_file_includes_lies_beside_it() {
        let both = [("one/a.yar", "include \"more.yar\""), ("two/a.yar", "include \"more.yar\"")];
        let more = [("one/more.txt", "")];
        assert!(of(&[&both[..], &more].concat()).unwrap_err().to_string().contains("more.yar"));
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("one", A), ("two", B)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("a.yar"), "include \"more.yar\"").unwrap();
            fs::write(dir.path().join(name).join("more.yar"), text).unwrap();
        }
        let rules = compiled(&["one/a.yar", "two/a.yar"].map(|name| dir.path().join(name))).unwrap();
        assert_eq!(rules.iter().map(|rule| rule.identifier().to_owned()).collect::<Vec<_>>(), ["A", "B"]);
    }
}
