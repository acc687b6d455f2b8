//! How much programs wait for one another (PSI).

use std::fs;
use std::io;

/// The part of the last ten seconds, 0 to 1, in which some program waited for a disk.
///
/// `NotFound` or `Unsupported` where the kernel does not count that (`CONFIG_PSI`, `psi=0`).
#[doc(alias = "/proc/pressure/io")]
pub fn of_disks() -> io::Result<f64> {
    let told = fs::read_to_string("/proc/pressure/io")?;
    some_of_ten_seconds(&told).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn some_of_ten_seconds(told: &str) -> Option<f64> {
    let some = told.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 = some.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_ten_seconds_is_found() {
        let told = "some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(some_of_ten_seconds(told), Some(0.125));
        for bad in ["", "full avg10=1.00", "some avg60=1.00", "some avg10=x", "some avg10=101.00"] {
            assert_eq!(some_of_ten_seconds(bad), None, "{bad}");
        }
    }
}
