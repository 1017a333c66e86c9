//! Asks the hub's Kubernetes API, and the ledger, for everything known about each addon on each cluster, and to whom
//! the hub's ManifestWorks have brought the gateway's present trust bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::certificates::{Accepted, Holding, holdings};
use super::reported::Reported;
use super::row::{Facts, Row};
use super::signers::{FleetSigners, SignersOf, TrustBy};
use super::state::AgentState;
use crate::cli::caller::CommandUser;
use crate::cli::certs::LedgerSource;
use addon_signer_api::Lenient;
use addon_signer_api::manifest_work::{self, Place, Placement, Work, digest_of};
use addon_signer_api::ocm::{self, AddOnApi, OcmObject};
use addon_signer_api::registrations::names_signer;
use addon_signer_api::request::BoundedCsr;
use addon_signer_core::identity::{AddOnKey, AddOnName, ClusterName};
use addon_signer_core::names::{LABEL_GATEWAY, LABEL_HUB_TRUST};
use addon_signer_core::query::Filter;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::authorities::store::{BUNDLE_KEY, SERVING_CONFIG_MAP};
use addon_signer_hub::csrs::answerers::Answerers;
use addon_signer_hub::csrs::newest::NewestCsrs;
use addon_signer_hub::registrations::registry::{clusters_api, discover};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{self, Selector};

/// The account of OCM's gRPC server, which makes CSRs for agents (ocm `pkg/server/services/csr/csr.go`). If other
/// accounts counted, any of them could claim to act for a cluster.
const GRPC_SERVER: &str = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa";

/// The signers of Kubernetes itself, by the names in its documentation.
const KUBERNETES_SIGNERS: [&str; 4] =
    ["kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown"];

/// How long a CSR for another signer may wait before it is reported: another program may serve it.
const UNSERVED_AFTER: Duration = Duration::from_secs(5);

/// How many such signer names a sentence has.
const MOST_UNSERVED: usize = 5;

/// The gathered rows.
pub(in crate::cli) struct Gathered {
    /// A row for each addon on each cluster, the worst first.
    pub(in crate::cli) rows: Vec<Row>,
    /// Why the ledger was not asked.
    pub(in crate::cli) no_ledger: Option<String>,
    /// A sentence on CSRs for signer names that no AddOnSigner has.
    pub(in crate::cli) unserved: Option<String>,
}

impl Gathered {
    /// Why it is unknown for some addons whether they have certificates.
    pub(in crate::cli) fn unknown(&self) -> Option<&str> {
        self.no_ledger.as_deref().filter(|_| self.rows.iter().any(|row| row.state == AgentState::Unknown))
    }

    /// A sentence on the addons to which nothing that the hub knows brings the gateway's trust bundle.
    fn without_trust(&self) -> Option<String> {
        let is_without = |row: &&Row| {
            row.trust_by == TrustBy::Nothing && row.last_seen.is_none() && row.state != AgentState::NotEligible
        };
        let mut without = self.rows.iter().filter(is_without);
        let Row { cluster, addon, .. } = without.next()?;
        let more = and_more(without.count());
        Some(format!(
            "no ManifestWork brings the gateway's trust bundle to {cluster}/{addon}{more}, and only addon-signer-agent \
             gets it by itself: set trust.manifestWorks in the chart's values, or trust.manifestWork: Never in the \
             AddOnSigner if it comes in another way (docs/trust.md)"
        ))
    }

    /// Sentences on what no row says.
    pub(in crate::cli) fn notes(&self) -> impl Iterator<Item = String> {
        self.without_trust().into_iter().chain(self.unserved.clone())
    }

    /// What is not known without the ledger.
    pub(in crate::cli) fn without_ledger(&self) -> &'static str {
        match self.unknown() {
            Some(_) => "It is not known for all of them whether they have certificates",
            None => "It is not known when certificates were last used",
        }
    }
}

