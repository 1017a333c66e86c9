//! Writes the statuses of AddOnSigners, and events about their changes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::runtime::events::EventType;
use tracing::warn;

use super::calls::{CallEnd, WrittenStatus};
use super::entry::{Entry, Paced, SignerState};
use super::status::{self, Reports};
use super::{Supervisor, changes};
use crate::authorities::state::LineageState;
use crate::conditions::{Report, event};
use crate::csrs::bundle_policy;
use crate::distribution::steps::{Distribution, Reached};
use addon_signer_api::status::CONDITION_READY;
use addon_signer_api::{AddOnSigner, AddOnSignerStatus};
use addon_signer_core::conditions::{SOME_OF_OTHERS, STATUS_NOT_WRITTEN};

impl Supervisor {
    /// Makes each status be compared soon, and written if it differs.
    pub(super) fn report_all(&mut self) {
        self.say_undecodable();
        self.trust_publisher.tell_agents();
        for (name, _) in self.entries.iter().filter(|(_, entry)| entry.object().is_some()) {
            self.calls.writing.add(name);
        }
    }

    /// Starts the writes for which there is a free permit.
    pub(super) fn begin_writes(&mut self) {
        // Otherwise statuses are written when this hub leads again.
        let Ok(leads) = self.links.leading.leads() else { return };
        while let Some(name) = self.calls.writing.begin() {
            let wanted = self.wanted(&name);
            let Some((object, status)) = self.entries.get(&name).and_then(Entry::object).zip(wanted) else {
                self.calls.writing.end(&name);
                continue;
            };
            let is_ready = |condition: &Condition| condition.type_ == CONDITION_READY && condition.status == "True";
            self.links.metrics.signer_ready(&name, Some(status.conditions.iter().any(is_ready)));
            if object.status.as_ref() == Some(&status) {
                self.calls.writing.end(&name);
                continue;
            }
            let events = changes::events(object.status.as_ref(), &status);
            let (leads, api, of) = (leads.clone(), self.api.clone(), object.metadata.clone());
            self.calls.under_way.push(Box::pin(async move {
                let outcome = status::write(&leads, &api, &name, &of, &status).await;
                let version = of.resource_version;
                CallEnd::Written(Box::new(WrittenStatus { name, version, status, events, outcome }))
            }));
        }
    }

    pub(super) fn take_written(&mut self, written: WrittenStatus) {
        let WrittenStatus { name, version, status, events, outcome } = written;
        self.calls.writing.end(&name);
        if let Err(error) = outcome {
            // The next change or the next round tries again.
            warn!(signer = name, %error, "Could not write the status of an AddOnSigner; the hub retries");
            if error.is_lasting() {
                let note = format!("The status cannot be written, so it may be out of date: {error}");
                self.publish_once(&name, event(EventType::Warning, "Reading", STATUS_NOT_WRITTEN, note));
            }
            return;
        }
        let Some(object) = self.entries.get_mut(&name).and_then(Entry::object_mut) else { return };
        if object.metadata.resource_version == version {
            object.status = Some(status);
        } else {
            // The watch was faster, with this or another status.
            self.calls.writing.add(&name);
        }
        for event in events {
            self.publish(&name, event);
        }
    }

