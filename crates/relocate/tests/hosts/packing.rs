//! What is packed, and what is left, on every real file system.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use onesweep_relocate::carry::{Ended, Settings, carry_out};
use onesweep_relocate::host::Stays;
use onesweep_relocate::pack::Rules;
use onesweep_relocate::survey::Candidate;
use onesweep_sys::files::open_file_untouched;

use crate::image::{Image, is_root, run, text};
use crate::kinds::Kind;
use crate::tree::{assert_same, blocks_of, breaks, bytes, kept, pack, planned, scatter, sync};

const MIB: u64 = 1 << 20;

/// The case of the paper: a directory of small files that lie apart comes to lie side by side, in few write requests, and nobody
/// can see a difference but in where it lies; a second run moves nothing.
pub(crate) fn a_scattered_directory_comes_to_lie_side_by_side<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(1024 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 256);
    image.cold();
    let before = kept(&directory);
    let mut movers = K::host(&image.root());
    let all: u64 = (0..256).map(blocks_of).sum();
    for (rules, most) in [(Rules { margin: 1, ..Rules::for_regions(16) }, 224), (Rules::for_regions(512), 16)] {
        let (start, then) = (image.written(), Instant::now());
        let (files, made) = planned(&mut movers, &directory, &rules);
        let (after, report) = pack(&mut movers, &directory, &rules);
        let took = then.elapsed();
        let end = image.written();
        eprintln!(
            "regions of {}: {} breaks, {} foretold, {} came; {} files and {} blocks in {} regions, {} read back, {} not \
             better; {} requests and {} blocks were written, {} ms",
            rules.region,
            breaks(&files),
            made.after.breaks(),
            breaks(&after),
            report.files,
            report.blocks,
            report.regions,
            report.large,
            report.not_better,
            end.0 - start.0,
            (end.1 - start.1) / 8,
            took.as_millis()
        );
        assert!(report.ended.is_none() && report.torn.is_empty() && report.stayed.is_empty(), "{report:?}");
        // Small regions may lie side by side by luck, and leave less to gain for large ones than it would cost: then nothing may change.
        let is_left = rules.region > 16 && made.regions.is_empty();
        assert!(report.regions > 0 || is_left, "{report:?}");
        assert!(breaks(&after) <= if is_left { breaks(&files) } else { most }, "{report:?}");
        // Without a swap each file is written for itself.
        let requests = if K::SWAPS { 2 * report.regions } else { report.files };
        assert!(report.blocks <= all && end.0 - start.0 <= requests + K::METADATA_REQUESTS, "{report:?}");
        assert_same(&directory, &before);
        let (_, second) = pack(&mut movers, &directory, &rules);
        assert_eq!((second.regions, second.blocks, second.large), (0, 0, 0));
    }
    drop(movers);
    image.check();
    assert_same(&directory, &before);
}

/// Whatever files there are: empty, with holes, preallocated, of one block, large, contiguous, written backwards; linked twice.
pub(crate) fn odd_files_are_packed_or_left<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 40);
    fs::write(directory.join("empty"), b"").unwrap();
    fs::write(directory.join("byte"), b"1").unwrap();
    let holes = File::create(directory.join("holes")).unwrap();
    for block in [0, 3, 4, 40] {
        holes.write_all_at(&bytes(77, 4096), block * 4096).unwrap();
        sync(&directory);
    }
    holes.set_len(50 * 4096 + 17).unwrap();
    let backwards = File::create(directory.join("backwards")).unwrap();
    for block in (0..9).rev() {
        backwards.write_all_at(&bytes(78, 4096), block * 4096).unwrap();
        sync(&directory);
    }
    drop((holes, backwards));
    fs::write(directory.join("large"), bytes(79, 9 << 20)).unwrap();
    run("fallocate", &["-l", "40000", text(&directory.join("preallocated"))]);
    fs::hard_link(directory.join("file-1"), directory.join("another-name")).unwrap();
    fs::create_dir(directory.join("below")).unwrap();
    scatter(&directory.join("below"), 20);
    run("mkfifo", &[text(&directory.join("fifo"))]);
    image.cold();

    let before = kept(&directory);
    let mut mover = K::host(&image.root());
    let rules = Rules::for_regions(512);
    let (files, made) = planned(&mut mover, &directory, &rules);
    let at = |name: &str| files.iter().find(|file| file.path.ends_with(name)).unwrap();
    assert_eq!(at("preallocated").stays, Some(Stays::Preallocated));
    assert_eq!((at("holes").places.blocks(), at("holes").stays), (4, None));
    let (after, report) = pack(&mut mover, &directory, &rules);
    assert!(report.stayed.is_empty() && report.torn.is_empty() && report.files > 60, "{report:?}");
    // The large file and what comes of free space in pieces stay between.
    assert!(breaks(&after) <= made.after.breaks() + 3, "{} of {}", breaks(&after), made.before.breaks());
    for name in ["holes", "backwards"] {
        let file = after.iter().find(|file| file.path.ends_with(name)).unwrap();
        assert_eq!(file.places.breaks(), 0, "{name}");
    }
    assert_same(&directory, &before);
    drop(mover);
    image.check();
    assert_same(&directory, &before);
}

