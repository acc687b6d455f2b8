//! The file that declares summaries.

use std::{io, path::Path, sync::Arc};

use onesweep_summary::custom::declare::Declared;

use crate::{message, report::Failure};

/// Where the file is, unless told otherwise.
const PATH: &str = "/etc/onesweep/summaries.toml";

/// What the file declares; `None` when nothing is declared.
pub(super) fn declared(named: Option<&Path>) -> Result<Option<Arc<Declared>>, Failure> {
    let path = named.unwrap_or(Path::new(PATH));
    match Declared::read(path) {
        Ok(declared) => Ok(Some(Arc::new(declared)).filter(|declared| !declared.all().is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) => Err(Failure::could_not_run(path, "use it to declare summaries", message::why(&error))),
    }
}
