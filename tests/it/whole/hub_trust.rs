//! OCM's own work agent brings the trust bundle to a managed cluster, beside OCM's registration agent and its
//! addon-manager.

use std::time::Duration;

use addon_signer::api::AddOnSigner;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::{Whole, prepare, serving_anchors};
use crate::deploy::manifests;
use crate::deploy::on_api_server::apply;
use crate::gateway::upstream;
use crate::support::objects::managed_cluster_addons;
use crate::support::ocm::{ADDON_NAMESPACE, OcmAgent, Spoke};
use crate::support::programs::start_addon_manager;
use crate::support::wait::wait_or_explain;
use crate::support::{TestHub, install_addon, wait_until};

/// The longest name of an addon, from which hub and OCM derive longer names.
const LONGEST: &str = "the-addon-whose-name-is-as-long-as-a-label-of-kubernetes-may-be";
const PATIENCE: Duration = Duration::from_secs(120);
/// OCM's work agent looks at what it has applied every four to six minutes (its `manifestcontroller`).
const REAPPLIED: Duration = Duration::from_secs(480);

#[tokio::test]
async fn ocms_work_agent_brings_the_trust_bundle_and_takes_it_away_with_the_addon() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real() else {
        eprintln!("skipped: KUBEBUILDER_ASSETS names no real API server");
        return;
    };
    let admin = prepare(&hub, upstream::start().await, "24h").await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let both = Patch::Merge(json!({ "spec": { "addOns": ["telemetry", LONGEST] } }));
    signers.patch("telemetry", &PatchParams::default(), &both).await.unwrap();
    apply(&admin, &manifests("manifest-works")).await;
    let whole = Whole::start(&hub, Clock::default()).await;
    let server = real.server("127.0.0.1");
    let spoke = Spoke { hub: real, own: real, cluster: "spoke1", agent_id: "a1", server };
    let agent = OcmAgent::join(&spoke).await;
    let work_agent = agent.start_work_agent(&spoke);
    let _addon_manager = start_addon_manager(real).await;
    for addon in ["telemetry", LONGEST] {
        install_addon(&admin, "spoke1", addon).await;
    }

    let bundle = serving_anchors(&admin).await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let has_bundle = async |addon: &str| {
        let data = maps.get_opt(&format!("{addon}-hub-trust")).await.unwrap()?.data?;
        (data.len() == 1 && data.get("ca.crt") == Some(&bundle)).then_some(())
    };
    for addon in ["telemetry", LONGEST] {
        let what = format!("the ConfigMap of {addon} on the cluster");
        wait_or_explain(PATIENCE, &what, async || has_bundle(addon).await, || work_agent.tail()).await;
        wait_until(PATIENCE, &format!("the Secret of {addon}"), async || {
            let secret = secrets.get_opt(&format!("{addon}-example.com-telemetry-client-cert")).await.unwrap()?;
            secret.data?.get("tls.crt").map(drop)
        })
        .await;
    }
    wait_until(PATIENCE, "the condition", async || {
        let conditions = signers.get("telemetry").await.unwrap().status?.conditions;
        let told = conditions.into_iter().find(|condition| condition.type_ == "TrustDistributed")?;
        (told.status == "True").then_some(())
    })
    .await;

    let other = Patch::Merge(json!({ "data": { "ca.crt": "x" } }));
    maps.patch("telemetry-hub-trust", &PatchParams::default(), &other).await.unwrap();
    maps.delete(&format!("{LONGEST}-hub-trust"), &DeleteParams::default()).await.unwrap();
    for addon in ["telemetry", LONGEST] {
        wait_until(REAPPLIED, &format!("the ConfigMap of {addon} to come back"), async || has_bundle(addon).await)
            .await;
    }

    managed_cluster_addons(&admin, "spoke1").await.delete("telemetry", &DeleteParams::default()).await.unwrap();
    wait_until(PATIENCE, "the ConfigMap to go with the addon", async || {
        maps.get_opt("telemetry-hub-trust").await.unwrap().is_none().then_some(())
    })
    .await;
    whole.stop().await.unwrap();
}
