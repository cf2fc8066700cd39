use odc_api::v1alpha1::{DevServer, Home, Phase};

use super::*;

fn select_home(home: HomeArgs, defaults: &CreateDefaults, purpose: Purpose, nodes: u32) -> serde_json::Value {
    let request = RequestArgs { home, ..RequestArgs::default() };
    serde_json::to_value(select(&request, defaults, purpose, nodes).unwrap()).unwrap()
}

fn home_disk() -> DiskSummary {
    DiskSummary::test("home", "20Gi")
}

fn user(phase: Phase) -> ServerSummary {
    let mut server = DevServer::test().named("box").in_phase(phase);
    server.spec.home = Home::Disk("home".parse().unwrap());
    ServerSummary::try_from(&server).unwrap()
}

#[test]
fn default_is_the_disk_home_except_for_jobs_and_several_nodes() {
    let defaults = CreateDefaults::default();
    let home = |purpose, nodes| select_home(HomeArgs::default(), &defaults, purpose, nodes);
    assert_eq!(home(Purpose::Development, 1), serde_json::json!({"disk": "home"}));
    assert_eq!(home(Purpose::Development, 2), serde_json::json!({"ephemeral": "10Gi"}));
    assert_eq!(home(Purpose::Job, 1), serde_json::json!({"ephemeral": "10Gi"}));
    let work = CreateDefaults { disk: Some("work".parse().unwrap()), ..CreateDefaults::default() };
    let gang = select_home(HomeArgs::default(), &work, Purpose::Development, 2);
    assert_eq!(gang, serde_json::json!({"ephemeral": "10Gi"}));
}

#[test]
fn flags_override_settings() {
    let claim = CreateDefaults { home_claim: Some("old".parse().unwrap()), ..CreateDefaults::default() };
    let size = CreateDefaults { home_size: Some("5Gi".parse().unwrap()), ..CreateDefaults::default() };
    let work = CreateDefaults { disk: Some("work".parse().unwrap()), ..CreateDefaults::default() };
    let home = |args: &HomeArgs, defaults| select_home(args.clone(), defaults, Purpose::Development, 1);
    let none = HomeArgs::default();
    assert_eq!(home(&none, &claim), serde_json::json!({"claim": "old"}));
    assert_eq!(home(&none, &size), serde_json::json!({"ephemeral": "5Gi"}));
    assert_eq!(home(&none, &work), serde_json::json!({"disk": "work"}));
    let no_disk = CreateDefaults { disk: Some("none".parse().unwrap()), ..CreateDefaults::default() };
    assert_eq!(home(&none, &no_disk), serde_json::json!({"ephemeral": "10Gi"}));
    let disk = HomeArgs { disk: Some("data".to_owned()), ..HomeArgs::default() };
    let ephemeral = HomeArgs { ephemeral: true, ..HomeArgs::default() };
    for defaults in [&claim, &size, &work] {
        assert_eq!(home(&disk, defaults), serde_json::json!({"disk": "data"}));
    }
    assert_eq!(home(&ephemeral, &work), serde_json::json!({"ephemeral": "10Gi"}));
    assert_eq!(home(&ephemeral, &size), serde_json::json!({"ephemeral": "5Gi"}));
    assert_eq!(select_home(disk, &claim, Purpose::Job, 2), serde_json::json!({"disk": "data"}));
}

#[test]
fn only_the_default_disk_is_created() {
    let named = HomeArgs { disk: Some("home".to_owned()), ..HomeArgs::default() };
    assert!(matches!(check("home", "new", &HomeArgs::default(), &[], &[]), Ok(DiskCheck::Missing)));
    assert_eq!(check("home", "new", &named, &[], &[]).unwrap_err().kind, Kind::NotFound);
    let new = HomeArgs { new_disk: Some("home".parse().unwrap()), ..HomeArgs::default() };
    assert!(matches!(check("home", "new", &new, &[], &[]), Ok(DiskCheck::Missing)));
    assert_eq!(check("home", "new", &new, &[home_disk()], &[]).unwrap_err().kind, Kind::Conflict);
}

#[test]
fn disk_in_use_is_found_unless_its_server_stops_or_is_replaced() {
    let disks = [home_disk()];
    let args = HomeArgs::default();
    let in_use = |server: &str, phase| matches!(check("home", server, &args, &disks, &[user(phase)]).unwrap(), DiskCheck::InUse(user) if user == "box");
    assert!(in_use("new", Phase::Running) && in_use("new", Phase::Hibernated) && in_use("new", Phase::Queued));
    assert!(!in_use("new", Phase::Stopping) && !in_use("new", Phase::Expired));
    assert!(!in_use("box", Phase::Running), "the name of the server is reported as taken instead");
}

#[test]
fn error_of_a_disk_in_use_names_the_flags() {
    let error = in_use("home", "box");
    let hint = error.hint.unwrap();
    assert_eq!((error.kind.code(), error.message.as_str()), (5, "disk home is used by server box"));
    assert!(hint.contains("--disk NAME") && hint.contains("--ephemeral"), "{hint}");
}

#[test]
fn notice_is_for_an_ephemeral_home_without_a_flag() {
    let idle = api::Idle { action: api::IdleAction::End, ..api::Idle::default() };
    let home = Home::Ephemeral("10Gi".parse().unwrap());
    let notice = |request: &RequestArgs, purpose| ephemeral_notice(request, purpose, &home, &idle);
    let text = notice(&RequestArgs::default(), Purpose::Development).unwrap();
    assert!(text.contains("is ephemeral") && text.contains("--disk NAME") && text.contains("30m idle"), "{text}");
    assert_eq!(notice(&RequestArgs::default(), Purpose::Job), None);
    let mut flag = RequestArgs::default();
    flag.home.ephemeral = true;
    assert_eq!(notice(&flag, Purpose::Development), None);
}
