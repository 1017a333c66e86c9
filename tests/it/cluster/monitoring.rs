//! The dashboard: Prometheus scrapes the pods during a story, and each query of each panel has an answer.

use std::path::Path;

use hyper::Method;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use tempfile::TempDir;
use test_kit::process::{Process, free_port};
use test_kit::request::mk_csr;
use test_kit::wait::wait_or_explain;

use super::{CLUSTER, Fleet, GATEWAY, PATIENCE, command, gateway, path};

/// As the chart's PodMonitor, but each second. Pods come and go, so Prometheus asks the API server for them.
const CONFIG: &str = r#"
global: { scrape_interval: 1s }
rule_files: [ALERTS]
scrape_configs:
  - job_name: addon-signer
    kubernetes_sd_configs: [{ role: pod, kubeconfig_file: KUBECONFIG, namespaces: { names: [addon-signer] } }]
    relabel_configs:
      - { source_labels: [__meta_kubernetes_pod_container_port_name], regex: metrics, action: keep }
      - { source_labels: [__meta_kubernetes_pod_name], target_label: pod }
"#;

pub(super) struct Prometheus {
    url: String,
    process: Process,
    _dir: TempDir,
}

impl Prometheus {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = std::env::var("KUBECONFIG").unwrap();
        let config = CONFIG.replace("KUBECONFIG", &kubeconfig);
        let config = config.replace("ALERTS", &path("deploy/chart/files/alerts.yaml"));
        std::fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let port = free_port();
        let flags = [
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=data".to_owned(),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let process = Process::start(Path::new("prometheus"), &flags, dir.path());
        Self { url: format!("http://127.0.0.1:{port}"), process, _dir: dir }
    }

    /// The series that a query has now.
    fn series(&self, query: &str) -> Vec<Value> {
        let query = format!("query={query}");
        let url = format!("{}/api/v1/query", self.url);
        let answer = std::process::Command::new("curl")
            .args(["--silent", "--show-error", "--data-urlencode", &query, &url])
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until every query of the dashboard has an answer that is a number.
    pub(super) async fn answers_every_panel(&self) {
        let dashboard: Value = serde_json::from_str(&dashboard()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() >= 30);
        for panel in panels {
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
                let is_number = |series: &Value| series["value"][1].as_str().is_some_and(|value| value != "NaN");
                let has_answer = async || self.series(&query).iter().any(is_number).then_some(());
                let what = format!("the panel {}: {query}", panel["title"]);
                wait_or_explain(PATIENCE, &what, has_answer, || self.process.tail()).await;
            }
        }
    }

    /// No series names the cluster, whatever it has done.
    pub(super) fn names_no_cluster(&self) {
        let all = self.series(r#"{__name__=~"addon_signer_.+"}"#);
        assert!(all.len() > 100, "{}", all.len());
        for series in all {
            let labels = series["metric"].to_string();
            assert!(!labels.contains(&format!("\"{CLUSTER}\"")), "{labels}");
        }
    }
}

fn dashboard() -> String {
    std::fs::read_to_string(path("deploy/chart/files/dashboard.json")).unwrap()
}

/// What the gateway and the signer refuse: a path without a route, a client without a certificate, and a request by an
/// administrator.
pub(super) async fn misbehave(fleet: &Fleet) {
    let pair = fleet.pair("telemetry-client-cert").await;
    let (status, _) = pair.call(gateway(), Method::GET, "/addons/telemetry/nothing").await.unwrap();
    assert_eq!(status, 404);
    let url = format!("https://10.99.0.1:{}/v1/whoami", GATEWAY.1);
    let refused = std::process::Command::new("curl").args(["--silent", "--insecure", &url]).output().unwrap();
    assert!(!refused.status.success());
    let requests: Api<CertificateSigningRequest> = Api::all(fleet.admin.clone());
    requests.create(&PostParams::default(), &mk_csr(CLUSTER, "telemetry")).await.unwrap();
}

#[test]
fn the_dashboard_is_what_its_table_says() {
    let built =
        "import runpy, json; print(json.dumps(runpy.run_path('tests/dashboard/build.py')['DASHBOARD'], indent=1))";
    let built = command("python3", &["-c", built]);
    assert!(built == dashboard(), "deploy/chart/files/dashboard.json is stale: run tests/dashboard/build.py");
}
