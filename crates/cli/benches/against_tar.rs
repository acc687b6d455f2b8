//! The program beside GNU tar: modelled disk time from cold, time with everything cached, and memory.
//!
//! `make bench` runs it as root and writes the figures into docs/BENCHMARKS.md, with the commands that gave them. Trees
//! and images are those of the tests, by the same seed.

#![allow(dead_code, unused_imports, unused_macros, reason = "the tests use more of the harness")]

#[path = "../tests/real/disk_model.rs"]
mod disk_model;
#[path = "../tests/real/image.rs"]
mod image;
#[path = "../tests/real/run.rs"]
mod run;
#[path = "../tests/real/trace.rs"]
mod trace;
#[path = "../tests/real/tree.rs"]
mod tree;

use std::{
    fmt::Write,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use disk_model::Disk;
use image::{Fs, Image};
use run::{onesweep, output, program, say, text};

const IMAGE_BYTES: u64 = 8 << 30;
const FILES: u64 = 20_000;
const PAIRS: usize = 10;
const BEGIN: &str = "<!-- figures: written by `make bench` -->\n";
const END: &str = "<!-- end of figures -->\n";

fn main() {
    // `cargo test --benches` runs this too, with `--test`: then there is nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Err(reason) = image::may_mount() {
        panic!("benchmarks make and mount images: {reason}");
    }
    let mut page = machine();
    page += &cold(Fs::Ext4);
    page += &cold(Fs::Xfs);
    page += &warm();
    page += &memory();
    publish(&format!("\n{page}"));
}

fn shell(line: &str) -> String {
    text(&output(Command::new("sh").args(["-c", line]))).trim().to_owned()
}

fn machine() -> String {
    format!(
        "Measured at commit `{}` on {} processors ({}), Linux {}, {}. Seed {}.\n\n",
        shell("git describe --always --dirty 2>/dev/null || echo unknown"),
        shell("nproc"),
        shell("grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 || true"),
        shell("uname -r"),
        shell("tar --version | head -1"),
        run::seed(),
    )
}

/// What is measured against: the same metadata as `onesweep tar` writes.
fn gnu_tar(root: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--format=posix", "--pax-option=delete=atime,delete=ctime", "-cf", "-", "-C"]).arg(root).arg(".");
    tar
}

fn our_tar(options: &[&str], root: &Path) -> Command {
    let mut tar = onesweep(["tar"]);
    tar.args(options).args(["-cf", "-", "-C"]).arg(root).arg(".");
    tar
}

/// Modelled disk time of the whole trace, metadata and data, from cold.
fn cold(fs: Fs) -> String {
    let mut image = tree::aged(fs, FILES, IMAGE_BYTES);
    let root = image.root().join("tree");
    let mut rows: Vec<(String, Command)> = vec![("`tar -cf -`".into(), gnu_tar(&root))];
    let mut by_inode = gnu_tar(&root);
    by_inode.arg("--sort=inode");
    rows.push(("`tar --sort=inode -cf -`".into(), by_inode));
    for options in [
        &["--order", "directory"][..],
        &["--order", "inode"],
        &["--order", "first-extent"],
        &["--order", "fragment"],
        &["--device"],
        &["--device", "--strategy", "unmerged"],
    ] {
        rows.push((format!("`onesweep tar {} -cf -`", options.join(" ")), our_tar(options, &root)));
    }
    let mut table = format!(
        "### From cold on a disk that seeks: {}, {FILES} files, recipe `random`\n\n\
         Modelled time of all read requests that reach the device (`tests/real/disk_model.rs`: Barracuda 7200.11).\n\n\
         | command | requests | MB read | seek s | turn s | transfer s | disk time s | GNU tar ÷ this |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
        fs.name()
    );
    let mut tar_ms = None;
    for (name, command) in rows {
        let requests = trace::from_cold(&mut image, command);
        let cost = Disk::of(IMAGE_BYTES).serve(&requests);
        let bytes: u64 = requests.iter().map(|request| request.bytes).sum();
        let total = cost.total_ms();
        let tar = *tar_ms.get_or_insert(total);
        let seconds = [cost.seek_ms, cost.turn_ms, cost.transfer_ms, total].map(|ms| format!("{:.2}", ms / 1000.0));
        let row = format!(
            "| {name} | {} | {} | {} | {:.1} |",
            cost.requests,
            bytes / 1_000_000,
            seconds.join(" | "),
            tar / total
        );
        say(&row);
        table += &row;
        table.push('\n');
    }
    table + "\n"
}