/// What is not in memory stays when nothing is to be read.
pub(crate) fn only_what_is_in_memory_is_moved_when_that_is_asked_for<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 30);
    image.cold();
    let mut host = K::host_of_cached(&directory);
    let rules = Rules::for_regions(512);
    let (_, report) = pack(&mut host, &directory, &rules);
    assert_eq!((report.files, report.stayed.len()), (0, 30));
    assert!(report.stayed.values().all(|stays| *stays == Stays::NotCached));
}

pub(crate) fn a_full_disk_and_a_read_only_one_change_nothing<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(256 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    let before = kept(&directory);
    // What XFS reserved behind the ends of files is free by now, not in the middle of what follows.
    image.cold();
    let mut mover = K::host(&image.root());
    let rules = Rules::for_regions(128);
    let settings = Settings::new(rules);

    let (mut files, made) = planned(&mut mover, &directory, &rules);
    let was = breaks(&files);
    let mut fill = vec![];
    for (number, bytes) in [128 << 20, 64 << 20, 16 << 20, 1 << 20, 65536, 4096].into_iter().enumerate() {
        for again in 0..20 {
            let path = image.root().join(format!("fill-{number}-{again}"));
            let out = std::process::Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&path).output();
            fill.push(path);
            if !out.unwrap().status.success() {
                break;
            }
        }
    }
    let report = carry_out(&mut mover, &mut files, &made, &settings, &mut |_| true);
    assert!(report.ended.is_none() && report.files == 0 && report.no_room > 0, "{report:?}");
    assert_eq!(breaks(&planned(&mut mover, &directory, &rules).0), was);
    assert_same(&directory, &before);
    fill.iter().for_each(|path| drop(fs::remove_file(path)));
    // XFS gives the space of files that are gone back by and by, at the latest when it is unmounted.
    drop(mover);
    image.cold();
    let mut mover = K::host(&image.root());

    // It is asked before it looks for a region's place and before it moves its files: between the first and the second, no donor is open.
    let by_one = Settings { batch: 0, ..settings };
    let mut asked = 0;
    let report = carry_out(&mut mover, &mut files, &made, &by_one, &mut |_| {
        asked += 1;
        if asked == 3 {
            image.make_read_only();
        }
        true
    });
    let Some(Ended::Failed(failure)) = &report.ended else { panic!("{report:?}") };
    let said = failure.to_string();
    assert!(said.contains("cannot capture free space: Read-only file system"), "{said}");
    assert_eq!(report.regions, 1);
    assert_same(&directory, &before);
    drop(mover);
    image.check();
    assert_same(&directory, &before);
}

