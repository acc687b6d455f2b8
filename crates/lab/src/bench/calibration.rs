//! What stands beside figures by the clock: the processor's time, and what a system call takes here.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

/// Ticks of the processor's time in a second, as `/proc` counts them on every machine.
pub(crate) const TICKS: f64 = 100.0;

/// Seconds of the processor that a process has used, this one being `self`; to a hundredth.
pub(crate) fn processor_s(process: &str) -> Result<f64, String> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    ticks(&stat).map(|ticks| ticks as f64 / TICKS).ok_or_else(|| format!("{path}: not as it is known"))
}

/// The fields `utime` and `stime`, behind a name that may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Nanoseconds of a system call that does nothing.
pub(crate) fn getppid_ns() -> f64 {
    const CALLS: u32 = 1_000_000;
    let began = Instant::now();
    for _ in 0..CALLS {
        black_box(std::os::unix::process::parent_id());
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_processor_is_behind_any_name() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 9 9 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a"), None);
        assert!(processor_s("self").unwrap() >= 0.0);
    }
}
