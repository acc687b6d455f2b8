//! What was found, as SARIF 2.1.0.

use std::{fmt::Write, os::unix::ffi::OsStrExt, path::Path};

use serde_json::{Value, json};

use super::Finding;

/// A run, as far as it came.
pub(super) struct Run<'a> {
    pub(super) engine: &'a str,
    /// None where the engine didn't say.
    pub(super) epoch: Option<&'a str>,
    pub(super) findings: &'a [Finding],
    /// That of the process.
    pub(super) exit_code: u8,
    /// Why not everything was looked at.
    pub(super) failures: &'a [String],
}

/// The whole log. It has results, none maybe, in any case: without them it would be of no scan.
pub(super) fn log(run: &Run<'_>) -> Value {
    let &Run { engine, epoch, findings, exit_code, failures } = run;
    let mut names: Vec<&str> = findings.iter().map(|found| found.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let rules: Vec<Value> = names.iter().map(|name| json!({ "id": name })).collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|found| {
            json!({
                "ruleId": found.name,
                "level": "error",
                "message": { "text": format!("{} found", found.name) },
                "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri(&found.path) } } }],
                "properties": { "source": found.source.word() },
            })
        })
        .collect();
    let notifications: Vec<Value> =
        failures.iter().map(|why| json!({ "level": "error", "message": { "text": why } })).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "onesweep scan", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "invocations": [{
                "executionSuccessful": failures.is_empty(),
                "exitCode": exit_code,
                "toolExecutionNotifications": notifications,
            }],
            "properties": { "engine": engine, "epoch": epoch },
            "results": results,
        }],
    })
}

/// A path as a reference (RFC 3986): what is no letter, digit or one of `-._~/` as `%XX`.
fn uri(path: &Path) -> String {
    let mut uri = String::from(if path.is_absolute() { "file://" } else { "" });
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // Writing to a text can't fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use onesweep_peer::scan::Source;

    use super::*;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri(Path::new("/a b/é%")), "file:///a%20b/%C3%A9%25");
        assert_eq!(uri(Path::new(OsStr::from_bytes(b"x/\xff:1"))), "x/%FF%3A1");
    }

    #[test]
    fn each_finding_has_its_rule() {
        let found = |path: &str, name: &str| Finding { path: path.into(), name: name.into(), source: Source::Scan };
        let findings = [found("/b", "X"), found("/a", "Y"), found("/c", "X")];
        let run = Run { engine: "clamd", epoch: Some("1"), findings: &findings, exit_code: 1, failures: &[] };
        let log = log(&run);
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"], json!([{ "id": "X" }, { "id": "Y" }]));
        assert_eq!(run["results"].as_array().unwrap().len(), 3);
        assert_eq!(run["results"][1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "file:///a");
        let invocation = &run["invocations"][0];
        assert_eq!((&invocation["executionSuccessful"], &invocation["exitCode"]), (&true.into(), &1.into()));
    }
}
