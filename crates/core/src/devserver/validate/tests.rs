//! Every way to be refused, and what becomes of what is left open.

use odc_api::v1alpha1::{Defaults, Device, Image, Maintenance};

use super::super::fixtures::{ClaimState, Request, volume};
use super::*;

/// `expect` is the reason and words of the message for each violation, in order.
#[track_caller]
fn check(given: &Request, expect: &[(Reason, &str)]) {
    given.check(|checked| {
        let violations = checked.as_ref().err().cloned().unwrap_or_default();
        let reasons: Vec<Reason> = violations.iter().map(|violation| violation.reason).collect();
        assert_eq!(reasons, expect.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), "{violations:?}");
        for (violation, (_, words)) in violations.iter().zip(expect) {
            assert!(violation.message.contains(words), "{:?} does not say {words:?}", violation.message);
            assert!(violation.message.ends_with('.'), "{:?} is no sentence", violation.message);
        }
    });
}

fn flavor(name: &str) -> FlavorName {
    name.parse().unwrap()
}

/// Both flavors, each the default or not.
fn defaults(gpu: bool, cpu: bool) -> Request {
    let (mut one, mut two) = (DevServerFlavor::test(), DevServerFlavor::test_cpu());
    (one.spec.default, two.spec.default) = (gpu, cpu);
    Request::test(|server| server.spec.flavor = None).offering(one).offering(two)
}

#[test]
fn a_plain_request_is_fine() {
    check(&Request::of(DevServer::test()), &[]);
    Request::of(DevServer::test()).valid(|valid| {
        assert_eq!((valid.name.as_str(), valid.owner.as_str()), ("server-1", "ada"));
        assert_eq!((valid.flavor_name.as_str(), valid.count, valid.nodes), ("flavor-gpu", 1, 1));
        assert_eq!((valid.image, valid.disk.ready), ("registry.example.org/base:1", true));
    });
}

#[test]
fn a_flavor_that_does_not_exist_is_named_with_those_that_do() {
    let there_is = "there is flavor-cpu, flavor-gpu";
    check(&Request::test(|server| server.spec.flavor = Some(flavor("other"))), &[(Reason::UnknownFlavor, there_is)]);
    let mut empty = Request::test(|server| server.spec.flavor = Some(flavor("other")));
    empty.flavors.clear();
    check(&empty, &[(Reason::UnknownFlavor, "there is none yet")]);
}

#[test]
fn without_a_flavor_there_must_be_one_default() {
    check(&defaults(false, false), &[(Reason::NoDefaultFlavor, "name one in spec.flavor")]);
    check(&defaults(true, true), &[(Reason::SeveralDefaultFlavors, "flavor-cpu, flavor-gpu")]);
    check(&defaults(true, false), &[]);
    defaults(true, false).valid(|valid| assert_eq!(valid.flavor_name.as_str(), "flavor-gpu"));
}

#[test]
fn the_flavor_it_has_comes_before_the_one_it_names_and_that_before_the_owners() {
    let chosen = |had: Option<&str>, named: Option<&str>, preferred: Option<&str>| {
        let mut request = defaults(true, false);
        request.server.spec.count = None;
        request.server.spec.flavor = named.map(flavor);
        request.server.status.get_or_insert_default().flavor = had.map(flavor);
        request.user.as_mut().unwrap().spec.defaults = Some(Defaults { flavor: preferred.map(flavor), image: None });
        request.valid(|valid| valid.flavor_name.as_str().to_owned())
    };
    assert_eq!(chosen(Some("flavor-cpu"), Some("flavor-gpu"), Some("flavor-gpu")), "flavor-cpu");
    assert_eq!(chosen(None, Some("flavor-cpu"), Some("flavor-gpu")), "flavor-cpu");
    assert_eq!(chosen(None, None, Some("flavor-cpu")), "flavor-cpu");
    assert_eq!(chosen(None, None, None), "flavor-gpu");
}

#[test]
fn only_the_offered_counts_are_granted() {
    let count = |count: Option<u32>, counts: &[u32]| {
        Request::test(|server| server.spec.count = count).flavor(|flavor| {
            let device: &mut Device = flavor.device.as_mut().unwrap();
            device.counts = counts.to_vec();
        })
    };
    let refused = |words: &'static str| [(Reason::CountNotAllowed, words)];
    for (asked, counts, granted) in
        [(None, [1, 2, 4, 8].as_slice(), 1), (Some(4), &[1, 2, 4, 8], 4), (Some(8), &[], 8), (Some(3), &[], 3)]
    {
        count(asked, counts).valid(|valid| assert_eq!(valid.count, granted, "{asked:?} of {counts:?}"));
    }
    check(&count(Some(3), &[8, 1, 2]), &refused("offers 1, 2, 8 of nvidia.com/gpu on a node, not 3"));
    check(&count(Some(9), &[]), &refused("offers 1 to 8 of nvidia.com/gpu on a node, not 9"));
    check(&count(Some(0), &[]), &refused("not 0"));
    check(&count(None, &[2]), &refused("offers 2"));
}

