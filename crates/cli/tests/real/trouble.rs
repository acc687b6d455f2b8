//! A file system that holds still, or is gone, while a server tracks it: it says so, and others are served as before.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::{MetadataExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

use crate::{
    catch_up::read_of,
    image::{Fs, Image},
    run::{finish, output, root_test, run, text, wait_until},
    serving::Serving,
    tree::sync,
};

/// Two of them under one server.
fn two(fs: Fs) -> (Image, Image, Serving) {
    let images = [Image::new(fs, 512 << 20), Image::new(Fs::Ext4, 128 << 20)];
    for image in &images {
        for name in ["a", "a/b", "c"] {
            fs::create_dir(image.root().join(name)).expect("a directory");
            fs::write(image.root().join(name).join("f"), vec![1; 10_000]).expect("a file");
        }
        sync(&image.root());
    }
    let serving = Serving::start_on(&[&images[0], &images[1]]);
    let [one, other] = images;
    equal(&serving, &one.root());
    equal(&serving, &other.root());
    (one, other, serving)
}

fn equal(serving: &Serving, directory: &Path) {
    let asked = finish(&mut serving.du(&["-sb", "-v"], directory), 0);
    assert!(text(&asked.stderr).contains("from the server"), "{}", text(&asked.stderr));
    assert_eq!(text(&asked.stdout), text(&output(Command::new("du").arg("-sb").arg(directory))));
}

/// Thaws it, whatever happens.
pub(crate) struct Frozen<'a>(&'a Image);

impl<'a> Frozen<'a> {
    pub(crate) fn new(image: &'a Image) -> Self {
        run(Command::new("fsfreeze").arg("--freeze").arg(image.root()));
        Self(image)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        run(Command::new("fsfreeze").arg("--unfreeze").arg(self.0.root()));
    }
}

#[test]
fn a_file_system_that_is_frozen() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let (one, other, serving) = two(fs);
        fs::write(one.root().join("a/before"), vec![1; 5000]).expect("a file");
        {
            let _frozen = Frozen::new(&one);
            equal(&serving, &one.root());
            finish(&mut serving.du(&["-s", "--sync"], &one.root().join("a")), 0);
            finish(&mut serving.du(&["-s", "--cached"], &one.root()), 0);
            fs::write(other.root().join("c/meanwhile"), vec![1; 7000]).expect("a file");
            equal(&serving, &other.root());
        }
        fs::write(one.root().join("c/after"), vec![1; 5000]).expect("a file");
        equal(&serving, &one.root());
        serving.end();
    }
}

/// Whether the thread of the server that makes durable what is known waits for the disk.
fn waits_to_write(serving: &Serving) -> bool {
    let all = text(&output(Command::new("ps").args(["-eLo", "pid=,ppid=,stat=,comm="])));
    let server = serving.running.id().to_string();
    all.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [pid, parent, state, name] = fields[..] else { return false };
        (pid == server || parent == server) && name == "background" && state.starts_with('D')
    })
}

/// As where `/` is tracked: what the server keeps can't be written. Who asks is answered all the same.
#[test]
fn a_file_system_that_is_frozen_with_the_store_on_it() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 512 << 20);
        for name in ["a", "a/b", "c", "stores"] {
            fs::create_dir(image.root().join(name)).expect("a directory");
            fs::write(image.root().join(name).join("f"), vec![1; 10_000]).expect("a file");
        }
        sync(&image.root());
        let serving = Serving::start_keeping(&[&image], &image.root().join("stores"), &["--harvest-after", "1s"]);
        equal(&serving, &image.root().join("a"));
        {
            fs::write(image.root().join("c/before"), vec![1; 5000]).expect("a file");
            let _frozen = Frozen::new(&image);
            // What is written to the files of other names wouldn't be let in, but this is: it changes no file system.
            while !waits_to_write(&serving) {
                finish(&mut serving.du(&["-sb"], &image.root().join("c")), 0);
                thread::sleep(Duration::from_millis(20));
            }
            for options in [&["-s", "--cached"][..], &["-sb"], &["-sb", "--within", "10s"]] {
                for below in ["a", "c", ""] {
                    let asked = finish(&mut serving.du(options, &image.root().join(below)), 0);
                    assert!(!asked.stdout.is_empty(), "{} {options:?}", fs.name());
                }
            }
            equal(&serving, &image.root().join("c"));
            assert!(waits_to_write(&serving), "{}: it was answered meanwhile", fs.name());
        }
        fs::write(image.root().join("c/after"), vec![1; 5000]).expect("a file");
        equal(&serving, &image.root().join("c"));
        serving.end();
    }
}

