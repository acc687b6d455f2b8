//! Which files hold the rules.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::RulesError;

/// Bytes of a file of rules, at most.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The files that these paths name, without links and each once, in the order in which they are compiled: as they were named, and
/// by their names within a directory.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, RulesError> {
    let mut all = Vec::new();
    for path in paths {
        let failed = |source| RulesError::Io { path: path.clone(), source };
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            all.push(path.clone());
            continue;
        }
        let mut below = below(path)?;
        if below.is_empty() {
            return Err(RulesError::NoFiles { path: path.clone() });
        }
        below.sort();
        all.append(&mut below);
    }
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    for path in all {
        let failed = |source| RulesError::Io { path: path.clone(), source };
        let file = fs::canonicalize(&path).map_err(failed)?;
        readable(&file).map_err(failed)?;
        if seen.insert(file.clone()) {
            files.push(file);
        }
    }
    Ok(files)
}

/// Whether it can be read, and whether it has an end.
fn readable(path: &Path) -> io::Result<()> {
    // To open a pipe would wait for who writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is neither a file nor a directory"));
    }
    match fs::File::open(path)?.metadata()?.len() {
        0..=FILE_BYTES_MAX => Ok(()),
        bytes => Err(io::Error::other(format!("it has {bytes} bytes, of {FILE_BYTES_MAX} at most"))),
    }
}

/// All files of rules below a directory. Links to files count, those to directories don't: so there is no way round.
fn below(root: &Path) -> Result<Vec<PathBuf>, RulesError> {
    let mut files = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        let failed = |source| RulesError::Io { path: dir.clone(), source };
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                left.push(path);
            } else if has_rules(&path) && !path.is_dir() {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn has_rules(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    extension.eq_ignore_ascii_case("yar") || extension.eq_ignore_ascii_case("yara")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_names_the_rules_below_it_and_each_file_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(dir.join("rules/sub.yar")).unwrap();
        for name in ["rules/b.yar", "rules/a.YARA", "rules/README.md", "rules/sub.yar/c.yara", "other"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        symlink("../other", dir.join("rules/link.yar")).unwrap();
        symlink(".", dir.join("rules/round.yar")).unwrap();
        let names = |paths: &[&str]| -> Vec<String> {
            let paths: Vec<PathBuf> = paths.iter().map(|path| dir.join(path)).collect();
            let text = |file: &PathBuf| file.strip_prefix(&dir).unwrap().to_str().unwrap().to_owned();
            files(&paths).unwrap().iter().map(text).collect()
        };
        let below = ["rules/a.YARA", "rules/b.yar", "other", "rules/sub.yar/c.yara"];
        assert_eq!(names(&["rules"]), below);
        assert_eq!(names(&["rules", "rules/b.yar", "other"]), below);
        assert_eq!(names(&["rules/b.yar", "rules"])[0], "rules/b.yar");
        assert_eq!(names(&["rules/README.md"]), ["rules/README.md"], "who names a file knows what is in it");
    }

    #[test]
    fn what_holds_no_rules_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("README"), "x").unwrap();
        let refused = |path: &Path| files(&[path.to_owned()]).unwrap_err().to_string();
        assert!(refused(dir.path()).contains("*.yar"));
        assert!(refused(&dir.path().join("none.yar")).contains("cannot read its rules"));
        assert!(refused(Path::new("/dev/zero")).contains("neither a file nor a directory"));
        let large = dir.path().join("large.yar");
        fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
        assert!(refused(&large).contains("1099511627776 bytes"));
    }
}
