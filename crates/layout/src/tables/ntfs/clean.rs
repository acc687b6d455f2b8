//! Whether all that was written has arrived in the tables: a dirty volume, one that Windows left open when it hibernated, or
//! one whose journal has to be played back, shows an older state here and there.

use super::{
    attributes::kind,
    bytes::{u16_at, u32_at, u64_at},
    file::File,
    index::look_up,
    listed::read_file,
    mft::Mft,
    names::utf8,
    record::apply_fixups,
    stream::Stream,
};
use crate::{
    block_read::BlockRead,
    tables::{Sign, TableError, Wanted},
};

/// The records that tell.
const LOG_FILE: u64 = 2;
const VOLUME: u64 = 3;
/// The volume's flag.
const IS_DIRTY: u16 = 1;
/// Bytes of $LogFile that hold its two restart pages, with pages of up to 64 KiB.
const RESTART_BYTES: u64 = 128 << 10;
/// Nobody uses the journal.
const NO_CLIENT: u16 = 0xffff;
/// It was closed.
const IS_CLEAN: u16 = 2;
/// Bytes of hiberfil.sys that tell; a shorter one is there only while a volume besides that of Windows hibernates.
const HIBERNATION_BYTES: u64 = 4096;

const ADVICE: &str = "mount and unmount it by Windows, or run chkdsk there or `ntfsfix -d` here, or use --force-dirty";
const HIBERNATED_ADVICE: &str =
    "start Windows and shut it down fully (shutdown /s, without fast startup), or use --force-dirty";

/// What $Volume tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeInformation {
    pub(super) label: String,
    pub(super) major_version: u8,
    pub(super) minor_version: u8,
    /// Where that lies.
    pub(super) at: u64,
    flags: u16,
}

impl VolumeInformation {
    /// Reads it.
    pub(super) fn read<B: BlockRead>(mft: &Mft<B>) -> Result<VolumeInformation, TableError> {
        let mut volume = VolumeInformation::default();
        let mut has_flags = false;
        read_file(mft, VOLUME, &mut |attribute| {
            match attribute.kind {
                kind::VOLUME_NAME => {
                    volume.label = String::from_utf8_lossy(&utf8(attribute.resident()?)).into_owned();
                }
                kind::VOLUME_INFORMATION => {
                    let value = attribute.resident()?;
                    let short = || TableError::damaged("$VOLUME_INFORMATION", attribute.at, "12 bytes", value.len());
                    volume.flags = u16_at(value, 10).ok_or_else(short)?;
                    (volume.major_version, volume.minor_version) = (value[8], value[9]);
                    volume.at = attribute.at;
                    has_flags = true;
                }
                _ => {}
            }
            Ok(())
        })?;
        match has_flags {
            true => Ok(volume),
            false => Err(TableError::damaged("$Volume", mft.at(VOLUME).unwrap_or(0), "$VOLUME_INFORMATION", "none")),
        }
    }
}

/// [`TableError::Dirty`] where something isn't in the tables yet, or where nobody can tell. What is damaged goes to `notes`, and
/// hides no other sign.
pub(super) fn check<B: BlockRead>(
    mft: &Mft<B>,
    volume: Option<&VolumeInformation>,
    notes: &mut Vec<TableError>,
) -> Result<(), TableError> {
    let flagged = volume.map(|volume| volume.flags & IS_DIRTY != 0);
    let record = |number| mft.at(number).unwrap_or(0);
    let hibernated = hibernation(mft).map_err(|damage| notes.push(damage)).ok();
    let open = has_open_journal(mft).map_err(|damage| notes.push(damage)).ok();
    let (journal, sign, advice) = if let Some(volume) = volume.filter(|_| flagged == Some(true)) {
        let sign = Sign::new(volume.at, "no flag of a dirty volume", format!("the flags {:#x}", volume.flags));
        ("the volume, marked as dirty,", sign, ADVICE)
    } else if let Some(Some(number)) = hibernated {
        let sign = Sign::new(record(number), "no hiberfil.sys in use", "one");
        ("what a hibernating Windows keeps in memory", sign, HIBERNATED_ADVICE)
    } else if open == Some(true) {
        ("$LogFile", Sign::new(record(LOG_FILE), "a closed journal", "an open one, or none"), ADVICE)
    } else if flagged.is_none() || hibernated.is_none() || open.is_none() {
        let sign = Sign::new(record(VOLUME), "a readable volume, journal and root", "damage");
        ("the volume, so damaged that nobody can tell whether it was closed,", sign, ADVICE)
    } else {
        return Ok(());
    };
    Err(TableError::Dirty { journal, sign, advice })
}

fn has_open_journal<B: BlockRead>(mft: &Mft<B>) -> Result<bool, TableError> {
    Ok(!is_closed(restart_pages(mft)?))
}

