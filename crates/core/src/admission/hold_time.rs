//! The maximum time for which a server holds its nodes. Reservations are computed from it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{DevServer, Limits};

use crate::cluster::TERMINATION_GRACE_PERIOD;
use crate::devserver::{Settings, lifetime};
use crate::time;

/// Returns for how long a server holds its nodes if it starts now. The lifetime counts from the first readiness, so start
/// and stop are added.
pub fn max_hold_time(server: &DevServer, limits: Option<&Limits>, settings: &Settings) -> Duration {
    let status = server.status.as_ref();
    let lifetime = lifetime::grant(server.spec.lifetime, limits, status.and_then(|status| status.lifetime)).granted;
    let elapsed = status.and_then(|status| status.accumulated_run_seconds).unwrap_or_default();
    let elapsed = Duration::from_secs(u64::try_from(elapsed).unwrap_or_default());
    let remaining = lifetime.as_std().saturating_sub(elapsed);
    let with_start = settings.start_timeout.saturating_add(remaining);
    with_start.saturating_add(settings.expiry_grace).saturating_add(TERMINATION_GRACE_PERIOD)
}

/// Returns when the nodes of an admitted server are free at the latest.
pub fn release_time(server: &DevServer, limits: Option<&Limits>, settings: &Settings) -> Option<Timestamp> {
    let status = server.status.as_ref()?;
    if let (Some(expires), Some(_)) = (&status.expires_at, &status.running_since) {
        return Some(time::add(expires.0, settings.expiry_grace.saturating_add(TERMINATION_GRACE_PERIOD)));
    }
    let admitted_at = status.admission.as_ref()?.admitted_at.as_ref()?.0;
    Some(time::add(admitted_at, max_hold_time(server, limits, settings)))
}

#[cfg(test)]
mod tests {
    use odc_api::time::to_api_precision;
    use odc_api::v1alpha1::Admission;

    use super::*;
    use crate::admission::fixtures::time;
    use crate::devserver::fixtures::settings;

    fn start_and_stop() -> Duration {
        let settings = settings();
        settings.start_timeout + settings.expiry_grace + TERMINATION_GRACE_PERIOD
    }

    #[test]
    fn hold_time_is_remaining_lifetime_with_start_and_stop() {
        let mut server = DevServer::test();
        let lifetime = server.spec.lifetime.as_std();
        assert_eq!(max_hold_time(&server, None, &settings()), lifetime + start_and_stop());
        server.status.get_or_insert_default().accumulated_run_seconds = Some(600);
        let remaining = max_hold_time(&server, None, &settings());
        assert_eq!(remaining + Duration::from_secs(600), lifetime + start_and_stop());
    }

    #[test]
    fn release_time_counts_from_expiry_or_from_admission_before_start() {
        let mut server = DevServer::test();
        let lifetime = server.spec.lifetime.as_std();
        assert_eq!(release_time(&server, None, &settings()), None);
        let status = server.status.get_or_insert_default();
        status.admission = Some(Admission { admitted_at: Some(to_api_precision(time(60))), ..Admission::default() });
        assert_eq!(release_time(&server, None, &settings()), Some(time(60) + lifetime + start_and_stop()));
        let status = server.status.get_or_insert_default();
        (status.running_since, status.expires_at) =
            (Some(to_api_precision(time(70))), Some(to_api_precision(time(1_000))));
        let expected = time(1_000) + settings().expiry_grace + TERMINATION_GRACE_PERIOD;
        assert_eq!(release_time(&server, None, &settings()), Some(expected));
    }
}