#[test]
fn a_flavor_without_devices_has_none() {
    let count =
        |count| Request::test(|server| (server.spec.flavor, server.spec.count) = (Some(flavor("flavor-cpu")), count));
    count(None).valid(|valid| assert_eq!(valid.count, 0));
    check(&count(Some(0)), &[]);
    check(&count(Some(1)), &[(Reason::CountNotAllowed, "leave spec.count out")]);
}

#[test]
fn a_namespace_must_be_somebodys() {
    let mut nobodys = Request::of(DevServer::test());
    nobodys.user = None;
    check(&nobodys, &[(Reason::NoOwner, "create the server in dev-<user>")]);
    let elsewhere = Request::test(|server| server.metadata.namespace = Some("kube-system".into()));
    check(&elsewhere, &[(Reason::NoOwner, "Namespace kube-system belongs to no user")]);
}

#[test]
fn a_name_of_older_rules_is_refused_and_not_a_crash() {
    check(&Request::test(|server| server.metadata.name = Some("1st".into())), &[(Reason::Invalid, "")]);
    check(&Request::test(|server| server.metadata.name = None), &[(Reason::Invalid, "")]);
}

#[test]
fn only_members_use_a_team_and_others_do_not_learn_whether_it_exists() {
    let of_team = || Request::test(|server| server.spec.team = Some("team-vision".parse().unwrap()));
    let refused = [(Reason::NotATeamMember, "ada is no member of a team team-vision")];
    check(&of_team().team(|_| {}), &[]);
    check(&of_team(), &refused);
    check(&of_team().team(|team| team.spec.members.clear()), &refused);
}

#[test]
fn a_priority_ends_at_the_teams_ceiling_and_at_normal_without_a_team() {
    let urgent = |priority| Request::test(|server| server.spec.scheduling.priority = Some(priority));
    check(&urgent(Priority::Normal), &[]);
    check(&urgent(Priority::Low), &[]);
    check(&urgent(Priority::High), &[(Reason::PriorityTooHigh, "Priority High is above what is allowed here, Normal")]);
    check(&urgent(Priority::High).team(|team| team.spec.priority.ceiling = Priority::High), &[]);
    let low = urgent(Priority::Normal).team(|team| team.spec.priority.ceiling = Priority::Low);
    check(&low, &[(Reason::PriorityTooHigh, "Low")]);
}

#[test]
fn a_priority_ends_at_the_users_own_ceiling_too() {
    let urgent = |ceiling| {
        let mut urgent = Request::test(|server| server.spec.scheduling.priority = Some(Priority::High));
        urgent.user.as_mut().unwrap().spec.priority_ceiling = Some(ceiling);
        urgent
    };
    check(&urgent(Priority::High), &[]);
    let of_team = urgent(Priority::Normal).team(|team| team.spec.priority.ceiling = Priority::High);
    check(&of_team, &[(Reason::PriorityTooHigh, "Normal")]);
}

/// Else an owner could take a running server out of all counts by asking for what is not allowed.
#[test]
fn who_has_its_devices_keeps_them_whatever_its_owner_may_ask_for_by_then() {
    let granted = DevServer::test().status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
    });
    let mut asks = granted;
    asks.spec.scheduling.priority = Some(Priority::High);
    asks.spec.team = Some("team-vision".parse().unwrap());
    check(&Request::of(asks), &[]);
}

#[test]
fn maintenance_keeps_new_servers_away_and_leaves_running_ones_alone() {
    let maintained = |server: DevServer, allow: &[&str]| {
        Request::of(server).flavor(|flavor| {
            let allow = allow.iter().map(|user| user.parse().unwrap()).collect();
            flavor.maintenance = Some(Maintenance { message: "New cables until Friday.".into(), allow });
        })
    };
    let granted = DevServer::test().status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
    });
    check(&maintained(DevServer::test(), &["bob"]), &[(Reason::Maintenance, "New cables until Friday")]);
    check(&maintained(DevServer::test(), &["ada"]), &[]);
    check(&maintained(granted, &[]), &[]);
}

#[test]
fn a_runtime_class_that_does_not_exist_keeps_new_servers_away_and_leaves_running_ones_alone() {
    let running_in = |server: DevServer, class: &str| {
        Request::of(server).flavor(|flavor| flavor.runtime_class = Some(class.parse().unwrap()))
    };
    let granted = DevServer::test().status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
    });
    check(&running_in(DevServer::test(), "gvisor"), &[]);
    check(&running_in(DevServer::test(), "kata"), &[(Reason::NotSupported, "RuntimeClass kata, which does not exist")]);
    check(&running_in(granted, "kata"), &[]);
}

#[test]
fn what_is_not_built_yet_is_refused_and_not_ignored() {
    let disk = Request::test(|server| server.spec.home = Home::Disk("disk-home".parse().unwrap()));
    check(&disk, &[(Reason::NotSupported, "home.claim")]);
    let build = Request::test(|server| {
        server.spec.image = Some(Box::new(Image { build: Some("build-1".parse().unwrap()), ..Image::default() }));
    });
    check(&build, &[(Reason::NotSupported, "image.ref")]);
}

