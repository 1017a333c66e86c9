//! Tests of kubectl on the stand-in, if kubectl is installed.

use std::process::{Command, Stdio};

use ::stand_in::StandIn;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::stand_in::{mk_admin, mk_csr, mk_hub};
use test_kit::accept_cluster;
use test_kit::needed::{Needed, has};

/// kubectl with the kubeconfig of a hub's administrator.
struct Kubectl {
    kubeconfig: std::path::PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    fn new(hub: &StandIn) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = |dir: std::path::PathBuf| dir.join("kubectl").is_file();
        if !has(Needed::Kubectl, std::env::split_paths(&path).any(installed)) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = home.path().join("kubeconfig");
        let admin = hub.kubeconfig("admin", &["system:masters"]);
        std::fs::write(&kubeconfig, serde_saphyr::to_string(&admin).unwrap()).unwrap();
        Some(Self { kubeconfig, home })
    }

    /// Runs `kubectl <line>`, which must succeed; returns its standard output.
    async fn run(&self, line: &str) -> String {
        let mut command = Command::new("kubectl");
        command
            .arg("--request-timeout=15s")
            .args(line.split_whitespace())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output());
        let output = output.await.unwrap().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {line}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(&self, name: &str, document: &impl serde::Serialize) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, serde_json::to_vec(document).unwrap()).unwrap();
        path.display().to_string()
    }
}

#[tokio::test]
async fn people_look_at_requests_and_clusters() {
    let hub = mk_hub().await;
    let Some(kubectl) = Kubectl::new(&hub) else {
        return;
    };
    let admin = mk_admin(&hub).await;
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let mut csr = mk_csr("example.com/telemetry");
    csr.metadata.name = Some("one".to_owned());
    requests.create(&PostParams::default(), &csr).await.unwrap();
    let table = kubectl.run("get csr").await;
    assert!(table.contains("example.com/telemetry"), "{table}");
    assert!(table.contains("Pending"), "{table}");
    let described = kubectl.run("describe csr one").await;
    assert!(described.contains("Requesting User:    admin"), "{described}");
    accept_cluster(&admin, "cluster1").await;
    assert!(kubectl.run("get managedclusters").await.contains("cluster1"));
    let described = kubectl.run("describe managedcluster cluster1").await;
    assert!(described.contains("Hub Accepts Client:      true"), "{described}");
}

#[tokio::test]
async fn people_apply_and_annotate_addon_signers() {
    let hub = mk_hub().await;
    let Some(kubectl) = Kubectl::new(&hub) else {
        return;
    };
    let signer = json!({ "apiVersion": "addon-signer.io/v1alpha1", "kind": "AddOnSigner",
        "metadata": { "name": "telemetry" },
        "spec": { "signerName": "example.com/telemetry", "addOns": ["telemetry"] } });
    let file = kubectl.file("signer.json", &signer);
    kubectl.run(&format!("apply -f {file}")).await;
    kubectl.run(&format!("apply -f {file}")).await;
    kubectl.run("annotate ads telemetry a=b").await;
    let ready =
        r#"{"status":{"addOnList":"telemetry","conditions":[{"type":"Ready","status":"True","reason":"Signing"}]}}"#;
    kubectl.run(&format!("patch ads telemetry --subresource=status --type=merge -p {ready}")).await;
    kubectl.run("wait --for=condition=Ready ads/telemetry").await;
    let table = kubectl.run("get ads telemetry").await;
    let row = ["telemetry", "example.com/telemetry", "telemetry", "True", "Signing"];
    assert!(table.lines().any(|line| line.split_whitespace().take(5).eq(row)), "{table}");
    assert!(kubectl.run("get addon-signer -A").await.contains("addonsigner.addon-signer.io/telemetry"));
    assert!(kubectl.run("describe ads telemetry").await.contains("Annotations:  a: b"));
    kubectl.run("delete ads telemetry").await;
}

/// A link by this name on the PATH makes the program a plugin, as docs/install.md says.
#[tokio::test]
async fn the_program_is_a_plugin_of_kubectl() {
    let hub = mk_hub().await;
    let Some(kubectl) = Kubectl::new(&hub) else {
        return;
    };
    let plugins = kubectl.home.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let program = env!("CARGO_BIN_EXE_addon-signer");
    std::os::unix::fs::symlink(program, plugins.join("kubectl-addon_signer")).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([plugins].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new("kubectl");
    // kubectl accepts no flag before the name of a plugin.
    command.args(["addon-signer", "check", "--output=json"]).env("PATH", path).env("HOME", kubectl.home.path());
    command.env("KUBECONFIG", &kubectl.kubeconfig).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let served = findings.as_array().unwrap().iter().any(|found| found["about"] == "API" && found["verdict"] == "good");
    assert!(served, "{findings}");
}
