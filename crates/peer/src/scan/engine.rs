//! What looks at contents, as far as all engines are alike.

use std::{fmt, fs::File, io};

use crate::wire::EngineName;

pub use crate::wire::{ENGINE_BYTES_MAX, EPOCH_BYTES_MAX, INFECTION_BYTES_MAX as NAME_BYTES_MAX};

/// What an engine says of a content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It knows nothing bad of it.
    Clean,
    /// It has found this.
    Infected(String),
}

impl Verdict {
    /// Something was found; what is too long of its name is cut.
    #[must_use]
    pub fn infected(name: &str) -> Self {
        Self::Infected(cut(if name.is_empty() { "unnamed" } else { name }, NAME_BYTES_MAX).to_owned())
    }

    /// What was found.
    #[must_use]
    pub fn infection(&self) -> Option<&str> {
        match self {
            Self::Clean => None,
            Self::Infected(name) => Some(name),
        }
    }

    /// Whether something was found.
    #[must_use]
    pub const fn is_infected(&self) -> bool {
        matches!(self, Self::Infected(_))
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Which engine, and with which signatures. Verdicts of another engine, or of another epoch, mean nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineId {
    name: String,
    epoch: String,
}

impl EngineId {
    /// None where one is empty or too long.
    #[must_use]
    pub fn new(name: &str, epoch: &str) -> Option<Self> {
        let fits = |text: &str, most| (1..=most).contains(&text.len());
        (fits(name, ENGINE_BYTES_MAX) && fits(epoch, EPOCH_BYTES_MAX))
            .then(|| Self { name: name.to_owned(), epoch: epoch.to_owned() })
    }

    /// The engine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version and that of its signatures.
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }
}

impl EngineId {
    /// As it is told to others.
    pub(crate) fn on_wire(&self) -> EngineName<'_> {
        EngineName { name: &self.name, epoch: &self.epoch }
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.epoch)
    }
}

/// What is to be looked at.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// All of it, in memory.
    Bytes(&'a [u8]),
    /// A file, from its start to its end, wherever it stands. Nobody else reads by the same descriptor meanwhile.
    File(&'a File),
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine could not be asked.
    #[error("{engine}: cannot {step}: {source}")]
    Io {
        /// Which.
        engine: String,
        /// What was tried.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It was told to stop.
    #[error("it was stopped")]
    Stopped,
    /// The engine could not look at this content.
    #[error("{0}")]
    Failed(String),
    /// What it says can't be understood.
    #[error("{engine}: what it says can't be understood: {said}")]
    Garbled {
        /// Which.
        engine: String,
        /// What it said.
        said: String,
    },
}

/// An engine. Many threads may ask it at a time.
pub trait Engine: fmt::Debug + Send + Sync {
    /// What it is called, whether it is there or not.
    fn name(&self) -> &'static str;

    /// The process that it is, on this machine, as far as that is known. Programs that this process starts are not meant.
    fn process(&self) -> Option<u32> {
        None
    }

    /// Which it is, with the signatures that it has now.
    fn id(&self) -> Result<EngineId, EngineError>;

    /// Whether it looks at contents of so many bytes. It is asked before they are read: why not is why there is no verdict.
    fn takes(&self, bytes: u64) -> Result<(), EngineError> {
        let _ = bytes;
        Ok(())
    }

    /// Looks at a content.
    fn scan(&self, content: Content<'_>) -> Result<Verdict, EngineError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        let Verdict::Infected(name) = Verdict::infected(&"é".repeat(100)) else { panic!() };
        assert_eq!(name, "é".repeat(64));
        let Verdict::Infected(name) = Verdict::infected(&format!("x{}", "é".repeat(100))) else { panic!() };
        assert_eq!(name.len(), 127);
        assert_eq!(Verdict::infected(""), Verdict::Infected("unnamed".to_owned()));
    }

    #[test]
    fn an_engine_has_a_name_and_an_epoch() {
        assert!(EngineId::new("clamd", "1").is_some());
        let long = "x".repeat(256);
        for (name, epoch) in [("", "1"), ("clamd", ""), (&long[..65], "1"), ("clamd", &long[..])] {
            assert!(EngineId::new(name, epoch).is_none());
        }
    }
}
