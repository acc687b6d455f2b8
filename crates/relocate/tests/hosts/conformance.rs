//! What any host keeps to: the model and the real one run this.

use std::path::{Path, PathBuf};

use onesweep_relocate::host::{Exchange, Host, Moved, Stays, Trouble};
use onesweep_relocate::places::Places;

/// A host with files that the suite makes.
pub(crate) trait Fixture {
    type Host: Host;

    /// A donor has the old places of what it gave its own to, so that the same again brings them back.
    const SWAPS: bool;

    /// Files change places as wholes alone.
    const WHOLE: bool = false;

    fn host(&mut self) -> &mut Self::Host;

    /// Where files are made.
    fn directory(&self) -> PathBuf;

    /// Makes a file of so many blocks, the last of which may lack some bytes, with bytes of its own, that is on the disk.
    fn make(&mut self, name: &str, blocks: u64, cut: u64) -> PathBuf;

    /// Changes a byte of a file in memory, and nothing more.
    fn dirty(&mut self, path: &Path);

    fn contents(&mut self, path: &Path) -> Vec<u8>;
}

fn stays<T>(answer: Result<T, Trouble>) -> Option<Stays> {
    match answer {
        Err(Trouble::Stays(stays)) => Some(stays),
        Err(Trouble::Failed(failure)) => panic!("{failure}"),
        Ok(_) => None,
    }
}

fn places_of(places: &Places) -> Vec<u64> {
    places.runs().iter().flat_map(|run| run.place..run.end()).collect()
}

/// The longest piece of free space of at least so many blocks, and the donor that has it.
fn longest_of<'a, H: Host>(
    host: &mut H,
    donors: &'a [H::Donor],
    blocks: u64,
) -> Result<(&'a H::Donor, Places), NoRoom> {
    let mut pieces = Vec::new();
    for donor in donors {
        pieces.extend(host.donor_places(donor).unwrap().runs().iter().map(|run| (donor, *run)));
    }
    let longest = pieces.into_iter().max_by_key(|(_, run)| run.blocks);
    let (donor, run) = longest.filter(|(_, run)| run.blocks >= blocks).ok_or(NoRoom)?;
    Ok((donor, Places::of([run]).unwrap()))
}

/// The first block of a donor that a file can get.
fn start_of(places: &Places) -> u64 {
    places.runs()[0].logical
}

pub(crate) fn conforms<F: Fixture>(fixture: &mut F) {
    looks_and_opens(fixture);
    captures(fixture);
    // The last block full, with a byte, and in between.
    for (number, cut) in [0, 4095, 100].into_iter().enumerate() {
        if F::WHOLE {
            again(|round| exchanges_wholes(fixture, 10 * round + number, cut));
        } else {
            exchanges(fixture, number, cut);
        }
        again(|round| packs(fixture, 10 * round + number, cut));
    }
}

/// Again where the file system itself has taken a place that was given up for a file, which it may at any time.
fn again(mut test: impl FnMut(usize) -> Result<(), NoRoom>) {
    assert!((0..5).any(|round| test(round).is_ok()), "there is never room");
}

struct NoRoom;

/// Moves a whole file, unless its places are gone.
fn whole(moved: &Moved, blocks: u64) -> Result<(), NoRoom> {
    if moved.blocks == 0 && matches!(moved.trouble, Some(Trouble::Stays(Stays::NoRoom))) {
        return Err(NoRoom);
    }
    assert!(moved.trouble.is_none() && moved.blocks == blocks, "{moved:?}");
    Ok(())
}

fn looks_and_opens<F: Fixture>(fixture: &mut F) {
    let path = fixture.make("looked-at", 3, 0);
    let host = fixture.host();
    let looked = host.look(&path).unwrap();
    assert_eq!((looked.places.blocks(), looked.stays), (3, None));
    host.announce(&path);
    assert_eq!(host.open(&path, looked.inode).unwrap().places, looked.places);
    assert_eq!(stays(host.open(&path, looked.inode + 1)), Some(Stays::Gone));
    let none = path.with_file_name("none");
    host.announce(&none);
    assert_eq!(stays(host.look(&none)), Some(Stays::Gone));
    assert_eq!(stays(host.open(&none, looked.inode)), Some(Stays::Gone));

    fixture.dirty(&path);
    assert_eq!(stays(fixture.host().open(&path, looked.inode)), Some(Stays::Busy));
    fixture.host().commit().unwrap();
    assert_eq!(stays(fixture.host().open(&path, looked.inode)), None);

    let empty = fixture.make("empty", 0, 0);
    let looked = fixture.host().look(&empty).unwrap();
    assert_eq!(looked.places, Places::default());
}

