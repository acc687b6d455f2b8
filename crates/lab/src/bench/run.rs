//! What is measured: an image on a disk, and a program that reads it.

use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use super::work::Work;
use crate::age::image::Fs;
use crate::age::recipe::Recipe;
use crate::disk::model::DiskModel;

/// An image, by what makes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) recipe: String,
    pub(crate) fs: String,
    pub(crate) scale: f64,
    /// Steps of ageing; `None` for all of the recipe.
    pub(crate) steps: Option<u32>,
    pub(crate) seed: u64,
    /// Options for mkfs.
    pub(crate) mkfs: Vec<String>,
}

impl Subject {
    pub(crate) fn new(recipe: &str, fs: &str, scale: f64, seed: u64) -> Self {
        let (recipe, fs) = (recipe.to_owned(), fs.to_owned());
        Self { recipe, fs, scale, steps: None, seed, mkfs: Vec::new() }
    }

    pub(crate) fn steps(self, steps: u32) -> Self {
        Self { steps: Some(steps), ..self }
    }

    pub(crate) fn mkfs(self, options: &[&str]) -> Self {
        Self { mkfs: options.iter().map(|&option| option.to_owned()).collect(), ..self }
    }

    pub(crate) fn recipe(&self) -> Result<Recipe, String> {
        Recipe::from_str(&self.recipe, false)
    }

    pub(crate) fn fs(&self) -> Result<Fs, String> {
        Fs::from_str(&self.fs, false)
    }

    /// A name for files, different for different images.
    pub(crate) fn name(&self) -> String {
        let steps = self.steps.map_or("all".to_owned(), |steps| steps.to_string());
        format!("{}-{}-{}-{steps}-{}{}", self.recipe, self.fs, self.scale, self.seed, self.mkfs.concat())
    }
}

/// The part of the disk that the image covers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stretch {
    /// All of it: the image stands for a full disk.
    Whole,
    /// As many bytes as the image has, from the outer edge on.
    InProportion,
}

impl Stretch {
    /// The span from 0 to 1.
    pub(crate) fn span(self, image_bytes: u64, model: &DiskModel) -> (f64, f64) {
        match self {
            Self::Whole => (0.0, 1.0),
            Self::InProportion => (0.0, (image_bytes as f64 / model.capacity as f64).min(1.0)),
        }
    }
}

/// The disk below the image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Disk {
    pub(crate) model: String,
    pub(crate) span: Stretch,
    pub(crate) track_buffer: bool,
    pub(crate) scheduler: String,
    /// The factor of real time; `None` in virtual time.
    pub(crate) real: Option<f64>,
    /// How far the kernel reads ahead on the device; `None` for what it chooses by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read_ahead_kib: Option<u32>,
}

impl Disk {
    pub(crate) fn new(model: &str, span: Stretch) -> Self {
        let scheduler = "none".to_owned();
        Self { model: model.to_owned(), span, track_buffer: false, scheduler, real: None, read_ahead_kib: None }
    }

    pub(crate) fn buffered(self, track_buffer: bool) -> Self {
        Self { track_buffer, ..self }
    }

    pub(crate) fn scheduler(self, scheduler: &str) -> Self {
        Self { scheduler: scheduler.to_owned(), ..self }
    }

    pub(crate) fn real(self, factor: f64) -> Self {
        Self { real: Some(factor), ..self }
    }

    pub(crate) fn read_ahead(self, kib: u32) -> Self {
        Self { read_ahead_kib: Some(kib), ..self }
    }

    /// The model as the emulation takes it.
    pub(crate) fn emulated(&self) -> Result<DiskModel, String> {
        let mut model = DiskModel::named(&self.model).ok_or_else(|| format!("no model {:?}", self.model))?;
        if !self.track_buffer {
            model.buffer_segments = 0;
        }
        Ok(model)
    }
}

/// Who else uses the disk meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Company {
    Alone,
    Reader,
    Writer,
}

/// What the page cache holds before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cache {
    Cold,
    /// Everything: no disk at all.
    Warm,
}

/// Where a program runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) image: Subject,
    pub(crate) disk: Disk,
    pub(crate) company: Company,
    pub(crate) cache: Cache,
}

impl Setting {
    pub(crate) fn new(image: Subject, disk: Disk) -> Self {
        Self { image, disk, company: Company::Alone, cache: Cache::Cold }
    }

    /// The same with the track buffer on or off.
    pub(crate) fn buffered(&self, track_buffer: bool) -> Self {
        Self { disk: self.disk.clone().buffered(track_buffer), ..self.clone() }
    }

