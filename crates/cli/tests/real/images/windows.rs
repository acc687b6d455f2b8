//! Images whose names take more memory than there may be used: they go by windows.

use std::{fs, os::unix::fs::MetadataExt, process::Command};

use super::{Made, SUM, ntfs, of_kernel};
use crate::{
    equality::differences,
    image::Fs,
    run::{figure, finish, onesweep, output, root_test, run, summary, text},
    tree::{sum_lines, sums},
};

fn windows_deliver_the_same(made: &Made) {
    let root = made.named(":");
    for (limit, large) in [("64K", "4M"), ("4K", "64K")] {
        let options = ["--catalog-limit", limit, "--large", large];
        let out = finish(onesweep(SUM).args(options).arg(made.named(":/")), 0);
        let lines = sum_lines(&out.stdout);
        assert_eq!(lines.len(), made.sums.len(), "each once");
        assert_eq!(differences(&made.sums_below(&root), &lines.into_iter().collect()), None, "{limit}");
        let told = summary(&out.stderr);
        assert!(figure(&told, "windows") > if limit == "4K" { 10 } else { 1 }, "{}", text(&out.stderr));
        assert_eq!(figure(&told, "files") + 1, made.sums.len() as u64, "a further name is no further file");

        let list = output(onesweep(["list", "-0", "--all"]).args(options).arg(made.file()));
        let mut listed: Vec<Vec<u8>> = list
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| super::below(&root, path))
            .collect();
        listed.sort();
        assert_eq!(listed, made.paths, "{limit}");

        let archive = made.folder.join("archive.tar");
        finish(onesweep(["tar", "-cf"]).arg(&archive).args(options).arg(made.file()), 0);
        let extracted = made.folder.join(&format!("extracted {limit}"));
        fs::create_dir(&extracted).expect("a folder");
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&extracted));
        assert_eq!(differences(&made.sums_below(&extracted), &sums(&[&extracted])), None, "{limit}");
        let inode = |name: &[u8]| {
            let path = extracted.join(std::str::from_utf8(name).expect("text"));
            fs::symlink_metadata(path).map(|found| (found.ino(), found.nlink())).expect("a file")
        };
        assert_eq!(inode(b"further name").1, 2, "the two names are one file");
    }
    let tiny = ["--catalog-limit", "4K"];
    let one = finish(onesweep(SUM).args(tiny).arg(made.named(":/large")), 0);
    assert_eq!(sum_lines(&one.stdout)[0].1, made.sums[&b"large"[..]]);
    let folder = finish(onesweep(SUM).args(tiny).arg(made.named(":/folder 0")), 0);
    let below = made.sums.iter().filter(|(path, _)| path.starts_with(b"folder 0/")).count();
    assert_eq!(sum_lines(&folder.stdout).len(), below);
    let excluded = finish(onesweep(SUM).args(tiny).args(["--exclude", "folder *"]).arg(made.named(":/")), 0);
    let kept = made.sums.keys().filter(|path| !path.starts_with(b"folder ")).count();
    assert_eq!(sum_lines(&excluded.stdout).len(), kept);
    assert_eq!(figure(&summary(&excluded.stderr), "errors"), 0);
    for path in [":/none", ":/none/below", ":/folder 0/none"] {
        for command in [&SUM[..], &["find"]] {
            let out = finish(onesweep(command).args(tiny).arg(made.named(path)), 2);
            assert!(text(&out.stderr).contains("no such file or directory inside"), "{}", text(&out.stderr));
        }
    }
    for path in [":/large", ":/folder 0", ":/folder 0/."] {
        let found = |options: &[&str]| {
            let out = output(onesweep(["find", "-0"]).args(options).arg(made.named(path)));
            let mut paths: Vec<Vec<u8>> = out.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
            paths.sort();
            paths
        };
        assert_eq!(found(&["--catalog-limit", "16K"]), found(&[]), "{path}");
    }
    let planned = finish(onesweep(["sum", "--show-plan", "--json"]).args(tiny).arg(made.named(":/")), 0);
    assert_eq!(sum_lines(&planned.stdout).len(), made.sums.len());
}

#[test]
fn an_image_larger_than_the_catalogue_goes_by_windows() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        windows_deliver_the_same(&of_kernel(fs, 500));
    }
    windows_deliver_the_same(&ntfs(500));
}
