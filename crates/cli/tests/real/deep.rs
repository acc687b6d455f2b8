//! Trees that are deeper than a path can be long, and than a thread's stack would be for who goes down by calling itself.

use std::{
    ffi::OsStr,
    fs,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    process::{Command, Output},
};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::{
    image::{Fs, Image},
    run::{finish, onesweep, root_test, text},
    web_server::{NOBODY, Web},
};

const LEVELS: usize = 5000;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// One directory in another; the lowest is root's alone. Names of one file are above, halfway down, and at the bottom.
fn deep(image: &Image) {
    fs::set_permissions(image.beside(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(image.root().join("file"), vec![1; 10_000]).expect("a file");
    let top: OwnedFd = rustix::fs::open(image.root(), DIRECTORY, Mode::empty()).expect("the topmost");
    let mut at = top.try_clone().expect("the same");
    for level in 1..=LEVELS {
        rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).expect("a folder");
        at = rustix::fs::openat(&at, "d", DIRECTORY, Mode::empty()).expect("it opens");
        if level == LEVELS / 2 || level == LEVELS {
            rustix::fs::linkat(&top, "file", &at, "another", AtFlags::empty()).expect("a link");
        }
    }
    rustix::fs::fchmod(&at, Mode::RWXU).expect("a mode");
    crate::tree::sync(&image.root());
}

fn as_nobody(command: &mut Command) -> Output {
    let mut user = Command::new("setpriv");
    user.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
    user.arg(command.get_program()).args(command.get_args()).output().expect("it runs")
}

/// The paths of all lines, and what their figures come to: in which line a file with several names counts is up to the order.
fn lines(out: &Output) -> (Vec<&[u8]>, u64) {
    let lines = out.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut sum = 0;
    let mut paths: Vec<&[u8]> = lines
        .map(|line| {
            let tab = line.iter().position(|&byte| byte == b'\t').expect("a tab");
            sum += text(&line[..tab]).parse::<u64>().expect("a figure");
            &line[tab + 1..]
        })
        .collect();
    paths.sort();
    (paths, sum)
}

#[test]
fn a_tree_of_5000_levels_is_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    deep(&image);
    fs::write(image.beside("summaries.toml"), "[owner]\nby = \"owner\"\n").expect("a file");
    let summaries = image.beside("summaries.toml");
    let web = Web::start_with(&image, &[], &[OsStr::new("--summaries"), summaries.as_os_str()]);
    let options: [&[&str]; 4] = [&["-s"], &["-sb"], &["-S", "-b", "-d9999"], &["-s", "--inodes"]];
    // Of walks one says as much.
    for (socket, options) in [(image.beside("socket"), &options[..]), ("/nowhere".into(), &options[2..3])] {
        for options in options {
            let mut gnu = Command::new("du");
            gnu.args(*options).arg(image.root());
            let mut ours = onesweep(["du", "--socket"]);
            ours.arg(&socket).args(*options).arg(image.root());
            let (expected, shown) = (as_nobody(&mut gnu), as_nobody(&mut ours));
            assert_eq!(shown.status.code(), Some(1), "{options:?}: {}", text(&shown.stderr));
            assert!(lines(&shown) == lines(&expected), "{options:?} at {}", socket.display());
            let (expected, shown) = (gnu.output().expect("du runs"), finish(&mut ours, 0));
            assert!(lines(&shown) == lines(&expected), "{options:?} at {} as root", socket.display());
        }
    }
    let mut walked = onesweep(["du", "-a", "-d2"]);
    assert_eq!(as_nobody(walked.arg(image.root())).status.code(), Some(1));
    let query = format!("path={}", image.root().display());
    for api in ["directory", "breakdown", "history"] {
        let by = if api == "breakdown" { "&by=owner" } else { "" };
        for token in [&web.root, &web.nobody] {
            let (status, said) = web.get(token, &format!("/api/{api}?{query}{by}"));
            assert_eq!(status, 200, "{api}: {said}");
        }
    }
    // The server goes on.
    let du = ["du", "-sb"].map(OsStr::new);
    let mut asked = onesweep(du);
    asked.arg("-v").arg("--socket").arg(image.beside("socket")).arg(image.root());
    assert!(text(&finish(&mut asked, 0).stderr).contains("from the server"));
}
