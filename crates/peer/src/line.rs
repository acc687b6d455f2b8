//! A connection with what has come by it and was not understood yet, and with what is to go.

use std::io;

use onesweep_sys::ready::Wanted;

use crate::{
    buffers::{Incoming, Outgoing},
    transport::Transport,
};

/// Both ends have one.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) transport: Transport,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
}

impl Line {
    /// With room for so many frames that come.
    pub(crate) fn new(transport: Transport, frames: usize) -> Self {
        Self { transport, incoming: Incoming::new(frames), outgoing: Outgoing::default() }
    }

    /// Takes what has come: whether something has, or none where nothing will come any more. Not when `incoming` is full.
    pub(crate) fn hear(&mut self) -> io::Result<Option<bool>> {
        moved(self.incoming.fill(|room| self.transport.read(room)))
    }

    /// Lets go what is to go, as far as the other end takes it: whether something went, or none where it takes nothing any more.
    pub(crate) fn write(&mut self) -> io::Result<Option<bool>> {
        self.transport.flush()?;
        if self.outgoing.is_empty() {
            return Ok(Some(false));
        }
        moved(self.outgoing.drain(|bytes| self.transport.write(bytes)))
    }

    /// What to wait for, where nothing can be done. `reads`: what comes is taken.
    pub(crate) fn wanted(&self, reads: bool) -> Wanted {
        Wanted { read: reads, write: !self.outgoing.is_empty() || self.transport.wants_write() }
    }
}

fn moved(count: io::Result<usize>) -> io::Result<Option<bool>> {
    match count {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(true)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(false)),
        Err(error) => Err(error),
    }
}
