//! `onesweep run` and `view` where nothing turns in the disk, beside one that turns: a loop device over memory, which says what it is told
//! to say.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, onesweep, output, root_test, text},
    run_program::{are_all_but_first, figures, fill, wait_while},
    view::{View, place, until},
    view_given::{in_two_orders, listed},
};

/// So many are looked at for longer than a shell takes to begin.
const FILES: usize = 3000;

/// The number of futex(2), as `/proc/PID/syscall` tells it.
pub(crate) const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202" } else { "98" };

/// The phase that programs see on the helper's board (`crates/view/preload/board.h`): 0 they wait until the trees have been looked
/// at, 1 they wait for each file, 3 they wait for nothing while the trees are looked at.
const PHASE: &str = "phase() { od -An -tu4 -j8 -N4 \"$ONESWEEP_BOARD\" | tr -d ' '; }\n";

fn queue(image: &Image) -> PathBuf {
    Path::new("/sys/block").join(image.device().file_name().expect("its name")).join("queue/rotational")
}

/// Files that grew by turns, on a disk of which nothing is known but what it says. It says another thing at any time, to whoever asks then.
fn on_a_disk(turns: bool) -> (Image, PathBuf, Vec<PathBuf>) {
    let mut image = Image::in_memory(Fs::Ext4, 256 << 20);
    let (root, files) = fill(&image, FILES);
    image.cold();
    says(&image, turns);
    (image, root, files)
}

fn says(image: &Image, turns: bool) {
    let said = if turns { "1" } else { "0" };
    fs::write(queue(image), said).expect("a loop device says what it is told to");
    assert_eq!(fs::read_to_string(queue(image)).expect("what it says").trim(), said);
}

/// The helper stands still while the trees are being looked at: who has to wait for that, waits.
#[test]
fn nobody_waits_for_the_looking_where_nothing_turns() {
    root_test!();
    // Opens a file while the helper is stopped, and tells whether it was read, or waits until something else happens.
    let script = format!(
        "{PHASE}kill -STOP $PPID\n\
         until grep -q '^State:.T' /proc/$PPID/status; do :; done\n\
         echo $(phase)\n\
         cat \"$1\" > /dev/null & reader=$!\n\
         while :; do\n\
           case $(sed -n 's/^State:.//p' /proc/$reader/status 2>/dev/null) in ''|Z*) echo read; break;; esac\n\
           read -r call rest < /proc/$reader/syscall 2>/dev/null && [ \"$call\" = {FUTEX} ] && {{ echo waits; break; }}\n\
         done\n\
         kill -CONT $PPID\n\
         wait $reader"
    );
    for turns in [true, false] {
        let (mut image, root, files) = on_a_disk(turns);
        let mut held = || {
            image.cold();
            says(&image, turns);
            let mut helped = onesweep(["run", "--tree"]);
            helped.arg(&root).args(["--", "sh", "-c", &script, "sh"]).arg(&files[FILES / 2]);
            text(&finish(&mut helped, 0).stdout)
        };
        let expected = if turns { "0\nwaits\n" } else { "3\nread\n" };
        // On a machine that has much else to do all may have been looked at before the helper was stopped, which proves nothing.
        let told = (0..50).map(|_| held()).find(|told| !told.starts_with('1'));
        assert_eq!(told.as_deref(), Some(expected), "turns: {turns}");
    }
}

/// The most reads that the device had at the same time, as often as it can be asked, while something is done.
fn reads_at_once(image: &Image, what: impl FnOnce()) -> u64 {
    let inflight = queue(image).with_file_name("../inflight");
    let reads = || -> u64 {
        let told = fs::read_to_string(&inflight).expect("what is in flight");
        told.split_whitespace().next().expect("reads").parse().expect("a number")
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::SeqCst) {
                most = most.max(reads());
            }
            most
        });
        what();
        is_over.store(true, Ordering::SeqCst);
        watching.join().expect("it watches")
    })
}

