//! Pictures.

use std::fs;
use std::path::{Path, PathBuf};

/// Where pictures go.
pub(crate) struct Pictures {
    dir: Option<PathBuf>,
}

impl Pictures {
    pub(crate) fn into(dir: &Path) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self { dir: Some(dir.to_owned()) })
    }

    /// Draws nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { dir: None }
    }
}
