//! Files are moved side by side when they were written, by the mover of `onesweep serve`.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::Write,
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use onesweep_layout::Devices;
use onesweep_sys::pressure;
use serde_json::Value;

use crate::{
    image::{Fs, Image, attach_loop},
    run::{not_here, onesweep, output, program, root_test, run, text},
    serving::Serving,
    tree,
};

const FILES: u64 = 60;

/// Files of 6 blocks that grew by turns, so that each lies in as many pieces, and its map in a block of its own.
fn scatter(root: &Path) {
    fs::create_dir_all(root).expect("a folder");
    for block in 0..6 {
        for number in 0..FILES {
            let path = root.join(format!("f{number}"));
            let file = File::options().create(true).truncate(false).write(true).open(path).expect("a file");
            file.write_all_at(&[number as u8; 4096], block * 4096).expect("growth");
        }
        tree::sync(root);
    }
}

fn seeks(root: &Path) -> u64 {
    let told = output(onesweep(["defrag", "--dry-run", "--json"]).arg(root));
    let told: Value = serde_json::from_slice(&told).expect("JSON");
    told["before"]["seeks"].as_u64().expect("a number")
}

/// How a server moves as soon as it can, while programs wait for disks for no more than so many percent of the time.
fn options<'a>(relocate: &'a str, pressure: &'a str) -> Vec<&'a OsStr> {
    let at_once = "--relocate-after 1s --relocate-budget 0 --log debug --relocate-pressure";
    ["--relocate", relocate].into_iter().chain(at_once.split(' ')).chain([pressure]).map(OsStr::new).collect()
}

/// Whatever else this machine does meanwhile.
const ALWAYS: &str = "100";

fn serving(image: &Image, relocate: &str) -> Serving {
    Serving::start_with(&[image], &options(relocate, ALWAYS))
}

/// Writes to a file in a directory, whose files are in memory then.
fn write(directory: &Path) {
    // Others may have emptied the page cache of the whole machine.
    tree::sums(&[directory]);
    let file = OpenOptions::new().write(true).open(directory.join("f7"));
    file.and_then(|mut file| file.write_all(&[7])).expect("a write");
    tree::sync(directory);
}

fn blocks(du: &mut Command) -> String {
    text(&output(du)).split('\t').next().expect("a number").to_owned()
}

fn a_written_directory_is_put_in_order(fs: Fs) {
    let image = Image::new(fs, 512 << 20);
    let directory = image.root().join("d");
    scatter(&directory);
    let (sums, before) = (tree::sums(&[&directory]), seeks(&directory));
    let serving = serving(&image, "always");
    run(&mut serving.du(&["-s"], &image.root()));
    while seeks(&directory) * 4 > before {
        write(&directory);
        thread::sleep(Duration::from_secs(3));
    }
    // A last region may be on its way.
    let ours = || blocks(&mut serving.du(&["-s"], &directory));
    let theirs = || blocks(Command::new("du").arg("-s").arg(&directory));
    while ours() != theirs() {
        thread::sleep(Duration::from_millis(100));
    }
    let said = serving.end();
    assert!(said.contains("directories are put in order when files in them were written"), "{said}");
    assert!(said.contains("files moved side by side"), "{said}");
    assert_eq!(tree::sums(&[&directory]), sums);
}

#[test]
fn a_written_directory_is_put_in_order_on_ext4() {
    root_test!();
    a_written_directory_is_put_in_order(Fs::Ext4);
}

#[test]
fn a_written_directory_is_put_in_order_on_xfs() {
    root_test!();
    a_written_directory_is_put_in_order(Fs::Xfs);
}