/// What is gained there: a program has one read on the way, the helper many.
#[test]
fn files_come_side_by_side_where_nothing_turns() {
    root_test!();
    let (mut image, root, files) = on_a_disk(false);
    let folder = Folder::new();
    // Names and inodes are in memory, so that the reads are those of content.
    let look = |root: &Path| drop(output(Command::new("ls").arg("-lR").arg(root)));
    look(&root);
    let list = folder.join("list");
    let names: Vec<String> = files.iter().map(|file| format!("{}\n", file.display())).collect();
    fs::write(&list, names.concat()).expect("a list");
    let read = "xargs cat < \"$1\" > /dev/null";
    let alone = reads_at_once(&image, || drop(output(Command::new("sh").args(["-c", read, "sh"]).arg(&list))));

    let [ready, go] = ["ready", "go"].map(|name| folder.join(name));
    let script = format!(
        "{PHASE}until [ \"$(phase)\" = 1 ]; do sleep 0.01; done\n\
         touch \"$2\"; until test -e \"$3\"; do sleep 0.01; done\n{read}"
    );
    let mut helped = || {
        image.cold();
        says(&image, false);
        look(&root);
        for name in [&ready, &go] {
            _ = fs::remove_file(name);
        }
        let mut helped = onesweep(["run", "-v", "--tree"]);
        helped.arg(&root).args(["--", "sh", "-c", &script, "sh"]).args([&list, &ready, &go]);
        let running = thread::spawn(move || finish(&mut helped, 0));
        wait_while(&ready, || !running.is_finished());
        let mut out = None;
        let together = reads_at_once(&image, || {
            fs::write(&go, "").expect("a file");
            out = Some(running.join().expect("it ends as it should"));
        });
        let said = out.expect("what it said").stderr;
        let (brought, sweeps, _) = figures(&said);
        assert!(sweeps == 1 && are_all_but_first(brought, files.len()), "{}", text(&said));
        together
    };
    // The device is quick, and is asked now and then alone: on a machine that has much else to do it may be idle whenever it is asked.
    let together = (0..50).map(|_| helped()).find(|&together| together >= 4 && together > alone);
    assert!(alone >= 1 && together.is_some(), "{alone} alone, never more with the helper");
}

/// Addresses would be asked for in vain.
#[test]
fn a_view_lists_by_number_where_nothing_turns() {
    root_test!();
    let mut image = Image::in_memory(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    let [by_number, by_address] = in_two_orders(&root);
    for (turns, order, expected) in
        [(true, &[][..], &by_address), (false, &[], &by_number), (false, &["--order", "device"], &by_address)]
    {
        image.cold();
        says(&image, turns);
        assert_eq!(&listed(&root, &dir, order), expected, "turns: {turns}, {order:?}");
    }
}

/// Directories with files, for which inodes have to be read.
fn wide(image: &Image) -> (PathBuf, PathBuf) {
    let (root, dir) = place(image);
    for number in 0..60 {
        let below = root.join(format!("d{number:02}"));
        fs::create_dir_all(&below).expect("a folder");
        (0..40).for_each(|file| fs::write(below.join(format!("f{file:02}")), [7; 100]).expect("a file"));
    }
    (root, dir)
}

pub(crate) fn reads_of(image: &Image) -> u64 {
    let told = fs::read_to_string(queue(image).with_file_name("../stat")).expect("what it did");
    told.split_whitespace().next().expect("reads").parse().expect("a number")
}

fn walk(root: &Path) {
    drop(output(Command::new("find").arg(root).args(["-size", "+1000"])));
}

/// Where nothing turns, a view looks at what is below while a program works on what it was told, also on the disk: nobody's head is
/// taken away by that.
#[test]
fn a_view_looks_ahead_on_the_disk_where_nothing_turns() {
    root_test!();
    let mut image = Image::in_memory(Fs::Ext4, 64 << 20);
    let (root, dir) = wide(&image);
    let mut reads_after = |turns: bool, patience: Duration| {
        image.cold();
        says(&image, turns);
        let _view = View::show(&root, &dir, &[]);
        drop(output(Command::new("ls").arg("-l").arg(&dir)));
        // To ask whether it is done would read, too; a busy machine takes longer.
        thread::sleep(patience);
        let before = reads_of(&image);
        walk(&root);
        reads_of(&image) - before
    };
    let mut waits = (0..10).map(|times| Duration::from_millis(10 << times));
    assert!(waits.any(|patience| reads_after(false, patience) == 0), "nothing was read ahead");
    assert!(reads_after(true, Duration::from_millis(200)) > 0, "the head was taken to other places");
}

/// Where nothing turns, who only lists is helped by that alone: the trees are looked at when content is asked for.
#[test]
fn who_lists_through_a_view_begins_no_sweep_where_nothing_turns() {
    root_test!();
    let mut image = Image::in_memory(Fs::Ext4, 64 << 20);
    let (root, dir) = wide(&image);
    for turns in [true, false] {
        image.cold();
        says(&image, turns);
        let view = View::show(&root, &dir, &[]);
        let threads = Path::new("/proc").join(view.running.as_ref().expect("it runs").id().to_string()).join("task");
        let has_helper = || {
            let all = fs::read_dir(&threads).expect("its threads").flatten();
            all.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok()).any(|name| name == "ahead\n")
        };
        walk(&dir);
        if !turns {
            assert!(!has_helper(), "listing alone has the trees looked at");
            // One file, so that there is something left to do.
            fs::read(dir.join("d30/f20")).expect("a file");
        }
        until("a walk that needs the disk has no helper", has_helper);
    }
}
