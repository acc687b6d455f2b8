//! One line for each file that was found.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
};

use onesweep_layout::{
    Extent, ExtentFlags,
    tables::{Inode, InodeFlags, Timestamp},
};
use onesweep_sys::files::{Stat, Time};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::sum::write_escaped;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The path, and a line feed.
    Lines,
    /// The path, and a NUL.
    Nul,
    /// Mode, names, owner, group, size, time, fragments, address, flags and path in columns, with `-> target` behind symbolic links;
    /// `\`, line feed and carriage return in both are written `\\`, `\n` and `\r`. Flags are letters, or `-`: `D` of a file system that was
    /// not closed, `C` compressed, `E` encrypted, `R` for a driver that isn't known here.
    Long,
    /// One JSON object.
    Json,
}

/// The line above the long form.
pub const LONG_HEADER: &str =
    "  MODE LINKS    UID    GID         SIZE CHANGED (UTC)    FRAGMENTS        ADDRESS FLAGS PATH";

/// A point in time, or none, in 12 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    seconds: [u8; 8],
    nanoseconds: [u8; 4],
}

impl Moment {
    const NONE: Moment = Moment { seconds: [0; 8], nanoseconds: [0xff; 4] };

    /// What it stands for.
    pub fn timestamp(self) -> Option<Timestamp> {
        let (seconds, nanoseconds) = (i64::from_ne_bytes(self.seconds), u32::from_ne_bytes(self.nanoseconds));
        (self != Moment::NONE).then_some(Timestamp { seconds, nanoseconds })
    }
}

impl Default for Moment {
    fn default() -> Moment {
        Moment::NONE
    }
}

impl From<Option<Timestamp>> for Moment {
    fn from(time: Option<Timestamp>) -> Moment {
        time.map_or(Moment::NONE, |Timestamp { seconds, nanoseconds }| Moment {
            seconds: seconds.to_ne_bytes(),
            nanoseconds: nanoseconds.to_ne_bytes(),
        })
    }
}

/// What is kept of an inode.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Its number.
    pub inode: u64,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes that are allocated.
    pub allocated: u64,
    /// Names.
    pub links: u32,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last read.
    pub atime: Moment,
    /// Birth; `None` where it isn't kept.
    pub btime: Moment,
    /// Runs of blocks with data.
    pub fragments: u32,
    /// The byte where its first block lies.
    pub address: Option<u64>,
    /// What is special about it.
    pub flags: InodeFlags,
    /// Where a symbolic link points.
    pub target: Option<Box<[u8]>>,
    /// Further contents under names of their own (the alternate data streams of NTFS): name and bytes.
    pub streams: Box<[(Vec<u8>, u64)]>,
}

impl Row {
    /// The directory of what is in use but has no name.
    pub fn of_lost() -> Row {
        Row { mode: 0o040_700, links: 2, ..Row::default() }
    }

    /// What the kernel says of an inode, without where it lies.
    pub fn of_stat(stat: &Stat) -> Row {
        let time = |time: Time| Timestamp { seconds: time.secs, nanoseconds: time.nanos };
        Row {
            inode: stat.ino,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            allocated: stat.blocks * 512,
            links: stat.nlink,
            mtime: time(stat.mtime),
            ctime: time(stat.ctime),
            atime: Some(time(stat.atime)).into(),
            btime: stat.btime.map(time).into(),
            ..Row::default()
        }
    }

    /// Keeps what is shown of where the content lies.
    pub(super) fn set_extents(&mut self, extents: &[Extent]) {
        let mut end = None;
        for extent in extents.iter().filter(|extent| !extent.is_zeros()) {
            self.fragments += u32::from(end.is_none() || end != extent.physical);
            end = extent.physical_end();
        }
        let first = extents.iter().find(|extent| !extent.flags.contains(ExtentFlags::UNWRITTEN));
        self.address = first.and_then(|extent| extent.physical);
    }

    /// Keeps what is shown.
    pub fn of(inode: &Inode) -> Row {
        let mut row = Row {
            inode: inode.number,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            allocated: inode.allocated,
            links: inode.links,
            mtime: inode.mtime,
            ctime: inode.ctime,
            atime: Some(inode.atime).into(),
            btime: inode.btime.into(),
            flags: inode.flags,
            target: inode.inline.as_deref().filter(|_| inode.mode >> 12 == SYMLINK).map(Box::from),
            streams: inode.streams.as_slice().into(),
            ..Row::default()
        };
        row.set_extents(&inode.extents);
        row
    }
}

