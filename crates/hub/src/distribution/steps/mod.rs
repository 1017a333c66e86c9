//! What must be written so that every addon has its ManifestWork, and how far the distribution has come.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::known::KnownObjects;
use crate::dry_run::PolicyProblem;
use crate::registrations::wanted::Signers;
use addon_signer_api::manifest_work::{AnchorsDigest, Content, Place, Placement, Work};
use addon_signer_api::status::ConditionValue;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::lineage::Works;
use addon_signer_core::conditions::{DISTRIBUTED, DISTRIBUTING, PLACELESS, WORK_FAILED};
use addon_signer_core::identity::{AddOnKey, AddOnName};
use addon_signer_core::list::few;
use addon_signer_core::trust::Trust;

/// What the hub does with one ManifestWork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Creates it.
    Create { owner: Box<str>, namespace: Box<str> },
    /// Brings it up to date, if it still has this `resourceVersion`.
    Change { version: Box<str>, owner: Box<str>, namespace: Box<str> },
    /// Deletes it, if it still has this `resourceVersion`: at once, or after no AddOnSigner has wanted it for a while.
    Delete { version: Box<str>, at_once: bool },
}

/// How far the trust bundle has reached, by addon.
pub(crate) type TrustReport = BTreeMap<AddOnName, Reached>;

/// The clusters of an addon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Their number.
    pub total: usize,
    /// Those that have applied the present bundle.
    applied: BTreeSet<AddOnKey>,
    /// Those that get none: the agent runs on another cluster, or in a namespace without a legal name.
    placeless: BTreeSet<AddOnKey>,
    /// Those that should have applied it but have not.
    missing: BTreeSet<AddOnKey>,
    /// Why the last write failed.
    error: Option<String>,
}

/// The state of the distribution.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Distribution {
    /// Nothing yet.
    #[default]
    Starting,
    /// The hub may not write ManifestWorks, or there are none.
    Off,
    /// What has been delivered so far.
    Reached {
        /// The trust that is delivered.
        trust: Arc<Trust>,
        /// How far it has reached.
        report: TrustReport,
        /// Whether all AddOnSigners are valid, so that no addon is missing in the report.
        is_whole: bool,
        /// Whether an addon was recently dropped by the last AddOnSigner that named it, perhaps by mistake.
        has_shrunk: bool,
        /// Why the hub creates and changes no ManifestWork, so that no further cluster is reached; `None` if it does.
        unguarded: Option<Unguarded>,
        /// Those that applied the present bundle so recently that pods and agents may not use it yet.
        fresh: BTreeSet<AddOnKey>,
        /// Who gets no ManifestWork.
        others: BTreeSet<AddOnKey>,
    },
}

/// Why the hub does not use its right: the policy is not known to restrict it to the hub's own ManifestWorks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unguarded(pub PolicyProblem);

impl fmt::Display for Unguarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PolicyProblem::Missing => f.write_str(
                "it may write any: the ValidatingAdmissionPolicy addon-signer-manifest-works is not in force. \
                 Install the chart again; the binding must deny",
            ),
            PolicyProblem::Unknown(message) | PolicyProblem::RefusesHub(message) => write!(
                f,
                "it cannot tell whether the ValidatingAdmissionPolicy addon-signer-manifest-works is in force. Its \
                 dry run of a ManifestWork addon-signer-probe that this policy must refuse ended with: \
                 {message}. First check that the chart has trust.manifestWorks. If it has, and another \
                 ValidatingAdmissionPolicy or something that changes new objects refuses the dry run, exempt the hub's \
                 account, or that name, from it"
            ),
        }
    }
}

impl Unguarded {
    /// The condition `TrustDistributed` in that case.
    pub(crate) fn condition(&self) -> ConditionValue {
        (false, self.0.reason(), format!("The hub creates and changes no ManifestWork, because {self}."))
    }
}

