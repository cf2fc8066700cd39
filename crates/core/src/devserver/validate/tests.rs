//! Violations, and the resolution of references and defaults.

use odc_api::fixtures::time;
use odc_api::v1alpha1::{Defaults, Device, DiskHolder, DiskStatus, Image, Maintenance};

use super::super::fixtures::{ClaimState, Request, volume};
use super::*;

/// `expect` has the reason and a part of the message of each violation, in order.
#[track_caller]
fn check(given: &Request, expect: &[(Reason, &str)]) {
    given.check(|checked| {
        let violations = checked.as_ref().err().cloned().unwrap_or_default();
        let reasons: Vec<Reason> = violations.iter().map(|violation| violation.reason).collect();
        assert_eq!(reasons, expect.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), "{violations:?}");
        for (violation, (_, words)) in violations.iter().zip(expect) {
            assert!(violation.message.contains(words), "{:?} does not contain {words:?}", violation.message);
            assert!(violation.message.ends_with('.'), "{:?} does not end with a full stop", violation.message);
        }
    });
}

fn flavor(name: &str) -> FlavorName {
    name.parse().unwrap()
}

/// A request without a flavor in a cluster with these default flavors.
fn defaults(gpu: bool, cpu: bool) -> Request {
    let (mut one, mut two) = (DevServerFlavor::test(), DevServerFlavor::test_cpu());
    (one.spec.default, two.spec.default) = (gpu, cpu);
    Request::test(|server| server.spec.flavor = None).with_flavor(one).with_flavor(two)
}

#[test]
fn minimal_request_is_valid() {
    check(&Request::new(DevServer::test()), &[]);
    Request::new(DevServer::test()).valid(|valid| {
        assert_eq!((valid.name.as_str(), valid.owner.as_str()), ("server-1", "ada"));
        assert_eq!((valid.flavor_name.as_str(), valid.count, valid.nodes), ("flavor-gpu", 1, 1));
        assert_eq!((valid.image, valid.disk.ready), ("registry.example.org/base:1", true));
    });
}

#[test]
fn missing_flavor_is_reported_with_available_ones() {
    let available = "Available flavors: flavor-cpu, flavor-gpu";
    check(&Request::test(|server| server.spec.flavor = Some(flavor("other"))), &[(Reason::FlavorNotFound, available)]);
    let mut empty = Request::test(|server| server.spec.flavor = Some(flavor("other")));
    empty.flavors.clear();
    check(&empty, &[(Reason::FlavorNotFound, "No flavors exist")]);
}

#[test]
fn request_without_flavor_requires_one_default() {
    check(&defaults(false, false), &[(Reason::NoDefaultFlavor, "Set spec.flavor")]);
    check(&defaults(true, true), &[(Reason::MultipleDefaultFlavors, "flavor-cpu, flavor-gpu")]);
    check(&defaults(true, false), &[]);
    defaults(true, false).valid(|valid| assert_eq!(valid.flavor_name.as_str(), "flavor-gpu"));
}

#[test]
fn flavor_of_status_precedes_spec_and_spec_precedes_defaults() {
    let chosen = |assigned: Option<&str>, named: Option<&str>, preferred: Option<&str>| {
        let mut request = defaults(true, false);
        request.server.spec.count = None;
        request.server.spec.flavor = named.map(flavor);
        request.server.status.get_or_insert_default().flavor = assigned.map(flavor);
        request.user.as_mut().unwrap().spec.defaults = Some(Defaults { flavor: preferred.map(flavor), image: None });
        request.valid(|valid| valid.flavor_name.as_str().to_owned())
    };
    assert_eq!(chosen(Some("flavor-cpu"), Some("flavor-gpu"), Some("flavor-gpu")), "flavor-cpu");
    assert_eq!(chosen(None, Some("flavor-cpu"), Some("flavor-gpu")), "flavor-cpu");
    assert_eq!(chosen(None, None, Some("flavor-cpu")), "flavor-cpu");
    assert_eq!(chosen(None, None, None), "flavor-gpu");
}

