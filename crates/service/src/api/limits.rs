//! Rate limits per user, and per address for failed authentication.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use moka::future::Cache;

use super::error::{Error, Result};

/// Requests that a user may send at once.
const USER_BURST: NonZeroU32 = NonZeroU32::new(400).unwrap();
/// Requests per second that a user may send continuously.
const USER_RATE: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// Failed authentications per address that are answered at once, and then per minute.
const FAILURE_BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();
const FAILURES_PER_MINUTE: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// How long unknown credentials of an address are not checked after too many failures.
const BLOCK_SECONDS: u32 = 30;
/// Entries per user and minute in the audit log for denials.
const DENIALS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// The number of addresses that are remembered.
const MAX_KEYS: usize = 100_000;

pub struct Limits {
    users: DefaultKeyedRateLimiter<String>,
    failures: DefaultKeyedRateLimiter<IpAddr>,
    denials: DefaultKeyedRateLimiter<String>,
    blocked: Cache<IpAddr, ()>,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

impl Limits {
    pub fn new() -> Self {
        Self {
            users: RateLimiter::keyed(Quota::per_second(USER_RATE).allow_burst(USER_BURST)),
            failures: RateLimiter::keyed(Quota::per_minute(FAILURES_PER_MINUTE).allow_burst(FAILURE_BURST)),
            denials: RateLimiter::keyed(Quota::per_minute(DENIALS_PER_MINUTE)),
            blocked: Cache::builder()
                .max_capacity(u64::try_from(MAX_KEYS).unwrap_or(u64::MAX))
                .time_to_live(Duration::from_secs(BLOCK_SECONDS.into()))
                .build(),
        }
    }

    /// Counts a request of a user.
    pub(super) fn check_user(&self, user: &str) -> Result<()> {
        self.users.check_key(&user.to_owned()).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            Error::rate_limited(u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX))
        })
    }

    /// Reports whether the denial is to be recorded in the audit log.
    pub(super) fn may_record_denial(&self, user: &str) -> bool {
        self.denials.check_key(&user.to_owned()).is_ok()
    }

    /// Rejects addresses with too many failures.
    pub(super) fn check_address(&self, address: Option<IpAddr>) -> Result<()> {
        match address {
            Some(address) if self.blocked.contains_key(&network(address)) => Err(Error::rate_limited(BLOCK_SECONDS)),
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a failed authentication.
    pub(super) async fn count_failure(&self, address: Option<IpAddr>) {
        let Some(address) = address.map(network) else { return };
        if self.failures.len() >= MAX_KEYS {
            self.failures.retain_recent();
        }
        if self.failures.check_key(&address).is_err() {
            self.blocked.insert(address, ()).await;
        }
    }

    /// Forgets users and addresses without recent requests.
    pub fn forget_idle(&self) {
        self.users.retain_recent();
        self.failures.retain_recent();
        self.denials.retain_recent();
    }
}

/// Returns the network that counts as one client: a single IPv4 address, or the /64 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_of_200_passes() {
        let limits = Limits::new();
        (0..200).for_each(|_| limits.check_user("ada").unwrap());
        let passed = (0..1000).filter(|_| limits.check_user("ada").is_ok()).count();
        assert!(passed < 500, "{passed}");
        limits.check_user("bob").unwrap();
    }

    #[tokio::test]
    async fn address_with_many_failures_is_blocked() {
        let limits = Limits::new();
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        for host in 0..30 {
            limits.count_failure(address(&format!("2001:db8::{host}"))).await;
        }
        assert!(limits.check_address(address("2001:db8::ffff")).is_err());
        assert!(limits.check_address(address("2001:db8:0:1::1")).is_ok());
        assert!(limits.check_address(None).is_ok());
    }
}
