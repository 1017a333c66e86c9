//! Asks the hub's Kubernetes API, and the ledger, for what there is to know about each addon on each cluster.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ListParams};
use kube::core::DeserializeGuard;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::row::{Facts, Held, Request, Row};
use crate::api::AddOnSigner;
use crate::api::identity::Requester;
use crate::api::manifest_work::{self, AnchorsDigest, Place, Placement, Work, digest_of};
use crate::api::ocm::{self, AddOnApi, OcmObject};
use crate::api::registrations::names_signer;
use crate::api::signer::TrustMode;
use crate::cli::certs::LedgerSource;
use crate::hub::authorities::store::SERVING_CONFIG_MAP;
use crate::hub::registrations::registry::{addons_api, clusters_api, discover};
use crate::ledger::view::Certificate;
use addon_signer_core::identity::{AddOnKey, AddOnName, ClusterName};
use addon_signer_core::names::{ANNOTATION_CSR_USER, LABEL_ADDON_NAME, LABEL_CLUSTER_NAME, LABEL_HUB_TRUST};
use addon_signer_core::policy::{tenant, tenant_of_cluster};
use addon_signer_core::query::{Filter, PAGE_MAX, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::errors::explain;

/// How many objects the API server is asked for at a time.
const PAGE: u32 = 500;

/// Which addons on which clusters.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Selection {
    pub(in crate::cli) addon: Option<AddOnName>,
    pub(in crate::cli) cluster: Option<ClusterName>,
}

impl Selection {
    fn has(&self, key: &AddOnKey) -> bool {
        self.addon.as_ref().is_none_or(|addon| *addon == key.addon)
            && self.cluster.as_ref().is_none_or(|cluster| *cluster == key.cluster)
    }
}

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
/// One sentence on what the API server did not list.
pub(in crate::cli) async fn gather(
    client: &Client,
    ledger: anyhow::Result<LedgerSource>,
    namespace: &str,
    wanted: &Selection,
) -> anyhow::Result<Gathered> {
    let api = discover(client).await?;
    let signers = signers(client).await?;
    let accepted = accepted(client).await?;
    let works = works(client, namespace).await?;
    let certificates = match ledger {
        Ok(ledger) => certificates(&ledger, wanted).await,
        Err(error) => Err(error),
    };
    let (certificates, no_ledger) = match certificates {
        Ok(certificates) => (Some(certificates), None),
        Err(error) => (None, Some(explain(error.as_ref()))),
    };
    let mut requests = requests(client, &signers).await?;
    let mut rows = Vec::new();
    let addons = pages(&addons_api(client, api), ListParams::default()).await;
    let addons = addons.context("ManagedClusterAddOns cannot be listed")?;
    for addon in addons.iter().map(|addon| &addon.object) {
        let Some(key) = ocm::addon_key(addon).filter(|key| wanted.has(key)) else { continue };
        let Some(served) = signers.get(&key.addon) else { continue };
        let facts = Facts {
            no_standing: no_standing(addon, &key, &accepted),
            unregistered: unregistered(addon, api, served),
            certificate: certificates.as_ref().map(|all| held(all.get(&key).map_or(&[], Vec::as_slice), addon)),
            request: requests.remove(&key).map(|(_, request)| request),
            has_trust: works.has_trust(&key, addon).filter(|_| served.brings_trust),
        };
        rows.push(Row::of(&key, facts));
    }
    rows.sort_by(|one, other| (one.state, &one.cluster, &one.addon).cmp(&(other.state, &other.cluster, &other.addon)));
    Ok(Gathered { rows, no_ledger })
}

/// Everything that an API lists, page after page.
async fn pages<K>(api: &Api<K>, params: ListParams) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut all = Vec::new();
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Who signs for an addon.
#[derive(Default)]
struct SignersOf {
    signer_names: BTreeSet<String>,
    /// Whether the addon's own agent may ask.
    asks_itself: bool,
    /// Whether ManifestWorks bring the trust bundle, if the hub may write them.
    brings_trust: bool,
}