    /// The addons that the AddOnSigner owns.
    pub(super) fn owned<'o>(&self, object: &'o AddOnSigner) -> impl Iterator<Item = &'o String> {
        let name = object.name_any();
        object.spec.add_ons.iter().filter(move |addon| self.ownership.owns(&name, addon))
    }

    /// The status that an AddOnSigner should have now.
    fn wanted(&mut self, name: &str) -> Option<AddOnSignerStatus> {
        let distributed = self.distributed(name);
        let entry = self.entries.get(name)?;
        let object = entry.object()?;
        let (validity, lineage) = match &entry.state {
            SignerState::Served(served) => (served.permission.clone(), served.lineage.borrow().clone()),
            SignerState::Refused(refusal, _) => (Err(refusal.clone()), LineageState::Starting),
            SignerState::Idle(_) => return None,
        };
        let validity = validity.and(status::recordable(&self.links.ledger.health().borrow()));
        let validity = validity.and(bundle_policy::publishable(&self.ends.protected.borrow()));
        let serving = self.serving.borrow().clone();
        let others = self.ownership.not_of(name);
        // An AddOnSigner that names an addon without being served loses its ownership of it with a restart.
        let is_served = entry.served().is_some_and(|served| served.permission.is_ok());
        let had = |addon: &str| object.status.as_ref().is_some_and(|status| status.add_ons.contains(addon));
        let reports = Reports {
            add_ons: self.owned(object).filter(|addon| is_served || had(addon)).cloned().collect(),
            conflicted: (!others.is_empty()).then(|| (true, SOME_OF_OTHERS, status::conflicts(&others))).into(),
            registered: self.registered(name),
            distributed,
            published: self.published(name),
            protected: self.ends.protected.borrow().clone(),
            foreign: self.foreign(name),
            agents: self.ends.agents.borrow().get(name).cloned(),
            first_waits_for: lineage.ready().and_then(|ready| ready.first_waits_for(&self.links.in_effect.borrow())),
            is_ledger_ephemeral: self.settings.config.is_ledger_ephemeral,
        };
        let mut wanted = status::wanted(object, &validity, &lineage, &serving, reports, self.links.clock.now());
        let renew_within = self.trust_publisher.renew_within(name);
        for authority in &mut wanted.authorities {
            authority.renew_within = renew_within.get(&authority.id.as_str().into()).map(|seconds| i64::from(*seconds));
        }
        if entry.served().is_none() {
            // Gateways trust the authorities that have a certificate here.
            wanted.authorities.iter_mut().for_each(|authority| authority.certificate = None);
        }
        Some(wanted)
    }

    /// The condition `TrustDistributed`. Each round of the supervisor updates it, or a later round if it changes often;
    /// the metric is always up to date.
    fn distributed(&mut self, name: &str) -> Report {
        let mut served = self.entries.get_mut(name).and_then(Entry::served_mut);
        let config = served.as_ref().map(|served| served.config.borrow().clone());
        let before = served.as_mut().and_then(|served| served.paced.take());
        match (config.filter(|config| config.brings_trust), &*self.ends.distributed.borrow()) {
            (Some(_), Distribution::Starting) => Report::AsBefore,
            (Some(config), Distribution::Reached { trust, report, unguarded, .. }) => {
                let reached = Reached::sum(config.rules.addons.iter().filter_map(|addon| report.get(addon)));
                self.links.metrics.trust_missing(name, Some(reached.total - reached.present()));
                if let Some(unguarded) = unguarded {
                    return Report::ConditionValue(unguarded.condition());
                }
                let bundle = trust.serving_anchors.as_ref().map(|bundle| bundle.digest()).unwrap_or_default();
                let paced = Paced::say(before, reached, bundle);
                let condition = paced.condition.clone();
                if let Some(served) = served {
                    served.paced = Some(paced);
                }
                Report::ConditionValue(condition)
            }
            (None, _) | (_, Distribution::Off) => {
                self.links.metrics.trust_missing(name, None);
                Report::Nothing
            }
        }
    }

    /// The condition `TrustPublished`, updated in the same way.
    fn published(&self, name: &str) -> Report {
        let is_wanted = self.served(name).is_some_and(|served| served.config.borrow().publishes_trust);
        if is_wanted { self.ends.published.borrow().clone() } else { Report::Nothing }
    }

    /// The condition about certificates that another program signed. Each round of the supervisor updates it, however
    /// many there are.
    fn foreign(&self, name: &str) -> Report {
        let Some(served) = self.served(name) else {
            self.links.metrics.foreign_certificates(name, None);
            return Report::Nothing;
        };
        match self.ends.foreign.borrow().get(served.config.borrow().rules.signer_name.as_str()) {
            Some(foreign) => {
                self.links.metrics.foreign_certificates(name, Some(foreign.count));
                foreign.condition().into()
            }
            None => Report::AsBefore,
        }
    }
}