fn seconds(mut command: Command) -> f64 {
    let start = Instant::now();
    let mut running = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut out = running.stdout.take().expect("a pipe");
    let mut buffer = vec![0; 1 << 20];
    while out.read(&mut buffer).expect("an archive") > 0 {}
    assert!(running.wait().expect("it ends").success(), "{command:?}");
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Everything cached: no disk at all. Pairs run in turns, so that a slow moment of the machine meets both.
fn warm() -> String {
    let mut page = format!(
        "### With everything cached\n\n\
         `tar --format=posix --pax-option=delete=atime,delete=ctime -cf - -C TREE . | cat >/dev/null` and the same of \
         `onesweep tar`, {PAIRS} pairs in turns; the ratio is the median of the pairs' ratios, with the least and the \
         greatest beside it.\n\n\
         | tree | GNU tar s | onesweep s | onesweep ÷ GNU tar |\n|---|--:|--:|--:|\n"
    );
    let image = tree::aged(Fs::Ext4, FILES, IMAGE_BYTES);
    let small = Image::new(Fs::Ext4, 4 << 30);
    for folder in 0..100 {
        tree::many(&small.root().join(format!("many/{folder:02}")), 1000);
    }
    let trees: [(String, PathBuf); 3] = [
        (format!("{FILES} files, recipe `random`"), image.root().join("tree")),
        ("100000 files of 0 or 13 bytes".into(), small.root().join("many")),
        ("/usr/share of this machine".into(), "/usr/share".into()),
    ];
    for (name, root) in trees {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for warming in 0..PAIRS + 1 {
            let pair = (seconds(gnu_tar(&root)), seconds(our_tar(&[], &root)));
            if warming > 0 {
                theirs.push(pair.0);
                ours.push(pair.1);
            }
        }
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        let (theirs, ours, ratio) = (median(theirs), median(ours), median(ratios));
        let row = format!("| {name} | {theirs:.3} | {ours:.3} | {ratio:.2} ({least:.2} to {greatest:.2}) |");
        say(&row);
        let _ = writeln!(page, "{row}");
    }
    page + "\n"
}

fn memory() -> String {
    let image = Image::new(Fs::Ext4, 20 << 30);
    let root = image.root().join("tree");
    for folder in 0..1000 {
        tree::many(&root.join(format!("{folder:04}")), 1000);
    }
    let mut page = String::from(
        "### Memory with 1,000,000 files\n\n`/usr/bin/time -v`, maximum resident set size.\n\n\
         | command | MiB |\n|---|--:|\n",
    );
    for options in ["--budget 1M", "--budget 64M", "--budget 64M --device", "--budget 1M --catalog-limit 16M"] {
        let mut timed = Command::new("/usr/bin/time");
        timed.arg("-v").arg(program()).args(["sum", "--algorithm", "md5"]).args(options.split(' ')).arg(&root);
        let out = timed.stdout(Stdio::null()).output().expect("time runs");
        assert!(out.status.success(), "{}", text(&out.stderr));
        let said = text(&out.stderr);
        let kib = said.lines().find_map(|line| line.trim().strip_prefix("Maximum resident set size (kbytes): "));
        let mib = kib.expect("a figure").parse::<u64>().expect("a number") >> 10;
        let row = format!("| `onesweep sum --algorithm md5 {options} TREE` | {mib} |");
        say(&row);
        let _ = writeln!(page, "{row}");
    }
    page + "\n"
}

/// Puts figures between their marks in a page; what stands around them stays.
fn publish(figures: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/BENCHMARKS.md");
    let old = fs::read_to_string(&page).expect("the page");
    let (before, rest) = old.split_once(BEGIN).expect("the mark before the figures");
    let (_, after) = rest.split_once(END).expect("the mark after the figures");
    fs::write(&page, format!("{before}{BEGIN}{figures}{END}{after}")).expect("the page is written");
    say(&format!("written to {}", page.display()));
}
