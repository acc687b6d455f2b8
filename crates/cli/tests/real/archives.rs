//! What comes out of an archive is what went in, to the last attribute, whoever extracts it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, members, onesweep, output, path_of, root_test, run, seed, text},
    tree::{self, Entry, Varied, manifest},
};

struct Extractor {
    extract: fn(&Path, &Path),
    /// libarchive reads -1.25 as -1 and 0.25.
    knows_fractions_before_1970: bool,
}

const GNU_TAR: Extractor = Extractor { extract: by_gnu_tar, knows_fractions_before_1970: true };
const BSDTAR: Extractor = Extractor { extract: by_bsdtar, knows_fractions_before_1970: false };

/// Trees are extracted on ext4, whatever they come from: XFS fills small holes with zeros when a file grows.
fn same_after_extraction(fs: Fs, options: &[&str], extractor: &Extractor) {
    let mut image = Image::new(fs, 1 << 30);
    let root = image.root().join("tree");
    tree::varied(&root, fs, &Varied { files: 300, sparse: 24 << 20 }, seed());
    image.cold();
    let archive = image.beside("archive.tar");
    let mut tar = onesweep(["tar", "--xattrs", "--acls", "-S"]);
    finish(tar.args(options).arg("-cf").arg(&archive).arg("-C").arg(image.root()).arg("tree"), 0);
    // Data is in the archive once, holes are not in it.
    let written = fs::metadata(&archive).expect("the archive").len();
    assert!(written < 40 << 20, "{written} bytes: holes or second names were written out");
    let out = Image::new(Fs::Ext4, 1 << 30);
    (extractor.extract)(&archive, &out.root());
    tree::sync(&out.root());
    let (mut before, mut after) = (manifest(&root), manifest(&out.root().join("tree")));
    if !extractor.knows_fractions_before_1970 {
        for (entry, _) in before.values_mut().chain(after.values_mut()).filter(|(entry, _)| entry.mtime.0 < 0) {
            entry.mtime = (-1, 0);
        }
    }
    compare(&before, &after);
}

/// Insists that two manifests are of the same tree.
pub(crate) fn compare(before: &BTreeMap<PathBuf, (Entry, u64)>, after: &BTreeMap<PathBuf, (Entry, u64)>) {
    for (name, (entry, data)) in before {
        let Some((other, other_data)) = after.get(name) else { panic!("{name:?} is missing") };
        assert_eq!(entry, other, "{name:?} differs");
        // Unwritten space may become a hole; a hole must not be filled.
        assert!(*other_data <= data + 65536, "{name:?} has {other_data} bytes of data instead of {data}");
    }
    for name in after.keys() {
        assert!(before.contains_key(name), "{name:?} came from nowhere");
    }
}

