//! The hub against an API server: the stand-in by default, a real one where `KUBEBUILDER_ASSETS` names it.

mod corpus;
mod lines;
mod requests;
mod signers;
mod stage;

use std::time::Duration;

use addon_signer::csr::build::Wish;
use addon_signer::private_key::PrivateKey;
use addon_signer::public_key::KeyKind;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use ring::rand::SystemRandom;

use crate::support::hub::{RunningHub, create_signer, deploy, telemetry, wait_ready};
use crate::support::{TestHub, accept_cluster, install_addon};

/// A request as OCM's agent makes it, for one thing to be varied.
pub(crate) fn mk_csr(cluster: &str, addon: &str) -> CertificateSigningRequest {
    let prefix = format!("system:open-cluster-management:cluster:{cluster}:addon:{addon}");
    let wish = Wish {
        common_name: format!("{prefix}:agent:{addon}"),
        organizations: vec![prefix.clone(), format!("system:open-cluster-management:addon:{addon}")],
        dns_names: vec![format!("{addon}.addon.open-cluster-management.io")],
        ip_addresses: vec![],
    };
    mk_csr_of(cluster, addon, &wish)
}

pub(crate) fn mk_csr_of(cluster: &str, addon: &str, wish: &Wish) -> CertificateSigningRequest {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let label = |name: &str, value: &str| (format!("open-cluster-management.io/{name}"), value.to_owned());
    CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("addon-{cluster}-{addon}-")),
            labels: Some([label("cluster-name", cluster), label("addon-name", addon)].into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            signer_name: "example.com/telemetry".to_owned(),
            usages: Some(["digital signature", "key encipherment", "client auth"].map(str::to_owned).to_vec()),
            request: ByteString(wish.sign(&key, &rng).unwrap().into_bytes()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// Creates the request as the registration agent of `cluster`; returns its name.
pub(crate) async fn submit(hub: &TestHub, cluster: &str, csr: &CertificateSigningRequest) -> String {
    let agent = hub.as_cluster_agent(cluster, "a1").await;
    let api: Api<CertificateSigningRequest> = Api::all(agent);
    api.create(&PostParams::default(), csr).await.unwrap().metadata.name.unwrap()
}

/// A hub that serves the addon telemetry on the cluster spoke1.
pub(crate) async fn mk_ready() -> (TestHub, Client, RunningHub) {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    create_signer(&admin, "telemetry", telemetry()).await;
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    (hub, admin, running)
}

/// A moment in which nothing is expected to happen.
pub(crate) const MOMENT: Duration = Duration::from_millis(1_500);
