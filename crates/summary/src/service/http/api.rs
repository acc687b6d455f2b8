//! `/api`: JSON of directories.

use serde::{Serialize, de::DeserializeOwned, de::IntoDeserializer};

use super::{limits::Limits, request::Request, response::Response};
use crate::{
    access::Asker,
    service::{
        growth::Growth,
        listing::{LARGEST_MAX, Listing},
        protocol::{Inode, Name, Question, Refusal},
        server::Server,
    },
};

/// Directories that are told of by name, unless so many are asked for.
const LIMIT: usize = 100;

pub(super) fn file_systems(server: &Server) -> Response {
    match server.paths() {
        Ok(paths) => Response::json(&paths),
        Err(error) => Response::refusal(500, "failed", &error.to_string()),
    }
}

/// A listing, and when it was made.
#[derive(Serialize)]
struct Answer {
    /// In seconds since 1970.
    answered_at: i64,
    #[serde(flatten)]
    listing: Listing,
}

pub(super) fn directory(server: &Server, asker: &Asker, request: &Request, limits: Limits) -> Response {
    let asked = match asked(request, limits) {
        Ok(asked) => asked,
        Err(why) => return Response::refusal(400, "bad_request", &why),
    };
    match server.list(asker, &asked.question, asked.limit, asked.measure) {
        Ok(listing) => Response::json(&Answer { answered_at: crate::moment::seconds(), listing }),
        Err(refused) => refusal(&refused),
    }
}

/// The summaries that are declared.
pub(super) fn summaries(server: &Server) -> Response {
    Response::json(&server.declared())
}

/// A directory by one of them.
pub(super) fn breakdown(server: &Server, asker: &Asker, request: &Request, limits: Limits) -> Response {
    let Some(by) = request.value("by").map(String::from_utf8_lossy) else {
        return Response::refusal(400, "bad_request", "by is missing: the name of a summary");
    };
    if !server.declared().iter().any(|one| one.name == by) {
        return Response::refusal(404, "not_found", "no summary of this name is declared");
    }
    let question = match named(request, &["path", "dev", "ino", "by", "freshness", "max_ms"], limits) {
        Ok(question) => Question { by: Some(by.into_owned()), ..question },
        Err(why) => return Response::refusal(400, "bad_request", &why),
    };
    match server.break_down(asker, &question, None) {
        Ok(breakdown) => Response::json(&breakdown),
        Err(refused) => refusal(&refused),
    }
}

/// Points of a directory, and when they were told.
#[derive(Serialize)]
struct History {
    /// In seconds since 1970.
    answered_at: i64,
    #[serde(flatten)]
    growth: Growth,
}

pub(super) fn history(server: &Server, asker: &Asker, request: &Request, limits: Limits) -> Response {
    let question = match named(request, &["path", "dev", "ino", "freshness", "max_ms"], limits) {
        Ok(question) => question,
        Err(why) => return Response::refusal(400, "bad_request", &why),
    };
    match server.growth(asker, &question) {
        Ok(growth) => Response::json(&History { answered_at: crate::moment::seconds(), growth }),
        Err(refused) => refusal(&refused),
    }
}

struct Asked {
    question: Question,
    limit: usize,
    measure: crate::service::listing::Measure,
}

fn asked(request: &Request, limits: Limits) -> Result<Asked, String> {
    let question = named(request, &["path", "dev", "ino", "limit", "by", "freshness", "max_ms"], limits)?;
    let limit = number(request, "limit")?.map_or(LIMIT, |limit| limit.min(LARGEST_MAX as u64) as usize);
    Ok(Asked { question, limit, measure: word(request, "by")? })
}

/// The directory that is named, where nothing but these keys is.
fn named(request: &Request, known: &[&str], limits: Limits) -> Result<Question, String> {
    if let Some(other) = request.keys().find(|key| !known.iter().any(|name| name.as_bytes() == *key)) {
        return Err(format!("{} isn't known here", String::from_utf8_lossy(other)));
    }
    let inode = match (number(request, "dev")?, number(request, "ino")?) {
        (Some(dev), Some(ino)) => Some(Inode { dev, ino }),
        (None, None) => None,
        _ => return Err("dev and ino go together".to_owned()),
    };
    let path = request.value("path");
    if path.is_some_and(|path| !path.starts_with(b"/") || path.split(|&byte| byte == b'/').any(|name| name == b"..")) {
        return Err("path isn't absolute, or holds ..".to_owned());
    }
    if path.is_some_and(|path| path.contains(&0)) {
        return Err("path holds a byte of zero".to_owned());
    }
    let path = path.map(Name::of);
    if path.is_some() == inode.is_some() {
        return Err("one of path, or dev and ino, is needed".to_owned());
    }
    let (freshness, max_ms) = (word(request, "freshness")?, number(request, "max_ms")?);
    Ok(limits.bound(Question { path, inode, freshness, max_ms, ..Question::plain() }))
}

fn number(request: &Request, key: &str) -> Result<Option<u64>, String> {
    let number = |value: &[u8]| str::from_utf8(value).ok()?.parse().ok();
    request.value(key).map(|value| number(value).ok_or_else(|| format!("{key} isn't a number"))).transpose()
}

/// One of the words that stand for a value, or what is meant without any.
pub(super) fn word<T: DeserializeOwned + Default>(request: &Request, key: &str) -> Result<T, String> {
    let Some(value) = request.value(key) else { return Ok(T::default()) };
    let value = String::from_utf8_lossy(value);
    let read = T::deserialize(value.as_ref().into_deserializer());
    read.map_err(|error: serde::de::value::Error| format!("{key}: {error}"))
}

/// Whether a directory isn't there, isn't tracked or may not be reached is all the same to who asks.
fn refusal(refused: &Refusal) -> Response {
    match refused {
        Refusal::NotTracked | Refusal::Denied => {
            let why = "there is no such directory on a file system that is tracked, or you may not reach it";
            Response::refusal(404, "not_found", why)
        }
        Refusal::Late => {
            let why = "nothing is stored of it yet, and the time is up; it is being read";
            Response::refusal(503, "late", why)
        }
        Refusal::Failed(why) => Response::refusal(500, "failed", why),
    }
}