impl Distribution {
    /// The ManifestWorks for the rule of when an authority may sign; `None` if there are none.
    pub(crate) fn works(&self) -> Option<Works<'_>> {
        match self {
            Self::Starting => Some(Works::default()),
            Self::Off => None,
            Self::Reached { trust, report, is_whole, has_shrunk, unguarded, fresh, others } => Some(Works {
                anchors: trust.serving_anchors.as_ref().map(Bundle::authorities).unwrap_or_default(),
                unserved: !is_whole,
                shrunk: *has_shrunk,
                ready: report.values().map(Reached::present).sum(),
                total: report.values().map(|reached| reached.total).sum(),
                unapplied: report.values().flat_map(|reached| &reached.missing).collect(),
                recent: fresh.iter().collect(),
                written: unguarded.is_none(),
                without: others.iter().collect(),
            }),
        }
    }
}

#[cfg(test)]
impl Reached {
    /// `total` addons on clusters, of which `present` have applied the bundle.
    pub(crate) fn of(present: usize, total: usize) -> Self {
        let key = |n: usize| AddOnKey { cluster: format!("c{n}").parse().unwrap(), addon: "a".parse().unwrap() };
        let (applied, missing) = ((0..present).map(key).collect(), (present..total).map(key).collect());
        Self { total, applied, missing, ..Self::default() }
    }
}

/// What to do and what to report.
pub(super) struct Planned {
    /// First missing works, then outdated ones, then those to delete.
    pub(super) steps: Vec<(AddOnKey, Step)>,
    pub(super) report: TrustReport,
    /// Who gets no ManifestWork.
    pub(super) others: BTreeSet<AddOnKey>,
    /// The addons that AddOnSigners name.
    pub(super) named: BTreeSet<AddOnName>,
}

/// Which addons get the bundle, and which lose it. While an AddOnSigner is invalid, an addon that no other AddOnSigner
/// serves keeps what it has.
struct WantedBundles<'s> {
    brings: BTreeSet<&'s AddOnName>,
    never: BTreeSet<&'s AddOnName>,
}

impl<'s> WantedBundles<'s> {
    fn of(signers: &'s Signers) -> Self {
        let addons = |brings: bool| {
            let served = signers.served.values().filter(move |config| config.brings_trust == brings);
            served.flat_map(|config| &config.rules.addons)
        };
        Self { brings: addons(true).collect(), never: addons(false).collect() }
    }

    fn gets_none(&self, key: &AddOnKey) -> bool {
        self.never.contains(&key.addon) && !self.brings.contains(&key.addon)
    }
}

/// Compares what exists with what should exist. `None` until both kinds of objects were listed. `is_live` tells whether
/// an addon is eligible: the others get the bundle too, but no rotation waits for them. `failed` tells why the last
/// write failed.
pub(super) fn plan(
    known: &KnownObjects,
    signers: &Signers,
    anchors: &AnchorsDigest,
    is_live: impl Fn(&AddOnKey) -> bool,
    failed: impl Fn(&AddOnKey) -> Option<String>,
) -> Option<Planned> {
    let KnownObjects { addons, works, .. } = known;
    if !addons.is_complete() || !works.is_complete() {
        return None;
    }
    let wanted = WantedBundles::of(signers);
    let (mut create, mut change, mut delete) = (Vec::new(), Vec::new(), Vec::new());
    let mut report = TrustReport::new();
    let without = addons.iter().map(|(key, _)| key).filter(|key| wanted.gets_none(key));
    let mut others: BTreeSet<AddOnKey> = without.filter(|key| is_live(key)).cloned().collect();
    for (key, placement) in addons.iter().filter(|(key, _)| wanted.brings.contains(&key.addon)) {
        let work = works.get(key);
        let step = step(placement, work, anchors);
        if is_live(key) {
            let reached = report.entry(key.addon.clone()).or_default();
            reached.count(key, placement, work, anchors);
            // A write without a response may have succeeded.
            if let Some(error) = step.as_ref().and_then(|_| failed(key)) {
                reached.error.get_or_insert_with(|| format!("{key}: {error}"));
            }
        }
        match step {
            Some(step @ Step::Create { .. }) => create.push((key.clone(), step)),
            Some(step @ Step::Change { .. }) => change.push((key.clone(), step)),
            Some(Step::Delete { .. }) | None => {}
        }
    }
    for (key, work) in works.iter().filter(|(_, work)| !work.is_deleting) {
        let (goes, at_once) = match addons.get(key) {
            None => (true, true),
            Some(placement) if wanted.brings.contains(&key.addon) => (placement.place == Place::Hosted, true),
            Some(_) if wanted.never.contains(&key.addon) => (true, true),
            Some(_) => (signers.is_whole, false),
        };
        if goes {
            delete.push((key.clone(), Step::Delete { version: work.version.clone(), at_once }));
        }
    }
    others.extend(report.values().flat_map(|reached| &reached.placeless).cloned());
    let named = wanted.brings.union(&wanted.never).map(|addon| (*addon).clone()).collect();
    Some(Planned { steps: create.into_iter().chain(change).chain(delete).collect(), report, others, named })
}

