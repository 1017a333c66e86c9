//! Publishes the gateway's anchors to the pods of the hub cluster, such as agents in OCM's hosted mode: by one
//! ClusterTrustBundle, if the API server supports it and the hub has the right (`trust.clusterTrustBundle` in the
//! chart).
//!
//! No rotation waits for it, and its failures stop nothing else: it only reads what the reconciler has published.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::runtime::watcher::watch_object;
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::{ASK_AGAIN, CONFIRMED_AFTER, LONGEST, PAUSE, ROUND, SHORTEST, changed, rest};
use crate::HubLinks;
use crate::conditions::Report;
use crate::lease::{Leads, NotWritten};
use crate::permission;
use crate::registrations::discovery::served_version;
use crate::registrations::wanted::Signers;
use addon_signer_api::cluster_trust_bundle::{
    CERTIFICATES_GROUP, CLUSTER_TRUST_BUNDLES, ClusterTrustBundle, TRUST_BUNDLE, VERSIONS, body, resource,
};
use addon_signer_api::registrations::FIELD_MANAGER;
use addon_signer_core::conditions::{NOT_PUBLISHED, PUBLISHED};
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::identity::GATEWAY_SERVING_SIGNER;
use addon_signer_core::trust::Trust;
use addon_signer_platform::backoff::Pauses;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// What the publisher reads and reports.
pub(crate) struct PublisherInputs {
    pub(crate) signers: watch::Receiver<Option<Signers>>,
    pub(crate) trust: watch::Receiver<Arc<Trust>>,
    /// The condition of the AddOnSigners that want the ClusterTrustBundle.
    pub(crate) report: watch::Sender<Report>,
}

pub(crate) struct BundlePublisher {
    links: HubLinks,
    inputs: PublisherInputs,
    wish: Desired,
    /// The anchors of the last write, or none for a deletion.
    tried: Option<String>,
    reverts: RevertBackoff<Instant>,
    /// Whether the last write failed, which is reported then.
    is_failing: bool,
    /// Set once another client has kept undoing it: the time until which the hub's version must stay before the dispute
    /// counts as over.
    disputed: Option<Instant>,
    pulse: Pulse,
}

/// The AddOnSigners that want the ClusterTrustBundle.
#[derive(Default)]
struct Desired {
    /// The AddOnSigners that wanted it last.
    by: BTreeSet<String>,
    /// Since when none has wanted it.
    unwanted: Option<Instant>,
}

impl Desired {
    /// Whether it should exist; `None` if it stays as it is. It is deleted at once if the AddOnSigners that wanted it
    /// no longer do, and later if they were deleted: deleting and recreating an AddOnSigner must not remove the
    /// anchors.
    fn is_granted(&mut self, signers: &Signers, now: Instant) -> Option<bool> {
        let wanting = signers.served.iter().filter(|(_, config)| config.publishes_trust);
        let by: BTreeSet<String> = wanting.map(|(name, _)| name.clone()).collect();
        if !by.is_empty() {
            *self = Self { by, unwanted: None };
            return Some(true);
        }
        if !signers.is_whole {
            self.unwanted = None; // an invalid one may want it
            return None;
        }
        let since = *self.unwanted.get_or_insert(now);
        let is_refused = !self.by.is_empty() && self.by.iter().all(|name| signers.served.contains_key(name));
        (is_refused || now.duration_since(since) >= CONFIRMED_AFTER).then_some(false)
    }
}

impl BundlePublisher {
    pub(crate) fn new(links: &HubLinks, inputs: PublisherInputs) -> Self {
        Self {
            links: links.clone(),
            inputs,
            wish: Desired::default(),
            tried: None,
            reverts: RevertBackoff::new(SHORTEST, LONGEST),
            is_failing: false,
            disputed: None,
            pulse: links.pulses.start("trust of the hub cluster"),
        }
    }

    /// Runs as long as the hub.
    pub(crate) async fn run(mut self) {
        let mut pauses = Pauses::new(SHORTEST, ASK_AGAIN);
        let mut is_logged = false;
        loop {
            let pause = match may_publish(&self.links.client).await {
                Ok(Some(version)) => {
                    is_logged = false;
                    let error = self.keep(version).await;
                    warn!(error, "Could not update the ClusterTrustBundle; the hub retries");
                    pauses.after_failure()
                }
                Ok(None) => {
                    if !is_logged {
                        info!(
                            "The hub publishes no ClusterTrustBundle: the API server has none, or the hub lacks the \
                             right (trust.clusterTrustBundle in the chart's values)"
                        );
                    }
                    is_logged = true;
                    self.inputs.report.send_replace(Report::Nothing);
                    ASK_AGAIN
                }
                Err(error) => {
                    let error = explain(&error);
                    warn!(error, "Could not check whether the hub may write its ClusterTrustBundle; the hub retries");
                    pauses.after_failure()
                }
            };
            rest(&self.pulse, pause).await;
        }
    }

