//! Serving certificates for loopback.

use std::net::Ipv4Addr;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// A certificate with its CA.
pub struct LoopbackCertificate {
    /// CA certificate for clients, PEM.
    pub authority: String,
    pub certificate: Certificate,
    pub key: KeyPair,
}

impl LoopbackCertificate {
    /// Creates a CA and a certificate.
    pub fn create() -> anyhow::Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate()?;
        let pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()])?.signed_by(&key, &issuer)?;
        Ok(Self { authority: pem, certificate, key })
    }
}
