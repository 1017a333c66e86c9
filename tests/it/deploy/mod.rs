//! The objects of deploy/: what they grant, how their pods run, and that an API server accepts them.

mod bad_specs;
mod families;
mod gateways;
mod on_api_server;
mod on_stand_in;
mod rights;
mod rights_page;
mod routes;
mod signers;
mod tables;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use test_kit::deploy::{checkout, documented, everything, file, installed, name, of_kind};

/// The agent on a managed cluster.
const AGENT: &str = "deploy/agent.yaml";
const EXAMPLES: [&str; 2] = ["deploy/example/signer.yaml", "deploy/example/route.yaml"];

/// The chart with default values, the chart with every part, the agent, and the examples.
fn all_sets() -> [Vec<Value>; 4] {
    let [signer, route] = EXAMPLES.map(file);
    [installed(), everything(), file(AGENT), [signer, route].concat()]
}

fn all_objects() -> Vec<Value> {
    all_sets().concat()
}

fn items<'a>(object: &'a Value, pointer: &str) -> Vec<&'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten().collect()
}

fn contains(rule: &Value, field: &str, wanted: &str) -> bool {
    items(rule, &format!("/{field}")).into_iter().any(|item| item == wanted)
}

fn rules<'a>(objects: &'a [Value], kind: &str) -> Vec<(&'a str, &'a Value)> {
    let roles = of_kind(objects, kind).into_iter();
    roles.flat_map(|role| items(role, "/rules").into_iter().map(|rule| (name(role), rule))).collect()
}

#[test]
fn no_rule_has_a_wildcard() {
    let objects = all_objects();
    let all = ["ClusterRole", "Role"].into_iter().flat_map(|kind| rules(&objects, kind));
    for (role, rule) in all {
        assert!(!rule.to_string().contains('*'), "{role}: {rule}");
    }
}

#[test]
fn secrets_are_granted_only_inside_a_namespace() {
    for (role, rule) in rules(&all_objects(), "ClusterRole") {
        assert!(!contains(rule, "resources", "secrets"), "{role}: {rule}");
        assert!(!contains(rule, "resources", "configmaps"), "{role}: {rule}");
    }
}

/// Gateways apart from the signer trust the authorities that stand there.
#[test]
fn only_the_hub_writes_the_status_of_an_addonsigner() {
    let objects = all_objects();
    let all = ["ClusterRole", "Role"].into_iter().flat_map(|kind| rules(&objects, kind));
    let writers: BTreeSet<_> =
        all.filter(|(_, rule)| contains(rule, "resources", "addonsigners/status")).map(|(role, _)| role).collect();
    assert_eq!(writers, ["addon-signer-hub"].into());
}

/// Otherwise gateways that serve nobody keep a node from being drained.
#[test]
fn pods_that_are_not_ready_do_not_hold_up_a_drain() {
    let objects = everything();
    let budgets = of_kind(&objects, "PodDisruptionBudget");
    assert!(!budgets.is_empty());
    for budget in budgets {
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{}", name(budget));
    }
}

/// kube-proxy sends a pod what a load balancer still sends to its node only until kubelet takes the pod for unready.
#[test]
fn a_gateway_that_ends_gets_connections_until_its_delay_is_over() {
    for objects in [installed(), everything()] {
        let deployment = *of_kind(&objects, "Deployment").iter().find(|it| name(it) == "addon-signer-gateway").unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let argument = |wanted| items(container, "/args").into_iter().find_map(|it| it.as_str()?.strip_prefix(wanted));
        let delay: u64 = argument("--shutdown-delay=").unwrap().strip_suffix('s').unwrap().parse().unwrap();
        let probe = &container["readinessProbe"];
        let unready = probe["periodSeconds"].as_u64().unwrap() * (probe["failureThreshold"].as_u64().unwrap() - 1);
        assert!(unready > delay, "{probe}");
        assert_eq!(deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], delay + 25);
        assert_eq!(deployment["spec"]["minReadySeconds"], delay);
        assert!(deployment["spec"]["progressDeadlineSeconds"].as_u64().unwrap() > delay, "Kubernetes requires it");
    }
}

#[test]
fn pods_are_spread_by_their_own_labels() {
    for deployment in [installed(), everything()].iter().flat_map(|objects| of_kind(objects, "Deployment")) {
        let constraints = items(deployment, "/spec/template/spec/topologySpreadConstraints");
        assert!(!constraints.is_empty(), "{}", name(deployment));
        for constraint in constraints {
            assert_eq!(constraint["labelSelector"], deployment["spec"]["selector"], "{constraint}");
        }
    }
}

#[test]
fn the_agent_reads_and_changes_only_its_own_secret() {
    for (role, rule) in rules(&file(AGENT), "Role") {
        let only_create = rule["verbs"] == json!(["create"]);
        let only_its_own = rule["resourceNames"] == json!(["telemetry-client-cert"]);
        assert!(only_create || only_its_own, "{role}: {rule}");
    }
}