/// The type bits of a symbolic link.
const SYMLINK: u32 = 0o12;

/// The letters of the long form.
fn letters(flags: InodeFlags) -> String {
    let all = [
        (InodeFlags::DIRTY, 'D'),
        (InodeFlags::COMPRESSED, 'C'),
        (InodeFlags::ENCRYPTED, 'E'),
        (InodeFlags::UNKNOWN_REPARSE, 'R'),
    ];
    let letters: String = all.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, letter)| letter).collect();
    if letters.is_empty() { "-".to_owned() } else { letters }
}

/// As `--json` shows it.
#[derive(Serialize)]
struct Line<'a> {
    path: std::borrow::Cow<'a, str>,
    /// The bytes in hexadecimal, when the path is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    inode: u64,
    r#type: &'static str,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    allocated: u64,
    links: u32,
    mtime: Box<RawValue>,
    ctime: Box<RawValue>,
    atime: Box<RawValue>,
    /// `null` where it isn't kept.
    btime: Option<Box<RawValue>>,
    fragments: u32,
    address: Option<u64>,
    flags: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    streams: Vec<Stream<'a>>,
}

/// A further content.
#[derive(Serialize)]
struct Stream<'a> {
    name: std::borrow::Cow<'a, str>,
    size: u64,
}

/// Writes one file.
pub fn write_row(out: &mut dyn Write, path: &[u8], row: &Row, style: Style) -> io::Result<()> {
    match style {
        Style::Lines => {
            out.write_all(path)?;
            out.write_all(b"\n")
        }
        Style::Nul => {
            out.write_all(path)?;
            out.write_all(b"\0")
        }
        Style::Long => {
            let Row { mode, links, uid, gid, size, fragments, .. } = row;
            let address = row.address.map_or_else(|| "-".to_owned(), |address| address.to_string());
            write!(out, "{mode:>6o} {links:>5} {uid:>6} {gid:>6} {size:>12} ")?;
            write!(out, "{} {fragments:>9} {address:>14} {:<5} ", date(row.mtime.seconds), letters(row.flags))?;
            write_escaped(out, path)?;
            if let Some(target) = &row.target {
                out.write_all(b" -> ")?;
                write_escaped(out, target)?;
            }
            out.write_all(b"\n")
        }
        Style::Json => {
            serde_json::to_writer(&mut *out, &line(path, row)?)?;
            out.write_all(b"\n")
        }
    }
}

/// Seconds since 1970 with all digits, which no float has.
fn decimal(time: Timestamp) -> String {
    const SECOND: u128 = 1_000_000_000;
    let nanoseconds = i128::from(time.seconds) * SECOND as i128 + i128::from(time.nanoseconds);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, fraction) = (nanoseconds.unsigned_abs() / SECOND, nanoseconds.unsigned_abs() % SECOND);
    let digits = format!("{fraction:09}");
    let fraction = Some(digits.trim_end_matches('0')).filter(|digits| !digits.is_empty()).unwrap_or("0");
    format!("{sign}{seconds}.{fraction}")
}

fn line<'a>(path: &'a [u8], row: &'a Row) -> serde_json::Result<Line<'a>> {
    let text = OsStr::from_bytes(path);
    let time = |time: Timestamp| RawValue::from_string(decimal(time));
    Ok(Line {
        path: text.to_string_lossy(),
        path_hex: text.to_str().is_none().then(|| path.iter().map(|byte| format!("{byte:02x}")).collect()),
        inode: row.inode,
        r#type: kind(row.mode),
        mode: row.mode & 0o7777,
        uid: row.uid,
        gid: row.gid,
        size: row.size,
        allocated: row.allocated,
        links: row.links,
        mtime: time(row.mtime)?,
        ctime: time(row.ctime)?,
        atime: time(row.atime.timestamp().unwrap_or_default())?,
        btime: row.btime.timestamp().map(time).transpose()?,
        fragments: row.fragments,
        address: row.address,
        flags: row.flags.iter_names().map(|(name, _)| name).collect(),
        target: row.target.as_deref().map(String::from_utf8_lossy),
        streams: row
            .streams
            .iter()
            .map(|(name, size)| Stream { name: String::from_utf8_lossy(name), size: *size })
            .collect(),
    })
}

