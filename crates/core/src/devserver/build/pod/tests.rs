//! Pod manifests.

mod pod_security;

use odc_api::v1alpha1::{DevServer, EnvVar, Home, Image, Repository, SecretKey, Setup};
use serde_json::{Value, json};

use super::super::{AGENT, size};
use super::*;
use crate::cluster;
use crate::devserver::fixtures::{Request, settings, volume};
use pod_security::{Level, containers, list, violations};

fn assignment() -> PodAssignment<'static> {
    PodAssignment { ordinal: 0, run: 3, node: "node-1", user_namespaces: false }
}

fn build(request: &Request, assignment: PodAssignment<'_>) -> Value {
    request.valid(|valid| {
        pod(valid, assignment, "ssh-ed25519 host", &[], &settings(), &["ssh-ed25519 ca".to_owned()]).body
    })
}

fn manifest(request: &Request) -> Value {
    build(request, assignment())
}

fn main(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]
}

/// Returns the value of a variable in the container: the last one of a name wins.
fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    list(&main(pod)["env"]).filter(|variable| variable["name"] == name).last()?["value"].as_str()
}

fn setting(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.into(), value: Some(value.into()), secret: None }
}

/// Requests that result in structurally different pods.
fn requests() -> Vec<Request> {
    let full = |server: &mut DevServer| {
        server.spec.volumes = vec![volume("claim-data", "/data")];
        server.spec.env = vec![setting("A", "1")];
        server.spec.setup = Some(Box::new(Setup {
            script: Some("make".into()),
            repository: Some(Repository { url: "https://git.example.org/a.git".into(), reference: None }),
            pre_stop: Some("sync".into()),
            recreate_env: true,
        }));
        let pull_secret = Some("pull".parse().unwrap());
        let image = Image { reference: Some("own:1".into()), build: None, keep_entrypoint: true, pull_secret };
        server.spec.image = Some(Box::new(image));
    };
    vec![
        Request::new(DevServer::test()),
        Request::new(DevServer::test().ephemeral("50Gi")),
        Request::new(DevServer::test().size("flavor-gpu", 8, 1)),
        Request::new(DevServer::test().size("flavor-cpu", 0, 1)),
        Request::new(DevServer::test().size("flavor-gpu", 2, 4).ephemeral("1500M")),
        Request::test(full).flavor(|flavor| {
            flavor.volumes = vec![volume("claim-sets", "/sets")];
            flavor.runtime_class = Some("gvisor".parse().unwrap());
            flavor.pull_secret = Some("pull-all".parse().unwrap());
        }),
        Request::new(DevServer::test()).flavor(|flavor| {
            flavor.resources.cpu = "50m".parse().unwrap();
            flavor.resources.memory = "20Mi".parse().unwrap();
        }),
    ]
}

#[test]
fn pod_complies_with_security_level_of_flavor() {
    for (privilege, level) in [(Privilege::Restricted, Level::Restricted), (Privilege::Sudo, Level::Baseline)] {
        for request in requests() {
            let request = request.flavor(|flavor| flavor.privilege = privilege);
            for user_namespaces in [false, true] {
                let pod = build(&request, PodAssignment { user_namespaces, ..assignment() });
                assert_eq!(violations(&pod, level), Vec::<String>::new(), "{pod:#}");
            }
        }
    }
}

#[test]
fn pod_has_no_access_to_node_or_api() {
    for request in requests() {
        let pod = manifest(&request);
        let spec = &pod["spec"];
        assert_eq!(
            (&spec["automountServiceAccountToken"], &spec["enableServiceLinks"]),
            (&json!(false), &json!(false))
        );
        assert!(list(&spec["volumes"]).all(|volume| volume["hostPath"].is_null() && volume["projected"].is_null()));
        assert!(["hostNetwork", "hostPID", "hostIPC", "nodeName"].iter().all(|field| spec[field].is_null()));
        assert_eq!(spec["restartPolicy"], "Always");
    }
}

#[test]
fn user_namespaces_are_used_for_sudo_on_supporting_nodes() {
    let host_users = |privilege, user_namespaces| {
        let request = Request::new(DevServer::test()).flavor(|flavor| flavor.privilege = privilege);
        build(&request, PodAssignment { user_namespaces, ..assignment() })["spec"]["hostUsers"].clone()
    };
    assert_eq!(host_users(Privilege::Sudo, true), json!(false));
    assert_eq!(host_users(Privilege::Sudo, false), Value::Null);
    assert_eq!(host_users(Privilege::Restricted, true), Value::Null);
}

