//! What a directory came to over time, as `onesweep serve --http` tells it, and to whom.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::Value;

use crate::{
    image::{Fs, Image},
    run::{onesweep, root_test},
    web_server::{Web, du, tree},
};

/// What a directory came to is kept over restarts, and told to those who see all of it.
#[test]
fn a_history_is_told_to_who_sees_all_of_it() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let history = |web: &Web, token: &str, below: &str| {
        let (status, body) =
            web.get(token, &format!("/api/history?freshness=cached&path={}", root.join(below).display()));
        assert_eq!(status, 200, "{below}: {body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    let points = |history: &Value| {
        let point = |point: &Value| ["allocated", "bytes", "inodes"].map(|key| point[key].as_i64().expect("a figure"));
        history["points"].as_array().expect("a list").iter().map(point).collect::<Vec<_>>()
    };
    let web = Web::start(&image, &[]);
    assert_eq!(points(&history(&web, &web.root, "a")), Vec::<[i64; 3]>::new(), "nobody has asked yet");
    for below in ["", "a", "private"] {
        web.listing(&web.root, &format!("path={}", root.join(below).display()));
    }
    let before = du(0, &root.join("a"));
    for token in [&web.root, &web.nobody] {
        let told = history(&web, token, "a");
        assert_eq!((points(&told), &told["partial"]), (vec![before], &Value::Bool(false)));
        assert_eq!(told["path"], root.join("a").to_str().expect("text"));
    }
    assert_eq!(points(&history(&web, &web.root, "")), [du(0, &root)]);
    for below in ["", "private"] {
        let told = history(&web, &web.nobody, below);
        assert_eq!((points(&told), &told["partial"]), (Vec::new(), &Value::Bool(true)), "{below}");
    }
    let hidden = |name: &str| web.get(&web.nobody, &format!("/api/history?path={}", root.join(name).display()));
    assert_eq!((hidden("private/inside"), hidden("nothing").0), (hidden("private/nothing"), 404));
    let (status, said) = web.get(&web.root, &format!("/api/history?limit=3&path={}", root.display()));
    assert!(status == 400 && said.contains("limit isn't known here"), "{said}");
    fs::write(root.join("a/b/grown"), vec![1; 1 << 20]).expect("a file");
    crate::tree::sync(&root);
    let after = du(0, &root.join("a"));
    // Of each second the last point is kept.
    let is_of_this_second = |told: &Value| told["answered_at"] == told["points"][0]["at"];
    while is_of_this_second(&history(&web, &web.root, "a")) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    web.end();
    // A server that starts notes what it finds.
    let web = Web::start(&image, &[]);
    while points(&history(&web, &web.nobody, "a")) != [before, after] {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// What was closed while it was noted isn't told when it is open, moved elsewhere or gone, but to who owns it.
#[test]
fn a_history_tells_nothing_of_what_was_closed_then() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let web = Web::start(&image, &[]);
    let bytes = |token: &str, below: &str| {
        let (status, body) = web.get(token, &format!("/api/history?path={}", root.join(below).display()));
        let told: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &told["partial"]), (200, &Value::Bool(false)), "{below}: {body}");
        let points = told["points"].as_array().expect("a list");
        points.iter().map(|point| point["bytes"].as_i64().expect("a figure")).collect::<Vec<_>>()
    };
    let names = ["a", "private", "private/inside", "mixed", "way/home"];
    let before = names.map(|below| bytes(&web.root, below));
    assert!(before.iter().all(|points| points.len() == 1), "{before:?}");
    fs::rename(root.join("private/inside"), root.join("inside")).expect("it moves");
    fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::remove_dir_all(root.join("mixed/shut")).expect("it goes");
    for (number, below) in ["a", "private", "inside", "mixed", "way/home"].into_iter().enumerate() {
        assert_eq!(bytes(&web.root, below), before[number], "{below}");
        let is_told = ["a", "way/home"].contains(&below);
        assert_eq!(bytes(&web.nobody, below), if is_told { &before[number][..] } else { &[] }, "{below}");
    }
}

/// There is room for so many, and who asks for the lines of a large tree doesn't take all of that.
#[test]
fn of_many_lines_the_largest_are_noted() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root().join("many");
    let name = |number: usize| root.join(format!("d{number:03}"));
    for number in 0..250 {
        fs::create_dir_all(name(number)).expect("a directory");
        fs::write(name(number).join("file"), vec![1; 4096 * (1 + number)]).expect("a file");
    }
    crate::tree::sync(&root);
    let web = Web::start(&image, &[]);
    let mut top = onesweep(["top", "--socket"]);
    crate::run::run(top.arg(image.beside("socket")).arg(&root));
    let is_noted = |directory: &Path| {
        let (status, body) = web.get(&web.root, &format!("/api/history?freshness=cached&path={}", directory.display()));
        assert_eq!(status, 200, "{body}");
        let told: Value = serde_json::from_str(&body).expect("JSON");
        !told["points"].as_array().expect("a list").is_empty()
    };
    assert!(is_noted(&root) && (160..250).all(|number| is_noted(&name(number))));
    let noted = (0..250).filter(|&number| is_noted(&name(number))).count();
    assert!(noted <= 200, "{noted}");
}
