//! Rights by a group and by an access list: who may look into a directory by these is shown it, and nobody else.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

use crate::{
    du::{named, sorted_lines},
    image::{Fs, Image},
    run::{output, root_test, run, text},
    serving::Serving,
    tree::sync,
    web_server::{NOBODY, Web, du, figures},
};

/// A group that the user is in or not, and another one.
const TEAM: u32 = 54_242;
const OTHERS: u32 = 54_243;

fn setfacl(change: &[&str], directory: &Path) {
    run(Command::new("setfacl").args(change).arg(directory));
}

/// Directories with a file further down, and who may look into them: each by another rule.
fn tree(root: &Path) {
    let make = |name: &str, mode: u32, group: u32| {
        let directory = root.join(name);
        fs::create_dir_all(directory.join("inside")).expect("directories");
        fs::write(directory.join("inside/f"), vec![1; 9000]).expect("a file");
        chown(&directory, None, Some(group)).expect("a group");
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).expect("a mode");
        directory
    };
    let user = |rights: &str| format!("u:{NOBODY}:{rights}");
    make("open", 0o755, 0);
    make("team", 0o750, TEAM);
    make("not-team", 0o705, TEAM);
    make("own-group", 0o750, NOBODY);
    setfacl(&["-m", &user("rx")], &make("named", 0o700, 0));
    setfacl(&["-m", &user("-")], &make("shut-out", 0o755, 0));
    setfacl(&["-m", &user("x")], &make("searched", 0o700, 0));
    setfacl(&["-m", &user("r")], &make("listed", 0o700, 0));
    setfacl(&["-m", &format!("{},m::-", user("rx"))], &make("masked", 0o750, TEAM));
    setfacl(&["-m", &format!("g:{TEAM}:rx")], &make("named-group", 0o700, 0));
    setfacl(&["-m", &format!("g:{TEAM}:-,g:{OTHERS}:rx")], &make("one-of-two-groups", 0o705, 0));
    sync(root);
}

/// What is done, and how.
type Step<'a> = (&'static str, Box<dyn Fn() + 'a>);

/// What changes while it is served.
fn changes(root: &Path) -> Vec<Step<'_>> {
    let acl = move |name: &'static str, change: Vec<String>| -> Box<dyn Fn() + '_> {
        Box::new(move || setfacl(&change.iter().map(|word| &**word).collect::<Vec<_>>(), &root.join(name)))
    };
    let modify = |change: String| vec!["-m".into(), change];
    vec![
        ("the user is named", acl("team", modify(format!("u:{NOBODY}:rx")))),
        ("the user is named no more", acl("named", vec!["-b".into()])),
        ("the mask lets through", acl("masked", modify("m::rx".into()))),
        ("a right more", acl("searched", modify(format!("u:{NOBODY}:rx")))),
        ("another user is named", acl("searched", modify("u:1:rwx".into()))),
        ("a right less", acl("searched", modify(format!("u:{NOBODY}:x")))),
        ("the group is shut out", acl("named-group", modify(format!("g:{TEAM}:x")))),
        ("the group is another one", Box::new(|| chown(root.join("own-group"), None, Some(OTHERS)).expect("a group"))),
    ]
}

/// Runs something as the user, in these groups beside the user's own.
fn as_user(groups: &[u32], command: &Command) -> Command {
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    let groups = if groups.is_empty() { "--clear-groups".into() } else { format!("--groups={}", groups.join(",")) };
    let mut user = Command::new("setpriv");
    user.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), groups]).arg(command.get_program());
    user.args(command.get_args());
    user
}

#[test]
fn du_goes_by_groups_and_access_lists() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 512 << 20);
        let root = image.root();
        tree(&root);
        let serving = Serving::start(&image);
        let compare = |when: &str| {
            let mut shown_to = Vec::new();
            for groups in [&[][..], &[TEAM], &[OTHERS], &[1, TEAM, OTHERS]] {
                for options in [&["-s"][..], &["-b"], &["-s", "--inodes"]] {
                    let mut plain = Command::new("du");
                    let expected = as_user(groups, plain.args(options).arg(&root)).output().expect("du runs");
                    let shown = as_user(groups, serving.du(options, &root).arg("-v")).output().expect("it runs");
                    let said = text(&shown.stderr);
                    let (by_server, told): (Vec<&str>, Vec<&str>) =
                        said.lines().partition(|line| line.contains("from the server"));
                    let when = format!("{} {when}, in {groups:?}, {options:?}", fs.name());
                    assert_eq!(sorted_lines(&shown.stdout), sorted_lines(&expected.stdout), "{when}");
                    assert_eq!(named(told.join("\n").as_bytes()), named(&expected.stderr), "{when}");
                    assert!(!by_server.is_empty(), "{when}: {said}");
                    assert_eq!(shown.status.code(), expected.status.code(), "{when}");
                    shown_to.push(shown.stdout);
                }
            }
            shown_to
        };
        let mut before = compare("at first");
        assert!(before.chunks(3).all(|shown| shown[0] != text(&output(&mut serving.du(&["-s"], &root))).as_bytes()));
        for (what, change) in changes(&root) {
            change();
            let after = compare(what);
            assert_eq!(after != before, what != "another user is named", "{}: {what}", fs.name());
            before = after;
        }
        serving.end();
    }
}

/// The same by HTTP, where the groups are those that the machine has the user in.
#[test]
fn the_page_goes_by_groups_and_access_lists() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    tree(&root);
    let web = Web::start_with(&image, &[], &[]);
    let compare = |when: &str| {
        let listing = web.listing(&web.nobody, &format!("path={}", root.display()));
        assert_eq!(figures(&listing["total"]), du(NOBODY, &root), "{when}: {listing}");
        let mut shown = Vec::new();
        for child in listing["children"].as_array().expect("a list") {
            let inside = root.join(child["name"].as_str().expect("text"));
            assert_eq!(figures(&child["total"]), du(NOBODY, &inside), "{when}: {}", inside.display());
            let can_list = as_user(&[], Command::new("ls").arg("-l").arg(&inside)).output().expect("ls runs");
            assert_eq!(child["denied"], !can_list.status.success(), "{when}: {child}");
            shown.push((child["name"].clone(), child["denied"].clone(), child["total"].clone()));
        }
        shown
    };
    let mut before = compare("at first");
    let denied = |name: &str, shown: &[(serde_json::Value, serde_json::Value, _)]| {
        shown.iter().find(|(child, ..)| child == name).is_some_and(|(_, denied, _)| denied == true)
    };
    for name in ["open", "not-team", "own-group", "named", "one-of-two-groups"] {
        assert!(!denied(name, &before), "{name}");
    }
    for name in ["team", "shut-out", "searched", "listed", "masked", "named-group"] {
        assert!(denied(name, &before), "{name}");
    }
    for (what, change) in changes(&root) {
        change();
        let after = compare(what);
        // Its group is none of the user's anyhow.
        let changes_nothing = ["another user is named", "the group is shut out"].contains(&what);
        assert_eq!(after != before, !changes_nothing, "{what}");
        before = after;
    }
}
