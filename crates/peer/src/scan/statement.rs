//! A verdict that somebody vouches for: signed by the machine that has scanned, and held against the list of those who count.
//!
//! Signed are the trust domain, the hash of the content, engine, epoch, verdict and time (docs/FORMATS.md). The key is that
//! of the machine's certificate; TLS signs with it, too, but what TLS signs begins with other bytes.

use std::{collections::HashMap, path::Path, sync::Arc, time::SystemTime};

use rustls::{
    SignatureScheme,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime},
    sign::SigningKey,
};

use super::engine::{EngineId, Verdict};
use crate::{
    id::{DomainName, Hash, TrustDomain},
    tls::{self, Identity, Role, TlsError},
    wire::Record,
};

/// What is signed begins with this.
const PREFIX: &[u8] = b"onesweep verdict 1\n";
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

/// Who has signed: BLAKE3 of his certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignerId(pub [u8; SignerId::BYTES]);

impl SignerId {
    /// Bytes of an identity.
    pub const BYTES: usize = 32;
    /// Nobody: found by the machine that keeps it.
    pub const NOBODY: Self = Self([0; Self::BYTES]);

    /// That of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(*blake3::hash(certificate).as_bytes())
    }
}

/// A verdict of a content, and who says so. Engine and epoch are told beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The content ([`super::content`]).
    pub hash: Hash,
    /// What of it.
    pub verdict: Verdict,
    /// When it was scanned: seconds since 1970.
    pub time: u64,
    /// Who says so.
    pub signer: SignerId,
    /// His signature; empty where nobody has signed.
    pub signature: Vec<u8>,
}

impl Statement {
    /// One that this machine makes for itself alone.
    #[must_use]
    pub fn unsigned(hash: Hash, verdict: Verdict, time: u64) -> Self {
        Self { hash, verdict, time, signer: SignerId::NOBODY, signature: Vec::new() }
    }

    /// As it is told to others.
    pub(crate) fn on_wire(&self) -> Record<'_> {
        let Self { verdict, time, signer, signature, .. } = self;
        Record { signer: signer.0, time: *time, infection: verdict.infection(), signature }
    }

    /// As it was told by somebody.
    pub(crate) fn of_wire(hash: Hash, record: &Record<'_>) -> Self {
        Self {
            hash,
            verdict: record.infection.map_or(Verdict::Clean, Verdict::infected),
            time: record.time,
            signer: SignerId(record.signer),
            signature: record.signature.to_vec(),
        }
    }

    /// The bytes that are signed.
    fn message(&self, domain: DomainName, engine: &EngineId) -> Vec<u8> {
        let mut message = PREFIX.to_vec();
        message.extend(domain.0);
        message.extend(self.hash.as_bytes());
        let (kind, name) = self.verdict.infection().map_or((0, ""), |name| (1, name));
        for text in [engine.name(), engine.epoch(), name] {
            message.extend((text.len() as u16).to_le_bytes());
            message.extend(text.as_bytes());
        }
        message.push(kind);
        message.extend(self.time.to_le_bytes());
        message
    }

    /// Whether the owner of this certificate has signed it.
    #[must_use]
    pub fn is_signed_by(&self, certificate: &CertificateDer<'_>, domain: DomainName, engine: &EngineId) -> bool {
        if self.signer != SignerId::of(certificate) {
            return false;
        }
        let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return false };
        let algorithms = ring::default_provider().signature_verification_algorithms.mapping;
        let algorithms = algorithms.iter().find(|(scheme, _)| *scheme == SCHEME).map_or(&[][..], |(_, all)| all);
        let message = self.message(domain, engine);
        algorithms.iter().any(|one| certificate.verify_signature(*one, &message, &self.signature).is_ok())
    }
}

/// Who may sign.
#[derive(Debug)]
pub struct Signer {
    key: Arc<dyn SigningKey>,
    id: SignerId,
    domain: DomainName,
}

impl Signer {
    /// None where the identity's role isn't that of a scanner.
    pub fn new(identity: &Identity, domain: &TrustDomain) -> Result<Option<Self>, TlsError> {
        if tls::role_of(identity.certificate()) != Some(Role::Scanner) {
            return Ok(None);
        }
        let key = ring::sign::any_supported_type(identity.key())
            .map_err(|error| TlsError::Unusable(error.to_string()))
            .and_then(|key| match key.choose_scheme(&[SCHEME]) {
                Some(_) => Ok(key),
                None => Err(TlsError::Unusable("its key is none for ECDSA with P-256".to_owned())),
            })?;
        Ok(Some(Self { key, id: SignerId::of(identity.certificate()), domain: domain.name() }))
    }

    /// Signs. None where the key can't.
    #[must_use]
    pub fn sign(&self, engine: &EngineId, hash: Hash, verdict: Verdict, time: u64) -> Option<Statement> {
        let mut statement = Statement { signer: self.id, ..Statement::unsigned(hash, verdict, time) };
        let message = statement.message(self.domain, engine);
        statement.signature = self.key.choose_scheme(&[SCHEME])?.sign(&message).ok()?;
        Some(statement)
    }
}

/// Whose statements count.
#[derive(Debug, Default)]
pub struct Trust {
    signers: HashMap<SignerId, CertificateDer<'static>>,
}

