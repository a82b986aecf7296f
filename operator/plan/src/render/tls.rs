//! Secrets with certificates. They are made elsewhere: this crate has no randomness.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::metadata;
use crate::names::{self, Role};
use crate::validate::ValidatedJob;

/// PEM texts of one role.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsMaterial {
    /// Certificate of the job's CA.
    pub ca: String,
    /// Certificate of the role.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Keys do not get into logs.
impl std::fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsMaterial { .. }")
    }
}

fn secret(job: &ValidatedJob, name: String, entries: Vec<(&str, &str)>) -> Secret {
    Secret {
        metadata: metadata(job, name, names::labels(&job.name)),
        // Certificates of a job never change, and the kubelet need not watch an immutable Secret.
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        data: Some(
            entries
                .into_iter()
                .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())))
                .collect(),
        ),
        ..Secret::default()
    }
}

/// The Secret that pods of a role mount.
pub fn tls_secret(job: &ValidatedJob, role: Role, material: &TlsMaterial) -> Secret {
    let entries = vec![
        ("ca.crt", material.ca.as_str()),
        ("tls.crt", &material.certificate),
        ("tls.key", &material.key),
    ];
    secret(job, names::tls_secret(&job.name, role), entries)
}

/// The Secret with the CA's key and the operator's own certificate. No pod mounts it.
pub fn ca_secret(job: &ValidatedJob, ca_key: &str, operator: &TlsMaterial) -> Secret {
    let entries = vec![
        ("ca.crt", operator.ca.as_str()),
        ("ca.key", ca_key),
        ("tls.crt", &operator.certificate),
        ("tls.key", &operator.key),
    ];
    secret(job, names::ca_secret(&job.name), entries)
}