#[test]
fn that_the_mover_has_ended_is_told_when_it_does() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let serving = serving(&image, "always");
    let daemon = serving.running.id();
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).expect("its children");
    let is_mover =
        |pid: &&str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "onesweep-mover\n");
    // It takes its name when it has begun.
    let mover = loop {
        if let Some(mover) = children.split_whitespace().find(is_mover) {
            break mover;
        }
        thread::sleep(Duration::from_millis(5));
    };
    run(Command::new("kill").args(["-KILL", mover]));
    while Path::new("/proc").join(mover).exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let directory = image.root().join("d");
    fs::create_dir(&directory).expect("a folder");
    run(&mut serving.du(&["-s"], &image.root()));
    if let Some(mut other) = with_number(mover.parse().expect("a number"), &directory.join("file")) {
        drop(other.stdin.take());
        other.wait().expect("it ends");
        let ours = output(&mut serving.du(&["-s"], &directory));
        assert_eq!(text(&ours), text(&output(Command::new("du").arg("-s").arg(&directory))));
    }
    let said = serving.end();
    assert!(said.contains("the mover has ended (signal: 9 (SIGKILL)); no more files are moved"), "{said}");
}

/// A process with this number, which is free, that writes the file when its input ends. Others may take the number meanwhile.
fn with_number(number: u32, file: &Path) -> Option<Child> {
    let last = "/proc/sys/kernel/ns_last_pid";
    loop {
        if let Err(error) = fs::write(last, (number - 1).to_string()) {
            not_here(&format!("nobody may say which number comes next: {error}"));
            return None;
        }
        let mut sh = Command::new("sh");
        // Within the shell itself.
        sh.args(["-c", "read go; printf %40000s x >\"$0\""]).arg(file).stdin(Stdio::piped());
        let mut process = sh.spawn().expect("it starts");
        if process.id() == number {
            return Some(process);
        }
        let _ = process.kill();
        let _ = process.wait();
    }
}

#[test]
fn what_can_not_be_moved_is_told_and_tracked_all_the_same() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 256 << 20);
    let serving = serving(&image, "always");
    run(&mut serving.du(&["-s"], &image.root()));
    let said = serving.end();
    assert!(said.contains("nothing is moved there: its file system is btrfs"), "{said}");
}

/// A disk that answers no write until this is dropped, and a program on each processor that waits for it all the time: what waits on
/// one counts as much as that one has to do beside the others.
struct Stalled {
    device: PathBuf,
    waiting: Vec<Child>,
    under: Image,
}

impl Stalled {
    fn start() -> Self {
        let under = Image::new(Fs::Ext4, 64 << 20);
        let file = under.root().join("disk");
        File::create(&file).and_then(|file| file.set_len(16 << 20)).expect("a file");
        tree::sync(&under.root());
        let device = attach_loop(&file);
        run(Command::new("fsfreeze").arg("-f").arg(under.root()));
        let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("processors");
        let write = |processor: u32| {
            let mut dd = Command::new("taskset");
            dd.args(["-c", &processor.to_string(), "dd", "if=/dev/zero", "bs=4096", "count=1", "oflag=direct"]);
            dd.arg(format!("of={}", device.display())).stderr(Stdio::null()).spawn().expect("dd starts")
        };
        let waiting = numbers(online.trim()).map(write).collect();
        Self { device, waiting, under }
    }

    /// None of them was kept from its processor.
    fn is_waited_for(&mut self) -> bool {
        self.waiting.iter_mut().all(|dd| dd.try_wait().expect("a child").is_none())
    }
}

/// Those of a list such as `0-3,6`.
fn numbers(list: &str) -> impl Iterator<Item = u32> {
    let number = |text: &str| text.parse().expect("a number");
    list.split(',').flat_map(move |part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    })
}

