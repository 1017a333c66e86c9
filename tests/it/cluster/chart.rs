//! The chart: what it renders, by both versions of Helm, and that the API server accepts it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use test_kit::needed::{Needed, has};
use test_kit::real::assets;

use super::{TURN, command, kubectl, kubectl_wait, path};

const HELMS: [&str; 2] = ["helm3", "helm4"];
/// A namespace of another name than the usual one.
const NAMESPACE: &str = "pki";

/// Whether this runs in the cluster of `tests/real/cluster.sh`, which has Helm.
fn is_cluster() -> bool {
    has(Needed::Cluster, std::env::var_os("ADDON_SIGNER_CLUSTER").is_some())
}

/// What `helm template` prints.
fn render(helm: &str, namespace: &str, more: &[&str]) -> String {
    let chart = path("deploy/chart");
    command(helm, &[&["template", "addon-signer", &chart, "--namespace", namespace], more].concat())
}

/// What `helm template` says about values that it refuses.
fn refusal(helm: &str, more: &[&str]) -> String {
    let chart = path("deploy/chart");
    let arguments = [&["template", "addon-signer", &chart, "--namespace=pki"], more].concat();
    let output = Command::new(helm).args(&arguments).output().unwrap();
    assert!(!output.status.success(), "{helm} {arguments:?} was accepted");
    String::from_utf8(output.stderr).unwrap()
}

/// The objects by kind, namespace and name.
fn objects(text: &str) -> BTreeMap<String, Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
    };
    let all: Vec<_> = all.into_iter().filter(|object| !object.is_null()).collect();
    let named: BTreeMap<_, _> = all.iter().map(|object| (name(object), object.clone())).collect();
    assert_eq!(named.len(), all.len(), "two objects have one name");
    named
}

/// The files of values that combine what belongs together, besides the default.
fn combinations() -> Vec<String> {
    let files = std::fs::read_dir(path("deploy/chart/ci")).unwrap();
    files.map(|file| file.unwrap().path().display().to_string()).collect()
}

#[test]
fn files_in_the_tree_are_what_the_chart_renders() {
    if !is_cluster() {
        return;
    }
    let values = |name: &str| vec![format!("--values={}", path(&format!("deploy/chart/ci/{name}.yaml")))];
    let of_families = ["templates/*/service.yaml", "templates/*/deployment.yaml", "templates/network-policies.yaml"];
    let of_families = of_families.map(|file| format!("--show-only={file}"));
    let mut files = vec![
        ("deploy/install.yaml".to_owned(), vec!["--set=namespace.create=true,check.enabled=false".to_owned()]),
        ("tests/golden/chart/everything.yaml".to_owned(), values("everything")),
    ];
    files.extend(
        ["ipv4", "ipv6", "both-families"]
            .map(|name| (format!("tests/golden/chart/{name}.yaml"), [values(name), of_families.to_vec()].concat())),
    );
    for (file, values) in files {
        let values = values.iter().map(String::as_str);
        let rendered =
            render("helm4", "addon-signer", &std::iter::once("--skip-tests").chain(values).collect::<Vec<_>>());
        let committed = std::fs::read_to_string(path(&file)).unwrap();
        // The first line says how it was made.
        let (_, committed) = committed.split_once('\n').unwrap();
        assert!(committed.trim_end() == rendered.trim_end(), "{file} is stale: run deploy/render.sh");
    }
}

#[test]
fn lint_has_nothing_to_say() {
    if !is_cluster() {
        return;
    }
    for helm in HELMS {
        for values in combinations() {
            let message = command(helm, &["lint", "--strict", &path("deploy/chart"), "--values", &values]);
            assert!(message.contains("0 chart(s) failed"), "{message}");
        }
    }
}

