//! Identifies callers by API keys and by tokens of Kubernetes.

mod keys;
mod last_used;
mod tokens;

use std::sync::Arc;

use jiff::Timestamp;
use odc_api::api_key::{ApiKey, BASE36, BASE62, ID_LENGTH, SECRET_LENGTH};
use odc_api::name::UserName;
use odc_api::v1alpha1::DevServerUser;
use odc_core::access::{Caller, Scope, Scopes, Via};
use odc_store::Store;
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::cluster::Watched;
use super::error::{Error, Result};
use keys::KeyCache;
use last_used::LastUsed;
use tokens::TokenCache;

/// The longest credential that is looked at. Tokens of Kubernetes have about 1 KiB.
const MAX_CREDENTIAL_BYTES: usize = 8 << 10;

pub struct Authenticator {
    keys: Arc<KeyCache>,
    tokens: TokenCache,
    last_used: Arc<LastUsed>,
}

impl Authenticator {
    pub fn new(store: Store, kube: kube::Client) -> Self {
        Self {
            last_used: Arc::new(LastUsed::new(store.clone())),
            keys: Arc::new(KeyCache::new(store)),
            tokens: TokenCache::new(kube),
        }
    }

    /// Invalidates changed keys and records uses of keys. Does not return.
    pub async fn run(&self) {
        tokio::join!(self.keys.follow_changes(), self.last_used.run());
    }

    /// Reports whether changes of keys are received.
    pub fn is_listening(&self) -> bool {
        self.keys.is_listening()
    }

    /// Returns the caller of a credential. All failures have the same text, so that they reveal nothing about a key.
    pub(super) async fn authenticate(&self, credential: &str, users: &Watched<DevServerUser>) -> Result<Caller> {
        if credential.len() > MAX_CREDENTIAL_BYTES {
            return Err(rejected());
        }
        let (user, scopes, via) = if credential.starts_with("odc_") {
            self.authenticate_key(credential).await?
        } else {
            (self.tokens.find_user(credential).await?, Scopes::all(), Via::Kubernetes)
        };
        let role = users.get("", &user).ok_or_else(rejected)?.spec.role;
        Ok(Caller { user, role, scopes, via })
    }

    /// Reports whether a credential was accepted recently, so that it can be checked without I/O.
    pub(super) fn is_known(&self, credential: &str) -> bool {
        match credential.parse::<ApiKey>() {
            Ok(key) => self.keys.is_cached(key.id()),
            Err(_) => self.tokens.is_cached(credential),
        }
    }

    async fn authenticate_key(&self, credential: &str) -> Result<(String, Scopes, Via)> {
        let key: ApiKey = credential.parse().map_err(|error| Error::unauthenticated(format!("{error}")))?;
        let stored = self.keys.find(key.id()).await?.ok_or_else(rejected)?;
        let is_same: bool = stored.hash.ct_eq(&hash_key(&key)).into();
        if !is_same || stored.expires_at <= Timestamp::now() {
            return Err(rejected());
        }
        self.last_used.record(key.id());
        let scopes = stored.scopes.iter().filter_map(|name| Scope::from_name(name)).collect();
        Ok((stored.user.clone(), scopes, Via::ApiKey { id: key.id().to_owned() }))
    }
}

/// Returns the error for every credential that is well-formed and not accepted.
fn rejected() -> Error {
    Error::unauthenticated("the credential is invalid, expired or revoked")
}

/// Returns the hash by which a key is stored. The secret has 256 bits, so a slow hash would add nothing.
pub fn hash_key(key: &ApiKey) -> [u8; 32] {
    Sha256::digest(key.as_str()).into()
}

/// Returns a new random key.
pub fn generate_key() -> ApiKey {
    let mut random = rand::rng();
    loop {
        let mut text = |alphabet: &[u8], length: usize| -> String {
            (0..length).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])).collect()
        };
        let (id, secret) = (text(BASE36, ID_LENGTH), text(BASE62, SECRET_LENGTH));
        if let Ok(key) = ApiKey::new(&id, &secret) {
            return key;
        }
    }
}

/// Parses the user of a service account such as `system:serviceaccount:dev-ada:odc-user`.
fn service_account_user(username: &str) -> Option<UserName> {
    let account = username.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    if name == SERVICE_ACCOUNT { odc_api::namespace::owner(namespace) } else { None }
}

/// The service account that the operator creates in each user namespace.
const SERVICE_ACCOUNT: &str = "odc-user";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_are_valid_and_differ() {
        let (one, other) = (generate_key(), generate_key());
        assert_eq!(one.as_str().parse(), Ok(one.clone()));
        assert_ne!(one, other);
        assert_ne!(hash_key(&one), hash_key(&other));
    }

    #[test]
    fn only_the_service_account_of_a_user_is_that_user() {
        let user = |name: &str| service_account_user(name).map(String::from);
        assert_eq!(user("system:serviceaccount:dev-ada:odc-user").as_deref(), Some("ada"));
        for other in [
            "system:serviceaccount:dev-ada:default",
            "system:serviceaccount:odc-system:odc-user",
            "system:serviceaccount:dev-:odc-user",
            "dev-ada:odc-user",
            "kubernetes-admin",
        ] {
            assert_eq!(user(other), None, "{other}");
        }
    }
}
