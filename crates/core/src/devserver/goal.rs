//! What a server should be doing now, by its spec, its time and its sleep.

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{Desired, DevServer, DevServerStatus, HibernationCause, Limits, Phase};

use super::Settings;
use super::lifetime::{self, Stage, stage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Run,
    /// Asleep, or on the way.
    Sleep(HibernationCause),
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Expired,
    Cancelled,
}

/// `sleep` is who wants to put it to sleep just now: nobody uses it, or its node is being emptied.
pub fn goal(
    server: &DevServer,
    sleep: Option<HibernationCause>,
    limits: Option<&Limits>,
    settings: &Settings,
    now: Timestamp,
) -> Goal {
    let none = DevServerStatus::default();
    let status = server.status.as_ref().unwrap_or(&none);
    if status.phase == Some(Phase::Stopping) && is_used_up(status) {
        return Goal::End(End::Expired);
    }
    if server.spec.desired == Desired::Ended {
        return Goal::End(End::Cancelled);
    }
    if status.phase == Some(Phase::Stopping) {
        return Goal::End(End::Cancelled);
    }
    if expires_at(server, limits).is_some_and(|at| stage(at, settings.expiry_grace, now) == Stage::Over) {
        return Goal::End(End::Expired);
    }
    if server.spec.desired == Desired::Hibernated {
        return Goal::Sleep(HibernationCause::User);
    }
    match (&status.hibernation, sleep) {
        // Any other value than the one of that moment wakes it, whenever it was written: no clocks are compared.
        (Some(asleep), _) if asleep.by != HibernationCause::User => {
            if asleep.wake_seen == server.spec.wake {
                Goal::Sleep(asleep.by)
            } else {
                Goal::Run
            }
        }
        (None, Some(cause)) => Goal::Sleep(cause),
        _ => Goal::Run,
    }
}

/// When the time of a running server ends, by what it asks for now: an extension counts from the moment it is written.
fn expires_at(server: &DevServer, limits: Option<&Limits>) -> Option<Timestamp> {
    let status = server.status.as_ref()?;
    let since = status.running_since.as_ref()?;
    let lifetime = lifetime::grant(server.spec.lifetime, limits, status.lifetime);
    Some(lifetime::expires_at(lifetime.granted, status.ran_seconds.unwrap_or(0), since.0))
}

/// The decision that its time is over was written down.
fn is_used_up(status: &DevServerStatus) -> bool {
    let expiring = condition::find(&status.conditions, Type::Expiring);
    expiring.is_some_and(|condition| condition.reason == Reason::LifetimeUsedUp.as_str())
}
