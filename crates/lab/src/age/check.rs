//! Whether files lie as a recipe promises.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::fragments;
use super::recipe::Promise;
use super::recipes::fragmented::{Line, TABLE};

/// How far a figure may be from the recipe's.
const TOLERANCE: f64 = 0.05;

/// How often a file that came out in pieces is made again.
const ATTEMPTS: u32 = 8;

/// What was found of files up to a size.
#[derive(Debug, Serialize)]
pub(crate) struct Class {
    bytes_most: u64,
    /// Of all files.
    percent: f64,
    fragments_per_file: f64,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Found {
    /// Files that had to be made again, since the first time something lay in their way.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_again: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<Class>,
}

/// Holds what lies below `root` against a promise.
pub(crate) fn check(promise: Promise, root: &Path) -> Result<Found, String> {
    match promise {
        Promise::OneFragmentEach => one_fragment_each(root),
        Promise::FragmentsByClass => {
            let mut files = Vec::new();
            fragments::of_tree(root, &mut |_, size, fragments| files.push((size, fragments)))?;
            let classes = classes(&files);
            judge(&classes)?;
            Ok(Found { classes, ..Found::default() })
        }
    }
}

/// DAFT's measurements presume files in one piece, but NTFS keeps a part of its table in the middle of the volume, and a
/// file that comes to it is cut.
fn one_fragment_each(root: &Path) -> Result<Found, String> {
    let mut made_again = 0;
    for _ in 0..ATTEMPTS {
        let mut broken: Vec<PathBuf> = Vec::new();
        fragments::of_tree(root, &mut |path, _, fragments| {
            if fragments > 1 {
                broken.push(path.to_owned());
            }
        })?;
        if broken.is_empty() {
            return Ok(Found { made_again: Some(made_again), ..Found::default() });
        }
        for path in broken {
            let path = root.join(path);
            again(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            made_again += 1;
        }
        crate::mount::run("sync", ["--file-system".as_ref(), root.as_os_str()])?;
    }
    Err(format!("the recipe wants every file in one piece, but {ATTEMPTS} times some were not"))
}

/// Puts a copy in a file's place. The file is there until then, so that the copy comes to lie elsewhere.
fn again(path: &Path) -> io::Result<()> {
    let copy = path.with_extension("again");
    fs::copy(path, &copy)?;
    File::open(&copy)?.sync_all()?;
    fs::rename(&copy, path)
}

/// The classes of the table, from sizes and fragments. A file without blocks of its own is one fragment: its inode.
fn classes(files: &[(u64, u64)]) -> Vec<Class> {
    let class = |line: &Line| {
        let within = files.iter().filter(|file| file.0 <= line.bytes_most);
        let (count, fragments) = within.fold((0_u64, 0), |sum, file| (sum.0 + 1, sum.1 + file.1.max(1)));
        Class {
            bytes_most: line.bytes_most,
            percent: 100.0 * count as f64 / files.len().max(1) as f64,
            fragments_per_file: fragments as f64 / count.max(1) as f64,
        }
    };
    TABLE.iter().map(class).collect()
}

fn judge(classes: &[Class]) -> Result<(), String> {
    for (class, line) in classes.iter().zip(TABLE) {
        let kb = line.bytes_most >> 10;
        let off = |found: f64, wanted: f64| (found / wanted - 1.0).abs() > TOLERANCE;
        if off(class.percent, 100.0 * line.share) {
            let (found, wanted) = (class.percent, 100.0 * line.share);
            return Err(format!("{found:.1} % of the files have at most {kb} KB, but the recipe wants {wanted:.1} %"));
        }
        if off(class.fragments_per_file, line.fragments) {
            let (found, wanted) = (class.fragments_per_file, line.fragments);
            return Err(format!(
                "files of at most {kb} KB have {found:.3} fragments, but the recipe wants {wanted:.2}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::Write as _;

    use super::*;
    use crate::age::image::PlainMount;

    /// A small ext4 whose free blocks stand alone, but for those that it keeps to itself: some 80.
    fn riddled(dir: &Path) -> PlainMount {
        let (image, root) = (dir.join("image"), dir.join("root"));
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let options = ["-q", "-F", "-b", "4096", "-m", "0", "-N", "4096", "-O", "^has_journal"];
        crate::mount::run("mkfs.ext4", options.iter().map(OsStr::new).chain([image.as_os_str()])).unwrap();
        fs::create_dir(&root).unwrap();
        let mounted = PlainMount::writable(&image, &root, "ext4", "noatime").unwrap();
        let written = |number: &u32| fs::write(root.join(format!("f{number}")), [1; 4096]).is_ok();
        let last = (0..).take_while(written).last().unwrap();
        File::open(&root).unwrap().sync_all().unwrap();
        crate::mount::run("sync", ["--file-system".as_ref(), root.as_os_str()]).unwrap();
        let _ = fs::remove_file(root.join(format!("f{}", last + 1)));
        for number in (0..last).step_by(2) {
            fs::remove_file(root.join(format!("f{number}"))).unwrap();
        }
        mounted
    }

    #[test]
    fn a_file_that_never_comes_out_whole_breaks_the_promise() {
        if onesweep_sys::user::effective_uid() != 0 || !Path::new("/dev/loop-control").exists() {
            let _ =
                writeln!(io::stderr(), "skipped: a_file_that_never_comes_out_whole_breaks_the_promise: no mounts here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut mounted = riddled(dir.path());
        let root = dir.path().join("root");
        fs::write(root.join("apart"), vec![2; 1 << 20]).unwrap();
        crate::mount::run("sync", ["--file-system".as_ref(), root.as_os_str()]).unwrap();
        let broken = check(Promise::OneFragmentEach, &root).unwrap_err();
        assert!(broken.contains("every file in one piece, but 8 times"), "{broken}");
        // With room for it in one piece, it is made again, and keeps its bytes.
        for entry in fs::read_dir(&root).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with('f') {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let found = check(Promise::OneFragmentEach, &root).unwrap();
        assert!(found.made_again >= Some(1), "{found:?}");
        assert_eq!(fs::read(root.join("apart")).unwrap(), vec![2; 1 << 20]);
        assert_eq!(check(Promise::OneFragmentEach, &root).unwrap().made_again, Some(0));
        mounted.end().unwrap();
    }

    /// 1,000 files by the table, with some fragments more in the first class.
    fn files(more: u64) -> Vec<(u64, u64)> {
        let mut files = vec![(1 << 10, 1); 879 - 97];
        files.extend([(100 << 10, 2); 97]);
        files.extend([(400 << 10, 2); 69].into_iter().chain([(500 << 10, 12); 3]));
        files.extend([(1 << 20, 4); 22].into_iter().chain([(2 << 20, 9); 27]));
        files[0].1 += more;
        files
    }

    #[test]
    fn figures_that_are_off_are_named() {
        let found = classes(&files(0));
        assert!((found[0].fragments_per_file - 1.11).abs() < 0.001, "{found:?}");
        assert_eq!(judge(&found), Ok(()));
        let complaint = judge(&classes(&files(60))).unwrap_err();
        assert!(complaint.contains("128 KB") && complaint.contains("1.179"), "{complaint}");
        let few = judge(&classes(&files(0)[400..])).unwrap_err();
        assert!(few.contains("% of the files have at most 128 KB"), "{few}");
        // A file in an inode is whole.
        assert!((classes(&[(100, 0)])[0].fragments_per_file - 1.0).abs() < 1e-9);
    }
}
