//! Certificates, as a stranger shows them.

use odc_agent::serve::access::{Lists, list::List};
use odc_agent::serve::certificate::{Principal, Refused, judge};
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{Certificate, PrivateKey};

use crate::campaign::Campaign;

const UID: &str = "4f6e-1";
const WORDS: &[&str] =
    &["user:4f6e-1", "control:4f6e-1", "user:", "force-command", "source-address", "permit-pty", "ssh-ed25519"];

fn key(seed: u8) -> PrivateKey {
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "").unwrap()
}

/// Users' certificates are signed by 1, the operator's by 2; nobody knows 3.
fn lists() -> Lists {
    let list = |seed| List { keys: vec![key(seed).public_key().key_data().clone()], unusable: vec![] };
    Lists { keys: List::default(), user_cas: list(1), control_cas: list(2) }
}

fn certificate(authority: u8, principal: &str, change: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut builder = Builder::new(vec![7; 16], key(9).public_key().key_data().clone(), 1000, 2000).unwrap();
    builder.valid_principal(principal).unwrap();
    change(&mut builder);
    builder.sign(&key(authority)).unwrap().to_bytes().unwrap()
}

#[test]
fn only_what_was_signed_gets_in_and_not_one_bit_of_it_differs() {
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
    let (lists, known, control) = (lists(), signed.clone(), signed[1].clone());
    Campaign::new("certificate", 4_000).seeds(signed).words(WORDS).run(move |input| {
        let Ok(certificate) = Certificate::from_bytes(input) else { return "no certificate".to_owned() };
        let judged = judge(&certificate, 1500, &lists, UID);
        match judged {
            Ok(principal) => {
                let bytes = certificate.to_bytes().unwrap();
                assert!(known.contains(&bytes), "nobody signed this");
                assert_eq!(principal == Principal::Control, bytes == control);
                format!("{principal:?}")
            }
            Err(Refused::Option(_)) => "option".to_owned(),
            Err(refused) => refused.to_string(),
        }
    });
}