impl Trust {
    /// Nobody's.
    #[must_use]
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Those of this machine, where it is a scanner.
    pub fn add_own(&mut self, identity: &Identity) {
        if tls::role_of(identity.certificate()) == Some(Role::Scanner) {
            self.insert(identity.certificate().clone().into_owned());
        }
    }

    /// Those of the owner of a certificate, the file `NAME.pem`: a scanner of the same authority as this machine.
    pub fn add_file(&mut self, path: &Path, own: &Identity) -> Result<(), TlsError> {
        let certificate: CertificateDer<'static> = tls::read_pem(path, "certificate")?;
        if tls::role_of(&certificate) != Some(Role::Scanner) {
            return Err(TlsError::Role { path: path.to_owned(), wanted: Role::Scanner.word() });
        }
        let unusable = |error: webpki::Error| TlsError::Unusable(format!("{}: {error}", path.display()));
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let anchor = webpki::anchor_from_trusted_cert(own.authority()).map_err(unusable)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        webpki::EndEntityCert::try_from(&certificate)
            .and_then(|end| {
                let (now, usage) = (UnixTime::since_unix_epoch(now), webpki::KeyUsage::client_auth());
                end.verify_for_usage(algorithms, &[anchor], &[], now, usage, None, None).map(drop)
            })
            .map_err(unusable)?;
        self.insert(certificate);
        Ok(())
    }

    fn insert(&mut self, certificate: CertificateDer<'static>) {
        self.signers.insert(SignerId::of(&certificate), certificate);
    }

    /// Whether a statement of this engine and epoch counts.
    #[must_use]
    pub fn counts(&self, statement: &Statement, domain: DomainName, engine: &EngineId) -> bool {
        let certificate = self.signers.get(&statement.signer);
        certificate.is_some_and(|certificate| statement.is_signed_by(certificate, domain, engine))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::keys::{self, Validity};

    pub(crate) fn engine() -> EngineId {
        EngineId::new("clamd", "ClamAV 1.4.3/27700/Mon").unwrap()
    }

    pub(crate) fn domain() -> TrustDomain {
        TrustDomain::from_key([7; 32])
    }

    /// An authority with `names`, each of a role.
    pub(crate) fn authority(names: &[(&str, Role)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        keys::make_authority(dir.path(), Validity::days(10)).unwrap();
        names.iter().for_each(|(name, role)| keys::add(dir.path(), name, *role, Validity::days(10)).unwrap());
        dir
    }

    pub(crate) fn identity(dir: &tempfile::TempDir, name: &str) -> Identity {
        Identity::read(&dir.path().join(name)).unwrap()
    }

    #[test]
    fn what_is_signed_counts_as_it_is_and_by_whom_it_is() {
        let dir = authority(&[("one", Role::Scanner), ("two", Role::Scanner)]);
        let (one, two) = (identity(&dir, "one"), identity(&dir, "two"));
        let signer = Signer::new(&one, &domain()).unwrap().unwrap();
        let hash = domain().hash(b"content");
        let signed = signer.sign(&engine(), hash, Verdict::infected("Bad"), 1_800_000_000).unwrap();
        let mut trust = Trust::nobody();
        assert!(!trust.counts(&signed, domain().name(), &engine()));
        trust.add_own(&two);
        assert!(!trust.counts(&signed, domain().name(), &engine()));
        trust.add_file(&dir.path().join("one.pem"), &two).unwrap();
        assert!(trust.counts(&signed, domain().name(), &engine()));

        // Whatever is changed of it.
        let another = EngineId::new("clamd", "ClamAV 1.4.3/27701/Tue").unwrap();
        assert!(!trust.counts(&signed, domain().name(), &another));
        assert!(!trust.counts(&signed, TrustDomain::from_key([8; 32]).name(), &engine()));
        let mut cut = signed.clone();
        cut.signature.pop();
        let own = SignerId::of(two.certificate());
        for changed in [
            Statement { hash: domain().hash(b"other"), ..signed.clone() },
            Statement { verdict: Verdict::Clean, ..signed.clone() },
            Statement { verdict: Verdict::infected("Bat"), ..signed.clone() },
            Statement { time: 1_800_000_001, ..signed.clone() },
            Statement { signer: own, ..signed.clone() },
            Statement { signer: SignerId::NOBODY, ..signed.clone() },
            Statement { signature: Vec::new(), ..signed.clone() },
            cut,
        ] {
            assert!(!trust.counts(&changed, domain().name(), &engine()), "{changed:?}");
        }
    }

    #[test]
    fn only_scanners_of_the_same_authority_sign_and_count() {
        let names = [("scan", Role::Scanner), ("note", Role::Client), ("box", Role::Server)];
        let (dir, other) = (authority(&names), authority(&names));
        let own = identity(&dir, "note");
        for name in ["note", "box"] {
            assert!(Signer::new(&identity(&dir, name), &domain()).unwrap().is_none(), "{name}");
            let refused = Trust::nobody().add_file(&dir.path().join(name).with_extension("pem"), &own);
            assert!(matches!(refused, Err(TlsError::Role { wanted: "scanner", .. })), "{name}");
        }
        let foreign = Trust::nobody().add_file(&other.path().join("scan.pem"), &own);
        assert!(matches!(foreign, Err(TlsError::Unusable(_))));
        let mut trust = Trust::nobody();
        trust.add_own(&own);
        assert!(trust.signers.is_empty(), "a client does not scan");
    }
}
