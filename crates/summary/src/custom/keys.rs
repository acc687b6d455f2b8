//! What entries are counted by: the kinds of summaries that are built in.

use std::fmt;

use onesweep_sys::files::{EntryType, Stat};

use super::tally::{Amounts, INODE_BYTES};

/// An entry of a directory, or the directory itself.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name; empty of the directory itself.
    pub name: &'a [u8],
    /// What `statx` says of it.
    pub stat: &'a Stat,
    /// The subvolume of btrfs that its number counts in; 0 elsewhere.
    pub subvolume: u64,
    /// The project that it belongs to, where that was asked for and is known.
    pub project: Option<u32>,
}

/// Takes what an entry adds under which key.
pub type Add<'a> = &'a mut dyn FnMut(&[u8], Amounts);

/// A summary over entries. One of your own is declared by [`Declared::add`](super::declare::Declared::add).
///
/// What an entry adds may depend on its name and on what `statx` says of it, and on nothing else: then it is asked again whenever
/// that has changed.
pub trait Summarise: fmt::Debug + Send + Sync {
    /// Adds what an entry comes to. An inode with several names is told by each; of sums the first name counts.
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>);
}

/// What most summaries count: entries, bytes, allocated bytes.
pub fn amounts(stat: &Stat) -> Amounts {
    [1, stat.size as i64, (stat.blocks as i64).wrapping_mul(512)]
}

/// What isn't a regular file has no type or size of a content.
fn other_than_file(stat: &Stat) -> Option<&'static [u8]> {
    match stat.file_type() {
        EntryType::File => None,
        EntryType::Dir => Some(b"(directory)"),
        EntryType::Symlink => Some(b"(symbolic link)"),
        _ => Some(b"(other)"),
    }
}

/// By owner: the user's number.
#[derive(Clone, Copy, Debug)]
pub struct Owner;

impl Summarise for Owner {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(entry.stat.uid.to_string().as_bytes(), amounts(entry.stat));
    }
}

/// By group: its number.
#[derive(Clone, Copy, Debug)]
pub struct Group;

impl Summarise for Group {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(entry.stat.gid.to_string().as_bytes(), amounts(entry.stat));
    }
}

/// By what stands behind the last point of a name.
#[derive(Clone, Copy, Debug)]
pub struct Extension;

/// Longer ones are no extensions.
const EXTENSION_BYTES_MAX: usize = 16;

impl Summarise for Extension {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        let key = match other_than_file(entry.stat) {
            Some(kind) => kind.to_vec(),
            None => extension(entry.name).unwrap_or_else(|| b"(none)".to_vec()),
        };
        add(&key, amounts(entry.stat));
    }
}

/// In lower case, with its point. Letters, digits, `-`, `_`, `+`, at least one of them a letter: what a program appends to tell
/// files apart is mostly something else.
fn extension(name: &[u8]) -> Option<Vec<u8>> {
    let at = name.iter().rposition(|&byte| byte == b'.').filter(|&at| at > 0)?;
    let extension = &name[at + 1..];
    let is_one = (1..=EXTENSION_BYTES_MAX).contains(&extension.len())
        && extension.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_+".contains(byte))
        && extension.iter().any(u8::is_ascii_alphabetic);
    is_one.then(|| [b".", extension].concat().to_ascii_lowercase())
}

/// By classes of a number, each from its border up to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes(Vec<(i64, String)>);

impl Classes {
    /// 0, 1, 10, 100, 1k, and so on.
    pub fn powers_of_ten() -> Classes {
        let units = ["", "k", "M", "G", "T", "P", "E"];
        let power = |exponent: u32| {
            (10_i64.pow(exponent), format!("{}{}", 10_i64.pow(exponent % 3), units[exponent as usize / 3]))
        };
        Classes([(0, "0".to_owned())].into_iter().chain((0..=18).map(power)).collect())
    }

    /// By these borders, which are in rising order, and what each is called.
    pub fn new(borders: Vec<(i64, String)>) -> Classes {
        Classes(borders)
    }

    /// What the class of a number is called.
    pub fn of(&self, number: i64) -> String {
        let above = self.0.partition_point(|(border, _)| *border <= number);
        match (above.checked_sub(1).and_then(|at| self.0.get(at)), self.0.first()) {
            (Some((_, name)), _) => name.clone(),
            (None, Some((_, first))) => format!("below {first}"),
            (None, None) => "all".to_owned(),
        }
    }
}

