//! Free space that is held by donors.

use std::io;
use std::path::Path;

use crate::host::{Exchange, Failure, Host};
use crate::pack::Piece;
use crate::places::{Places, Run};

/// Donors, and which of them holds what.
pub(super) struct Space<H: Host> {
    donors: Vec<H::Donor>,
    /// By place: the donor, and a run of its blocks.
    held: Vec<(usize, Run)>,
}

impl<H: Host> Space<H> {
    pub(super) fn new() -> Self {
        Self { donors: Vec::new(), held: Vec::new() }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.held.iter().map(|(_, run)| run.blocks).sum()
    }

    /// Captures at least so many blocks more; gives the error when free space or quota is short.
    pub(super) fn capture(&mut self, host: &mut H, near: &Path, blocks: u64) -> Result<Option<io::Error>, Failure> {
        let count = blocks.div_ceil(host.unit().max(1)).max(1);
        let captured = host.capture(near, usize::try_from(count).unwrap_or(usize::MAX));
        let is_short = captured.error.as_ref().is_none_or(is_short);
        let came = captured.donors.len();
        for donor in captured.donors {
            let places = host.donor_places(&donor);
            let places = places.map_err(|source| Failure::new("tell where free space lies", near, source))?;
            self.held.extend(places.runs().iter().map(|&run| (self.donors.len(), run)));
            self.donors.push(donor);
        }
        self.held.sort_by_key(|(_, run)| run.place);
        match captured.error {
            Some(source) if !is_short => Err(Failure::new("capture free space", near, source)),
            None if came == 0 => Ok(Some(io::ErrorKind::StorageFull.into())),
            error => Ok(error),
        }
    }

    pub(super) fn pieces(&self) -> Vec<Piece> {
        self.held.iter().map(|(_, run)| Piece { place: run.place, blocks: run.blocks }).collect()
    }

    /// The exchanges by which a file comes to these places, all of which are held.
    pub(super) fn steps(&self, to: &Places) -> Vec<(&H::Donor, Exchange)> {
        let mut steps = Vec::new();
        for run in to.runs() {
            let behind = self.held.partition_point(|(_, held)| held.end() <= run.place);
            for (donor, held) in self.held[behind..].iter().take_while(|(_, held)| held.place < run.end()) {
                let (start, end) = (held.place.max(run.place), held.end().min(run.end()));
                let exchange = Exchange {
                    from: run.logical + (start - run.place),
                    to: held.logical + (start - held.place),
                    blocks: end - start,
                };
                steps.push((&self.donors[*donor], exchange));
            }
        }
        steps
    }
}

/// No more space, quota or open files, or a directory of somebody else's: what there is may do.
fn is_short(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.kind(), StorageFull | QuotaExceeded | PermissionDenied)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
