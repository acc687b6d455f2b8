//! Who may talk to whom, by certificates of one small authority ([`crate::keys`]).
//!
//! What counts of a certificate is its role, a name in it; not where its machine is. A client takes any server of its
//! authority, since a server can only fail to help; a server takes clients and scanners. TLS 1.3 alone.

use std::{
    fmt, fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::TLS13,
};

/// Bytes of a file with certificates or a key, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the owner of a certificate may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Asks for blocks, and puts blocks.
    Client,
    /// A client that also tells what it found of contents that it scanned.
    Scanner,
    /// Answers.
    Server,
}

impl Role {
    const ALL: [Self; 3] = [Self::Client, Self::Scanner, Self::Server];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Scanner => "scanner",
            Self::Server => "server",
        }
    }

    /// The name that its certificates have. `.internal` is a domain that nobody can own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client.role.onesweep.internal",
            Self::Scanner => "scanner.role.onesweep.internal",
            Self::Server => "server.role.onesweep.internal",
        }
    }

    fn server_name(self) -> ServerName<'static> {
        ServerName::try_from(self.name()).expect("a name of ours is a name")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.word() == word);
        found.ok_or_else(|| format!("'{word}' is no role; write client, scanner or server"))
    }
}

/// The role of a certificate that was verified already; none where it has none, or several.
#[must_use]
pub fn role_of(certificate: &CertificateDer<'_>) -> Option<Role> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let has = |role: &Role| certificate.verify_is_valid_for_subject_name(&role.server_name()).is_ok();
    let mut roles = Role::ALL.into_iter().filter(has);
    let role = roles.next()?;
    roles.next().is_none().then_some(role)
}

/// Whether nobody but this machine can be at an address.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Why a certificate or key can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file could not be read, or holds something else.
    #[error("{}: cannot read the {what}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// Certificate and key don't fit, or are of a kind that can't be used.
    #[error("the certificate can't be used: {0}")]
    Unusable(String),
    /// The certificate has another role than its use.
    #[error("{}: its role is not {wanted}; make one with: onesweep peer keys DIR --add NAME --role {wanted}", path.display())]
    Role {
        /// The certificate.
        path: PathBuf,
        /// What it would have to be.
        wanted: &'static str,
    },
}

fn unusable(why: impl fmt::Display) -> TlsError {
    TlsError::Unusable(why.to_string())
}

/// A machine's certificate with its key, and the authority's certificate.
#[derive(Debug)]
pub struct Identity {
    path: PathBuf,
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads `DIR/NAME.pem`, `DIR/NAME.key` and `DIR/ca.pem`, where `DIR/NAME` is what is given.
    pub fn read(stem: &Path) -> Result<Self, TlsError> {
        let (path, key) = (with_suffix(stem, ".pem"), with_suffix(stem, ".key"));
        let authority = stem.with_file_name(crate::keys::AUTHORITY_CERTIFICATE);
        Ok(Self {
            authority: read_pem(&authority, "authority's certificate")?,
            certificate: read_pem(&path, "certificate")?,
            key: read_pem(&key, "key")?,
            path,
        })
    }

    /// One that lies in no file.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn made(
        authority: CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Self {
        Self { path: PathBuf::new(), authority, certificate, key }
    }

    pub(crate) fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).map_err(unusable)?;
        Ok(Arc::new(roots))
    }

    fn has_role(&self, roles: &[Role]) -> Result<(), TlsError> {
        let is_one = role_of(&self.certificate).is_some_and(|role| roles.contains(&role));
        if is_one { Ok(()) } else { Err(TlsError::Role { path: self.path.clone(), wanted: roles[0].word() }) }
    }

    /// As a server.
    pub fn into_server(self) -> Result<ServerTls, TlsError> {
        self.has_role(&[Role::Server])?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider))
            .build()
            .map_err(unusable)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate], self.key)
            .map_err(unusable)?;
        // Who goes on where an earlier connection ended isn't asked for a certificate that counts today.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerTls(Arc::new(config)))
    }

    /// As a client or a scanner.
    pub fn into_client(self) -> Result<ClientTls, TlsError> {
        self.has_role(&[Role::Client, Role::Scanner])?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(vec![self.certificate], self.key)
            .map_err(unusable)?;
        config.resumption = Resumption::disabled();
        Ok(ClientTls(Arc::new(config)))
    }
}

fn with_suffix(stem: &Path, suffix: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn read_pem<T: PemObject>(path: &Path, what: &'static str) -> Result<T, TlsError> {
    let failed = |why: String| TlsError::File { path: path.to_owned(), what, why };
    let read = || {
        use io::Read;
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error: io::Error| failed(error.to_string()))?;
    T::from_pem_slice(&bytes).map_err(|error| failed(error.to_string()))
}

/// What a server needs to be one.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    pub(crate) fn connection(&self) -> Result<rustls::Connection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.0)).map(rustls::Connection::Server)
    }
}

/// What a client needs to be one.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    pub(crate) fn connection(&self) -> Result<rustls::Connection, rustls::Error> {
        let connection = ClientConnection::new(Arc::clone(&self.0), Role::Server.server_name())?;
        Ok(rustls::Connection::Client(connection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_the_loopback() {
        for (address, is) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("192.168.1.1", false),
            ("::ffff:10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(address.parse().unwrap()), is, "{address}");
        }
    }

    #[test]
    fn roles_have_words() {
        for role in Role::ALL {
            assert_eq!(role.word().parse(), Ok(role));
            assert!(role.name().starts_with(role.word()));
        }
        "root".parse::<Role>().unwrap_err();
    }

    /// So its certificate is looked at, and that of the server.
    #[test]
    fn nobody_goes_on_where_an_earlier_connection_ended() {
        let keys = tempfile::tempdir().unwrap();
        let validity = crate::keys::Validity::days(10);
        crate::keys::make_authority(keys.path(), validity).unwrap();
        for (name, role) in [("server", Role::Server), ("client", Role::Client)] {
            crate::keys::add(keys.path(), name, role, validity).unwrap();
        }
        let identity = |name| Identity::read(&keys.path().join(name)).unwrap();
        let server = identity("server").into_server().unwrap();
        // One that would.
        let eager = identity("client").into_client().unwrap();
        let mut eager = ClientConfig::clone(&eager.0);
        eager.resumption = Resumption::in_memory_sessions(8);
        for client in [identity("client").into_client().unwrap(), ClientTls(Arc::new(eager))] {
            for _ in 0..2 {
                let (mut near, mut far) = (client.connection().unwrap(), server.connection().unwrap());
                for _ in 0..4 {
                    pass(&mut near, &mut far);
                    pass(&mut far, &mut near);
                }
                assert!(!near.is_handshaking() && !far.is_handshaking());
                assert_eq!(near.handshake_kind(), Some(rustls::HandshakeKind::Full));
            }
        }
    }

    fn pass(from: &mut rustls::Connection, to: &mut rustls::Connection) {
        let mut said = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut said).unwrap();
        }
        let mut said = &said[..];
        while !said.is_empty() {
            to.read_tls(&mut said).unwrap();
            to.process_new_packets().unwrap();
        }
    }
}
