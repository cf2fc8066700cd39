//! Verifies user certificates. No I/O: the keys, the time and the UID of the server are arguments.
//!
//! russh has verified signature and validity before. Both are verified here again, so that the decision does not depend
//! on the library.

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate};

use crate::serve::auth::access_list::AuthorizedKeys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A user, with all SSH features.
    User,
    /// The operator, with only the subsystem `odc-control`.
    Control,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("not a user certificate")]
    Type,
    #[error("unknown CA")]
    UnknownCa,
    #[error("invalid signature, or a signature with SHA-1")]
    Signature,
    #[error("not valid yet")]
    NotYetValid,
    #[error("expired")]
    Expired,
    #[error("no principal for this server that the CA may sign")]
    Principal,
    #[error("unsupported critical option {0:?}")]
    CriticalOption(String),
}

impl Principal {
    /// Returns the name that a certificate must contain. A certificate without principals would be valid for every
    /// server and is rejected.
    fn name(self, uid: &str) -> String {
        match self {
            Self::User => format!("user:{uid}"),
            Self::Control => format!("control:{uid}"),
        }
    }
}

/// `now` is the Unix time in seconds. Clock skew is left to the CA, which backdates certificates.
pub fn verify(
    certificate: &Certificate,
    now: u64,
    keys: &AuthorizedKeys,
    uid: &str,
) -> Result<Principal, CertificateError> {
    if certificate.cert_type() != CertType::User {
        return Err(CertificateError::Type);
    }
    let authority = certificate.signature_key();
    let candidates: Vec<Principal> = [(Principal::User, &keys.user_cas), (Principal::Control, &keys.control_cas)]
        .into_iter()
        .filter_map(|(principal, list)| list.contains(authority).then_some(principal))
        .collect();
    if candidates.is_empty() {
        return Err(CertificateError::UnknownCa);
    }
    if certificate.signature().algorithm() == (Algorithm::Rsa { hash: None }) || certificate.verify_signature().is_err()
    {
        return Err(CertificateError::Signature);
    }
    if now < certificate.valid_after() {
        return Err(CertificateError::NotYetValid);
    }
    if now >= certificate.valid_before() {
        return Err(CertificateError::Expired);
    }
    // None is supported: the source address is that of a gateway, and a user who may log in may run any command.
    if let Some((name, _)) = certificate.critical_options().iter().next() {
        return Err(CertificateError::CriticalOption(name.clone()));
    }
    let is_named = |principal: &Principal| certificate.valid_principals().contains(&principal.name(uid));
    candidates.into_iter().find(is_named).ok_or(CertificateError::Principal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::auth::key_list::KeyList;
    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::certificate::Builder;
    use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};

    const UID: &str = "4f6e-1";
    const FROM: u64 = 1000;
    const UNTIL: u64 = 2000;

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "").unwrap()
    }

    fn authorized_keys(user: &[u8], control: &[u8]) -> AuthorizedKeys {
        let list = |seeds: &[u8]| KeyList {
            keys: seeds.iter().map(|seed| key(*seed).public_key().key_data().clone()).collect(),
            invalid: Vec::new(),
        };
        AuthorizedKeys { user_keys: KeyList::default(), user_cas: list(user), control_cas: list(control) }
    }

    fn certificate(authority: u8, principals: &[&str], change: impl FnOnce(&mut Builder)) -> Certificate {
        let subject = key(99).public_key().key_data().clone();
        let mut builder = Builder::new(vec![7; 16], subject, FROM, UNTIL).unwrap();
        for principal in principals {
            builder.valid_principal(*principal).unwrap();
        }
        change(&mut builder);
        builder.sign(&key(authority)).unwrap()
    }

    const USER_CA: u8 = 1;
    const CONTROL_CA: u8 = 2;
    const UNKNOWN_CA: u8 = 3;

    fn check(certificate: &Certificate, now: u64, expect: &Result<Principal, CertificateError>) {
        assert_eq!(verify(certificate, now, &authorized_keys(&[USER_CA], &[CONTROL_CA]), UID), *expect);
    }

    #[test]
    fn each_ca_signs_only_for_its_own_principal() {
        let (user, control) = (format!("user:{UID}"), format!("control:{UID}"));
        for (authority, principals, expect) in [
            (USER_CA, vec![user.as_str()], Ok(Principal::User)),
            (CONTROL_CA, vec![control.as_str()], Ok(Principal::Control)),
            (USER_CA, vec!["ada", "user:other", &user], Ok(Principal::User)),
            (USER_CA, vec![control.as_str()], Err(CertificateError::Principal)),
            (CONTROL_CA, vec![user.as_str()], Err(CertificateError::Principal)),
            (USER_CA, vec!["user:other"], Err(CertificateError::Principal)),
            (USER_CA, vec!["user:"], Err(CertificateError::Principal)),
            (USER_CA, vec![UID], Err(CertificateError::Principal)),
            (UNKNOWN_CA, vec![user.as_str(), control.as_str()], Err(CertificateError::UnknownCa)),
        ] {
            check(&certificate(authority, &principals, |_| ()), FROM, &expect);
        }
    }

    #[test]
    fn certificate_without_principals_is_rejected() {
        let without_principals = certificate(USER_CA, &[], |builder| drop(builder.all_principals_valid()));
        check(&without_principals, FROM, &Err(CertificateError::Principal));
    }

    #[test]
    fn validity_is_exact_to_the_second() {
        let certificate = certificate(USER_CA, &["user:4f6e-1"], |_| ());
        check(&certificate, FROM - 1, &Err(CertificateError::NotYetValid));
        check(&certificate, FROM, &Ok(Principal::User));
        check(&certificate, UNTIL - 1, &Ok(Principal::User));
        check(&certificate, UNTIL, &Err(CertificateError::Expired));
    }

    #[test]
    fn every_critical_option_is_rejected() {
        for name in ["force-command", "source-address", "verify-required", "new@example.com"] {
            let critical = certificate(USER_CA, &["user:4f6e-1"], |builder| {
                builder.critical_option(name, "x").unwrap();
            });
            check(&critical, FROM, &Err(CertificateError::CriticalOption(name.to_owned())));
        }
        let extension = certificate(USER_CA, &["user:4f6e-1"], |builder| {
            builder.extension("permit-pty", "").unwrap();
        });
        check(&extension, FROM, &Ok(Principal::User));
    }

    #[test]
    fn host_certificate_is_rejected() {
        let host = certificate(USER_CA, &["user:4f6e-1"], |builder| {
            builder.cert_type(CertType::Host).unwrap();
        });
        check(&host, FROM, &Err(CertificateError::Type));
    }

    #[test]
    fn forged_certificate_is_rejected() {
        let genuine = certificate(USER_CA, &["user:other1"], |_| ());
        let bytes = genuine.to_bytes().unwrap();
        let offset = bytes.windows(11).position(|part| part == b"user:other1").unwrap();
        let mut forged = bytes.clone();
        forged[offset..offset + 11].copy_from_slice(b"user:4f6e-1");
        check(&Certificate::from_bytes(&forged).unwrap(), FROM, &Err(CertificateError::Signature));
    }

    #[test]
    fn ca_in_both_lists_signs_for_both_principals() {
        let both = authorized_keys(&[USER_CA], &[USER_CA]);
        for (name, expect) in [("user:4f6e-1", Principal::User), ("control:4f6e-1", Principal::Control)] {
            assert_eq!(verify(&certificate(USER_CA, &[name], |_| ()), FROM, &both, UID), Ok(expect));
        }
    }
}
