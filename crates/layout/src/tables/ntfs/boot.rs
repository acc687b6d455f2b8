//! The boot sector: sizes of clusters and records, and where the $MFT begins.

use super::bytes::{slice_at, u16_at, u32_at, u64_at};
use crate::{
    block_read::BlockRead,
    tables::{TableError, hexadecimal},
};

/// What stands at byte 3 of a boot sector.
const OEM_ID: &[u8] = b"NTFS    ";
/// Bytes that are read of it; a sector of 4096 bytes has nothing in the rest.
const BOOT_BYTES: usize = 512;
/// The largest cluster that Windows makes.
const CLUSTER_BYTES_MAX: u32 = 2 << 20;
/// Larger than any record of a file that was ever seen (1024 and 4096).
const RECORD_BYTES_MAX: u32 = 64 << 10;

/// The sizes and places that the boot sector tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes of a cluster; a power of two.
    pub(super) cluster_bytes: u32,
    /// Bytes of a file record; a power of two, at least 512.
    pub(super) record_bytes: u32,
    /// Bytes of the volume, without the backup of the boot sector behind it.
    pub(super) bytes: u64,
    /// The cluster where the $MFT begins.
    pub(super) mft_lcn: u64,
    /// The cluster where the copy of its first records begins.
    pub(super) mirror_lcn: u64,
    /// The serial number.
    pub(super) serial: u64,
}

impl Geometry {
    /// Clusters of the volume.
    pub(super) fn clusters(&self) -> u64 {
        self.bytes / u64::from(self.cluster_bytes)
    }

    /// The byte where a cluster begins; `None` when it lies outside of the volume.
    pub(super) fn cluster_at(&self, lcn: u64) -> Option<u64> {
        (lcn < self.clusters()).then(|| lcn * u64::from(self.cluster_bytes))
    }

    /// Reads the boot sector, or its backup at the end of the device when the first is damaged; then also what was wrong.
    pub(super) fn read(device: &impl BlockRead) -> Result<(Geometry, Option<TableError>), TableError> {
        if device.len() < BOOT_BYTES as u64 {
            return Err(not_here(&[]));
        }
        let mut sector = [0; BOOT_BYTES];
        let first = match device.read_at(&mut sector, 0) {
            Ok(()) => Geometry::parse(&sector, 0),
            Err(source) => Err(TableError::Io { at: 0, length: BOOT_BYTES as u64, source }),
        };
        let wrong = match first {
            Ok(geometry) => return Ok((geometry, None)),
            // Another file system was made here since, and the backup of an older one may still lie at the end.
            Err(TableError::NotHere { .. }) if !may_have_been_ours(device, &sector) => return Err(not_here(&sector)),
            Err(wrong) => wrong,
        };
        match backup(device) {
            Some((geometry, at)) => Ok((geometry, Some(stood_in_for(wrong, at)))),
            None => Err(wrong),
        }
    }

