//! What is known of each block: two bits.

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Nothing.
    Unknown = 0,
    /// Its hash is that of its bytes.
    Valid = 1,
    /// It is all zeros.
    Zero = 2,
    /// It had this hash once, and may have it still.
    Suspect = 3,
}

/// The states of all blocks, as they lie in the file.
#[derive(Clone, Debug)]
pub(super) struct States(Vec<u8>);

impl States {
    /// All unknown.
    pub(super) fn unknown(blocks: u64) -> States {
        States(vec![0; usize::try_from(blocks.div_ceil(4)).unwrap_or(usize::MAX)])
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub(super) fn get(&self, block: u64) -> State {
        match self.0.get((block / 4) as usize).map_or(0, |four| four >> (block % 4 * 2) & 3) {
            0 => State::Unknown,
            1 => State::Valid,
            2 => State::Zero,
            _ => State::Suspect,
        }
    }

    pub(super) fn set(&mut self, block: u64, state: State) {
        if let Some(four) = self.0.get_mut((block / 4) as usize) {
            let shift = block % 4 * 2;
            *four = *four & !(3 << shift) | (state as u8) << shift;
        }
    }

    /// Whoever was known is suspect now.
    pub(super) fn suspect_all(&mut self) {
        for four in &mut self.0 {
            // Both bits of each pair that isn't 00.
            let known = (*four | *four >> 1) & 0x55;
            *four = known | known << 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept_apart() {
        let all = [State::Unknown, State::Valid, State::Zero, State::Suspect];
        let mut states = States::unknown(1000);
        for block in 0..1000 {
            states.set(block, all[(block * 7 % 11 % 4) as usize]);
        }
        for block in 0..1000 {
            assert_eq!(states.get(block), all[(block * 7 % 11 % 4) as usize], "{block}");
        }
        states.suspect_all();
        for block in 0..1000 {
            let was_known = block * 7 % 11 % 4 != 0;
            assert_eq!(states.get(block), if was_known { State::Suspect } else { State::Unknown }, "{block}");
        }
        assert_eq!(states.get(1_000_000), State::Unknown);
    }
}
