//! Mutual TLS under a job's own certificate authority.
//!
//! A certificate's role is a DNS name among its subject alternative names. Server certificates need the extended key
//! usage `serverAuth`, client certificates `clientAuth`, a launcher's both.

use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// File names in a certificates' folder.
const CA_FILE: &str = "ca.crt";
const CERTIFICATE_FILE: &str = "tls.crt";
const KEY_FILE: &str = "tls.key";

/// Who someone is in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator; connects only.
    Operator,
    /// A launcher; serves the operator, connects to workers.
    Launcher,
    /// A worker; serves only.
    Worker,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Launcher, Self::Worker];

    /// The DNS name that stands for the role in a certificate.
    pub const fn dns_name(self) -> &'static str {
        match self {
            Self::Operator => "operator.dem",
            Self::Launcher => "launcher.dem",
            Self::Worker => "worker.dem",
        }
    }
}

/// Certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or text is not the PEM that it should be.
    #[error("{what}: {source}, must be PEM")]
    Pem {
        /// File or part.
        what: String,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// The pieces do not fit together.
    #[error("certificates: {0}")]
    Config(String),
}

/// Certificate authority, own certificate chain and key, as PEM text.
pub struct Identity {
    ca: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads `ca.crt`, `tls.crt` and `tls.key` of a folder.
    ///
    /// # Errors
    /// Names the file that is missing or not PEM.
    pub fn from_dir(dir: &Path) -> Result<Self, TlsError> {
        let path = |name: &str| dir.join(name);
        let failed = |name: &str| {
            let what = dir.join(name).display().to_string();
            move |source| TlsError::Pem { what, source }
        };
        let certificates = |name: &str| {
            CertificateDer::pem_file_iter(path(name)).and_then(Iterator::collect).map_err(failed(name))
        };
        Ok(Self {
            ca: certificates(CA_FILE)?,
            chain: certificates(CERTIFICATE_FILE)?,
            key: PrivateKeyDer::from_pem_file(path(KEY_FILE)).map_err(failed(KEY_FILE))?,
        })
    }

    /// The same from PEM texts.
    ///
    /// # Errors
    /// Names the part that is not PEM.
    pub fn from_pem(ca: &str, certificate: &str, key: &str) -> Result<Self, TlsError> {
        let failed = |what: &'static str| move |source| TlsError::Pem { what: what.into(), source };
        let certificates = |what, text: &str| {
            CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().map_err(failed(what))
        };
        Ok(Self {
            ca: certificates(CA_FILE, ca)?,
            chain: certificates(CERTIFICATE_FILE, certificate)?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(failed(KEY_FILE))?,
        })
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.ca {
            roots.add(certificate.clone()).map_err(|e| TlsError::Config(format!("{CA_FILE}: {e}")))?;
        }
        Ok(roots)
    }
}

/// What a client needs to connect; cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
}

impl ClientTls {
    /// A client with this identity that trusts its authority alone.
    ///
    /// # Errors
    /// Certificate and key that do not fit together.
    pub fn new(identity: Identity) -> Result<Self, TlsError> {
        let roots = identity.roots()?;
        let config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::Config(e.to_string()))?
            .with_root_certificates(roots)
            .with_client_auth_cert(identity.chain, identity.key)
            .map_err(|e| TlsError::Config(format!("{CERTIFICATE_FILE}, {KEY_FILE}: {e}")))?;
        Ok(Self { config: Arc::new(config) })
    }
}

/// What a server needs to accept clients of certain roles; cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    accepted: &'static [Role],
}

impl ServerTls {
    /// A server with this identity that accepts clients of its authority with one of the `accepted` roles.
    ///
    /// # Errors
    /// Certificate and key that do not fit together.
    pub fn new(identity: Identity, accepted: &'static [Role]) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(identity.roots()?), provider.clone())
                .build()
                .map_err(|e| TlsError::Config(format!("{CA_FILE}: {e}")))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::Config(e.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .map_err(|e| TlsError::Config(format!("{CERTIFICATE_FILE}, {KEY_FILE}: {e}")))?;
        Ok(Self { config: Arc::new(config), accepted })
    }

    /// The role of a client that the handshake has verified.
    ///
    /// # Errors
    /// Says which roles would have been accepted.
    pub fn role_of(&self, certificates: Option<&[CertificateDer<'_>]>) -> Result<Role, String> {
        let wanted = || self.accepted.iter().map(|r| r.dns_name()).collect::<Vec<_>>().join(" or ");
        let leaf = certificates
            .and_then(<[_]>::first)
            .ok_or_else(|| format!("no client certificate, must be one for {}", wanted()))?;
        let leaf = ParsedCertificate::try_from(leaf).map_err(|e| format!("client certificate: {e}"))?;
        Role::ALL
            .into_iter()
            .filter(|role| self.accepted.contains(role))
            .find(|role| {
                ServerName::try_from(role.dns_name())
                    .is_ok_and(|name| verify_server_name(&leaf, &name).is_ok())
            })
            .ok_or_else(|| format!("client certificate is not for {}", wanted()))
    }
}
