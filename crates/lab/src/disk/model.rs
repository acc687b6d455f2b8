//! A disk's data sheet.
//!
//! The named models agree with those that `onesweep plan` predicts with, where both have one; a test holds them
//! together. A figure without a source here is an assumption that is usual for the class of the drive, and said to be.

use serde::{Deserialize, Serialize};

/// What a drive's data sheet says, and what the rest of the drive is assumed to do.
///
/// As TOML each field is a key. Those with a default below may be left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskModel {
    /// What reports call it.
    pub(crate) name: String,
    /// Bytes of the whole drive, which `--span` refers to.
    pub(crate) capacity: u64,
    /// Revolutions per minute; 0 for a disk without a head.
    pub(crate) rpm: f64,
    /// Milliseconds to the next track.
    pub(crate) seek_track_ms: f64,
    /// Milliseconds over a third of the stroke.
    pub(crate) seek_average_ms: f64,
    /// Milliseconds over the whole stroke.
    pub(crate) seek_full_ms: f64,
    /// Bytes per second in the outermost zone.
    pub(crate) outer_rate: f64,
    /// Bytes per second in the innermost zone.
    pub(crate) inner_rate: f64,
    /// Zones of equal size; the rate falls by equal steps from one to the next.
    #[serde(default = "default_zones")]
    pub(crate) zones: u32,
    /// Milliseconds that each command takes at least.
    #[serde(default = "default_overhead")]
    pub(crate) overhead_ms: f64,
    /// Bytes per second between the drive's memory and the host.
    #[serde(default = "default_interface")]
    pub(crate) interface_rate: f64,
    /// Segments of the track buffer; 0 is none.
    #[serde(default = "default_segments")]
    pub(crate) buffer_segments: usize,
    /// Bytes that one segment reads ahead.
    #[serde(default = "default_segment_bytes")]
    pub(crate) buffer_segment_bytes: u64,
    /// Commands that the drive chooses from.
    #[serde(default = "default_queue")]
    pub(crate) queue_depth: usize,
    /// Milliseconds after which a command is served whatever else is nearer.
    #[serde(default = "default_patience")]
    pub(crate) patience_ms: f64,
    /// Bytes that the write cache holds; 0 writes through.
    #[serde(default = "default_write_cache")]
    pub(crate) write_cache: u64,
    /// Idle seconds before the spindle stops; 0 is never.
    #[serde(default)]
    pub(crate) standby_after_s: f64,
    /// Seconds from standby to the first command.
    #[serde(default = "default_spin_up")]
    pub(crate) spin_up_s: f64,
}

const HOUR_MS: f64 = 3_600_000.0;
const YEAR_S: f64 = 366.0 * 86_400.0;
const MOST_BYTES: u64 = 1 << 60;
/// A request at less would take for ever.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=1e15;

fn default_zones() -> u32 {
    16
}
fn default_overhead() -> f64 {
    0.1
}
fn default_interface() -> f64 {
    300e6
}
fn default_segments() -> usize {
    16
}
fn default_segment_bytes() -> u64 {
    512 << 10
}
fn default_queue() -> usize {
    32
}
fn default_patience() -> f64 {
    1000.0
}
fn default_write_cache() -> u64 {
    16 << 20
}
fn default_spin_up() -> f64 {
    8.0
}

/// One line of the table below: GB, rpm, the three seeks, outer and inner MB/s, overhead, interface MB/s.
struct Preset {
    name: &'static str,
    source: &'static str,
    gigabytes: f64,
    rpm: f64,
    seeks: [f64; 3],
    rates: [f64; 2],
    overhead_ms: f64,
    interface: f64,
}

