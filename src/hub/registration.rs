//! `registration: Managed`: writes our signer into `status.registrations` of every addon it serves, so that OCM's agent asks for
//! a certificate, and leaves everything else in that status alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tracing::{debug, info, warn};

use crate::api::ocm::{self, AddOnApi, Registration};
use crate::api::rules::SignerConfig;
use crate::api::words;
use crate::clock::Clock;
use crate::hub::HubLinks;
use crate::hub::lease::Leading;
use crate::hub::registry::addons_api;
use crate::identity::{AddOnName, ClusterName, PeerIdentity};
use crate::timestamp::Timestamp;

/// How many objects one page of the list has when every addon is looked at again.
const PAGE: u32 = 500;
/// How long a failed write waits before the object is read again.
const RETRY: Duration = Duration::from_secs(5);

/// Whose registrations are kept, and whose are taken away.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Signers {
    /// The signers that are served, by the name of their AddOnSigner.
    pub served: Arc<BTreeMap<String, Arc<SignerConfig>>>,
    /// The signer names of AddOnSigners that were deleted: OCM's agents are no longer to ask for their certificates. One that is
    /// only bad is not here: its agents keep what they have, because OCM's agent deletes the Secret with the registration.
    pub deleted: Arc<BTreeSet<String>>,
}

/// Writes registrations.
pub struct Writer {
    client: Client,
    api: AddOnApi,
    clock: Clock,
    leading: Leading,
    retry: (mpsc::Sender<DynamicObject>, mpsc::Receiver<DynamicObject>),
}

impl Writer {
    /// With the hub's account, while it leads.
    pub fn new(links: &HubLinks, api: AddOnApi) -> Self {
        let (client, clock, leading) = (links.client.clone(), links.clock.clone(), links.leading.clone());
        Self { client, api, clock, leading, retry: mpsc::channel(1024) }
    }

    /// Writes registrations until one of its inputs ends: for every object that is seen, and for all when the signers change or
    /// `all_again` says that not all were passed on.
    pub async fn keep(
        mut self,
        mut seen: mpsc::Receiver<DynamicObject>,
        all_again: Arc<Notify>,
        mut signers: watch::Receiver<Signers>,
    ) {
        loop {
            tokio::select! {
                object = seen.recv() => match object {
                    Some(object) => {
                        let served = signers.borrow().clone();
                        self.write(&object, &served).await;
                    }
                    None => return,
                },
                Some(object) = self.retry.1.recv() => {
                    let served = signers.borrow().clone();
                    self.write_fresh(&object, &served).await;
                }
                changed = signers.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    all_again.notify_one();
                }
                () = all_again.notified() => {
                    let served = signers.borrow_and_update().clone();
                    if !self.write_all(&served).await {
                        let all_again = all_again.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(RETRY).await;
                            all_again.notify_one();
                        });
                    }
                }
            }
        }
    }

    /// Returns whether every object was looked at.
    async fn write_all(&self, signers: &Signers) -> bool {
        let addons = addons_api(&self.client, self.api);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match addons.list(&params).await {
                Ok(page) => page,
                Err(error) => {
                    warn!(%error, "Listing addons to write their registrations; trying again");
                    return false;
                }
            };
            for object in &page.items {
                self.write(object, signers).await;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
                None => return true,
            }
        }
    }

    async fn write_fresh(&self, object: &DynamicObject, signers: &Signers) {
        let namespace = object.namespace().unwrap_or_default();
        let addons = Api::<DynamicObject>::namespaced_with(self.client.clone(), &namespace, &self.api.resource());
        match addons.get_opt(&object.name_any()).await {
            Ok(Some(fresh)) => self.write(&fresh, signers).await,
            Ok(None) => {}
            Err(error) => self.later(object, &words(&error)),
        }
    }

    async fn write(&self, object: &DynamicObject, signers: &Signers) {
        let Some(status) = wanted_status(object, self.api, signers, self.clock.now()) else { return };
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let addons = Api::<DynamicObject>::namespaced_with(self.client.clone(), &namespace, &self.api.resource());
        if self.leading.epoch().is_none() {
            return self.later(object, "this hub does not lead now");
        }
        // With resourceVersion: both lists are replaced whole, so a write on an old view must fail.
        let body = json!({
            "metadata": { "resourceVersion": object.resource_version() },
            "status": status,
        });
        match addons.patch_status(&name, &PatchParams::default(), &Patch::Merge(&body)).await {
            Ok(_) => info!(cluster = namespace, addon = name, "Wrote the addon's registration"),
            Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
            Err(error) => self.later(object, &words(&error)),
        }
    }

    fn later(&self, object: &DynamicObject, error: &str) {
        let (cluster, addon) = (object.namespace().unwrap_or_default(), object.name_any());
        debug!(error, cluster, addon, "Writing the addon's registration; trying again");
        let (retry, object) = (self.retry.0.clone(), object.clone());
        tokio::spawn(async move {
            tokio::time::sleep(RETRY).await;
            // The receiver lives as long as the hub: when it is gone, so is the reason to write.
            let _ = retry.send(object).await;
        });
    }
}