/// The date and minute of a second since 1970, in the Gregorian calendar.
fn date(seconds: i64) -> String {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Counted from 1 March of the year 0, so that leap days come last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

fn kind(mode: u32) -> &'static str {
    match mode >> 12 {
        0o1 => "fifo",
        0o2 => "character device",
        0o4 => "directory",
        0o6 => "block device",
        0o10 => "file",
        0o12 => "symbolic link",
        0o14 => "socket",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &[u8], row: &Row, style: Style) -> String {
        let mut out = Vec::new();
        write_row(&mut out, path, row, style).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The documents tell how much memory a file takes.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_row_takes_no_more_than_it_did() {
        assert_eq!(size_of::<Row>(), 152);
    }

    #[test]
    fn fragments_are_runs_with_data() {
        let extent = |logical, physical, length, flags| Extent { logical, physical: Some(physical), length, flags };
        let none = ExtentFlags::empty();
        let extents = vec![
            extent(0, 900, 100, ExtentFlags::UNWRITTEN),
            extent(100, 5000, 100, none),
            extent(200, 5100, 100, none),
            extent(400, 7000, 100, none),
        ];
        let row = Row::of(&Inode { number: 12, extents, ..Inode::default() });
        assert_eq!((row.fragments, row.address), (2, Some(5000)));
        assert_eq!(Row::of(&Inode::default()).fragments, 0);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00"),
            (-1, "1969-12-31 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (4_107_542_400, "2100-03-01 00:00"),
            (1_709_251_199, "2024-02-29 23:59"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        for (seconds, nanoseconds, expected) in [
            (1_600_000_000, 123_456_789, "1600000000.123456789"),
            (1_600_000_000, 500_000_000, "1600000000.5"),
            (0, 0, "0.0"),
            (0, 1, "0.000000001"),
            (-1, 999_999_999, "-0.000000001"),
            (-1, 0, "-1.0"),
            (-2, 750_000_000, "-1.25"),
            (i64::MIN, 0, "-9223372036854775808.0"),
        ] {
            let mtime = Timestamp { seconds, nanoseconds };
            assert_eq!(decimal(mtime), expected);
            let json = written(b"a", &Row { mtime, ..Row::default() }, Style::Json);
            assert!(json.contains(&format!("\"mtime\":{expected},")), "{json}");
        }
    }

    #[test]
    fn births_are_told_where_they_are_kept() {
        let json = |btime: Option<Timestamp>| {
            let row = Row { btime: btime.into(), ..Row::default() };
            written(b"a", &row, Style::Json)
        };
        let birth = Timestamp { seconds: -7, nanoseconds: 1 };
        assert!(json(Some(birth)).contains("\"btime\":-6.999999999,"), "{}", json(Some(birth)));
        assert!(json(Some(Timestamp::default())).contains("\"btime\":0.0,"));
        assert!(json(None).contains("\"btime\":null,"));
    }

    #[test]
    fn letters_stand_for_flags() {
        assert_eq!(letters(InodeFlags::empty()), "-");
        assert_eq!(letters(InodeFlags::all()), "DCER");
        assert_eq!(letters(InodeFlags::DIRTY | InodeFlags::ENCRYPTED), "DE");
    }

    #[test]
    fn every_style_tells_the_path() {
        let mtime = Timestamp { seconds: 1_600_000_000, nanoseconds: 500_000_000 };
        let flags = InodeFlags::COMPRESSED;
        let row = Row { inode: 7, mode: 0o100_640, size: 5, links: 1, mtime, fragments: 1, flags, ..Row::default() };
        assert_eq!(written(b"a\nb", &row, Style::Lines), "a\nb\n");
        assert_eq!(written(b"a\nb", &row, Style::Nul), "a\nb\0");
        let long = written(b"a\nb", &row, Style::Long);
        let columns: Vec<&str> = long.split_whitespace().collect();
        assert_eq!(columns, ["100640", "1", "0", "0", "5", "2020-09-13", "12:26", "1", "-", "C", "a\\nb"]);
        let json: serde_json::Value = serde_json::from_str(&written(b"a\xff", &row, Style::Json)).unwrap();
        assert_eq!((json["path_hex"].as_str(), json["type"].as_str()), (Some("61ff"), Some("file")));
        assert_eq!((json["mtime"].as_f64(), json["flags"][0].as_str()), (Some(1_600_000_000.5), Some("COMPRESSED")));
    }
}
