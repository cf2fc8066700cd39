//! Certificates from unauthenticated clients.

use odc_agent::serve::auth::access_list::AuthorizedKeys;
use odc_agent::serve::auth::certificate::{CertificateError, Principal, verify};
use odc_agent::serve::auth::key_list::KeyList;
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{Certificate, PrivateKey};

use crate::runner::Runner;

const UID: &str = "4f6e-1";
const DICTIONARY: &[&str] =
    &["user:4f6e-1", "control:4f6e-1", "user:", "force-command", "source-address", "permit-pty", "ssh-ed25519"];

fn key(seed: u8) -> PrivateKey {
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "").unwrap()
}

/// Key 1 is a user CA, key 2 a control CA, and key 3 unknown.
fn authorized_keys() -> AuthorizedKeys {
    let list = |seed| KeyList { keys: vec![key(seed).public_key().key_data().clone()], invalid: vec![] };
    AuthorizedKeys { user_keys: KeyList::default(), user_cas: list(1), control_cas: list(2) }
}

fn certificate(authority: u8, principal: &str, change: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut builder = Builder::new(vec![7; 16], key(9).public_key().key_data().clone(), 1000, 2000).unwrap();
    builder.valid_principal(principal).unwrap();
    change(&mut builder);
    builder.sign(&key(authority)).unwrap().to_bytes().unwrap()
}

#[test]
fn only_unmodified_signed_certificates_are_accepted() {
    let signed = vec![
        certificate(1, "user:4f6e-1", |_| {}),
        certificate(2, "control:4f6e-1", |_| {}),
        certificate(1, "control:4f6e-1", |_| {}),
        certificate(3, "user:4f6e-1", |_| {}),
        certificate(1, "user:4f6e-1", |builder| {
            builder.cert_type(CertType::Host).unwrap();
        }),
        certificate(1, "user:4f6e-1", |builder| {
            builder.critical_option("force-command", "x").unwrap();
        }),
        certificate(1, "user:4f6e-1", |builder| {
            builder.extension("permit-pty", "").unwrap();
        }),
    ];
    let (keys, known, control) = (authorized_keys(), signed.clone(), signed[1].clone());
    Runner::new("certificate", 4_000).seeds(signed).dictionary(DICTIONARY).run(move |input| {
        let Ok(certificate) = Certificate::from_bytes(input) else { return "no certificate".to_owned() };
        match verify(&certificate, 1500, &keys, UID) {
            Ok(principal) => {
                let bytes = certificate.to_bytes().unwrap();
                assert!(known.contains(&bytes), "it was not signed");
                assert_eq!(principal == Principal::Control, bytes == control);
                format!("{principal:?}")
            }
            Err(CertificateError::CriticalOption(_)) => "critical option".to_owned(),
            Err(error) => error.to_string(),
        }
    });
}
