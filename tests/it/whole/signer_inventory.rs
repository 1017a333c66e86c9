//! The inventory of signers whose gateways are apart: each serves its own, whether it leads or waits.

use std::net::SocketAddr;

use addon_signer::process::{HubOptions, HubProcess, InventoryOptions, Roles};
use addon_signer_core::csr::CertificateRequest;
use addon_signer_core::policy::GATEWAY_COMMON_NAME;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::split::start_signer;
use super::{get, options, prepare};
use test_kit::accounts::{GATEWAY_USER, HUB_GROUPS, HUB_USER};
use test_kit::gateways::{answered, deploy_gateways, wish};
use test_kit::hub::{TIMEOUT, fresh_ledger};
use test_kit::{TestHub, wait_for, wait_until};

const SERVICE: &str = "addon-signer-inventory";

/// A signer with an inventory and a ledger of its own.
struct InventorySigner {
    metrics: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    _dir: TempDir,
}

impl InventorySigner {
    async fn start(hub: &TestHub, replica: &str) -> Self {
        let client = hub.client_at(HUB_USER, &HUB_GROUPS, &Clock::default()).await;
        let listen = ([127, 0, 0, 1], 0).into();
        let inventory = Some(InventoryOptions { listen, service: SERVICE.to_owned() });
        let options = HubOptions { roles: Roles::Signer, replica: replica.to_owned(), inventory, ..options() };
        let (dir, ledger) = fresh_ledger();
        let process = HubProcess::prepare(client, HubOptions { ledger, ..options }, Clock::default()).await.unwrap();
        process.inventory_address().unwrap();
        let (metrics, stop) = (process.metrics_address(), CancellationToken::new());
        Self { metrics, stop: stop.clone(), task: tokio::spawn(process.run(stop)), _dir: dir }
    }

    async fn readiness(&self) -> String {
        wait_until(TIMEOUT, "the signer to be ready", async || {
            let (status, text) = get(self.metrics, "/readyz").await;
            (status == 200).then_some(text)
        })
        .await
    }

    /// Waits until its inventory has a valid certificate.
    async fn certified(&self) {
        let end = "addon_signer_gateway_certificate_end_timestamp_seconds{signer=\"gateway-serving\"} ";
        wait_until(TIMEOUT, "the inventory's certificate", async || {
            let (_, text) = get(self.metrics, "/metrics").await;
            assert!(!text.contains("addon_signer_gateway_requests_in_flight"), "a signer has no gateway: {text}");
            let end = text.lines().find_map(|line| line.strip_prefix(end)).expect(&text);
            (end.parse::<i64>().unwrap() > Clock::default().now().unix()).then_some(())
        })
        .await;
    }

    async fn stop(self) {
        self.stop.cancel();
        wait_for(TIMEOUT, "the signer to end", self.task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn waiting_signer_serves_its_inventory_with_its_own_name_only() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    deploy_gateways(&hub).await;
    let signers = [InventorySigner::start(&hub, "signer-1").await, InventorySigner::start(&hub, "signer-2").await];
    for signer in &signers {
        signer.certified().await;
        signer.readiness().await;
    }
    let requests: Api<CertificateSigningRequest> = Api::all(admin);
    let served = requests.list(&Default::default()).await.unwrap().items.into_iter();
    let served: Vec<_> =
        served.filter(|request| request.spec.signer_name == "addon-signer.io/gateway-serving").collect();
    assert_eq!(served.len(), 2);
    for request in served {
        let read = CertificateRequest::from_pem(&request.spec.request.0).unwrap();
        assert_eq!(read.extensions().dns_names, ["addon-signer-inventory.addon-signer.svc"]);
        assert!(read.extensions().ip_addresses.is_empty(), "the gateways' names are not the signer's");
    }
    let gateway = hub.client_at(GATEWAY_USER, &HUB_GROUPS, &Clock::default()).await;
    for (names, answer) in
        [(&["addon-signer-inventory.addon-signer.svc"][..], "Denied"), (&["gateway.example", "127.0.0.1"], "Approved")]
    {
        let wish = wish(GATEWAY_COMMON_NAME, names);
        let request = answered(&gateway, "addon-signer.io/gateway-serving", "server auth", &wish).await;
        assert_eq!(request.status.unwrap().conditions.unwrap()[0].type_, answer, "{names:?}");
    }
    for signer in signers {
        signer.stop().await;
    }
}

/// A rollout that turns the inventory on: the signer that leads knows no such account, and ends only when the new one
/// is ready.
#[tokio::test]
async fn a_signer_is_ready_before_its_inventory_has_a_certificate() {
    let hub = TestHub::start().await;
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let old = start_signer(&hub, "signer-1").await;
    let leads = async || get(old.metrics, "/readyz").await.1.ends_with("\r\n\r\nok\n").then_some(());
    wait_until(TIMEOUT, "the old signer to lead", leads).await;
    let new = InventorySigner::start(&hub, "signer-2").await;
    let message = new.readiness().await;
    assert!(message.ends_with("ok; the inventory has no valid certificate yet\n"), "{message}");
    old.stop().await.unwrap();
    new.certified().await;
    new.stop().await;
}
