//! The aged images that are measured, kept packed beside their labels.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::run::Subject;
use crate::age::apply::hex;
use crate::age::image;
use crate::age::pack;
use crate::age::recipe::Amount;
use crate::interrupt::Interrupt;
use crate::partial::with_suffix;

/// A program may trust files less that changed so lately, and read them twice.
const SETTLED: Duration = Duration::from_secs(3);

/// What the label of an image says, as far as tables name it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) operations_sha256: String,
    pub(crate) files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) image_bytes: u64,
    pub(crate) image_sha256: String,
}

/// Where images are kept. One at a time is unpacked.
pub(crate) struct Images {
    dir: PathBuf,
    unpacked: Option<PathBuf>,
}

impl Images {
    pub(crate) fn new(dir: &Path) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self { dir, unpacked: None })
    }

    /// The image, unpacked, and what it is. It is made first when it isn't there.
    pub(crate) fn take(&mut self, subject: &Subject, interrupt: &Interrupt) -> Result<(PathBuf, Facts), String> {
        let image = self.dir.join(format!("{}.img", subject.name()));
        if self.unpacked.as_ref() != Some(&image) {
            self.put_away();
            let packed = with_suffix(&image, ".zst");
            if !is_current(&image, subject)? {
                eprintln!("ageing {}", subject.name());
                make(&image, subject, interrupt)?;
                self.unpacked = Some(image.clone()); // so that it goes if it can't be packed
                pack::pack(&image, &packed)?;
                let age = fs::metadata(&image).and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
                thread::sleep(SETTLED.saturating_sub(age.unwrap_or_default()));
            } else {
                let expected = facts(&image)?.image_sha256;
                let unpacked = pack::unpack(&packed, &image, Some(&expected));
                unpacked.map_err(|complaint| format!("{complaint}; if it is broken, remove it"))?;
            }
            self.unpacked = Some(image.clone());
        }
        let facts = facts(&image)?;
        Ok((image, facts))
    }

    /// A copy of the unpacked image that may be written to.
    pub(crate) fn copy(image: &Path) -> Result<Copy, String> {
        let copy = with_suffix(image, ".copy");
        let args = ["--sparse=always", "--reflink=auto"].iter().map(AsRef::as_ref);
        crate::mount::run("cp", args.chain([image.as_os_str(), copy.as_os_str()]))?;
        Ok(Copy(copy))
    }

    fn put_away(&mut self) {
        if let Some(image) = self.unpacked.take() {
            let _ = fs::remove_file(image);
        }
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        self.put_away();
    }
}

/// An image that goes when this goes.
pub(crate) struct Copy(pub(crate) PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn facts(image: &Path) -> Result<Facts, String> {
    let label = image::sidecar(image);
    let text = fs::read_to_string(&label).map_err(|error| format!("{}: {error}", label.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", label.display()))
}

/// Whether the image is there, and made by the operations that its recipe gives today.
fn is_current(image: &Path, subject: &Subject) -> Result<bool, String> {
    let Ok(facts) = facts(image) else {
        return Ok(false);
    };
    let recipe = subject.recipe()?;
    let (seed, scale, steps) = (subject.seed, subject.scale, subject.steps);
    let amount = Amount { seed, scale, steps, image_bytes: facts.image_bytes };
    let mut hash = Sha256::new();
    for op in recipe.ops(&amount) {
        hash.update(format!("{op}\n"));
    }
    Ok(hex(&hash.finalize()) == facts.operations_sha256 && with_suffix(image, ".zst").exists())
}

/// Makes the image. One of other operations, packed under the same name, goes first.
fn make(image: &Path, subject: &Subject, interrupt: &Interrupt) -> Result<(), String> {
    let _ = fs::remove_file(with_suffix(image, ".zst"));
    let order = image::Order {
        recipe: subject.recipe()?,
        seed: subject.seed,
        scale: subject.scale,
        steps: subject.steps,
        fs: subject.fs()?,
        image_bytes: None,
        mkfs_options: subject.mkfs.clone(),
        out: image.to_owned(),
    };
    image::make(&order, interrupt).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Another recipe under the same name must not be measured by mistake.
    #[test]
    fn an_image_of_other_operations_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let subject = Subject::new("source", "ext4", 0.01, 1);
        let image = dir.path().join("image");
        assert_eq!(is_current(&image, &subject), Ok(false));
        let mut hash = Sha256::new();
        let amount = Amount { seed: 1, scale: 0.01, steps: None, image_bytes: 64 << 20 };
        for op in subject.recipe().unwrap().ops(&amount) {
            hash.update(format!("{op}\n"));
        }
        let mut facts = Facts {
            operations_sha256: hex(&hash.finalize()),
            files: 1,
            file_bytes: 2,
            image_bytes: 64 << 20,
            image_sha256: "x".into(),
        };
        fs::write(with_suffix(&image, ".zst"), "").unwrap();
        fs::write(with_suffix(&image, ".json"), serde_json::to_string(&facts).unwrap()).unwrap();
        assert_eq!(is_current(&image, &subject), Ok(true));
        facts.operations_sha256.push('0');
        fs::write(with_suffix(&image, ".json"), serde_json::to_string(&facts).unwrap()).unwrap();
        assert_eq!(is_current(&image, &subject), Ok(false));
    }

    /// Files that look as if they change just now are read twice, which is no figure of the program.
    #[test]
    fn a_new_image_has_come_to_rest() {
        if onesweep_sys::user::effective_uid() != 0 || !Path::new("/dev/loop-control").exists() {
            let _ = writeln!(std::io::stderr(), "skipped: a_new_image_has_come_to_rest: no mounts here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut images = Images::new(dir.path()).unwrap();
        let subject = Subject::new("source", "ext4", 0.001, 1).steps(0);
        let (image, _) = images.take(&subject, &Interrupt::default()).unwrap();
        assert!(fs::metadata(&image).unwrap().modified().unwrap().elapsed().unwrap() >= SETTLED);
    }
}
