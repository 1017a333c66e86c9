//! What only a real API server can check of deploy/: schemas, pod security, RBAC.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{all_objects, all_sets, documented, installed, name, of_kind};
use test_kit::accounts::{ADDON_GROUP, AGENT_USER, GATEWAY_USER, HUB_GROUPS, HUB_USER};
use test_kit::deploy::{apply, params, patch};
use test_kit::needed::{Needed, has};
use test_kit::real::assets;
use test_kit::{TestHub, wait_until};

/// Starts a real hub; prints a line and returns `None` if there is none.
pub(super) async fn start() -> Option<TestHub> {
    if !has(Needed::ApiServer, assets().is_some()) {
        return None;
    }
    Some(TestHub::start().await)
}

/// Starts one and creates the namespaces and the CRD, because a dry run of everything else needs them.
pub(super) async fn prepared() -> Option<(TestHub, Client)> {
    let hub = start().await?;
    let admin = hub.admin().await;
    let mut first = installed();
    first.retain(|object| object["kind"] == "Namespace" || object["kind"] == "CustomResourceDefinition");
    for name in ["open-cluster-management-agent", "open-cluster-management-agent-addon", "observability"] {
        first.push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
    }
    apply(&admin, &first).await;
    Some((hub, admin))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_every_object_and_pod() {
    let Some((_hub, admin)) = prepared().await else { return };
    let dry_run = params().dry_run();
    for object in all_objects() {
        patch(&admin, &object, &dry_run).await.unwrap_or_else(|e| panic!("{}: {e}", name(&object)));
    }
    // The namespace enforces `restricted` for pods, not for the Deployments that make them.
    let pods: Api<Pod> = Api::namespaced(admin, "addon-signer");
    let dry_run = PostParams { dry_run: true, field_manager: None };
    for deployment in of_kind(&all_objects(), "Deployment") {
        let pod =
            |spec: &Value| serde_json::from_value::<Pod>(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let mut spec = deployment["spec"]["template"]["spec"].clone();
        pods.create(&dry_run, &pod(&spec)).await.unwrap();
        spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        let refusal = pods.create(&dry_run, &pod(&spec)).await.unwrap_err();
        assert!(refusal.to_string().contains("violates PodSecurity"), "{refusal}");
    }
}

/// The pod by which docs/ledger.md reaches the ledger's volume, as the user to whom the files belong.
#[tokio::test(flavor = "multi_thread")]
async fn documented_pod_may_run_beside_hub_with_its_volume_and_user() {
    let documented: Value = serde_saphyr::from_str(&documented("docs/ledger.md", "kind: Pod")).unwrap();
    let objects = installed();
    let deployments = of_kind(&objects, "Deployment");
    let hub_pods = deployments.iter().find(|deployment| name(deployment) == "addon-signer").unwrap();
    let pod = &hub_pods["spec"]["template"]["spec"];
    for field in ["securityContext", "volumes"] {
        assert_eq!(documented["spec"][field], pod[field], "{field}");
    }
    let Some((_hub, admin)) = prepared().await else { return };
    let pods: Api<Pod> = Api::namespaced(admin, "addon-signer");
    let dry_run = PostParams { dry_run: true, field_manager: None };
    pods.create(&dry_run, &serde_json::from_value(documented).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_and_agent_may_do_what_they_need_and_no_more() {
    let Some((_hub, admin)) = prepared().await else { return };
    for objects in all_sets() {
        apply(&admin, &objects).await;
    }
    apply(&admin, &installed()).await; // back to one signer, with another strategy
    for right in RIGHTS.lines().filter(|line| !line.is_empty()) {
        let columns: Vec<_> = right.split_whitespace().collect();
        let [account, expected, verb, group, resource, place] = columns[..] else {
            panic!("{right}");
        };
        let review = mk_review(account, verb, group, resource, place);
        // The authorizer learns of new roles by a watch, so wait for it.
        wait_until(Duration::from_secs(10), right, async || {
            (is_allowed(&admin, &review).await == (expected == "yes")).then_some(())
        })
        .await;
    }
}

/// The columns: account, allowed or not, verb, API group, resource, and the place: everywhere, one name, or a
/// namespace.
const RIGHTS: &str = "
hub   yes watch       certificates.k8s.io certificatesigningrequests          everywhere
hub   yes delete      certificates.k8s.io certificatesigningrequests          x
hub   yes update      certificates.k8s.io certificatesigningrequests/approval x
hub   yes update      certificates.k8s.io certificatesigningrequests/status   x
hub   no  update      certificates.k8s.io certificatesigningrequests          x
hub   yes sign        certificates.k8s.io signers addon-signer.io/gateway-serving
hub   yes sign        certificates.k8s.io signers addon-signer.io/gateway-client
hub   yes approve     certificates.k8s.io signers example.com/telemetry
hub   yes sign        certificates.k8s.io signers example.com/telemetry
hub   no  sign        certificates.k8s.io signers example.com/other
hub   no  sign        certificates.k8s.io signers example.com/*
hub   no  approve     certificates.k8s.io signers kubernetes.io/kube-apiserver-client
hub   no  sign        certificates.k8s.io signers kubernetes.io/kube-apiserver-client
hub   yes attest      certificates.k8s.io signers addon-signer.io/gateway-serving
hub   no  attest      certificates.k8s.io signers example.com/telemetry
hub   yes create      certificates.k8s.io clustertrustbundles everywhere
hub   yes delete      certificates.k8s.io clustertrustbundles addon-signer.io:gateway-serving:trust
hub   no  update      certificates.k8s.io clustertrustbundles x
hub   yes watch       cluster.open-cluster-management.io managedclusters           everywhere
hub   no  patch       cluster.open-cluster-management.io managedclusters           x
hub   yes list        addon.open-cluster-management.io managedclusteraddons        everywhere
hub   yes patch       addon.open-cluster-management.io managedclusteraddons/status in:cluster1
hub   no  patch       addon.open-cluster-management.io managedclusteraddons        in:cluster1
hub   yes watch       addon-signer.io addonsigners        everywhere
hub   yes watch       addon-signer.io addonroutes         everywhere
hub   yes patch       addon-signer.io addonroutes/status  in:observability
hub   no  patch       addon-signer.io addonroutes         in:observability
hub   yes watch       discovery.k8s.io endpointslices     everywhere
hub   no  update      discovery.k8s.io endpointslices     in:observability
hub   yes patch       addon-signer.io addonsigners/status x
hub   no  patch       addon-signer.io addonsigners        x
hub   no  get         addon-signer.io addonsigners        x
hub   no  update      addon-signer.io addonsigners/status x
hub   yes update      core secrets    in:addon-signer
hub   no  get         core secrets    in:default
hub   no  list        core secrets    everywhere
hub   yes update      core configmaps in:addon-signer
hub   no  get         core configmaps in:kube-system
hub   yes watch       core configmaps in:kube-system/extension-apiserver-authentication
hub   no  update      core configmaps in:kube-system/extension-apiserver-authentication
hub   yes patch       apiregistration.k8s.io apiservices v1alpha1.ledger.addon-signer.io
hub   no  patch       apiregistration.k8s.io apiservices v1.apps
hub   no  create      apiregistration.k8s.io apiservices everywhere
hub   no  list        ledger.addon-signer.io certificates everywhere
hub   yes create      coordination.k8s.io leases in:addon-signer
hub   yes update      coordination.k8s.io leases in:addon-signer/addon-signer
hub   yes watch       coordination.k8s.io leases in:addon-signer
hub   no  update      coordination.k8s.io leases in:addon-signer/other
hub   no  delete      coordination.k8s.io leases in:addon-signer/addon-signer
hub   no  get         coordination.k8s.io leases in:default/addon-signer
hub   yes create      events.k8s.io events in:default
hub   no  create      events.k8s.io events in:cluster1
hub   yes get         core pods  in:addon-signer/x
hub   no  get         core pods  in:default/x
hub   no  create      core pods  in:addon-signer
hub   no  impersonate core users x
gateway yes watch  addon-signer.io addonsigners        everywhere
gateway no  patch  addon-signer.io addonsigners        x
gateway no  patch  addon-signer.io addonsigners/status x
gateway no  patch  addon-signer.io addonroutes/status  in:observability
gateway yes create certificates.k8s.io certificatesigningrequests          everywhere
gateway no  update certificates.k8s.io certificatesigningrequests/approval x
gateway no  update certificates.k8s.io certificatesigningrequests/status   x
gateway no  delete certificates.k8s.io certificatesigningrequests          x
gateway no  sign   certificates.k8s.io signers addon-signer.io/gateway-serving
gateway no  approve certificates.k8s.io signers addon-signer.io/gateway-serving
gateway yes watch  core configmaps in:addon-signer/addon-signer-trust
gateway no  watch  core configmaps in:addon-signer/telemetry-client-ca
gateway no  update core configmaps in:addon-signer/addon-signer-trust
gateway no  get    core secrets    in:addon-signer
gateway no  list   core secrets    in:addon-signer
gateway no  create core pods       in:addon-signer
gateway no  patch  addon.open-cluster-management.io managedclusteraddons/status in:cluster1
gateway no  list   addon.open-cluster-management.io addontemplates everywhere
gateway yes update coordination.k8s.io leases in:addon-signer
gateway no  delete coordination.k8s.io leases in:addon-signer
gateway no  list   coordination.k8s.io leases in:addon-signer
gateway yes list   certificates.k8s.io clustertrustbundles everywhere
gateway no  create certificates.k8s.io clustertrustbundles everywhere
gateway no  get    core configmaps in:addon-signer/addon-signer-ledger
gateway no  list   ledger.addon-signer.io certificates everywhere
gateway no  patch  addon-signer.io addonroutes in:observability
gateway no  patch  core services in:observability
gateway no  patch  core namespaces x
gateway no  patch  discovery.k8s.io endpointslices in:observability
gateway no  patch  cluster.open-cluster-management.io managedclusters x
gateway no  patch  addon.open-cluster-management.io managedclusteraddons in:cluster1
gateway no  create work.open-cluster-management.io manifestworks in:cluster1
gateway no  create core serviceaccounts/token in:addon-signer/addon-signer
gateway no  impersonate core users x
agent yes create core secrets in:open-cluster-management-agent-addon
agent yes update core secrets in:open-cluster-management-agent-addon/telemetry-client-cert
agent no  get    core secrets in:open-cluster-management-agent/hub-kubeconfig-secret
agent no  delete core secrets in:open-cluster-management-agent-addon/telemetry-client-cert
agent no  list   core secrets in:open-cluster-management-agent-addon
agent no  create core secrets in:default
agent no  create certificates.k8s.io certificatesigningrequests everywhere
addon yes create certificates.k8s.io certificatesigningrequests everywhere
addon no  sign   certificates.k8s.io signers example.com/telemetry
addon yes get    core configmaps in:addon-signer/addon-signer-trust
addon no  get    core configmaps in:addon-signer/telemetry-client-ca
addon no  list   core configmaps in:addon-signer
addon no  update core configmaps in:addon-signer/addon-signer-trust
addon no  get    core secrets    in:addon-signer
";

fn mk_review(account: &str, verb: &str, group: &str, resource: &str, place: &str) -> SubjectAccessReview {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (namespace, name) = match place.strip_prefix("in:") {
        Some(place) => place.split_once('/').unwrap_or((place, "")),
        None if place == "everywhere" => ("", ""),
        None => ("", place),
    };
    let (user, groups) = match account {
        "hub" => (HUB_USER, HUB_GROUPS.as_slice()),
        "gateway" => (GATEWAY_USER, HUB_GROUPS.as_slice()),
        "addon" => ("system:open-cluster-management:cluster:a:addon:telemetry:agent:a", [ADDON_GROUP].as_slice()),
        _ => (AGENT_USER, [].as_slice()),
    };
    let group = if group == "core" { "" } else { group };
    let attributes = json!({
        "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        "name": name, "namespace": namespace,
    });
    let spec = json!({ "user": user, "groups": groups, "resourceAttributes": attributes });
    serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
}

async fn is_allowed(admin: &Client, review: &SubjectAccessReview) -> bool {
    let reviews: Api<SubjectAccessReview> = Api::all(admin.clone());
    let answer = reviews.create(&PostParams::default(), review).await.unwrap();
    answer.status.is_some_and(|status| status.allowed)
}
