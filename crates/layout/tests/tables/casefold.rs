//! Casefolded directories of ext4. Few kernels mount them, so debugfs fills them and tells what they hold, and e2fsck gives
//! them their index, by the hash of folded names. Needs no privilege, but for the mount at the end.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
    process::Command,
};

use onesweep_layout::{
    ImageFile,
    tables::{InodeFlags, ext4::Ext4},
};

use crate::{
    conformance::{Tree, by_kernel, by_tables, compare, scan},
    image::{Image, run},
};

/// Flags of inodes: with extents; casefolded beside; casefolded with its names among the metadata.
const PLAIN: &str = "0x80000";
const CASEFOLDED: &str = "0x40080000";
const CASEFOLDED_INLINE: &str = "0x50000000";

fn make(image: &Path, options: &[&str]) {
    File::create(image).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
    let always = ["-q", "-F", "-b", "1024", "-N", "4096", "-E"];
    run(Command::new("mkfs.ext4").args(always).args(options).arg(image));
}

/// Names in several scripts and cases, none of which is another one folded.
fn names() -> Vec<String> {
    let odd = ["Straße", "ÅNGSTRÖM", "plain", "MiXeD", "ﬁn", "İstanbul", "ΣΑΣ", "é", "E\u{301}tude", "漢字", "ǅ"];
    let many = (0..700).map(|index| format!("{}-ÄÖÜ-{index}", ["Name", "nAmE", "ΝΆΜΕ"][index % 3]));
    odd.into_iter().map(str::to_owned).chain(many).collect()
}

/// Two casefolded directories, one in the other, with names in both, and one with few.
fn fill(image: &Path, source: &Path, flags: &str) {
    fs::write(source, "content").expect("a file");
    let source = source.to_str().expect("UTF-8");
    let mut script = String::new();
    for directory in ["/Folder", "/Folder/BELOW"] {
        script += &format!("mkdir {directory}\nset_inode_field {directory} flags {flags}\ncd {directory}\n");
        for name in names() {
            script += &format!("write {source} {name}\n");
        }
        script += "symlink Link Target\n";
    }
    script += &format!("cd /\nmkdir Few\nset_inode_field /Few flags {flags}\ncd /Few\nwrite {source} É\n");
    debugfs(image, &script);
}

fn debugfs(image: &Path, script: &str) -> String {
    let commands = image.with_extension("debugfs");
    fs::write(&commands, script).expect("a script");
    let out = run(Command::new("debugfs").arg("-w").arg("-f").arg(&commands).arg(image));
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Names and inodes of a directory by debugfs, but `.` and `..`.
fn listed(image: &Path, directory: &str) -> BTreeMap<String, u64> {
    let out = run(Command::new("debugfs").args(["-R", &format!("ls -p {directory}")]).arg(image)).stdout;
    let text = String::from_utf8(out).expect("UTF-8");
    // `/inode/mode/owner/group/name/size/`
    let entries = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split('/').collect();
        Some(((*fields.get(5)?).to_owned(), fields.get(1)?.parse().ok()?))
    });
    entries.filter(|(name, _)| name != "." && name != "..").collect()
}

/// Mends it by e2fsck, which gives directories their index.
pub(crate) fn checked(image: &Path) {
    // 1: it changed something, such as directories that have an index now.
    let out = Command::new("e2fsck").args(["-fyD"]).arg(image).output().expect("e2fsck runs");
    assert!(out.status.code().is_some_and(|code| code < 2), "{}", String::from_utf8_lossy(&out.stdout));
    run(Command::new("e2fsck").arg("-fn").arg(image));
}

fn told(image: &Path) -> Tree {
    by_tables(&mut Ext4::open(ImageFile::open(image).expect("an image")).expect("tables"), &[])
}

/// Holds what tables say of both directories against what was written, and against debugfs.
fn as_written(image: &Path) {
    let tree = told(image);
    for directory in ["Folder", "Folder/BELOW"] {
        let listed = listed(image, directory);
        assert_eq!(listed.len(), names().len() + if directory == "Folder" { 2 } else { 1 }, "{directory}");
        for name in names() {
            let facts = tree.get(format!("{directory}/{name}").as_bytes()).unwrap_or_else(|| panic!("no {name}"));
            assert_eq!((facts.inode, facts.size), (listed[&name], 7), "{directory}/{name}");
        }
        let link = &tree[format!("{directory}/Link").as_bytes()];
        assert_eq!(link.link_target.as_deref(), Some(&b"Target"[..]));
    }
    assert_eq!(tree["Few/É".as_bytes()].inode, listed(image, "Few")["É"]);
    // With the root and `lost+found`.
    assert_eq!(tree.len(), 2 * (names().len() + 1) + 6);
    let kept = scan(&mut Ext4::open(ImageFile::open(image).expect("an image")).expect("tables"));
    let casefolded = kept.inodes.values().filter(|inode| inode.flags.contains(InodeFlags::CASEFOLD));
    assert_eq!(casefolded.count(), 3, "directories that are told to be casefolded");
}

#[test]
fn names_in_casefolded_directories_are_as_they_were_written() {
    for options in [
        &["encoding=utf8", "-O", "casefold"][..],
        &["encoding=utf8-12.1,encoding_flags=strict", "-O", "casefold"],
        &["encoding=utf8", "-O", "casefold,^metadata_csum"],
        &["encoding=utf8", "-O", "casefold,inline_data"],
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        make(&image, options);
        let is_inline = options.iter().any(|option| option.contains("inline_data"));
        fill(&image, &folder.path().join("source"), if is_inline { CASEFOLDED_INLINE } else { CASEFOLDED });
        as_written(&image);
        checked(&image);
        let index = run(Command::new("debugfs").args(["-R", "htree /Folder"]).arg(&image)).stdout;
        assert!(String::from_utf8_lossy(&index).contains("Number of entries"), "{options:?}: no index");
        as_written(&image);
    }
}

/// The kernel lists them as well, once nothing says any more that they are casefolded.
#[test]
fn the_kernel_lists_the_same() {
    let Some(mut image) = Image::new(64 << 20, &["mkfs.ext4", "-q", "-F"]) else { return };
    make(&image.path(), &["encoding=utf8", "-O", "casefold,^metadata_csum"]);
    fill(&image.path(), &image.path().with_extension("source"), CASEFOLDED);
    checked(&image.path());
    let tables = told(&image.path());
    let plain =
        ["/Folder", "/Folder/BELOW", "/Few"].map(|directory| format!("set_inode_field {directory} flags {PLAIN}\n"));
    debugfs(&image.path(), &format!("{}feature -casefold\n", plain.concat()));
    image.mount(&["-t", "ext4"], "ro");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
}
