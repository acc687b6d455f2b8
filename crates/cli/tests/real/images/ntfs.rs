//! What only NTFS has: compressed and encrypted files, further streams, reparse points, volumes that were not closed.

use std::{fs, os::unix::fs::FileExt, path::Path, process::Command};

use rustix::fs::{XattrFlags, lsetxattr};
use serde_json::Value;

use super::{
    Made, SUM, every_command_knows_images, every_way_delivers_the_same, fill, ntfs, ntfs_mounted_with, ntfs_with,
};
use crate::{
    equality::differences,
    image::unmount,
    run::{figure, finish, onesweep, output, root_test, run, seed, summary, text},
    tree::{Rng, sum_lines},
};

/// New files in a directory become compressed.
fn compress(folder: &Path) {
    lsetxattr(folder, "system.ntfs_attrib_be", &[0, 0, 8, 0], XattrFlags::empty()).expect("an attribute");
}

/// Bytes that get smaller when they are compressed.
fn words(rng: &mut Rng, length: usize) -> Vec<u8> {
    let words = ["sector ", "cluster ", "head ", "track ", "the ", "seek\n"];
    let mut text = Vec::with_capacity(length + 8);
    while text.len() < length {
        text.extend(words[rng.below(words.len() as u64) as usize].as_bytes());
    }
    text.truncate(length);
    text
}

/// Units of all kinds in files of all sizes, beside the usual ones.
fn fill_compressed(root: &Path) {
    compress(root);
    fill(root, 100);
    let mut rng = Rng::new(seed() + 1);
    let folder = root.join("packed");
    fs::create_dir(&folder).expect("a folder");
    let write = |name: String, bytes: &[u8]| fs::write(folder.join(name), bytes).expect("a file");
    for size in [1, 600, 4096, 5000, 65_535, 65_536, 65_537, 131_072, 300_000, 1_000_001, 3 << 20] {
        write(format!("words {size}"), &words(&mut rng, size));
        write(format!("noise {size}"), &rng.bytes(size));
        write(format!("zeros {size}"), &vec![0; size]);
        let mut mixed = Vec::new();
        while mixed.len() < size {
            let length = rng.below(90_000) as usize;
            mixed.extend(match rng.below(3) {
                0 => words(&mut rng, length),
                1 => rng.bytes(length),
                _ => vec![0; length],
            });
        }
        mixed.truncate(size);
        write(format!("mixed {size}"), &mixed);
    }
    let sparse = fs::File::create(folder.join("sparse")).expect("a file");
    for at in [0, 100_000, 1 << 20, (5 << 20) - 7] {
        sparse.write_all_at(&words(&mut rng, 70_000), at).expect("a part of it");
    }
    sparse.set_len(9 << 20).expect("a hole at its end");
    // In turns, so that the packed units lie in pieces.
    for _ in 0..5 {
        for name in ["grown 1", "grown 2"] {
            let mut file = fs::File::options().create(true).append(true).open(folder.join(name)).expect("a file");
            std::io::Write::write_all(&mut file, &words(&mut rng, 200_000)).expect("more of it");
        }
    }
    write("large words".into(), &words(&mut rng, 12 << 20));
}

#[test]
fn compressed_files_come_unpacked() {
    root_test!();
    let made = ntfs_with(fill_compressed);
    let found = text(&output(onesweep(["find", "--json"]).arg(made.named(":/packed"))));
    let packed = found.lines().filter(|line| line.contains("\"COMPRESSED\"") && !line.contains("\"fragments\":0"));
    assert!(packed.count() > 20, "{found}");
    every_way_delivers_the_same(&made);
    every_command_knows_images(&made);
}

