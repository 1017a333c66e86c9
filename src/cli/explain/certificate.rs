//! The agent's certificate, as far as it is known.

use std::sync::Arc;

use anyhow::Context;
use kube::api::DynamicObject;
use kube::{Api, Client};
use ring::rand::SystemRandom;
use serde_json::Value;

use super::ExplainArgs;
use crate::cli::status::Reported;
use addon_signer_api::lenient::Lenient;
use addon_signer_api::ocm::AddOnApi;
use addon_signer_api::registrations::certificate_reported;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::conditions::NOT_ELIGIBLE;
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::headers::IdentityHeaders;
use addon_signer_core::identity::{AgentName, PeerIdentity};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::SignerTrust;

/// What the agent waits for, if it has no certificate by the hub's report.
pub(super) async fn lacking(client: &Client, api: AddOnApi, args: &ExplainArgs) -> anyhow::Result<Option<String>> {
    let addons: Api<Lenient<DynamicObject>> =
        Api::namespaced_with(client.clone(), args.cluster.as_str(), &api.resource());
    let addon = addons.get_opt(args.addon.as_str()).await.context("cannot get the ManagedClusterAddOn")?;
    let status = addon.as_ref().and_then(|addon| addon.object.data.get("status"));
    // Whether it is eligible is judged here; the report may be older.
    let is_counted =
        |status: &&Value| certificate_reported(status).is_some_and(|(_, reason, _)| reason != NOT_ELIGIBLE);
    Ok(match status.filter(is_counted).and_then(Reported::read) {
        Some(Reported::Waits { waits_for, .. }) => Some(waits_for),
        _ => None,
    })
}

/// The agent with a certificate that begins now. Its identity and this time decide whether it is eligible.
pub(super) fn client(signer: &Arc<SignerTrust>, args: &ExplainArgs, now: Timestamp) -> anyhow::Result<Arc<Peer>> {
    let (cluster, addon) = (args.cluster.clone(), args.addon.clone());
    let identity = PeerIdentity { agent: AgentName::of_addon(&addon), cluster, addon };
    Ok(Arc::new(Peer {
        user: signer.convention.user(&identity),
        groups: signer.convention.groups(&identity.cluster, &identity.addon),
        identity,
        signer: Arc::clone(signer),
        issuer: "".into(),
        serial: Serial::new(now, &SystemRandom::new())?,
        not_before: now,
        not_after: now,
        headers: IdentityHeaders::default(),
    }))
}
