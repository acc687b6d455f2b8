//! What `onesweep serve --http` answers to whom: what `du` run by that user would print, and nothing of what is hidden.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    image::{Fs, Image},
    run::root_test,
    web_server::{NOBODY, Web, child, du, figures, tree},
};

/// Each directory by path and by numbers: what GNU du, run by the owner of the token, says of it and of those in it.
#[test]
fn a_token_shows_what_du_would_show_its_user() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let web = Web::start(&image, &[]);
    for (uid, token) in [(0, &web.root), (NOBODY, &web.nobody)] {
        for below in ["", "a", "a/b", "c", "mixed", "private", "way/home"] {
            let path = root.join(below);
            let listing = web.listing(token, &format!("path={}", path.display()));
            assert_eq!(figures(&listing["total"]), du(uid, &path), "{uid} {below}: {listing}");
            assert_eq!(listing["path"], path.to_str().expect("text").trim_end_matches('/'));
            for child in listing["children"].as_array().expect("a list") {
                let inside = path.join(child["name"].as_str().expect("text"));
                assert_eq!(figures(&child["total"]), du(uid, &inside), "{uid} {}", inside.display());
            }
            let facts = fs::metadata(&path).expect("its facts");
            let by_numbers = web.listing(token, &format!("dev={}&ino={}", facts.dev(), facts.ino()));
            assert_eq!(by_numbers, listing, "{uid} {below}");
        }
    }
    let whole = web.listing(&web.root, &format!("path={}", root.display()));
    assert_eq!((&whole["partial"], &whole["denied"]), (&Value::Bool(false), &Value::Bool(false)));
    let seen = web.listing(&web.nobody, &format!("path={}", root.display()));
    assert_eq!((&seen["partial"], &seen["denied"]), (&Value::Bool(true), &Value::Bool(false)));
    assert_eq!(child(&seen, "private")["denied"], true);
    assert_eq!((&child(&seen, "mixed")["denied"], &child(&seen, "mixed")["partial"]), (&false.into(), &true.into()));
    assert_eq!(child(&seen, "a")["partial"], false);
    let private = web.listing(&web.nobody, &format!("path={}", root.join("private").display()));
    assert_eq!((&private["denied"], &private["children"]), (&true.into(), &Value::Array(vec![])));

    // A private file grows, and nothing of that shows; a public one does.
    fs::write(root.join("private/inside/grown"), vec![1; 1 << 20]).expect("a file");
    assert_eq!(web.listing(&web.nobody, &format!("path={}", root.display())), seen);
    fs::write(root.join("a/b/grown"), vec![1; 1 << 20]).expect("a file");
    crate::tree::sync(&root);
    let grown = web.listing(&web.nobody, &format!("path={}", root.display()));
    assert_eq!(figures(&grown["total"]), du(NOBODY, &root));
}