/// Free space in pieces, as on a full disk that was used for long: what would not be better is left, and nothing gets worse.
pub(crate) fn free_space_in_pieces_is_used_where_it_is_better<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(128 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 120);
    let fill = image.root().join("fill");
    fs::create_dir(&fill).unwrap();
    let mut count = 0_u64;
    // Files of 1 to 40 blocks until nothing fits, of which three of four stay.
    while fs::write(fill.join(count.to_string()), vec![7; (1 + count as usize * 17 % 40) * 4096]).is_ok() {
        count += 1;
        if count.is_multiple_of(200) {
            sync(&fill);
        }
    }
    sync(&fill);
    for number in (0..count).filter(|number| number % 4 == 1) {
        fs::remove_file(fill.join(number.to_string())).unwrap();
    }
    image.cold();
    let before = kept(&directory);
    let mut mover = K::host(&directory);
    let mut last = breaks(&planned(&mut mover, &directory, &Rules::for_regions(16)).0);
    for region in [16, 64, 512] {
        for round in 0.. {
            let (after, report) = pack(&mut mover, &directory, &Rules::for_regions(region));
            eprintln!(
                "regions of {region}, round {round}: {last} breaks, then {}; {} regions, {} not better, {} without room",
                breaks(&after),
                report.regions,
                report.not_better,
                report.no_room
            );
            assert!(report.ended.is_none() && report.torn.is_empty(), "{report:?}");
            assert!(breaks(&after) + 3 * report.regions <= last);
            last = breaks(&after);
            if report.regions == 0 {
                break;
            }
        }
    }
    assert_same(&directory, &before);
    drop(mover);
    image.check();
    assert_same(&directory, &before);
}

/// A file whose bytes the disk doesn't give any more ends the run by its name; what was moved before is whole. Where nothing is to be
/// read, such a file stays, though its pages count as being in memory when somebody has tried to read it.
pub(crate) fn a_read_error_ends_it_and_nothing_is_lost<K: Kind>() {
    if !is_root() {
        return;
    }
    // What is written there would move the end of the disk.
    let mut image = Image::of(K::TOOLS, 512 * MIB, K::JOURNAL_FIRST, "");
    let directory = image.root().join("d");
    // Each directory lies in another group.
    for number in 0..8 {
        scatter(&directory.join(number.to_string()), 20);
    }
    let before = kept(&directory);
    image.cold();
    let (mut files, mut made) = planned(&mut K::host(&directory), &directory, &READ_ERROR_RULES);
    // Behind the last of all blocks there is nothing: the disk ends before it.
    let last = |file: &Candidate| file.places.runs().iter().map(|run| run.place).max();
    let turn = (0..files.len()).max_by_key(|&turn| last(&files[turn])).unwrap();
    let victim = files[turn].path.clone();
    let run = files[turn].places.runs().iter().max_by_key(|run| run.place).copied().unwrap();
    // Nothing is to be written behind that end, where it would move it.
    made.regions.retain(|region| region.files.contains(&turn));
    assert_eq!(made.regions.len(), 1);
    let disk = File::options().read(true).write(true).open(image.file()).unwrap();
    let (size, cut) = (disk.metadata().unwrap().len(), run.place * 4096);
    let mut lost = vec![0; run.blocks as usize * 4096];
    disk.read_exact_at(&mut lost, cut).unwrap();
    disk.set_len(cut).unwrap();

    let settings = Settings::new(READ_ERROR_RULES);
    let (at, plan, mut all) = (directory.clone(), made.clone(), files.clone());
    let report = in_the_end(move || carry_out(&mut K::host(&at), &mut all, &plan, &settings, &mut |_| true));
    let Some(Ended::Failed(failure)) = &report.ended else { panic!("{report:?}") };
    assert_eq!(failure.to_string(), format!("{}: cannot read it: Input/output error (os error 5)", victim.display()));
    assert_eq!(report.files, 0);

    for file in &files {
        let mut bytes = Vec::new();
        let read = File::from(open_file_untouched(&file.path).unwrap()).read_to_end(&mut bytes);
        assert_eq!(read.is_err(), file.path == victim, "{}: {read:?}", file.path.display());
    }
    let at = directory.clone();
    let report =
        in_the_end(move || carry_out(&mut K::host_of_cached(&at), &mut files, &made, &settings, &mut |_| true));
    assert!(report.ended.is_none(), "{report:?}");
    assert_eq!(report.stayed, [(turn, Stays::NotCached)].into());

    disk.write_all_at(&lost, cut).unwrap();
    disk.set_len(size).unwrap();
    image.cold();
    assert_same(&directory, &before);
    image.check();
}

const READ_ERROR_RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };

/// What comes of work that has an end; a failure when it hasn't: the kernel may try for ever.
fn in_the_end<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(120)).expect("it ends")
}
