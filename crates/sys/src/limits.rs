//! How many files this process may have open.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limits on open files: `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// What holds now.
    pub soft: Option<u64>,
    /// What [`raise_open_files`] may raise it to.
    pub hard: Option<u64>,
}

/// The limits on open files.
#[doc(alias = "RLIMIT_NOFILE")]
pub fn open_files() -> OpenFiles {
    let limit = getrlimit(Resource::Nofile);
    OpenFiles { soft: limit.current, hard: limit.maximum }
}

/// Raises the soft limit on open files to the hard one, and gives what then holds. Needs no privilege.
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(open_files())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_reaches_the_hard_one() {
        let raised = raise_open_files().unwrap();
        assert_eq!(raised.soft, raised.hard);
        assert_eq!(open_files(), raised);
    }
}
