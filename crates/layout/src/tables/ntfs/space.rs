//! Clusters in use, and whose they are: those of files and of the system's own, which nobody has together.

use super::{
    attributes::{Attribute, Value, kind},
    free,
    mft::Mft,
    names::is_ascii,
    runlist::Runs,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, checks::Claims},
};

/// The record of $BadClus, and the attribute that has all clusters which can't be used: a file may have had one before.
const BAD_CLUSTERS: u64 = 8;
const BAD_NAME: &[u8] = b"$Bad";

/// Clusters in use, a bit each.
#[derive(Debug)]
pub(super) struct Space(Claims);

impl Space {
    /// Those that $Bitmap says to be in use.
    pub(super) fn new<B: BlockRead>(mft: &Mft<B>) -> Result<Space, TableError> {
        let bytes = mft.geometry.bytes.min(mft.device.len());
        let claims = Claims::new(mft.geometry.cluster_bytes.into(), bytes, &mut |each| free::runs(mft, each));
        claims.map(Space)
    }

    /// Claims what an attribute of a file has, or a piece of one, as far as its runlist can be read.
    pub(super) fn claim<B>(&mut self, mft: &Mft<B>, file: u64, attribute: &Attribute<'_>) {
        let Value::NonResident(piece) = attribute.value else { return };
        if file == BAD_CLUSTERS && is_ascii(attribute.name, BAD_NAME) {
            return;
        }
        let cluster_bytes = u64::from(mft.geometry.cluster_bytes);
        let mut runs = Runs::new(piece.runlist, piece.lowest_vcn, mft.geometry.clusters());
        let mut run_at = attribute.at + piece.runlist_at as u64;
        while let Some(Ok(run)) = runs.next() {
            if let Some(at) = run.lcn.and_then(|lcn| mft.geometry.cluster_at(lcn)) {
                let what = || match (attribute.kind, attribute.name) {
                    (kind::DATA, []) => format!("where the content of file {file} lies"),
                    (kind::INDEX_ALLOCATION, _) => format!("where the index of directory {file} lies"),
                    (kind, _) => format!("where an attribute of type {kind:#x} of file {file} lies"),
                };
                self.0.claim(at, run.clusters.saturating_mul(cluster_bytes), run_at, what);
            }
            run_at = attribute.at + (piece.runlist_at + runs.offset()) as u64;
        }
    }

    /// What couldn't be had, and why.
    pub(super) fn contradictions<B: BlockRead>(&self, mft: &Mft<B>) -> Vec<TableError> {
        self.0.contradictions(&mut |each| free::runs(mft, each))
    }
}
