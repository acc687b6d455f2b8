//! One connection: requests one after the other, each within its time.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{
    request::{HEAD_BYTES_MAX, Parsed, Request, parse},
    response::Response,
};

/// So long after it was made a connection has to have shown who asks.
const UNKNOWN: Duration = Duration::from_secs(5);
/// For so long a connection may wait for its next request.
const IDLE: Duration = Duration::from_secs(15);
/// In so long a head has to be there once it has begun, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers all requests of a connection, of which `is_known` says who asks or doesn't.
pub(super) fn converse(
    mut stream: &TcpStream,
    is_known: impl Fn() -> bool,
    answer: impl Fn(&Request) -> Response,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let made = Instant::now();
    let within = |time: Duration| {
        let until = Instant::now() + time;
        if is_known() { until } else { until.min(made + UNKNOWN) }
    };
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let mut until = within(if bytes.is_empty() { IDLE } else { PATIENCE });
        let request = loop {
            match parse(&bytes) {
                Parsed::Whole(request, length) => {
                    bytes.drain(..length);
                    break request;
                }
                Parsed::Bad(refusal) => return part(stream, refusal),
                Parsed::Partial => {}
            }
            let had_begun = !bytes.is_empty();
            match receive(stream, &mut bytes, until) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if is_late(&error) && had_begun => {
                    return part(stream, Response::refusal(408, "too_slow", "the request took too long"));
                }
                Err(error) => return Err(error),
            }
            if !had_begun {
                until = within(PATIENCE);
            }
        };
        let mut said = answer(&request);
        said.is_last |= request.is_last;
        send(stream, &said.bytes(request.method == "HEAD"))?;
        if said.is_last {
            return stream.flush();
        }
    }
}

/// Receives some bytes; false when the other end has none left.
fn receive(mut stream: &TcpStream, bytes: &mut Vec<u8>, until: Instant) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    let room = HEAD_BYTES_MAX.saturating_sub(bytes.len()).clamp(1, buffer.len());
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut buffer[..room]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(read) => {
                bytes.extend(&buffer[..read]);
                return Ok(read > 0);
            }
        }
    }
}

fn send(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            done => bytes = &bytes[done?..],
        }
    }
    Ok(())
}

/// Says why, and ends the connection.
fn part(stream: &TcpStream, refusal: Response) -> io::Result<()> {
    send(stream, &refusal.and_part().bytes(false))
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn exchange(bytes: &[u8]) -> String {
        exchanged(bytes, |request| Response::text("text/plain", format!("<{}>", request.path)))
    }

    /// What a connection gives back for some bytes, when nothing follows them.
    fn exchanged(bytes: &[u8], answer: impl Fn(&Request) -> Response + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut asking = TcpStream::connect(listener.local_addr().expect("an address")).expect("it connects");
        let (answering, _) = listener.accept().expect("a connection");
        let conversation = std::thread::spawn(move || {
            let _ = converse(&answering, || true, answer);
        });
        asking.write_all(bytes).expect("it is sent");
        asking.shutdown(std::net::Shutdown::Write).expect("it ends");
        let mut said = String::new();
        asking.read_to_string(&mut said).expect("an answer");
        conversation.join().expect("no panic");
        said
    }

    #[test]
    fn requests_follow_each_other() {
        let said = exchange(
            b"GET /a HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\nConnection: close\r\n\r\nGET /d",
        );
        assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 3, "{said}");
        assert!(said.contains("</a>"), "{said}");
        assert!(!said.contains("</b>") && said.ends_with("</c>"), "{said}");
        assert_eq!(said.matches("Connection: close").count(), 1, "{said}");
        assert_eq!(exchange(b""), "");
    }

    /// However often it asks for what needs no token.
    #[test]
    fn who_does_not_show_who_asks_is_not_heard_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut asking = TcpStream::connect(listener.local_addr().expect("an address")).expect("it connects");
        let (answering, _) = listener.accept().expect("a connection");
        let conversation = std::thread::spawn(move || {
            let _ = converse(&answering, || false, |_| Response::text("text/plain", "icon".to_owned()));
        });
        while asking.write_all(b"GET /icon HTTP/1.1\r\n\r\n").is_ok() {
            // The end may come as an error, where what was sent isn't read any more.
            if !matches!(asking.read(&mut [0; 4096]), Ok(1..)) {
                break;
            }
        }
        conversation.join().expect("no panic");
    }

    /// Or one connection could try as many tokens as it likes.
    #[test]
    fn a_refusal_that_parts_is_the_last_answer() {
        let refuse = |_: &Request| Response::refusal(401, "no_token", "it isn't known").and_part();
        let said = exchanged(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", refuse);
        assert_eq!((said.matches("HTTP/1.1 401").count(), said.matches("Connection: close").count()), (1, 1), "{said}");
    }

    #[test]
    fn what_comes_after_a_bad_request_is_not_read() {
        let said = exchange(b"POST /a HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 413") && said.matches("HTTP/1.1").count() == 1, "{said}");
    }
}
