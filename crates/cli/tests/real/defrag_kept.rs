//! `onesweep defrag` with old places that are kept, and the ways back.

use std::{fs, os::unix::process::CommandExt, process::Command};

use serde_json::Value;

use crate::{
    defrag::{defrag, entries, filefrag, scatter},
    image::{Fs, Image},
    run::{finish, onesweep, output, root_test, text},
    tree,
};

/// What is kept is told in the plan, moves back, and is freed; and it is not moved itself.
#[test]
fn what_was_moved_goes_back() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 512 << 20);
    let root = image.root().join("tree");
    scatter(&root, 200);
    image.cold();
    let (before, there) = (entries(&root), filefrag(&root));

    let planned = defrag(&["--keep", "-n"], &root, 0);
    assert!(planned["held_blocks"].as_u64() > Some(200) && planned["undo"].is_null(), "{planned}");
    assert!(!image.root().join(".onesweep").exists(), "nothing was made");
    let said = text(&finish(onesweep(["defrag", "--keep", "-n"]).arg(&root), 0).stdout);
    assert!(said.contains(&format!("\nto keep: {} blocks, ", planned["held_blocks"])), "{said}");

    let told = defrag(&["--keep"], &root, 0);
    assert_eq!((&told["held_blocks"], &told["passes"]), (&planned["held_blocks"], &1.into()), "{told}");
    assert_eq!(told["moved_bytes"].as_u64(), told["held_blocks"].as_u64().map(|blocks| blocks * 4096));
    let id = told["undo"].as_str().expect("a name").to_owned();
    assert!(filefrag(&root) != there && entries(&root) == before);
    let all = defrag(&["-n"], &image.root(), 0);
    assert_eq!((&all["files"], &all["stayed"]), (&told["files"], &serde_json::json!({})), "{all}");

    for known in ["none", "../undo", ""] {
        for does in ["--undo", "--forget"] {
            let out = finish(onesweep(["defrag", does, known]).arg(&root), 2);
            let wanted = format!("tree: no old places are kept as {known}; there are {id}\n");
            assert!(text(&out.stderr).ends_with(&wanted), "{}", text(&out.stderr));
        }
    }
    let out = finish(onesweep(["defrag", "--undo", &id]).arg(&root).arg(image.root()), 2);
    assert!(text(&out.stderr).contains("name one directory of it"), "{}", text(&out.stderr));

    let undone = defrag(&["--undo", &id], &root, 0);
    assert_eq!((&undone["moved_files"], &undone["moved_bytes"]), (&told["moved_files"], &told["moved_bytes"]));
    assert_eq!((&undone["stayed"], &undone["is_complete"]), (&serde_json::json!({}), &true.into()), "{undone}");
    assert!(filefrag(&root) == there && entries(&root) == before);
    let said = text(&finish(onesweep(["defrag", "--undo", &id]).arg(&root), 0).stdout);
    assert!(
        said.starts_with("0 files moved back, ") && said.contains(" files lay at their old places already\n"),
        "{said}"
    );

    // Another process that moves files so: nothing is moved, and one line says why.
    let folder = fs::File::open(image.root().join(".onesweep/undo")).expect("a folder");
    folder.lock().expect("a lock");
    for words in [["--keep", "--force"], ["--undo", &id]] {
        let out = finish(onesweep(["defrag", "-q"]).args(words).arg(&root), 2);
        let said = text(&out.stderr);
        assert!(
            said.ends_with("moves files of this file system; wait until it ends\n") && said.lines().count() == 1,
            "{said}"
        );
    }
    assert!(filefrag(&root) == there);
    drop(folder);
    // One that is damaged keeps its own region.
    let manifest = image.root().join(".onesweep/undo").join(&id).join("000000.json");
    fs::write(&manifest, "{\"what\":").expect("a file");
    let undone = defrag(&["--undo", &id], &root, 1);
    assert_eq!((&undone["unread_regions"], &undone["is_complete"]), (&1.into(), &false.into()), "{undone}");
    let out = finish(onesweep(["defrag", "--undo", &id]).arg(&root), 1);
    assert!(text(&out.stderr).contains("000000.json: cannot read what leads back: "), "{}", text(&out.stderr));
    assert!(
        text(&out.stdout).contains("1 regions stay: what leads them back can't be read\n"),
        "{}",
        text(&out.stdout)
    );

    let out = finish(onesweep(["defrag", "--json", "--forget", &id]).arg(&root), 0);
    let freed: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert!(freed["freed_bytes"].as_u64() >= told["moved_bytes"].as_u64(), "{freed}");
    let out = finish(onesweep(["defrag", "--undo", &id]).arg(&root), 2);
    assert!(text(&out.stderr).contains("; there are none\n"), "{}", text(&out.stderr));
    image.unmount();
    output(Command::new("e2fsck").arg("-fn").arg(image.device()));
    image.mount();
    assert!(entries(&root) == before);
}

/// An ordinary user may keep old places where the mount is that user's own; elsewhere the path is named, and nothing moves.
#[test]
fn users_keep_where_they_may() {
    root_test!();
    const NOBODY: u32 = 65_534;
    let image = Image::new(Fs::Ext4, 1 << 30);
    let root = image.root().join("tree");
    scatter(&root, 60);
    for entry in fs::read_dir(&root).expect("a folder") {
        std::os::unix::fs::chown(entry.expect("one").path(), Some(NOBODY), Some(NOBODY)).expect("an owner");
    }
    std::os::unix::fs::chown(&root, Some(NOBODY), Some(NOBODY)).expect("an owner");
    tree::sync(&root);
    // Where the program lies may be closed to others.
    let program = image.root().join("program");
    crate::run::copy_program(&crate::run::program(), &program);
    let there = filefrag(&root);
    let as_nobody = |words: &[&str], code| {
        let mut command = Command::new(&program);
        command.arg("defrag").args(words).arg("tree").current_dir(image.root()).uid(NOBODY).gid(NOBODY);
        finish(&mut command, code)
    };
    let out = as_nobody(&["--keep", "--force"], 2);
    assert!(
        text(&out.stderr).contains("/.onesweep: cannot make this folder for old places: Permission denied; "),
        "{}",
        text(&out.stderr)
    );
    assert!(filefrag(&root) == there);

    std::os::unix::fs::chown(image.root(), Some(NOBODY), Some(NOBODY)).expect("an owner");
    let told: Value = serde_json::from_slice(&as_nobody(&["--keep", "--force", "--json"], 0).stdout).expect("JSON");
    let id = told["undo"].as_str().expect("a name");
    assert!(filefrag(&root) != there);
    let out = finish(onesweep(["defrag", "--undo", id]).arg(&root), 2);
    assert!(text(&out.stderr).contains("it belongs to user 65534; run as that user"), "{}", text(&out.stderr));
    as_nobody(&["--undo", id], 0);
    assert!(filefrag(&root) == there);
    as_nobody(&["--forget", id], 0);
}
