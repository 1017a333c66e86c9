//! The state of all lineages and signers together, from which the hub computes what the gateway trusts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::authorities::state::LineageState;
use crate::tasks::send_news;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::lineage::{Lineage, Member, WaitsFor, renewal_window};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::{SignerTrust, Trust};

/// The state that the supervisor and all reconcilers share.
#[derive(Debug, Clone)]
pub(crate) struct TrustPublisher {
    entries: Arc<Mutex<Entries>>,
    trust: watch::Sender<Arc<Trust>>,
}

#[derive(Debug)]
struct Entries {
    /// Tells how many addons would renew.
    registry: SharedRegistry,
    listed: bool,
    /// AddOnSigners that exist but are not served, and whose certificates are unknown.
    unserved: BTreeSet<String>,
    signers: BTreeMap<String, PublishedSigner>,
    serving: Option<watch::Receiver<LineageState>>,
    gateway_client: Option<watch::Receiver<LineageState>>,
}

/// One signer.
#[derive(Debug)]
struct PublishedSigner {
    config: Arc<SignerConfig>,
    lineage: watch::Receiver<LineageState>,
    /// Computed from both; `None` until the lineage has been read.
    trust: Option<Arc<SignerTrust>>,
    /// Within how many seconds agents must renew since this authority became Active. It stays the same when the
    /// registry changes.
    window: Option<(AuthorityId, u32)>,
}

impl PublishedSigner {
    fn new(
        name: &str,
        config: Arc<SignerConfig>,
        lineage: watch::Receiver<LineageState>,
        registry: &SharedRegistry,
    ) -> Self {
        let mut entry = Self { config, lineage, trust: None, window: None };
        entry.refresh(name, registry);
        entry
    }

    fn refresh(&mut self, name: &str, registry: &SharedRegistry) {
        let last = self.lineage.borrow().last().cloned();
        self.trust = last.map(|ready| {
            let renew_within = self.renew_within(ready.lineage(), registry);
            let rules = &self.config.rules;
            Arc::new(SignerTrust {
                name: name.to_owned(),
                signer_name: rules.signer_name.clone(),
                addons: rules.addons.clone(),
                convention: rules.convention.clone(),
                client_anchors: ready.bundle.clone(),
                renew_within,
                attachment: self.config.attachment.clone(),
            })
        });
    }

    /// While the addons are unknown, no agent is told to renew.
    fn renew_within(&mut self, lineage: &Lineage, registry: &SharedRegistry) -> BTreeMap<AuthorityId, u32> {
        let active = lineage.active().filter(|_| lineage.distrusted().next().is_some());
        let Some(active) = active.map(|active| active.authority.id()) else {
            self.window = None;
            return BTreeMap::new();
        };
        if self.window.as_ref().is_none_or(|(of, _)| of != active) {
            let addons = &self.config.rules.addons;
            let known = registry.read(|registry| registry.is_ready().then(|| registry.count_eligible(addons)));
            self.window = known.map(|addons| (active.clone(), renewal_window(addons)));
        }
        let seconds = self.window.as_ref().map(|(_, seconds)| *seconds);
        seconds.map(|seconds| lineage.distrusted().map(|id| (id.clone(), seconds)).collect()).unwrap_or_default()
    }
}

impl TrustPublisher {
    /// An empty publisher that sends to `trust`.
    pub(crate) fn new(trust: watch::Sender<Arc<Trust>>, registry: SharedRegistry) -> Self {
        let entries = Entries {
            registry,
            listed: false,
            unserved: BTreeSet::new(),
            signers: BTreeMap::new(),
            serving: None,
            gateway_client: None,
        };
        Self { entries: Arc::new(Mutex::new(entries)), trust }
    }

    /// Adds or changes a signer.
    pub(crate) fn set_signer(&self, name: &str, config: Arc<SignerConfig>, lineage: watch::Receiver<LineageState>) {
        self.change(|entries| {
            let entry = PublishedSigner::new(name, config, lineage, &entries.registry);
            entries.signers.insert(name.to_owned(), entry)
        });
    }

    /// Removes a signer: the gateway no longer accepts its certificates. Until [`Self::set_unserved`] is called, the
    /// certificates that it has issued are unknown.
    pub(crate) fn remove_signer(&self, name: &str) {
        self.change(|entries| {
            entries.signers.remove(name);
            entries.unserved.insert(name.to_owned())
        });
    }

    /// Sets a lineage of the gateway.
    pub(crate) fn set_gateway(&self, certificate: GatewayCertificate, lineage: watch::Receiver<LineageState>) {
        self.change(|entries| match certificate {
            GatewayCertificate::Serving => entries.serving.replace(lineage),
            GatewayCertificate::Client => entries.gateway_client.replace(lineage),
        });
    }

