//! The dashboard: Prometheus scrapes the pods during a story, and each query of each panel has an answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_kit::process::{Process, free_port};
use test_kit::request::mk_csr;
use test_kit::wait::wait_or_explain;
use tokio_util::task::AbortOnDropHandle;

use super::{CLUSTER, Fleet, GATEWAY, TIMEOUT, command, gateway, path};

/// As the chart's PodMonitor, but each second. Debian's Prometheus cannot ask the API server which pods there are.
const CONFIG: &str = "
global: { scrape_interval: 1s }
rule_files: [ALERTS]
scrape_configs:
  - job_name: addon-signer
    file_sd_configs: [{ files: [pods.json], refresh_interval: 1s }]
";

pub(super) struct Prometheus {
    url: String,
    process: Process,
    _follows: AbortOnDropHandle<()>,
    _dir: TempDir,
}

/// Writes the addresses of the pods, which come and go, into the file that Prometheus watches.
async fn follow(admin: Client, dir: PathBuf) {
    let pods: Api<Pod> = Api::namespaced(admin, "addon-signer");
    let ours = ListParams::default().labels("app.kubernetes.io/component in (hub, gateway)");
    loop {
        // A list that fails is asked for again.
        if let Ok(found) = pods.list(&ours).await {
            let target = |pod: Pod| {
                let address = pod.status.as_ref()?.pod_ip.clone()?;
                Some(json!({ "targets": [format!("{address}:9090")], "labels": { "pod": pod.name_any() } }))
            };
            let targets: Vec<_> = found.items.into_iter().filter_map(target).collect();
            std::fs::write(dir.join("new.json"), json!(targets).to_string()).unwrap();
            std::fs::rename(dir.join("new.json"), dir.join("pods.json")).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

impl Prometheus {
    pub(super) fn start(admin: Client) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = CONFIG.replace("ALERTS", &path("deploy/chart/files/alerts.yaml"));
        std::fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let port = free_port();
        let flags = [
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=data".to_owned(),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let process = Process::start(Path::new("prometheus"), &flags, dir.path());
        let follows = AbortOnDropHandle::new(tokio::spawn(follow(admin, dir.path().to_owned())));
        Self { url: format!("http://127.0.0.1:{port}"), process, _follows: follows, _dir: dir }
    }

    /// The series that a query has now.
    fn series(&self, query: &str) -> Vec<Value> {
        self.ask("query", &[("query", query)])
    }

    fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Vec<Value> {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--show-error", &format!("{}/api/v1/{path}", self.url)]);
        for (name, value) in parameters {
            curl.args(["--data-urlencode", &format!("{name}={value}")]);
        }
        let answer: Value = serde_json::from_slice(&curl.output().unwrap().stdout).unwrap_or_default();
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until it has read the hub's metrics. What the hub counts afterwards is a rate.
    pub(super) async fn has_read_the_hub(&self) {
        let read = async || (!self.series("addon_signer_csr_seconds_count").is_empty()).then_some(());
        wait_or_explain(TIMEOUT, "Prometheus to read the hub's metrics", read, || self.process.tail()).await;
    }

    /// Writes what the panels show of the last two minutes into the file that this variable names, for
    /// tests/dashboard/draw.py.
    pub(super) fn save(&self) {
        let Some(file) = std::env::var_os("ADDON_SIGNER_DASHBOARD_DATA") else { return };
        let end = k8s_openapi::jiff::Timestamp::now().as_second();
        let (start, end) = ((end - 120).to_string(), end.to_string());
        let mut dashboard: Value = serde_json::from_str(&dashboard()).unwrap();
        for panel in dashboard["panels"].as_array_mut().unwrap() {
            for target in panel["targets"].as_array_mut().unwrap() {
                let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "20s");
                let range = [("query", &*query), ("start", &start), ("end", &end), ("step", "2")];
                target["series"] = json!(self.ask("query_range", &range));
            }
        }
        std::fs::write(file, dashboard.to_string()).unwrap();
    }

    /// Waits until every query of the dashboard has an answer that is a number. Rates cover the whole story, because
    /// some series end with the pods that are replaced.
    pub(super) async fn answers_every_panel(&self) {
        let dashboard: Value = serde_json::from_str(&dashboard()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() >= 30);
        for panel in panels {
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "10m");
                let is_number = |series: &Value| series["value"][1].as_str().is_some_and(|value| value != "NaN");
                let has_answer = async || self.series(&query).iter().any(is_number).then_some(());
                let what = format!("the panel {}: {query}", panel["title"]);
                let counts = || self.series(r#"{__name__=~"addon_signer_.+_count"}[10m]"#);
                let explain = || format!("{:#?}\n{}", counts(), self.process.tail());
                wait_or_explain(TIMEOUT, &what, has_answer, explain).await;
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