/// By size as the file says it.
#[derive(Clone, Debug)]
pub struct SizeClass(pub Classes);

impl Summarise for SizeClass {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        let class = || self.0.of(i64::try_from(entry.stat.size).unwrap_or(i64::MAX)).into_bytes();
        let key = other_than_file(entry.stat).map_or_else(class, <[u8]>::to_vec);
        add(&key, amounts(entry.stat));
    }
}

/// How long the periods of [`Age`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// A month.
    Month,
    /// A year.
    Year,
}

/// By the month or year (of UTC) in which the content changed last. A file stays in its class however old it gets; how old that
/// makes it is told when somebody asks.
#[derive(Clone, Copy, Debug)]
pub struct Age(pub Period);

impl Summarise for Age {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(self.0.of(entry.stat.mtime.secs).as_bytes(), amounts(entry.stat));
    }
}

const DAY_SECONDS: i64 = 86_400;

impl Period {
    /// The period of a time in seconds since 1970: `2026`, `2026-03`.
    pub fn of(self, seconds: i64) -> String {
        let (year, month) = month_of(seconds.div_euclid(DAY_SECONDS));
        match self {
            Period::Month => format!("{year:04}-{month:02}"),
            Period::Year => format!("{year:04}"),
        }
    }
}

/// From when to when a period lasts, in seconds since 1970: told by its name.
pub fn bounds(period: &str) -> Option<(i64, i64)> {
    // A year may be before our era.
    let (year, month) = match period.get(1..)?.rfind('-') {
        Some(at) => (period.get(..=at)?, Some(period.get(at + 2..)?)),
        None => (period, None),
    };
    let year: i64 = year.parse().ok().filter(|year: &i64| year.unsigned_abs() < 1 << 40)?;
    let (from, to) = match month {
        None => (first_day(year, 1), first_day(year + 1, 1)),
        Some(month) => {
            let month: i64 = month.parse().ok().filter(|month| (1..=12).contains(month))?;
            (first_day(year, month), if month == 12 { first_day(year + 1, 1) } else { first_day(year, month + 1) })
        }
    };
    Some((from * DAY_SECONDS, to * DAY_SECONDS))
}

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// The day since 1970 on which a month begins. Years are counted from March, so that the day that comes and goes is the last.
fn first_day(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// The year and month of a day since 1970.
fn month_of(day: i64) -> (i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(ERA_DAYS), day.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month)
}

/// By project id.
#[derive(Clone, Copy, Debug)]
pub struct Project;

impl Summarise for Project {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        let key = match (entry.project, other_than_file(entry.stat)) {
            (Some(project), _) => project.to_string().into_bytes(),
            // Only files and directories can be opened, and so be asked.
            (None, Some(kind)) => kind.to_vec(),
            (None, None) => b"(unknown)".to_vec(),
        };
        add(&key, amounts(entry.stat));
    }
}

/// The largest files: bytes, the directory (put in by who knows its number), allocated bytes.
#[derive(Clone, Copy, Debug)]
pub struct Largest;

impl Summarise for Largest {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        if entry.stat.file_type() == EntryType::File {
            let [_, bytes, allocated] = amounts(entry.stat);
            let mut key = Vec::with_capacity(INODE_BYTES + entry.name.len());
            key.extend(entry.subvolume.to_be_bytes());
            key.extend(entry.stat.ino.to_be_bytes());
            key.extend(entry.name);
            add(&key, [bytes, 0, allocated]);
        }
    }
}

#[cfg(test)]
mod tests {
    use onesweep_sys::files::{Time, statx_at};
    use proptest::prelude::*;

    use super::*;

    fn stat() -> Stat {
        let found = statx_at(onesweep_sys::files::CURRENT_DIR, "Cargo.toml", true).expect("a file");
        Stat { size: 5000, blocks: 16, uid: 7, gid: 8, mtime: Time { secs: 1_790_000_000, nanos: 0 }, ..found }
    }

