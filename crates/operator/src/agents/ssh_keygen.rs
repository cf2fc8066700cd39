//! Generates SSH key pairs.

use anyhow::Context as _;
use rand::Rng as _;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};

/// Generates an ed25519 key.
pub fn generate_key(comment: &str) -> anyhow::Result<PrivateKey> {
    let mut seed = [0; 32];
    rand::rng().fill_bytes(&mut seed);
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed)), comment).context("generating an SSH key")
}

/// A key pair in OpenSSH format.
pub struct KeyPair {
    pub private: String,
    pub public: String,
}

impl KeyPair {
    /// Generates an ed25519 key pair. Public keys are compared as text, so only the private key has the comment.
    pub fn generate(comment: &str) -> anyhow::Result<Self> {
        let key = generate_key(comment)?;
        let mut public = key.public_key().clone();
        public.set_comment("");
        let private = key.to_openssh(LineEnding::LF).context("encoding an SSH key")?;
        let private = private.to_string();
        Ok(Self { private, public: public.to_openssh().context("encoding an SSH key")?.trim_end().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_are_unique_openssh_keys() {
        let one = KeyPair::generate("box-keys/host_key").unwrap();
        assert!(one.private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
        assert!(one.public.parse::<odc_api::ssh_key::PublicKey>().is_ok(), "{}", one.public);
        assert_ne!(one.public, KeyPair::generate("box-keys/host_key").unwrap().public);
        let read = PrivateKey::from_openssh(&one.private).unwrap();
        assert!(read.public_key().to_openssh().unwrap().starts_with(&one.public));
    }
}