/// The store of one of two lies where nothing can be written: what is harvested by itself of the other goes on.
#[test]
fn one_that_holds_still_keeps_no_other_from_its_time() {
    root_test!();
    let (one, other, holds) =
        (Image::new(Fs::Ext4, 128 << 20), Image::new(Fs::Ext4, 128 << 20), Image::new(Fs::Ext4, 128 << 20));
    for image in [&one, &other] {
        fs::create_dir(image.root().join("c")).expect("a directory");
        fs::write(image.root().join("c/f"), vec![1; 10_000]).expect("a file");
        sync(&image.root());
    }
    let stores = one.beside("stores");
    Serving::start_keeping(&[&one], &stores, &[]).end();
    let [store] =
        &fs::read_dir(&stores).expect("stores").map(|entry| entry.expect("one").path()).collect::<Vec<_>>()[..]
    else {
        panic!("there is one")
    };
    let (facts, moved) = (store.metadata().expect("its facts"), holds.root().join("store"));
    fs::copy(store, &moved).expect("a copy");
    chown(&moved, Some(facts.uid()), Some(facts.gid())).expect("its owner");
    fs::remove_file(store).expect("it goes");
    symlink(&moved, store).expect("a link");
    let serving = Serving::start_keeping(&[&one, &other], &stores, &["--harvest-after", "1s"]);
    equal(&serving, &one.root());
    equal(&serving, &other.root());
    {
        let _frozen = Frozen::new(&holds);
        fs::write(one.root().join("c/before"), vec![1; 5000]).expect("a file");
        wait_until("it holds still", || waits_to_write(&serving));
        for number in 0..3 {
            fs::write(other.root().join(format!("c/f{number}")), vec![1; 7000]).expect("a file");
            let counted = text(&output(Command::new("du").arg("-sb").arg(other.root())));
            wait_until("it is harvested by itself", || {
                text(&finish(&mut serving.du(&["-sb", "--cached"], &other.root()), 0).stdout) == counted
            });
        }
        assert!(waits_to_write(&serving), "it was harvested behind that");
        equal(&serving, &one.root());
    }
    serving.end();
}

fn is_told(out: &Output) -> bool {
    let said = text(&out.stderr);
    said.contains("Input/output error") || said.contains("can't be read")
}

#[test]
fn a_file_system_that_is_shut_down() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let (one, other, serving) = two(fs);
        fs::write(one.root().join("a/b/new"), vec![1; 5000]).expect("a file");
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(one.root()));
        // It has changed, and what isn't in memory can't be read any more; nothing can be written.
        let shown = Command::new("du").arg("-sb").arg(one.root()).output().expect("du runs");
        let asked = serving.du(&["-sb"], &one.root()).output().expect("it runs");
        let said = format!("{}: {} {}", fs.name(), text(&asked.stdout), text(&asked.stderr));
        match shown.status.success() {
            true => assert_eq!((asked.status.code(), &asked.stdout), (Some(0), &shown.stdout), "{said}"),
            false => assert!(asked.status.code() != Some(0) && is_told(&asked), "{said}"),
        }
        let refused = serving.du(&["-sb", "--sync"], &one.root()).output().expect("it runs");
        let said = format!("{}: {}", fs.name(), text(&refused.stderr));
        assert!(refused.status.code() != Some(0) && is_told(&refused), "{said}");
        fs::write(other.root().join("c/meanwhile"), vec![1; 7000]).expect("a file");
        equal(&serving, &other.root());
        serving.end();
    }
}

/// The server keeps what nobody sees any more.
#[test]
fn a_file_system_that_is_unmounted_by_force() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let (mut one, other, serving) = two(fs);
        run(Command::new("umount").arg("--lazy").arg(one.root()));
        // What is there now isn't tracked: it is walked.
        let walked = finish(&mut serving.du(&["-sb", "-v"], &one.root()), 0);
        assert!(!text(&walked.stderr).contains("from the server"), "{}", text(&walked.stderr));
        fs::write(other.root().join("c/meanwhile"), vec![1; 7000]).expect("a file");
        equal(&serving, &other.root());
        // The same file system, mounted anew while the server has it.
        one.mount();
        fs::write(one.root().join("c/again"), vec![1; 7000]).expect("a file");
        equal(&serving, &one.root());
        serving.end();
    }
}

/// As docs/serve.md says: out of the settings, then unmounted, while the same server goes on with the other.
#[test]
fn a_file_system_that_is_let_go_can_be_unmounted() {
    root_test!();
    let (mut one, other) = (Image::new(Fs::Ext4, 128 << 20), Image::new(Fs::Ext4, 128 << 20));
    let settings = one.beside("serve.toml");
    let name = |images: &[&Image]| {
        let paths: Vec<String> = images.iter().map(|image| format!("{:?}", image.root())).collect();
        fs::write(&settings, format!("paths = [{}]\n", paths.join(", "))).expect("settings");
    };
    name(&[&one, &other]);
    let serving = Serving::start_by(&one, &settings);
    equal(&serving, &one.root());
    let refused = Command::new("umount").arg(one.root()).output().expect("umount runs");
    assert!(!refused.status.success(), "it is held");
    name(&[&other]);
    run(Command::new("kill").args(["-HUP", &serving.running.id().to_string()]));
    while !Command::new("umount").arg(one.root()).output().expect("umount runs").status.success() {
        thread::sleep(Duration::from_millis(20));
    }
    equal(&serving, &other.root());
    one.mount();
    name(&[&one, &other]);
    run(Command::new("kill").args(["-HUP", &serving.running.id().to_string()]));
    let is_served =
        || text(&finish(&mut serving.du(&["-sb", "-v"], &one.root()), 0).stderr).contains("from the server");
    while !is_served() {
        thread::sleep(Duration::from_millis(20));
    }
    equal(&serving, &one.root());
    serving.end();
}

