//! Somebody edits, deletes or mixes up the Secrets from which authorities come, in any step of a rotation: the lineage
//! says what is wrong and goes on with what it has, and no authority comes into two lineages.

use std::time::Duration;

use addon_signer_api::AddOnSigner;
use addon_signer_core::names::ANNOTATION_IMPORT;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::requested::point;
use super::{PENDING, telemetry_of, wait_issued};
use crate::hub::lineages::{OnServer, issue};
use crate::hub::mk_served;
use crate::hub::signers::allow;
use test_kit::company::{CompanyCa, ca_params, chain};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, create_signer};
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

const DAY: Duration = Duration::from_secs(86_400);

/// The signers telemetry and search, whose authorities come from outside, and a hub whose gateway trusts nothing before
/// the test says so.
struct Outside {
    hub: TestHub,
    admin: Client,
    running: RunningHub,
    lineage: OnServer,
    secrets: Api<Secret>,
}

impl Outside {
    /// Starts with these issuers.
    async fn start(hub: TestHub, admin: Client, search: Value) -> Self {
        allow(&hub, &admin, "example.com/search").await;
        accept_cluster(&admin, "spoke2").await;
        install_addon(&admin, "spoke2", "search").await;
        let authority = json!({ "issuer": search });
        let spec = json!({ "signerName": "example.com/search", "addOns": ["search"], "authority": authority });
        create_signer(&admin, "search", spec).await;
        let options = RunningHubOptions { follow: false, ..RunningHubOptions::default() };
        let running = RunningHub::start_with(&hub, options).await;
        let lineage = OnServer::client(&admin);
        let secrets = Api::namespaced(admin.clone(), "addon-signer");
        Self { hub, admin, running, lineage, secrets }
    }

    /// Lets the gateway trust what it is told to, once these authorities are in it.
    async fn trust(&self, ids: &[String]) {
        wait_until(TIMEOUT, &format!("the gateway to be told to trust {ids:?}"), async || {
            let trust = self.running.trust.borrow().clone();
            let reported: Vec<_> =
                trust.signers.iter().flat_map(|signer| signer.client_anchors.authorities()).collect();
            ids.iter().all(|id| reported.iter().any(|authority| authority.id().as_str() == id)).then_some(())
        })
        .await;
        self.running.follow_once();
    }

    /// Checks that the lineage is as it was, and that its Active signs.
    async fn assert_goes_on(&self, states: &[&str], ids: &[String]) {
        issue(&self.hub, &self.admin).await;
        assert_eq!(self.lineage.wait(states).await, ids);
    }

    /// The CSR of the next authority.
    async fn request(&self, signer: &str) -> Option<String> {
        let signers: Api<AddOnSigner> = Api::all(self.admin.clone());
        signers.get(signer).await.unwrap().status?.authority_request
    }

    /// Waits for one that is not this one.
    async fn request_after(&self, before: Option<&String>) -> String {
        wait_until(TIMEOUT, "another CSR", async || {
            self.request("telemetry").await.filter(|request| Some(request) != before)
        })
        .await
    }

    /// Brings the certificate of an authority, as `ca import` does.
    async fn bring(&self, signer: &str, root: &CompanyCa, request: &str) {
        let certificate = root.certifies(&point(request), &ca_params("An authority", DAY * 700));
        let text = format!("2026-01-01T00:00:00Z ann\n{}", chain(&[&certificate, &root.der]));
        let signers: Api<AddOnSigner> = Api::all(self.admin.clone());
        let change = json!({ "metadata": { "annotations": { ANNOTATION_IMPORT: text } } });
        signers.patch(signer, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// Puts the data of one Secret into another.
    async fn copy(&self, from: &str, into: &str) {
        let mut there = self.secrets.get(into).await.unwrap();
        there.data = self.secrets.get(from).await.unwrap().data;
        self.secrets.replace(into, &PostParams::default(), &there).await.unwrap();
    }
}

#[tokio::test]
async fn a_pending_key_may_be_meddled_with_in_any_step() {
    let root = CompanyCa::root();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry_of(json!({ "type": "Imported" }))).await;
    let world = Outside::start(hub, admin, json!({ "type": "Imported" })).await;
    let mut request = world.request_after(None).await;
    for states in [&["Active"][..], &["Next", "Active"]] {
        world.bring("telemetry", &root, &request).await;
        let ids = world.lineage.wait(states).await;
        if states == ["Active"] {
            world.trust(&ids).await;
        }
        let earlier = world.request_after(Some(&request)).await;
        let broken = Patch::Merge(json!({ "data": { "tls.key": "cGxlYXNl" } }));
        world.secrets.patch(PENDING, &PatchParams::default(), &broken).await.unwrap();
        wait_issued(&world.lineage, "False", "has no readable key: delete it for a new CSR").await;
        world.assert_goes_on(states, &ids).await;

        world.secrets.delete(PENDING, &Default::default()).await.unwrap();
        let later = world.request_after(Some(&earlier)).await;
        world.bring("telemetry", &root, &earlier).await;
        wait_issued(&world.lineage, "False", "not used: the private key is not the key of the first certificate").await;
        world.assert_goes_on(states, &ids).await;

        let of_search = wait_until(TIMEOUT, "a CSR of the other", async || world.request("search").await).await;
        world.copy("search-client-authorities-pending", PENDING).await;
        assert_eq!(world.request_after(Some(&later)).await, of_search);
        world.bring("search", &root, &of_search).await;
        wait_until(TIMEOUT, "the other to have its authority", async || {
            world.request("search").await.filter(|request| *request != of_search)
        })
        .await;
        world.bring("telemetry", &root, &of_search).await;
        wait_issued(
            &world.lineage,
            "False",
            "it is or was in the Secret search-client-authorities, and each lineage has keys",
        )
        .await;
        world.assert_goes_on(states, &ids).await;
        world.secrets.delete(PENDING, &Default::default()).await.unwrap();
        request = world.request_after(Some(&of_search)).await;
    }
}