impl Drop for Stalled {
    fn drop(&mut self) {
        // Without that nothing of it can end.
        let _ = Command::new("fsfreeze").arg("-u").arg(self.under.root()).status();
        for dd in &mut self.waiting {
            let _ = dd.wait();
        }
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// Beside it is a server that heeds no such thing, of which can be seen when the turn of the other would have come.
#[test]
fn it_waits_while_programs_wait_for_disks_and_goes_on_then() {
    // What others read and write would add to it.
    root_test!(alone);
    if let Err(error) = pressure::of_disks() {
        not_here(&format!("its kernel does not count who waits (PSI): {error}"));
        return;
    }
    let (image, other) = (Image::new(Fs::Ext4, 512 << 20), Image::new(Fs::Ext4, 512 << 20));
    let directory = image.root().join("d");
    scatter(&directory);
    let (sums, before) = (tree::sums(&[&directory]), seeks(&directory));
    let is_busy = || pressure::of_disks().expect("it was told before") > 0.9;
    let mut stalled = Stalled::start();
    while !is_busy() {
        if !stalled.is_waited_for() {
            not_here("not all of its processors may be used");
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let (quiet, eager) = (Serving::start_with(&[&image], &options("always", "90")), serving(&other, "always"));
    run(&mut quiet.du(&["-s"], &image.root()));
    run(&mut eager.du(&["-s"], &other.root()));
    write(&directory);
    for name in ["a", "b"] {
        let beside = other.root().join(name);
        scatter(&beside);
        let apart = seeks(&beside);
        while seeks(&beside) * 4 > apart {
            write(&directory);
            write(&beside);
            thread::sleep(Duration::from_secs(2));
        }
    }
    assert!(is_busy(), "which proves nothing");
    assert_eq!(seeks(&directory), before);
    drop(stalled);
    // Nobody writes to it any more: what was put off is done.
    while seeks(&directory) * 4 > before {
        thread::sleep(Duration::from_millis(500));
    }
    let said = quiet.end();
    assert!(said.contains("files moved side by side"), "{said}");
    eager.end();
    assert_eq!(tree::sums(&[&directory]), sums);
}

/// A server for which the disks below an image turn, or don't, whatever they are.
fn serving_on(image: &Image, disks: &[String], turns: bool, relocate: &str) -> Serving {
    let says = image.beside("rotational");
    fs::write(&says, if turns { "1\n" } else { "0\n" }).expect("a file");
    let says = says.display();
    let binds = disks.iter().map(|disk| {
        let device = fs::canonicalize(format!("/sys/class/block/{disk}")).expect("a device");
        format!("mount --bind {says} {}/queue/rotational && ", device.display())
    });
    let script = format!("{}exec \"$@\"", binds.collect::<String>());
    let mut serve = Command::new("unshare");
    serve.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(program());
    serve.args(["serve", "--store"]).arg(image.beside("stores")).args(options(relocate, ALWAYS)).arg(image.root());
    Serving::run(serve, image)
}

#[test]
fn on_disks_that_do_not_seek_nothing_is_moved_unless_it_is_wished() {
    // Their namespaces keep mounted what others unmount meanwhile.
    root_test!(alone);
    let images = [(); 3].map(|()| Image::new(Fs::Ext4, 512 << 20));
    let root = File::open(images[0].root()).expect("a directory");
    let stack = Devices::of_system().expect("the devices").by_fd(root.as_fd()).expect("its disks");
    drop(root);
    let disks: Vec<String> = stack.disks.into_iter().map(|disk| disk.name).collect();
    let asks = ["sd", "vd", "xvd", "nvme", "mmcblk"];
    if !disks.iter().all(|disk| asks.iter().any(|kind| disk.starts_with(kind))) {
        not_here(&format!("nobody asks {} whether it turns", disks.join(", ")));
        return;
    }
    let directories = images.each_ref().map(|image| image.root().join("d"));
    directories.iter().for_each(|directory| scatter(directory));
    let before = directories.each_ref().map(|directory| seeks(directory));
    let ways = [(false, "seeking"), (false, "always"), (true, "seeking")];
    let servings: Vec<Serving> = images
        .iter()
        .zip(ways)
        .map(|(image, (turns, relocate))| {
            let serving = serving_on(image, &disks, turns, relocate);
            run(&mut serving.du(&["-s"], &image.root()));
            serving
        })
        .collect();
    while (1..3).any(|number| seeks(&directories[number]) * 4 > before[number]) {
        directories.iter().for_each(|directory| write(directory));
        thread::sleep(Duration::from_secs(2));
    }
    assert_eq!(seeks(&directories[0]), before[0]);
    let said: Vec<String> = servings.into_iter().map(Serving::end).collect();
    let refused = "nothing is moved there: its disk does not seek; relocate = \"always\" moves all the same";
    assert_eq!([0, 1, 2].map(|number| said[number].contains(refused)), [true, false, false], "{said:?}");
    assert!(!said[0].contains("files moved side by side"), "{}", said[0]);
}
