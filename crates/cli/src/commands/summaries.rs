//! The file that declares summaries.

use std::{io, path::Path};

use onesweep_summary::custom::declare::Declared;

use crate::{message, report::Failure};

/// Where the file is, unless told otherwise.
const PATH: &str = "/etc/onesweep/summaries.toml";

/// The text of the file, which is empty where there is none, and what it declares. Runs none of its commands.
pub(super) fn declared(named: Option<&Path>) -> Result<(String, Declared), Failure> {
    let path = named.unwrap_or(Path::new(PATH));
    let text = match Declared::text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(String::new()),
        read => read.map_err(|error| message::why(&error).to_string()),
    };
    text.and_then(|text| Declared::parse_without_commands(&text).map(|declared| (text, declared)))
        .map_err(|why| Failure::could_not_run(path, "use it to declare summaries", why))
}
