//! Hub, gateway and agent where there is no IPv4, and a gateway that both families reach.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use ::stand_in::StandIn;
use addon_signer::process::HubOptions;
use addon_signer_hub::HubConfig;
use addon_signer_hub::routes::RouteSettings;
use addon_signer_platform::clock::Clock;
use hyper::Method;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::client::ClientPair;
use super::{Whole, get, options, prepare};
use crate::gateway::backend;
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::built::agent_program;
use test_kit::hub::TIMEOUT;
use test_kit::process::free_port;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::LOCALHOST), 0);
const RECEIVE: &str = "/addons/telemetry/api/v1/receive";

/// Everything on `[::1]`, the API server and the backend too, except for the gateway, which listens here.
async fn start(hub: &TestHub, gateway_listen: SocketAddr, names: &[&str]) -> Whole {
    prepare(hub, backend::start_at(ANY).await, "24h").await;
    let options = options();
    let routes = RouteSettings {
        names: names.iter().map(|name| name.parse().unwrap()).collect(),
        backend_addresses: vec!["::1/128".parse().unwrap()],
    };
    let hub_config = HubConfig { routes, ..options.hub };
    let options = HubOptions { hub: hub_config, gateway_listen, metrics_listen: ANY, ..options };
    let client = hub.client_as(HUB_USER, &HUB_GROUPS).await;
    Whole::start_with(client, options, Clock::default()).await
}

/// Starts the agent's program.
async fn start_agent(hub: &TestHub, dir: &Path, gateway: SocketAddr, metrics: SocketAddr) -> Child {
    let admin = hub.admin().await;
    accept_cluster(&admin, "cluster1").await;
    install_addon(&admin, "cluster1", "telemetry").await;
    super::serving_anchors(&admin).await;
    let group = "system:open-cluster-management:cluster1";
    let user = format!("{group}:a1");
    let kubeconfig = hub.kubeconfig(&user, &[group, "system:open-cluster-management:managed-clusters"]);
    std::fs::write(dir.join("kubeconfig"), serde_saphyr::to_string(&kubeconfig).unwrap()).unwrap();
    let mut command = Command::new(agent_program());
    command.env_clear().current_dir(dir).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.args("--cluster=cluster1 --addon=telemetry --signer=example.com/telemetry".split(' '));
    command.args("--hub-kubeconfig=kubeconfig --output-dir=certs".split(' '));
    command.args([format!("--gateway=https://{gateway}"), format!("--metrics-listen={metrics}")]).spawn().unwrap()
}

/// Waits until the agent is ready; returns what it has stored.
async fn enrolled(dir: &Path, metrics: SocketAddr) -> ClientPair {
    wait_until(TIMEOUT, "the agent to be ready", async || {
        TcpStream::connect(metrics).await.ok()?;
        (get(metrics, "/readyz").await.0 == 200).then_some(())
    })
    .await;
    ClientPair::read(&dir.join("certs")).unwrap()
}

/// Waits until the backend answers a request; returns what it saw.
async fn called(pair: &ClientPair, gateway: SocketAddr) -> String {
    wait_until(TIMEOUT, "the gateway's routes", async || {
        // While the gateway does not trust the certificate either, there is no answer.
        let (status, body) = pair.call(gateway, Method::POST, RECEIVE).await.ok()?;
        (status == 200).then_some(body)
    })
    .await
}

#[tokio::test]
async fn hub_gateway_and_agent_need_no_ipv4() {
    let hub = TestHub::StandIn(StandIn::start(ANY).await.unwrap());
    let whole = start(&hub, ANY, &["::1"]).await;
    let dir = tempfile::tempdir().unwrap();
    let metrics = SocketAddr::new(ANY.ip(), free_port());
    let _agent = start_agent(&hub, dir.path(), whole.gateway, metrics).await;
    let pair = enrolled(dir.path(), metrics).await;
    let seen = called(&pair, whole.gateway).await;
    assert!(seen.contains("\nx-forwarded-for: ::1\n"), "{seen}");
    assert!(seen.contains(&format!("\nx-forwarded-host: {}\n", whole.gateway)), "{seen}");

    let shown = pair.shown(whole.gateway).await.unwrap();
    let (_, shown) = X509Certificate::from_der(&shown).unwrap();
    let names = &shown.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names[..], [x509_parser::prelude::GeneralName::IPAddress(&Ipv6Addr::LOCALHOST.octets())]);
    let (status, whoami) = pair.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap();
    assert_eq!(status, 200, "{whoami}");
    assert_eq!(serde_json::from_str::<Value>(&whoami).unwrap()["cluster"], "cluster1");

    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(whole.metrics, path).await.0, 200, "{path}");
    }
    assert!(get(whole.metrics, "/metrics").await.1.contains("\naddon_signer_ledger_up 1\n"));
    whole.stop().await.unwrap();
}

/// Backends, the audit log and limits know a client by one address, in whichever way its connection came.
#[tokio::test]
async fn both_families_reach_a_gateway_on_every_address() {
    let hub = TestHub::StandIn(StandIn::start(ANY).await.unwrap());
    let whole = start(&hub, (Ipv6Addr::UNSPECIFIED, 0).into(), &["::1", "127.0.0.1"]).await;
    let port = whole.gateway.port();
    let dir = tempfile::tempdir().unwrap();
    let metrics = SocketAddr::new(ANY.ip(), free_port());
    let _agent = start_agent(&hub, dir.path(), (Ipv6Addr::LOCALHOST, port).into(), metrics).await;
    let pair = enrolled(dir.path(), metrics).await;
    for (gateway, client) in [
        (SocketAddr::from((Ipv6Addr::LOCALHOST, port)), "::1"),
        (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "127.0.0.1"),
    ] {
        let seen = called(&pair, gateway).await;
        assert!(seen.contains(&format!("\nx-forwarded-for: {client}\n")), "{seen}");
    }
    whole.stop().await.unwrap();
}
