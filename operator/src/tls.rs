//! Certificates of one job: a CA of its own and one certificate per role.
//!
//! The CA's key never enters a pod: it is kept in the Secret `<job>-ca` beside the operator's own certificate,
//! and the pods mount only their role's Secret. Roles are told apart by a DNS subject alternative name
//! (`operator.dem`, `launcher.dem`, `worker.dem`), since addresses of pods are not known when certificates are
//! issued. Keys are ECDSA P-256. Certificates do not expire within any job's life: they end with the job's CA,
//! which no other job trusts.

use dem_launch::Role;
use dem_plan::render::TlsMaterial;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Key of the CA certificate in every Secret of a job.
pub const CA_CERT: &str = "ca.crt";
/// Key of the CA's private key, in `<job>-ca` only.
pub const CA_KEY: &str = "ca.key";
/// Key of the role's certificate.
pub const CERT: &str = "tls.crt";
/// Key of the role's private key.
pub const KEY: &str = "tls.key";

/// The CA of one job.
#[derive(Clone)]
pub struct Authority {
    /// `namespace/name` of the job, in the certificate's subject for people who look at it.
    pub job: String,
    /// Certificate, PEM.
    pub cert: String,
    /// PKCS #8 private key, PEM.
    pub key: String,
}

/// Makes the CA of the job `job` (`namespace/name`).
///
/// # Errors
/// When the key cannot be made.
pub fn authority(job: &str) -> Result<Authority, rcgen::Error> {
    let key = KeyPair::generate()?;
    let cert = authority_params(job)?.self_signed(&key)?.pem();
    Ok(Authority { job: job.to_owned(), cert, key: key.serialize_pem() })
}

fn authority_params(job: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    // RFC 5280 limits a common name to 64 characters.
    let name: String = format!("DemJob {job}").chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Issues a certificate for `role`: the operator only connects, workers only serve, a launcher does both.
///
/// # Errors
/// When the CA's key cannot be read.
pub fn certificate(ca: &Authority, role: Role) -> Result<TlsMaterial, rcgen::Error> {
    // Name and key make the issuer; the certificate itself need not be parsed.
    let issuer = Issuer::new(authority_params(&ca.job)?, KeyPair::from_pem(&ca.key)?);
    let mut params = CertificateParams::new(vec![role.dns_name().to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, role.dns_name());
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match role {
        Role::Operator => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Role::Launcher => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        Role::Worker => vec![ExtendedKeyUsagePurpose::ServerAuth],
    };
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(TlsMaterial { ca: ca.cert.clone(), certificate, key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use dem_launch::{ClientTls, Identity, ServerTls};

    use super::*;

    /// Whether certificate and key work together, as client and as server.
    fn usable(material: &TlsMaterial) -> bool {
        let identity = || Identity::from_pem(&material.ca, &material.certificate, &material.key).unwrap();
        ClientTls::new(identity()).is_ok() && ServerTls::new(identity(), &[Role::Operator]).is_ok()
    }

    #[test]
    fn certificates_of_every_role_fit_their_keys() {
        let ca = authority("sand/a-job-whose-name-is-longer-than-a-common-name-may-be-in-any-certificate")
            .unwrap();
        for role in Role::ALL {
            assert!(usable(&certificate(&ca, role).unwrap()));
        }
        let (one, other) = (certificate(&ca, Role::Worker).unwrap(), certificate(&ca, Role::Worker).unwrap());
        assert!(!usable(&TlsMaterial { key: other.key, ..one }), "a wrong key was accepted");
    }
}