async fn signers(client: &Client) -> anyhow::Result<BTreeMap<AddOnName, SignersOf>> {
    let api: Api<DeserializeGuard<AddOnSigner>> = Api::all(client.clone());
    let listed = api.list(&ListParams::default()).await.context("AddOnSigners cannot be listed")?;
    let mut served: BTreeMap<AddOnName, SignersOf> = BTreeMap::new();
    // `check` says which ones cannot be read.
    for spec in listed.items.into_iter().filter_map(|signer| Some(signer.0.ok()?.spec)) {
        for addon in spec.add_ons.iter().filter_map(|addon| addon.parse().ok()) {
            let served = served.entry(addon).or_default();
            served.signer_names.insert(spec.signer_name.clone());
            served.asks_itself |= spec.identity.requesters.contains(&Requester::AddOn);
            served.brings_trust |= spec.trust.manifest_work == TrustMode::Auto;
        }
    }
    Ok(served)
}

/// The clusters that the hub has accepted and that are not being deleted.
async fn accepted(client: &Client) -> anyhow::Result<BTreeSet<String>> {
    let clusters = pages(&clusters_api(client), ListParams::default()).await;
    let clusters = clusters.context("ManagedClusters cannot be listed")?;
    let clusters = clusters.into_iter().map(|cluster| cluster.object);
    let clusters = clusters.filter(|cluster| ocm::hub_accepts_client(cluster) && !ocm::is_being_deleted(cluster));
    Ok(clusters.map(|cluster| cluster.name_any()).collect())
}

fn no_standing(addon: &DynamicObject, key: &AddOnKey, accepted: &BTreeSet<String>) -> Option<&'static str> {
    if !accepted.contains(key.cluster.as_str()) {
        return Some("the hub to accept the cluster");
    }
    if ocm::is_being_deleted(addon) {
        return Some("the addon to be gone: it is being deleted");
    }
    ocm::is_suspended(addon).then_some("somebody to end the addon's suspension")
}

fn unregistered(addon: &DynamicObject, api: AddOnApi, served: &SignersOf) -> Option<String> {
    let status = addon.data.get("status").unwrap_or(&Value::Null);
    let mut lacking = served.signer_names.iter().filter(|name| !names_signer(status, api, name));
    lacking.next().filter(|_| !served.asks_itself).cloned()
}

/// The hub's ManifestWorks, as far as they show who has the trust bundle.
#[derive(Default)]
struct Brought {
    /// Whether the cluster has applied the present bundle.
    works: BTreeMap<AddOnKey, bool>,
}

impl Brought {
    /// `None` if the hub brings it to nobody, or has no place for it on this cluster.
    fn has_trust(&self, key: &AddOnKey, addon: &DynamicObject) -> Option<bool> {
        let has_place = matches!(Placement::read(addon).place, Place::Namespace(_));
        (has_place && !self.works.is_empty()).then(|| self.works.get(key).copied().unwrap_or_default())
    }
}

async fn works(client: &Client, namespace: &str) -> anyhow::Result<Brought> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get_opt(SERVING_CONFIG_MAP).await;
    let map = map.with_context(|| format!("the ConfigMap {SERVING_CONFIG_MAP} cannot be read"))?;
    let anchors = map.and_then(|map| map.data?.remove("ca.crt")).unwrap_or_default();
    let present = digest_of(&anchors);
    let works: Api<OcmObject> = Api::all_with(client.clone(), &manifest_work::resource());
    let works = match pages(&works, ListParams::default().labels(LABEL_HUB_TRUST)).await {
        Ok(works) => works,
        // There is no such API, or the caller may not read it, as the hub's own account without deploy/manifest-works.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Vec::new(),
        Err(error) => return Err(error).context("ManifestWorks cannot be listed"),
    };
    let works = works.iter().filter_map(|work| Work::read(&work.object));
    Ok(Brought { works: works.map(|(key, work)| (key, is_present(&work, &present))).collect() })
}

fn is_present(work: &Work, present: &AnchorsDigest) -> bool {
    work.is_applied && work.content.as_ref().is_some_and(|content| content.anchors == *present)
}

