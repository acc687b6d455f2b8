//! What was moved goes back to its old places.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use onesweep_relocate::ext4::Ext4;
use onesweep_relocate::ext4::keep::{Left, Undone, Unknown, forget, kept as kept_runs, undo};
use onesweep_relocate::host::Stays;
use onesweep_relocate::pack::Rules;
use onesweep_relocate::places::Places;

use crate::image::{Image, eventually, is_root, run, text};
use crate::kinds::{READ, host};
use crate::tree::{assert_same, blocks_of, bytes, kept, pack, planned, scatter, sync};

const MIB: u64 = 1 << 20;
pub(crate) const RULES: Rules = Rules { region: 64, slack: 4, budget: 32, dearest: 32, margin: 1 };

pub(crate) type Layout = BTreeMap<PathBuf, Places>;

pub(crate) fn layout(directory: &Path) -> Layout {
    let (files, _) = planned(&mut host(directory), directory, &RULES);
    files.into_iter().map(|file| (file.path, file.places)).collect()
}

/// What `filefrag` says of each file: another program's word.
fn filefrag(directory: &Path) -> String {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let out = Command::new("filefrag").arg("-e").args(&paths).output().unwrap();
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Packs, and keeps the old places.
pub(crate) fn pack_and_keep(directory: &Path) -> (String, u64) {
    let mut mover = host(directory);
    let id = mover.keep_old_places().unwrap().to_owned();
    let (_, report) = pack(&mut mover, directory, &RULES);
    assert!(report.ended.is_none() && report.regions > 1, "{report:?}");
    (id, report.blocks)
}

pub(crate) fn undo_all(directory: &Path, id: &str) -> Undone {
    let undone = undo(&mut host(directory), id, &mut |_| true).unwrap();
    assert!(undone.ended.is_none() && undone.unread.is_empty(), "{undone:?}");
    undone
}

fn folder(image: &Image, id: &str) -> PathBuf {
    image.root().join(".onesweep/undo").join(id)
}

/// Blocks that the donors hold, and how many donors there are.
fn held(folder: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let donors = entries.filter(|entry| !entry.file_name().to_string_lossy().ends_with(".json"));
    let blocks: Vec<u64> = donors.map(|donor| donor.metadata().unwrap().blocks() / 8).collect();
    (blocks.iter().sum(), blocks.len() as u64)
}

#[test]
fn an_undo_brings_every_block_back_as_often_as_it_is_asked_for() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 100);
    image.cold();
    let (before, there) = (kept(&directory), layout(&directory));
    let listed = filefrag(&directory);

    let (id, blocks) = pack_and_keep(&directory);
    let packed = layout(&directory);
    assert!(packed != there);
    assert_eq!(kept_runs(&host(&directory)).unwrap(), std::slice::from_ref(&id));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&image.root().join(".onesweep")), 0o700);
    // As many as were moved, and one for the map of each donor that came to lie in more pieces than its inode has room for.
    let (now, donors) = held(&folder(&image, &id));
    assert!((blocks..=blocks + donors).contains(&now), "{now} blocks in {donors} donors for {blocks}");

    let undone = undo_all(&directory, &id);
    assert_eq!((undone.blocks, undone.left.len(), undone.back_already), (blocks, 0, 0), "{undone:?}");
    assert!(layout(&directory) == there && undone.files > 90);
    assert_eq!(filefrag(&directory), listed);
    image.check();
    assert_same(&directory, &before);

    let again = undo_all(&directory, &id);
    assert_eq!((again.files, again.blocks, again.back_already), (0, 0, undone.files));
    assert!(layout(&directory) == there);
    assert!(held(&folder(&image, &id)).0 >= blocks);

    // What others put there is nobody's to remove.
    let note = folder(&image, &id).join("note");
    fs::write(&note, "theirs").unwrap();
    let free = || run("stat", &["-f", "-c", "%f", text(&image.root())]).trim().parse::<u64>().unwrap();
    sync(&directory);
    let was = free();
    let told = forget(&mut host(&directory), &id).unwrap_err().to_string();
    assert!(told.contains("cannot remove it, without what others put there") && note.exists(), "{told}");
    fs::remove_file(&note).unwrap();
    assert_eq!(forget(&mut host(&directory), &id).unwrap(), 0, "all else is gone already");
    sync(&directory);
    assert!(free() >= was + blocks);
    assert!(!folder(&image, &id).exists());
    let gone = undo(&mut host(&directory), &id, &mut |_| true).unwrap_err();
    assert_eq!(gone.to_string(), format!("no old places are kept as {id}; there are none"));
    assert!(matches!(forget(&mut host(&directory), "../.."), Err(Unknown::Id { .. })));
    image.check();
    assert_same(&directory, &before);
}

