//! Prometheus, which writes what it scrapes of itself through the gateway.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use addon_signer_core::gateway::route::Protocol;
use test_kit::gateway::GatewayWorld;
use test_kit::needed::{Needed, has};
use test_kit::process::{Process, free_port};
use test_kit::wait::wait_or_explain;

use super::{Files, Peers};

/// Over each version of HTTP.
const REMOTE_WRITE: &str = "
- url: URL?http1
  enable_http2: false
  queue_config: { batch_send_deadline: 100ms }
  tls_config: { cert_file: agent.crt, key_file: agent.key, ca_file: gateway-ca.crt }
- url: URL?http2
  enable_http2: true
  queue_config: { batch_send_deadline: 100ms }
  tls_config: { cert_file: agent.crt, key_file: agent.key, ca_file: gateway-ca.crt }
";

/// Prometheus reads what it has scraped five seconds after its start.
const WRITES: Duration = Duration::from_secs(30);

/// Starts Prometheus as an agent, which answers no queries.
fn start(dir: &Path, world: &GatewayWorld) -> Process {
    Files::write(dir, world);
    let port = free_port();
    let scrapes = format!("[{{ job_name: itself, static_configs: [{{ targets: ['127.0.0.1:{port}'] }}] }}]");
    let url = format!("https://{}/addons/telemetry/api/v1/write", world.address);
    let config = format!(
        "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms }}\nscrape_configs: {scrapes}\nremote_write:{}",
        REMOTE_WRITE.replace("URL", &url)
    );
    fs::write(dir.join("prometheus.yml"), config).unwrap();
    let flags = [
        "--enable-feature=agent".to_owned(),
        "--config.file=prometheus.yml".to_owned(),
        "--storage.agent.path=data".to_owned(),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ];
    Process::start(Path::new("prometheus"), &flags, dir)
}

#[tokio::test]
async fn prometheus_writes_what_it_scrapes() {
    if !has(Needed::Prometheus, Command::new("prometheus").arg("--version").output().is_ok()) {
        return;
    }
    let Some(peers) = Peers::find() else { return };
    let server = peers.serve(&["http-server"]).await;
    let world = GatewayWorld::start(vec![server.route(Protocol::Http)]).await;
    let dir = tempfile::tempdir().unwrap();
    let prometheus = start(dir.path(), &world);
    for http in ["http1", "http2"] {
        let expected = format!("remote write to {http}: snappy 0.1.0 of cluster c1");
        let has_written = async || server.has_reported(&expected, 3);
        wait_or_explain(WRITES, &expected, has_written, || server.process.tail() + &prometheus.tail()).await;
    }
}
