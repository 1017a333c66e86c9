//! Feeds the registry from watches of ManagedCluster and ManagedClusterAddOn, in the version that is stored.
//!
//! The watch of addons also feeds the writer of `status.registrations`: see [`crate::registrations`].

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::{Client, ResourceExt};
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, interval_at, timeout};
use tracing::{info, warn};

use crate::distribution::known::Known;
use crate::recording::Notes;
use crate::registrations::discovery::{ANSWERED, AddOnVersion, says_absent, stored_version};
use crate::registrations::work::SeenAddOn;
use crate::relist::{News, Relist};
use crate::tasks::{EligibilityWatch, HubTasks};
use addon_signer_api::ocm::{self, ADDON_GROUP, AddOnApi, OcmObject, annotator};
use addon_signer_core::identity::{AddOnKey, AddOnName, ClusterName};
use addon_signer_core::names::ANNOTATION_SUSPENDED;
use addon_signer_core::registry::{
    AddOn, AddOnFacts, Change, ClusterFacts, Eligibility, EligibilityChange, Registry, SharedRegistry,
};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::listing::{Selector, Watch, watch as watch_objects};
use addon_signer_telemetry::audit::Audit;

/// The registry, and the receivers of its changes.
#[derive(Clone)]
pub(crate) struct Recorded {
    /// The eligible addons.
    pub registry: SharedRegistry,
    /// `None` for a gateway, which only reads.
    pub sinks: Option<Sinks>,
}

/// The receivers of changes in a signer.
#[derive(Clone)]
pub(crate) struct Sinks {
    /// The log of decisions.
    pub audit: Audit,
    /// The pending records of the ledger.
    pub notes: Notes,
    /// Notified of changed eligibility, and when the registry is complete.
    pub eligibility: EligibilityWatch,
    /// Where agents run, for the distribution of trust.
    pub known: Known,
    /// Gets each addon that was seen.
    pub seen: mpsc::Sender<SeenAddOn>,
    /// Notified when an addon was seen and too many waited already.
    pub all_again: Arc<Notify>,
}

impl Sinks {
    /// Writing is slower than reading, and the watch must not wait for it: a detached cluster has to lose its access.
    fn pass_on(&self, addon: SeenAddOn) -> Result<(), RegistryError> {
        match self.seen.try_send(addon) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.all_again.notify_one(),
            Err(TrySendError::Closed(_)) => return Err(RegistryError::Ended("registrations")),
        }
        Ok(())
    }
}

impl Recorded {
    fn write(&self, change: impl FnOnce(&mut Registry) -> Vec<EligibilityChange>) {
        self.write_by("", change);
    }

    /// Changes the registry after a change of an addon whose [`ANNOTATION_SUSPENDED`] the program `annotator` wrote.
    fn write_by(&self, annotator: &str, change: impl FnOnce(&mut Registry) -> Vec<EligibilityChange>) {
        // The lock is released before anything is recorded, because CSRs wait for the lock.
        let was_ready = self.registry.read(Registry::is_ready);
        let changes = self.registry.write(change);
        let Some(Sinks { audit, notes, eligibility, .. }) = &self.sinks else { return };
        if was_ready != self.registry.read(Registry::is_ready) {
            eligibility.all_changed();
        } else if !changes.is_empty() {
            eligibility.changed(changes.iter().map(|change| change.cluster.clone()));
        }
        for change in changes {
            audit.eligibility(&change);
            notes.eligibility(&change, annotator);
            if change.change == Change::Eligibility(Eligibility::Registered) {
                // The addon may have been recreated with another revocation than before.
                notes.revocation(&self.registry, &change.cluster, &change.addon);
            }
        }
    }
}

