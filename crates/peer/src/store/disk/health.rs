//! Whether blocks can be written, as far as it is told: once when they can't, once when they can again. Pure.

/// So many have to be written in a row: on a disk that is nearly full, small ones still are between others that aren't.
const WELL_AFTER: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Health {
    is_failing: bool,
    written: u32,
}

impl Health {
    /// One could not be written; whether that is news.
    pub(super) fn failed(&mut self) -> bool {
        self.written = 0;
        !std::mem::replace(&mut self.is_failing, true)
    }

    /// One was; whether that is news.
    pub(super) fn wrote(&mut self) -> bool {
        self.written += u32::from(self.is_failing);
        let is_well = self.written >= WELL_AFTER;
        if is_well {
            *self = Self::default();
        }
        is_well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let mut health = Health::default();
        let run = |health: &mut Health, times, is_written: bool| {
            (0..times).filter(|_| if is_written { health.wrote() } else { health.failed() }).count()
        };
        assert_eq!(run(&mut health, 100, true), 0, "it was well");
        assert_eq!(run(&mut health, 100, false), 1);
        for _ in 0..10 {
            assert_eq!(run(&mut health, WELL_AFTER - 1, true), 0, "by turns");
            assert_eq!(run(&mut health, 1, false), 0);
        }
        assert_eq!(run(&mut health, WELL_AFTER - 1, true), 0);
        assert_eq!(run(&mut health, 100, true), 1);
        assert_eq!(run(&mut health, 1, false), 1, "and again");
    }
}
