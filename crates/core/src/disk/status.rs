//! Phase and conditions of a disk.

use odc_api::label;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{DiskPhase, DiskStatus};

use super::claim::{self, ClaimState};
use super::size::Expansion;
use super::{State, deletion, listing, size};
use crate::cluster::ClaimPhase;
use crate::devserver::active_admission;
use crate::manifest::Kind;

struct Report {
    status: Status,
    reason: Reason,
    message: String,
}

impl Report {
    fn new(is_true: bool, reason: Reason, message: impl Into<String>) -> Self {
        Self { status: if is_true { Status::True } else { Status::False }, reason, message: message.into() }
    }
}

/// Adds what is derived from the observed objects to a status.
pub(super) fn complete(state: &State<'_>, mut status: DiskStatus, point_failure: Option<String>) -> DiskStatus {
    let ready = ready(state);
    let in_use = in_use(state, &status);
    status.phase = Some(phase(state, &status, &ready));
    status.observed_generation = state.disk.metadata.generation;
    let volume = state.current_claim().and_then(|claim| claim::volume(state, claim));
    if let Some(volume) = volume {
        status.location = volume.affinity.describe().map(|location| location.as_str().into());
    }
    if let Some(points) = &state.points {
        status.points = points.describe();
        let (used, used_at) = listing::usage(state, points).unzip();
        (status.used, status.used_at) = (used, used_at.flatten());
    }
    let reports =
        [(Type::Ready, ready), (Type::InUse, in_use), (Type::PointsAvailable, points_available(state, point_failure))];
    let resized = resized(state).map(|report| (Type::Resized, report));
    for (kind, report) in reports.into_iter().chain(resized) {
        let Report { status: is_true, reason, message } = report;
        let now = to_api_precision(state.now);
        let generation = state.disk.metadata.generation;
        condition::set(&mut status.conditions, condition::new(kind, is_true, reason, &message, generation, now));
    }
    status
}

fn ready(state: &State<'_>) -> Report {
    let unready = |reason, message: String| Report::new(false, reason, message);
    if state.disk.metadata.deletion_timestamp.is_some() {
        let waits = match (state.writers().next(), deletion::source_of_unprovisioned_disk(state)) {
            (Some(pod), _) => format!(" Waiting for pod {} to be deleted.", pod.name),
            (None, Some(point)) => {
                format!(" Waiting until the disk or claim that is created from restore point {point} has its volume.")
            }
            (None, None) => deletion::unfinished_point(state).map_or_else(String::new, |(point, _)| {
                format!(" Waiting until restore point {} is taken.", point.name)
            }),
        };
        return unready(Reason::Deleting, format!("The disk is being deleted.{waits}"));
    }
    if state.observed.owner.is_none() {
        let message =
            format!("Namespace {} does not belong to a user. Create the disk in dev-<user>.", state.namespace);
        return unready(Reason::NoOwner, message);
    }
    if state.disk.spec.deleted {
        let message = "The disk is marked as deleted. Set spec.deleted to false to get it back.";
        return unready(Reason::Deleted, message.into());
    }
    match &state.claim {
        ClaimState::NotCreated => match claim::resolve_source(state) {
            Ok(_) => match state.write_error(Kind::PersistentVolumeClaim) {
                Some(error) => unready(Reason::Provisioning, error.to_owned()),
                None => Report::new(true, Reason::NotProvisioned, "The claim is created when a server uses the disk."),
            },
            Err((reason, message)) => unready(reason, message),
        },
        ClaimState::Missing(name) => unready(
            Reason::DiskUnavailable,
            format!(
                "Claim {name} was deleted. Roll back to a restore point, or recover its volume, which is retained."
            ),
        ),
        ClaimState::Ambiguous(names) => unready(
            Reason::ClaimAmbiguous,
            format!(
                "Several claims belong to the disk: {}. Ask an administrator to set status.claim to one of them.",
                names.join(", ")
            ),
        ),
        ClaimState::Foreign(name) => unready(
            Reason::NameConflict,
            format!(
                "Claim {name} exists and does not belong to this disk. If it has the data of the disk, ask an \
                 administrator to set its label {} to {}; else create another disk.",
                label::DISK_UID,
                state.uid
            ),
        ),
        ClaimState::Found(claim) if claim.is_deleting => unready(
            Reason::DiskUnavailable,
            format!(
                "Claim {} is being deleted. Roll back to a restore point, or recover its volume, which is retained.",
                claim.name
            ),
        ),
        ClaimState::Found(claim) => match claim.phase {
            ClaimPhase::Lost => unready(
                Reason::DiskUnavailable,
                format!("The volume of claim {} is lost. Roll back to a restore point.", claim.name),
            ),
            ClaimPhase::Bound if claim::volume(state, claim).is_some_and(|volume| volume.is_retained) => {
                Report::new(true, Reason::Bound, "The disk is available.")
            }
            ClaimPhase::Bound => {
                unready(Reason::Provisioning, "Waiting until the volume is protected from deletion.".into())
            }
            ClaimPhase::Pending => match (claim::storage_class(state, claim.class.as_deref()), &claim.class) {
                (Some(class), _) if class.waits_for_consumer => {
                    let message = "The claim is bound when the server is scheduled.";
                    Report::new(true, Reason::WaitingForFirstConsumer, message)
                }
                (Some(_), _) => {
                    let message = format!("Waiting for claim {} to be bound to a volume.", claim.name);
                    unready(Reason::Provisioning, message)
                }
                (None, Some(class)) => {
                    let message = format!("StorageClass {class} not found. Ask an administrator to create it.");
                    unready(Reason::Provisioning, message)
                }
                (None, None) => {
                    let message = "The cluster has no default StorageClass. Ask an administrator to set one, or \
                                       create a disk with spec.storageClass.";
                    unready(Reason::Provisioning, message.into())
                }
            },
        },
    }
}

