//! What follows when a read is over: its bytes are where they belong, or it is tried in another way, or its file can't be
//! trusted.

use std::{io, os::fd::AsFd, rc::Rc};

use onesweep_sys::{
    buffer, files,
    read_queue::{Completion, ReadPart, advance_parts},
};

use super::{Flight, Halt, Reader, Target, Trust, Verdict};
use crate::{catalogue::Flags, error::FileError, plan::Piece};

impl Reader<'_> {
    /// Waits for one read and does what follows from it.
    pub(super) fn reap(&mut self) -> Result<(), Halt> {
        let Completion { token, result, mut parts } = match self.queue.try_wait() {
            Some(completion) => completion,
            None => {
                self.engine.outlet.flush();
                self.queue.wait()?
            }
        };
        let mut flight = self.flights.remove(&token).expect("every token is that of a flight");
        match self.judge(&mut flight, result, &mut parts) {
            Verdict::Again => {
                let fd = match flight.target {
                    Target::Device { volume } => Ok(self.device().node(volume)),
                    Target::File { file, direct, .. } => self.open_file(file, direct),
                };
                match fd {
                    Ok(fd) => return self.push(flight, fd, parts),
                    Err(_) => self.doubt(&flight),
                }
            }
            Verdict::Arrived => {}
            Verdict::Doubtful => self.doubt(&flight),
            Verdict::Failed(source) => {
                if let Target::File { file, .. } = flight.target {
                    let error = FileError::io(self.path(file), format!("read at byte {}", flight.offset), source);
                    self.mark(file, Trust::Failed(error));
                }
            }
        }
        self.runs.end(flight.run);
        // The bytes must be lent by nobody when the request lands.
        drop(parts);
        self.land(flight.request)
    }

    /// What a completed read amounts to. For `Again`, the flight and the parts are set up for the rest of it.
    fn judge(&mut self, flight: &mut Flight, result: io::Result<usize>, parts: &mut Vec<ReadPart>) -> Verdict {
        match result {
            Ok(read) if read == flight.left => Verdict::Arrived,
            Ok(read) if self.is_at_end(flight, read) => Verdict::Arrived,
            Ok(0) => Verdict::Doubtful,
            Ok(read) => {
                advance_parts(parts, read);
                flight.offset += read as u64;
                flight.left -= read;
                // What is left need not be aligned.
                if let Target::File { file, direct, dont_cache } = &mut flight.target
                    && *direct
                {
                    (*direct, *dont_cache) = (false, self.ways(*file).dont_cache);
                }
                Verdict::Again
            }
            Err(error) => self.judge_error(flight, error),
        }
    }

    fn judge_error(&mut self, flight: &mut Flight, error: io::Error) -> Verdict {
        match error.kind() {
            io::ErrorKind::Interrupted => return Verdict::Again,
            // A read that blocks, as the second one does, gets through.
            io::ErrorKind::WouldBlock => return Verdict::Doubtful,
            _ => {}
        }
        let refused = files::is_refusal(&error);
        match &mut flight.target {
            Target::File { file, direct, dont_cache } if refused && *direct => {
                self.refuse_direct(*file);
                (*direct, *dont_cache) = (false, self.ways(*file).dont_cache);
                Verdict::Again
            }
            Target::File { file, dont_cache, .. } if refused && *dont_cache => {
                self.ways(*file).dont_cache = false;
                *dont_cache = false;
                Verdict::Again
            }
            Target::File { .. } => Verdict::Failed(error),
            Target::Device { volume } if refused && self.device().leave_direct(*volume) => Verdict::Again,
            // A bad sector may lie in a gap: each file tells for itself, through the file system.
            Target::Device { .. } => Verdict::Doubtful,
        }
    }

    /// True when the file has no more bytes to give than were read.
    fn is_at_end(&self, flight: &Flight, read: usize) -> bool {
        match flight.target {
            Target::File { file, .. } => flight.offset + read as u64 >= self.engine.catalogue.get(self.id(file)).size,
            Target::Device { .. } => false,
        }
    }

    /// Marks the files that a flight was for as not to be trusted.
    fn doubt(&mut self, flight: &Flight) {
        match flight.target {
            Target::File { file, .. } => self.mark(file, Trust::Doubtful),
            Target::Device { .. } => {
                let request = Rc::clone(&self.begun[&flight.request].request);
                for piece in request.reads() {
                    self.mark(piece.file, Trust::Doubtful);
                }
                for (_, _, piece) in request.copies() {
                    self.mark(piece.file, Trust::Doubtful);
                }
            }
        }
    }

    /// One flight of a request is over; with the last, its bytes are counted and its complete files handed over.
    pub(super) fn land(&mut self, number: u64) -> Result<(), Halt> {
        let begun = self.begun.get_mut(&number).expect("begun");
        begun.flights -= 1;
        if begun.flights > 0 {
            return Ok(());
        }
        let request = self.begun.remove(&number).expect("begun").request;
        // Copies first: a file that lends bytes may be complete with this very request.
        let mut arrived: Vec<(u32, u64)> = Vec::new();
        for (from_file, from_offset, to) in request.copies() {
            if self.copy(from_file, from_offset, to) {
                arrived.push((to.file, to.length));
            } else {
                self.extra.push_back(*to);
            }
        }
        arrived.extend(request.reads().map(|piece| (piece.file, piece.length)));
        for (file, length) in arrived {
            let waiting = self.waiting.get_mut(&file).expect("admitted and incomplete");
            waiting.missing -= length;
            if waiting.missing == 0 {
                self.complete(file)?;
            }
        }
        Ok(())
    }

    /// Copies bytes that two files share. False when they must be read for themselves.
    fn copy(&mut self, from_file: u32, from_offset: u64, to: &Piece) -> bool {
        if !matches!(self.waiting[&to.file].state, Trust::Good) {
            return true;
        }
        let source = &self.waiting[&from_file];
        if !matches!(source.state, Trust::Good) || (self.engine.device.is_none() && !self.is_unchanged(from_file)) {
            return false;
        }
        let (from, length) = (from_offset as usize, to.length as usize);
        let (source, target) = (&self.waiting[&from_file].buffer, &self.waiting[&to.file].buffer);
        buffer::copy_within_buffers(source, from..from + length, target, to.offset as usize);
        true
    }

    /// True when the file still has the content that was mapped, as far as its times can tell.
    fn is_unchanged(&mut self, file: u32) -> bool {
        let entry = self.engine.catalogue.get(self.id(file));
        !entry.flags.has(Flags::RECENT)
            && self
                .open_best(file)
                .and_then(|(fd, _)| files::statx_fd(fd.as_fd()))
                .is_ok_and(|stat| entry.is_unchanged(&stat))
    }
}
