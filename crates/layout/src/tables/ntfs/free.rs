//! Which clusters are free, by the file `$Bitmap`.

use super::{attributes::kind, listed::read_file, mft::Mft, stream::Stream};
use crate::{
    block_read::BlockRead,
    tables::{TableError, bits::clear_runs},
};

/// The record of `$Bitmap`, which has a bit for each cluster.
const BITMAP: u64 = 6;
/// Bytes of it in one read.
const READ_BYTES: u64 = 1 << 20;

/// Visits the free runs, in bytes.
pub(super) fn runs<B: BlockRead>(mft: &Mft<B>, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
    let geometry = &mft.geometry;
    let mut bitmap = Stream::default();
    read_file(mft, BITMAP, &mut |attribute| match attribute.kind {
        kind::DATA if attribute.name.is_empty() => bitmap.take(attribute, geometry),
        _ => Ok(()),
    })?;
    bitmap.finish(geometry)?;
    let clusters = geometry.clusters();
    if bitmap.size < clusters.div_ceil(8) {
        let expected = format!("{} bytes", clusters.div_ceil(8));
        return Err(TableError::damaged("the bitmap of clusters", bitmap.at, expected, bitmap.size));
    }
    let cluster_bytes = u64::from(geometry.cluster_bytes);
    let mut tell = |byte: u64, bytes: &[u8]| {
        let first = byte * 8;
        clear_runs(bytes, clusters.saturating_sub(first), &mut |bit, count| {
            each((first + bit) * cluster_bytes, count * cluster_bytes);
        });
    };
    if let Some(resident) = &bitmap.resident {
        tell(0, resident);
        return Ok(());
    }
    let mut next = 0;
    for extent in &bitmap.extents {
        let Some(at) = extent.physical.filter(|_| extent.logical == next && !extent.is_zeros()) else {
            let found = format!("nothing at byte {next}");
            return Err(TableError::damaged("the bitmap of clusters", bitmap.at, "all of its content", found));
        };
        let mut done = 0;
        while done < extent.length {
            let length = (extent.length - done).min(READ_BYTES);
            let mut bytes = vec![0; length as usize];
            let at = at + done;
            mft.device.read_at(&mut bytes, at).map_err(|source| TableError::Io { at, length, source })?;
            tell(extent.logical + done, &bytes);
            done += length;
        }
        next = extent.logical_end();
    }
    if next < clusters.div_ceil(8) {
        return Err(TableError::damaged("the bitmap of clusters", bitmap.at, format!("{clusters} bits"), next * 8));
    }
    Ok(())
}