fn in_use(state: &State<'_>, status: &DiskStatus) -> Report {
    let Some(holder) = &status.holder else {
        return match state.writers().next() {
            Some(pod) if pod.operation.is_some() => Report::new(
                true,
                Reason::OperationRunning,
                format!("Pod {} of an operation writes to the disk.", pod.name),
            ),
            Some(pod) => Report::new(
                true,
                Reason::HolderStuck,
                format!("Pod {} mounts the disk, but no server holds it.", pod.name),
            ),
            None => Report::new(false, Reason::Released, "No server uses the disk."),
        };
    };
    let server = &holder.server;
    if holder.releasing_since.is_some() {
        return Report::new(
            true,
            Reason::Releasing,
            format!("Server {server} has stopped; its restore point is taken."),
        );
    }
    let holding = state.observed.servers.iter().find(|server| server.metadata.uid.as_ref() == Some(&holder.uid));
    let is_admitted = holding.is_some_and(|server| active_admission(server.status.as_ref()).is_some());
    let has_ended = holding.is_none_or(|server| {
        let phase = server.status.as_ref().and_then(|status| status.phase);
        phase.is_some_and(odc_api::v1alpha1::Phase::is_terminal)
    });
    match state.writers().next() {
        Some(pod) if has_ended && !is_admitted => {
            let message = format!(
                "Server {server} has ended, but its pod {} still exists. If its node is gone for good, create a \
                 DiskOperation with action Unlock.",
                pod.name
            );
            Report::new(true, Reason::HolderStuck, message)
        }
        _ => Report::new(true, Reason::Held, format!("Server {server} uses the disk.")),
    }
}

/// A failure is reported until a later point is verified.
fn points_available(state: &State<'_>, failure: Option<String>) -> Report {
    let Some(points) = &state.points else {
        let message =
            "The cluster has no VolumeSnapshot API. Ask an administrator to install a CSI driver with snapshots.";
        return Report::new(false, Reason::SnapshotsUnsupported, message);
    };
    let refused = state.write_error(Kind::VolumeSnapshot);
    let last_failure = || {
        let stored = condition::find(&state.stored.conditions, Type::PointsAvailable)?;
        let newest = points.own.iter().find(|snapshot| points.is_verified(snapshot)).and_then(|newest| newest.taken_at);
        let is_newer = newest.is_none_or(|newest| newest < stored.last_transition_time.0);
        (stored.reason == Reason::SnapshotFailed && is_newer).then(|| stored.message.to_string())
    };
    match points.own.first() {
        _ if failure.is_some() || refused.is_some() => {
            let message = failure.or_else(|| refused.map(str::to_owned)).unwrap_or_default();
            Report::new(false, Reason::SnapshotFailed, message)
        }
        Some(newest) if newest.error.is_some() && !points.is_verified(newest) => {
            let error = newest.error.as_deref().unwrap_or_default();
            Report::new(false, Reason::SnapshotFailed, format!("Restore point {} failed: {error}", newest.name))
        }
        _ => match last_failure() {
            Some(message) => Report::new(false, Reason::SnapshotFailed, message),
            None => Report::new(true, Reason::Available, "Restore points can be taken."),
        },
    }
}

fn resized(state: &State<'_>) -> Option<Report> {
    let size = state.disk.spec.size;
    let (_, expansion) = size::expansion(state)?;
    Some(match expansion {
        Expansion::Done => Report::new(true, Reason::Resized, format!("The volume has {size}.")),
        Expansion::Needed | Expansion::Waiting => Report::new(
            false,
            Reason::Resizing,
            match state.write_error(Kind::PersistentVolumeClaim) {
                Some(error) => error.to_owned(),
                None => format!(
                    "Waiting until the volume has {size}. Some drivers expand it only while a server uses the disk."
                ),
            },
        ),
        Expansion::Impossible(reason, message) => Report::new(false, reason, message),
    })
}

fn phase(state: &State<'_>, status: &DiskStatus, ready: &Report) -> DiskPhase {
    if state.disk.metadata.deletion_timestamp.is_some() {
        return DiskPhase::Deleting;
    }
    match &status.holder {
        Some(holder) if holder.releasing_since.is_some() => DiskPhase::Releasing,
        Some(_) if ready.status == Status::True && state.current_claim().is_some() => DiskPhase::InUse,
        _ if state.disk.spec.deleted => DiskPhase::Deleted,
        _ => match (&state.claim, ready.reason) {
            (_, Reason::Provisioning | Reason::WaitingForFirstConsumer) => DiskPhase::Provisioning,
            (ClaimState::NotCreated, Reason::NotProvisioned | Reason::SourceUnavailable | Reason::QuotaExceeded) => {
                DiskPhase::Pending
            }
            (_, Reason::Bound) => DiskPhase::Available,
            _ => DiskPhase::Failed,
        },
    }
}
