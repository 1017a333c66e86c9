//! The newest CSR of each addon on each cluster: the hub and `addon-signer status` report what it waits for.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::ResourceExt;

use crate::csrs::action::{self, WAITS, csr_user};
use crate::csrs::answerers::Answerers;
use addon_signer_core::certification::{Newest, OpenCsr};
use addon_signer_core::identity::{AddOnKey, AddOnName, ClusterName};
use addon_signer_core::names::LABEL_ADDON_NAME;
use addon_signer_core::policy::cluster_of;
use addon_signer_core::timestamp::Timestamp;

/// Of how many addons of a cluster CSRs are noted: whoever makes a CSR chooses its labels.
const MOST_OF_CLUSTER: usize = 64;
/// Of how many signer names the CSRs of one addon are noted.
const MOST_SIGNERS: usize = 4;
/// The longest kept text in bytes of one condition.
const MOST_TEXT: usize = 512;

/// What a CSR shows.
#[derive(Debug, Clone)]
enum CsrState {
    /// Reason and message.
    Refused(String),
    Waiting {
        is_approved: bool,
        /// The message of the condition that says why.
        message: Option<String>,
    },
}

#[derive(Debug, Clone)]
struct NotedCsr {
    made: Timestamp,
    name: String,
    state: CsrState,
    /// The list that showed it last.
    list: u64,
    is_deleted: bool,
}

/// Of one addon on one cluster, for one signer name. There is one for most addons of a fleet, so it is small.
#[derive(Debug)]
struct OfSigner {
    signer_name: Box<str>,
    /// The newest that has no certificate.
    open: Option<Box<NotedCsr>>,
    /// When the newest that has one was made.
    issued: Option<Timestamp>,
}

/// The newest CSRs.
#[derive(Debug, Default)]
pub struct NewestCsrs {
    clusters: HashMap<ClusterName, HashMap<AddOnName, Vec<OfSigner>>>,
    list: u64,
}

impl NewestCsrs {
    /// Notes a CSR, if a cluster made it. `grpc_proxy` is the account whose CSRs are for others.
    pub fn note(&mut self, csr: &CertificateSigningRequest, grpc_proxy: Option<&str>) {
        let Some(AddOnKey { cluster, addon }) = made_for(csr, grpc_proxy) else { return };
        let name = csr.name_any();
        if !action::is_sane_name(&name) {
            return; // the hub ignores it
        }
        let of_cluster = self.clusters.entry(cluster).or_default();
        if of_cluster.len() >= MOST_OF_CLUSTER && !of_cluster.contains_key(&addon) {
            return;
        }
        let of_addon = of_cluster.entry(addon).or_default();
        let signer_name = csr.spec.signer_name.as_str();
        let at = match of_addon.iter().position(|it| *it.signer_name == *signer_name) {
            Some(at) => at,
            None => {
                let new = OfSigner { signer_name: signer_name.into(), open: None, issued: None };
                if of_addon.len() < MOST_SIGNERS {
                    of_addon.reserve_exact(1);
                } else if let Some(unused) = of_addon.iter().position(|it| it.open.is_none() && it.issued.is_none()) {
                    of_addon.swap_remove(unused);
                } else {
                    return;
                }
                of_addon.push(new);
                of_addon.len() - 1
            }
        };
        let Some(of_signer) = of_addon.get_mut(at) else { return };
        let made = action::requested(csr);
        if action::is_issued(csr) {
            of_signer.open.take_if(|open| open.name == name);
            of_signer.issued = of_signer.issued.max(Some(made));
        } else if of_signer.open.as_ref().is_none_or(|known| known.made <= made) {
            of_signer.open =
                Some(Box::new(NotedCsr { made, name, state: state(csr), list: self.list, is_deleted: false }));
        }
    }

    /// Notes that a CSR was deleted.
    pub(crate) fn remove(&mut self, csr: &CertificateSigningRequest, grpc_proxy: Option<&str>) {
        let Some(AddOnKey { cluster, addon }) = made_for(csr, grpc_proxy) else { return };
        let of_addon = self.clusters.get_mut(&cluster).and_then(|addons| addons.get_mut(&addon));
        let mut signers = of_addon.into_iter().flatten();
        if let Some(of_signer) = signers.find(|it| *it.signer_name == csr.spec.signer_name) {
            of_signer.forget(|open| open.name == csr.name_any());
        }
    }

    /// Notes that a list begins, which shows all CSRs.
    pub(crate) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// Notes that the list is complete: what it did not show was deleted.
    pub(crate) fn complete_list(&mut self) {
        let list = self.list;
        for of_signer in self.clusters.values_mut().flat_map(HashMap::values_mut).flatten() {
            of_signer.forget(|open| open.list < list);
        }
    }