/// The next run with old places to keep begins where the last one has ended; they are undone in turn.
#[test]
fn runs_are_undone_one_after_the_other() {
    if !is_root() {
        return;
    }
    let image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    let (before, first) = (kept(&directory), layout(&directory));
    let (one, _) = pack_and_keep(&directory);
    let second = layout(&directory);
    // Another order: some of the files are to be packed again.
    let mut mover = host(&directory);
    let other = mover.keep_old_places().unwrap().to_owned();
    let (_, report) =
        pack(&mut mover, &directory, &Rules { region: 512, slack: 0, budget: 1000, dearest: 1000, margin: 0 });
    drop(mover);
    assert!(report.files > 0, "{report:?}");
    assert_eq!(kept_runs(&host(&directory)).unwrap(), [one.clone(), other.clone()]);
    let third = layout(&directory);

    // What the second run has moved further can't go back by the first one; the rest does, and comes again.
    let out_of_turn = undo_all(&directory, &one);
    assert!(out_of_turn.left.values().all(|left| *left == Left::ElsewhereSince), "{out_of_turn:?}");
    assert!(!out_of_turn.left.is_empty());
    let now = layout(&directory);
    for path in out_of_turn.left.keys() {
        assert_eq!(now[path], third[path]);
    }
    undo_all(&directory, &other);
    let now = layout(&directory);
    for (path, places) in &now {
        assert!([&first[path], &second[path]].contains(&places), "{}", path.display());
    }
    assert!(undo_all(&directory, &one).left.is_empty());
    assert!(layout(&directory) == first);
    assert_same(&directory, &before);
}

/// What happened to files since is kept: an undo moves today's bytes, and leaves what is another file or lies elsewhere.
#[test]
fn what_changed_since_keeps_its_bytes() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    fs::write(directory.join("new"), bytes(5, 9000)).unwrap();
    sync(&directory);
    let there = layout(&directory);
    let (id, _) = pack_and_keep(&directory);
    let packed = layout(&directory);
    let path = |number: u64| directory.join(format!("file-{number}"));
    let open = |number| File::options().write(true).open(path(number)).unwrap();

    open(1).write_all_at(b"written", 4000).unwrap();
    open(2).write_all_at(&bytes(9, 9000), blocks_of(2) * 4096).unwrap();
    open(3).set_len(4096).unwrap();
    fs::remove_file(path(4)).unwrap();
    fs::rename(directory.join("new"), path(5)).unwrap();
    fs::rename(path(6), directory.join("another-name")).unwrap();
    fs::remove_file(path(7)).unwrap();
    fs::write(path(7), bytes(7, blocks_of(7) as usize * 4096 - 100)).unwrap();
    run("fallocate", &["--punch-hole", "--offset", "4096", "--length", "4096", text(&path(8))]);
    run("chattr", &["+i", text(&path(9))]);
    sync(&directory);
    let before = kept(&directory);

    let undone = undo_all(&directory, &id);
    let left = |number: u64| undone.left.get(&path(number)).copied();
    assert_eq!((left(1), left(2), left(6)), (None, None, None), "{:?}", undone.left);
    assert_eq!((left(3), left(8)), (Some(Left::ElsewhereSince), Some(Left::ElsewhereSince)));
    for gone in [4, 5, 7] {
        assert_eq!(left(gone), Some(Left::Stays(Stays::Gone)), "{gone}");
    }
    assert_eq!(left(9), Some(Left::Stays(Stays::Immutable)));
    assert_eq!((undone.left.len(), undone.written_since), (6, 2), "{:?}", undone.left);
    assert_same(&directory, &before);

    let now = layout(&directory);
    assert_eq!(now[&path(1)], there[&path(1)]);
    assert_eq!(now[&path(2)].within(0..blocks_of(2)), there[&path(2)]);
    assert_eq!(now[&directory.join("another-name")], there[&path(6)]);
    assert_eq!(now[&path(3)], packed[&path(3)].within(0..1));
    assert_eq!(now[&path(9)], packed[&path(9)]);
    run("chattr", &["-i", text(&path(9))]);
    assert_eq!(undo_all(&directory, &id).files, 1);
    assert_eq!(layout(&directory)[&path(9)], there[&path(9)]);
    image.check();
    let immutable = |mut all: BTreeMap<PathBuf, _>| {
        // chattr has changed its ctime.
        all.remove(&path(9));
        all
    };
    assert!(immutable(kept(&directory)) == immutable(before));
}

