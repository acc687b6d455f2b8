//! `onesweep du` by each two of the options of GNU du, in both orders: what one says must not undo what the other does.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use crate::{
    image::{Fs, Image},
    run::{onesweep, root_test, text},
    serving::Serving,
    tree::Rng,
};

/// Units, what is counted, and what is shown.
const OPTIONS: [&str; 17] = [
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
];

/// How links are taken.
const LINKS: [&str; 5] = ["-L", "-D", "-H", "-P", "-b"];

/// Sizes that no two units tell alike, holes, and a file with two names in one directory: of two that lie apart each counts where it finds
/// it first.
fn tree(root: &Path) {
    for (number, name) in ["a", "a/b", "a/b/c", "d", "outside"].into_iter().enumerate() {
        fs::create_dir(root.join(name)).expect("a folder");
        for file in 0..3 {
            let content = Rng::new((number * 10 + file) as u64).bytes(number * 7000 + file * 130);
            fs::write(root.join(name).join(format!("f{file}")), content).expect("a file");
        }
    }
    fs::hard_link(root.join("a/f2"), root.join("a/second")).expect("a name");
    fs::File::create(root.join("a/sparse")).and_then(|file| file.set_len(3_700_000)).expect("a file");
    symlink("../outside", root.join("a/to outside")).expect("a link");
    symlink("a", root.join("to a")).expect("a link");
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
    for (options, path) in [(&OPTIONS[..], "a"), (&LINKS[..], "to a")] {
        for pair in pairs(options) {
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
