//! What all targets share: their promises of memory, and the images that some begin with.
//!
//! Each file of `fuzz_targets` runs one target of `onesweep_layout::fuzzing`, or of `onesweep_peer::fuzzing`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs, panic,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use onesweep_layout::fuzzing::{IMAGE_TARGETS, Image, Target, targets};

/// Counts what is allocated.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn allocated(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: all of it is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        allocated(bytes);
        unsafe { System.realloc(at, layout, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

/// Runs what must not have more than so many bytes at any moment.
pub fn within(memory: usize, run: impl FnOnce()) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    run();
    let taken = MOST.load(Ordering::Relaxed) - before;
    assert!(taken <= memory, "{taken} bytes of memory, {memory} promised");
}

/// Runs the target of a name.
pub fn run(name: &str, input: &[u8]) {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    let target = TARGET.get_or_init(|| targets().find(|target| target.name == name).expect("a target of this name"));
    within(target.memory, || (target.run)(input));
}

/// The bytes that a scan of a small image may take: what the readers state (see their documentation) for so few inodes.
const SCAN_BYTES: usize = 128 << 20;

/// Runs the target of whole images of a file system on the one that the first byte chooses; `./seeds` makes them. What
/// breaks a promise is told with the image's name.
pub fn run_image(name: &str, input: &[u8]) {
    static IMAGES: OnceLock<Vec<(String, Image)>> = OnceLock::new();
    static CHOSEN: AtomicUsize = AtomicUsize::new(0);
    let target = IMAGE_TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let images = IMAGES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("images").join(target.images);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}; run ./seeds", folder.display()));
        let mut files: Vec<_> = files.map(|file| file.expect("an image").path()).collect();
        files.sort();
        let named = |file: PathBuf| {
            let name = file.file_stem().expect("a name").display().to_string();
            (name, Image::new(&fs::read(file).expect("an image")))
        };
        // libFuzzer's own ends the process.
        let ends = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let images = IMAGES.get().map_or(&[][..], |images| images);
            let image = images.get(CHOSEN.load(Ordering::Relaxed)).map_or("none", |(name, _)| name);
            eprintln!("image: {image}");
            ends(info);
        }));
        files.into_iter().map(named).collect()
    });
    let chosen = input.first().map_or(0, |&byte| usize::from(byte)) % images.len();
    CHOSEN.store(chosen, Ordering::Relaxed);
    within(SCAN_BYTES, || (target.run)(&images[chosen].1, input));
}
