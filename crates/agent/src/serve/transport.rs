//! The algorithms and limits of every connection.

use std::borrow::Cow;
use std::time::Duration;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey};
use russh::server::Config;
use russh::{Limits, MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex, mac};

use crate::serve::flow;

/// The post-quantum one first. No Diffie-Hellman over plain groups: it is slow, and nobody who needs it is missed.
const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];

const CIPHERS: &[cipher::Name] =
    &[cipher::CHACHA20_POLY1305, cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::AES_256_CTR, cipher::AES_128_CTR];

/// For the last two ciphers; the others bring their own.
const MACS: &[mac::Name] = &[mac::HMAC_SHA512_ETM, mac::HMAC_SHA256_ETM];

/// What people's keys may sign with. Of the host, there is only the first.
const SIGNATURES: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::SkEd25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::SkEcdsaSha2NistP256,
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// A client that was asked so often and answered nothing is gone. Quiet is not gone: a living one answers.
const UNANSWERED: usize = 40;

const REKEY_TIME: Duration = Duration::from_secs(3600);

/// Clients offer one key after the other.
const AUTH_ATTEMPTS: usize = 20;

/// New keys are agreed on after so many bytes in one direction, or an hour.
/// A client that says nothing is asked whether it is there each time `keepalive` has passed.
pub fn config(host_key: PrivateKey, keepalive: Duration, rekey_after: usize) -> Config {
    Config {
        server_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-ODC_", env!("CARGO_PKG_VERSION")))),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        // A wrong key tells an attacker nothing that time could tell more of, and people have many.
        auth_rejection_time: Duration::ZERO,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key],
        limits: Limits::new(rekey_after, rekey_after, REKEY_TIME),
        window_size: flow::FIRST_WINDOW,
        maximum_packet_size: 65_535,
        event_buffer_size: 64,
        preferred: Preferred {
            kex: Cow::Borrowed(KEX),
            key: Cow::Borrowed(SIGNATURES),
            cipher: Cow::Borrowed(CIPHERS),
            mac: Cow::Borrowed(MACS),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        },
        max_auth_attempts: AUTH_ATTEMPTS,
        inactivity_timeout: None,
        keepalive_interval: Some(keepalive),
        keepalive_max: UNANSWERED,
        ..Config::default()
    }
}