    /// Reads a boot sector that lies at byte `at`.
    fn parse(sector: &[u8; BOOT_BYTES], at: u64) -> Result<Geometry, TableError> {
        if slice_at(sector, 3, OEM_ID.len()) != Some(OEM_ID) {
            return Err(not_here(sector));
        }
        let damaged = |what: &str, offset: u64, expected: &str, found: &dyn ToString| {
            TableError::damaged(format!("the boot sector's {what}"), at + offset, expected, found.to_string())
        };
        let short = || damaged("length", 0, "512 bytes", &"less");
        let byte = |offset: usize| sector.get(offset).copied().ok_or_else(short);
        let signature = u16_at(sector, 510).ok_or_else(short)?;
        if signature != 0xaa55 {
            return Err(damaged("signature", 510, "0xaa55", &format!("{signature:#06x}")));
        }
        let sector_bytes = u32::from(u16_at(sector, 11).ok_or_else(short)?);
        if !sector_bytes.is_power_of_two() || !(256..=4096).contains(&sector_bytes) {
            return Err(damaged("bytes per sector", 11, "a power of two from 256 to 4096", &sector_bytes));
        }
        let per_cluster = byte(13)?;
        let cluster_bytes = match per_cluster {
            0..=128 => Some(u32::from(per_cluster)),
            // Clusters beyond 128 sectors: the power of two, negated.
            _ => 1_u32.checked_shl(u32::from(per_cluster.wrapping_neg())),
        };
        let cluster_bytes = cluster_bytes.and_then(|sectors| sectors.checked_mul(sector_bytes));
        let cluster_bytes = cluster_bytes
            .filter(|bytes| bytes.is_power_of_two() && *bytes <= CLUSTER_BYTES_MAX)
            .ok_or_else(|| damaged("sectors per cluster", 13, "a power of two, or one negated", &per_cluster))?;
        let per_record = byte(64)?;
        let record_bytes = match per_record {
            0..=127 => cluster_bytes.checked_mul(u32::from(per_record)),
            _ => 1_u32.checked_shl(u32::from(per_record.wrapping_neg())),
        };
        let record_bytes = record_bytes
            .filter(|bytes| bytes.is_power_of_two() && (512..=RECORD_BYTES_MAX).contains(bytes))
            .ok_or_else(|| damaged("size of a file record", 64, "512 to 65536 bytes", &per_record))?;
        let sectors = u64_at(sector, 40).ok_or_else(short)?;
        let bytes =
            sectors.checked_mul(u64::from(sector_bytes)).filter(|bytes| *bytes > 0 && *bytes <= i64::MAX as u64);
        let geometry = Geometry {
            cluster_bytes,
            record_bytes,
            bytes: bytes.ok_or_else(|| damaged("number of sectors", 40, "the sectors of the volume", &sectors))?,
            mft_lcn: u64_at(sector, 48).ok_or_else(short)?,
            mirror_lcn: u64_at(sector, 56).ok_or_else(short)?,
            serial: u64_at(sector, 72).ok_or_else(short)?,
        };
        if geometry.mft_lcn == 0 || geometry.cluster_at(geometry.mft_lcn).is_none() {
            return Err(damaged("cluster of the $MFT", 48, "a cluster of the volume", &geometry.mft_lcn));
        }
        Ok(geometry)
    }
}

/// What the backup of the boot sector says, and where it lies.
fn backup(device: &(impl BlockRead + ?Sized)) -> Option<(Geometry, u64)> {
    [512, 4096].into_iter().find_map(|sector_bytes| {
        let at = (device.len() / sector_bytes).checked_sub(1)? * sector_bytes;
        let mut sector = [0; BOOT_BYTES];
        let is_there = at > 0 && device.read_at(&mut sector, at).is_ok();
        is_there.then(|| Geometry::parse(&sector, at).ok()).flatten().map(|geometry| (geometry, at))
    })
}

/// What was wrong with a boot sector whose backup serves.
fn stood_in_for(wrong: TableError, backup_at: u64) -> TableError {
    let used = format!("the backup at byte {backup_at} is used");
    match wrong {
        TableError::Damaged { what, at, expected, found } => {
            TableError::Damaged { what, at, expected, found: format!("{found}; {used}") }
        }
        TableError::NotHere { what, at, found, .. } => {
            TableError::damaged("the boot sector", at, what, format!("{found}; {used}"))
        }
        other => TableError::damaged("the boot sector", 0, "a sector that can be read", format!("{other}; {used}")),
    }
}

/// Whether the first sector of an NTFS was lost, but its backup at the end of the device was not.
pub(in crate::tables) fn has_backup_alone(device: &(impl BlockRead + ?Sized)) -> bool {
    let mut sector = [0; BOOT_BYTES];
    device.read_at(&mut sector, 0).is_ok()
        && may_have_been_ours(device, &sector)
        && backup(device).is_some_and(|(geometry, at)| geometry.bytes <= at + BOOT_BYTES as u64)
}

fn not_here(sector: &[u8]) -> TableError {
    let found = hexadecimal(slice_at(sector, 3, OEM_ID.len()).unwrap_or_default());
    TableError::NotHere { fs_type: "ntfs", what: "\"NTFS    \"", at: 3, found }
}