/// Who may only come through a directory has to know the names in it, which numbers would tell.
#[test]
fn numbers_tell_no_names_that_nobody_may_list() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let named = |below: &str| {
        let facts = fs::metadata(root.join(below)).expect("its facts");
        (format!("path={}", root.join(below).display()), format!("dev={}&ino={}", facts.dev(), facts.ino()))
    };
    for below in ["way/secret/deeper", "way/home/own"] {
        fs::create_dir_all(root.join(below)).expect("a directory");
        fs::write(root.join(below).join("f"), [1; 5000]).expect("a file");
    }
    // Everybody is told where file systems are mounted.
    let above = root.parent().expect("it is mounted somewhere").to_owned();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o711)).expect("a mode");
    crate::tree::sync(&root);
    let web = Web::start(&image, &[]);
    for (below, is_known) in
        [("way/secret", false), ("way/secret/deeper", false), ("way/home", true), ("a/b", true), ("way", true)]
    {
        let (path, numbers) = named(below);
        let (by_path, by_numbers) = (web.listing(&web.nobody, &path), web.listing(&web.root, &numbers));
        assert_eq!(by_path["path"], by_numbers["path"]);
        for freshness in ["exact", "cached"] {
            let (status, said) = web.get(&web.nobody, &format!("/api/directory?{numbers}&freshness={freshness}"));
            assert_eq!(status, if is_known { 200 } else { 404 }, "{below}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
    // It is the user's own, but nobody who may not list it is told what is in it.
    chown(root.join("way/home/own"), Some(0), None).expect("an owner");
    fs::set_permissions(root.join("way/home"), fs::Permissions::from_mode(0o300)).expect("a mode");
    let (path, numbers) = named("way/home/own");
    web.listing(&web.nobody, &path);
    assert_eq!(web.get(&web.nobody, &format!("/api/directory?{numbers}")).0, 404);
    assert_eq!(web.get(&web.root, &format!("/api/directory?{numbers}")).0, 200);
}

/// Nothing that happens in hidden directories changes what is told to who can't see it, however little time there is.
#[test]
fn what_happens_in_hidden_directories_shows_nowhere() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let web = Web::start_with(&image, &[], &["--check-open-every", "1s", "--harvest-after", "1h"].map(OsStr::new));
    let ask = |token: &str, more: &str| web.listing(token, &format!("path={}{more}", root.display()));
    let seen = ask(&web.nobody, "");
    assert_eq!(seen["exact"], true, "{seen}");
    // More than anybody reads at once.
    for number in 0..300 {
        let inside = root.join(format!("private/inside/{number}"));
        fs::create_dir(&inside).expect("a directory");
        fs::write(inside.join("f"), vec![1; 5000]).expect("a file");
        fs::write(root.join(format!("private/{number}")), "x").expect("a file");
    }
    for more in ["&max_ms=0", "", "&max_ms=0"] {
        assert_eq!(ask(&web.nobody, more), seen, "{more}");
    }
    assert_eq!(ask(&web.root, "")["exact"], true);
    let mut mapping = Command::new("xfs_io");
    let mut mapping = mapping
        .arg(root.join("private/inside/f1"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("xfs_io; try `make deps`");
    mapping.stdin.as_mut().expect("a pipe").write_all(b"mmap -rw 0 4096\n").expect("it is told");
    while ask(&web.root, "")["exact"] == true {
        assert!(mapping.try_wait().expect("its state").is_none(), "it ended");
        // It says nothing once it has mapped the file.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for more in ["", "&max_ms=0"] {
        assert_eq!(ask(&web.nobody, more), seen, "a hidden file is mapped: {more}");
    }
    drop(mapping.stdin.take());
    mapping.wait().expect("it ends");
}

/// Nothing comes to light of what lies in a directory that the user can't search: not even whether it is there.
#[test]
fn what_is_hidden_is_as_if_it_were_not_there() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    std::os::unix::fs::symlink(root.join("a"), root.join("private/link")).expect("a link");
    let web = Web::start(&image, &[]);
    let ask = |path: &Path| web.get(&web.nobody, &format!("/api/directory?path={}", path.display()));
    let none = ask(&root.join("nothing"));
    assert_eq!(none.0, 404);
    for hidden in ["private/inside", "private/nothing", "private/link", "private/../a", "way/home/../../private/inside"]
    {
        let said = ask(&root.join(hidden));
        assert!(said == none || hidden.contains("..") && said.0 == 400, "{hidden}: {said:?}");
    }
    let inside = fs::metadata(root.join("private/inside")).expect("its facts");
    let by_numbers = |token: &str, ino: u64| web.get(token, &format!("/api/directory?dev={}&ino={ino}", inside.dev()));
    assert_eq!(by_numbers(&web.nobody, inside.ino()), none);
    assert_eq!(by_numbers(&web.nobody, 999_999), none);
    assert_eq!(by_numbers(&web.root, inside.ino()).0, 200);
    // The mount point lies in a directory that is closed: what is mounted there is out of reach as well.
    let above = root.parent().expect("a folder");
    let mode = fs::metadata(above).expect("its facts").permissions();
    fs::set_permissions(above, fs::Permissions::from_mode(0o700)).expect("a mode");
    let closed = (ask(&root.join("a")), by_numbers(&web.nobody, fs::metadata(root.join("a")).expect("facts").ino()));
    fs::set_permissions(above, mode).expect("a mode");
    assert_eq!(closed, (none.clone(), none));
    assert_eq!(ask(&root.join("a")).0, 200);
}
