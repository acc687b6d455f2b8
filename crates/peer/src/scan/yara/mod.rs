//! YARA-X as an engine, within this process: its rules are matched against contents.
//!
//! ```text
//!   files of rules ──► compiled once ──► epoch
//!                          └──► workers: a thread and a scanner each ◄── contents, copied
//! ```
//! YARA-X can't be told to stop: its own clock is looked at only here and there. So each content is matched on a thread that it
//! has to itself and with bytes that are that thread's own; when its time is over, or all is to end, nobody waits for it any more.
//!
//! It is there where the crate was built with the feature `yara`; else [`open`] says so.

#[cfg(feature = "yara")]
mod compile;
#[cfg(feature = "yara")]
mod engine;
#[cfg(feature = "yara")]
mod files;
#[cfg(feature = "yara")]
mod workers;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::engine::Engine;

/// What it is called.
pub const NAME: &str = "yara";

/// How rules are matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A content has so long.
    pub patience: Duration,
    /// A content of more bytes has no verdict: all of it lies in memory while it is matched.
    pub bytes_max: u64,
    /// What names the rules beyond what they are themselves.
    pub epoch: Option<String>,
}

/// Why rules can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// It was left out when this program was built.
    #[error("this program was built without YARA-X; build it with make build FEATURES=yara")]
    NotBuilt,
    /// They can't be read.
    #[error("{}: cannot read its rules: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A directory without rules.
    #[error("{}: no file below it is called *.yar or *.yara", path.display())]
    NoFiles {
        /// Which.
        path: PathBuf,
    },
    /// What is compiled has to be named within rules.
    #[error("{}: rules can't be read from a path with quotation marks, backslashes, line breaks or what is not UTF-8", path.display())]
    Name {
        /// Which.
        path: PathBuf,
    },
    /// There is a mistake in them: where, and which.
    #[error("{0}")]
    Wrong(String),
    /// They could be read, but there is none.
    #[error("there is no rule in what --rules names, which would call everything clean")]
    NoRules,
}

/// The rules in these files and in all `*.yar` and `*.yara` below these directories, compiled. When `stop` is set, nothing is
/// matched any more: [`EngineError::Stopped`](super::EngineError::Stopped).
#[cfg(feature = "yara")]
pub fn open(rules: &[PathBuf], settings: Settings, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>, RulesError> {
    Ok(Box::new(engine::Yara::new(compile::compiled(&files::files(rules)?)?, settings, stop)))
}

/// None: it was left out when this program was built.
#[cfg(not(feature = "yara"))]
pub fn open(_: &[PathBuf], _: Settings, _: Arc<AtomicBool>) -> Result<Box<dyn Engine>, RulesError> {
    Err(RulesError::NotBuilt)
}

#[cfg(all(test, not(feature = "yara")))]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_was_built_without() {
        let settings = Settings { patience: Duration::from_secs(1), bytes_max: 1, epoch: None };
        let told = open(&["a.yar".into()], settings, Arc::default()).unwrap_err().to_string();
        assert!(told.contains("without YARA-X") && told.contains("FEATURES=yara"), "{told}");
    }
}