const PRESETS: [Preset; 8] = [
    Preset {
        name: "barracuda-7200.11",
        source: "qtar's Seagate Barracuda 7200.11, 1 TB: 7,200 rpm, 8.5 ms and 105 MB/s are its maker's figures; the \
                 full stroke, the next track and the inner rate are usual for its class",
        gigabytes: 1000.0,
        rpm: 7200.0,
        seeks: [0.8, 8.5, 18.0],
        rates: [105.0, 55.0],
        overhead_ms: 0.1,
        interface: 300.0,
    },
    Preset {
        name: "diamondmax-10",
        source: "qtar's Maxtor DiamondMax 10, 300 GB: 7,200 rpm from the paper, 9 ms and the rates as reviews of its \
                 time give them; the other seeks are usual for its class",
        gigabytes: 300.0,
        rpm: 7200.0,
        seeks: [0.8, 9.0, 18.0],
        rates: [65.0, 36.0],
        overhead_ms: 0.1,
        interface: 150.0,
    },
    Preset {
        name: "st373455lw",
        source: "DAFT's fast disk: 73 GB, 15,000 rpm, 76 to 128 MB/s and 5.8 ms access time from its table I; the \
                 average seek is that less half a turn, the other two are usual for its family",
        gigabytes: 73.0,
        rpm: 15000.0,
        seeks: [0.2, 3.8, 7.4],
        rates: [128.0, 76.0],
        overhead_ms: 0.1,
        interface: 320.0,
    },
    Preset {
        name: "6y160p0",
        source: "DAFT's slow disk: 163 GB, 7,200 rpm, 30 to 56 MB/s and 19.8 ms access time from its table I; the \
                 average seek is that less half a turn, the other two are in proportion",
        gigabytes: 163.0,
        rpm: 7200.0,
        seeks: [1.0, 15.6, 30.0],
        rates: [56.0, 30.0],
        overhead_ms: 0.1,
        interface: 133.0,
    },
    Preset {
        name: "fireball-ex",
        source: "DFS's Quantum Fireball EX: 6.4 GB, 5,400 rpm, 9.5 ms from its table 1; 187 Mbit/s on the outermost \
                 track and 512 KB of buffer from Red Hill's history of drives, of which three quarters are taken as \
                 data, and six tenths of that on the inner; neither sheet nor manual could be found. The geometry in table 1 \
                 is a logical one and not used",
        gigabytes: 6.4,
        rpm: 5400.0,
        seeks: [2.0, 9.5, 18.0],
        rates: [17.5, 10.5],
        overhead_ms: 0.3,
        interface: 33.0,
    },
    Preset {
        name: "modern-20tb",
        source: "nearline disks of 20 TB: 7,200 rpm and 285 MB/s outermost as their makers announce; sheets no longer \
                 give seeks, these and the inner rate are usual for the class",
        gigabytes: 20000.0,
        rpm: 7200.0,
        seeks: [0.5, 8.0, 16.0],
        rates: [285.0, 130.0],
        overhead_ms: 0.05,
        interface: 600.0,
    },
    Preset {
        name: "usb-notebook",
        source: "no one drive: a 1 TB, 5,400 rpm notebook disk in a USB 3 case, with figures usual for the class",
        gigabytes: 1000.0,
        rpm: 5400.0,
        seeks: [2.0, 13.0, 24.0],
        rates: [125.0, 60.0],
        overhead_ms: 0.3,
        interface: 300.0,
    },
    Preset {
        name: "ssd",
        source: "no one drive: a SATA solid-state disk",
        gigabytes: 1000.0,
        rpm: 0.0,
        seeks: [0.0, 0.0, 0.0],
        rates: [520.0, 520.0],
        overhead_ms: 0.02,
        interface: 550.0,
    },
];

impl DiskModel {
    /// The preset of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.name == name).map(Preset::model)
    }

    /// The names of the presets with their sources, the default first.
    pub(crate) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
        PRESETS.iter().map(|preset| (preset.name, preset.source))
    }

    /// A model from TOML, checked.
    pub(crate) fn from_toml(text: &str) -> Result<Self, String> {
        let model: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        model.check().map(|()| model)
    }

    /// What makes no sense on any disk.
    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("model {}: {what}", self.name));
        let times = [
            ("seek_track_ms", self.seek_track_ms, HOUR_MS),
            ("seek_average_ms", self.seek_average_ms, HOUR_MS),
            ("seek_full_ms", self.seek_full_ms, HOUR_MS),
            ("overhead_ms", self.overhead_ms, HOUR_MS),
            ("patience_ms", self.patience_ms, HOUR_MS),
            ("standby_after_s", self.standby_after_s, YEAR_S),
            ("spin_up_s", self.spin_up_s, HOUR_MS / 1000.0),
        ];
        if let Some((name, _, most)) = times.iter().find(|(_, time, most)| !(0.0..=*most).contains(time)) {
            return wrong(&format!("{name} must be a time, not below 0 and at most {most}"));
        }
        let counts = [
            ("zones", u64::from(self.zones), 1, 10_000),
            ("capacity", self.capacity, 1, MOST_BYTES),
            ("queue_depth", self.queue_depth as u64, 1, 1 << 16),
            ("buffer_segments", self.buffer_segments as u64, 0, 1 << 16),
            ("buffer_segment_bytes", self.buffer_segment_bytes, 0, MOST_BYTES),
            ("write_cache", self.write_cache, 0, MOST_BYTES),
        ];
        if let Some((name, _, least, most)) =
            counts.iter().find(|(_, count, least, most)| !(least..=most).contains(&count))
        {
            return wrong(&format!("{name} must be from {least} to {most}"));
        }
        if self.rpm != 0.0 && !(60.0..=100_000.0).contains(&self.rpm) {
            return wrong("rpm must be 0, for a disk without a head, or from 60 to 100,000");
        }
        if !(self.seek_track_ms <= self.seek_average_ms && self.seek_average_ms <= self.seek_full_ms) {
            return wrong("seek_track_ms, seek_average_ms and seek_full_ms must rise");
        }
        let rates = [self.outer_rate, self.inner_rate, self.interface_rate];
        if !rates.iter().all(|rate| RATES.contains(rate)) {
            return wrong("rates must be from 1,000 to 1e15 bytes a second");
        }
        if self.outer_rate < self.inner_rate {
            return wrong("outer_rate must not be below inner_rate: the disk begins at its outer edge");
        }
        Ok(())
    }

    /// Whether it has a head to move.
    pub(crate) fn has_head(&self) -> bool {
        self.rpm > 0.0
    }

    /// The part of it that moves, as plans are predicted with.
    pub(crate) fn mechanics(&self) -> onesweep::DiskModel {
        onesweep::DiskModel {
            name: self.name.clone(),
            capacity: self.capacity,
            rpm: self.rpm,
            seek_track_ms: self.seek_track_ms,
            seek_average_ms: self.seek_average_ms,
            seek_full_ms: self.seek_full_ms,
            outer_rate: self.outer_rate,
            inner_rate: self.inner_rate,
            zones: self.zones,
            overhead_ms: self.overhead_ms,
        }
    }

    /// Milliseconds for one revolution.
    pub(crate) fn revolution_ms(&self) -> f64 {
        if self.has_head() { 60_000.0 / self.rpm } else { 0.0 }
    }
}

