//! What a directory came to over time, for one asker.

use serde::{Deserialize, Serialize};

use super::{
    listing::path_in,
    protocol::{Name, Past, Question, Refusal},
    server::Server,
};
use crate::access::Asker;

/// A directory over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// Where it is, from the root of all.
    pub path: Name,
    /// Something in it is left out for the asker: then there are no points, for nobody noted what was left out when.
    pub partial: bool,
    /// What it came to, from the oldest on: from when somebody asked for it first.
    pub points: Vec<Past>,
}

impl Server {
    /// The directory of a question over time.
    pub fn growth(&self, asker: &Asker, question: &Question) -> Result<Growth, Refusal> {
        let volumes = self.volumes();
        let mut reached = self.reach(&volumes, (asker, question), None)?;
        let slot = reached.slot;
        let partial = reached.view(asker, slot, 0)?.is_partial;
        let points = if partial { Vec::new() } else { reached.points(slot)? };
        Ok(Growth { path: path_in(&reached)?, partial, points })
    }
}
