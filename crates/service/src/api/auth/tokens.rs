//! Tokens of Kubernetes, checked by the API server with a `TokenReview`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::{Api, PostParams};
use moka::future::Cache;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{rejected, service_account_user};
use crate::api::error::{Error, Result};

/// How long a review is valid, at most until the token expires.
const MAX_AGE: Duration = Duration::from_secs(60);
const MAX_ENTRIES: u64 = 10_000;

pub(super) struct TokenCache {
    kube: kube::Client,
    /// Users by the hash of their token.
    reviewed: Cache<[u8; 32], Reviewed>,
}

#[derive(Clone)]
struct Reviewed {
    user: String,
    expires_at: Option<Timestamp>,
}

impl TokenCache {
    pub fn new(kube: kube::Client) -> Self {
        Self { kube, reviewed: Cache::builder().max_capacity(MAX_ENTRIES).time_to_live(MAX_AGE).build() }
    }

    pub fn is_cached(&self, token: &str) -> bool {
        self.reviewed.contains_key(&hash(token))
    }

    /// Returns the user of a token. Concurrent calls share one review; rejections are not cached.
    pub async fn find_user(&self, token: &str) -> Result<String> {
        let expires_at = expiry(token);
        if expires_at.is_some_and(|at| at <= Timestamp::now()) {
            return Err(rejected());
        }
        let reviewed = self.reviewed.try_get_with(hash(token), self.review(token, expires_at)).await;
        let reviewed = reviewed.map_err(|failure| match *failure {
            Failure::Rejected => rejected(),
            Failure::Unavailable => Error::unavailable("the Kubernetes API is unavailable; repeat the request later"),
        })?;
        if reviewed.expires_at.is_some_and(|at| at <= Timestamp::now()) {
            return Err(rejected());
        }
        Ok(reviewed.user)
    }

    async fn review(&self, token: &str, expires_at: Option<Timestamp>) -> Result<Reviewed, Failure> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = Api::<TokenReview>::all(self.kube.clone()).create(&PostParams::default(), &review).await;
        let review = review.map_err(|error| {
            tracing::warn!(%error, "failed to review a token");
            Failure::Unavailable
        })?;
        let status = review.status.filter(|status| status.authenticated == Some(true)).ok_or(Failure::Rejected)?;
        let username = status.user.and_then(|user| user.username).ok_or(Failure::Rejected)?;
        let user = service_account_user(&username).ok_or(Failure::Rejected)?;
        Ok(Reviewed { user: user.into(), expires_at })
    }
}

enum Failure {
    Rejected,
    Unavailable,
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Returns the time at which a JWT expires. It is not verified: an accepted token has this expiry, and another one is
/// rejected anyway.
fn expiry(token: &str) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    Timestamp::from_second(claims.exp).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_read_from_the_claims() {
        let token = format!("h.{}.s", URL_SAFE_NO_PAD.encode(r#"{"exp": 1700000000}"#));
        assert_eq!(expiry(&token), Timestamp::from_second(1_700_000_000).ok());
        assert_eq!(expiry("opaque"), None);
        assert_eq!(expiry("a.b.c"), None);
    }
}