fn by_gnu_tar(archive: &Path, out: &Path) {
    let options =
        ["--preserve-permissions", "--same-owner", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls"];
    run(Command::new("tar").args(options).arg("-xf").arg(archive).arg("-C").arg(out));
}

fn by_bsdtar(archive: &Path, out: &Path) {
    let options = ["-p", "--same-owner", "--numeric-owner", "--xattrs", "--acls", "-S"];
    let mut bsdtar = Command::new("bsdtar");
    let told = bsdtar.args(options).arg("-xf").arg(archive).arg("-C").arg(out).output().expect("bsdtar runs");
    // It complains of names that are no UTF-8, and extracts them all the same.
    let said = text(&told.stderr);
    let complaints = ["can't be converted from UTF-8 to current locale", "Error exit delayed from previous errors"];
    let worse = said.lines().find(|line| !complaints.iter().any(|complaint| line.contains(complaint)));
    assert_eq!(worse, None, "{said}");
}

#[test]
fn gnu_tar_brings_everything_back() {
    root_test!();
    for fs in Fs::MAIN {
        same_after_extraction(fs, &[], &GNU_TAR);
    }
}

#[test]
fn bsdtar_brings_everything_back() {
    root_test!();
    for fs in Fs::MAIN {
        same_after_extraction(fs, &[], &BSDTAR);
    }
}

/// Read from the device, and in windows, where a later name of a file may come in a later window.
#[test]
fn device_mode_and_windows_bring_everything_back() {
    root_test!();
    same_after_extraction(Fs::Ext4, &["--device", "--budget", "1M"], &GNU_TAR);
    same_after_extraction(Fs::Ext4, &["--catalog-limit", "64K", "--budget", "1M"], &BSDTAR);
    same_after_extraction(Fs::Xfs, &["--catalog-limit", "64K", "--large", "64K"], &GNU_TAR);
}

/// The members have the names that GNU tar gives them, each once.
#[test]
fn members_are_those_of_gnu_tar() {
    root_test!();
    let image = Image::new(Fs::Ext4, 640 << 20);
    let root = image.root().join("tree");
    tree::varied(&root, Fs::Ext4, &Varied { files: 300, sparse: 1 << 20 }, seed());
    let (ours, theirs) = (image.beside("ours.tar"), image.beside("theirs.tar"));
    for paths in [&["."][..], &["links", "names"], &["./links/"], &["holes/islands"]] {
        finish(onesweep(["tar", "-cf"]).arg(&ours).arg("-C").arg(&root).args(paths), 0);
        run(Command::new("tar").args(["--format=posix", "-cf"]).arg(&theirs).arg("-C").arg(&root).args(paths));
        let (ours, theirs) = (members(&ours), members(&theirs));
        let only = |a: &[Vec<u8>], b: &[Vec<u8>]| a.iter().find(|name| !b.contains(name)).map(|name| text(name));
        let (ours_only, theirs_only) = (only(&ours, &theirs), only(&theirs, &ours));
        assert!(ours == theirs, "{paths:?}: only ours {ours_only:?}, only GNU tar's {theirs_only:?}");
    }
}

/// Modes and times in the archive are those that GNU tar writes with the same options.
#[test]
fn modes_and_times_are_changed_as_gnu_tar_changes_them() {
    let folder = Folder::new();
    let root = folder.join("tree");
    fs::create_dir_all(root.join("sub")).expect("folders");
    run(Command::new("ln").args(["-s", "nowhere"]).arg(root.join("link")));
    for mode in ["0", "7777", "4750", "2611", "1644", "600"] {
        fs::write(root.join(mode), "x").expect("a file");
        fs::create_dir(root.join("sub").join(mode)).expect("a folder");
        run(Command::new("chmod").arg(mode).arg(root.join(mode)).arg(root.join("sub").join(mode)));
    }
    run(Command::new("touch").args(["-d", "2001-02-03 04:05:06.5 UTC"]).arg(root.join("600")).arg(root.join("sub/0")));
    let modes = [
        "0644",
        "755",
        "00755",
        "4711",
        "00000",
        "a+rX",
        "u=rwX,go=rX",
        "go-rwx",
        "ug+s",
        "a-s",
        "a=",
        "o=g",
        "g=u-w",
        "u+rw,go+rX,go-w",
        "a+t",
        "go=rX,u+rw,a-s",
        "g=s",
        "u-x+X",
        "o+u",
    ];
    let times: [&[&str]; 3] = [&[], &["--mtime=@1000000000"], &["--mtime=@1000000000.25", "--clamp-mtime"]];
    let (ours, theirs) = (folder.join("ours.tar"), folder.join("theirs.tar"));
    let listed = |archive: &Path| {
        let listed = output(Command::new("tar").args(["--utc", "--full-time", "-tvf"]).arg(archive));
        // Columns are as wide as those before them, so the padding depends on the order of the members.
        let unpadded = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut lines: Vec<String> = text(&listed).lines().map(unpadded).collect();
        lines.sort();
        lines
    };
    for (number, mode) in modes.into_iter().enumerate() {
        let (mode, time) = (format!("--mode={mode}"), times[number % times.len()]);
        let mut tar = onesweep(["tar", "--order=directory", "--one-file-system", &mode, "-cf"]);
        finish(tar.arg(&ours).args(time).arg("-C").arg(&root).arg("."), 0);
        let mut tar = Command::new("tar");
        run(tar.args(["--format=posix", &mode, "-cf"]).arg(&theirs).args(time).arg("-C").arg(&root).arg("."));
        assert_eq!(listed(&ours), listed(&theirs), "{mode} {time:?}");
    }
}

/// Lists, compression, owners, times and the totals: what is asked for is in the archive, as GNU tar shows it.
#[test]
fn options_reach_the_archive() {
    let folder = Folder::new();
    let root = folder.join("tree");
    fs::create_dir(&root).expect("a folder");
    for (name, content) in [("plain", "plain content"), ("new\nline", "second"), ("unnamed", "not in the list")] {
        fs::write(root.join(name), content).expect("a file");
        run(Command::new("chmod").arg("640").arg(root.join(name)));
    }
    let (list, archive) = (folder.join("list"), folder.join("archive"));
    fs::write(&list, "plain\0new\nline\0").expect("a list");
    let cases: [(&[&str], &[u8], &str, &str); 4] = [
        (&["-z"], b"\x1f\x8b", "gzip", "someone/others"),
        (&["--zstd"], b"\x28\xb5\x2f\xfd", "zstd", "someone/others"),
        (&["-z", "--numeric-owner"], b"\x1f\x8b", "gzip", "4321/8765"),
        (&["--zstd", "--numeric-owner"], b"\x28\xb5\x2f\xfd", "zstd", "4321/8765"),
    ];
    for (options, magic, program, owners) in cases {
        let mut tar = onesweep(["tar", "-c", "--totals", "--owner=someone:4321", "--group=others:8765"]);
        tar.args(["--mtime=@1000000000", "--null", "-T"]).arg(&list).arg("-C").arg(&root).args(options);
        let out = finish(tar.arg("-f").arg(&archive), 0);
        assert!(fs::read(&archive).expect("the archive").starts_with(magic), "{options:?}");
        let unpacked = output(Command::new(program).arg("-dc").arg(&archive)).len();
        let size = format!("onesweep: Total bytes written: {unpacked} ({}.0 KiB)\n", unpacked / 1024);
        assert_eq!((text(&out.stderr), unpacked % 10_240), (size, 0), "{options:?}");
        let listed = |more: &[&str]| {
            let mut tar = Command::new("tar");
            tar.args(["--utc", "--full-time", "--quoting-style=escape"]).args(more).arg("-tvf").arg(&archive);
            let mut lines: Vec<String> = text(&output(&mut tar)).lines().map(str::to_owned).collect();
            lines.iter_mut().for_each(|line| *line = line.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.sort();
            lines
        };
        let lines = |owners: &str| {
            [(13, "plain"), (6, "new\\nline")]
                .map(|(size, name)| format!("-rw-r----- {owners} {size} 2001-09-09 01:46:40 {name}"))
        };
        assert_eq!(listed(&[]), lines(owners), "{options:?}");
        assert_eq!(listed(&["--numeric-owner"]), lines("4321/8765"), "{options:?}");
        let content = output(Command::new("tar").arg("-xOf").arg(&archive).arg("new\\nline"));
        assert_eq!(text(&content), "second", "{options:?}");
    }
}

/// An image in a list is one of the files there, not what is in it; a device is a node, also where there is none.
#[test]
fn what_is_listed_is_archived_as_it_is() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    fs::write(image.root().join("inside"), b"of the image").expect("a file");
    image.unmount();
    let folder = Folder::new();
    let (tree, archive) = (folder.join("tree"), folder.join("archive.tar"));
    fs::create_dir(&tree).expect("a folder");
    run(Command::new("cp").arg("--sparse=always").arg(image.file()).arg(tree.join("disk.img")));
    run(Command::new("mknod").arg(tree.join("node")).args(["b", "259", "200000"]));
    let list = folder.join("list");
    fs::write(&list, "disk.img\0node\0").expect("a list");
    let device = image.device().to_owned();
    let mut listed = onesweep(["tar", "--null", "-S", "-C"]);
    listed.arg(&tree).arg("-T").arg(&list);
    let mut named = onesweep(["tar", "--no-recursion", "-S", "-C"]);
    named.arg(&tree).args(["disk.img", "node"]).arg(&device);
    for mut tar in [listed, named] {
        finish(tar.arg("-cf").arg(&archive), 0);
        let mut names = members(&archive);
        names.retain(|name| path_of(name) != device.strip_prefix("/").expect("an absolute path"));
        names.sort();
        assert_eq!(names, [b"disk.img".to_vec(), b"node".to_vec()]);
        let content = output(Command::new("tar").arg("-xOf").arg(&archive).arg("disk.img"));
        assert!(content == fs::read(tree.join("disk.img")).expect("the image"), "the image is there as it is");
    }
    let mut asked = onesweep(["tar", "--metadata", "auto", "-C"]);
    fs::write(&list, "disk.img\n").expect("a list");
    finish(asked.arg(&tree).arg("-T").arg(&list).arg("-cf").arg(&archive), 0);
    assert!(members(&archive).contains(&b"./inside".to_vec()), "what was asked for wins");
}

/// In the order of the directories, the archive depends neither on what is cached nor on what the disk has first.
#[test]
fn the_same_tree_gives_the_same_archive() {
    root_test!();
    for kind in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let mut image = Image::new(kind, 640 << 20);
        let root = image.root().join("tree");
        tree::varied(&root, kind, &Varied { files: 300, sparse: 8 << 20 }, seed());
        let mut sums: Vec<Vec<u8>> = Vec::new();
        for round in 0..5 {
            if round < 3 {
                image.cold();
            }
            if round == 2 {
                let some = format!("find {} -type f -name '*1*' -exec cat {{}} + > /dev/null", root.display());
                run(Command::new("sh").args(["-c", &some]));
            }
            let archive = image.beside("a.tar");
            let mut tar =
                onesweep(["tar", "--order=directory", "--one-file-system", "--xattrs", "--acls", "-S", "-cf"]);
            finish(tar.arg(&archive).arg("-C").arg(&root).arg("."), 0);
            sums.push(output(Command::new("sha256sum").stdin(fs::File::open(&archive).expect("the archive"))));
        }
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{}: other bytes than the first time", kind.name());
    }
}