/// A compressed unit whose bytes make no sense costs its file alone.
#[test]
fn a_damaged_unit_is_told() {
    root_test!();
    let made = ntfs_with(|root| {
        compress(root);
        let mut rng = Rng::new(seed());
        fs::write(root.join("sound"), words(&mut rng, 500_000)).expect("a file");
        fs::write(root.join("damaged"), words(&mut rng, 500_000)).expect("a file");
    });
    let found = output(onesweep(["find", "--json", "--name", "damaged"]).arg(made.file()));
    let found: Value = serde_json::from_slice(&found).expect("a line of JSON");
    let image = fs::File::options().write(true).open(made.file()).expect("the image");
    image.write_all_at(&[0xff; 64], found["address"].as_u64().expect("a place")).expect("damage");
    for large in ["256M", "64K"] {
        let out = finish(onesweep(SUM).args(["--large", large]).arg(made.named(":/")), 1);
        let sums = sum_lines(&out.stdout);
        assert_eq!(sums.len(), 1, "{large}");
        assert_eq!(sums[0].1, made.sums[&b"sound"[..]]);
        let told = text(&out.stderr);
        assert!(told.contains("damaged") && told.contains("compression unit"), "{told}");
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Where a file record of a small image begins.
fn record(bytes: &[u8], inode: u64) -> usize {
    number(bytes, 48, 8) * 4096 + inode as usize * 1024
}

/// Where an attribute of a file record begins.
fn attribute(bytes: &[u8], record: usize, kind: usize) -> usize {
    let mut at = record + number(bytes, record + 20, 2);
    while number(bytes, at, 4) != kind {
        at += number(bytes, at + 4, 4);
    }
    at
}

/// Puts other bytes into an image, whose start is in memory.
fn change(made: &Made, changes: impl FnOnce(&mut Vec<u8>)) {
    let file = fs::File::options().read(true).write(true).open(made.file()).expect("the image");
    let mut start = vec![0; 64 << 20];
    file.read_exact_at(&mut start, 0).expect("its start");
    let before = start.clone();
    changes(&mut start);
    for (at, (old, new)) in before.chunks(512).zip(start.chunks(512)).enumerate().filter(|(_, (old, new))| old != new) {
        assert_eq!(old.len(), new.len());
        file.write_all_at(new, at as u64 * 512).expect("a change");
    }
}

#[test]
fn a_volume_that_was_not_closed_is_refused_or_flagged() {
    root_test!();
    let made = ntfs_with(|root| {
        fill(root, 40);
        // A sample, for shards.
        ["one.jpg", "one.json"].iter().for_each(|name| fs::write(root.join(name), name).expect("a file"));
    });
    change(&made, |bytes| {
        let information = attribute(bytes, record(bytes, 3), 0x70);
        let value = information + number(bytes, information + 20, 2);
        bytes[value + 10] |= 1;
    });
    for (command, name) in [("sum", ":/"), ("sum", ""), ("find", ""), ("list", ":/"), ("plan", ":/"), ("tar", "")] {
        let mut refused = onesweep([command]);
        if command == "tar" {
            refused.args(["-cf", "/dev/null"]);
        }
        let out = finish(refused.arg(made.named(name)), 2);
        let told = text(&out.stderr);
        assert!(told.contains("marked as dirty") && told.contains("--force-dirty"), "{command} {name}: {told}");
        if name.is_empty() && command != "find" {
            assert!(told.contains("--metadata walk"), "{told}");
        }
    }
    for command in ["copy", "shard"] {
        let out = finish(onesweep([command]).arg(made.named(":/")).arg(made.folder.join("none")), 2);
        assert!(text(&out.stderr).contains("--force-dirty"), "{command}: {}", text(&out.stderr));
        assert!(!made.folder.join("none").exists(), "{command}");
    }

    let out = finish(onesweep(SUM).arg("--force-dirty").arg(made.named(":/")), 0);
    let sums = sum_lines(&out.stdout).into_iter().collect();
    assert_eq!(differences(&made.sums_below(&made.named(":")), &sums), None);
    let told = summary(&out.stderr);
    assert_eq!(figure(&told, "dirty_files"), figure(&told, "files"));
    let warnings = |stderr: &[u8]| text(stderr).matches("was not closed").count();
    assert_eq!(warnings(&out.stderr), 1);
    let dirty_lines = |out: &[u8], end: &str| text(out).lines().filter(|line| line.ends_with(end)).count();
    assert_eq!(dirty_lines(&out.stderr, ": dirty"), made.sums.len());
    let quiet = finish(onesweep(["sum", "-q", "--force-dirty"]).arg(made.named(":/")), 0);
    assert_eq!((warnings(&quiet.stderr), dirty_lines(&quiet.stderr, ": dirty")), (0, 0));
    // What these write has no place for it either.
    let mut commands = [onesweep(["copy"]), onesweep(["scan", "--command", "true"]), onesweep(["shard"])];
    for (command, to) in commands.iter_mut().zip([Some("copy"), None, Some("shards")]) {
        let to = to.map(|name| made.folder.join(name));
        let out = finish(command.arg("--force-dirty").arg(made.named(":/")).args(to), 0);
        assert_eq!(dirty_lines(&out.stderr, ": dirty"), made.sums.len(), "{}", text(&out.stderr));
    }
    for command in ["list", "find"] {
        let long = finish(onesweep([command, "-l", "--force-dirty"]).arg(made.named(":/")), 0);
        let marked = text(&long.stdout).lines().skip(1).filter(|line| line.contains(" D     ")).count();
        assert_eq!(
            marked,
            if command == "list" { made.sums.len() } else { made.paths.len() },
            "{}",
            text(&long.stdout)
        );
    }
    // Each member says so, and whoever reads the archive has nothing to complain of.
    let archive = made.folder.join("dirty.tar");
    let told = finish(onesweep(["tar", "-v", "--force-dirty", "-cf"]).arg(&archive).arg(made.named(":/")), 0);
    let members = text(&told.stdout).lines().filter(|line| !line.starts_with('{')).count();
    assert!(members >= made.paths.len());
    assert_eq!(dirty_lines(&told.stdout, "\tdirty"), members);
    let bytes = fs::read(&archive).expect("the archive");
    let record = b" comment=onesweep: dirty\n";
    let marked = bytes.windows(record.len()).filter(|window| window == record).count();
    assert!(marked >= members, "{marked} of {members}");
    for program in ["tar", "bsdtar"] {
        for action in ["-tf", "-xf"] {
            let to = made.folder.join(&format!("by {program}"));
            fs::create_dir_all(&to).expect("a folder");
            let out = finish(Command::new(program).arg(action).arg(&archive).arg("-C").arg(&to), 0);
            assert_eq!(text(&out.stderr), "", "{program} {action}");
        }
    }
    let plan = finish(onesweep(["plan", "--force-dirty"]).arg(made.file()), 0);
    assert_eq!(warnings(&plan.stderr), 1);
    let list = finish(onesweep(["list", "--json", "--force-dirty"]).arg(made.file()), 0);
    assert_eq!(text(&list.stdout).lines().filter(|line| line.contains("\"dirty\":true")).count(), made.sums.len());
    assert_eq!(warnings(&list.stderr), 1);
    let found = finish(onesweep(["find", "--json", "--force-dirty"]).arg(made.file()), 0);
    assert_eq!(text(&found.stdout).lines().filter(|line| line.contains("\"DIRTY\"")).count(), made.paths.len());
    assert_eq!(warnings(&found.stderr), 1);
}

/// As it lies there, with its keys, and said so: in the form that ntfs-3g gives who saves encrypted files, and takes back.
#[test]
fn encrypted_files_come_as_they_are() {
    root_test!();
    let raw = |size: u32| {
        let end = size.next_multiple_of(512);
        let mut content: Vec<u8> = (0..end).map(|at| (at / 7) as u8).collect();
        content.extend_from_slice(&(end - size).to_le_bytes()[..2]);
        content
    };
    // Content that ends within a block of the cipher, with one, and with a cluster.
    let sizes = [100_000, 512 * 9, 8192];
    let keys = [&300_u32.to_le_bytes()[..], &[b'k'; 296]].concat();
    let made = ntfs_mounted_with("efs_raw", |root| {
        fs::write(root.join("open"), "open").expect("a file");
        for size in sizes {
            let path = root.join(format!("secret{size}"));
            fs::write(&path, raw(size)).expect("a file");
            rustix::fs::setxattr(&path, "user.ntfs.efsinfo", &keys, rustix::fs::XattrFlags::empty()).expect("keys");
        }
        // Until then it does not read what ends with a cluster.
        unmount(root);
        run(Command::new("ntfs-3g").args(["-o", "efs_raw"]).arg(root.with_file_name("disk.img")).arg(root));
        for size in sizes {
            assert_eq!(fs::read(root.join(format!("secret{size}"))).expect("a file"), raw(size), "what ntfs-3g gives");
        }
    });
    for large in ["256M", "64K"] {
        let out = finish(onesweep(SUM).args(["--large", large]).arg(made.named(":/")), 0);
        let sums = sum_lines(&out.stdout).into_iter().collect();
        assert_eq!(differences(&made.sums_below(&made.named(":")), &sums), None);
        assert!(text(&out.stderr).contains("3 files come encrypted"), "{}", text(&out.stderr));
        assert_eq!(figure(&summary(&out.stderr), "encrypted_files"), 3);
    }
    let copies = tempfile::tempdir().expect("a folder");
    finish(onesweep(["copy"]).arg(made.named(":/secret100000")).arg(copies.path()), 0);
    let copy = copies.path().join("secret100000");
    assert_eq!(fs::read(&copy).expect("a copy"), raw(100_000));
    let mut value = vec![0; 1000];
    let length = rustix::fs::getxattr(&copy, "user.ntfs.efsinfo", &mut value).expect("the keys");
    assert_eq!(value[..length], keys);
    let found = output(onesweep(["find", "--json", "--name", "secret8192"]).arg(made.file()));
    assert!(text(&found).contains("\"ENCRYPTED\""), "{}", text(&found));
}

/// A reparse point for a link that Windows made.
fn reparse_point(tag: u32, target: &str) -> Vec<u8> {
    let target: Vec<u8> = target.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = target.len() as u16;
    let mut data: Vec<u8> = [0, length, length, length].iter().flat_map(|n: &u16| n.to_le_bytes()).collect();
    if tag == 0xa000_000c {
        data.extend([1, 0, 0, 0]);
    }
    data.extend([&target[..], &target].concat());
    [&tag.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), &[0, 0], &data].concat()
}

#[test]
fn streams_and_reparse_points_are_listed() {
    root_test!();
    let made = ntfs_with(|root| {
        let set = |name: &str, attribute: &str, value: &[u8]| {
            lsetxattr(root.join(name), attribute, value, XattrFlags::empty()).expect("an attribute");
        };
        fs::write(root.join("file"), "main").expect("a file");
        set("file", "user.author", b"somebody");
        set("file", "user.größe", &[7; 3000]);
        fs::write(root.join("link"), "").expect("a file");
        set("link", "system.ntfs_reparse_data", &reparse_point(0xa000_000c, r"sub\File"));
        fs::create_dir(root.join("junction")).expect("a folder");
        set("junction", "system.ntfs_reparse_data", &reparse_point(0xa000_0003, r"\??\C:\Users"));
    });
    let found = output(onesweep(["find", "--json"]).arg(made.file()));
    let line = |name: &str| -> Value {
        let suffix = format!(":/{name}");
        let lines = text(&found).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>();
        lines.into_iter().find(|line| line["path"].as_str().is_some_and(|path| path.ends_with(&suffix))).expect(name)
    };
    let file = line("file");
    assert_eq!((&file["streams"][0]["name"], &file["streams"][0]["size"]), (&"author".into(), &8.into()));
    assert_eq!((&file["streams"][1]["name"], &file["streams"][1]["size"]), (&"größe".into(), &3000.into()));
    assert_eq!((&line("link")["target"], &line("link")["type"]), (&"sub/File".into(), &"symbolic link".into()));
    assert_eq!(line("junction")["target"], "C:/Users");
    assert!(line("file").get("target").is_none() && line("link").get("streams").is_none());
    let long = output(onesweep(["find", "-l"]).arg(made.file()));
    assert!(text(&long).contains(":/junction -> C:/Users\n"), "{}", text(&long));

    // Small streams come as the attributes that ntfs-3g shows.
    let archive = made.folder.join("archive.tar");
    finish(onesweep(["tar", "--xattrs", "-cf"]).arg(&archive).arg(made.file()), 0);
    let headers = output(Command::new("tar").args(["--xattrs", "-tvvf"]).arg(&archive));
    assert!(text(&headers).contains("user.author"), "{}", text(&headers));
}

/// Nobody should take a volume for saved whose files are somewhere else.
#[test]
fn files_that_need_a_driver_of_windows_are_counted() {
    root_test!();
    let made = ntfs_with(|root| {
        for (name, tag) in [("link", 0xa000_000c), ("packed", 0x8000_0017), ("in a cloud", 0x9000_001a)] {
            fs::write(root.join(name), "").expect("a file");
            let value = reparse_point(tag, "target");
            lsetxattr(root.join(name), "system.ntfs_reparse_data", &value, XattrFlags::empty()).expect("an attribute");
        }
        fs::write(root.join("plain"), "plain").expect("a file");
    });
    let archive = made.folder.join("archive.tar");
    let mut tar = onesweep(["tar", "--json", "-cf"]);
    let mut sum = onesweep(SUM);
    for command in [tar.arg(&archive).arg(made.file()), sum.arg(made.named(":/"))] {
        let out = finish(command, 0);
        let said = [text(&out.stdout), text(&out.stderr)].concat();
        assert!(said.contains("2 files need drivers of Windows, and are missing"), "{said}");
        assert!(said.contains("\"unknown_reparse_points\":2"), "{said}");
    }
    let found = output(onesweep(["find", "--json"]).arg(made.file()));
    assert_eq!(text(&found).lines().filter(|line| line.contains("\"UNKNOWN_REPARSE\"")).count(), 2);
}

#[test]
fn the_mirror_serves_where_the_mft_is_damaged() {
    root_test!();
    let made = ntfs(40);
    change(&made, |bytes| {
        let first = record(bytes, 0);
        bytes[first..first + 1024].fill(0x5a);
    });
    let out = finish(onesweep(SUM).arg(made.named(":/")), 1);
    let sums = sum_lines(&out.stdout).into_iter().collect();
    assert_eq!(differences(&made.sums_below(&made.named(":")), &sums), None);
    assert!(text(&out.stderr).contains("damaged: expected"), "{}", text(&out.stderr));
    // ntfs-3g agrees that it is damaged.
    let mounted = Command::new("ntfs-3g").arg(made.file()).arg(made.folder.join("mounted")).output().expect("it runs");
    assert!(!mounted.status.success());
}
