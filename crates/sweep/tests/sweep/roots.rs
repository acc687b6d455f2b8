//! What is swept: roots by name or open, and what is left out below them.

use std::{fs, os::unix::fs::symlink, path::Path};

use onesweep::{BulkRead, FileError, Filter, SweepError};

use crate::trees::deliver;

#[test]
fn roots_may_be_files_links_and_relative() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("real")).unwrap();
    fs::write(root.path().join("real/f"), b"x").unwrap();
    symlink("real", root.path().join("link")).unwrap();
    let names = |read: BulkRead| deliver(read).0.keys().map(|path| path.display().to_string()).collect::<Vec<_>>();
    assert_eq!(names(BulkRead::new(["real/f"]).base(root.path())), ["real/f"]);
    assert_eq!(names(BulkRead::new(["link"]).base(root.path())), Vec::<String>::new());
    assert_eq!(names(BulkRead::new(["link"]).base(root.path()).follow_roots(true)), ["link/f"]);
    assert_eq!(names(BulkRead::new(["link/f"]).base(root.path())), ["link/f"]);
    let (found, errors, summary) = deliver(BulkRead::new(["missing", "real"]).base(root.path()));
    assert_eq!((found.len(), summary.errors), (1, 1), "the others are read");
    assert_eq!(errors[0].to_string(), "missing: cannot find it: No such file or directory (os error 2)");
    let missing = BulkRead::new(["missing"]).base(root.path()).start();
    let Err(error) = missing else { panic!("something must be there") };
    assert_eq!(error.to_string(), "missing: No such file or directory (os error 2)");
}

#[test]
fn what_is_open_is_read_whatever_it_is_called_by() {
    let root = tempfile::tempdir().unwrap();
    let (before, after, file) = (root.path().join("before"), root.path().join("after"), root.path().join("file"));
    fs::create_dir(&before).unwrap();
    fs::write(before.join("a"), "in a directory").unwrap();
    fs::write(&file, "a file").unwrap();
    let open = |path: &Path| fs::File::open(path).unwrap().into();
    let named = BulkRead::new(["/nonexistent"]);
    let read = |before: &Path| named.clone().roots([""; 0]).open_roots([("dir", open(before)), ("f", open(&file))]);
    let sweep = read(&before);
    fs::rename(&before, &after).unwrap();
    let (found, errors, _) = deliver(sweep);
    assert!(errors.is_empty(), "{errors:?}");
    let expected = [("dir/a", "in a directory"), ("f", "a file")];
    assert_eq!(found, expected.map(|(path, text)| (path.into(), text.into())).into());

    // A file is found by its name alone.
    let sweep = read(&after);
    fs::remove_file(&file).unwrap();
    fs::write(&file, "another").unwrap();
    let (found, errors, _) = deliver(sweep);
    assert_eq!(found.len(), 1);
    assert!(
        matches!(&errors[..], [FileError::Io { path, .. } | FileError::Vanished { path }] if path == Path::new("f"))
    );
}

/// Where nothing can be held, the kernel says why, and where there is no device it isn't asked.
#[test]
fn what_can_not_be_held_or_read_by_its_device_tells_what_the_kernel_said() {
    const EPERM: i32 = 1;
    const EOPNOTSUPP: i32 = 95;
    let process = || BulkRead::new(["/proc/self/limits"]);
    match process().snapshot(true).start() {
        Err(SweepError::Snapshot { source, .. }) => {
            let number = source.and_then(|said| said.raw_os_error());
            assert!(matches!(number, Some(EPERM | EOPNOTSUPP)), "{number:?}");
        }
        other => panic!("processes can't be held: {:?}", other.map(drop)),
    }
    match process().device(true).start() {
        Err(SweepError::Device { source, .. }) => assert!(source.is_none(), "{source:?}"),
        other => panic!("processes have no device: {:?}", other.map(drop)),
    }
}

#[test]
fn excluded_entries_are_left_out_with_all_below() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("keep/cache")).unwrap();
    for name in ["keep/a.o", "keep/a.c", "keep/cache/x", ".gitignore"] {
        fs::write(root.path().join(name), b"*.c\n").unwrap();
    }
    let mut filter = Filter::new();
    filter.exclude(b"*.o");
    filter.exclude(b"cache");
    let names = |read: BulkRead| {
        let (found, ..) = deliver(read);
        found.keys().map(|path| path.strip_prefix(root.path()).unwrap().display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(BulkRead::new([root.path()]).filter(filter)), [".gitignore", "keep/a.c"]);
    assert_eq!(names(BulkRead::new([root.path()]).gitignore(true)), [".gitignore", "keep/a.o", "keep/cache/x"]);
}
