//! kubectl on the stand-in, where kubectl is installed.

use std::process::{Command, Stdio};

use ::stand_in::StandIn;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;

use crate::stand_in::{mk_admin, mk_csr, mk_hub};

/// kubectl with a kubeconfig of a hub's administrator.
struct Kubectl {
    kubeconfig: std::path::PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    fn new(hub: &StandIn) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = |dir: std::path::PathBuf| dir.join("kubectl").is_file();
        if !std::env::split_paths(&path).any(installed) {
            eprintln!("kubectl is not on PATH: this test did nothing");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = home.path().join("kubeconfig");
        let admin = hub.kubeconfig("admin", &["system:masters"]);
        std::fs::write(&kubeconfig, serde_saphyr::to_string(&admin).unwrap()).unwrap();
        Some(Self { kubeconfig, home })
    }

    /// Standard output of `kubectl <line>`, which must succeed.
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
async fn kubectl_works_on_csrs() {
    let hub = mk_hub().await;
    let Some(kubectl) = Kubectl::new(&hub) else {
        return;
    };
    let mut csr = mk_csr("example.com/telemetry");
    csr.metadata.name = Some("one".to_owned());
    let one = kubectl.file("one.json", &csr);
    csr.metadata.name = Some("two".to_owned());
    let two = kubectl.file("two.json", &csr);
    kubectl.run(&format!("apply -f {one}")).await;
    kubectl.run(&format!("create -f {two}")).await;
    kubectl.run("certificate approve one").await;
    kubectl.run("certificate deny two").await;
    let table = kubectl.run("get csr").await;
    let state = |name: &str| {
        let row = table.lines().find(|row| row.starts_with(name)).unwrap();
        row.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!((state("one"), state("two")), ("Approved".into(), "Denied".into()));
    let described = kubectl.run("describe csr one").await;
    assert!(described.contains("Requesting User:    admin"), "{described}");
    kubectl.run("delete csr one two").await;
}

#[tokio::test]
async fn kubectl_works_on_other_objects() {
    let hub = mk_hub().await;
    let Some(kubectl) = Kubectl::new(&hub) else {
        return;
    };
    kubectl.run("create namespace cluster1").await;
    let secret = "-n cluster1 create secret generic s --from-literal=a=b";
    kubectl.run(secret).await;
    let client = mk_admin(&hub).await;
    let secrets: Api<Secret> = Api::namespaced(client, "cluster1");
    let stored = secrets.get("s").await.unwrap().data.unwrap();
    assert_eq!(stored["a"], ByteString(b"b".to_vec()));

    let signer = json!({ "apiVersion": "addon-signer.io/v1alpha1", "kind": "AddOnSigner",
        "metadata": { "name": "telemetry" }, "spec": { "signerName": "example.com/telemetry" } });
    let file = kubectl.file("signer.json", &signer);
    kubectl.run(&format!("apply -f {file}")).await;
    kubectl.run(&format!("apply -f {file}")).await;
    kubectl.run(&format!("apply --server-side --force-conflicts -f {file}")).await;
    kubectl.run("annotate ads telemetry a=b").await;
    let ready = r#"patch ads telemetry --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    kubectl.run(ready).await;
    kubectl.run("wait --for=condition=Ready ads/telemetry").await;
    let table = kubectl.run("get ads telemetry").await;
    assert!(table.contains("example.com/telemetry   True"), "{table}");
    kubectl.run("delete ads telemetry").await;
    kubectl.run("delete namespace cluster1").await;
    assert!(kubectl.run("auth whoami").await.contains("system:masters"));
}
