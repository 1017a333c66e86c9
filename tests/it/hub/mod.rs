//! Tests of the hub against an API server: the stand-in by default, a real one if `KUBEBUILDER_ASSETS` names it.

mod authors;
mod client_certificate;
mod cluster_bundle;
mod corpus;
mod crash;
pub(crate) mod distribution;
mod foreign;
mod grpc_account;
mod identity;
pub(crate) mod issuers;
mod lease;
pub(crate) mod lineages;
mod outage;
mod protected;
mod pulse;
mod quarantined;
mod record;
mod recovery;
pub(crate) mod registrations;
mod requests;
mod restored;
pub(crate) mod revocation;
mod routes;
mod signers;
mod stage;
mod tenants;
mod trust_policy;
mod waived;

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;

pub(crate) use signers::allow;
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, create_signer, deploy, telemetry, wait_ready};
pub(crate) use test_kit::request::{mk_csr, mk_csr_of};
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

/// Creates the CSR as the registration agent of `cluster`; returns its name.
pub(crate) async fn submit(hub: &TestHub, cluster: &str, csr: &CertificateSigningRequest) -> String {
    let agent = hub.as_cluster_agent(cluster, "a1").await;
    let api: Api<CertificateSigningRequest> = Api::all(agent);
    api.create(&PostParams::default(), csr).await.unwrap().metadata.name.unwrap()
}

/// Makes the addon telemetry on the cluster spoke1, and a signer with this spec for it. No hub runs yet.
pub(crate) async fn mk_served(hub: &TestHub, signer: Value) -> Client {
    deploy(hub).await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    create_signer(&admin, "telemetry", signer).await;
    admin
}

/// Starts a hub that serves the addon telemetry on the cluster spoke1.
pub(crate) async fn mk_ready() -> (TestHub, Client, RunningHub) {
    mk_ready_with(RunningHubOptions::default()).await
}

/// Like [`mk_ready`], with other options.
pub(crate) async fn mk_ready_with(options: RunningHubOptions) -> (TestHub, Client, RunningHub) {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let running = RunningHub::start_with(&hub, options).await;
    wait_ready(&admin, "telemetry", "True").await;
    (hub, admin, running)
}

/// How long a test waits to show that nothing happens.
pub(crate) const MOMENT: Duration = Duration::from_millis(1_500);

/// Waits for an event about the AddOnSigner telemetry; returns its type and its note.
pub(crate) async fn wait_event(admin: &Client, reason: &str) -> (String, String) {
    wait_note(admin, reason, |_| true).await
}

/// Waits for one with a note like this.
pub(crate) async fn wait_note(admin: &Client, reason: &str, is_like: impl Fn(&str) -> bool) -> (String, String) {
    let events: Api<Event> = Api::namespaced(admin.clone(), "default");
    wait_until(TIMEOUT, &format!("an event {reason}"), async || {
        let all = events.list(&Default::default()).await.unwrap().items;
        let is_about = |event: &Event| event.regarding.as_ref()?.name.clone().filter(|name| name == "telemetry");
        let is_it = |event: &Event| {
            let is_like = event.note.as_deref().is_some_and(&is_like);
            event.reason.as_deref() == Some(reason) && is_like && is_about(event).is_some()
        };
        let event = all.into_iter().find(is_it)?;
        Some((event.type_?, event.note?))
    })
    .await
}
