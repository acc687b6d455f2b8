//! The operations of a recipe, done to the model.

use std::collections::HashMap;

use super::shape::BLOCK_BYTES;
use super::system::FileSystem;
use crate::age::recipe::Op;

/// A model, and the names of what is in it.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) system: FileSystem,
    files: HashMap<String, usize>,
    directories: HashMap<String, usize>,
}

impl Replay {
    pub(crate) fn new(system: FileSystem) -> Self {
        Self { system, files: HashMap::new(), directories: HashMap::new() }
    }

    /// Does one operation.
    pub(crate) fn apply(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Dir(path) => {
                let directory = self.system.make_directory()?;
                self.directories.insert(path, directory);
            }
            Op::Create(path, bytes) => {
                let parent = path.rsplit_once('/').and_then(|split| self.directories.get(split.0));
                let directory = *parent.ok_or_else(|| unknown(&path))?;
                let file = self.system.create(directory, bytes.div_ceil(BLOCK_BYTES) as u32)?;
                self.files.insert(path, file);
            }
            Op::Overwrite(path, _) => self.system.overwrite(self.file(&path)?)?,
            Op::Read(path) => self.system.read(self.file(&path)?)?,
            Op::Remove(path) => {
                let file = self.files.remove(&path).ok_or_else(|| unknown(&path))?;
                self.system.remove(file)?;
            }
            Op::Sync => self.system.write_back()?,
            other => return Err(format!("{other}: the model doesn't know how")),
        }
        Ok(())
    }

    fn file(&self, path: &str) -> Result<usize, String> {
        self.files.get(path).copied().ok_or_else(|| unknown(path))
    }
}

fn unknown(what: &str) -> String {
    format!("{what}: there is no such file or directory")
}
