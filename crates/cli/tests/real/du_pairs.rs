//! `onesweep du` by each two of the options of GNU du, in both orders: what one says must not undo what the other does.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
    time::{Duration, UNIX_EPOCH},
};

use crate::{
    image::{Fs, Image},
    run::{onesweep, root_test, text},
    serving::Serving,
    tree::Rng,
};

/// Units, what is counted, and what is shown.
const OPTIONS: [&str; 20] = [
    "-b",
    "-h",
    "-k",
    "-m",
    "--si",
    "-B1M",
    "-BkB",
    "-BMiB",
    "--apparent-size",
    "--inodes",
    "-S",
    "-c",
    "-s",
    "-d1",
    "-l",
    "-t1K",
    "-0",
    "-a",
    "-x",
    "--time",
];

/// How links are taken, and what is counted and shown of what they lead to.
const LINKS: [&str; 12] = ["-L", "-D", "-H", "-P", "-b", "-a", "-S", "-s", "-x", "-c", "--inodes", "--time"];

/// Sizes that no two units tell alike, holes, and a file with two names in one directory: of two that lie apart each counts where it finds
/// it first, and of two in one directory each has its line. So there is a tree without such names, too. The newest is what lies deepest.
fn tree(root: &Path) {
    let directories = ["a", "a/b", "a/b/c", "e", "e/b", "e/b/c", "outside"];
    for (number, name) in directories.into_iter().enumerate() {
        fs::create_dir(root.join(name)).expect("a folder");
        for file in 0..3 {
            let content = Rng::new((number * 10 + file) as u64).bytes(number * 7000 + file * 130);
            fs::write(root.join(name).join(format!("f{file}")), content).expect("a file");
        }
    }
    fs::hard_link(root.join("a/f2"), root.join("a/second")).expect("a name");
    for name in ["a", "e"] {
        fs::File::create(root.join(name).join("sparse")).and_then(|file| file.set_len(3_700_000)).expect("a file");
        symlink("../outside", root.join(name).join("to outside")).expect("a link");
        symlink(name, root.join(format!("to {name}"))).expect("a link");
    }
    // Minutes are shown.
    let set = |path: &Path, minutes: u64| {
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + minutes * 60);
        fs::File::open(path).and_then(|file| file.set_modified(time)).expect("a time");
    };
    for (number, name) in (1..).zip(directories) {
        (0..3).for_each(|file| set(&root.join(name).join(format!("f{file}")), number * 100 + file));
    }
    ["a/sparse", "e/sparse"].iter().for_each(|name| set(&root.join(name), 9));
    directories.iter().rev().for_each(|name| set(&root.join(name), 10));
    crate::tree::sync(root);
}

/// Each two of them, in both orders.
fn pairs<'a>(options: &'a [&'a str]) -> impl Iterator<Item = [&'a str; 2]> {
    let with = |one: &'a &'a str| options.iter().map(move |other| [*one, *other]);
    options.iter().flat_map(with).filter(|[one, other]| one != other)
}

/// Lines in an order of their own, with their ends, and whether it ended well.
fn told(found: &Output) -> (Vec<Vec<u8>>, bool) {
    let mut lines: Vec<Vec<u8>> =
        found.stdout.split_inclusive(|byte| b"\n\0".contains(byte)).map(<[u8]>::to_vec).collect();
    lines.sort();
    (lines, found.status.success())
}

#[test]
fn two_options_do_what_both_say() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree(&image.root());
    let serving = Serving::start(&image);
    let mut tried = 0;
    for (options, paths) in [(&OPTIONS[..], ["a", "e"]), (&LINKS[..], ["to a", "to e"])] {
        for pair in pairs(options) {
            let path = paths[usize::from(pair.contains(&"-a"))];
            let du = |mut command: Command| {
                command.args(pair).arg(path).current_dir(image.root()).output().expect("it runs")
            };
            let expected = told(&du(Command::new("du")));
            let ways = [("of a server", serving.socket.as_path()), ("walked", Path::new("/nowhere"))];
            for (way, socket) in ways {
                let mut ours = onesweep(["du", "--socket"]);
                ours.arg(socket);
                let found = du(ours);
                assert_eq!(told(&found), expected, "{pair:?} {way}: {}", text(&found.stderr));
            }
            tried += 1;
        }
    }
    assert_eq!(tried, OPTIONS.len() * (OPTIONS.len() - 1) + LINKS.len() * (LINKS.len() - 1));
    serving.end();
}
