//! A small authority: one certificate that signs those of all machines of a trust domain, and the domain's key.
//!
//! | file | what it is | who needs it |
//! |---|---|---|
//! | `ca.pem` | the authority's certificate | all |
//! | `ca.key` | its key | nobody but who adds machines |
//! | `domain.key` | the key of the trust domain | all |
//! | `NAME.pem`, `NAME.key` | a machine's certificate and key | that machine |

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
};
use webpki::KeyUsage;

use crate::{id::TrustDomain, tls::Role};

/// The file of the authority's certificate.
pub const AUTHORITY_CERTIFICATE: &str = "ca.pem";
/// The file of its key.
pub const AUTHORITY_KEY: &str = "ca.key";
/// The file of the trust domain's key.
pub const DOMAIN_KEY: &str = "domain.key";

/// Clocks of machines may differ by so much.
const CLOCKS_DIFFER: Duration = Duration::from_secs(24 * 3600);

/// Why a key could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A file could not be read or written.
    #[error("{}: cannot {step}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// There is an authority already, or a machine of that name.
    #[error("{}: it is there already, and stays as it is", .0.display())]
    Exists(PathBuf),
    /// A name that can't be one.
    #[error("'{0}' can't be a name: use letters, digits, '-' and '.', and none of the authority's own")]
    Name(String),
    /// The authority's time is over.
    #[error(
        "{}: this authority has expired, and adds no machine. Make a new one with: onesweep peer keys OTHER_DIR; copy domain.key there, so \
         that what is kept stays of use, and add every machine there",
        .0.display()
    )]
    Expired(PathBuf),
    /// What is there can't be used, or nothing can be made of it.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
}

fn certificate(error: rcgen::Error) -> KeysError {
    KeysError::Certificate(error.to_string())
}

/// How long a certificate counts.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// From when on.
    pub from: SystemTime,
    /// Until when.
    pub until: SystemTime,
}

impl Validity {
    /// For so many days from now on; clocks that are a day behind take it, too.
    #[must_use]
    pub fn days(days: u32) -> Self {
        let now = SystemTime::now();
        Self { from: now - CLOCKS_DIFFER, until: now + Duration::from_secs(u64::from(days) * 24 * 3600) }
    }
}

/// Makes an authority and a trust domain in a directory, which is made where there is none.
pub fn make_authority(dir: &Path, validity: Validity) -> Result<(), KeysError> {
    fs::create_dir_all(dir).map_err(|source| KeysError::Io { path: dir.to_owned(), step: "make it", source })?;
    let (certificate_path, key_path) = (dir.join(AUTHORITY_CERTIFICATE), dir.join(AUTHORITY_KEY));
    let domain_path = dir.join(DOMAIN_KEY);
    for path in [&certificate_path, &key_path, &domain_path] {
        if path.exists() {
            return Err(KeysError::Exists(path.clone()));
        }
    }
    let key = KeyPair::generate().map_err(certificate)?;
    let made = authority_params(validity).self_signed(&key).map_err(certificate)?;
    let domain = TrustDomain::generate().map_err(|source| KeysError::Io {
        path: domain_path.clone(),
        step: "draw a key",
        source,
    })?;
    write(&key_path, &key.serialize_pem(), 0o600)?;
    write(&certificate_path, &made.pem(), 0o644)?;
    domain.write(&domain_path).map_err(|source| KeysError::Io { path: domain_path, step: "write it", source })
}

/// Makes a machine's key and certificate, `NAME.key` and `NAME.pem`, by the authority of the directory.
pub fn add(dir: &Path, name: &str, role: Role, validity: Validity) -> Result<(), KeysError> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    let is_name = !name.is_empty() && name.len() <= 64 && name.chars().all(is_letter) && !name.starts_with('.');
    if !is_name || ["ca", "domain"].contains(&name) {
        return Err(KeysError::Name(name.to_owned()));
    }
    let (certificate_path, key_path) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    for path in [&certificate_path, &key_path] {
        if path.exists() {
            return Err(KeysError::Exists(path.clone()));
        }
    }
    check_authority(&dir.join(AUTHORITY_CERTIFICATE))?;
    let authority = KeyPair::from_pem(&read(&dir.join(AUTHORITY_KEY))?).map_err(certificate)?;
    let (made, key) = signed_by(authority, name, role, validity).map_err(certificate)?;
    write(&key_path, &key.serialize_pem(), 0o600)?;
    write(&certificate_path, &made.pem(), 0o644)
}

