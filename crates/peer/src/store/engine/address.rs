//! How an engine is named: `redis://host`, `redis+cluster://host,host`, `s3://bucket/prefix`, and what can be said behind `?`.

use std::{fmt, str::FromStr, time::Duration};

use onesweep_layout::size::Size;

/// The port of Redis.
const REDIS_PORT: u16 = 6379;
/// Redis is in the same house; a store of objects may be far away.
const REDIS_TIMEOUT: Duration = Duration::from_millis(250);
const S3_TIMEOUT: Duration = Duration::from_secs(1);
/// Clients give a connection up on which nothing comes for three seconds.
const TIMEOUT_LONGEST: Duration = Duration::from_secs(2);

/// Where an engine is, without any credentials: what is an argument can be seen by everybody on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineAddress {
    /// Which engine, and where.
    pub kind: EngineKind,
    /// A request may take so long.
    pub timeout: Duration,
}

/// An engine, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Redis, or what speaks like it.
    Redis(RedisAddress),
    /// S3, or what speaks like it.
    S3(S3Address),
}

/// A Redis server, or some of a cluster's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisAddress {
    /// Names or addresses, and ports. One, but for a cluster.
    pub hosts: Vec<(String, u16)>,
    /// The hosts tell which others there are, and which of them has which blocks.
    pub is_cluster: bool,
    /// TLS.
    pub is_encrypted: bool,
    /// The number of the database.
    pub database: u32,
    /// What isn't read for so long goes.
    pub ttl: Option<Duration>,
}

/// A bucket, and a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Address {
    /// The bucket.
    pub bucket: String,
    /// Where in it; may be empty.
    pub prefix: String,
    /// The server, where it isn't Amazon's.
    pub endpoint: Option<String>,
    /// Where the bucket is.
    pub region: Option<String>,
    /// Bytes of the blocks there, at most.
    pub limit: Option<u64>,
}

/// Why a text names no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// No engine is called so.
    #[error(
        "{0}: not an engine; there are redis://HOST, redis+cluster://HOST,HOST and s3://BUCKET/PREFIX, and rediss:// for TLS"
    )]
    Scheme(String),
    /// Everybody on this machine can see arguments. The text is not told again.
    #[error("an engine's address has no credentials, since everybody can see arguments: set {0} in the environment")]
    Credentials(&'static str),
    /// A part of it makes no sense.
    #[error("{part}: {why}")]
    Part {
        /// As it was written.
        part: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

fn part(part: &str, why: &'static str) -> AddressError {
    AddressError::Part { part: part.to_owned(), why }
}

impl FromStr for EngineAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            // It may be anything, a password too.
            AddressError::Scheme(text.chars().take_while(|char| char.is_ascii_alphanumeric() || *char == '+').collect())
        })?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let variables = match scheme {
            "s3" => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            _ => "ONESWEEP_REDIS_USER and ONESWEEP_REDIS_PASSWORD",
        };
        if place.contains('@') || options.contains('@') {
            return Err(AddressError::Credentials(variables));
        }
        let mut options = Options::read(options)?;
        let timeout = options.take("timeout").map(|value| match duration(&value)? {
            time if time > TIMEOUT_LONGEST => {
                Err(part(&value, "a time-out is 2s at most, since clients wait no longer"))
            }
            time => Ok(time),
        });
        let timeout = timeout.transpose()?;
        let (kind, usual) = match scheme {
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => {
                (EngineKind::Redis(redis(scheme, place, &mut options)?), REDIS_TIMEOUT)
            }
            "s3" => (EngineKind::S3(s3(place, &mut options)?), S3_TIMEOUT),
            _ => return Err(AddressError::Scheme(scheme.to_owned())),
        };
        options.end()?;
        Ok(Self { kind, timeout: timeout.unwrap_or(usual) })
    }
}

