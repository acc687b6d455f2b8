//! Trees deeper than a path or a stack can be.

use std::{
    fs,
    path::{Path, PathBuf},
};

use onesweep::BulkRead;

use crate::trees::deliver;

#[test]
fn a_path_longer_than_the_kernel_takes_is_read() {
    let root = tempfile::tempdir().unwrap();
    let name = "x".repeat(200);
    let mut directory = fs::File::open(root.path()).unwrap();
    // As deep as it goes with relative steps alone.
    for _ in 0..30 {
        rustix_mkdir(&directory, &name);
        directory = open_below(&directory, &name);
    }
    write_below(&directory, "deep", b"content");
    let (found, errors, _) = deliver(BulkRead::new([root.path()]));
    assert!(errors.is_empty(), "{errors:?}");
    let (path, content) = found.iter().next().unwrap();
    assert!(path.as_os_str().len() > 6000);
    assert_eq!(content, b"content");
    remove_deep(root.path());
}

#[test]
fn a_tree_deeper_than_the_stack_is_swept_by_windows() {
    let root = tempfile::tempdir().unwrap();
    let mut directory = fs::File::open(root.path()).unwrap();
    for _ in 0..12_000 {
        rustix_mkdir(&directory, "d");
        directory = open_below(&directory, "d");
    }
    write_below(&directory, "deep", b"content");
    let read = BulkRead::new([root.path()]).catalog_limit(100_000);
    let (found, errors, _) = deliver(read);
    remove_deep(root.path());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(found.len(), 1);
}

fn rustix_mkdir(directory: &fs::File, name: &str) {
    fs::create_dir(proc_path(directory).join(name)).unwrap();
}

fn open_below(directory: &fs::File, name: &str) -> fs::File {
    fs::File::open(proc_path(directory).join(name)).unwrap()
}

fn write_below(directory: &fs::File, name: &str, content: &[u8]) {
    fs::write(proc_path(directory).join(name), content).unwrap();
}

fn proc_path(directory: &fs::File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

fn remove_deep(root: &Path) {
    let status = std::process::Command::new("rm").arg("-rf").arg(root).status().unwrap();
    assert!(status.success());
    fs::create_dir(root).unwrap();
}
