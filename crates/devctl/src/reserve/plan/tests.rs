use clap::Parser as _;

use super::*;
use crate::args::{Cli, Verb};
use crate::failure::Kind;

fn typed(words: &str) -> Request {
    let words = ["devctl", "create"].into_iter().chain(words.split_whitespace());
    match Cli::try_parse_from(words).unwrap().verb {
        Verb::Create(create) => create.request,
        _ => Request::default(),
    }
}

fn flavors() -> Vec<DevServerFlavor> {
    vec![DevServerFlavor::test().limits("24h", "24h", "48h"), DevServerFlavor::test_cpu().default_flavor()]
}

fn planned(words: &str) -> Result<Plan> {
    plan(&typed(words), &CreateDefaults::default(), &flavors(), vec![], &[])
}

fn refused(words: &str) -> Failure {
    planned(words).map(|plan| plan.spec).unwrap_err()
}

#[test]
fn nothing_said_is_eight_hours_of_the_default_with_a_home_that_goes() {
    let Plan { spec, remarks } = planned("").unwrap();
    assert_eq!((spec.flavor, spec.count, spec.nodes, spec.lifetime), (None, None, 1, Duration::hours(8)));
    assert_eq!((spec.home, spec.idle.action), (api::Home::Ephemeral("10Gi".parse().unwrap()), api::IdleAction::End));
    assert!(remarks[0].contains("gone when the server ends") && remarks[0].contains("--home-claim"), "{remarks:?}");
}

#[test]
fn a_claim_sleeps_when_idle_and_whoever_wants_no_home_is_told_nothing() {
    let Plan { spec, remarks } = planned("--home-claim home").unwrap();
    assert_eq!((spec.idle.action, remarks.len()), (api::IdleAction::Hibernate, 0));
    assert_eq!(planned("--no-persist").unwrap().remarks.len(), 0);
}

#[test]
fn flavors_are_found_in_any_case_and_guessed_otherwise() {
    assert_eq!(planned("-t FLAVOR-GPU").unwrap().spec.flavor.unwrap().as_str(), "flavor-gpu");
    let failure = refused("-t flavor-gpx");
    assert_eq!(failure.kind, Kind::NotFound);
    assert_eq!(failure.advice.as_deref(), Some("Did you mean flavor-gpu? There are flavor-gpu, flavor-cpu."));
}

#[test]
fn more_gpus_than_a_node_has_want_to_be_distributed() {
    let failure = refused("-t flavor-gpu -g 16");
    assert_eq!(failure.advice.as_deref(), Some("Say --gpus 16 --distributed for 2 nodes."));
    let spec = planned("-t flavor-gpu -g 16 -d").unwrap().spec;
    assert_eq!((spec.count, spec.nodes), (Some(8), 2));
    assert_eq!(refused("-t flavor-gpu -g 12 -d").advice.as_deref(), Some("Ask for 8 or 16."));
    assert_eq!(refused("-t flavor-gpu -g 3").advice.as_deref(), Some("Ask for one of 1, 2, 4, 8."));
    assert!(refused("-t flavor-cpu -g 1").message.contains("has no GPUs"));
}

#[test]
fn a_lifetime_has_a_least_and_is_cut_by_the_flavor() {
    assert_eq!(refused("--time 4m").kind, Kind::Usage);
    assert_eq!(planned("--hours 0.5").unwrap().spec.lifetime, Duration::minutes(30));
    let Plan { spec, remarks } = planned("-t flavor-gpu --time 72h --no-persist").unwrap();
    assert_eq!(spec.lifetime, Duration::hours(72));
    assert_eq!(remarks, ["flavor-gpu runs at most 24h, so that is what you get of the 72h asked for."]);
}

#[test]
fn defaults_fill_what_was_not_said() {
    let defaults = CreateDefaults {
        flavor: Some("flavor-gpu".into()),
        gpus: Some(2),
        lifetime: Some(Duration::hours(2)),
        home_claim: Some("home".parse().unwrap()),
        ..CreateDefaults::default()
    };
    let of = |words: &str| plan(&typed(words), &defaults, &flavors(), vec![], &[]).unwrap().spec;
    assert_eq!((of("").count, of("").lifetime), (Some(2), Duration::hours(2)));
    assert_eq!(of("").home, api::Home::Claim("home".parse().unwrap()));
    assert_eq!(of("--no-persist").home, api::Home::Ephemeral("10Gi".parse().unwrap()));
    // Two GPUs were meant for the other flavor.
    assert_eq!(of("-t flavor-cpu").count, None);
}

#[test]
fn everything_that_can_be_said_is_in_the_spec() {
    let words = "--image reg/img:1 --preserve-entrypoint --pull-secret login -v data:/data:ro --jupyter -e A=b=c \
                 --secret-env TOKEN=hub/token --repo https://git.example.org/a.git --ref main --user bob --port app=8000 \
                 --idle 1h --idle-action none --priority low --preemptible -l zone=a --at 2199-01-31T09:00:00Z";
    let spec = planned(words).unwrap().spec;
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
fn a_command_is_run_as_it_was_typed() {
    let command = ["echo".to_owned(), "it's here".to_owned(), "$HOME".to_owned()];
    let plan = plan(&typed(""), &CreateDefaults::default(), &flavors(), vec![], &command).unwrap();
    assert_eq!(plan.spec.setup.unwrap().script.as_deref(), Some("echo 'it'\\''s here' '$HOME'\n"));
}
