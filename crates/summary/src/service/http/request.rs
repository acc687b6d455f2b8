//! One request: its head, taken apart and held against what is allowed.

use std::net::IpAddr;

use super::response::Response;

/// Bytes of a head, at most.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// A request without a body; there are no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    query: Vec<(Vec<u8>, Vec<u8>)>,
    host: Option<String>,
    pub(super) token: Option<String>,
    /// The connection ends with the answer.
    pub(super) is_last: bool,
}

/// What bytes came to.
pub(super) enum Parsed {
    /// There must be more.
    Partial,
    /// A request, and of how many bytes.
    Whole(Request, usize),
    /// None that is answered; nothing that follows can be understood.
    Bad(Response),
}

/// Takes a head apart.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => match Request::of(&head) {
            Ok(request) => Parsed::Whole(request, length),
            Err(refusal) => Parsed::Bad(refusal),
        },
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Parsed::Bad(Response::refusal(431, "too_long", "the head of the request is too long"))
        }
        Err(_) => Parsed::Bad(bad("the request can't be understood")),
    }
}

fn bad(why: &str) -> Response {
    Response::refusal(400, "bad_request", why)
}

impl Request {
    fn of(head: &httparse::Request<'_, '_>) -> Result<Request, Response> {
        let target = head.path.unwrap_or_default();
        if !target.starts_with('/') {
            return Err(bad("the address doesn't begin with a slash"));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Request {
            method: head.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect(),
            is_last: head.version == Some(0),
            ..Request::default()
        };
        for header in head.headers.iter() {
            let value = str::from_utf8(header.value).unwrap_or_default().trim();
            match header.name.to_ascii_lowercase().as_str() {
                "host" if request.host.is_some() => return Err(bad("there is more than one Host")),
                "host" => request.host = Some(value.to_owned()),
                "authorization" => request.token = bearer(value),
                "connection" => {
                    request.is_last |= value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"))
                }
                "transfer-encoding" => return Err(too_large()),
                "content-length" if value != "0" => return Err(too_large()),
                _ => {}
            }
        }
        Ok(request)
    }

    /// A page of another origin can make its own name lead here; then the name gives it away.
    pub(super) fn is_for_this_machine(&self) -> bool {
        let Some(host) = &self.host else { return false };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        name.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }

    /// A value of the query.
    pub(super) fn value(&self, key: &str) -> Option<&[u8]> {
        let found = self.query.iter().find(|(name, _)| name == key.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// Keys of the query.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.query.iter().map(|(name, _)| name.as_slice())
    }
}

fn too_large() -> Response {
    Response::refusal(413, "too_large", "a request here has no body")
}

fn bearer(value: &str) -> Option<String> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

fn pair(text: &str) -> (Vec<u8>, Vec<u8>) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (decoded(name), decoded(value))
}

/// Bytes that are written as `%41` or, for a space, `+`.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digit = |at: usize| behind.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = &behind[2..];
            }
            (b'+', ..) => {
                bytes.push(b' ');
                rest = behind;
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(head: &str) -> Request {
        match parse(head.as_bytes()) {
            Parsed::Whole(request, length) if length == head.len() => request,
            Parsed::Whole(..) | Parsed::Partial => panic!("not whole: {head}"),
            Parsed::Bad(refusal) => panic!("{refusal:?}"),
        }
    }

    fn refused(head: &str) -> u16 {
        match parse(head.as_bytes()) {
            Parsed::Bad(refusal) => refusal.status,
            _ => panic!("not refused: {head}"),
        }
    }

    #[test]
    fn a_head_is_taken_apart() {
        let request = whole(
            "GET /api/directory?path=%2Fa%FF+b%zz&limit=3&flag HTTP/1.1\r\nHost: localhost:80\r\nauthorization: bearer  abc \r\n\
             Connection: keep-alive, Close\r\n\r\n",
        );
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/api/directory"));
        assert_eq!(request.value("path"), Some(&b"/a\xff b%zz"[..]));
        assert_eq!((request.value("limit"), request.value("flag")), (Some(&b"3"[..]), Some(&b""[..])));
        assert_eq!(request.value("other"), None);
        assert_eq!(request.token.as_deref(), Some("abc"));
        assert!(request.is_last);
        assert!(whole("GET / HTTP/1.0\r\n\r\n").is_last);
        assert!(!whole("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").is_last);
        assert_eq!(whole("GET / HTTP/1.1\r\nAuthorization: Basic abc\r\n\r\n").token, None);
    }

    #[test]
    fn what_is_no_plain_question_is_refused() {
        assert_eq!(refused("GET http://localhost/ HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n"), 400);
        assert_eq!(refused("GET /\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), 413);
        assert_eq!(refused("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
        let many: String = (0..HEADERS_MAX + 1).map(|number| format!("a{number}: b\r\n")).collect();
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{many}\r\n")), 431);
        assert_eq!(refused(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_BYTES_MAX))), 431);
        assert!(matches!(parse(b"GET / HTTP/1.1\r\nHost: loc"), Parsed::Partial));
    }

    #[test]
    fn only_names_of_this_machine_are_answered_to() {
        let asked = |host: &str| whole(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).is_for_this_machine();
        for host in ["localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "127.8.9.1:80", "[::1]", "[::1]:8080"] {
            assert!(asked(host), "{host}");
        }
        for host in
            ["", "example.org", "localhost.example.org:80", "127.0.0.1.example.org", "10.0.0.1", "[::2]:80", ":80"]
        {
            assert!(!asked(host), "{host}");
        }
        assert!(!whole("GET / HTTP/1.1\r\n\r\n").is_for_this_machine());
    }
}
