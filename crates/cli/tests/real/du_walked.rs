//! `onesweep du` with `--sync`, `--within` and `--cached` where it walks, or would have to.

use std::{fs, path::Path, process::Command};

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, onesweep, output, root_test, text},
    serving::Serving,
};

/// Whether parts of a file have no place on the disk yet.
fn waits_in_memory(file: &Path) -> bool {
    text(&output(Command::new("filefrag").arg("-v").arg(file))).contains("delalloc")
}

#[test]
fn all_is_written_before_a_walk() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 512 << 20);
        let root = image.root();
        fs::create_dir(root.join("d")).expect("a directory");
        let above = root.parent().expect("a directory above");
        let (below, file) = (root.join("d"), root.join("d/file"));
        let cases: [(&[&str], &[&Path]); 5] = [
            (&["-s"], &[&root]),
            (&["-a"], &[&root]),
            (&["-s"], &[&root, &below]),
            (&["-s"], &[&file]),
            // The one that is mounted there.
            (&["-s"], &[above]),
        ];
        for (options, paths) in cases {
            fs::write(&file, vec![7; 3 << 20]).expect("a file");
            finish(onesweep(["du", "--sync", "--socket", "/nowhere"]).args(options).args(paths), 0);
            assert!(!waits_in_memory(&file), "{fs:?} {options:?} {paths:?}");
        }
    }
}

/// Two directories that share a file, and one more file that only one has.
fn linked(root: &Path) {
    for name in ["one", "other"] {
        fs::create_dir(root.join(name)).expect("a directory");
    }
    fs::write(root.join("one/f"), vec![1; 50_000]).expect("a file");
    fs::hard_link(root.join("one/f"), root.join("other/f")).expect("a link");
    fs::write(root.join("other/g"), vec![1; 20_000]).expect("a file");
    crate::tree::sync(root);
}

/// What counts once over all of them is found by a walk: that isn't done where nothing is to be read, nor for longer than asked for.
#[test]
fn paths_are_told_each_by_itself_where_no_walk_is_wanted() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let at = |name: &str| image.root().join(name);
    linked(&image.root());
    let serving = Serving::start(&image);
    finish(&mut serving.du(&["-s"], &image.root()), 0);
    for paths in [[at("one"), at("other")], [at("other"), at("other/../other")]] {
        let each: Vec<String> =
            paths.iter().map(|path| text(&finish(&mut serving.du(&["-s"], path), 0).stdout)).collect();
        let once = text(&output(Command::new("du").arg("-s").args(&paths)));
        assert_ne!(each.concat(), once);
        let all = |options: &[&str], code| {
            let told = finish(serving.du(options, &paths[0]).arg(&paths[1]), code);
            (text(&told.stdout), text(&told.stderr))
        };
        assert_eq!(all(&["-s"], 0).0, once);
        assert_eq!(all(&["-s", "--within", "1h"], 0).0, once);
        let (lines, said) = all(&["-sv", "--within", "0s"], 1);
        assert_eq!(lines, each.concat());
        assert!(said.contains("time is up: what lies in more than one of the paths counts in each\n"), "{said}");
        assert!(!said.contains("walked"), "{said}");
        // What is new isn't looked for.
        fs::write(at("other/new"), vec![1; 70_000]).expect("a file");
        let (lines, said) = all(&["-sv", "--cached"], 0);
        assert_eq!(lines, each.concat());
        assert!(said.contains("counts in each: with --cached nothing is read") && !said.contains("walked"), "{said}");
        fs::remove_file(at("other/new")).expect("it goes");
        // Single files aren't stored, which is told, also without `-v`.
        let (lines, said) = all(&["-sl", "--cached"], 0);
        assert_eq!(lines, text(&output(Command::new("du").arg("-sl").args(&paths))));
        assert_eq!(said.matches("walked, for nothing is stored of single files\n").count(), 2, "{said}");
        finish(&mut serving.du(&["-s"], &image.root()), 0);
    }
    serving.end();
}

#[test]
fn a_walk_is_never_told_as_what_is_stored() {
    let folder = Folder::new();
    linked(&folder.join(""));
    let du = |options: &[&str], code| {
        let mut du = onesweep(["du", "-s", "--socket", "/nowhere"]);
        let told = finish(du.args(options).args([folder.join("one"), folder.join("other")]), code);
        (text(&told.stdout), text(&told.stderr))
    };
    let (lines, said) = du(&["--cached"], 0);
    let once = text(&output(Command::new("du").arg("-s").args([folder.join("one"), folder.join("other")])));
    assert_eq!(lines, once);
    assert!(said.contains("walked, for nothing is stored of single files\n"), "{said}");
    let mut one = onesweep(["du", "-s", "--cached", "--socket", "/nowhere"]);
    let said = text(&finish(one.arg(folder.join("one")), 0).stderr);
    assert!(said.contains("walked, for no server answers for it, and nothing is stored of it\n"), "{said}");
    // Where there is no time, it may be that each was walked by then, and not both together.
    let (lines, said) = du(&["--within", "0s"], 1);
    assert!(lines != once && said.contains("time is up"), "{lines}{said}");
}