fn captures<F: Fixture>(fixture: &mut F) {
    let path = fixture.make("beside", 2, 0);
    let directory = fixture.directory();
    let host = fixture.host();
    let unit = host.unit();
    let captured = host.capture(&directory, 3 * host.unit());
    assert!(captured.error.is_none() && captured.donors.len() == 3);
    let mut taken = places_of(&host.look(&path).unwrap().places);
    for donor in &captured.donors {
        let places = host.donor_places(donor).unwrap();
        assert_eq!(places.blocks(), unit);
        taken.extend(places_of(&places));
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len() as u64, 3 * unit + 2, "each place is one block's");
}

fn exchanges<F: Fixture>(fixture: &mut F, number: usize, cut: u64) {
    let path = fixture.make(&format!("exchanged-{number}"), 4, cut);
    let bytes = fixture.contents(&path);
    let directory = fixture.directory();
    let host = fixture.host();
    let looked = host.look(&path).unwrap();
    let opened = host.open(&path, looked.inode).unwrap();
    let captured = host.capture(&directory, host.unit());
    let donor = &captured.donors[0];
    let free = places_of(&host.donor_places(donor).unwrap());
    let before = places_of(&opened.places);

    // The middle of the file into the third and fourth block of the donor.
    let moved = host.exchange(&opened.file, donor, Exchange { from: 1, to: 2, blocks: 2 });
    assert!(moved.trouble.is_none() && moved.blocks == 2, "{moved:?}");
    let mut now = vec![before[0], free[2], free[3], before[3]];
    assert_eq!(places_of(&host.places(&opened.file).unwrap()), now);
    let left = places_of(&host.donor_places(donor).unwrap());
    assert!(!left.contains(&free[2]) && !left.contains(&free[3]), "they are the file's alone");
    assert_eq!(fixture.contents(&path), bytes);

    let host = fixture.host();
    host.commit().unwrap();
    if F::SWAPS {
        assert_eq!(left[2..4], before[1..3], "the donor has the old places");
        // What is exchanged again lies where it lay.
        let moved = host.exchange(&opened.file, donor, Exchange { from: 1, to: 2, blocks: 2 });
        assert!(moved.trouble.is_none() && moved.blocks == 2, "{moved:?}");
        assert_eq!(places_of(&host.places(&opened.file).unwrap()), before);
        host.commit().unwrap();
        now = before;
    }

    // No more than there is, and from an earlier block of the donor.
    let moved = host.exchange(&opened.file, donor, Exchange { from: 2, to: 0, blocks: 9 });
    assert!(moved.trouble.is_none() && moved.blocks == 2, "{moved:?}");
    drop((opened, captured));
    host.commit().unwrap();
    assert_eq!(fixture.contents(&path), bytes);
    let host = fixture.host();
    assert_eq!(places_of(&host.look(&path).unwrap().places), [now[0], now[1], free[0], free[1]]);
}