/// Why the registry cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Neither version of ManagedClusterAddOn is served.
    #[error(
        "the API server serves no {ADDON_GROUP} ManagedClusterAddOn in v1beta1 or v1alpha1: \
         is Open Cluster Management installed?"
    )]
    NoAddOnApi,
    /// Discovery failed.
    #[error("the API server's resources cannot be read: {}", addon_signer_platform::errors::explain(.0))]
    Discovery(#[source] kube::Error),
    /// A watch ended, which it never does by itself.
    #[error("the watch of {0} ended")]
    Ended(&'static str),
}

/// The version of ManagedClusterAddOn to use: the one that is stored, because all have the same facts, and the others
/// need OCM's webhook.
///
/// # Errors
/// [`RegistryError::NoAddOnApi`] or [`RegistryError::Discovery`].
pub async fn discover(client: &Client) -> Result<AddOnApi, RegistryError> {
    let apis = [AddOnApi::V1Beta1, AddOnApi::V1Alpha1];
    let versions = apis.map(AddOnApi::version);
    let ApiResource { plural, .. } = AddOnApi::V1Beta1.resource();
    let stored = stored_version(client, ADDON_GROUP, &plural, &versions).await.map_err(RegistryError::Discovery)?;
    apis.into_iter().find(|api| stored == Some(api.version())).ok_or(RegistryError::NoAddOnApi)
}

/// How often to ask for the version although the watch does not fail.
const ASKED: Duration = Duration::from_secs(300);

/// ManagedClusters.
pub fn clusters_api(client: &Client) -> Api<OcmObject> {
    Api::all_with(client.clone(), &ocm::managed_cluster_resource())
}

/// ManagedClusterAddOns of all clusters.
pub fn addons_api(client: &Client, api: AddOnApi) -> Api<OcmObject> {
    Api::all_with(client.clone(), &api.resource())
}

/// Starts both watches.
pub(crate) fn start(tasks: &mut HubTasks, client: &Client, version: AddOnVersion, registry: Recorded) {
    let clusters = (client.clone(), registry.clone());
    tasks.spawn("ManagedClusters", async move { Ok(watch_clusters(clusters.0, clusters.1).await?) });
    let client = client.clone();
    tasks.spawn("ManagedClusterAddOns", async move { Ok(watch_addons(client, version, registry).await?) });
}

/// Keeps the clusters of the registry up to date until the watch ends.
///
/// # Errors
/// [`RegistryError::Ended`]; errors of the watch itself are logged and retried.
async fn watch_clusters(client: Client, registry: Recorded) -> Result<(), RegistryError> {
    let mut events = watch_objects(clusters_api(&client), Selector::all());
    let mut relist = Relist::default();
    while let Some(event) = events.next().await {
        match event.map(|event| relist.news(event, |found| found.name_any().parse::<ClusterName>().ok())) {
            Ok(None) => {}
            // Apply a list before it is complete, which may take a minute: a cluster that was suspended while the watch
            // was broken must lose its access sooner.
            Ok(Some(News::There(found))) => {
                if let Some((name, facts)) = cluster_entry(&found.object) {
                    let set = ocm::cluster_set(&found.object);
                    registry.write(|registry| {
                        registry.set_cluster_set(&name, set);
                        registry.set_cluster(name, Some(facts))
                    });
                }
            }
            Ok(Some(News::Deleted(found))) => {
                if let Some((name, _)) = cluster_entry(&found.object) {
                    registry.write(|registry| registry.set_cluster(name, None));
                }
            }
            Ok(Some(News::Listed(shown))) => {
                info!(clusters = shown.len(), "The hub has read the managed clusters");
                registry.write(|registry| registry.complete_clusters(|cluster| shown.contains(cluster)));
            }
            Err(error) => warn!(%error, "The watch of managed clusters failed; the hub retries"),
        }
    }
    Err(RegistryError::Ended("ManagedClusters"))
}

/// Keeps the addons of the registry up to date until the watch ends, and forwards each object.
///
/// # Errors
/// [`RegistryError::Ended`]; errors of the watch itself are logged and retried.
async fn watch_addons(client: Client, version: AddOnVersion, registry: Recorded) -> Result<(), RegistryError> {
    let mut events = addon_events(&client, &version);
    let mut relist = Relist::default();
    let mut asks = interval_at(Instant::now() + ASKED, ASKED);
    loop {
        let event = tokio::select! {
            event = events.next() => event.ok_or(RegistryError::Ended("ManagedClusterAddOns"))?,
            _ = asks.tick() => {
                if has_changed(&version, &client).await {
                    events = addon_events(&client, &version);
                }
                continue;
            }
        };
        match event.map(|event| relist.news(event, |found| ocm::addon_key(&found.object))) {
            Ok(None) => {}
            Ok(Some(News::Listed(shown))) => {
                info!(addons = shown.len(), "The hub has read the addons of the managed clusters");
                registry.write(|registry| registry.complete_addons(|key| shown.contains(key)));
                if let Some(sinks) = &registry.sinks {
                    sinks.known.complete_addons(|key| shown.contains(key));
                    // The writer must learn of addons that were deleted while the watch was broken; the list does not
                    // show them.
                    sinks.all_again.notify_one();
                }
            }
            Ok(Some(News::There(object))) => {
                record_addon(&registry, &object.object);
                if let Some(sinks) = &registry.sinks {
                    sinks.known.put_addon(&object.object);
                    sinks.pass_on(SeenAddOn::There(Box::new(object)))?;
                }
            }
            Ok(Some(News::Deleted(object))) => {
                let Some(key) = ocm::addon_key(&object.object) else { continue };
                let AddOnKey { cluster, addon } = key.clone();
                registry.write(|registry| registry.put_addon(cluster, addon, None));
                if let Some(sinks) = &registry.sinks {
                    sinks.known.remove_addon(&key);
                    sinks.pass_on(SeenAddOn::Deleted(key))?;
                }
            }
            Err(error) => {
                warn!(%error, "The watch of addons failed; the hub retries");
                if has_changed(&version, &client).await {
                    events = addon_events(&client, &version);
                }
            }
        }
    }
}

fn addon_events(client: &Client, version: &AddOnVersion) -> Watch<OcmObject> {
    info!(version = version.now().version(), "The hub reads this version of ManagedClusterAddOn");
    watch_objects(addons_api(client, version.now()), Selector::all())
}

/// Whether another version must be used now. If the API server does not answer, the version stays.
async fn has_changed(version: &AddOnVersion, client: &Client) -> bool {
    let discovered = timeout(ANSWERED, discover(client)).await;
    discovered.is_ok_and(|found| found.is_ok_and(|api| version.set(api)))
}

/// Asks the API server for one addon: a refusal is final, so the hub does not base it on a watch that may be late. The
/// result has only this cluster, with its ManagedClusterSet, and this addon.
pub async fn look_up(
    client: &Client,
    api: AddOnApi,
    cluster: &ClusterName,
    addon: &AddOnName,
) -> Result<Registry, kube::Error> {
    let namespaced = Api::<OcmObject>::namespaced_with(client.clone(), cluster.as_str(), &api.resource());
    let clusters = clusters_api(client);
    let (found_cluster, found_addon) =
        tokio::try_join!(find(&clusters, cluster.as_str()), find(&namespaced, addon.as_str()))?;
    let mut registry = Registry::default();
    registry.set_cluster_set(cluster, found_cluster.as_ref().and_then(|found| ocm::cluster_set(&found.object)));
    registry.set_cluster(cluster.clone(), found_cluster.map(|found| cluster_facts(&found.object)));
    registry.put_addon(cluster.clone(), addon.clone(), found_addon.map(|found| read_addon(&found.object)));
    registry.complete_clusters(|_| true);
    registry.complete_addons(|_| true);
    Ok(registry)
}

/// Unlike kube's `get_opt`, fails if the API server does not serve such objects.
async fn find(api: &Api<OcmObject>, name: &str) -> Result<Option<OcmObject>, kube::Error> {
    match api.get(name).await {
        Err(kube::Error::Api(status)) if says_absent(&status, name) => Ok(None),
        found => found.map(Some),
    }
}

fn record_addon(registry: &Recorded, object: &DynamicObject) {
    if let Some(AddOnKey { cluster, addon }) = ocm::addon_key(object) {
        let found = read_addon(object);
        registry.write_by(annotator(&object.metadata, ANNOTATION_SUSPENDED), |registry| {
            registry.put_addon(cluster, addon, Some(found))
        });
    }
}

/// Objects with names that OCM does not allow are not registered: no client can be identified by such a name.
fn cluster_entry(object: &DynamicObject) -> Option<(ClusterName, ClusterFacts)> {
    object.name_any().parse().ok().map(|name| (name, cluster_facts(object)))
}

/// Without a readable time of creation a cluster is as good as not accepted.
fn cluster_facts(object: &DynamicObject) -> ClusterFacts {
    let created = ocm::created(object).unwrap_or(Timestamp::from_unix(i64::MAX));
    let accepted = created.unix() < i64::MAX && ocm::hub_accepts_client(object);
    ClusterFacts { accepted, deleting: ocm::is_being_deleted(object), created }
}

fn read_addon(object: &DynamicObject) -> AddOn {
    let (Ok(revocation), Some(created)) = (ocm::revocation(object), ocm::created(object)) else {
        return AddOnFacts::Unreadable.into();
    };
    let facts = if ocm::is_being_deleted(object) {
        AddOnFacts::Deleting
    } else if ocm::is_suspended(object) {
        AddOnFacts::Suspended
    } else {
        AddOnFacts::Installed
    };
    AddOn { facts, created, revocation: revocation.map(Box::new) }
}

#[cfg(test)]
mod tests;
