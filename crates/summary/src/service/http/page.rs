//! The page, as `make web` has built it.

use super::response::Response;

macro_rules! built {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/", $name))
    };
}

/// What is at an address that needs no token.
pub(super) fn of(path: &str) -> Option<Response> {
    let (kind, body): (_, &'static [u8]) = match path {
        "/" => ("text/html; charset=utf-8", built!("index.html")),
        "/app.js" => ("text/javascript; charset=utf-8", built!("app.js")),
        "/app.css" => ("text/css; charset=utf-8", built!("app.css")),
        "/icon.svg" => ("image/svg+xml", built!("icon.svg")),
        _ => return None,
    };
    Some(Response::constant(kind, body))
}