/// The LSN of the newest restart page; `None` where the journal is empty.
pub(super) fn restart_lsn<B: BlockRead>(mft: &Mft<B>) -> Result<Option<u64>, TableError> {
    let mut bytes = restart_pages(mft)?;
    Ok(restart_pages_of(&mut bytes).map(|(sequence, _)| sequence).max())
}

fn restart_pages<B: BlockRead>(mft: &Mft<B>) -> Result<Vec<u8>, TableError> {
    let mut log = Stream::default();
    read_file(mft, LOG_FILE, &mut |attribute| match (attribute.kind, attribute.name) {
        (kind::DATA, []) => log.take(attribute, &mft.geometry),
        _ => Ok(()),
    })?;
    log.read(&mft.device, RESTART_BYTES)
}

/// Whether the restart page that was written last says that nobody has the journal open. An empty journal has none.
fn is_closed(mut bytes: Vec<u8>) -> bool {
    let newest = restart_pages_of(&mut bytes).max_by_key(|(sequence, _)| *sequence);
    match newest {
        Some((_, closed)) => closed,
        // Made anew (all ones), checked by chkdsk, or filled with zeros: there's nothing to play back. Anything else isn't
        // a journal, and nobody could say what it kept back.
        None => {
            let first = bytes.get(..4).unwrap_or_default();
            matches!(first, b"CHKD" | [] | [0xff, 0xff, 0xff, 0xff] | [0, 0, 0, 0])
        }
    }
}

/// The sound ones of both restart pages: the sequence number, and whether the journal is closed by it.
fn restart_pages_of(bytes: &mut [u8]) -> impl Iterator<Item = (u64, bool)> {
    let page_bytes = u32_at(bytes, 16).and_then(|bytes| usize::try_from(bytes).ok());
    let page_bytes =
        page_bytes.filter(|page| page.is_power_of_two() && (512..=64 << 10).contains(page)).unwrap_or(4096);
    bytes.chunks_exact_mut(page_bytes).take(2).filter_map(restart_page)
}

/// The sequence number of a restart page, and whether the journal is closed by it; `None` when it isn't a sound one.
fn restart_page(page: &mut [u8]) -> Option<(u64, bool)> {
    apply_fixups(page, *b"RSTR", 0).ok()?;
    let area = page.get(usize::from(u16_at(page, 24)?)..)?;
    let (in_use, flags) = (u16_at(area, 12)?, u16_at(area, 14)?);
    Some((u64_at(area, 0)?, in_use == NO_CLIENT || flags & IS_CLEAN != 0))
}

/// The record of a hiberfil.sys that holds the memory of a Windows which goes on from it.
fn hibernation<B: BlockRead>(mft: &Mft<B>) -> Result<Option<u64>, TableError> {
    let Some(reference) = look_up(mft, super::ROOT, b"HIBERFIL.SYS")? else {
        return Ok(None);
    };
    let mut file = File::default();
    read_file(mft, reference.number, &mut |attribute| file.take(attribute, &mft.geometry, Wanted::default()))?;
    let start = file.data().read(&mft.device, HIBERNATION_BYTES)?;
    let is_used = (start.len() as u64) < HIBERNATION_BYTES || start.starts_with(b"hibr") || start.starts_with(b"HIBR");
    Ok(is_used.then_some(reference.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal with two restart pages: sequence number, client in use, flags.
    fn journal(pages: [(u64, u16, u16); 2]) -> Vec<u8> {
        let mut bytes = vec![0xff; 16384];
        for (page, (sequence, in_use, flags)) in bytes.chunks_exact_mut(4096).zip(pages) {
            page.fill(0);
            page[..4].copy_from_slice(b"RSTR");
            page[4..6].copy_from_slice(&30_u16.to_le_bytes());
            page[6..8].copy_from_slice(&9_u16.to_le_bytes());
            page[16..20].copy_from_slice(&4096_u32.to_le_bytes());
            page[24..26].copy_from_slice(&48_u16.to_le_bytes());
            page[48..56].copy_from_slice(&sequence.to_le_bytes());
            page[60..62].copy_from_slice(&in_use.to_le_bytes());
            page[62..64].copy_from_slice(&flags.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_newest_restart_page_counts() {
        assert!(is_closed(journal([(1, NO_CLIENT, 0), (2, NO_CLIENT, 0)])));
        assert!(is_closed(journal([(1, 0, 0), (2, 0, IS_CLEAN)])));
        assert!(!is_closed(journal([(1, NO_CLIENT, 0), (2, 0, 0)])));
        assert!(!is_closed(journal([(3, 0, 0), (2, NO_CLIENT, 0)])));
        let mut torn = journal([(3, 0, 0), (2, NO_CLIENT, 0)]);
        torn[510] = 1;
        assert!(is_closed(torn));
    }

    #[test]
    fn an_empty_journal_keeps_nothing_back() {
        assert!(is_closed(vec![0xff; 8192]));
        assert!(is_closed(vec![0; 8192]));
        assert!(is_closed(Vec::new()));
        assert!(!is_closed(vec![0x11; 8192]));
    }
}