    /// Forgets all addons but these.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&ClusterName, &AddOnName) -> bool) {
        self.clusters.retain(|cluster, addons| {
            addons.retain(|addon, _| is_there(cluster, addon));
            !addons.is_empty()
        });
    }

    /// The newest CSR of an addon, unless a later one has a certificate. CSRs for signer names of AddOnSigners come
    /// first. A refusal counts unless the CSR was made before the newest certificate, or before `valid_from`: what was
    /// refused before a revocation says nothing about the time after it.
    pub fn open(
        &self,
        key: &AddOnKey,
        newest: Option<&Newest>,
        valid_from: Option<Timestamp>,
        answerers: &Answerers,
    ) -> Option<OpenCsr> {
        let since = newest.map(|newest| newest.not_before).max(valid_from);
        let of_addon = self.clusters.get(&key.cluster)?.get(&key.addon)?;
        let open = of_addon.iter().filter_map(|of_signer| Some((&*of_signer.signer_name, of_signer.open()?)));
        // What another program refuses is not known to be a fault.
        let counts = |name: &str, csr: &NotedCsr| {
            !csr.is_refused() || (answerers.get(name).is_some() && since.is_none_or(|since| csr.made >= since))
        };
        let open = open.filter(|(name, csr)| counts(name, csr));
        let (name, csr) = open.max_by_key(|(name, csr)| (answerers.get(name).is_some(), csr.made, *name))?;
        Some(csr.report(name, answerers))
    }

    /// The signer names that no AddOnSigner has and for which CSRs of these addons have waited since this time or
    /// longer: how many, and one of them; the most frequent first. Nobody serves them, or another program that is slow.
    pub fn unserved<'a>(
        &'a self,
        before: Timestamp,
        answerers: &Answerers,
        is_wanted: impl Fn(&ClusterName, &AddOnName) -> bool,
    ) -> Vec<(&'a str, usize, &'a str)> {
        let mut unserved: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        let addons = self.clusters.iter().flat_map(|(cluster, addons)| addons.iter().map(move |it| (cluster, it)));
        let wanted = addons.filter(|(cluster, (addon, _))| is_wanted(cluster, addon));
        for of_signer in wanted.flat_map(|(_, (_, of_addon))| of_addon) {
            let signer_name = &*of_signer.signer_name;
            let open = of_signer.open().filter(|open| !open.is_refused() && open.made <= before);
            if let Some(open) = open.filter(|_| answerers.get(signer_name).is_none()) {
                unserved.entry(signer_name).or_insert((0, &open.name)).0 += 1;
            }
        }
        let mut unserved: Vec<_> = unserved.into_iter().map(|(name, (count, csr))| (name, count, csr)).collect();
        unserved.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        unserved
    }
}

impl OfSigner {
    /// One that was refused counts until there is a newer one: the hub deletes it.
    fn forget(&mut self, is_gone: impl Fn(&NotedCsr) -> bool) {
        self.open.take_if(|open| {
            open.is_deleted |= is_gone(open);
            open.is_deleted && !open.is_refused()
        });
    }

    /// The newest one, unless a later one has a certificate.
    fn open(&self) -> Option<&NotedCsr> {
        let open = self.open.as_deref()?;
        // The order of two in the same second is unknown; then one that waits counts as the later.
        let is_later = |issued: Timestamp| issued < open.made || (issued == open.made && !open.is_refused());
        self.issued.is_none_or(is_later).then_some(open)
    }
}

impl NotedCsr {
    fn is_refused(&self) -> bool {
        matches!(self.state, CsrState::Refused(_))
    }

    fn report(&self, signer_name: &str, answerers: &Answerers) -> OpenCsr {
        let name = self.name.clone();
        match (&self.state, answerers.get(signer_name)) {
            (CsrState::Refused(why), _) => OpenCsr::Refused { name, why: why.clone(), is_deleted: self.is_deleted },
            (_, None) => {
                let nearest = answerers.nearest(signer_name);
                OpenCsr::NoSuchSigner { name, signer_name: signer_name.to_owned(), nearest }
            }
            (CsrState::Waiting { is_approved, message }, Some(answerer)) => {
                OpenCsr::Pending { waits_for: answerer.waits_for(&name, *is_approved, message.as_deref()) }
            }
        }
    }
}

/// The addon that the CSR is for, on the cluster that made it: requesters choose labels freely, so one with another
/// cluster's name in them is a fault of the cluster that made it.
fn made_for(csr: &CertificateSigningRequest, grpc_proxy: Option<&str>) -> Option<AddOnKey> {
    let addon = csr.metadata.labels.as_ref()?.get(LABEL_ADDON_NAME)?.parse().ok()?;
    let cluster = cluster_of(csr.spec.username.as_deref()?, csr_user(csr), grpc_proxy)?;
    Some(AddOnKey { cluster, addon })
}

fn state(csr: &CertificateSigningRequest) -> CsrState {
    let conditions = csr.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if let Some(refused) = conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed")) {
        let reason = refused.reason.as_deref().unwrap_or_default();
        return CsrState::Refused(format!("{reason}: {}", cut(refused.message.as_deref().unwrap_or_default())));
    }
    // The hub adds a condition whenever the CSR begins to wait for something else, so the last one is the newest.
    let waits = conditions.iter().rev().find(|condition| WAITS.contains(&condition.type_.as_str()));
    let message = waits.and_then(|waits: &CertificateSigningRequestCondition| waits.message.as_deref());
    let is_approved = conditions.iter().any(|condition| condition.type_ == "Approved");
    CsrState::Waiting { is_approved, message: message.map(|message| cut(message).to_owned()) }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

#[cfg(test)]
mod tests;
