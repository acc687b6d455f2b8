//! Whether a program loads the library that it is given: where it doesn't, it is as if alone, and somebody should know.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use onesweep_sys::{files::xattr_path, user};

use super::{executable::place_of, wrappers::programs_in};
use crate::message;

/// Programs that take `LD_PRELOAD` from what they start.
const CLEARING: [&str; 3] = ["sudo", "doas", "pkexec"];

/// Bytes of a program that tell what it is: its header, and the headers of its parts.
const HEAD_BYTES: usize = 4096;

/// Why a program doesn't load the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Nobody loads libraries into it.
    Static,
    /// It gets rights by its file, so that the loader takes nothing from who starts it.
    Rights,
    /// It doesn't hand it on.
    Clears,
}

/// What is to be said of a command's program, or of the one that its words name.
pub(super) fn remark(command: &[OsString]) -> Option<String> {
    let of_program = |at: usize| {
        let program = &command[at];
        let name = message::path_text(Path::new(program));
        let said = match why(program)? {
            Why::Static => "is linked statically and can't be helped; have it read through onesweep view",
            Why::Rights => {
                "gets rights by its file (set-user-ID, capabilities) and can't be helped; start onesweep with them instead"
            }
            Why::Clears => {
                "takes the library from what it starts, which can't be helped; put it before onesweep instead"
            }
        };
        Some(format!("{name} {said}"))
    };
    programs_in(command).into_iter().find_map(of_program)
}

fn why(program: &OsStr) -> Option<Why> {
    let name = Path::new(program).file_name()?;
    if CLEARING.iter().any(|clearing| name == *clearing) {
        return Some(Why::Clears);
    }
    let path = place_of(program)?.canonicalize().ok()?;
    let facts = fs::metadata(&path).ok()?;
    // Such a program may often be run, but not read.
    if gets_rights(&path, &facts) {
        return Some(Why::Rights);
    }
    let mut head = vec![0; HEAD_BYTES];
    let read = File::open(&path).and_then(|file| file.read_at(&mut head, 0)).ok()?;
    is_static(&head[..read]).then_some(Why::Static)
}

/// Whether the file gives the program rights that this process lacks.
fn gets_rights(path: &Path, facts: &Metadata) -> bool {
    let (mode, own) = (facts.mode(), user::effective_uid());
    let by_user = mode & 0o4000 != 0 && facts.uid() != own;
    let by_group = mode & 0o2010 == 0o2010 && facts.gid() != user::effective_gid();
    let by_capabilities = own != 0 && matches!(xattr_path(path, c"security.capability"), Ok(Some(_)));
    by_user || by_group || by_capabilities
}

/// Whether these are the first bytes of a program of ELF that names no loader. Scripts are not: their interpreters are what is run.
fn is_static(head: &[u8]) -> bool {
    const LOADER: u64 = 3;
    let Some(&[class, order]) = head.strip_prefix(b"\x7fELF").and_then(|rest| rest.first_chunk()) else { return false };
    let (is_wide, is_little) = (class == 2, order == 1);
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(bytes)?)?.iter();
        let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if is_little { bytes.rev().fold(0, append) } else { bytes.fold(0, append) })
    };
    let parts = || -> Option<bool> {
        let (at, size, count) = if is_wide {
            (number(32, 8)?, number(54, 2)?, number(56, 2)?)
        } else {
            (number(28, 4)?, number(42, 2)?, number(44, 2)?)
        };
        for part in 0..count {
            let at = usize::try_from(at.checked_add(part * size)?).ok()?;
            if number(at, 4)? == LOADER {
                return Some(false);
            }
        }
        Some(true)
    };
    // What can't be told isn't.
    parts().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// A program of 64 bits with parts of these kinds.
    fn program(kinds: &[u32]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64;
        head[54] = 56;
        head[56] = kinds.len() as u8;
        for kind in kinds {
            head.extend(kind.to_le_bytes());
            head.extend([0; 52]);
        }
        head
    }

    #[test]
    fn programs_without_a_loader_are_static() {
        let (loads, loader) = (1, 3);
        assert!(is_static(&program(&[loads, loads])));
        assert!(!is_static(&program(&[loads, loader, loads])));
        // What is cut off could name one.
        assert!(!is_static(&program(&[loads, loads])[..122]));
        assert!(!is_static(b"#!/bin/sh\n") && !is_static(b"") && !is_static(b"\x7fELF"));
        let mut narrow = vec![0; 52];
        narrow[..6].copy_from_slice(b"\x7fELF\x01\x02");
        (narrow[31], narrow[43], narrow[45]) = (52, 32, 1);
        narrow.extend([0, 0, 0, 1]);
        assert!(is_static(&narrow));
        narrow[55] = 3;
        assert!(!is_static(&narrow));
    }

    #[test]
    fn who_does_not_load_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, kinds: &[u32], mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, program(kinds)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (fixed, plain) = (put("fixed", &[1], 0o755), put("plain", &[1, 3], 0o755));
        assert_eq!(why(fixed.as_os_str()), Some(Why::Static));
        assert_eq!(why(plain.as_os_str()), None);
        let said = |words: &[&OsStr]| {
            remark(&words.iter().map(|word| word.to_os_string()).collect::<Vec<_>>()).unwrap_or_default()
        };
        assert!(said(&[fixed.as_os_str()]).contains("fixed is linked statically"));
        assert!(said(&[plain.as_os_str(), fixed.as_os_str()]).is_empty());
        assert!(said(&["nice", "sudo", "tar"].map(OsStr::new)).contains("sudo takes the library"));
        let own = put("own", &[1, 3], 0o4755);
        assert_eq!(why(own.as_os_str()), None);
        if user::effective_uid() == 0 {
            chown(&own, Some(65_534), None).unwrap();
            // Whoever changes the owner takes that bit away.
            fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
            assert_eq!(why(own.as_os_str()), Some(Why::Rights));
        }
    }
}
