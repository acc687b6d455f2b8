//! Time on the emulated disk, by its books and its trace, for reads that go through `onesweep-lab disk`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::place::{Place, place};
use crate::shown::Shown;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A read in the trace. Its form is in `docs/FORMATS.md`.
#[derive(Debug)]
struct Served {
    time_ms: f64,
    address: u64,
    service_ms: f64,
    seek_ms: f64,
    rotation_ms: f64,
    queue: u64,
}

impl Served {
    fn transfer_ms(&self) -> f64 {
        self.service_ms - self.seek_ms - self.rotation_ms
    }
}

/// A disk with nothing on it, read at places that a test chooses.
struct Bare {
    place: Place,
    disk: File,
    _shown: Shown,
}

impl Bare {
    fn show(image_mib: u64, options: &[&str]) -> Option<Self> {
        let place = place(image_mib)?;
        let trace = place.home.path().join("trace");
        let mut command = place.lab(&["--track-buffer", "off", "--trace"]);
        let shown = Shown::start(command.arg(trace).args(options));
        let disk = File::open(place.disk.join("disk")).unwrap();
        Some(Self { place, disk, _shown: shown })
    }

    fn read(&self, at: u64, bytes: usize) {
        self.disk.read_exact_at(&mut vec![0; bytes], at).unwrap();
    }

    /// A figure of the books.
    fn booked(&self, name: &str) -> f64 {
        self.place.stats()[name].as_f64().unwrap()
    }

    fn trace(&self) -> Vec<Served> {
        self.place.stats(); // which writes the trace out
        let text = fs::read_to_string(self.place.home.path().join("trace")).unwrap();
        let served = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            // Whoever closes the file of the books has the disk flushed.
            if fields[1] != "R" {
                return None;
            }
            let number = |field: usize| fields[field].parse::<f64>().unwrap();
            Some(Served {
                time_ms: number(0),
                address: fields[2].parse().unwrap(),
                service_ms: number(4),
                seek_ms: number(5),
                rotation_ms: number(6),
                queue: fields[7].parse().unwrap(),
            })
        };
        text.lines().skip(1).filter_map(served).collect()
    }
}

/// Blocks all over an image, the same on every run.
fn scattered(image_mib: u64, count: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (image_mib * MIB / BLOCK as u64) * BLOCK as u64
    });
    next.take(count).collect()
}

#[track_caller]
fn near(value: f64, expected: f64, by: f64) {
    assert!((value - expected).abs() <= by, "{value} is not {expected} ± {by}");
}

/// Virtual time would be over in a few milliseconds. A busy machine can only make it longer.
#[test]
fn real_time_passes_as_the_books_say() {
    const FACTOR: f64 = 0.5;
    let Some(bare) = Bare::show(16, &["--real", "0.5"]) else { return };
    let began = Instant::now();
    for at in scattered(16, 60) {
        bare.read(at, BLOCK);
    }
    let passed_ms = began.elapsed().as_secs_f64() * 1000.0;
    let busy_ms = bare.booked("busy_ms");
    assert!(busy_ms > 60.0 * 2.0, "{busy_ms}");
    assert!(passed_ms >= busy_ms * FACTOR * 0.9, "{busy_ms} ms of the model took {passed_ms} ms");
}

/// The Barracuda gives 105 MB/s in the outermost of its 16 zones, 55 in the innermost, and between them falls by equal steps.
#[test]
fn a_span_has_the_rate_of_its_zone() {
    // One request, wherever its buffer begins in a page.
    const BYTES: usize = 512 << 10;
    for (span, rate) in [("0..1%", 105.0), ("50%..51%", 105.0 - 50.0 * 8.0 / 15.0), ("99%..100%", 55.0)] {
        let Some(bare) = Bare::show(16, &["--span", span]) else { return };
        bare.read(4 * MIB, BYTES);
        let expected_ms = BYTES as f64 / (rate * 1000.0);
        near(bare.booked("transfer_ms"), expected_ms, expected_ms * 0.001);
        let in_trace: Vec<f64> = bare.trace().iter().map(Served::transfer_ms).collect();
        assert_eq!(in_trace.len(), 1);
        near(in_trace[0], expected_ms, 0.01);
    }
}

