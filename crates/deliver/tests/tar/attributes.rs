//! Everything that an entry can have comes back to the last bit.

use std::{
    fs::{self, File, Permissions},
    io::{self, Seek as _, Write},
    os::unix::{
        fs::{PermissionsExt as _, chown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use onesweep::{Kind, SweptFile};
use onesweep_deliver::tar::{Severity, TarOptions, TarWarning, TarWriter};

use crate::support::{
    assert_same_tree, closed_entries, entries, entry_without_content, extractors, facts, interleave, is_root,
    needs_root, options, remove, run_quietly, scratch, set_mtime, set_xattr, write,
};

/// One of each kind, and all that can be odd about it. What only root can make is left out for others.
fn build(base: &Path) {
    let tree = base.join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for (name, size) in [("empty", 0), ("one", 1), ("block", 512), ("odd", 100_003), ("large", 3 << 20)] {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        fs::write(tree.join(name), bytes).unwrap();
    }
    for (at, mode) in [0o000, 0o400, 0o4755, 0o2755, 0o1644, 0o666].into_iter().enumerate() {
        let path = tree.join(format!("mode{at}"));
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    for (at, (seconds, nanoseconds)) in
        [(0, 0), (1_234_567_890, 123_456_789), (5, 1), (-1, 0), (-86_400, 0), (4_102_444_800, 999_999_999)]
            .into_iter()
            .enumerate()
    {
        let path = tree.join(format!("deep/time{at}"));
        fs::write(&path, "x").unwrap();
        set_mtime(&path, seconds, nanoseconds);
    }
    fs::hard_link(tree.join("odd"), tree.join("deep/odd too")).unwrap();
    fs::hard_link(tree.join("odd"), tree.join("a third name")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    symlink("../tree/".repeat(30), tree.join("deep/long")).unwrap();
    symlink("ä/\u{308}", tree.join("deep/letters")).unwrap();
    fs::hard_link(tree.join("dangling"), tree.join("deep/dangling too")).unwrap();
    run_quietly(&tree, "mkfifo", &["pipe"]);
    set_xattr(&tree.join("one"), b"user.bytes", b"\0\x01=\n\xff");
    set_xattr(&tree.join("one"), b"user.empty", b"");
    set_xattr(&tree.join("large"), b"user.large", &[b'v'; 3000]);
    set_xattr(&tree.join("deep"), b"user.directory", b"yes");
    run_quietly(&tree, "setfacl", &["-m", "u:1000:r-x,u:54321:rw-,g:1:---,m::rwx", "odd"]);
    run_quietly(&tree, "setfacl", &["-m", "u:54321:rwx", "-m", "d:u:0:rwx,d:g:54321:r--", "deep/er"]);
    if is_root() {
        run_quietly(&tree, "mknod", &["terminal", "c", "4", "64"]);
        run_quietly(&tree, "mknod", &["disk", "b", "259", "70000"]);
        for (name, uid, gid) in [("block", 65534, 65534), ("empty", 54321, 54322), ("large", 4_000_000, 3_000_000)] {
            chown(tree.join(name), Some(uid), Some(gid)).unwrap();
        }
        set_xattr(&tree.join("block"), b"trusted.root", b"alone");
        // cap_net_raw=ep, as on ping.
        set_xattr(&tree.join("mode5"), b"security.capability", &{
            let mut value = [0; 20];
            value[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
            value
        });
    }
    set_mtime(&tree.join("dangling"), 1_111_111_111, 5);
    for dir in ["deep/er", "deep", "."] {
        set_mtime(&tree.join(dir), 1_000_000_007, 70);
    }
}

#[test]
fn every_attribute_is_restored() {
    let base = scratch();
    build(base.path());
    for interleaved in [false, true] {
        let archive = base.path().join("a.tar");
        let items = if interleaved { interleave(base.path(), "tree", 3) } else { closed_entries(base.path(), "tree") };
        let warnings = write(&archive, items, TarOptions { interleaved, ..options() });
        assert!(warnings.is_empty(), "{warnings:?}");
        for extractor in extractors().into_iter().filter(|extractor| extractor.as_nobody != is_root()) {
            let out = extractor.extract(&archive);
            let (want, got) = (facts(base.path(), "tree", extractor), facts(out.path(), "tree", extractor));
            assert_same_tree(&want, &got, &format!("interleaved {interleaved}, {extractor:?}"));
            remove(out);
        }
        for program in ["tar", "bsdtar"] {
            run_quietly(base.path(), program, &["-tvf", "a.tar"]);
        }
        // GNU tar finds no difference either, unless it reads a directory's first member.
        if !interleaved {
            run_quietly(
                base.path(),
                "tar",
                &["--compare", "--warning=no-timestamp", "--acls", "--xattrs", "-f", "a.tar"],
            );
        }
    }
    remove(base);
}

/// libarchive reads -1.25 seconds as -1 + 0.25 (3.6.2), so this is for GNU tar alone.
#[test]
fn gnu_tar_restores_times_before_1970_with_a_fraction() {
    let base = scratch();
    fs::write(base.path().join("old"), "").unwrap();
    set_mtime(&base.path().join("old"), -2, 750_000_000);
    let archive = base.path().join("a.tar");
    write(&archive, entries(base.path(), "old"), options());
    for extractor in extractors().into_iter().filter(|extractor| extractor.program == "tar") {
        let out = extractor.extract(&archive);
        assert_same_tree(
            &facts(base.path(), "old", extractor),
            &facts(out.path(), "old", extractor),
            &format!("{extractor:?}"),
        );
    }
}

/// A further name that is met after its inode was written has no content of its own.
#[test]
fn a_late_hard_link_is_a_link() {
    let base = scratch();
    fs::create_dir(base.path().join("d")).unwrap();
    fs::write(base.path().join("d/first"), "content").unwrap();
    fs::hard_link(base.path().join("d/first"), base.path().join("d/late")).unwrap();
    let first = entries(base.path(), "d").remove(1);
    assert_eq!(first.path(), Path::new("d/first"));
    let late = SweptFile::new("d/late".into(), *first.metadata()).with_linked_to("d/first".into());
    let archive = base.path().join("a.tar");
    write(&archive, [entries(base.path(), "d/first").remove(0), late], options());
    for extractor in extractors() {
        let out = extractor.extract(&archive);
        let found = facts(out.path(), "d", extractor);
        assert_eq!(found[Path::new("d/late")].names.len(), 2, "{extractor:?}");
    }
}

#[test]
fn sockets_are_left_out_and_told() {
    let base = scratch();
    fs::create_dir(base.path().join("d")).unwrap();
    let _socket = UnixListener::bind(base.path().join("d/socket")).unwrap();
    let items = entries(base.path(), "d");
    assert!(items.iter().any(|item| item.metadata().kind == Kind::Socket));
    // A further name that is met in a later window: a hard link to it would lead to no member.
    let later = entry_without_content(base.path(), "d/socket").with_linked_to("d/first".into());
    let archive = base.path().join("a.tar");
    let warnings = write(&archive, items.into_iter().chain([later]), options());
    assert_eq!(warnings.len(), 2);
    for warning in &warnings {
        assert_eq!(warning.to_string(), "d/socket: socket ignored");
        assert_eq!(warning.severity(), Severity::Notice);
    }
    assert_eq!(run_quietly(base.path(), "tar", &["-tf", "a.tar"]), "d/\n");
}

/// Without the options, attributes stay out.
#[test]
fn attributes_are_stored_only_when_asked_for() {
    let base = scratch();
    fs::write(base.path().join("f"), "").unwrap();
    set_mtime(&base.path().join("f"), 5, 0);
    let xattrs = vec![
        (b"user.a".to_vec(), b"1".to_vec()),
        (b"security.selinux".to_vec(), b"system_u:object_r:tmp_t:s0\0".to_vec()),
        (b"system.posix_acl_access".to_vec(), vec![2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255]),
    ];
    let records = |options: TarOptions| {
        let item = entries(base.path(), "f").remove(0).with_xattrs(xattrs.clone());
        let bytes = crate::support::to_bytes([item], options);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        [
            "SCHILY.xattr.user.a=1\n",
            "RHT.security.selinux=system_u:object_r:tmp_t:s0\n",
            "SCHILY.acl.access=user::rwx\n",
        ]
        .map(|record| text.contains(record))
    };
    let plain = TarOptions::default;
    assert_eq!(records(plain()), [false, false, false]);
    assert_eq!(records(TarOptions { xattrs: true, ..plain() }), [true, false, false]);
    assert_eq!(records(TarOptions { selinux: true, ..plain() }), [false, true, false]);
    assert_eq!(records(TarOptions { acls: true, ..plain() }), [false, false, true]);
}

/// A broken ACL is told; the rest of the entry is written.
#[test]
fn a_broken_acl_does_not_lose_the_file() {
    let base = scratch();
    fs::write(base.path().join("f"), "still here").unwrap();
    let broken = vec![(b"system.posix_acl_access".to_vec(), vec![9, 9])];
    let item = entries(base.path(), "f").remove(0).with_xattrs(broken);
    let archive = base.path().join("a.tar");
    let warnings = write(&archive, [item], options());
    assert!(matches!(&warnings[..], [TarWarning::Acl { .. }]), "{warnings:?}");
    assert_eq!(run_quietly(base.path(), "tar", &["-xOf", "a.tar"]), "still here");
}

/// The header promises a size; what comes later must not move the next member.
#[test]
fn files_that_shrank_or_grew_keep_the_archive_whole() {
    let base = scratch();
    for name in ["shrank", "grew", "last"] {
        fs::write(base.path().join(name), "12345").unwrap();
    }
    let changed = |name: &str, bytes: &[u8]| {
        SweptFile::new(PathBuf::from(name), *entries(base.path(), name)[0].metadata()).with_bytes(bytes, Vec::new())
    };
    let items = [changed("shrank", b"12"), changed("grew", b"1234567"), changed("last", b"12345")];
    let archive = base.path().join("a.tar");
    let warnings = write(&archive, items, options());
    let told: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "shrank: File shrank by 3 bytes; padding with zeros; archive it again when nobody writes to it",
            "grew: file grew as it was read; the first 5 bytes are in the archive; archive it again when nobody writes to it"
        ]
    );
    assert!(warnings.iter().all(|warning| warning.severity() == Severity::Differs));
    assert_eq!(run_quietly(base.path(), "tar", &["-xOf", "a.tar"]), ["12", "\0\0\0", "12345", "12345"].concat());
}

/// A file in which zeros become holes.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
        let bytes = &bytes[..bytes.len().min(ZEROS.len())];
        if *bytes != ZEROS[..bytes.len()] {
            return self.0.write(bytes);
        }
        self.0.seek_relative(bytes.len() as i64)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Beyond eight gigabytes the size is a pax record. The content is the padding of a file that shrank to nothing, so
/// that the archive is a hole for the most part.
#[test]
fn files_over_eight_gigabytes_have_their_size() {
    let base = scratch();
    fs::write(base.path().join("f"), "").unwrap();
    let mut metadata = *entries(base.path(), "f")[0].metadata();
    metadata.size = (9 << 30) + 5;
    let file = File::create(base.path().join("a.tar")).unwrap();
    // The archive's last zeros are never written.
    file.set_len(10 << 30).unwrap();
    let mut archive = TarWriter::new(Sparse(file), options()).unwrap();
    archive.append(SweptFile::new("huge".into(), metadata)).unwrap();
    archive.append(entries(base.path(), "f").remove(0)).unwrap();
    archive.finish().unwrap();
    for program in ["tar", "bsdtar"] {
        let listed = run_quietly(base.path(), program, &["-tvf", "a.tar"]);
        assert!(listed.contains(" 9663676421 ") && listed.lines().count() == 2, "{program}: {listed}");
    }
}

#[test]
fn file_systems_without_ids_of_their_own_are_no_matter() {
    if needs_root("files of other owners") {
        return;
    }
    let base = scratch();
    fs::write(base.path().join("f"), "").unwrap();
    chown(base.path().join("f"), Some(4_294_967_294), Some(2_097_152)).unwrap();
    let archive = base.path().join("a.tar");
    write(&archive, entries(base.path(), "f"), options());
    for program in ["tar", "bsdtar"] {
        let listed = run_quietly(base.path(), program, &["--numeric-owner", "-tvf", "a.tar"]);
        assert!(listed.contains("4294967294") && listed.contains("2097152"), "{listed}");
    }
}