/// All of a file or nothing of it, also in two pieces, and no more than there is.
fn exchanges_wholes<F: Fixture>(fixture: &mut F, number: usize, cut: u64) -> Result<(), NoRoom> {
    let path = fixture.make(&format!("exchanged-{number}"), 4, cut);
    let bytes = fixture.contents(&path);
    let directory = fixture.directory();
    let host = fixture.host();
    let looked = host.look(&path).unwrap();
    let opened = host.open(&path, looked.inode).unwrap();
    let captured = [0, 1].map(|_| host.capture(&directory, host.unit()));
    // The last of its blocks that anything is to have.
    const BLOCKS: u64 = 101;
    let (one, first) = longest_of(host, &captured[0].donors, BLOCKS)?;
    let (other, second) = longest_of(host, &captured[1].donors, BLOCKS)?;
    let held = [first, second];
    let (free, start) = (held.each_ref().map(places_of), held.each_ref().map(start_of));

    // The middle of the file.
    let moved = host.exchange(&opened.file, one, Exchange { from: 1, to: start[0] + 2, blocks: 2 });
    assert!(moved.blocks == 0 && stays(moved.trouble.map_or(Ok(()), Err)) == Some(Stays::Unsupported));
    assert_eq!(host.places(&opened.file).unwrap(), opened.places);

    // All of it, into the third to sixth block of the donor.
    let moved = host.exchange(&opened.file, one, Exchange { from: 0, to: start[0] + 2, blocks: 9 });
    whole(&moved, 4)?;
    assert_eq!(places_of(&host.places(&opened.file).unwrap()), free[0][2..6]);
    let left = places_of(&host.donor_places(one).unwrap());
    assert!(free[0][2..6].iter().all(|place| !left.contains(place)), "they are the file's alone");
    assert_eq!(fixture.contents(&path), bytes);

    // In one piece it is, so that it can't be torn.
    let host = fixture.host();
    let halves = [
        (one, Exchange { from: 0, to: start[0] + 100, blocks: 1 }),
        (other, Exchange { from: 1, to: start[1] + 50, blocks: 3 }),
    ];
    let torn = host.exchange_all(&opened.file, &halves);
    let why = stays(torn.trouble.map_or(Ok(()), Err));
    assert!(torn.blocks == 0 && matches!(why, Some(Stays::Unsupported | Stays::NoRoom)), "{why:?}");
    assert_eq!(places_of(&host.places(&opened.file).unwrap()), free[0][2..6]);
    // And back to an earlier place.
    let moved = host.exchange(&opened.file, other, Exchange { from: 0, to: start[1], blocks: 4 });
    whole(&moved, 4)?;
    drop((opened, captured));
    host.commit().unwrap();
    assert_eq!(fixture.contents(&path), bytes);
    assert_eq!(places_of(&fixture.host().look(&path).unwrap().places), free[1][..4]);
    Ok(())
}

/// Files one behind the other into one donor, from its start on and from its end on: each lies where it was put, and alone.
fn packs<F: Fixture>(fixture: &mut F, number: usize, cut: u64) -> Result<(), NoRoom> {
    for is_rising in [true, false] {
        let made =
            |fixture: &mut F, file: u64| fixture.make(&format!("packed-{number}-{is_rising}-{file}"), 1 + file, cut);
        let paths: Vec<PathBuf> = (0..4).map(|file| made(fixture, file)).collect();
        let contents: Vec<Vec<u8>> = paths.iter().map(|path| fixture.contents(path)).collect();
        let directory = fixture.directory();
        let host = fixture.host();
        let captured = host.capture(&directory, host.unit());
        let (donor, held) = if F::WHOLE {
            // All four files, of one to four blocks.
            longest_of(host, &captured.donors, 10)?
        } else {
            (&captured.donors[0], host.donor_places(&captured.donors[0]).unwrap())
        };
        let (free, start) = (places_of(&held), start_of(&held));
        let mut turns: Vec<u64> = (0..4).collect();
        if !is_rising {
            turns.reverse();
        }
        let first = |file: u64| (0..file).map(|before| 1 + before).sum::<u64>();
        for &file in &turns {
            let path = &paths[file as usize];
            let inode = host.look(path).unwrap().inode;
            let opened = host.open(path, inode).unwrap();
            let exchange = Exchange { from: 0, to: start + first(file), blocks: 1 + file };
            let moved = host.exchange(&opened.file, donor, exchange);
            whole(&moved, 1 + file)?;
        }
        drop(captured);
        host.commit().unwrap();
        for (file, path) in (0..).zip(&paths) {
            let looked = fixture.host().look(path).unwrap();
            let wanted = &free[first(file) as usize..][..1 + file as usize];
            assert_eq!((places_of(&looked.places), looked.stays), (wanted.to_vec(), None));
            assert_eq!(fixture.contents(path), contents[file as usize]);
        }
    }
    Ok(())
}