/// Three quarters of the image are three quarters of the stroke, or of the hundredth of it that the image covers.
#[test]
fn a_span_has_seeks_of_its_own_length() {
    let (track, average, full) = (0.8, 8.5, 18.0);
    let whole_ms = average + (full - average) * (0.75 - 1.0 / 3.0) * 1.5;
    let part_ms = track + (average - track) * (0.0075_f64 * 3.0).sqrt();
    for (span, expected_ms) in [("0..100%", whole_ms), ("99%..100%", part_ms)] {
        let Some(bare) = Bare::show(16, &["--span", span]) else { return };
        bare.read(0, BLOCK);
        bare.read(12 * MIB, BLOCK);
        let trace = bare.trace();
        assert_eq!(trace[1].address, 12 * MIB);
        near(trace[1].seek_ms, expected_ms, 0.02);
    }
}

#[test]
fn a_disk_that_was_left_alone_spins_up() {
    const STANDBY_MS: f64 = 1000.0;
    const SPIN_UP_MS: f64 = 8000.0;
    let Some(bare) = Bare::show(16, &["--standby", "1"]) else { return };
    bare.read(0, BLOCK);
    thread::sleep(Duration::from_millis(1200));
    for at in 1..20 {
        bare.read(at * MIB / 2, BLOCK);
    }
    let trace = bare.trace();
    // A busy machine may leave the disk alone for longer than this test means to: the trace tells how long.
    let waits =
        trace.windows(2).map(|pair| (pair[1].time_ms - pair[0].time_ms - pair[0].service_ms, pair[1].service_ms));
    let (mut asleep, mut awake) = (0, 0);
    for (idle_ms, service_ms) in waits {
        if idle_ms >= STANDBY_MS {
            asleep += 1;
            assert!(service_ms >= SPIN_UP_MS, "{idle_ms} ms alone, then {service_ms} ms");
        } else {
            awake += 1;
            assert!(service_ms < SPIN_UP_MS, "{idle_ms} ms alone, then {service_ms} ms");
        }
    }
    assert!(asleep >= 1 && awake >= 1, "{trace:?}");
    // Starting the test may have taken as long.
    let first = usize::from(trace[0].service_ms >= SPIN_UP_MS);
    assert_eq!(bare.booked("spin_ups"), (asleep + first) as f64);
    near(bare.booked("spin_up_ms"), SPIN_UP_MS * (asleep + first) as f64, 0.001);
}

/// The same places, one read at a time and by 32 threads.
#[test]
fn a_queue_shortens_the_way_of_the_arm() {
    const THREADS: usize = 32;
    let places = scattered(64, 8 * THREADS);
    let [alone, queued] = [1, THREADS].map(|threads| {
        let bare = Bare::show(64, &[])?;
        thread::scope(|scope| {
            for part in places.chunks(places.len() / threads) {
                let bare = &bare;
                scope.spawn(move || part.iter().for_each(|&at| bare.read(at, BLOCK)));
            }
        });
        Some(bare)
    });
    let (Some(alone), Some(queued)) = (alone, queued) else { return };
    let addresses = |bare: &Bare| bare.trace().iter().map(|served| served.address).collect::<Vec<u64>>();
    assert_eq!(addresses(&alone), places, "one at a time, they come as they were asked for");
    let mut sorted = [addresses(&queued), places];
    sorted.iter_mut().for_each(|addresses| addresses.sort_unstable());
    assert_eq!(sorted[0], sorted[1]);
    assert!(alone.trace().iter().all(|served| served.queue == 1));
    let deepest = queued.trace().iter().map(|served| served.queue).max();
    assert!(deepest >= Some(16), "{deepest:?}");
    for (figure, at_most) in [("seek_ms", 0.6), ("busy_ms", 0.6)] {
        let (alone, queued) = (alone.booked(figure), queued.booked(figure));
        assert!(queued < alone * at_most, "{figure}: {queued} ms with a queue, {alone} ms without");
    }
}
