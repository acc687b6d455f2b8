//! What a bench has measured, in one JSON file that tells its version.

use std::{fmt::Display, fs, io::ErrorKind, path::Path};

use serde::{Serialize, de::DeserializeOwned};

use crate::partial::Partial;

/// The one version that is known of each of these files.
pub(crate) const VERSION: u32 = 1;

/// Reads it; `None` where there is no such file. `version` tells that of what was read; of another than [`VERSION`] nothing is
/// known.
pub(crate) fn load<T: DeserializeOwned>(path: &Path, version: impl Fn(&T) -> u32) -> Result<Option<T>, String> {
    let said = |error: &dyn Display| format!("{}: {error}", path.display());
    let outcomes = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => serde_json::from_str(&read.map_err(|error| said(&error))?).map_err(|error| said(&error))?,
    };
    match version(&outcomes) {
        VERSION => Ok(Some(outcomes)),
        other => Err(said(&format_args!("version {other} is not known; measure into another directory"))),
    }
}

/// Writes it; what was there before stays until all of it is written.
pub(crate) fn save(path: &Path, outcomes: &impl Serialize) -> Result<(), String> {
    let said = |error: &dyn Display| format!("{}: {error}", path.display());
    let text = serde_json::to_string_pretty(outcomes).map_err(|error| said(&error))?;
    let partial = Partial::new(path)?;
    fs::write(partial.path(), text + "\n").map_err(|error| said(&error))?;
    partial.finish()
}
