//! hack/quickstart.sh on a hub that exists, as docs/quickstart.md says. Making the cluster and the images is not tried.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use test_kit::ocm::ADDON_NAMESPACE;
use test_kit::wait_until;

use super::story::wait_left;
use super::{Fleet, TIMEOUT, command, kubectl, path};

fn quickstart(arguments: &[&str]) -> Command {
    let mut script = Command::new(path("hack/quickstart.sh"));
    script.arg("--existing-hub").args(arguments).env("HELM", "helm4");
    script
}

fn run(arguments: &[&str]) -> Output {
    quickstart(arguments).output().unwrap()
}

/// Ends it while Helm waits for the pods.
async fn interrupt() {
    let mut script = quickstart(&[]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let lines = BufReader::new(script.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).find(|line| line.contains("installing addon-signer")).unwrap();
    let is_installing = async || {
        let pods = kubectl(&["get", "pods", "-n", "addon-signer", "-o=name", "--ignore-not-found"]);
        (!pods.is_empty()).then_some(())
    };
    wait_until(TIMEOUT, "the first pod", is_installing).await;
    command("kill", &["-KILL", "--", &format!("-{}", script.id())]);
    assert!(!script.wait().unwrap().success());
}

/// What it prints; it must succeed.
fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout
}

/// The ledger was lost with the pod: the next one signs as before.
async fn the_next_pod_goes_on(fleet: &Fleet) {
    let message = r#"-o=jsonpath={.status.conditions[?(@.type=="Ready")].message}"#;
    let message = kubectl(&["get", "addonsigner/telemetry", message]);
    assert!(message.ends_with("is lost with the hub's pod (ledger.file.ephemeral)."), "{message}");
    kubectl(&["rollout", "restart", "-n", "addon-signer", "deployment/addon-signer"]);
    kubectl(&["rollout", "status", "-n", "addon-signer", "deployment/addon-signer", "--timeout=120s"]);
    let before = fleet.pair("telemetry-client-cert").await.certificate;
    kubectl(&["delete", "secret", "-n", ADDON_NAMESPACE, "telemetry-client-cert"]);
    let another = async || fleet.stored("telemetry-client-cert").await.filter(|pair| pair.certificate != before);
    wait_until(TIMEOUT, "a certificate from the next pod", another).await;
}

/// It ends with a request, goes on after an interruption, and leaves nothing but the objects of `before`.
pub(super) async fn quick_start(fleet: &Fleet, before: &BTreeSet<String>) {
    // The port is taken: nothing is made.
    kubectl(&["create", "service", "nodeport", "other", "--tcp=80", "--node-port=30443"]);
    let refused = run(&[]);
    let sentence = "the Service default/other has the node port 30443, which the gateway would have";
    assert!(String::from_utf8_lossy(&refused.stderr).contains(sentence), "{refused:?}");
    wait_left(before, &[]).await;
    kubectl(&["delete", "service", "other"]);
    // Somebody's own namespace: it is left alone.
    kubectl(&["create", "namespace", "observability"]);
    for arguments in [&[][..], &["--delete"]] {
        let refused = run(arguments);
        let sentence = "the hub has a namespace observability that this script has not made; it changes nothing";
        assert!(String::from_utf8_lossy(&refused.stderr).contains(sentence), "{refused:?}");
    }
    kubectl(&["delete", "namespace", "observability"]);
    // Somebody's own addon of the same name likewise.
    let settings = path("examples/telemetry/hub/settings.yaml");
    kubectl(&["create", "-f", &settings]);
    let refused = run(&[]);
    let sentence = "/telemetry already, which this script has not made; it changes nothing";
    assert!(String::from_utf8_lossy(&refused.stderr).contains(sentence), "{refused:?}");
    assert!(succeeds(&["--delete"]).contains("there is nothing that this script has made"));
    kubectl(&["delete", "-f", &settings]);
    wait_left(before, &[]).await;

    interrupt().await;
    let output = succeeds(&[]);
    println!("{output}");
    assert!(output.contains("\npushed\n"), "{output}");
    the_next_pod_goes_on(fleet).await;
    succeeds(&[]); // once more
    succeeds(&["--delete"]);
    wait_left(before, &[]).await;
    succeeds(&["--delete"]);
}
