//! `onesweep list`: names in the order of the disk for other tools, and the places of the files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    equality::differences,
    image::{Fs, Image},
    run::{finish, onesweep, output, path_of, root_test, run, seed, skipped, text},
    tree::{self, Varied, manifest, sums},
};

/// The lowest address of the extents that hold data, in bytes of the device, by `filefrag`; `None` if there is none.
fn lowest_address(path: &Path) -> Option<u64> {
    // In units of a byte: `   0:  0.. 4095:  139264.. 143359:  4096:  last,eof`.
    let told = text(&output(Command::new("filefrag").args(["-v", "-b1"]).arg(path)));
    let is_extent = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit()) && line.contains("..");
    let written = told.lines().filter(is_extent).filter(|line| !line.contains("unwritten"));
    let start = |line: &str| line.split(':').nth(2)?.split("..").next()?.trim().parse().ok();
    written.map(|line| start(line).unwrap_or_else(|| panic!("no physical range: {line}"))).min()
}

fn varied(fs: Fs) -> (Image, PathBuf) {
    let mut image = Image::new(fs, 640 << 20);
    let root = image.root().join("tree");
    tree::varied(&root, fs, &Varied { files: 200, sparse: 1 << 20 }, seed());
    image.cold();
    (image, root)
}

/// GNU tar takes the list, and its archive is that of the whole tree.
#[test]
fn tar_takes_the_list() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let (image, root) = varied(fs);
        let out = image.beside("out");
        fs::create_dir(&out).expect("a folder");
        let archive = image.beside("a.tar");
        let mut list = onesweep(["list", "--all", "-0", "."]);
        let mut list = list.current_dir(&root).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut tar = Command::new("tar");
        tar.args(["--format=posix", "--xattrs", "--xattrs-include=*", "--acls", "-S", "--no-recursion", "-cf"]);
        run(tar
            .arg(&archive)
            .args(["--null", "-T", "-"])
            .current_dir(&root)
            .stdin(list.stdout.take().expect("a pipe")));
        assert!(list.wait().expect("it ends").success());
        let mut extract = Command::new("tar");
        extract.args(["-p", "--same-owner", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls"]);
        extract.args(["--delay-directory-restore", "-xf"]);
        run(extract.arg(&archive).arg("-C").arg(&out));
        let plain = |root: &Path| -> BTreeMap<_, _> {
            manifest(root).into_iter().map(|(name, (entry, _))| (name, entry)).collect()
        };
        let (there, extracted) = (plain(&root), plain(&out));
        for (name, entry) in &there {
            assert_eq!(Some(entry), extracted.get(name), "{}: {name:?}", fs.name());
        }
        assert_eq!(there.len(), extracted.len(), "{}", fs.name());
    }
}

/// Each name of a file with several is listed.
#[test]
fn all_names_are_listed() {
    root_test!();
    let (_image, root) = varied(Fs::Ext4);
    for options in [&[][..], &["--catalog-limit", "64K"], &["--order", "directory"]] {
        let out = finish(onesweep(["list", "-0"]).args(options).arg(&root), 0);
        let mut listed: Vec<&[u8]> = out.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        let count = listed.len();
        let there = output(Command::new("find").arg(&root).args(["-type", "f", "-print0"]));
        let there: BTreeSet<&[u8]> = there.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(count, listed.len(), "{options:?}: a name came twice");
        assert!(listed.into_iter().collect::<BTreeSet<_>>() == there, "{options:?}");
    }
}

/// Any program takes the list, and then meets every byte, in the order of the list.
#[test]
fn cat_takes_the_list() {
    root_test!();
    let (_image, root) = varied(Fs::Xfs);
    let listed = finish(onesweep(["list", "-0"]).arg(&root), 0).stdout;
    let mut list = onesweep(["list", "-0"]).arg(&root).stdout(Stdio::piped()).spawn().expect("it starts");
    let bytes = output(Command::new("xargs").args(["-0", "cat"]).stdin(list.stdout.take().expect("a pipe")));
    assert!(list.wait().expect("it ends").success());
    let names: Vec<PathBuf> = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(path_of).collect();
    let expected = names.iter().flat_map(|name| fs::read(name).expect("a file")).collect::<Vec<u8>>();
    assert_eq!(names.len(), sums(&[&root]).len());
    assert!(bytes == expected, "{} bytes instead of {}", bytes.len(), expected.len());
}