#[test]
fn only_offered_counts_are_valid() {
    let count = |count: Option<u32>, counts: &[u32]| {
        Request::test(|server| server.spec.count = count).flavor(|flavor| {
            let device: &mut Device = flavor.device.as_mut().unwrap();
            device.counts = counts.to_vec();
        })
    };
    let invalid = |words: &'static str| [(Reason::InvalidCount, words)];
    for (requested, counts, expect) in
        [(None, [1, 2, 4, 8].as_slice(), 1), (Some(4), &[1, 2, 4, 8], 4), (Some(8), &[], 8), (Some(3), &[], 3)]
    {
        count(requested, counts).valid(|valid| assert_eq!(valid.count, expect, "{requested:?} of {counts:?}"));
    }
    check(
        &count(Some(3), &[8, 1, 2]),
        &invalid("Invalid count 3: flavor flavor-gpu offers 1, 2, 8 nvidia.com/gpu per node."),
    );
    check(&count(Some(9), &[]), &invalid("Invalid count 9: flavor flavor-gpu offers 1 to 8 nvidia.com/gpu per node."));
    check(&count(Some(0), &[]), &invalid("Invalid count 0"));
    check(&count(None, &[2]), &invalid("offers 2"));
}

#[test]
fn flavor_without_devices_allows_no_count() {
    let count =
        |count| Request::test(|server| (server.spec.flavor, server.spec.count) = (Some(flavor("flavor-cpu")), count));
    count(None).valid(|valid| assert_eq!(valid.count, 0));
    check(&count(Some(0)), &[]);
    check(&count(Some(1)), &[(Reason::InvalidCount, "Omit spec.count")]);
}

#[test]
fn namespace_must_belong_to_user() {
    let mut without_user = Request::new(DevServer::test());
    without_user.user = None;
    check(&without_user, &[(Reason::NoOwner, "Create the server in dev-<user>")]);
    let elsewhere = Request::test(|server| server.metadata.namespace = Some("kube-system".into()));
    check(&elsewhere, &[(Reason::NoOwner, "Namespace kube-system does not belong to a user")]);
}

#[test]
fn invalid_name_is_rejected() {
    check(&Request::test(|server| server.metadata.name = Some("1st".into())), &[(Reason::Invalid, "")]);
    check(&Request::test(|server| server.metadata.name = None), &[(Reason::Invalid, "")]);
}

#[test]
fn team_requires_membership_and_message_hides_its_existence() {
    let of_team = || Request::test(|server| server.spec.team = Some("team-vision".parse().unwrap()));
    let rejected = [(Reason::NotTeamMember, "User ada is not a member of team team-vision")];
    check(&of_team().team(|_| {}), &[]);
    check(&of_team(), &rejected);
    check(&of_team().team(|team| team.spec.members.clear()), &rejected);
}

#[test]
fn priority_is_limited_by_team_or_normal() {
    let urgent = |priority| Request::test(|server| server.spec.scheduling.priority = Some(priority));
    check(&urgent(Priority::Normal), &[]);
    check(&urgent(Priority::Low), &[]);
    check(&urgent(Priority::High), &[(Reason::PriorityTooHigh, "Priority High exceeds the allowed maximum Normal")]);
    check(&urgent(Priority::High).team(|team| team.spec.priority.ceiling = Priority::High), &[]);
    let low = urgent(Priority::Normal).team(|team| team.spec.priority.ceiling = Priority::Low);
    check(&low, &[(Reason::PriorityTooHigh, "Low")]);
}

#[test]
fn priority_is_limited_by_user_ceiling() {
    let urgent = |ceiling| {
        let mut urgent = Request::test(|server| server.spec.scheduling.priority = Some(Priority::High));
        urgent.user.as_mut().unwrap().spec.priority_ceiling = Some(ceiling);
        urgent
    };
    check(&urgent(Priority::High), &[]);
    let of_team = urgent(Priority::Normal).team(|team| team.spec.priority.ceiling = Priority::High);
    check(&of_team, &[(Reason::PriorityTooHigh, "Normal")]);
}