/// Reads everything.
///
/// # Errors
/// One sentence on what the API server did not list.
pub(in crate::cli) async fn gather(
    client: &Client,
    ledger: anyhow::Result<LedgerSource>,
    namespace: &str,
    wanted: &Selection,
) -> anyhow::Result<Gathered> {
    let now = CommandUser::ask(client).await.now.unwrap_or_else(|| Clock::default().now());
    let signers = FleetSigners::list(client).await?;
    let has_gateways_apart = has_gateways_apart(client, namespace).await?;
    let brought = BroughtTrust::read(client, namespace, wanted).await?;
    let clusters = list_clusters(client, wanted).await?;
    let addons = installed(client, &signers, wanted, &clusters).await?;
    // Before the certificates, so that whoever gets one meanwhile has one or the other.
    let csrs = newest_csrs(client).await?;
    let accepted = |key: &AddOnKey| {
        let InstalledAddOn { valid_from, .. } = *addons.ours.get(key)?;
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
    let unserved = unserved(&csrs, &signers.answerers, now.minus(UNSERVED_AFTER), &addons);
    let mut rows = Vec::new();
    for (key, addon) in addons.ours {
        let InstalledAddOn { not_eligible, unregistered, valid_from, revoked_before, trust_by, reported } = addon;
        let recorded = holdings.as_mut().map(|all| all.remove(&key).unwrap_or_default());
        let is_recorded = recorded.is_some();
        let holding = recorded.unwrap_or_else(|| Holding::reported(reported.as_ref()));
        let newest = holding.newest.as_ref();
        let facts = Facts {
            not_eligible,
            valid_from,
            revoked_before,
            unregistered,
            is_recorded,
            is_trusted: newest.is_some_and(|newest| signers.trusts(&key.addon, &newest.authority)),
            csr: csrs.open(&key, newest, valid_from, &signers.answerers),
            holding,
            reported,
            trust: brought.of(&key, trust_by),
            trust_by,
            has_gateways_apart,
        };
        rows.push(Row::of(&key, facts, now));
    }
    rows.sort_by(|one, other| (one.state, &one.cluster, &one.addon).cmp(&(other.state, &other.cluster, &other.addon)));
    Ok(Gathered { rows, no_ledger, unserved })
}

/// The newest CSR of each addon, for all signer names but those of Kubernetes itself.
async fn newest_csrs(client: &Client) -> anyhow::Result<NewestCsrs> {
    let api: Api<BoundedCsr> = Api::all(client.clone());
    let mut newest = NewestCsrs::default();
    let others = KUBERNETES_SIGNERS.map(|name| format!("spec.signerName!=kubernetes.io/{name}")).join(",");
    let listed = listing::each(api, Selector::fields(&others), |csr| newest.note(&csr.csr, Some(GRPC_SERVER)));
    listed.await.context("CertificateSigningRequests cannot be listed")?;
    Ok(newest)
}

/// A sentence on CSRs for signer names that no AddOnSigner has.
fn unserved(csrs: &NewestCsrs, answerers: &Answerers, before: Timestamp, installed: &Installed) -> Option<String> {
    let is_wanted = |cluster: &ClusterName, addon: &AddOnName| {
        let key = AddOnKey { cluster: cluster.clone(), addon: addon.clone() };
        installed.others.contains(&key) || installed.ours.get(&key).is_some_and(|addon| addon.not_eligible.is_none())
    };
    let unserved = csrs.unserved(before, answerers, is_wanted);
    let named = unserved.iter().take(MOST_UNSERVED).map(|(signer_name, count, csr)| {
        let nearest = answerers.nearest(signer_name).map(|name| format!("the nearest is {name}; ")).unwrap_or_default();
        format!("{signer_name} ({nearest}CSR {csr}{})", and_more(count - 1))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = and_more(unserved.len().saturating_sub(MOST_UNSERVED));
    (!unserved.is_empty()).then(|| {
        format!(
            "CSRs of accepted clusters have no certificate, approved or not, because they name a signer that no \
             AddOnSigner has: {named}{more}. Unless another program signs them, correct the name in the addon and \
             delete the CSRs (`kubectl delete csr NAME`), or make an AddOnSigner"
        )
    })
}

/// How many more there are than those that are named.
fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}

/// Whether a standalone gateway keeps a Lease.
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
    trust_by: TrustBy,
    /// What the hub reports about its certificate.
    reported: Option<Reported>,
}

/// The installed addons.
#[derive(Default)]
struct Installed {
    /// Those that have AddOnSigners.
    ours: BTreeMap<AddOnKey, InstalledAddOn>,
    /// The others on accepted clusters.
    others: BTreeSet<AddOnKey>,
}

async fn installed(
    client: &Client,
    signers: &FleetSigners,
    wanted: &Selection,
    clusters: &Clusters,
) -> anyhow::Result<Installed> {
    let api = discover(client).await?;
    let mut addons = Installed::default();
    let listed = listing::each(wanted.objects(client, &api.resource()), Selector::all(), |addon| {
        let addon = &addon.object;
        let Some(key) = ocm::addon_key(addon).filter(|key| wanted.has(key)) else { return };
        let Some(served) = signers.of_addon.get(&key.addon) else {
            let is_accepted = |key: &AddOnKey| clusters.get(key.cluster.as_str()).is_some_and(Option::is_some);
            addons.others.extend(Some(key).filter(is_accepted));
            return;
        };
        let has_place = matches!(Placement::read(addon).place, Place::Namespace(_));
        // An unreadable revocation makes the addon ineligible.
        let revoked_before = ocm::revocation(addon).ok().flatten().map(|known| known.before);
        let of_cluster = clusters.get(key.cluster.as_str()).copied().flatten();
        let valid_from = ocm::created(addon).max(revoked_before).max(of_cluster);
        let status = addon.data.get("status").unwrap_or(&Value::Null);
        let [registered, lacking] = registrations(status, api, served);
        let read = InstalledAddOn {
            not_eligible: not_eligible(addon, &key, clusters),
            unregistered: lacking.filter(|_| !served.asks_itself).cloned(),
            valid_from,
            revoked_before,
            trust_by: served.trust_by(has_place, registered.is_some()),
            reported: Reported::read(status),
        };
        addons.ours.insert(key, read);
    });
    listed.await.context("ManagedClusterAddOns cannot be listed")?;
    Ok(addons)
}

/// The clusters, with the time of its creation for each that the hub has accepted and that is not being deleted.
type Clusters = BTreeMap<String, Option<Timestamp>>;

async fn list_clusters(client: &Client, wanted: &Selection) -> anyhow::Result<Clusters> {
    let mut clusters = BTreeMap::new();
    let named = wanted.cluster.iter().map(|cluster| format!("metadata.name={cluster}")).collect::<String>();
    let listed = listing::each(clusters_api(client), Selector::fields(&named), |cluster| {
        let cluster = &cluster.object;
        let is_accepted = ocm::hub_accepts_client(cluster) && !ocm::is_being_deleted(cluster);
        clusters.insert(cluster.name_any(), ocm::created(cluster).filter(|_| is_accepted));
    });
    listed.await.context("ManagedClusters cannot be listed")?;
    Ok(clusters)
}

/// Why the hub's registry would refuse the addon.
fn not_eligible(addon: &DynamicObject, key: &AddOnKey, clusters: &Clusters) -> Option<&'static str> {
    match clusters.get(key.cluster.as_str()) {
        None => return Some("a ManagedCluster of that name: there is none"),
        Some(None) => return Some("the hub to accept the cluster"),
        Some(Some(_)) => {}
    }
    if ocm::is_being_deleted(addon) {
        return Some("the addon to be gone: it is being deleted");
    }
    if ocm::revocation(addon).is_err() {
        return Some("a valid time in its annotation addon-signer.io/revoke-before");
    }
    ocm::is_suspended(addon).then_some("the addon to be resumed")
}