/// A disk without room for what is to be kept, or moved, leaves all as it is.
#[test]
fn a_full_disk_leaves_what_can_be_undone() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(128 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    image.cold();
    let (before, there) = (kept(&directory), layout(&directory));
    // Free blocks from none to enough for all: each run ends somewhere else.
    for left in [0, 3, 70, 140, 300, 700] {
        let fill = image.root().join("fill");
        let free = run("stat", &["-f", "-c", "%a", text(&image.root())]).trim().parse::<u64>().unwrap();
        run("fallocate", &["-l", &((free - left) * 4096).to_string(), text(&fill)]);
        let mut mover = host(&directory);
        let id = mover.keep_old_places().map(str::to_owned);
        if let Ok(id) = id {
            let (_, report) = pack(&mut mover, &directory, &RULES);
            eprintln!(
                "{left} blocks free: {} files moved, {} without room, {:?}",
                report.files, report.no_room, report.ended
            );
            let is_kept = mover.kept_run().is_some();
            drop(mover);
            assert_same(&directory, &before);
            if is_kept {
                let undone = undo_all(&directory, &id);
                assert!(undone.left.is_empty(), "{undone:?}");
                forget(&mut host(&directory), &id).unwrap();
            }
        }
        assert!(layout(&directory) == there, "{left}");
        assert_eq!(kept_runs(&host(&directory)).unwrap(), Vec::<String>::new());
        fs::remove_file(fill).unwrap();
        sync(&directory);
    }
    image.check();
    assert_same(&directory, &before);
}

/// Only a folder of the caller's own is used, with what was put there, whole.
#[test]
fn what_is_not_as_it_was_put_there_is_not_used() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 40);
    let own = image.root().join(".onesweep");
    let refused = |directory: &Path| host(directory).keep_old_places().unwrap_err().to_string();
    fs::write(&own, b"").unwrap();
    assert!(
        refused(&directory).contains("/.onesweep: cannot open this folder for old places: "),
        "{}",
        refused(&directory)
    );
    fs::remove_file(&own).unwrap();
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65_534), Some(65_534)).unwrap();
    assert!(refused(&directory).ends_with("it belongs to user 65534; run as that user"), "{}", refused(&directory));
    std::os::unix::fs::chown(&own, Some(0), Some(0)).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(refused(&directory).ends_with("others may write to it; chmod 700 it"), "{}", refused(&directory));
    fs::remove_dir(&own).unwrap();

    let mut holds = host(&directory);
    let held_now = holds.keep_old_places().unwrap().to_owned();
    let told = forget(&mut host(&directory), &held_now).unwrap_err().to_string();
    assert!(told.ends_with("another onesweep works with it; wait until it ends"), "{told}");
    // Nobody else moves files meanwhile, and who does so is not disturbed.
    let all = File::open(own.join("undo")).unwrap();
    assert!(matches!(all.try_lock(), Err(TryLockError::WouldBlock)));
    drop(holds);
    eventually("nobody holds it", || all.try_lock().is_ok());
    let told = refused(&directory);
    assert!(
        told.ends_with("another run with --keep or --undo moves files of this file system; wait until it ends"),
        "{told}"
    );
    drop(all);

    let (id, blocks) = pack_and_keep(&directory);
    let (before, packed) = (kept(&directory), layout(&directory));
    let (donor, manifest) = (folder(&image, &id).join("000000-0"), folder(&image, &id).join("000000.json"));
    // A donor with bytes of somebody's, and one with another name: an exchange would lose them.
    let whole = fs::read(&manifest).unwrap();
    let aside = folder(&image, &id).join("aside");
    fs::rename(&donor, &aside).unwrap();
    let precious = bytes(3, 300_000);
    fs::write(image.root().join("precious"), &precious).unwrap();
    fs::hard_link(image.root().join("precious"), &donor).unwrap();
    sync(&directory);
    let undone = undo_all(&directory, &id);
    assert!(undone.left.values().all(|left| *left == Left::NotHeld) && !undone.left.is_empty(), "{undone:?}");
    assert!(fs::read(image.root().join("precious")).unwrap() == precious);
    fs::remove_file(image.root().join("precious")).unwrap();
    let undone = undo_all(&directory, &id);
    assert!(undone.left.values().all(|left| *left == Left::NotHeld) && !undone.left.is_empty(), "{undone:?}");
    assert!(fs::read(&donor).unwrap() == precious);
    fs::remove_file(&donor).unwrap();
    fs::rename(&aside, &donor).unwrap();

    let text_of = String::from_utf8(whole.clone()).unwrap();
    fs::write(&manifest, text_of.replace("\"version\":1", "\"version\":9")).unwrap();
    let undone = undo(&mut host(&directory), &id, &mut |_| true).unwrap();
    let [failure] = &undone.unread[..] else { panic!("{undone:?}") };
    assert!(failure.to_string().ends_with("it has version 9, and this program knows version 1"), "{failure}");
    assert!(undone.ended.is_none() && undone.back_already > 0, "the other regions are back: {undone:?}");
    fs::write(&manifest, &whole).unwrap();
    assert!(undo_all(&directory, &id).left.is_empty());
    assert!(layout(&directory) != packed);
    assert!(held(&folder(&image, &id)).0 >= blocks);
    image.check();
    assert_same(&directory, &before);
}