/// A file system in memory, below which there is room for so much.
struct Memory(PathBuf);

impl Memory {
    fn new(at: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&at).expect("a mount point");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&at));
        Self(at)
    }

    /// Takes all the room that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = fs::File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// There is room again: the same server goes on by itself, and ends in order.
fn ends_with_room(serving: Serving, image: &Image, filler: &Path) {
    fs::remove_file(filler).expect("it goes");
    // It opens its store again after a while.
    while !text(&finish(&mut serving.du(&["-sb", "-v"], &image.root()), 0).stderr).contains("from the server") {
        thread::sleep(Duration::from_millis(20));
    }
    fs::write(image.root().join("c/after"), vec![1; 5000]).expect("a file");
    for below in ["", "a", "a/b", "c"] {
        equal(&serving, &image.root().join(below));
    }
    serving.end();
}

/// The store can't grow: what is asked for is walked meanwhile, and when there is room again the same server goes on.
#[test]
fn a_full_disk_under_the_store() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let memory = Memory::new(image.beside("stores"), "64m");
    for name in ["a", "a/b", "c"] {
        fs::create_dir(image.root().join(name)).expect("a directory");
        fs::write(image.root().join(name).join("f"), vec![1; 10_000]).expect("a file");
    }
    // What is harvested by itself is made durable, too.
    let serving = Serving::start_with(&[&image], &["--harvest-after", "1s"].map(OsStr::new));
    equal(&serving, &image.root());
    let filler = memory.fill();
    let name = "n".repeat(200);
    for number in 0..300 {
        fs::create_dir(image.root().join(format!("a/{name}{number}"))).expect("a directory");
    }
    let walked = loop {
        // Until the store has to be on the disk nothing is wrong.
        let asked = finish(&mut serving.du(&["-sb", "-v"], &image.root()), 0);
        assert_eq!(text(&asked.stdout), text(&output(Command::new("du").arg("-sb").arg(image.root()))));
        if !text(&asked.stderr).contains("from the server") {
            break text(&asked.stderr);
        }
        fs::write(image.root().join("c/meanwhile"), text(&asked.stdout)).expect("a file");
    };
    assert!(
        walked.contains("the server failed: ") && walked.contains("store") && walked.contains("walked"),
        "{walked}"
    );
    ends_with_room(serving, &image, &filler);
    // And what it kept is whole.
    let serving = Serving::start(&image);
    equal(&serving, &image.root());
    let said = serving.end();
    assert!(!said.contains("harvested anew"), "{said}");
    drop(memory);
}

/// Lines that a server tells, up to one with this text; those that follow are to be heard by somebody.
pub(crate) fn told_up_to(from: &mut impl BufRead, wanted: &str) -> String {
    let mut said = String::new();
    while !said.contains(wanted) {
        assert!(from.read_line(&mut said).expect("it says something") > 0, "{said}");
    }
    said
}

/// It can't grow when a server is started again, which finds what has changed: that is told, and what is asked for is answered or walked. When
/// there is room the same server writes it.
#[test]
fn a_full_disk_under_the_store_of_a_server_that_is_started_again() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let memory = Memory::new(image.beside("stores"), "64m");
    for name in ["a", "a/b", "c"] {
        fs::create_dir(image.root().join(name)).expect("a directory");
        fs::write(image.root().join(name).join("f"), vec![1; 10_000]).expect("a file");
    }
    let serving = Serving::start(&image);
    equal(&serving, &image.root());
    serving.end();
    let filler = memory.fill();
    let name = "n".repeat(200);
    // More than the store has room for that it doesn't use.
    for number in 0..20_000 {
        fs::create_dir(image.root().join(format!("a/{name}{number}"))).expect("a directory");
    }
    let mut serving = Serving::start(&image);
    let mut heard = BufReader::new(serving.running.stderr.take().expect("it is piped"));
    let said = told_up_to(&mut heard, "stored");
    assert!(said.contains("what has changed isn't stored yet: cannot write the store"), "{said}");
    for below in ["", "a", "a/b", "c"] {
        let asked = finish(&mut serving.du(&["-sb"], &image.root().join(below)), 0);
        let shown = output(Command::new("du").arg("-sb").arg(image.root().join(below)));
        assert_eq!(text(&asked.stdout), text(&shown), "{below:?}");
    }
    ends_with_room(serving, &image, &filler);
    // It is written: next to nothing is read for the next one.
    let serving = Serving::start(&image);
    equal(&serving, &image.root());
    let said = serving.end();
    let (read, known) = read_of(&said);
    assert!(known > 20_000 && read < 100 && !said.contains("harvested anew"), "{said}");
    drop(memory);
}
