//! A bit for each record.

use super::{
    attributes::{Attribute, kind},
    listed::read_file,
    mft::Mft,
    stream::Stream,
};
use crate::{block_read::BlockRead, tables::TableError};

/// A bit for each record.
#[derive(Debug, Default)]
pub(super) struct Bitmap(Vec<u8>);

impl Bitmap {
    /// Which records are in use, as the $MFT has it itself, whose attributes go to `each`, too.
    pub(super) fn read<B: BlockRead>(mft: &Mft<B>, each: &mut dyn FnMut(&Attribute<'_>)) -> Result<Bitmap, TableError> {
        let mut bitmap = Stream::default();
        read_file(mft, 0, &mut |attribute| {
            each(attribute);
            match attribute.kind {
                kind::BITMAP => bitmap.take(attribute, &mft.geometry),
                _ => Ok(()),
            }
        })?;
        bitmap.finish(&mft.geometry)?;
        Ok(Bitmap(bitmap.read(&mft.device, mft.records.div_ceil(8))?))
    }

    fn place(number: u64) -> (usize, u8) {
        (usize::try_from(number / 8).unwrap_or(usize::MAX), 1 << (number % 8))
    }

    pub(super) fn has(&self, number: u64) -> bool {
        let (index, bit) = Bitmap::place(number);
        self.0.get(index).is_some_and(|byte| byte & bit != 0)
    }

    /// Whether there's no bit at all.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn set(&mut self, number: u64) {
        let (index, bit) = Bitmap::place(number);
        if self.0.len() <= index {
            self.0.resize(index.saturating_add(1), 0);
        }
        self.0[index] |= bit;
    }

    /// The records that are here, and not in the other one.
    pub(super) fn without(&self, other: &Bitmap) -> impl Iterator<Item = u64> {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        let bytes = (0_u64..).zip(self.0.iter().zip(others));
        let left = bytes.map(|(index, (byte, other))| (index, byte & !other)).filter(|(_, byte)| *byte != 0);
        left.flat_map(|(index, byte)| (0..8).filter(move |bit| byte >> bit & 1 != 0).map(move |bit| index * 8 + bit))
    }

    pub(super) fn clear(&mut self, number: u64) {
        let (index, bit) = Bitmap::place(number);
        if let Some(byte) = self.0.get_mut(index) {
            *byte &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_one_that_are_not_in_the_other() {
        let (mut one, mut other) = (Bitmap::default(), Bitmap::default());
        [3, 8, 9, 700].into_iter().for_each(|number| one.set(number));
        [8, 20].into_iter().for_each(|number| other.set(number));
        assert_eq!(one.without(&other).collect::<Vec<_>>(), [3, 9, 700]);
        one.clear(9);
        assert!(one.has(3) && !one.has(9) && !one.has(10_000));
    }
}