    /// Keeps the ClusterTrustBundle up to date until that fails; returns why.
    async fn keep(&mut self, version: &str) -> String {
        let api = Api::<ClusterTrustBundle>::all_with(self.links.client.clone(), &resource(version));
        let mut events = watch_object(api.clone(), TRUST_BUNDLE).boxed();
        let mut found = None;
        loop {
            self.pulse.beat();
            let next = match &mut found {
                None => Instant::now() + ROUND,
                Some(found) => match self.settle(&api, version, found).await {
                    Ok(next) => next,
                    Err(error) => return error,
                },
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(object)) => found = Some(object),
                    Some(Err(error)) => return explain(&error),
                    None => return "the watch of it has ended".to_owned(),
                },
                () = changed(&mut self.inputs.signers) => {}
                () = changed(&mut self.inputs.trust) => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Compares what exists with what should exist, and writes it if it differs; returns when to check again.
    async fn settle(
        &mut self,
        api: &Api<ClusterTrustBundle>,
        version: &str,
        found: &mut Option<ClusterTrustBundle>,
    ) -> Result<Instant, String> {
        let now = Instant::now();
        let signers = self.inputs.signers.borrow_and_update().clone();
        let trust = Arc::clone(&self.inputs.trust.borrow_and_update());
        let (Some(signers), Some(anchors)) = (signers, &trust.serving_anchors) else { return Ok(now + ROUND) };
        let is_wanted = self.wish.is_granted(&signers, now).unwrap_or(found.is_some());
        let wanted = is_wanted.then(|| anchors.pem());
        if found.as_ref().map(|found| &found.spec.trust_bundle) == wanted.as_ref() {
            if let Some(until) = self.disputed.filter(|until| now < *until) {
                return Ok(until);
            }
            self.disputed = None;
            let sentence = || format!("The ClusterTrustBundle {TRUST_BUNDLE} has the gateway's present trust bundle.");
            let condition = is_wanted.then(|| (true, PUBLISHED, sentence()));
            self.inputs.report.send_replace(condition.into());
            return Ok(now + ROUND);
        }
        if self.tried != wanted {
            self.reverts = RevertBackoff::new(SHORTEST, LONGEST);
        } else if let Some(due) = self.reverts.due().filter(|due| now < *due) {
            self.say_disputed(is_wanted, now, due);
            return Ok(due);
        }
        let Ok(leads) = self.links.leading.leads() else { return Ok(now + PAUSE) };
        self.tried.clone_from(&wanted);
        self.reverts.wrote(now);
        self.is_failing = false;
        // The other client may undo it at once, and the condition must not change each time.
        self.disputed = self.disputed.map(|_| now + ROUND);
        match write(api, &leads, found.clone(), wanted.map(|anchors| body(version, &anchors))).await {
            Ok(written) => *found = written,
            Err(NotWritten::NotLeading(_)) => {}
            // Another client was faster: the watch shows what exists now.
            Err(NotWritten::Api(Error::Api(status)))
                if status.is_conflict() || status.is_not_found() || status.is_already_exists() => {}
            Err(NotWritten::Api(error)) => {
                let error = explain(&error);
                self.is_failing = true;
                let sentence = format!("The ClusterTrustBundle {TRUST_BUNDLE} cannot be written: {error}.");
                self.inputs.report.send_replace(Report::ConditionValue((false, NOT_PUBLISHED, sentence)));
                return Err(error);
            }
        }
        Ok(now)
    }

    /// Reports that another client's content stays for a while, if the pause is too long for a single edit.
    fn say_disputed(&mut self, is_wanted: bool, now: Instant, due: Instant) {
        let is_long = due.duration_since(now) >= ROUND;
        if !is_wanted || self.is_failing || (!is_long && self.disputed.is_none()) {
            return;
        }
        self.disputed = Some(now + ROUND);
        let sentence = format!(
            "Somebody keeps changing the ClusterTrustBundle {TRUST_BUNDLE}, so pods may have other anchors than the \
             gateway's present ones: metadata.managedFields shows who. The hub puts it back after growing pauses of at \
             most {} minutes.",
            LONGEST.as_secs() / 60
        );
        self.inputs.report.send_replace(Report::ConditionValue((false, NOT_PUBLISHED, sentence)));
    }
}

/// Writes what should exist; returns what exists afterwards.
async fn write(
    api: &Api<ClusterTrustBundle>,
    leads: &Leads,
    found: Option<ClusterTrustBundle>,
    wanted: Option<ClusterTrustBundle>,
) -> Result<Option<ClusterTrustBundle>, NotWritten> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match (found, wanted) {
        (None, None) => Ok(None),
        (None, Some(wanted)) => leads.write(api.create(&params, &wanted)).await.map(Some),
        (Some(found), Some(wanted)) => {
            let changed = ClusterTrustBundle { spec: wanted.spec, ..found };
            leads.write(api.replace(TRUST_BUNDLE, &params, &changed)).await.map(Some)
        }
        (Some(found), None) => {
            let preconditions = Preconditions { resource_version: found.metadata.resource_version, uid: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            Ok(leads.write(api.delete(TRUST_BUNDLE, &params)).await?.left())
        }
    }
}

/// The version of ClusterTrustBundle that the API server has, if the hub's account may write the hub's own one.
async fn may_publish(client: &Client) -> Result<Option<&'static str>, Error> {
    let (group, plural) = (CERTIFICATES_GROUP, CLUSTER_TRUST_BUNDLES);
    let Some(version) = served_version(client, group, plural, &VERSIONS).await? else { return Ok(None) };
    let may = async |resource, name, verbs| permission::may(client, group, resource, name, verbs).await;
    let is_allowed = may(plural, None, &["create"][..]).await?
        && may(plural, Some(TRUST_BUNDLE), &["list", "watch", "update", "delete"]).await?
        && may("signers", Some(GATEWAY_SERVING_SIGNER), &["attest"]).await?;
    Ok(is_allowed.then_some(version))
}

#[cfg(test)]
mod tests;