fn redis(scheme: &str, place: &str, options: &mut Options) -> Result<RedisAddress, AddressError> {
    let is_cluster = scheme.ends_with("+cluster");
    let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
    let database = match database {
        "" => 0,
        number => number.parse().map_err(|_| part(number, "the path of a Redis server is the number of a database"))?,
    };
    let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>, _>>()?;
    if hosts.len() > 1 && !is_cluster {
        return Err(part(place, "several hosts are a cluster: write redis+cluster:// or rediss+cluster://"));
    }
    if database > 0 && is_cluster {
        return Err(part(place, "a cluster has no other database than 0"));
    }
    let ttl = options.take("ttl").map(|value| duration(&value)).transpose()?;
    if let Some(limit) = options.take("limit") {
        return Err(part(&limit, "Redis has its own limit: set maxmemory, and maxmemory-policy allkeys-lru, there"));
    }
    Ok(RedisAddress { hosts, is_cluster, is_encrypted: scheme.starts_with("rediss"), database, ttl })
}

fn host(text: &str) -> Result<(String, u16), AddressError> {
    let wrong = || part(text, "a host is NAME, NAME:PORT, or [ADDRESS]:PORT where the address has colons");
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
        None => text.split_once(':').map_or((text, ""), |(name, _)| (name, &text[name.len()..])),
    };
    let port = match port {
        "" => REDIS_PORT,
        port => port.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(wrong)?,
    };
    if name.is_empty() || port == 0 { Err(wrong()) } else { Ok((name.to_owned(), port)) }
}

fn s3(place: &str, options: &mut Options) -> Result<S3Address, AddressError> {
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.is_empty() {
        return Err(part(place, "a bucket is needed: s3://BUCKET/PREFIX"));
    }
    let endpoint = options.take("endpoint");
    if let Some(endpoint) = &endpoint
        && !endpoint.starts_with("https://")
        && !endpoint.starts_with("http://")
    {
        return Err(part(endpoint, "an endpoint begins with https:// or http://"));
    }
    let limit = options.take("limit").map(|value| match value.parse::<Size>() {
        Ok(size) if size.0 > 0 => Ok(size.0),
        _ => Err(part(&value, "a limit is a size, as 500G")),
    });
    Ok(S3Address {
        bucket: bucket.to_owned(),
        prefix: prefix.trim_matches('/').to_owned(),
        endpoint,
        region: options.take("region"),
        limit: limit.transpose()?,
    })
}

fn duration(text: &str) -> Result<Duration, AddressError> {
    const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let read =
        UNITS.iter().find_map(|(unit, millis)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*millis));
    match read {
        Some(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err(part(text, "a time is a number with ms, s, m, h or d behind it, as 250ms")),
    }
}

/// What is said behind the question mark.
struct Options(Vec<(String, String)>);

impl Options {
    fn read(text: &str) -> Result<Self, AddressError> {
        let pair = |text: &str| -> Result<(String, String), AddressError> {
            let (name, value) = text.split_once('=').ok_or_else(|| part(text, "an option is NAME=VALUE"))?;
            Ok((name.to_owned(), decoded(value)?))
        };
        text.split('&').filter(|text| !text.is_empty()).map(pair).collect::<Result<_, _>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }

    fn end(self) -> Result<(), AddressError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(part(name, "this engine has no such option, or has it once")),
        }
    }
}

