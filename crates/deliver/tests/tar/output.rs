//! Nothing half-written keeps a name.

use std::{
    fs::{self, Permissions},
    io::Read as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use onesweep_deliver::tar::{Output, TarError, TarOptions, TarWarning, TarWriter};

use crate::support::{entries, needs_root, run, run_quietly, scratch, skipped};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn begin(path: &Path) -> TarWriter<Output> {
    TarWriter::to_output(Output::create(path).unwrap(), TarOptions::default()).unwrap()
}

#[test]
fn a_file_gets_its_name_when_it_is_complete() {
    let base = scratch();
    fs::create_dir(base.path().join("d")).unwrap();
    let archive = base.path().join("a.tar");
    let mut writer = begin(&archive);
    writer.append(entries(base.path(), "d").remove(0)).unwrap();
    assert!(!archive.exists());
    assert_eq!(names(base.path()).len(), 2);
    writer.commit().unwrap();
    assert_eq!(names(base.path()), ["a.tar", "d"]);
    // As open(2) would have made it.
    fs::write(base.path().join("by-open"), "").unwrap();
    let mode = |name: &str| fs::metadata(base.path().join(name)).unwrap().mode();
    assert_eq!(mode("a.tar"), mode("by-open"));
}

#[test]
fn what_is_dropped_leaves_the_old_archive() {
    let base = scratch();
    let archive = base.path().join("a.tar");
    fs::write(&archive, "old").unwrap();
    drop(begin(&archive));
    assert_eq!(fs::read(&archive).unwrap(), b"old");
    assert_eq!(names(base.path()), ["a.tar"]);
}

#[test]
fn a_replaced_archive_keeps_its_mode_and_its_link() {
    let base = scratch();
    fs::create_dir(base.path().join("real")).unwrap();
    let real = base.path().join("real/a.tar");
    fs::write(&real, "old").unwrap();
    fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
    symlink("real/a.tar", base.path().join("link.tar")).unwrap();
    symlink("real/new.tar", base.path().join("dangling.tar")).unwrap();
    begin(&base.path().join("link.tar")).commit().unwrap();
    begin(&base.path().join("dangling.tar")).commit().unwrap();
    assert_eq!(names(&base.path().join("real")), ["a.tar", "new.tar"]);
    assert!(base.path().join("link.tar").is_symlink());
    let found = fs::metadata(&real).unwrap();
    assert_eq!((found.mode() & 0o7777, found.len()), (0o640, 10_240));
}

#[test]
fn pipes_are_written_directly() {
    let base = scratch();
    run_quietly(base.path(), "mkfifo", &["pipe"]);
    let pipe = base.path().join("pipe");
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut bytes = Vec::new();
            fs::File::open(pipe).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        }
    });
    begin(&pipe).commit().unwrap();
    assert_eq!(reader.join().unwrap(), [0; 10_240]);
    assert_eq!(names(base.path()), ["pipe"]);
    begin(Path::new("/dev/null")).commit().unwrap();
}

#[test]
fn what_can_not_be_created_is_named() {
    let base = scratch();
    for path in [base.path().join("missing/a.tar"), base.path().to_path_buf()] {
        let refused = Output::create(&path).unwrap_err();
        assert!(matches!(refused, TarError::Create { .. }));
        let text = refused.to_string();
        assert!(text.starts_with(&format!("{}: cannot create the archive: ", path.display())), "{text}");
    }
}

/// Both the file that is written and the one that it replaces lie in the tree.
#[test]
fn the_archive_is_not_put_into_itself() {
    let base = scratch();
    fs::create_dir(base.path().join("d")).unwrap();
    let archive = base.path().join("d/a.tar");
    begin(&archive).commit().unwrap();
    let mut writer = begin(&archive);
    let warnings: Vec<_> =
        entries(base.path(), "d").into_iter().flat_map(|item| writer.append(item).unwrap()).collect();
    let [warning @ TarWarning::IsArchive { .. }] = &warnings[..] else { panic!("told once: {warnings:?}") };
    assert_eq!(warning.to_string(), "d/a.tar: file is the archive; not dumped", "by its final name");
    writer.commit().unwrap();
    assert_eq!(run_quietly(base.path(), "tar", &["-tf", "d/a.tar"]), "d/\n");
}

/// One error that names the output, and no file left.
#[test]
fn a_full_disk_leaves_nothing() {
    if needs_root("mounts a small tmpfs") {
        return;
    }
    let base = scratch();
    fs::create_dir(base.path().join("small")).unwrap();
    fs::write(base.path().join("large"), vec![1; 8 << 20]).unwrap();
    let mounted = run(base.path(), "mount", &["-t", "tmpfs", "-o", "size=1m", "none", "small"]);
    if !mounted.status.success() {
        return skipped(&format!("no tmpfs can be mounted: {}", String::from_utf8_lossy(&mounted.stderr)));
    }
    let archive = base.path().join("small/a.tar");
    fs::write(&archive, "old").unwrap();
    let mut writer = begin(&archive);
    let refused = writer.append(entries(base.path(), "large").remove(0)).unwrap_err().to_string();
    let again = writer.append(entries(base.path(), "large").remove(0)).is_err();
    let ended = writer.commit().is_err();
    let left = (names(&base.path().join("small")), fs::read(&archive).unwrap());
    // Lazily: a child that another test just forked may still hold a file there.
    run_quietly(base.path(), "umount", &["-l", "small"]);
    let expected = format!("{}: cannot write the archive: No space left on device (os error 28)", archive.display());
    assert_eq!(refused, expected);
    assert!(again && ended, "nothing follows an error");
    assert_eq!(left, (vec!["a.tar".to_owned()], b"old".to_vec()));
}
