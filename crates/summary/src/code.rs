//! Numbers in as few bytes as they need: seven bits to a byte, the lowest first, the eighth set in all but the last.

/// Puts numbers and bytes one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Small ones of either sign take little.
    pub(crate) fn signed(&mut self, value: i64) {
        self.unsigned((value << 1 ^ value >> 63) as u64);
    }

    /// A number of any size that has no reason to be small.
    pub(crate) fn fixed(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.unsigned(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// One bit for each field tells those that aren't zero, and only these follow.
    pub(crate) fn sparse(&mut self, fields: &[i64]) {
        let bits = fields.iter().rev().fold(0, |bits, &field| bits << 1 | u64::from(field != 0));
        self.unsigned(bits);
        fields.iter().filter(|&&field| field != 0).for_each(|&field| self.signed(field));
    }
}

/// Takes them again. `None` where there are none, or none that make sense.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn small(&mut self) -> Option<u32> {
        self.unsigned()?.try_into().ok()
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn fixed(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.unsigned()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn sparse<const N: usize>(&mut self) -> Option<[i64; N]> {
        let bits = self.unsigned()?;
        if N < 64 && bits >> N != 0 {
            return None;
        }
        let mut fields = [0; N];
        for (at, field) in fields.iter_mut().enumerate() {
            if bits >> at & 1 == 1 {
                *field = self.signed()?;
            }
        }
        Some(fields)
    }

    /// True when nothing is left over.
    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_take_one_byte() {
        let mut writer = Writer::default();
        [0, 1, 127].into_iter().for_each(|value| writer.unsigned(value));
        [0, -1, 63, -64].into_iter().for_each(|value| writer.signed(value));
        writer.sparse(&[0, 0, 5, 0]);
        assert_eq!(writer.0, [0, 1, 127, 0, 1, 126, 127, 4, 10]);
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        assert_eq!(Reader(&[0xff; 10]).unsigned(), None, "more than 64 bits");
        assert_eq!(Reader(&[0x80]).unsigned(), None, "cut");
        assert_eq!(Reader(&[5, 1, 2]).bytes(), None, "cut");
        assert_eq!(Reader(&[16, 2]).sparse::<4>(), None, "a fifth field");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(one: u64, other: i64, bytes: Vec<u8>, fields: [i64; 8]) {
            let mut writer = Writer::default();
            writer.unsigned(one);
            writer.signed(other);
            writer.fixed(one);
            writer.bytes(&bytes);
            writer.sparse(&fields);
            let mut reader = Reader(&writer.0);
            prop_assert_eq!(reader.unsigned(), Some(one));
            prop_assert_eq!(reader.signed(), Some(other));
            prop_assert_eq!(reader.fixed(), Some(one));
            prop_assert_eq!(reader.bytes(), Some(&bytes[..]));
            prop_assert_eq!(reader.sparse(), Some(fields));
            prop_assert!(reader.is_done());
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let mut reader = Reader(&bytes);
            while reader.unsigned().is_some() {}
            let mut reader = Reader(&bytes);
            while reader.bytes().is_some() {}
            let _ = Reader(&bytes).sparse::<8>();
        }
    }
}