#[test]
fn resources_match_kube_scheduler_accounting() {
    for privilege in [Privilege::Restricted, Privilege::Sudo] {
        for request in requests() {
            let request = request.flavor(|flavor| flavor.privilege = privilege);
            let mut pod = manifest(&request);
            // The API server adds the overhead, and rejects pods that set it.
            assert_eq!(pod["spec"]["overhead"], Value::Null);
            if pod["spec"]["runtimeClassName"] == "gvisor" {
                pod["spec"]["overhead"] = json!({"cpu": "250m", "memory": "128Mi"});
            }
            let pod = serde_json::from_value(pod).unwrap();
            request.valid(|valid| assert_eq!(cluster::Pod::from_api(&pod).requests, size::per_node(valid)));
        }
    }
}

#[test]
fn limits_equal_requests_except_ephemeral_storage() {
    let pod = manifest(&Request::new(DevServer::test().size("flavor-gpu", 2, 1).ephemeral("50Gi")));
    let resources = &main(&pod)["resources"];
    assert_eq!(resources["limits"], json!({"cpu": "48", "memory": "480Gi", "nvidia.com/gpu": "2"}));
    assert_eq!(
        resources["requests"],
        json!({"cpu": "48", "memory": "480Gi", "nvidia.com/gpu": "2", "ephemeral-storage": "50Gi"})
    );
    let home = list(&pod["spec"]["volumes"]).find(|volume| volume["name"] == "home").unwrap();
    assert_eq!(home["emptyDir"]["sizeLimit"], "50Gi");
}

#[test]
fn created_pod_is_classified_as_current() {
    let mut read: Pod = serde_json::from_value(manifest(&Request::new(DevServer::test()))).unwrap();
    read.metadata.uid = Some("uid-pod".into());
    let pod = cluster::Pod::from_api(&read);
    let details = pod.server.as_ref().unwrap();
    assert_eq!(
        (details.owner.as_deref(), details.created_for.as_deref()),
        (Some("uid-server-1"), Some("uid-server-1"))
    );
    assert_eq!((details.run, details.host_key.as_deref()), (Some(3), Some("ssh-ed25519 host")));
    let pods = pods::classify(&[&pod], "server-1", "uid-server-1", 1, Some(3));
    assert!(pods.current[0].is_some());
}

#[test]
fn pod_is_pinned_to_assigned_node() {
    let pod = manifest(&Request::new(DevServer::test()));
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let fields = &required["nodeSelectorTerms"][0]["matchFields"][0];
    assert_eq!(fields, &json!({"key": "metadata.name", "operator": "In", "values": ["node-1"]}));
}

#[test]
fn pod_tolerates_unreachable_node() {
    let request = Request::new(DevServer::test()).flavor(|flavor| {
        flavor.tolerations = vec![v1alpha1::Toleration {
            key: Some("pool".into()),
            operator: v1alpha1::TolerationOperator::Equal,
            value: Some("gpu".into()),
            effect: Some(v1alpha1::TolerationEffect::NoSchedule),
        }];
    });
    let tolerated = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    assert_eq!(
        manifest(&request)["spec"]["tolerations"],
        json!([
            {"key": "pool", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
            tolerated("node.kubernetes.io/not-ready"),
            tolerated("node.kubernetes.io/unreachable"),
        ])
    );
}

#[test]
fn server_without_devices_sees_none() {
    let cpu = manifest(&Request::new(DevServer::test().size("flavor-cpu", 0, 1)));
    assert_eq!(variable(&cpu, "NVIDIA_VISIBLE_DEVICES"), Some("void"));
    let gpu = manifest(&Request::new(DevServer::test()));
    assert_eq!(variable(&gpu, "NVIDIA_VISIBLE_DEVICES"), None);
}

#[test]
fn owner_cannot_override_reserved_variables() {
    let request = Request::test(|server| {
        *server = server.clone().size("flavor-cpu", 0, 1);
        server.spec.env = vec![
            setting("NVIDIA_VISIBLE_DEVICES", "all"),
            setting("ODC_OWNER", "root"),
            setting("OMP_NUM_THREADS", "7"),
            setting("MINE", "1"),
        ];
    });
    let pod = manifest(&request);
    assert_eq!(variable(&pod, "NVIDIA_VISIBLE_DEVICES"), Some("void"));
    assert_eq!(variable(&pod, "ODC_OWNER"), Some("ada"));
    // Defaults can be overridden.
    assert_eq!(variable(&pod, "OMP_NUM_THREADS"), Some("7"));
    assert_eq!((variable(&pod, "MINE"), variable(&pod, "GOMAXPROCS")), (Some("1"), Some("4")));
    let mut names: Vec<&str> = list(&main(&pod)["env"]).filter_map(|variable| variable["name"].as_str()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "duplicate variables");
}

/// Expands variables as Kubernetes does.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match (character, rest.peek()) {
            ('$', Some('$')) => drop(rest.next()),
            ('$', Some('(')) => return format!("{out} expanded"),
            _ => {}
        }
        out.push(character);
    }
    out
}

