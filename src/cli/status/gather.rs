//! Asks the hub's Kubernetes API, and the ledger, for everything known about each addon on each cluster.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::certificates::{Accepted, Holding, holdings};
use super::requests::newest;
use super::row::{Facts, Row};
use super::selection::Selection;
use super::signers::{FleetSigners, SignersOf};
use super::trust::BroughtTrust;
use crate::cli::certs::LedgerSource;
use addon_signer_api::manifest_work::{Place, Placement};
use addon_signer_api::ocm::{self, AddOnApi};
use addon_signer_api::registrations::names_signer;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::names::LABEL_GATEWAY;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::registrations::registry::{clusters_api, discover};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{self, Selector};

/// The answer.
pub(in crate::cli) struct Gathered {
    /// One for each addon on each cluster, the worst first.
    pub(in crate::cli) rows: Vec<Row>,
    /// Why the ledger was not asked.
    pub(in crate::cli) no_ledger: Option<String>,
}

/// Reads everything.
///
/// # Errors
/// One sentence saying what the API server did not list.
pub(in crate::cli) async fn gather(
    client: &Client,
    ledger: anyhow::Result<LedgerSource>,
    namespace: &str,
    wanted: &Selection,
) -> anyhow::Result<Gathered> {
    let now = Clock::default().now();
    let signers = FleetSigners::list(client).await?;
    let has_gateways_apart = has_gateways_apart(client, namespace).await?;
    let brought = BroughtTrust::read(client, namespace, wanted).await?;
    let addons = installed(client, &signers, wanted).await?;
    let accepted = |key: &AddOnKey| {
        let valid_from = addons.get(key)?.valid_from;
        Some(Accepted { signers: signers.of_addon.get(&key.addon)?, valid_from })
    };
    let holdings = match ledger {
        Ok(ledger) => holdings(&ledger, wanted.filter(), accepted).await,
        Err(error) => Err(error),
    };
    let (mut holdings, no_ledger) = match holdings {
        Ok(holdings) => (Some(holdings), None),
        Err(error) => (None, Some(explain(error.as_ref()))),
    };
    let mut requests = newest(client, &signers.answerers, |key| addons.contains_key(key)).await?;
    let mut rows = Vec::new();
    for (key, InstalledAddOn { not_eligible, unregistered, valid_from: _, revoked_before, is_brought }) in addons {
        let holding = holdings.as_mut().map(|all| all.remove(&key).unwrap_or_default());
        let facts = Facts {
            not_eligible,
            revoked_until: revoked_before.filter(|before| *before > now),
            unregistered,
            trust: brought.of(&key, is_brought),
            has_stale: holding.as_ref().is_some_and(|holding| holding.has_stale),
            depends_on: holding.as_ref().map(Holding::depends_on).unwrap_or_default(),
            certificate: holding.map(|holding| holding.held),
            request: requests.remove(&key),
            has_gateways_apart,
        };
        rows.push(Row::of(&key, facts));
    }
    rows.sort_by(|one, other| (one.state, &one.cluster, &one.addon).cmp(&(other.state, &other.cluster, &other.addon)));
    Ok(Gathered { rows, no_ledger })
}

/// Whether a gateway keeps a Lease of its own.
async fn has_gateways_apart(client: &Client, namespace: &str) -> anyhow::Result<bool> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let found = listing::any(&leases, &Selector::labels(LABEL_GATEWAY)).await;
    Ok(found.with_context(|| format!("the Leases in {namespace} cannot be listed"))?.is_some())
}

/// What is kept of a ManagedClusterAddOn.
struct InstalledAddOn {
    not_eligible: Option<&'static str>,
    unregistered: Option<String>,
    /// Certificates that begin before this time are refused.
    valid_from: Option<Timestamp>,
    /// Certificates that begin before this time are revoked.
    revoked_before: Option<Timestamp>,
    /// Whether a ManifestWork should bring the trust bundle, if the hub writes any.
    is_brought: bool,
}

/// The addons for which there are AddOnSigners.
async fn installed(
    client: &Client,
    signers: &FleetSigners,
    wanted: &Selection,
) -> anyhow::Result<BTreeMap<AddOnKey, InstalledAddOn>> {
    let api = discover(client).await?;
    let clusters = accepted(client, wanted).await?;
    let mut addons = BTreeMap::new();
    let listed = listing::each(wanted.objects(client, &api.resource()), Selector::all(), |addon| {
        let addon = &addon.object;
        let Some(key) = ocm::addon_key(addon).filter(|key| wanted.has(key)) else { return };
        let Some(served) = signers.of_addon.get(&key.addon) else { return };
        let has_place = matches!(Placement::read(addon).place, Place::Namespace(_));
        // An unreadable revocation makes the addon ineligible.
        let revoked_before = ocm::revocation(addon).ok().flatten().map(|known| known.before);
        let read = InstalledAddOn {
            not_eligible: not_eligible(addon, &key, &clusters),
            unregistered: unregistered(addon, api, served),
            valid_from: ocm::created(addon).max(revoked_before).max(clusters.get(key.cluster.as_str()).copied()),
            revoked_before,
            is_brought: has_place && served.brings_trust,
        };
        addons.insert(key, read);
    });
    listed.await.context("ManagedClusterAddOns cannot be listed")?;
    Ok(addons)
}

/// The clusters that the hub has accepted and that are not being deleted, with the times of their creation.
async fn accepted(client: &Client, wanted: &Selection) -> anyhow::Result<BTreeMap<String, Timestamp>> {
    let mut accepted = BTreeMap::new();
    let named = wanted.cluster.iter().map(|cluster| format!("metadata.name={cluster}")).collect::<String>();
    let listed = listing::each(clusters_api(client), Selector::fields(&named), |cluster| {
        let cluster = &cluster.object;
        let created = ocm::created(cluster).filter(|_| ocm::hub_accepts_client(cluster));
        if let Some(created) = created.filter(|_| !ocm::is_being_deleted(cluster)) {
            accepted.insert(cluster.name_any(), created);
        }
    });
    listed.await.context("ManagedClusters cannot be listed")?;
    Ok(accepted)
}

/// Why the hub's registry would refuse it.
fn not_eligible(addon: &DynamicObject, key: &AddOnKey, accepted: &BTreeMap<String, Timestamp>) -> Option<&'static str> {
    if !accepted.contains_key(key.cluster.as_str()) {
        return Some("the hub to accept the cluster");
    }
    if ocm::is_being_deleted(addon) {
        return Some("the addon to be gone: it is being deleted");
    }
    if ocm::revocation(addon).is_err() {
        return Some("a valid time in its annotation addon-signer.io/revoke-before");
    }
    ocm::is_suspended(addon).then_some("the addon to be resumed")
}

fn unregistered(addon: &DynamicObject, api: AddOnApi, served: &SignersOf) -> Option<String> {
    let status = addon.data.get("status").unwrap_or(&Value::Null);
    let mut lacking = served.signer_names.iter().filter(|name| !names_signer(status, api, name));
    lacking.next().filter(|_| !served.asks_itself).cloned()
}