    /// Notes that the list of signers is complete.
    pub(crate) fn set_listed(&self) {
        self.change(|entries| entries.listed = true);
    }

    /// Notes the AddOnSigners that exist but are not served, and whose certificates are unknown. Returns whether that
    /// is new.
    pub(crate) fn set_unserved(&self, names: BTreeSet<String>) -> bool {
        let is_new = self.entries.lock().unserved != names;
        if is_new {
            self.change(|entries| entries.unserved = names);
        }
        is_new
    }

    /// Whether any AddOnSigner is not served.
    pub(crate) fn has_unserved(&self) -> bool {
        !self.entries.lock().unserved.is_empty()
    }

    /// The longest life that any signer may give a certificate.
    pub(crate) fn longest_life(&self) -> Duration {
        let entries = self.entries.lock();
        entries.signers.values().map(|entry| entry.config.rules.max_duration).max().unwrap_or_default()
    }

    /// The latest expiry of a certificate that is issued now.
    pub(crate) fn last_end(&self) -> Option<Timestamp> {
        let entries = self.entries.lock();
        entries.serving.as_ref().and_then(|lineage| lineage.borrow().last()?.lineage().last_end())
    }

    /// When the last certificate of all client lineages expires.
    ///
    /// # Errors
    /// Why the hub does not know the last certificate yet: something is still unread, or an administrator must fix
    /// something.
    pub(crate) fn last_leaf(&self) -> Result<Option<Timestamp>, WaitsFor> {
        Ok(self.client_members()?.iter().filter_map(|member| member.leaves_expire).max())
    }

    fn client_members(&self) -> Result<Vec<Member>, WaitsFor> {
        let entries = self.entries.lock();
        if !entries.listed {
            return Err(WaitsFor::Read("the AddOnSigners".to_owned()));
        }
        if let Some(name) = entries.unserved.first() {
            return Err(WaitsFor::Unserved(name.clone()));
        }
        let mut members = Vec::new();
        for (name, PublishedSigner { lineage, .. }) in &entries.signers {
            let lineage = lineage.borrow();
            if matches!(*lineage, LineageState::Absent) {
                continue;
            }
            let unread = || WaitsFor::Read(format!("the authorities of the AddOnSigner {name}"));
            let ready = lineage.last().ok_or_else(unread)?;
            members.extend_from_slice(ready.lineage().members());
        }
        Ok(members)
    }

    /// Publishes what the gateway must trust after a change of this lineage, if it differs from what was published.
    pub(crate) fn publish(&self, lineage: &str) {
        self.change(|entries| {
            if let Some(entry) = entries.signers.get_mut(lineage) {
                entry.refresh(lineage, &entries.registry);
            }
        });
    }

    /// Tells agents to renew. Before, that was not possible, because their number was unknown.
    pub(crate) fn tell_agents(&self) {
        self.change(|Entries { signers, registry, .. }| {
            let is_unreported = |entry: &PublishedSigner| {
                let last = entry.lineage.borrow().last().cloned();
                entry.window.is_none() && last.is_some_and(|ready| ready.lineage().distrusted().next().is_some())
            };
            signers
                .iter_mut()
                .filter(|(_, entry)| is_unreported(entry))
                .for_each(|(name, entry)| entry.refresh(name, registry));
        });
    }

    /// The authorities of this signer whose certificates agents should renew, and within how many seconds.
    pub(crate) fn renew_within(&self, signer: &str) -> BTreeMap<AuthorityId, u32> {
        let entries = self.entries.lock();
        let trust = entries.signers.get(signer).and_then(|entry| entry.trust.as_ref());
        trust.map(|trust| trust.renew_within.clone()).unwrap_or_default()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) {
        let mut entries = self.entries.lock();
        change(&mut entries);
        let trust = Arc::new(entries.trust());
        // Inside the lock, so that an older view never replaces a newer one.
        send_news(&self.trust, trust);
    }
}

impl Entries {
    fn trust(&self) -> Trust {
        let (serving_anchors, serving_active) = anchors_and_active(self.serving.as_ref());
        let (client_anchors, client_active) = anchors_and_active(self.gateway_client.as_ref());
        let signers = self.signers.values().filter_map(|entry| entry.trust.clone()).collect();
        Trust { signers, serving_anchors, serving_active, client_anchors, client_active }
    }
}

fn anchors_and_active(lineage: Option<&watch::Receiver<LineageState>>) -> (Option<Bundle>, Option<AuthorityId>) {
    let ready = lineage.and_then(|lineage| lineage.borrow().last().cloned());
    let active = ready.as_ref().and_then(|ready| ready.lineage().active().map(|active| active.authority.id().clone()));
    (ready.map(|ready| ready.anchors.clone()), active)
}