/// Whether a first sector without the mark of NTFS is one that was damaged rather than one of another file system.
fn may_have_been_ours(device: &(impl BlockRead + ?Sized), sector: &[u8; BOOT_BYTES]) -> bool {
    // The jump that every boot sector of NTFS begins with.
    if sector.starts_with(&[0xeb, 0x52, 0x90]) {
        return true;
    }
    if sector.iter().any(|byte| *byte != 0) {
        return false;
    }
    // A zeroed sector is what ext and btrfs have there as well; both have their marks further behind.
    let mut ext = [0; 2];
    let mut btrfs = [0; 8];
    let is_ext = device.read_at(&mut ext, 0x438).is_ok() && u16_at(&ext, 0) == Some(0xef53);
    let is_btrfs = device.read_at(&mut btrfs, 0x1_0040).is_ok() && &btrfs == b"_BHRfS_M";
    let is_xfs = u32_at(sector, 0) == Some(u32::from_le_bytes(*b"XFSB"));
    !is_ext && !is_btrfs && !is_xfs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(per_cluster: u8, per_record: u8) -> [u8; BOOT_BYTES] {
        let mut sector = [0; BOOT_BYTES];
        sector[..3].copy_from_slice(&[0xeb, 0x52, 0x90]);
        sector[3..11].copy_from_slice(OEM_ID);
        sector[11..13].copy_from_slice(&512_u16.to_le_bytes());
        sector[13] = per_cluster;
        sector[40..48].copy_from_slice(&0x10_0000_u64.to_le_bytes());
        sector[48..56].copy_from_slice(&4_u64.to_le_bytes());
        sector[56..64].copy_from_slice(&2_u64.to_le_bytes());
        sector[64] = per_record;
        sector[72..80].copy_from_slice(&0x1234_u64.to_le_bytes());
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    }

    #[test]
    fn sizes_of_clusters_and_records() {
        for (per_cluster, per_record, cluster_bytes, record_bytes) in [
            (1, 2, 512, 1024),
            (8, 0xf6, 4096, 1024),
            (8, 1, 4096, 4096),
            (128, 0xf4, 65536, 4096),
            (0xf8, 0xf6, 131_072, 1024),
            (0xf4, 0xf6, 2 << 20, 1024),
        ] {
            let geometry = Geometry::parse(&sector(per_cluster, per_record), 0).unwrap();
            assert_eq!((geometry.cluster_bytes, geometry.record_bytes), (cluster_bytes, record_bytes));
        }
        for (per_cluster, per_record) in [(0, 0xf6), (3, 0xf6), (0xf0, 0xf6), (8, 0), (8, 0x80), (8, 0xff), (129, 0xf6)]
        {
            let error = Geometry::parse(&sector(per_cluster, per_record), 0).unwrap_err();
            assert!(matches!(error, TableError::Damaged { .. }), "{per_cluster} {per_record}: {error}");
        }
    }

    #[test]
    fn the_backup_serves_when_the_first_is_damaged() {
        let good = sector(8, 0xf6);
        let mut device = vec![0; 1 << 20];
        let end = device.len() - BOOT_BYTES;
        device[end..].copy_from_slice(&good);
        assert!(!has_backup_alone(&device), "of a larger volume");
        device[end + 40..end + 48].copy_from_slice(&2047_u64.to_le_bytes());
        assert!(has_backup_alone(&device));
        let (geometry, wrong) = Geometry::read(&device).unwrap();
        assert_eq!(geometry.serial, 0x1234);
        let wrong = wrong.unwrap().to_string();
        assert!(wrong.contains("found 00 00 00 00 00 00 00 00; the backup at byte 1048064 is used"), "{wrong}");

        device[..BOOT_BYTES].copy_from_slice(&good);
        assert!(Geometry::read(&device).unwrap().1.is_none());
        device[510] = 0;
        assert!(Geometry::read(&device).unwrap().1.is_some());
    }

    #[test]
    fn a_backup_below_another_file_system_is_not_ours() {
        let mut device = vec![0; 1 << 20];
        let end = device.len() - BOOT_BYTES;
        device[end..].copy_from_slice(&sector(8, 0xf6));
        device[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        assert!(matches!(Geometry::read(&device), Err(TableError::NotHere { .. })));
        device[0x438] = 0;
        device[..4].copy_from_slice(b"XFSB");
        assert!(matches!(Geometry::read(&device), Err(TableError::NotHere { .. })));
        assert!(matches!(Geometry::read(&Vec::new()), Err(TableError::NotHere { .. })));
    }
}