/// Takes %XX for the byte that it is.
fn decoded(text: &str) -> Result<String, AddressError> {
    let wrong = || part(text, "a % has two hexadecimal digits behind it");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

impl fmt::Display for EngineAddress {
    /// As it is told to people; it can be read again, but for options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            EngineKind::Redis(redis) => {
                let tls = if redis.is_encrypted { "s" } else { "" };
                let cluster = if redis.is_cluster { "+cluster" } else { "" };
                let host = |(name, port): &(String, u16)| match name.contains(':') {
                    true => format!("[{name}]:{port}"),
                    false => format!("{name}:{port}"),
                };
                let hosts: Vec<_> = redis.hosts.iter().map(host).collect();
                write!(f, "redis{tls}{cluster}://{}", hosts.join(","))?;
                if redis.database > 0 { write!(f, "/{}", redis.database) } else { Ok(()) }
            }
            EngineKind::S3(s3) => write!(f, "s3://{}/{}", s3.bucket, s3.prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> EngineAddress {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let redis = RedisAddress {
            hosts: vec![("box".to_owned(), 6379)],
            is_cluster: false,
            is_encrypted: false,
            database: 0,
            ttl: None,
        };
        assert_eq!(read("redis://box"), EngineAddress { kind: EngineKind::Redis(redis), timeout: REDIS_TIMEOUT });
        let s3 =
            S3Address { bucket: "blocks".to_owned(), prefix: String::new(), endpoint: None, region: None, limit: None };
        assert_eq!(read("s3://blocks"), EngineAddress { kind: EngineKind::S3(s3), timeout: S3_TIMEOUT });
    }

    #[test]
    fn all_can_be_said() {
        let EngineKind::Redis(redis) = read("rediss+cluster://a:1,[::1]:2,c?ttl=30d&timeout=50ms").kind else {
            panic!()
        };
        let hosts = [("a", 1), ("::1", 2), ("c", 6379)].map(|(name, port)| (name.to_owned(), port));
        assert_eq!(redis.hosts, hosts);
        assert!(redis.is_cluster && redis.is_encrypted);
        assert_eq!(redis.ttl, Some(Duration::from_secs(30 * 86_400)));
        assert_eq!(read("redis://a/3?timeout=50ms").timeout, Duration::from_millis(50));
        let address = read("s3://b/some/where/?endpoint=http%3A//127.0.0.1:9000&region=eu-central-1&limit=5G");
        let EngineKind::S3(s3) = address.kind else { panic!() };
        assert_eq!((s3.bucket.as_str(), s3.prefix.as_str()), ("b", "some/where"));
        assert_eq!(s3.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!((s3.region.as_deref(), s3.limit), (Some("eu-central-1"), Some(5 << 30)));
    }

    #[test]
    fn what_is_told_names_the_same_place() {
        for text in ["redis://a:6379", "rediss://[::1]:7/3", "redis+cluster://a:1,b:2", "s3://bucket/some/where"] {
            assert_eq!(read(text).to_string(), text);
        }
    }

    #[test]
    fn passwords_are_refused_and_not_told() {
        for text in
            ["redis://user:secret@box", "rediss://:secret@box:1/0", "s3://secret@bucket", "redis://a?x=secret@b"]
        {
            let error = text.parse::<EngineAddress>().unwrap_err();
            assert!(matches!(error, AddressError::Credentials(_)), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(!"redis:secret".parse::<EngineAddress>().unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_word() {
        for (text, why) in [
            ("box:6379", "not an engine"),
            ("http://box", "not an engine"),
            ("redis://", "a host is"),
            ("redis://box:0", "a host is"),
            ("redis://box:x", "a host is"),
            ("redis://[::1", "a host is"),
            ("redis://a,b", "several hosts are a cluster"),
            ("redis+cluster://a/1", "no other database"),
            ("redis://a/b", "number of a database"),
            ("redis://a?ttl=5", "a time is"),
            ("redis://a?timeout=0ms", "a time is"),
            ("redis://a?timeout=3s", "2s at most"),
            ("redis://a?limit=5G", "maxmemory"),
            ("redis://a?ttl", "NAME=VALUE"),
            ("redis://a?ttl=1s&ttl=2s", "or has it once"),
            ("redis://a?endpoint=x", "no such option"),
            ("s3://", "a bucket is needed"),
            ("s3:///prefix", "a bucket is needed"),
            ("s3://b?endpoint=box", "begins with https"),
            ("s3://b?limit=much", "a limit is"),
            ("s3://b?region=%e", "a % has"),
            ("s3://b?region=%ff", "a % has"),
        ] {
            let error = text.parse::<EngineAddress>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