/// What leads back from one region is lost; all others go back, and this one does when it is there again.
#[test]
fn a_damaged_manifest_keeps_its_own_region_alone() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 100);
    sync(&directory);
    let (before, there) = (kept(&directory), layout(&directory));
    let (id, blocks) = pack_and_keep(&directory);
    let run = folder(&image, &id);
    let names = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path());
    let mut manifests: Vec<PathBuf> = names.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    manifests.sort();
    assert!(manifests.len() > 2, "{manifests:?}");
    let damaged = manifests[manifests.len() / 2].clone();
    let whole = fs::read(&damaged).unwrap();
    let mut one_bit = whole.clone();
    one_bit[whole.len() / 2] ^= 0x80;
    for flaw in [whole[..whole.len() / 2].to_vec(), Vec::new(), one_bit] {
        fs::write(&damaged, flaw).unwrap();
        let undone = undo(&mut host(&directory), &id, &mut |_| true).unwrap();
        let [unread] = &undone.unread[..] else { panic!("{undone:?}") };
        assert_eq!((&unread.path, unread.doing), (&damaged, "read what leads back"));
        assert!(undone.ended.is_none() && undone.left.is_empty() && undone.blocks < blocks, "{undone:?}");
        let now = layout(&directory);
        let apart = there.iter().filter(|(path, places)| now[*path] != **places).count();
        assert!((1..there.len() / 2).contains(&apart), "{apart} of {} files stay", there.len());
    }
    fs::write(&damaged, whole).unwrap();
    assert!(undo_all(&directory, &id).left.is_empty());
    assert!(layout(&directory) == there);
    image.check();
    assert_same(&directory, &before);
}

/// Ordinary users keep in a folder of their own, where they may make one.
#[test]
fn nothing_is_kept_where_no_folder_can_be_made() {
    if !is_root() {
        return;
    }
    let image = Image::new(256 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 10);
    image.make_read_only();
    let mut mover = Ext4::of(&directory, READ);
    assert!(mover.is_err());
    run("mount", &["-o", "remount,rw", text(&image.root())]);
    mover = Ext4::of(&directory, READ);
    let mut mover = mover.unwrap();
    run("chattr", &["+i", text(&image.root())]);
    let told = mover.keep_old_places().unwrap_err().to_string();
    run("chattr", &["-i", text(&image.root())]);
    assert!(told.contains("/.onesweep: cannot make this folder for old places: Operation not permitted"), "{told}");
    // A run that moves nothing leaves no folder behind.
    let id = mover.keep_old_places().unwrap().to_owned();
    assert!(folder(&image, &id).exists());
    drop(mover);
    assert!(!folder(&image, &id).exists());
}
