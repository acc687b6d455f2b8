//! Tokens: who asks by HTTP.
//!
//! A file names, a line each, a user and the SHA-256 of a token. It is read at each request, so a token counts as soon as its
//! line is there, and no longer.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use onesweep_sys::{peer::Peer, user};
use sha2::{Digest, Sha256};

use super::response::Response;
use crate::{
    access::Asker,
    code::{Reader, Writer},
    service::server::Server,
    warden::wire::{all, put_all},
};

/// Bytes of the file, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bits of a token: none is guessed.
const TOKEN_BYTES: usize = 32;
/// For so long the groups of a user are believed.
const GROUPS_LAST: Duration = Duration::from_secs(60);

type Hash = [u8; 32];

/// Who asks with which token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<(u32, Hash)>);

impl Tokens {
    /// Reads a file of tokens. Refused, by a message that says what to do, when anybody but root could have written or read it.
    pub fn read(path: &Path) -> io::Result<Tokens> {
        let mut text = String::new();
        open(path, OpenOptions::new().read(true))?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Tokens::parse(&text)
            .map_err(|line| invalid(format!("line {line} isn't a user's number and 64 hexadecimal digits")))
    }

    pub(crate) fn put(&self, out: &mut Writer) {
        put_all(out, &self.0, |out, (uid, hash)| {
            out.unsigned((*uid).into());
            out.bytes(hash);
        });
    }

    pub(crate) fn take(from: &mut Reader<'_>) -> Option<Tokens> {
        all(from, |from| Some((from.small()?, from.bytes()?.try_into().ok()?))).map(Tokens)
    }

    /// The number of the first line that can't be understood, else.
    fn parse(text: &str) -> Result<Tokens, usize> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let token = |line: &str| {
            let (uid, hash) = line.trim().split_once(char::is_whitespace)?;
            Some((uid.parse().ok()?, from_hex(hash.trim())?))
        };
        lines.map(|(at, line)| token(line).ok_or(at + 1)).collect::<Result<_, _>>().map(Tokens)
    }

    /// The user of a token. Takes as long whichever it is, and whether there is one or not.
    fn user(&self, token: &str) -> Option<u32> {
        let offered: Hash = Sha256::digest(token.as_bytes()).into();
        let mut found = None;
        for (uid, hash) in &self.0 {
            let difference = hash.iter().zip(&offered).fold(0, |difference, (one, other)| difference | (one ^ other));
            if std::hint::black_box(difference) == 0 {
                found = Some(*uid);
            }
        }
        found
    }
}

/// Makes a token for a user, and adds its line to the file, which is made when it isn't there.
pub fn add(path: &Path, uid: u32) -> io::Result<String> {
    let mut file = open(path, OpenOptions::new().read(true).append(true).create(true).mode(0o600))?;
    let mut secret = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let token = hex(&secret);
    let hash: Hash = Sha256::digest(token.as_bytes()).into();
    let mut text = String::new();
    (&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{gap}{uid} {}\n", hex(&hash)).as_bytes())?;
    file.sync_all()?;
    Ok(token)
}

fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(invalid("it isn't a file".to_owned()));
    }
    if facts.uid() != 0 || facts.mode() & 0o077 != 0 {
        return Err(invalid("others may write or read it; chown root and chmod 600 it".to_owned()));
    }
    Ok(file)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Hash> {
    let digits: Vec<u8> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    (digits.len() == 2 * size_of::<Hash>()).then(|| bytes.try_into().ok()).flatten()
}

/// Where tokens are read, at each request.
pub type ReadTokens = Box<dyn Fn() -> io::Result<Tokens> + Send + Sync>;

/// Lets those in who have a token.
pub(super) struct Guard {
    read: ReadTokens,
    groups: Mutex<HashMap<u32, (Instant, Vec<u32>)>>,
}

impl Guard {
    pub(super) fn new(read: ReadTokens) -> Guard {
        Guard { read, groups: Mutex::default() }
    }

    /// Who asks, and as which user.
    pub(super) fn asker(&self, token: Option<&str>, server: &Server) -> Result<(u32, Asker), Response> {
        let tokens = (self.read)().map_err(|error| {
            let why = format!("the server's file of tokens can't be used: {error}");
            Response::refusal(503, "no_tokens", &why)
        })?;
        let uid = token.and_then(|token| tokens.user(token));
        let uid = uid.ok_or_else(|| {
            Response::refusal(401, "no_token", "a token is needed, or this one isn't known").and_part()
        })?;
        let groups = self.groups_of(uid).map_err(|error| {
            Response::refusal(503, "no_groups", &format!("the groups of user {uid} can't be told: {error}"))
        })?;
        Ok((uid, server.asker(Peer { uid, groups })))
    }

    fn groups_of(&self, uid: u32) -> io::Result<Vec<u32>> {
        let now = Instant::now();
        let mut known = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, groups)) = known.get(&uid)
            && now.duration_since(*since) < GROUPS_LAST
        {
            return Ok(groups.clone());
        }
        // Who else asks meanwhile waits as well: better than to ask twice.
        let groups = user::groups_of(uid)?;
        known.insert(uid, (now, groups.clone()));
        Ok(groups)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_token_belongs_to_its_user() {
        if user::effective_uid() != 0 {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let (one, other) = (add(&file, 7).expect("a token"), add(&file, 1000).expect("a token"));
        assert_eq!(fs::metadata(&file).expect("its facts").mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&file).expect("a text").contains(&one), "the file holds no token");
        let tokens = Tokens::read(&file).expect("tokens");
        assert_eq!([&one, &other].map(|token| tokens.user(token)), [Some(7), Some(1000)]);
        assert_eq!(["", "x", &one[1..]].map(|token| tokens.user(token)), [None; 3]);
        fs::write(&file, format!("# for tests\n\n{}", fs::read_to_string(&file).unwrap().trim_end())).expect("a file");
        let third = add(&file, 8).expect("a token");
        let tokens = Tokens::read(&file).expect("tokens");
        assert_eq!([&other, &third].map(|token| tokens.user(token)), [Some(1000), Some(8)]);
        for mode in [0o640, 0o604, 0o602] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
            assert!(Tokens::read(&file).unwrap_err().to_string().contains("chmod 600"), "{mode:o}");
            assert!(add(&file, 9).is_err(), "{mode:o}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("a mode");
        std::os::unix::fs::chown(&file, Some(7), None).expect("an owner");
        assert!(Tokens::read(&file).is_err(), "another's");
    }

    #[test]
    fn a_line_that_is_no_token_is_told() {
        let hash = "ab".repeat(32);
        assert_eq!(Tokens::parse(&format!("# a\n\n 5\t{hash} \n")), Ok(Tokens(vec![(5, [0xab; 32])])));
        for line in ["5", "x 5", &format!("-1 {hash}"), &format!("5 {hash}a"), &format!("5 {}g", &hash[1..])] {
            assert_eq!(Tokens::parse(&format!("5 {hash}\n{line}")), Err(2), "{line}");
        }
    }
}
