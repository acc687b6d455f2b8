//! What `onesweep guard` adds to an opening of a file that it knows.

use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::network::Host;
use super::series::said;
use super::site::Site;
use super::{Figures, rounds, scaled};
use crate::age::image::{Fs, PlainMount};
use crate::bench::statistics;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const FILES: u64 = 100;
const FILE_BYTES: usize = 4096;
const OPENINGS: u64 = 20_000;
const ROUNDS: usize = 5;
/// A file that changed just before is looked at again.
const SETTLED: Duration = Duration::from_secs(4);

/// The median of so many openings, in microseconds.
fn opening_us(paths: &[PathBuf], openings: u64, interrupt: &Interrupt) -> Result<f64, String> {
    let mut taken = Vec::new();
    for path in paths.iter().cycle().take(usize::try_from(openings).unwrap_or(usize::MAX)) {
        interrupt.check()?;
        let begun = Instant::now();
        let file = File::open(path);
        taken.push(begun.elapsed().as_secs_f64() * 1e6);
        drop(file.map_err(said(path))?);
    }
    statistics::spread(taken).map(|spread| spread.median).ok_or_else(|| "nothing was opened".to_owned())
}

/// How many openings were answered without a look at the file, of what the guard says at its end.
fn known_of(told: &str) -> Option<u64> {
    told.rsplit_once(" of known files")?.0.rsplit(' ').next()?.parse().ok()
}

/// The same files are opened unguarded and guarded, in turns. The engine is any program: it is asked once for each.
pub(super) fn known(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let site = Site::new(64, programs, interrupt)?;
    let image = site.scratch.file("image");
    File::create(&image).and_then(|file| file.set_len(64 << 20)).map_err(said(&image))?;
    Fs::Ext4.make(&image, FILES + 4096, &["-b", "4096"].map(str::to_owned))?;
    let guarded = site.scratch.dir("guarded")?;
    let mut mounted = PlainMount::writable(&image, &guarded, "ext4", "noatime,noinit_itable")?;
    let paths: Vec<PathBuf> = (0..FILES).map(|number| guarded.join(number.to_string())).collect();
    for (number, path) in paths.iter().enumerate() {
        fs::write(path, [number as u8; FILE_BYTES]).map_err(said(path))?;
    }
    thread::sleep(SETTLED);

    let openings = scaled(OPENINGS, scale);
    let words = ["guard", "--fail-open", "--command", "cat > /dev/null", "--epoch", "1", "--verdicts"];
    let [program, verdicts, dir] = [&programs.onesweep, &site.scratch.file("verdicts"), &guarded];
    let words: Vec<String> = std::iter::once(program.display().to_string())
        .chain(words.map(str::to_owned))
        .chain([verdicts, dir].map(|path| path.display().to_string()))
        .collect();
    let mut figures = Figures::new();
    for _ in 0..rounds(scale, ROUNDS) {
        let mut keep = |name: &str, value| figures.entry(name.to_owned()).or_default().push(value);
        keep("plain_us", opening_us(&paths, openings, interrupt)?);
        let guard = site.process(Host::Client, &words, "guarding ")?;
        // Known from its first opening on.
        opening_us(&paths, FILES, interrupt)?;
        keep("known_us", opening_us(&paths, openings, interrupt)?);
        let told = guard.finish()?;
        if known_of(&told).is_none_or(|known| known < openings) {
            return Err(format!("not each of {openings} openings was of a known file: {}", told.trim()));
        }
    }
    mounted.end()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_openings_are_found_in_the_log() {
        let told = "guarding /a\nended: 120 openings, 100 of known files; 0 contents known here";
        assert_eq!((known_of(told), known_of("guarding /a")), (Some(100), None));
    }
}
