//! A thread that stays on its processor for a while.

use std::io;
use std::marker::PhantomData;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// This thread stays on the processor where it runs, until this is dropped.
///
/// ext4 keeps free space in advance for small files, for each processor apart.
#[derive(Debug)]
#[must_use = "the thread may leave its processor when this is dropped"]
pub struct OnOneCpu {
    before: CpuSet,
    /// It holds for the thread that made it alone.
    not_send: PhantomData<*const ()>,
}

impl OnOneCpu {
    /// Needs no privilege.
    #[doc(alias = "sched_setaffinity")]
    pub fn stay() -> io::Result<OnOneCpu> {
        let before = sched_getaffinity(None)?;
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here)?;
        Ok(OnOneCpu { before, not_send: PhantomData })
    }
}

impl Drop for OnOneCpu {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_and_is_let_go() {
        let before = sched_getaffinity(None).unwrap();
        let stays = OnOneCpu::stay().unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(stays);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