/// The step that brings the work up to date; `None` if it is up to date, or cannot be.
fn step(placement: &Placement, work: Option<&Work>, anchors: &AnchorsDigest) -> Option<Step> {
    let Place::Namespace(namespace) = &placement.place else { return None };
    if placement.is_leaving {
        return None; // Kubernetes deletes the work with the addon
    }
    let (owner, namespace) = (placement.uid.clone(), namespace.clone());
    match work {
        None => Some(Step::Create { owner, namespace }),
        Some(work) if work.is_deleting || brings(work, placement, anchors) => None,
        Some(work) => Some(Step::Change { version: work.version.clone(), owner, namespace }),
    }
}

fn brings(work: &Work, placement: &Placement, anchors: &AnchorsDigest) -> bool {
    let Place::Namespace(namespace) = &placement.place else { return false };
    let Some(content) = &work.content else { return false };
    let Content { owner, namespace: into, anchors: has } = content;
    *owner == placement.uid && into == namespace && has == anchors
}

impl Reached {
    fn count(&mut self, key: &AddOnKey, placement: &Placement, work: Option<&Work>, anchors: &AnchorsDigest) {
        self.total += 1;
        let brings = work.filter(|work| !work.is_deleting && brings(work, placement, anchors));
        if brings.is_some_and(|work| work.is_applied) {
            self.applied.insert(key.clone());
            return;
        }
        if matches!(placement.place, Place::Namespace(_)) {
            self.missing.insert(key.clone());
        } else {
            self.placeless.insert(key.clone());
        }
    }

    /// How many have applied the present bundle.
    #[must_use]
    pub(crate) fn present(&self) -> usize {
        self.applied.len()
    }

    /// Those that have applied the present bundle.
    pub(super) fn applied(&self) -> &BTreeSet<AddOnKey> {
        &self.applied
    }

    /// The sum over all these addons.
    #[must_use]
    pub(crate) fn sum<'r>(all: impl Iterator<Item = &'r Self>) -> Self {
        let mut sum = Self::default();
        for reached in all {
            sum.total += reached.total;
            sum.applied.extend(reached.applied.iter().cloned());
            sum.placeless.extend(reached.placeless.iter().cloned());
            sum.missing.extend(reached.missing.iter().cloned());
            sum.error = sum.error.or_else(|| reached.error.clone());
        }
        sum
    }

    /// The condition `TrustDistributed` of an AddOnSigner with these addons.
    #[must_use]
    pub(crate) fn condition(self) -> ConditionValue {
        let present = self.present();
        let Self { total, placeless, missing, error, .. } = self;
        if present == total {
            let sentence = format!("By ManifestWork {total} of {total} addons on clusters have the present bundle.");
            return (true, DISTRIBUTED, sentence);
        }
        let mut sentence = format!(
            "By ManifestWork {present} of {total} addons on clusters have the present bundle. Not yet: {}.",
            few(missing.iter().chain(&placeless))
        );
        if !placeless.is_empty() {
            sentence += &format!(
                " {} get none, because their agents run on a hosting cluster or in a namespace without a \
                 legal name.",
                placeless.len()
            );
        }
        if let Some(error) = &error {
            sentence += &format!(" The last failure: {error}.");
        }
        let reason = match error {
            _ if missing.is_empty() => PLACELESS,
            Some(_) => WORK_FAILED,
            None => DISTRIBUTING,
        };
        (false, reason, sentence)
    }
}

#[cfg(test)]
mod tests;
