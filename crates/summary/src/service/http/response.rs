//! One answer.

use serde::Serialize;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    kind: &'static str,
    body: Body,
    /// The connection ends with it.
    pub(super) is_last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Built(Vec<u8>),
    Constant(&'static [u8]),
}

/// What every answer says to the browser: nothing from elsewhere, nothing written into the page, nothing kept, nothing for
/// other origins.
const HEADERS: &str = "\
Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
X-Content-Type-Options: nosniff\r\n\
Referrer-Policy: no-referrer\r\n\
Cross-Origin-Opener-Policy: same-origin\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
Cache-Control: no-store\r\n";

impl Response {
    /// A value as JSON.
    pub(super) fn json(value: &impl Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response::of(200, "application/json", Body::Built(body)),
            Err(error) => Response::refusal(500, "failed", &error.to_string()),
        }
    }

    /// What was built in.
    pub(super) fn constant(kind: &'static str, body: &'static [u8]) -> Response {
        Response::of(200, kind, Body::Constant(body))
    }

    pub(super) fn text(kind: &'static str, body: String) -> Response {
        Response::of(200, kind, Body::Built(body.into_bytes()))
    }

    /// Why there is no answer: a word for programs, and a sentence for people.
    pub(super) fn refusal(status: u16, error: &str, message: &str) -> Response {
        let body = serde_json::json!({ "error": error, "message": message }).to_string();
        Response::of(status, "application/json", Body::Built(body.into_bytes()))
    }

    fn of(status: u16, kind: &'static str, body: Body) -> Response {
        Response { status, kind, body, is_last: false }
    }

    /// The same, after which the connection ends.
    pub(super) fn and_part(self) -> Response {
        Response { is_last: true, ..self }
    }

    fn body(&self) -> &[u8] {
        match &self.body {
            Body::Built(bytes) => bytes,
            Body::Constant(bytes) => bytes,
        }
    }

    /// Its bytes; without those of the body when only the head was asked for.
    pub(super) fn bytes(&self, is_head: bool) -> Vec<u8> {
        let Response { status, kind, .. } = self;
        let (reason, further) = match status {
            200 => ("OK", ""),
            400 => ("Bad Request", ""),
            401 => ("Unauthorized", "WWW-Authenticate: Bearer\r\n"),
            404 => ("Not Found", ""),
            405 => ("Method Not Allowed", "Allow: GET, HEAD\r\n"),
            408 => ("Request Timeout", ""),
            413 => ("Content Too Large", ""),
            421 => ("Misdirected Request", ""),
            431 => ("Request Header Fields Too Large", ""),
            503 => ("Service Unavailable", "Retry-After: 2\r\n"),
            _ => ("Internal Server Error", ""),
        };
        let connection = if self.is_last { "Connection: close\r\n" } else { "" };
        let length = self.body().len();
        let mut bytes = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{HEADERS}{further}{connection}\r\n"
        )
        .into_bytes();
        if !is_head {
            bytes.extend(self.body());
        }
        bytes
    }
}