/// A signer name that `status.registrations` has, and one that it lacks.
fn registrations<'s>(status: &Value, api: AddOnApi, served: &'s SignersOf) -> [Option<&'s String>; 2] {
    [true, false].map(|has| served.signer_names.iter().find(|name| names_signer(status, api, name) == has))
}

/// Which addons on which clusters.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Selection {
    pub(in crate::cli) addon: Option<AddOnName>,
    pub(in crate::cli) cluster: Option<ClusterName>,
}

impl Selection {
    pub(super) fn has(&self, key: &AddOnKey) -> bool {
        self.addon.as_ref().is_none_or(|addon| *addon == key.addon)
            && self.cluster.as_ref().is_none_or(|cluster| *cluster == key.cluster)
    }

    /// Whether it leaves anything out.
    pub(super) fn is_narrow(&self) -> bool {
        self.addon.is_some() || self.cluster.is_some()
    }

    /// The objects of this kind on the selected clusters: each cluster has a namespace of its name.
    pub(super) fn objects(&self, client: &Client, kind: &ApiResource) -> Api<OcmObject> {
        match &self.cluster {
            Some(cluster) => Api::namespaced_with(client.clone(), cluster.as_str(), kind),
            None => Api::all_with(client.clone(), kind),
        }
    }

    pub(super) fn filter(&self) -> Filter {
        let cluster = self.cluster.as_ref().map(ToString::to_string);
        Filter { cluster, addon: self.addon.as_ref().map(ToString::to_string), ..Filter::default() }
    }
}