/// A machine's certificate and key, by the key of an authority.
fn signed_by(
    authority: KeyPair,
    name: &str,
    role: Role,
    validity: Validity,
) -> Result<(rcgen::Certificate, KeyPair), rcgen::Error> {
    // Its certificate says nothing beside that which isn't known here.
    let issuer = Issuer::new(authority_params(validity), authority);
    let key = KeyPair::generate()?;
    let mut params = params(name, validity);
    params.subject_alt_names = vec![SanType::DnsName(role.name().try_into()?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match role {
        Role::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Role::Client | Role::Scanner => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    params.use_authority_key_identifier_extension = true;
    Ok((params.signed_by(&key, &issuer)?, key))
}

/// A machine of an authority of its own, without a file.
#[cfg(any(test, fuzzing))]
pub(crate) fn identity(role: Role) -> crate::tls::Identity {
    let (authority, validity) = (KeyPair::generate().expect("a key"), Validity::days(1));
    let of_authority = authority_params(validity).self_signed(&authority).expect("an authority");
    let (made, key) = signed_by(authority, "one", role, validity).expect("a certificate");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    crate::tls::Identity::made(of_authority.der().clone(), made.der().clone(), key.into())
}

/// Refuses an authority whose time is over. Whoever has its certificate by hand may take what it signs all the same, for TLS asks no
/// time of those that are trusted; but it was to end.
fn check_authority(path: &Path) -> Result<(), KeysError> {
    let pem = read(path)?;
    let unusable = |why: String| KeysError::Certificate(format!("{}: {why}", path.display()));
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| unusable(error.to_string()))?;
    let parsed = webpki::EndEntityCert::try_from(&certificate).map_err(|error| unusable(error.to_string()))?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    // Nobody has signed it but itself, so this never ends well; its time is what is looked at first.
    match parsed.verify_for_usage(algorithms, &[], &[], UnixTime::now(), KeyUsage::client_auth(), None, None) {
        Err(webpki::Error::CertExpired { .. }) => Err(KeysError::Expired(path.to_owned())),
        _ => Ok(()),
    }
}

fn authority_params(validity: Validity) -> CertificateParams {
    let mut params = params("onesweep peer authority", validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn params(name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = validity.from.into();
    params.not_after = validity.until.into();
    params
}

fn read(path: &Path) -> Result<String, KeysError> {
    fs::read_to_string(path).map_err(|source| KeysError::Io { path: path.to_owned(), step: "read it", source })
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), KeysError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = made.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeysError::Exists(path.to_owned()),
        _ => KeysError::Io { path: path.to_owned(), step: "write it", source },
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::tls::{Identity, TlsError};

    #[test]
    fn certificates_have_their_role_and_keys_are_their_owners() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("keys");
        make_authority(&dir, Validity::days(10)).unwrap();
        for (name, role) in [("box", Role::Server), ("note.book-1", Role::Client), ("scan", Role::Scanner)] {
            add(&dir, name, role, Validity::days(10)).unwrap();
        }
        for file in ["ca.key", "domain.key", "box.key", "scan.key"] {
            assert_eq!(fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
        }
        let identity = |name: &str| Identity::read(&dir.join(name)).unwrap();
        identity("box").into_server().unwrap();
        identity("note.book-1").into_client().unwrap();
        identity("scan").into_client().unwrap();
        assert!(matches!(identity("box").into_client(), Err(TlsError::Role { wanted: "client", .. })));
        assert!(matches!(identity("scan").into_server(), Err(TlsError::Role { wanted: "server", .. })));
        TrustDomain::read(&dir.join(DOMAIN_KEY)).unwrap();
    }

    #[test]
    fn an_authority_adds_nobody_after_its_time() {
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 3600);
        for (until, is_over) in [(now - day, true), (now + day, false)] {
            let folder = tempfile::tempdir().unwrap();
            make_authority(folder.path(), Validity { from: now - 30 * day, until }).unwrap();
            let added = add(folder.path(), "one", Role::Client, Validity::days(10));
            assert_eq!(matches!(added, Err(KeysError::Expired(_))), is_over, "{added:?}");
            assert_eq!(folder.path().join("one.pem").exists(), !is_over);
            assert_eq!(folder.path().join("one.key").exists(), !is_over);
        }
        let folder = tempfile::tempdir().unwrap();
        make_authority(folder.path(), Validity::days(10)).unwrap();
        fs::write(folder.path().join(AUTHORITY_CERTIFICATE), "no certificate").unwrap();
        assert!(matches!(add(folder.path(), "one", Role::Client, Validity::days(10)), Err(KeysError::Certificate(_))));
    }

    #[test]
    fn nothing_is_overwritten_and_odd_names_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        make_authority(folder.path(), Validity::days(10)).unwrap();
        assert!(matches!(make_authority(folder.path(), Validity::days(10)), Err(KeysError::Exists(_))));
        add(folder.path(), "one", Role::Client, Validity::days(10)).unwrap();
        assert!(matches!(add(folder.path(), "one", Role::Client, Validity::days(10)), Err(KeysError::Exists(_))));
        for name in ["", "ca", "domain", "a/b", "..", ".hidden", "a b", "é"] {
            assert!(
                matches!(add(folder.path(), name, Role::Client, Validity::days(10)), Err(KeysError::Name(_))),
                "{name}"
            );
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(add(empty.path(), "one", Role::Client, Validity::days(10)), Err(KeysError::Io { .. })));
    }
}
