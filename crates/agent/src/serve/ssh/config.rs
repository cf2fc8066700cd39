//! Algorithms and limits of all connections.

use std::borrow::Cow;
use std::time::Duration;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey};
use russh::server::Config;
use russh::{Limits, MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex, mac};

use crate::serve::ssh::flow_control;

/// Post-quantum first. Finite-field Diffie-Hellman is left out: it is slow, and current clients do not need it.
const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];

const CIPHERS: &[cipher::Name] =
    &[cipher::CHACHA20_POLY1305, cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::AES_256_CTR, cipher::AES_128_CTR];

/// For the CTR ciphers; the others are AEAD.
const MACS: &[mac::Name] = &[mac::HMAC_SHA512_ETM, mac::HMAC_SHA256_ETM];

/// Accepted for user keys. The host key is always Ed25519.
const SIGNATURE_ALGORITHMS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::SkEd25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::SkEcdsaSha2NistP256,
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// The connection is closed after so many unanswered keepalive messages, as `ClientAliveCountMax` in `sshd_config(5)`.
const MAX_UNANSWERED_KEEPALIVES: usize = 40;

const REKEY_INTERVAL: Duration = Duration::from_secs(3600);

/// Clients offer one key after the other, and each offer counts.
const MAX_AUTH_ATTEMPTS: usize = 20;

/// Keys are renegotiated after `rekey_after` bytes in one direction or an hour. `keepalive` is the interval of
/// keepalive messages to a silent client.
pub fn server_config(host_key: PrivateKey, keepalive: Duration, rekey_after: usize) -> Config {
    Config {
        server_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-ODC_", env!("CARGO_PKG_VERSION")))),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        // No artificial delay on rejected keys: clients try several keys, and rejection reveals no secret.
        auth_rejection_time: Duration::ZERO,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key],
        limits: Limits::new(rekey_after, rekey_after, REKEY_INTERVAL),
        window_size: flow_control::INITIAL_WINDOW,
        maximum_packet_size: 65_535,
        event_buffer_size: 64,
        preferred: Preferred {
            kex: Cow::Borrowed(KEX),
            key: Cow::Borrowed(SIGNATURE_ALGORITHMS),
            cipher: Cow::Borrowed(CIPHERS),
            mac: Cow::Borrowed(MACS),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        },
        max_auth_attempts: MAX_AUTH_ATTEMPTS,
        inactivity_timeout: None,
        keepalive_interval: Some(keepalive),
        keepalive_max: MAX_UNANSWERED_KEEPALIVES,
        ..Config::default()
    }
}
