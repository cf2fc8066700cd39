use clap::Parser as _;

use super::*;
use crate::cli::{Cli, Command};
use crate::error::Kind;

fn parse(flags: &str) -> RequestArgs {
    let words = ["devctl", "create"].into_iter().chain(flags.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Create(create) => create.request,
        _ => RequestArgs::default(),
    }
}

fn flavors() -> Vec<DevServerFlavor> {
    vec![DevServerFlavor::test().limits("24h", "24h", "48h"), DevServerFlavor::test_cpu().default_flavor()]
}

fn build(flags: &str) -> Result<SpecPlan> {
    build_spec(&parse(flags), &CreateDefaults::default(), Purpose::Development, &flavors(), vec![], &[])
}

fn build_error(flags: &str) -> Error {
    build(flags).map(|plan| plan.spec).unwrap_err()
}

#[test]
fn default_request_is_8h_of_the_default_flavor_with_a_disk() {
    let SpecPlan { spec, notices } = build("").unwrap();
    assert_eq!((spec.flavor, spec.count, spec.nodes, spec.lifetime), (None, None, 1, Duration::hours(8)));
    assert_eq!((spec.home, spec.idle.action), (api::Home::Disk("home".parse().unwrap()), api::IdleAction::Hibernate));
    assert_eq!(notices.len(), 0, "{notices:?}");
}

#[test]
fn server_with_an_ephemeral_home_is_deleted_when_idle() {
    let SpecPlan { spec, notices } = build("--nodes 2").unwrap();
    assert_eq!((spec.home, spec.idle.action), (api::Home::Ephemeral("10Gi".parse().unwrap()), api::IdleAction::End));
    assert!(notices[0].contains("is ephemeral") && notices[0].contains("--disk"), "{notices:?}");
    for flag in ["--no-persist", "--ephemeral", "--ephemeral --home-size 5Gi"] {
        let SpecPlan { spec, notices } = build(flag).unwrap();
        assert_eq!((spec.idle.action, notices.len()), (api::IdleAction::End, 0), "{flag}");
    }
}

#[test]
fn claim_and_disk_hibernate_when_idle() {
    for flag in ["--home-claim home", "--disk data", "--disk data --nodes 2"] {
        let SpecPlan { spec, notices } = build(flag).unwrap();
        assert_eq!((spec.idle.action, notices.len()), (api::IdleAction::Hibernate, 0), "{flag}");
    }
}

#[test]
fn flavor_names_ignore_case_and_get_suggestions() {
    assert_eq!(build("-t FLAVOR-GPU").unwrap().spec.flavor.unwrap().as_str(), "flavor-gpu");
    let error = build_error("-t flavor-gpx");
    assert_eq!(error.kind, Kind::NotFound);
    assert_eq!(error.hint.as_deref(), Some("did you mean flavor-gpu? Available: flavor-gpu, flavor-cpu"));
}

#[test]
fn more_gpus_than_a_node_require_distributed() {
    let error = build_error("-t flavor-gpu -g 16");
    assert_eq!(error.hint.as_deref(), Some("use `--gpus 16 --distributed` for 2 nodes"));
    let spec = build("-t flavor-gpu -g 16 -d").unwrap().spec;
    assert_eq!((spec.count, spec.nodes), (Some(8), 2));
    assert_eq!(build_error("-t flavor-gpu -g 12 -d").hint.as_deref(), Some("use `--gpus 8` or `--gpus 16`"));
    assert_eq!(build_error("-t flavor-gpu -g 3").hint.as_deref(), Some("choose one of 1, 2, 4, 8"));
    assert!(build_error("-t flavor-cpu -g 1").message.contains("has no GPUs"));
}

#[test]
fn lifetime_has_a_minimum_and_is_limited_by_the_flavor() {
    assert_eq!(build_error("--lifetime 4m").kind, Kind::Usage);
    assert_eq!(build("--hours 0.5").unwrap().spec.lifetime, Duration::minutes(30));
    let SpecPlan { spec, notices } = build("-t flavor-gpu --lifetime 72h --no-persist").unwrap();
    assert_eq!(spec.lifetime, Duration::hours(72));
    assert!(notices[0].ends_with("flavor flavor-gpu limits the lifetime to 24h (requested 3d)"), "{notices:?}");
}

#[test]
fn defaults_fill_unset_flags() {
    let defaults = CreateDefaults {
        flavor: Some("flavor-gpu".into()),
        gpus: Some(2),
        lifetime: Some(Duration::hours(2)),
        home_claim: Some("home".parse().unwrap()),
        ..CreateDefaults::default()
    };
    let spec =
        |flags: &str| build_spec(&parse(flags), &defaults, Purpose::Development, &flavors(), vec![], &[]).unwrap().spec;
    assert_eq!((spec("").count, spec("").lifetime), (Some(2), Duration::hours(2)));
    assert_eq!(spec("").home, api::Home::Claim("home".parse().unwrap()));
    assert_eq!(spec("--no-persist").home, api::Home::Ephemeral("10Gi".parse().unwrap()));
    // The default number of GPUs belongs to the default flavor.
    assert_eq!(spec("-t flavor-cpu").count, None);
}

#[test]
fn all_flags_are_in_the_spec() {
    let words = "--image reg/img:1 --preserve-entrypoint --pull-secret login -v data:/data:ro --jupyter -e A=b=c \
                 --secret-env TOKEN=hub/token --repo https://git.example.org/a.git --ref main --user bob --port app=8000 \
                 --idle 1h --idle-action none --priority low --preemptible -l zone=a --at 2199-01-31T09:00:00Z";
    let spec = build(words).unwrap().spec;
    let image = spec.image.clone().unwrap();
    assert_eq!((image.reference.as_deref(), image.keep_entrypoint), (Some("reg/img:1"), true));
    assert!(spec.volumes[0].read_only && spec.access.jupyter && spec.scheduling.preemptible);
    assert_eq!((spec.env.len(), spec.env[0].value.as_deref()), (2, Some("b=c")));
    assert_eq!(spec.setup.clone().unwrap().repository.unwrap().reference.as_deref(), Some("main"));
    assert_eq!((spec.idle.timeout, spec.idle.action), (Duration::hours(1), api::IdleAction::None));
    let server = api::DevServer::new("box", spec);
    odc_api::check::check_create(&server).unwrap();
}

#[test]
fn startup_files_are_recreated_on_request() {
    let setup = |flags: &str| build(flags).unwrap().spec.setup;
    let expect = api::Setup { recreate_env: true, ..api::Setup::default() };
    assert_eq!(setup("--recreate-env --disk data"), Some(Box::new(expect)));
    assert_eq!(setup("--disk data"), None);
}

#[test]
fn command_is_quoted_for_the_setup_script() {
    let command = ["echo".to_owned(), "it's here".to_owned(), "$HOME".to_owned()];
    let defaults = CreateDefaults::default();
    let plan = build_spec(&parse(""), &defaults, Purpose::Development, &flavors(), vec![], &command).unwrap();
    assert_eq!(plan.spec.setup.unwrap().script.as_deref(), Some("echo \"it's here\" '$HOME'\n"));
}