impl Preset {
    fn model(&self) -> DiskModel {
        let rotates = self.rpm > 0.0;
        DiskModel {
            name: self.name.to_owned(),
            capacity: (self.gigabytes * 1e9) as u64,
            rpm: self.rpm,
            seek_track_ms: self.seeks[0],
            seek_average_ms: self.seeks[1],
            seek_full_ms: self.seeks[2],
            outer_rate: self.rates[0] * 1e6,
            inner_rate: self.rates[1] * 1e6,
            zones: default_zones(),
            overhead_ms: self.overhead_ms,
            interface_rate: self.interface * 1e6,
            buffer_segments: if rotates { default_segments() } else { 0 },
            buffer_segment_bytes: default_segment_bytes(),
            queue_depth: default_queue(),
            patience_ms: default_patience(),
            write_cache: default_write_cache(),
            standby_after_s: 0.0,
            spin_up_s: if rotates { default_spin_up() } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound() {
        assert_eq!(DiskModel::presets().count(), 8);
        for (name, source) in DiskModel::presets() {
            let model = DiskModel::named(name).unwrap();
            model.check().unwrap();
            assert!(source.len() > 20, "{name} needs a source");
        }
        assert_eq!(DiskModel::named("floppy"), None);
    }

    /// Predictions can only come true when they are made with the same figures.
    #[test]
    fn presets_agree_with_those_of_the_plan() {
        for name in onesweep::DiskModel::names() {
            let planned = onesweep::DiskModel::named(name).unwrap();
            assert_eq!(DiskModel::named(name).unwrap().mechanics(), planned);
        }
    }

    #[test]
    fn toml_fills_in_what_is_usual() {
        let text = "name = 'x'\ncapacity = 1000\nrpm = 6000.0\nseek_track_ms = 1.0\nseek_average_ms = 9.0\n\
                    seek_full_ms = 19.0\nouter_rate = 1e8\ninner_rate = 5e7\n";
        let model = DiskModel::from_toml(text).unwrap();
        assert_eq!((model.queue_depth, model.zones, model.buffer_segments), (32, 16, 16));
        assert!(DiskModel::from_toml(&text.replace("19.0", "2.0")).unwrap_err().contains("rise"));
        assert!(DiskModel::from_toml(&format!("{text}colour = 3")).is_err());
        for (wrong, named) in [
            (text.replace("6000.0", "1e-300"), "rpm"),
            (text.replace("6000.0", "nan"), "rpm"),
            (text.replace("1e8", "1e3"), "outer_rate"),
            (text.replace("5e7", "1e-300"), "rates"),
            (text.replace("19.0", "1e300"), "seek_full_ms"),
            (text.replace("= 1000", "= 0"), "capacity"),
            (format!("{text}zones = 4000000000"), "zones"),
            (format!("{text}zones = 0"), "zones"),
            (format!("{text}queue_depth = 0"), "queue_depth"),
            (format!("{text}buffer_segment_bytes = 9223372036854775807"), "buffer_segment_bytes"),
            (format!("{text}spin_up_s = 1e300"), "spin_up_s"),
            (text.replace("= 1e8", "= inf"), "rates"),
            (format!("{text}spin_up_s = inf"), "spin_up_s"),
            (format!("{text}patience_ms = -1.0"), "patience_ms"),
            (format!("{text}standby_after_s = nan"), "standby_after_s"),
        ] {
            let said = DiskModel::from_toml(&wrong).unwrap_err();
            assert!(said.contains(named), "{said}");
        }
        let round = toml::to_string(&DiskModel::named("ssd").unwrap()).unwrap();
        assert_eq!(DiskModel::from_toml(&round).unwrap(), DiskModel::named("ssd").unwrap());
    }
}