/// The valid certificates of each addon on each cluster.
async fn certificates(
    ledger: &LedgerSource,
    wanted: &Selection,
) -> anyhow::Result<BTreeMap<AddOnKey, Vec<Certificate>>> {
    let filter = Filter {
        cluster: wanted.cluster.as_ref().map(ToString::to_string),
        addon: wanted.addon.as_ref().map(ToString::to_string),
        state: Some(StateFilter::Valid),
        ..Filter::default()
    };
    let mut query = Query { filter, after: None, limit: PAGE_MAX };
    let mut found: BTreeMap<AddOnKey, Vec<Certificate>> = BTreeMap::new();
    loop {
        let page = ledger.page(&query).await?;
        query.after = page.items.last().map(|last| last.cursor(&query));
        for certificate in page.items {
            // The gateway's own certificates are of no cluster.
            if let (Ok(cluster), Ok(addon)) = (certificate.cluster.parse(), certificate.addon.parse()) {
                found.entry(AddOnKey { cluster, addon }).or_default().push(certificate);
            }
        }
        if page.metadata.next.is_none() {
            return Ok(found);
        }
    }
}

/// The certificate that lives longest of those that are not revoked.
fn held(certificates: &[Certificate], addon: &DynamicObject) -> Option<Held> {
    // The gateway lets nobody in whose revocation it cannot read.
    let revoked_before = match ocm::revocation(addon) {
        Ok(revocation) => revocation.map(|revocation| revocation.before),
        Err(_) => return None,
    };
    let valid = certificates.iter().filter(|held| revoked_before.is_none_or(|before| held.not_before >= before));
    let last_seen: Option<Timestamp> = valid.clone().filter_map(|held| held.last_seen).max();
    let longest = valid.max_by_key(|held| held.not_after)?;
    Some(Held { valid_until: longest.not_after, authority: longest.issuer.clone(), last_seen })
}

/// The newest request of each addon on each cluster that has no certificate, by when it was made.
type Requests = BTreeMap<AddOnKey, (Option<k8s_openapi::jiff::Timestamp>, Request)>;

async fn requests(client: &Client, signers: &BTreeMap<AddOnName, SignersOf>) -> anyhow::Result<Requests> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let names: BTreeSet<&String> = signers.values().flat_map(|served| &served.signer_names).collect();
    let mut newest: Requests = BTreeMap::new();
    let mut issued: BTreeMap<AddOnKey, Option<k8s_openapi::jiff::Timestamp>> = BTreeMap::new();
    for name in names {
        let of_signer = ListParams::default().fields(&format!("spec.signerName={name}"));
        for csr in pages(&api, of_signer).await.context("CertificateSigningRequests cannot be listed")? {
            let Some(key) = asked_for(&csr) else { continue };
            let made = csr.metadata.creation_timestamp.as_ref().map(|time| time.0);
            match request(&csr) {
                Some(request) if newest.get(&key).is_none_or(|(known, _)| *known < made) => {
                    newest.insert(key, (made, request));
                }
                Some(_) => {}
                None => {
                    let known = issued.entry(key).or_default();
                    *known = made.max(*known);
                }
            }
        }
    }
    newest.retain(|key, (made, _)| issued.get(key).is_none_or(|issued| issued < made));
    Ok(newest)
}

/// For whom the request is, if somebody of this cluster made it: labels are what the requester likes.
fn asked_for(csr: &CertificateSigningRequest) -> Option<AddOnKey> {
    let label = |name| csr.metadata.labels.as_ref()?.get(name);
    let key =
        AddOnKey { cluster: label(LABEL_CLUSTER_NAME)?.parse().ok()?, addon: label(LABEL_ADDON_NAME)?.parse().ok()? };
    let username = csr.spec.username.as_deref()?;
    let csr_user = csr.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_CSR_USER)).map(String::as_str);
    // OCM's gRPC server makes requests for agents.
    let proxy = Some(username).filter(|name| name.starts_with("system:serviceaccount:"));
    (tenant(username, csr_user, proxy) == tenant_of_cluster(&key.cluster)).then_some(key)
}

/// How far the request is; `None` if it has a certificate.
fn request(csr: &CertificateSigningRequest) -> Option<Request> {
    let name = csr.name_any();
    let status = csr.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if let Some(refused) = conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed")) {
        let reason = refused.reason.as_deref().unwrap_or_default();
        let message = refused.message.as_deref().unwrap_or_default();
        return Some(Request::Refused { name, why: format!("{reason}: {message}") });
    }
    if status.is_some_and(|status| status.certificate.is_some()) {
        return None;
    }
    let is_approved = conditions.iter().any(|condition| condition.type_ == "Approved");
    Some(if is_approved { Request::Unsigned(name) } else { Request::Unapproved(name) })
}