#[test]
fn a_gang_cannot_share_a_claim_of_one_node() {
    let gang = || Request::of(DevServer::test().size("flavor-gpu", 1, 2));
    check(&gang(), &[(Reason::NotSupported, "Claim claim-home can be mounted on one node only, and a gang has 2")]);
    check(&gang().claim(|state| state.claim.as_mut().unwrap().shared = true), &[]);
    check(&gang().claim(|state| state.claim = None), &[]);
    check(&Request::of(DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")), &[]);
    let data = |flavor: &mut DevServerFlavorSpec| flavor.volumes = vec![volume("claim-data", "/data")];
    let of_flavor = Request::of(DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")).flavor(data);
    check(&of_flavor, &[(Reason::NotSupported, "Claim claim-data")]);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let request = Request::test(|server| {
        server.spec.count = Some(5);
        server.spec.team = Some("team-vision".parse().unwrap());
        server.spec.scheduling.priority = Some(Priority::High);
        server.spec.home = Home::Disk("disk-home".parse().unwrap());
    });
    let expect = [Reason::CountNotAllowed, Reason::NotATeamMember, Reason::PriorityTooHigh, Reason::NotSupported];
    check(&request, &expect.map(|reason| (reason, "")));
}

#[test]
fn the_image_is_the_servers_or_the_owners_or_the_clusters() {
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

/// A claim is no violation: it is waited for.
#[track_caller]
fn check_disk(given: &Request, ready: bool, reason: Reason, words: &str) {
    given.valid(|valid| {
        assert_eq!((valid.disk.ready, valid.disk.reason), (ready, reason));
        assert!(valid.disk.message.contains(words), "{:?} does not say {words:?}", valid.disk.message);
    });
}

#[test]
fn a_claim_is_waited_for() {
    let with = |change: fn(&mut ClaimState)| Request::of(DevServer::test()).claim(change);
    check_disk(&with(|_| {}), true, Reason::Bound, "The home is there.");
    check_disk(&with(|state| state.claim = None), false, Reason::DiskNotFound, "Claim claim-home does not exist");
    let server = |state: &mut ClaimState| state.held_by = Some(Holder::Server("server-2".into()));
    check_disk(&with(server), false, Reason::DiskInUse, "server server-2");
    let pod = |state: &mut ClaimState| state.held_by = Some(Holder::Pod("server-2-0".into()));
    check_disk(&with(pod), false, Reason::DiskInUse, "still mounted by pod server-2-0");
    let pending = |state: &mut ClaimState| {
        state.claim.as_mut().unwrap().phase = ClaimPhase::Pending;
    };
    check_disk(&with(pending), false, Reason::DiskPending, "not bound");
    check_disk(
        &with(|state| {
            state.claim.as_mut().unwrap().phase = ClaimPhase::Pending;
            state.waits_for_consumer = true;
        }),
        true,
        Reason::WaitingForFirstConsumer,
        "bound when the server is placed",
    );
    let lost = |state: &mut ClaimState| {
        state.claim.as_mut().unwrap().phase = ClaimPhase::Lost;
    };
    check_disk(&with(lost), false, Reason::DiskUnavailable, "lost");
    let leaving = |state: &mut ClaimState| state.claim.as_mut().unwrap().deleting = true;
    check_disk(&with(leaving), false, Reason::DiskUnavailable, "is being deleted");
    let ephemeral = Request::of(DevServer::test().ephemeral("1Gi"));
    check_disk(&ephemeral, true, Reason::Ephemeral, "gone with its pod");
}

#[test]
fn a_volume_is_waited_for_as_the_home_is() {
    let request = Request::test(|server| server.spec.volumes = vec![volume("claim-data", "/data")]);
    let gone = |state: &mut ClaimState| {
        if state.claim.as_ref().is_some_and(|claim| claim.name == "claim-data") {
            state.claim = None;
        }
    };
    check_disk(&request.claim(gone), false, Reason::DiskNotFound, "Claim claim-data");
}

#[test]
fn the_servers_volume_wins_over_the_flavors_at_the_same_path() {
    let request = Request::test(|server| server.spec.volumes = vec![volume("claim-own", "/data")])
        .flavor(|flavor| flavor.volumes = vec![volume("claim-hers", "/data"), volume("claim-sets", "/sets")]);
    request.valid(|valid| {
        let mounts: Vec<_> = valid.volumes.iter().map(|mount| (mount.claim, mount.path.as_str())).collect();
        assert_eq!(mounts, [("claim-own", "/data"), ("claim-sets", "/sets")]);
    });
    let flavor = request.flavors.values().find(|flavor| !flavor.spec.volumes.is_empty()).unwrap();
    assert_eq!(claims(&request.server, Some(&flavor.spec)), ["claim-home", "claim-own", "claim-sets"]);
    assert_eq!(claims(&request.server, None), ["claim-home", "claim-own"]);
}

#[test]
fn a_claim_mounted_twice_is_one_claim() {
    let request = Request::test(|server| {
        server.spec.volumes = vec![volume("claim-home", "/again"), volume("claim-data", "/data")];
    });
    assert_eq!(claims(&request.server, None), ["claim-home", "claim-data"]);
}