/// The line of the help, to a folder instead of another machine.
#[test]
fn rsync_takes_the_list() {
    root_test!();
    if Command::new("rsync").arg("--version").output().is_err() {
        return skipped("no rsync here");
    }
    let (image, root) = varied(Fs::Ext4);
    let out = image.beside("out");
    fs::create_dir(&out).expect("a folder");
    let mut list = onesweep(["list", "-0"]).arg(&root).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut rsync = Command::new("rsync");
    run(rsync.args(["-a", "-0", "--files-from=-", "/"]).arg(&out).stdin(list.stdout.take().expect("a pipe")));
    assert!(list.wait().expect("it ends").success());
    let below = |path: &Path| out.join(path.strip_prefix("/").expect("an absolute path"));
    let there = sums(&[&root]).into_iter();
    let there = there.map(|(name, sum)| (below(&path_of(&name)).into_os_string().into_vec(), sum)).collect();
    assert_eq!(differences(&there, &sums(&[&below(&root)])), None);
}

/// Addresses are the lowest of those that the kernel tells `filefrag`, and the list rises by them.
#[test]
fn addresses_are_those_of_the_kernel() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Ext4Small, Fs::Xfs, Fs::Btrfs] {
        let (image, root) = varied(fs);
        // With its own trees at hand, btrfs is told of by places on its devices, which filefrag does not know.
        let hidden = "treesearch";
        let mut list = onesweep(["list", "--json", "--order", "fragment"]);
        let out = finish(list.arg(&root).env("ONESWEEP_HIDE", hidden), 0);
        let mut compared = 0;
        let mut addresses = Vec::new();
        for line in out.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let file: serde_json::Value = serde_json::from_slice(line).expect("an object on each line");
            addresses.extend(file["address"].as_u64());
            if file.get("path_hex").is_some() {
                continue;
            }
            let path = PathBuf::from(file["path"].as_str().expect("a path"));
            let metadata = fs::metadata(&path).expect("the file is there");
            assert_eq!(file["size"].as_u64(), Some(metadata.size()), "{path:?}");
            if let Some(address) = file["address"].as_u64() {
                assert_eq!(Some(address), lowest_address(&path), "{}: {path:?}", fs.name());
                compared += 1;
            }
        }
        assert!(compared > 100, "{}: only {compared} files have an address", fs.name());
        assert!(addresses.is_sorted(), "{}: the list does not rise", fs.name());
        let mut long = onesweep(["list", "--long", "--order", "fragment"]);
        let long = finish(long.arg(&root).env("ONESWEEP_HIDE", hidden), 0);
        let lines: Vec<&[u8]> = long.stdout.split(|byte| *byte == b'\n').skip(1).collect();
        let column = |line: &&[u8]| text(line).split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
        assert_eq!(lines.iter().filter_map(column).collect::<Vec<_>>(), addresses, "{}", fs.name());
        for order in ["inode", "directory"] {
            assert_eq!(places(&root, order), places(&root, "fragment"), "{}: by {order}", fs.name());
        }
        drop(image);
    }
}

/// Address and fragments of each file, by name.
fn places(root: &Path, order: &str) -> BTreeMap<String, (Option<u64>, Option<u64>)> {
    let out = finish(onesweep(["list", "--json", "--order", order]).arg(root), 0);
    let lines = out.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let files = lines.map(|line| serde_json::from_slice::<serde_json::Value>(line).expect("an object on each line"));
    files.map(|file| (file["path"].to_string(), (file["address"].as_u64(), file["fragments"].as_u64()))).collect()
}

/// What comes from the list of names is what was in it, whatever bytes the names have.
#[test]
fn names_are_bytes() {
    root_test!();
    let (_image, root) = varied(Fs::Ext4);
    let out = finish(onesweep(["list", "-0"]).arg(root.join("names")), 0);
    for name in out.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        assert!(path_of(name).is_file(), "{:?}", path_of(name));
    }
    let json = finish(onesweep(["list", "--json"]).arg(root.join("names")), 0);
    let hex: String = root.join("names").as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let whole = text(&json.stdout);
    // not-\xff\xfe-utf8
    assert!(whole.contains(&format!("\"path_hex\":\"{hex}2f6e6f742dfffe2d75746638\"")), "{whole}");
}