    /// What bounds are computed for: they depend neither on the track buffer nor on read-ahead.
    pub(crate) fn of_bounds(&self) -> Self {
        Self { disk: Disk { read_ahead_kib: None, ..self.disk.clone().buffered(false) }, ..self.clone() }
    }

    pub(crate) fn with_scheduler(self, scheduler: &str) -> Self {
        Self { disk: self.disk.scheduler(scheduler), ..self }
    }

    pub(crate) fn beside(self, company: Company) -> Self {
        Self { company, ..self }
    }

    pub(crate) fn warm(self) -> Self {
        Self { cache: Cache::Warm, ..self }
    }

    /// Whether the clock counts, so that what is compared has to be measured at the same time.
    pub(crate) fn is_by_the_clock(&self) -> bool {
        self.cache == Cache::Warm || self.disk.real.is_some()
    }

    pub(crate) fn run(&self, work: Work) -> Run {
        Run { setting: self.clone(), work, round: 0 }
    }
}

/// One run of one program. Equal runs are the same measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) setting: Setting,
    pub(crate) work: Work,
    /// Which of several.
    pub(crate) round: u32,
}

impl Run {
    /// What it has in common with its other rounds, and with no other run.
    pub(crate) fn without_round(&self) -> String {
        format!("{:?} {:?}", self.setting, self.work)
    }

    /// That many runs of the same.
    pub(crate) fn rounds(&self, rounds: u32) -> Vec<Self> {
        (0..rounds).map(|round| Self { round, ..self.clone() }).collect()
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        let Setting { image, disk, company, cache } = &self.setting;
        let mut text = format!("{}: {} on {}", image.name(), self.work.name(), disk.model);
        for (said, when) in [
            (", track buffer", disk.track_buffer),
            (", real time", disk.real.is_some()),
            (", beside a reader", *company == Company::Reader),
            (", beside a writer", *company == Company::Writer),
            (", warm", *cache == Cache::Warm),
        ] {
            if when {
                text += said;
            }
        }
        if disk.scheduler != "none" {
            text += &format!(", {}", disk.scheduler);
        }
        if let Some(kib) = disk.read_ahead_kib {
            text += &format!(", read-ahead {kib} KiB");
        }
        if self.round > 0 {
            text += &format!(", round {}", self.round + 1);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::work::Tool;

    #[test]
    fn names_tell_images_apart() {
        let image = Subject::new("daft-4k", "ext4", 0.1, 1);
        assert_eq!(image.name(), "daft-4k-ext4-0.1-all-1");
        assert_eq!(image.clone().steps(0).mkfs(&["-O", "^dir_index"]).name(), "daft-4k-ext4-0.1-0-1-O^dir_index");
        assert!(image.recipe().is_ok() && image.fs().is_ok());
        assert!(Subject::new("none", "ext4", 1.0, 1).recipe().is_err());
    }

    #[test]
    fn a_span_in_proportion_is_as_long_as_the_image() {
        let model = DiskModel::named("st373455lw").unwrap();
        assert_eq!(Stretch::InProportion.span(7_300_000_000, &model), (0.0, 0.1));
        assert_eq!(Stretch::Whole.span(1, &model), (0.0, 1.0));
        assert_eq!(Stretch::InProportion.span(u64::MAX, &model), (0.0, 1.0));
    }

    #[test]
    fn a_run_is_known_again_from_its_json() {
        let disk = Disk::new("ssd", Stretch::Whole).scheduler("bfq").real(1.0).read_ahead(128);
        let setting = Setting::new(Subject::new("random", "xfs", 1.0, 3), disk).beside(Company::Reader).buffered(true);
        let run = setting.run(Work::of(Tool::GnuTar)).rounds(2).pop().unwrap();
        let back: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        assert_eq!(back, run);
        assert!(
            run.describe().ends_with(
                "GNU tar on ssd, track buffer, real time, beside a reader, bfq, read-ahead 128 KiB, round 2"
            )
        );
    }

    /// Else all that was measured before read-ahead could be set would have to be measured again.
    #[test]
    fn runs_from_before_read_ahead_could_be_set_are_known_again() {
        let old = r#"{"model":"ssd","span":"whole","track_buffer":false,"scheduler":"none","real":null}"#;
        let disk = Disk::new("ssd", Stretch::Whole);
        assert_eq!(serde_json::from_str::<Disk>(old).unwrap(), disk);
        assert_eq!(serde_json::to_string(&disk).unwrap(), old);
        assert_ne!(disk.clone().read_ahead(2560), disk, "what the kernel chooses depends on the kernel");
    }
}