#[test]
fn every_right_to_sign_names_one_signer() {
    let objects = everything();
    let signers: Vec<_> = rules(&objects, "ClusterRole")
        .into_iter()
        .filter(|(_, rule)| contains(rule, "resources", "signers"))
        .map(|(role, rule)| (role, &rule["resourceNames"]))
        .collect();
    assert_eq!(
        signers,
        [
            ("addon-signer-hub", &json!(["addon-signer.io/gateway-serving", "addon-signer.io/gateway-client"])),
            ("addon-signer-cluster-trust-bundle", &json!(["addon-signer.io/gateway-serving"])),
            ("addon-signer-signers", &json!(["example.com/telemetry"])),
        ]
    );
}

#[test]
fn bindings_are_to_our_own_accounts_and_existing_roles() {
    for objects in all_sets() {
        for kind in ["ClusterRole", "Role"] {
            for binding in of_kind(&objects, &format!("{kind}Binding")) {
                assert_eq!(binding["roleRef"]["kind"], kind);
                // A role of Kubernetes for aggregated API servers, which grants one ConfigMap of kube-system.
                let built_in = binding["roleRef"]["name"] == "extension-apiserver-authentication-reader";
                let role = of_kind(&objects, kind).into_iter().find(|role| {
                    role["metadata"]["name"] == binding["roleRef"]["name"]
                        && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
                });
                assert!(role.is_some() || built_in, "{}: its role is not there", name(binding));
                for subject in items(binding, "/subjects") {
                    // OCM's group of the addon's own agents, which are no accounts of this cluster.
                    let addon = subject["name"] == "system:open-cluster-management:addon:telemetry";
                    let is_for_addons = ["addon-signer-requesters", "addon-signer-trust-readers"];
                    let is_for_addons = is_for_addons.contains(&name(binding));
                    let kind = if is_for_addons && addon { "Group" } else { "ServiceAccount" };
                    assert_eq!(subject["kind"], kind, "{}", name(binding));
                }
            }
        }
    }
}

#[test]
fn pods_are_restricted_and_their_root_is_read_only() {
    let objects = all_objects();
    let deployments = of_kind(&objects, "Deployment");
    assert_eq!(deployments.len(), 5);
    for deployment in deployments {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{}", name(deployment));
        assert_eq!(pod["securityContext"]["runAsUser"], 65532, "{}", name(deployment));
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(pod.get(field), None, "{}", name(deployment));
        }
        for container in items(pod, "/containers") {
            assert_eq!(
                container["securityContext"],
                json!({
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                })
            );
            assert!(container["resources"]["limits"]["memory"].is_string());
        }
    }
}

#[test]
fn never_two_hubs_or_agents_at_once() {
    let objects = [installed(), file(AGENT)].concat();
    let deployments = of_kind(&objects, "Deployment").into_iter();
    for deployment in deployments.filter(|deployment| name(deployment) != "addon-signer-gateway") {
        assert_eq!(deployment["spec"]["replicas"], 1);
        assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    }
}

#[test]
fn the_namespace_enforces_restricted() {
    let objects = installed();
    let namespace = of_kind(&objects, "Namespace")[0];
    let labels = &namespace["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
}

/// While an aggregated API is down, Kubernetes finishes no deletion of a namespace, so nobody has one unasked.
#[test]
fn the_inventory_is_only_a_component() {
    let base = installed();
    assert!(of_kind(&base, "APIService").is_empty());
    let named: Vec<_> = base.iter().filter(|object| object.to_string().contains("inventory")).map(name).collect();
    assert_eq!(named, [""; 0]);
    assert!(!json!(of_kind(&base, "NetworkPolicy")).to_string().contains("8444"));
}

#[test]
fn the_image_runs_as_the_user_of_the_manifests() {
    let dockerfile = std::fs::read_to_string(checkout().join("Dockerfile")).unwrap();
    assert!(dockerfile.contains("USER 65532:65532"));
    assert_eq!(bases(&dockerfile).last(), Some(&("scratch", "addon-signer")));
}

/// What each stage is made from unless an argument says otherwise, and its name.
fn bases(dockerfile: &str) -> Vec<(&str, &str)> {
    let arguments: Vec<_> = dockerfile.lines().filter_map(|line| line.strip_prefix("ARG ")?.split_once('=')).collect();
    let default = |base| {
        let of_argument = arguments.iter().find(|(name, _)| base == format!("${{{name}}}"));
        of_argument.map_or(base, |(_, default)| *default)
    };
    let stages = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")?.split_once(" AS "));
    stages.map(|(base, stage)| (default(base), stage)).collect()
}

/// Who can move a tag would change every image that is built after that.
#[test]
fn the_bases_of_images_are_named_by_digest() {
    for file in ["Dockerfile", "examples/telemetry/Dockerfile"] {
        let text = std::fs::read_to_string(checkout().join(file)).unwrap();
        let stages = bases(&text);
        assert!(stages.len() > 2, "{file}");
        for (base, _) in &stages {
            let is_own = *base == "scratch" || stages.iter().any(|(_, stage)| stage == base);
            let digest = base.split_once("@sha256:").map(|(_, digest)| digest.len());
            assert!(is_own || digest == Some(64), "{file}: {base}");
        }
    }
}
