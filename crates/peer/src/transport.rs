//! A connection that never blocks, plain or encrypted.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
};

/// A connection.
#[derive(Debug)]
pub(crate) struct Transport {
    stream: TcpStream,
    tls: Option<Box<rustls::Connection>>,
}

impl Transport {
    /// Over a connected socket, which from now on doesn't block.
    pub(crate) fn new(stream: TcpStream, tls: Option<rustls::Connection>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Frames are written as a whole; what is behind them must not wait for an acknowledgement.
        stream.set_nodelay(true)?;
        Ok(Self { stream, tls: tls.map(Box::new) })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Who the other end has shown to be; none where it need not, or hasn't yet.
    pub(crate) fn certificate(&self) -> Option<&rustls::pki_types::CertificateDer<'static>> {
        self.tls.as_ref()?.peer_certificates()?.first()
    }

    /// Takes what has come; 0 at the end, `WouldBlock` where nothing has.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return again(|| self.stream.read(into)) };
        loop {
            match tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            let is_over = again(|| tls.read_tls(&mut self.stream))? == 0;
            let state = tls.process_new_packets();
            if let Err(error) = state {
                // The other end is told why, if it still listens.
                let _ = tls.write_tls(&mut self.stream);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            if is_over {
                // Without a word of its end the connection may have been cut by anybody; so frames are whole, or don't count.
                return match tls.reader().read(into) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                    read => read,
                };
            }
        }
    }

    /// Takes what is to go, as far as there is room.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return again(|| self.stream.write(bytes)) };
        // What it holds goes first, so that it never holds more than its limit.
        flush(tls, &mut self.stream)?;
        let count = tls.writer().write(bytes)?;
        match flush(tls, &mut self.stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && count > 0 => Ok(count),
            Err(error) => Err(error),
            // The handshake has to come first.
            Ok(()) if count == 0 && !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            Ok(()) => Ok(count),
        }
    }

    /// Whether it has bytes of its own to write.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Writes these, as far as there is room.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        match flush(tls, &mut self.stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    /// Says that nothing will come any more.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.stream);
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}

fn flush(tls: &mut rustls::Connection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        again(|| tls.write_tls(stream))?;
    }
    Ok(())
}

fn again<T>(mut run: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match run() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
