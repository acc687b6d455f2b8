//! Where programs are.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// Where a program is, as execvp(3) finds it.
pub(super) fn place_of(program: &OsStr) -> Option<PathBuf> {
    place_in(program, &env::var_os("PATH").unwrap_or_default())
}

fn place_in(program: &OsStr, folders: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    env::split_paths(folders).map(|folder| folder.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_found_as_they_are_run() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let open = put("open", 0o755);
        put("closed", 0o600);
        fs::create_dir(folder.path().join("directory")).unwrap();
        let found = |program: &OsStr| place_in(program, folder.path().as_os_str());
        assert_eq!(found(OsStr::new("open")), Some(open.clone()));
        assert_eq!(found(open.as_os_str()), Some(open.clone()));
        for name in ["closed", "directory", "none", ""] {
            assert_eq!(found(OsStr::new(name)), None, "{name}");
            assert_eq!(found(folder.path().join(name).as_os_str()), None, "{name}");
        }
    }
}