    fn told(by: &dyn Summarise, name: &str, stat: &Stat, project: Option<u32>) -> (String, Amounts) {
        let mut all = Vec::new();
        by.tell(&Entry { name: name.as_bytes(), stat, subvolume: 0, project }, &mut |key, amounts| {
            all.push((String::from_utf8_lossy(key).into_owned(), amounts));
        });
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn each_kind_has_its_key() {
        let stat = stat();
        let key = |by: &dyn Summarise| told(by, "Paper.PDF", &stat, Some(42));
        let all = [1, 5000, 8192];
        assert_eq!(key(&Owner), ("7".into(), all));
        assert_eq!(key(&Group), ("8".into(), all));
        assert_eq!(key(&Extension), (".pdf".into(), all));
        assert_eq!(key(&SizeClass(Classes::powers_of_ten())), ("1k".into(), all));
        assert_eq!(key(&Age(Period::Month)), ("2026-09".into(), all));
        assert_eq!(key(&Age(Period::Year)), ("2026".into(), all));
        assert_eq!(key(&Project), ("42".into(), all));
        assert_eq!(told(&Project, "a", &stat, None).0, "(unknown)");
        let (file, amounts) = key(&Largest);
        assert!(file.ends_with("Paper.PDF") && amounts == [5000, 0, 8192]);
    }

    #[test]
    fn what_is_no_file_is_counted_by_what_it_is() {
        let directory = Stat { mode: 0o40_755, ..stat() };
        let link = Stat { mode: 0o120_777, ..stat() };
        let fifo = Stat { mode: 0o10_644, ..stat() };
        for by in [&Extension as &dyn Summarise, &SizeClass(Classes::powers_of_ten()), &Project] {
            assert_eq!(told(by, "", &directory, None).0, "(directory)");
            assert_eq!(told(by, "a.txt", &link, None).0, "(symbolic link)");
            assert_eq!(told(by, "a.txt", &fifo, None).0, "(other)");
        }
        let mut none = true;
        Largest.tell(&Entry { name: b"l", stat: &link, subvolume: 0, project: None }, &mut |_, _| none = false);
        assert!(none);
    }

    #[test]
    fn extensions_are_words() {
        let of = |name: &str| extension(name.as_bytes()).map(|found| String::from_utf8(found).unwrap());
        assert_eq!(of("a.tar.GZ").as_deref(), Some(".gz"));
        assert_eq!(of("a.7z").as_deref(), Some(".7z"));
        for none in ["a", ".bashrc", "a.", "lib.so.1", "mail:2,S", "1234.M5P6.host,S=12", "a.averyveryverylongone"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(extension(b"a.\xff"), None);
    }

    #[test]
    fn classes_begin_at_their_borders() {
        let tens = Classes::powers_of_ten();
        let expected =
            [(0, "0"), (1, "1"), (9, "1"), (10, "10"), (999, "100"), (1000, "1k"), (99_999, "10k"), (i64::MAX, "1E")];
        for (number, class) in expected {
            assert_eq!(tens.of(number), class, "{number}");
        }
        assert_eq!(tens.of(-1), "below 0");
        let own = Classes::new(vec![(4096, "4K".into()), (1 << 20, "1M".into())]);
        assert_eq!([0, 4095, 4096, 1 << 20].map(|number| own.of(number)), ["below 4K", "below 4K", "4K", "1M"]);
    }

    proptest! {
        #[test]
        fn a_time_lies_in_its_period(seconds in -1_i64 << 50..1_i64 << 50) {
            for period in [Period::Month, Period::Year] {
                let name = period.of(seconds);
                let (from, to) = bounds(&name).expect("its bounds");
                prop_assert!((from..to).contains(&seconds), "{name}: {from} to {to}");
                prop_assert_eq!(period.of(from), name.clone());
                prop_assert_eq!(period.of(to - 1), name.clone());
                prop_assert_ne!(period.of(to), name);
            }
        }

        #[test]
        fn any_time_has_a_period(seconds: i64) {
            let _ = bounds(&Period::Month.of(seconds));
        }

        #[test]
        fn any_text_is_a_period_or_none(text: String) {
            let _ = bounds(&text);
        }
    }

    #[test]
    fn periods_are_those_of_the_calendar() {
        assert_eq!(bounds("1970-01"), Some((0, 31 * DAY_SECONDS)));
        assert_eq!(bounds("2024-02"), Some((1_706_745_600, 1_709_251_200)));
        assert_eq!(bounds("2026"), Some((1_767_225_600, 1_798_761_600)));
        assert_eq!(Period::Month.of(-1), "1969-12");
        for none in ["", "x", "2026-13", "2026-", "é"] {
            assert_eq!(bounds(none), None, "{none}");
        }
    }
}
