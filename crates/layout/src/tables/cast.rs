//! Numbers of the disk in narrower types. Where they come here they were held against what they count, and fit; one that did
//! not would become the largest there is, which lies behind the end of everything, not another number that looks right.

/// As an index, or as bytes in memory.
pub(crate) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// As a count or number of 32 bits.
pub(crate) fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_the_largest() {
        assert_eq!((to_u32(7), to_u32(u64::from(u32::MAX) + 8)), (7, u32::MAX));
        assert_eq!((to_usize(7), to_usize(u64::MAX)), (7, usize::try_from(u64::MAX).unwrap_or(usize::MAX)));
    }
}