/// The status patch that makes `object` carry exactly what the signers want; `None` when it does.
fn wanted_status(object: &DynamicObject, api: AddOnApi, signers: &Signers, now: Timestamp) -> Option<Value> {
    if ocm::is_being_deleted(object) {
        return None;
    }
    let cluster: ClusterName = object.namespace()?.parse().ok()?;
    let addon: AddOnName = object.name_any().parse().ok()?;
    let mut status = object.data.get("status").cloned().unwrap_or(Value::Null);
    let mut patch: Option<Value> = None;
    let now = now.to_string();
    let mut lay = |change: Option<Value>, status: &mut Value| {
        if let Some(change) = change {
            merge(status, &change);
            merge(patch.get_or_insert_with(|| json!({})), &change);
        }
    };
    for config in signers.served.values().filter(|config| config.registers) {
        let change = if config.rules.addons.contains(&addon) {
            ocm::apply_registration(&status, api, &registration(config, &cluster, &addon), &now)
        } else {
            ocm::remove_registration(&status, api, &config.rules.signer_name, &now)
        };
        lay(change, &mut status);
    }
    for signer_name in signers.deleted.iter() {
        let change = ocm::remove_registration(&status, api, signer_name, &now);
        lay(change, &mut status);
    }
    patch
}

fn registration(config: &SignerConfig, cluster: &ClusterName, addon: &AddOnName) -> Registration {
    let identity = PeerIdentity {
        cluster: cluster.clone(),
        addon: addon.clone(),
        // OCM's agents from v1.3 on name themselves after the addon; every addon name is an agent name.
        agent: crate::identity::AgentName::of_addon(addon),
    };
    Registration {
        signer_name: config.rules.signer_name.clone(),
        user: config.rules.convention.user(&identity),
        groups: config.rules.convention.groups(cluster, addon),
        organizational_units: config.rules.organizational_units.iter().cloned().collect(),
    }
}

/// Lays the top-level fields of `change` over `target`.
fn merge(target: &mut Value, change: &Value) {
    if !target.is_object() {
        *target = json!({});
    }
    if let (Some(target), Some(change)) = (target.as_object_mut(), change.as_object()) {
        target.extend(change.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_signers(names: &[&str]) -> Signers {
        let config = |name: &str| {
            let spec = json!({"signerName": format!("example.com/{name}"), "addOns": ["telemetry"]});
            Arc::new(SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap())
        };
        let served = names.iter().map(|name| ((*name).to_owned(), config(name))).collect();
        Signers { served: Arc::new(served), deleted: Arc::default() }
    }

    fn mk_addon(name: &str, status: Value) -> DynamicObject {
        let mut object = DynamicObject::new(name, &AddOnApi::V1Alpha1.resource()).within("c1");
        object.data = json!({ "status": status });
        object
    }

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    #[test]
    fn every_signer_of_an_addon_is_written_in_one_patch_and_then_rests() {
        let signers = mk_signers(&["a", "b"]);
        let patch = wanted_status(&mk_addon("telemetry", Value::Null), AddOnApi::V1Alpha1, &signers, NOW).unwrap();
        let entries = patch["registrations"].as_array().unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            entries[0]["subject"]["user"],
            "system:open-cluster-management:cluster:c1:addon:telemetry:agent:telemetry"
        );
        assert_eq!(wanted_status(&mk_addon("telemetry", patch), AddOnApi::V1Alpha1, &signers, NOW), None);
    }

    #[test]
    fn addons_of_other_signers_are_left_alone() {
        let foreign = json!({"registrations": [{"signerName": "other.io/x", "subject": {"user": "u"}}]});
        assert_eq!(wanted_status(&mk_addon("other", foreign), AddOnApi::V1Alpha1, &mk_signers(&["a"]), NOW), None);
    }

    #[test]
    fn the_entry_of_a_deleted_signer_is_taken_away_and_no_other() {
        let served = mk_signers(&["a", "b"]);
        let both = wanted_status(&mk_addon("telemetry", Value::Null), AddOnApi::V1Alpha1, &served, NOW).unwrap();
        let deleted = BTreeSet::from(["example.com/b".to_owned()]);
        let signers = Signers { deleted: Arc::new(deleted), ..mk_signers(&["a"]) };
        let patch = wanted_status(&mk_addon("telemetry", both), AddOnApi::V1Alpha1, &signers, NOW).unwrap();
        let entries = patch["registrations"].as_array().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0]["signerName"], "example.com/a");
    }
}