/// `-v` shows names as GNU tar does: no name can take two lines, or tell a terminal what to do.
#[test]
fn names_are_shown_as_gnu_tar_shows_them() {
    let folder = Folder::new();
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder");
    let names: [&[u8]; 7] = [
        b"plain",
        b"new\nline",
        b"esc\x1b[31m",
        b"back\\slash",
        b"\xff\xfe",
        "gr\u{fc}n".as_bytes(),
        b"\t \x7f\x07'\"",
    ];
    names.iter().for_each(|name| fs::write(tree.join(path_of(name)), "x").expect("a file"));
    let shown = |mut tar: Command| {
        let archive = folder.join("archive.tar");
        tar.env("LC_ALL", "C.UTF-8").arg("-cvf").arg(archive).arg("-C").arg(&tree).args(["--no-recursion", "--", "."]);
        let mut lines: Vec<Vec<u8>> =
            output(tar.args(names.map(path_of))).split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    let (ours, theirs) = (shown(onesweep(["tar"])), shown(Command::new("tar")));
    let text =
        |lines: &[Vec<u8>]| lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>();
    assert_eq!(text(&ours), text(&theirs));
    assert_eq!(ours, theirs);
}

/// Absolute names lose their first slash, as everywhere, and the program says so.
#[test]
fn absolute_names_are_made_relative() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    fs::write(image.root().join("a"), b"a").expect("a file");
    let archive = image.beside("archive.tar");
    let out = finish(onesweep(["tar", "-cf"]).arg(&archive).arg(image.root().join("a")), 0);
    let name = image.root().join("a").to_string_lossy().trim_start_matches('/').to_owned();
    assert_eq!(members(&archive), [name.into_bytes()], "{}", text(&out.stderr));
}