#[test]
fn user_input_is_never_expanded() {
    for text in ["$(HOME)", "$$(HOME)", "a$b", "$$", "100$", "$", "plain"] {
        let mut request = Request::test(|server| server.spec.env = vec![setting("MINE", text)]);
        request.user.as_mut().unwrap().spec.display_name = Some(text.into());
        let pod = request.valid(|valid| pod(valid, assignment(), "key", &[text.to_owned()], &settings(), &[]).body);
        assert_eq!(expand(variable(&pod, "MINE").unwrap()), text);
        assert_eq!(expand(list(&main(&pod)["command"]).last().unwrap().as_str().unwrap()), text);
        let prepare = &pod["spec"]["initContainers"][1];
        assert_eq!(expand(list(&prepare["command"]).last().unwrap().as_str().unwrap()), text);
    }
}

#[test]
fn variable_can_refer_to_secret() {
    let secret = SecretKey { name: "tokens".parse().unwrap(), key: "hub".into() };
    let request = Request::test(|server| {
        server.spec.env = vec![EnvVar { name: "TOKEN".into(), value: None, secret: Some(secret) }];
    });
    let pod = manifest(&request);
    let token = list(&main(&pod)["env"]).find(|variable| variable["name"] == "TOKEN").unwrap();
    assert_eq!(token["valueFrom"]["secretKeyRef"], json!({"name": "tokens", "key": "hub"}));
}

#[test]
fn gang_pod_has_peer_variables() {
    let gang = Request::new(DevServer::test().size("flavor-gpu", 2, 3).ephemeral("1Gi"));
    let pod = build(&gang, PodAssignment { ordinal: 1, ..assignment() });
    for (name, value) in [
        ("MASTER_ADDR", "server-1-0.server-1.dev-ada.svc"),
        ("MASTER_PORT", "29500"),
        ("RANK", "1"),
        ("NODE_RANK", "1"),
        ("WORLD_SIZE", "3"),
        ("ODC_HOSTFILE", "/odc/keys/hostfile"),
    ] {
        assert_eq!(variable(&pod, name), Some(value), "{name}");
    }
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("server-1-1"), &json!("server-1")));
    let single = manifest(&Request::new(DevServer::test()));
    assert_eq!((variable(&single, "MASTER_ADDR"), &single["spec"]["subdomain"]), (None, &Value::Null));
}

/// Returns the mounted claims of the main container with path and mode.
fn mounts(pod: &Value) -> Vec<(String, String, bool)> {
    let mounts = list(&main(pod)["volumeMounts"]).filter_map(|mount| {
        let volume = list(&pod["spec"]["volumes"]).find(|volume| volume["name"] == mount["name"]).unwrap();
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        Some((claim.to_owned(), mount["mountPath"].as_str().unwrap().to_owned(), mount["readOnly"] == true))
    });
    mounts.collect()
}

#[test]
fn claims_are_mounted_at_requested_paths() {
    let request = Request::test(|server| {
        let mut data = volume("claim-data", "/data");
        data.read_only = true;
        server.spec.volumes = vec![data, volume("claim-own", "/sets")];
    })
    .flavor(|flavor| flavor.volumes = vec![volume("claim-flavor", "/sets"), volume("claim-all", "/all")]);
    let expect = [
        ("claim-home", "/home/dev", false),
        ("claim-data", "/data", true),
        ("claim-own", "/sets", false),
        ("claim-all", "/all", false),
    ];
    let expect = expect.map(|(claim, path, read_only)| (claim.to_owned(), path.to_owned(), read_only));
    assert_eq!(mounts(&manifest(&request)), expect);
}