/// Otherwise an invalid edit would remove a running server from the usage accounting.
#[test]
fn admitted_server_stays_valid_after_edit_beyond_permissions() {
    let admitted = DevServer::test().status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
    });
    let mut edited = admitted;
    edited.spec.scheduling.priority = Some(Priority::High);
    edited.spec.team = Some("team-vision".parse().unwrap());
    check(&Request::new(edited), &[]);
}

#[test]
fn maintenance_rejects_only_new_servers() {
    let maintained = |server: DevServer, allow: &[&str]| {
        Request::new(server).flavor(|flavor| {
            let allow = allow.iter().map(|user| user.parse().unwrap()).collect();
            flavor.maintenance = Some(Maintenance { message: "New cables until Friday.".into(), allow });
        })
    };
    let admitted = DevServer::test().status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
    });
    check(&maintained(DevServer::test(), &["bob"]), &[(Reason::Maintenance, "New cables until Friday")]);
    check(&maintained(DevServer::test(), &["ada"]), &[]);
    check(&maintained(admitted, &[]), &[]);
}

#[test]
fn missing_runtime_class_rejects_only_new_servers() {
    let running_in = |server: DevServer, class: &str| {
        Request::new(server).flavor(|flavor| flavor.runtime_class = Some(class.parse().unwrap()))
    };
    let admitted = DevServer::test().status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
    });
    check(&running_in(DevServer::test(), "gvisor"), &[]);
    check(
        &running_in(DevServer::test(), "kata"),
        &[(Reason::NotSupported, "RuntimeClass kata of flavor flavor-gpu not found")],
    );
    check(&running_in(admitted, "kata"), &[]);
}

#[test]
fn unsupported_fields_are_rejected() {
    let build = Request::test(|server| {
        server.spec.image = Some(Box::new(Image { build: Some("build-1".parse().unwrap()), ..Image::default() }));
    });
    check(&build, &[(Reason::NotSupported, "image.ref")]);
}