#[test]
fn api_server_accepts_every_combination_of_both_helms() {
    if !is_cluster() {
        return;
    }
    let _turn = TURN.blocking_lock();
    let others = assets().unwrap().join("crds/others");
    kubectl(&["apply", "--server-side", "-f", others.to_str().unwrap()]);
    kubectl_wait("condition=Established", &["-f", others.to_str().unwrap()]);
    kubectl(&["create", "namespace", NAMESPACE]);
    let combinations = combinations();
    assert!(combinations.len() >= 12);
    for values in &combinations {
        let [with_3, with_4] =
            HELMS.map(|helm| objects(&render(helm, NAMESPACE, &["--skip-tests", "--values", values])));
        assert_eq!(with_3, with_4, "{values}");
        let text = with_4.values().map(|object| format!("---\n{object}\n")).collect::<String>();
        assert!(!text.contains(r#""namespace":"addon-signer""#), "{values}: it names the usual namespace");
        for (name, object) in &with_4 {
            let labels = &object["metadata"]["labels"];
            assert!(labels["app.kubernetes.io/name"] == "addon-signer", "{values}: {name} has no labels");
            assert!(labels["app.kubernetes.io/component"].is_string(), "{values}: {name} belongs to no part");
        }
        dry_run(values, &text);
    }
    kubectl(&["delete", "namespace", NAMESPACE]);
    kubectl(&["delete", "-f", others.to_str().unwrap()]);
}

/// Sends the objects to the API server, which stores none of them.
fn dry_run(values: &str, text: &str) {
    let mut child = Command::new("kubectl")
        .args(["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{values}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The templates for addons, in the chart of an addon, as docs/writing-an-addon.md shows it.
#[test]
fn library_brings_the_agent_into_an_addons_pods() {
    if !is_cluster() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let chart = dir.path().join("logging").display().to_string();
    command("cp", &["-r", &path("tests/it/cluster/addon-chart"), &chart]);
    let library = format!("file://{}", path("deploy/agent-chart"));
    let file = format!("{chart}/Chart.yaml");
    let text = std::fs::read_to_string(&file).unwrap().replace("file://../../../../deploy/agent-chart", &library);
    std::fs::write(&file, text).unwrap();
    let values = ["--set-string=addonSigner.onRenew=kill -HUP 1", "--set=addonSigner.args={--agent=a}"];
    let [with_3, with_4] = HELMS.map(|helm| {
        command(helm, &["dependency", "update", &chart]);
        let more = [&["template", "logging", &chart, "--namespace=default", "--kube-version=1.36"], &values[..]];
        command(helm, &more.concat())
    });
    assert_eq!(objects(&with_3), objects(&with_4));
    dry_run("the addon's chart", &with_4);
    let all = objects(&with_4);
    let pod = &all["Deployment /logging"]["spec"]["template"]["spec"];
    let args = pod["initContainers"][0]["args"].as_array().unwrap();
    for argument in ["--on-renew=kill -HUP 1", "--agent=a", "--secret-namespace=default", "--owner=deployment/logging"]
    {
        assert!(args.iter().any(|it| it == argument), "{argument}: {args:?}");
    }
    let allowed = &all["NetworkPolicy /logging"]["spec"]["egress"][0]["ports"][0]["port"];
    assert_eq!(allowed, 30443, "the gateway's port");
    let lacking = ["template", "logging", &chart, "--namespace=default", "--set=addonSigner.cluster="];
    let output = Command::new("helm4").args(lacking).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("set addonSigner.cluster"));
}

/// A value, and words that name what is wrong.
const REFUSED: [(&[&str], &str); 22] = [
    (&["servingRoots.configMap=roots"], "begin the name with addon-signer-"),
    (&["servingRoots.configMap=addon-signer-roots"], "only with --serving-trust=Root"),
    (&["image.registry=ocm"], "'/image/registry'"),
    (&["ledger.file.ephemeral=true", "ledger.file.existingClaim=mine"], "choose one"),
    (&["gatway.names={a.example}"], "additional properties 'gatway' not allowed"),
    (&["gateway.separate=perhaps"], "'/gateway/separate'"),
    (&["gateway.service.type=Ingress"], "'/gateway/service/type'"),
    (&["gateway.names={https://gateway.example}"], "'/gateway/names/0'"),
    (&["gateway.args={-v}"], "'/gateway/args/0'"),
    (&["gateway.args={--shutdown-delay=20s}"], "is set by gateway.shutdownDelaySeconds"),
    (&["image.digest=latest"], "'/image/digest'"),
    (&["signers[0].name=kubernetes.io/kube-apiserver-client"], "kube-apiserver-client is reserved"),
    (&["signers[0].name=addon-signer.io/gateway-serving"], "gateway-serving is reserved"),
    (&["gateway.names={300.1.1.1}"], "'/gateway/names/0'"),
    (&["gateway.service.nodePort=30443"], "a Service of type ClusterIP has none"),
    (&["gateway.service.loadBalancerClass=x"], "need gateway.service.type: LoadBalancer"),
    (&[r"signer.podLabels.app\.kubernetes\.io/component=x"], "component is the chart's own"),
    (&["signers[0].name=example.com/*"], "'/signers/0/name'"),
    (&["gateway.tlsRoute.enabled=true", "gateway.names={a.example}"], "'/gateway/tlsRoute/parentRefs'"),
    (&["signer.replicas=2", "gateway.separate=false"], "a second signer needs gateway.separate"),
    (&["signer.replicas=2"], "a second signer needs ledger.postgres.enabled"),
    (&["gateway.ingress.enabled=true", "gateway.names={192.0.2.7}"], "put one into gateway.names"),
];

#[test]
fn values_that_cannot_work_are_refused_by_name() {
    if !is_cluster() {
        return;
    }
    for helm in HELMS {
        for (values, words) in REFUSED {
            let arguments: Vec<_> = values.iter().flat_map(|value| ["--set", value]).collect();
            let message = refusal(helm, &arguments);
            assert!(message.contains(words), "{helm} {values:?}: {message}");
        }
        let message = refusal(helm, &["--namespace=default"]);
        assert!(message.contains("install with --namespace addon-signer"), "{message}");
    }
}