#[test]
fn mounts_have_volumes_and_unique_paths() {
    for privilege in [Privilege::Restricted, Privilege::Sudo] {
        for request in requests() {
            let pod = manifest(&request.flavor(|flavor| flavor.privilege = privilege));
            let volumes: Vec<&Value> = list(&pod["spec"]["volumes"]).map(|volume| &volume["name"]).collect();
            for container in containers(&pod) {
                let mut paths: Vec<&str> = Vec::new();
                for mount in list(&container["volumeMounts"]) {
                    assert!(volumes.contains(&&mount["name"]), "{mount}");
                    paths.push(mount["mountPath"].as_str().unwrap());
                }
                let all = paths.len();
                paths.sort_unstable();
                paths.dedup();
                assert_eq!(paths.len(), all, "{paths:?}");
            }
        }
    }
}

#[test]
fn server_has_bounded_shared_memory() {
    let pod = manifest(&Request::new(DevServer::test()));
    let shm = list(&pod["spec"]["volumes"]).find(|volume| volume["name"] == "shm").unwrap();
    assert_eq!(shm["emptyDir"], json!({"medium": "Memory", "sizeLimit": "120Gi"}));
}

#[test]
fn agent_is_installed_first_and_runs_as_init() {
    let pod = manifest(&requests()[5]);
    assert_eq!(pod["spec"]["initContainers"][0]["name"], AGENT);
    let command: Vec<&str> = list(&main(&pod)["command"]).filter_map(Value::as_str).collect();
    assert_eq!(command[..2], ["/odc/bin/odc-agent", "init"]);
    assert!(command.windows(2).any(|pair| pair == ["--setup", "/odc/keys/setup.sh"]));
    assert!(command.windows(2).any(|pair| pair == ["--pre-stop", "/odc/keys/pre-stop.sh"]));
    let grace = pod["spec"]["terminationGracePeriodSeconds"].to_string();
    assert!(command.windows(2).any(|pair| pair == ["--grace", grace.as_str()]));
}

#[test]
fn startup_files_are_created_once_per_home() {
    let action = |request: &Request, ordinal| {
        let pod = build(request, PodAssignment { ordinal, ..assignment() });
        let command: Vec<&str> = list(&main(&pod)["command"]).filter_map(Value::as_str).collect();
        let flag = command.iter().position(|word| *word == "--startup-files")?;
        Some(command[flag + 1].to_owned())
    };
    let recreate = Request::test(|server| {
        server.spec.setup = Some(Box::new(Setup { recreate_env: true, ..Setup::default() }));
    });
    assert_eq!(action(&recreate, 0).as_deref(), Some("recreate"));
    assert_eq!(action(&Request::new(DevServer::test()), 0).as_deref(), Some("create"));
    let gang = |server: DevServer| Request::new(server.size("flavor-gpu", 2, 2));
    assert_eq!(action(&gang(DevServer::test().ephemeral("1Gi")), 1).as_deref(), Some("create"));
    // The nodes share the claim.
    let shared = gang(DevServer::test()).claim(|state| state.claim.as_mut().unwrap().shared = true);
    assert_eq!(action(&shared, 1), None);
}

#[test]
fn pull_secrets_of_server_and_flavor_are_used() {
    let names = list(&manifest(&requests()[5])["spec"]["imagePullSecrets"]).cloned().collect::<Vec<_>>();
    assert_eq!(names, [json!({"name": "pull"}), json!({"name": "pull-all"})]);
    assert_eq!(manifest(&requests()[0])["spec"]["imagePullSecrets"], Value::Null);
}

#[test]
fn home_claim_is_mounted_at_home() {
    let request = Request::new(DevServer::test());
    assert!(matches!(request.server.spec.home, Home::Claim(_)));
    assert_eq!(mounts(&manifest(&request))[0].1, "/home/dev");
}

#[test]
fn banner_of_settings_is_passed_literally() {
    let settings = Settings { banner: Some("For $(WORK) only.".into()), ..settings() };
    let pod = Request::test(|_| {}).valid(|valid| pod(valid, assignment(), "key", &[], &settings, &[]).body);
    // Escaped, so that it is not expanded.
    assert_eq!(variable(&pod, "ODC_BANNER"), Some("For $$(WORK) only."));
}
