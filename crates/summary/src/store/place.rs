//! Which file keeps what is known of which file system.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// So much of a name tells people what it is of, where a hash tells the rest.
const READABLE: usize = 100;

/// The file in `folder` of the file system that has this identity. One that was made when it was named otherwise, also by the identity
/// it had `before`, has this name from now on. An error is one of renaming it.
pub fn place(folder: &Path, identity: &[u8], before: Option<&[u8]>) -> io::Result<PathBuf> {
    let place = folder.join(name(identity));
    for formerly in before.into_iter().chain([identity]).map(|identity| folder.join(plain(identity))) {
        if formerly != place && !place.exists() && formerly.exists() {
            fs::rename(formerly, &place)?;
        }
    }
    Ok(place)
}

/// What is read again from time to time is told apart by its paths: they may be long, and alike but for their signs.
fn name(identity: &[u8]) -> String {
    let mut name = plain(identity);
    if identity.starts_with(b"timed ") {
        name.truncate(READABLE);
        name.push('-');
        name.extend(Sha256::digest(identity).iter().take(8).map(|byte| format!("{byte:02x}")));
    }
    name
}

fn plain(identity: &[u8]) -> String {
    identity.iter().map(|byte| if byte.is_ascii_alphanumeric() { *byte as char } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_not_alike() {
        assert_eq!(name(b"ef53 1f 0.2.0 1790000000.9"), "ef53-1f-0-2-0-1790000000-9");
        let long = format!("timed nfs4 nas:/export /var/lib/{} 128", "x/".repeat(2000));
        let all = ["timed nfs4 nas:/export /mnt/a-b 128", "timed nfs4 nas:/export /mnt/a/b 128", &long];
        let mut names = all.map(|identity| name(identity.as_bytes()));
        assert!(names.iter().all(|name| name.starts_with("timed-nfs4-nas--export-") && name.len() <= 120), "{names:?}");
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }

    #[test]
    fn what_was_kept_under_another_name_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = |name: &str, content: &str| fs::write(folder.path().join(name), content).expect("a file");
        let found = |identity: &str, before: Option<&str>| {
            let place = place(folder.path(), identity.as_bytes(), before.map(str::as_bytes)).expect("a place");
            fs::read_to_string(place).ok()
        };
        kept("58465342-0-0-128-0-1-2", "of before");
        kept("timed-nfs4-nas--mnt-a-128", "of a path");
        let now = "58465342 77 0.128.0 1.2";
        assert_eq!(found(now, Some("58465342 0 0.128.0 1.2")).as_deref(), Some("of before"));
        // A copy of it gets one of its own.
        assert_eq!(found("58465342 88 0.128.0 1.2", Some("58465342 0 0.128.0 1.2")), None);
        assert_eq!(found(now, None).as_deref(), Some("of before"));
        assert_eq!(found("timed nfs4 nas: mnt/a 128", None).as_deref(), Some("of a path"));
    }
}
