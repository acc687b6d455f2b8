//! Numbers of the disk in narrower types. Where they come here they were held against what they count, and fit; one that did
//! not would become the largest there is, which lies behind the end of everything, not another number that looks right. Tests and
//! the fuzzer end there.

/// As an index, or as bytes in memory.
pub(crate) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// As a count or number of 32 bits.
pub(crate) fn to_u32(number: u64) -> u32 {
    debug_assert!(number <= u32::MAX.into(), "{number} was to fit into 32 bits");
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_what_it_is() {
        assert_eq!((to_u32(7), to_u32(u32::MAX.into())), (7, u32::MAX));
        assert_eq!(to_usize(7), 7);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "was to fit")]
    fn what_does_not_fit_shows_in_tests() {
        to_u32(u64::from(u32::MAX) + 8);
    }
}