/// Whether the cluster of each addon has applied the present trust bundle.
#[derive(Default)]
pub(super) struct BroughtTrust(BTreeMap<AddOnKey, bool>);

impl BroughtTrust {
    /// Reads the ManifestWorks of these clusters. `namespace` is the hub's.
    pub(super) async fn read(client: &Client, namespace: &str, wanted: &Selection) -> anyhow::Result<Self> {
        let maps: Api<Lenient<ConfigMap>> = Api::namespaced(client.clone(), namespace);
        let map = maps.get_opt(SERVING_CONFIG_MAP).await;
        let map = map.with_context(|| format!("the ConfigMap {SERVING_CONFIG_MAP} cannot be read"))?;
        let anchors = map.and_then(|map| map.object.data?.remove(BUNDLE_KEY)).unwrap_or_default();
        let present = digest_of(&anchors);
        let is_present =
            |work: &Work| work.is_applied && work.content.as_ref().is_some_and(|content| content.anchors == present);
        let api = wanted.objects(client, &manifest_work::resource());
        let mut works = BTreeMap::new();
        let of_trust = Selector::labels(LABEL_HUB_TRUST);
        let listed = listing::each(api, of_trust, |work| {
            works.extend(Work::read(&work.object).map(|(key, work)| (key, is_present(&work))));
        });
        match listed.await {
            Ok(()) => Ok(Self(works)),
            // The API is missing, or the caller may not read it, like the hub's own account without
            // trust.manifestWorks.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Self::default()),
            Err(error) => Err(error).context("ManifestWorks cannot be listed"),
        }
    }

    /// Whether its cluster has applied the present bundle. `None` if unknown: this addon gets no ManifestWork, or none
    /// exists.
    pub(super) fn of(&self, key: &AddOnKey, by: TrustBy) -> Option<bool> {
        (by == TrustBy::ManifestWork && !self.0.is_empty()).then(|| self.0.get(key).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_works_exist_addon_without_one_lacks_the_bundle() {
        let key = |cluster: &str| AddOnKey { cluster: cluster.parse().unwrap(), addon: "t".parse().unwrap() };
        let some = BroughtTrust(BTreeMap::from([(key("yes"), true), (key("no"), false)]));
        let work = TrustBy::ManifestWork;
        for (cluster, by, expected) in [
            ("yes", work, Some(true)),
            ("no", work, Some(false)),
            ("new", work, Some(false)),
            ("yes", TrustBy::Agent, None),
        ] {
            assert_eq!(some.of(&key(cluster), by), expected, "{cluster} {by:?}");
        }
        assert_eq!(BroughtTrust::default().of(&key("yes"), work), None, "no work is anywhere");
    }
}