#[test]
fn gang_requires_shared_claims() {
    let gang = || Request::new(DevServer::test().size("flavor-gpu", 1, 2));
    check(
        &gang(),
        &[(Reason::NotSupported, "Claim claim-home can be mounted on one node only, but the server requires 2 nodes")],
    );
    check(&gang().claim(|state| state.claim.as_mut().unwrap().shared = true), &[]);
    check(&gang().claim(|state| state.claim = None), &[]);
    check(&Request::new(DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")), &[]);
    let data = |flavor: &mut DevServerFlavorSpec| flavor.volumes = vec![volume("claim-data", "/data")];
    let of_flavor = Request::new(DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")).flavor(data);
    check(&of_flavor, &[(Reason::NotSupported, "Claim claim-data")]);
}

#[test]
fn all_violations_are_reported() {
    let request = Request::test(|server| {
        server.spec.count = Some(5);
        server.spec.team = Some("team-vision".parse().unwrap());
        server.spec.scheduling.priority = Some(Priority::High);
        server.spec.image = Some(Box::new(Image { build: Some("build-1".parse().unwrap()), ..Image::default() }));
    });
    let expect = [Reason::InvalidCount, Reason::NotTeamMember, Reason::PriorityTooHigh, Reason::NotSupported];
    check(&request, &expect.map(|reason| (reason, "")));
}

#[test]
fn image_of_spec_precedes_user_default_and_cluster_default() {
    let image = |own: Option<&str>, preferred: Option<&str>| {
        let mut request = Request::test(|server| {
            server.spec.image = Some(Box::new(Image { reference: own.map(Into::into), ..Image::default() }));
        });
        request.user.as_mut().unwrap().spec.defaults =
            Some(Defaults { flavor: None, image: preferred.map(Into::into) });
        request.valid(|valid| valid.image.to_owned())
    };
    assert_eq!(image(Some("own:1"), Some("preferred:1")), "own:1");
    assert_eq!(image(None, Some("preferred:1")), "preferred:1");
    assert_eq!(image(None, None), "registry.example.org/base:1");
}

/// An unavailable claim is not a violation; the server waits for it.
#[track_caller]
fn check_disk(given: &Request, ready: bool, reason: Reason, words: &str) {
    given.valid(|valid| {
        assert_eq!((valid.disk.ready, valid.disk.reason), (ready, reason));
        assert!(valid.disk.message.contains(words), "{:?} does not contain {words:?}", valid.disk.message);
    });
}

#[test]
fn unavailable_claim_is_awaited() {
    let with = |change: fn(&mut ClaimState)| Request::new(DevServer::test()).claim(change);
    check_disk(&with(|_| {}), true, Reason::Bound, "The home is available.");
    check_disk(&with(|state| state.claim = None), false, Reason::DiskNotFound, "Claim claim-home not found");
    let server = |state: &mut ClaimState| state.used_by = Some(VolumeUser::Server("server-2".into()));
    check_disk(&with(server), false, Reason::DiskInUse, "server server-2");
    let pod = |state: &mut ClaimState| state.used_by = Some(VolumeUser::Pod("server-2-0".into()));
    check_disk(&with(pod), false, Reason::DiskInUse, "still mounted by pod server-2-0");
    let pending = |state: &mut ClaimState| {
        state.claim.as_mut().unwrap().phase = ClaimPhase::Pending;
    };
    check_disk(&with(pending), false, Reason::DiskPending, "to be bound to a volume");
    check_disk(
        &with(|state| {
            state.claim.as_mut().unwrap().phase = ClaimPhase::Pending;
            state.waits_for_consumer = true;
        }),
        true,
        Reason::WaitingForFirstConsumer,
        "bound when the server is scheduled",
    );
    let lost = |state: &mut ClaimState| {
        state.claim.as_mut().unwrap().phase = ClaimPhase::Lost;
    };
    check_disk(&with(lost), false, Reason::DiskUnavailable, "lost");
    let deleting = |state: &mut ClaimState| state.claim.as_mut().unwrap().is_deleting = true;
    check_disk(&with(deleting), false, Reason::DiskUnavailable, "is being deleted");
    let ephemeral = Request::new(DevServer::test().ephemeral("1Gi"));
    check_disk(&ephemeral, true, Reason::Ephemeral, "data is lost when the pod is deleted");
}

/// Returns a server with the home `disk-home`, and the disk with a changed status.
fn on_disk(change: impl FnOnce(&mut DiskStatus)) -> Request {
    let mut request = Request::test(|server| server.spec.home = Home::Disk("disk-home".parse().unwrap()));
    request.disk = Some(v1alpha1::Disk::test().status(change));
    request
}

fn holder(uid: &str) -> DiskHolder {
    let since = time("2026-01-01T00:00:00Z");
    DiskHolder {
        server: "server-1".parse().unwrap(),
        uid: uid.into(),
        since,
        used: false,
        interrupted: false,
        releasing_since: None,
    }
}

#[test]
fn server_waits_until_it_holds_its_disk() {
    let held = |status: &mut DiskStatus| {
        status.holder = Some(holder("uid-server-1"));
        status.claim = Some("disk-home-1".parse().unwrap());
    };
    check_disk(&on_disk(held), true, Reason::Bound, "The home is available.");
    on_disk(held).valid(|valid| assert_eq!(valid.home_claim, Some("disk-home-1")));
    let mut missing = on_disk(held);
    missing.disk = None;
    check_disk(&missing, false, Reason::DiskNotFound, "Disk disk-home not found");
    check_disk(&on_disk(|_| {}), false, Reason::DiskPending, "Waiting for disk disk-home");
    let other = |status: &mut DiskStatus| status.holder = Some(holder("uid-server-2"));
    check_disk(&on_disk(other), false, Reason::DiskInUse, "in use by server server-1");
    let releasing = |status: &mut DiskStatus| {
        held(status);
        status.holder.as_mut().unwrap().releasing_since = Some(time("2026-01-01T00:00:00Z"));
    };
    check_disk(&on_disk(releasing), false, Reason::DiskInUse, "restore point");
    let unready = |reason: Reason| {
        on_disk(|status| {
            held(status);
            let now = time("2026-01-01T00:00:00Z");
            condition::set(
                &mut status.conditions,
                condition::new(Type::Ready, Status::False, reason, "Cause.", None, now),
            );
        })
    };
    check_disk(&unready(Reason::Provisioning), false, Reason::DiskPending, "Cause.");
    check_disk(&unready(Reason::DiskUnavailable), false, Reason::DiskUnavailable, "Cause.");
    let mut deleted = on_disk(held);
    deleted.disk.as_mut().unwrap().spec.deleted = true;
    check_disk(&deleted, false, Reason::DiskUnavailable, "is deleted");
}

#[test]
fn gang_mounts_its_disk_on_the_first_node() {
    let mut gang = on_disk(|status| {
        status.holder = Some(holder("uid-server-1"));
        status.claim = Some("disk-home-1".parse().unwrap());
    });
    gang.server.spec.nodes = 2;
    check(&gang, &[]);
    let claims_of = |ordinal: usize| {
        gang.valid(|valid| {
            let volumes = crate::devserver::build::volume::volumes(valid, ordinal);
            let claims = volumes.into_iter().filter_map(|volume| volume.persistent_volume_claim);
            claims.map(|claim| claim.claim_name).collect::<Vec<_>>()
        })
    };
    assert_eq!((claims_of(0), claims_of(1)), (vec!["disk-home-1".to_owned()], vec![]));
}

#[test]
fn unavailable_volume_is_awaited() {
    let request = Request::test(|server| server.spec.volumes = vec![volume("claim-data", "/data")]);
    let missing = |state: &mut ClaimState| {
        if state.claim.as_ref().is_some_and(|claim| claim.name == "claim-data") {
            state.claim = None;
        }
    };
    check_disk(&request.claim(missing), false, Reason::DiskNotFound, "Claim claim-data");
}

#[test]
fn volume_of_server_overrides_flavor_at_same_path() {
    let request = Request::test(|server| server.spec.volumes = vec![volume("claim-own", "/data")])
        .flavor(|flavor| flavor.volumes = vec![volume("claim-flavor", "/data"), volume("claim-sets", "/sets")]);
    request.valid(|valid| {
        let mounts: Vec<_> = valid.volumes.iter().map(|mount| (mount.claim, mount.path.as_str())).collect();
        assert_eq!(mounts, [("claim-own", "/data"), ("claim-sets", "/sets")]);
    });
    let flavor = request.flavors.values().find(|flavor| !flavor.spec.volumes.is_empty()).unwrap();
    assert_eq!(claims(&request.server, None, Some(&flavor.spec)), ["claim-home", "claim-own", "claim-sets"]);
    assert_eq!(claims(&request.server, None, None), ["claim-home", "claim-own"]);
}

#[test]
fn claim_mounted_twice_is_listed_once() {
    let request = Request::test(|server| {
        server.spec.volumes = vec![volume("claim-home", "/again"), volume("claim-data", "/data")];
    });
    assert_eq!(claims(&request.server, None, None), ["claim-home", "claim-data"]);
}

#[test]
fn priority_is_limited_by_the_lowest_ceiling() {
    let mut server = DevServer::test();
    let mut team = Team::test();
    let mut user = DevServerUser::test();
    assert_eq!(effective_priority(&server, None, None), Priority::Normal);
    (team.spec.priority.default, team.spec.priority.ceiling) = (Priority::Low, Priority::High);
    assert_eq!(effective_priority(&server, Some(&user), Some(&team)), Priority::Low);
    server.spec.scheduling.priority = Some(Priority::High);
    assert_eq!(effective_priority(&server, Some(&user), Some(&team)), Priority::High);
    assert_eq!(effective_priority(&server, Some(&user), None), Priority::Normal);
    // The user's own ceiling replaces the default without a team, and limits the team's.
    user.spec.priority_ceiling = Some(Priority::Low);
    assert_eq!(effective_priority(&server, Some(&user), Some(&team)), Priority::Low);
    user.spec.priority_ceiling = Some(Priority::High);
    assert_eq!(effective_priority(&server, Some(&user), None), Priority::High);
    team.spec.priority.ceiling = Priority::Normal;
    assert_eq!(effective_priority(&server, Some(&user), Some(&team)), Priority::Normal);
}
