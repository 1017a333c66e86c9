//! Writes the statuses of AddOnSigners, and an event where a condition is an alarm.

use tracing::warn;

use super::paced::Paced;
use super::{Supervisor, status};
use crate::api::status::{CONDITION_FOREIGN, CONDITION_REGISTERED};
use crate::hub::authorities::state::LineState;
use crate::hub::distribution::plan::{Distribution, Reached};
use crate::hub::supervisor::registered::REGISTERING;
use crate::hub::supervisor::status::{Report, Reports};

impl Supervisor {
    pub(super) async fn report_all(&mut self) {
        self.say_undecodable().await;
        self.paced.retain(|name, _| self.served.contains_key(name));
        for name in self.objects.keys().cloned().collect::<Vec<_>>() {
            self.report(&name).await;
        }
    }

    pub(super) async fn report(&mut self, name: &str) {
        self.pulse.beat();
        let Ok(leads) = self.links.leading.leads() else { return }; // the status is written when this hub leads again
        let distributed = self.distributed(name);
        let Some(object) = self.objects.get(name) else { return };
        let (validity, line) = match self.served.get(name) {
            Some(served) => (served.validity.clone().and(served.permission.clone()), served.line.borrow().clone()),
            None => (self.read(object).map(|_| ()), LineState::Starting),
        };
        let validity = validity.and(status::recordable(&self.links.ledger.health().borrow()));
        let serving = self.serving.borrow().clone();
        let reports = Reports {
            registered: self.registered(name),
            distributed,
            published: self.published(name),
            foreign: self.foreign(name),
        };
        let status = status::wanted(object, &validity, &line, &serving, reports, self.links.clock.now());
        let alarms = status::alarms(object.status.as_ref(), &status);
        if let Err(error) = status::write(&leads, &self.api, object, &status).await {
            // The next change or the next check of permissions tries again.
            warn!(signer = name, %error, "Could not write the status of an AddOnSigner; the hub retries");
            return;
        }
        if let Some(object) = self.objects.get_mut(name) {
            object.status = Some(status);
        }
        for condition in alarms {
            let action = match condition.type_.as_str() {
                CONDITION_REGISTERED => REGISTERING,
                CONDITION_FOREIGN => "Signing",
                _ => "Rotating",
            };
            self.publish(name, (action, &condition.reason), condition.message, None).await;
        }
    }

    /// The condition `TrustDistributed`. Each round of the supervisor brings it up to date, or a later one if it
    /// changes often; the metric is always up to date.
    fn distributed(&mut self, name: &str) -> Report {
        let served = self.served.get(name).filter(|served| served.validity.is_ok());
        let config = served.map(|served| served.config.borrow().clone()).filter(|config| config.brings_trust);
        let before = self.paced.remove(name);
        match (config, &*self.distributed.borrow()) {
            (Some(_), Distribution::Starting) => Report::AsBefore,
            (Some(config), Distribution::Reached { trust, report, unguarded, .. }) => {
                let reached = Reached::sum(config.rules.addons.iter().filter_map(|addon| report.get(addon)));
                self.links.metrics.trust_missing(name, Some(reached.total - reached.present()));
                if let Some(unguarded) = unguarded {
                    return Report::Told(unguarded.condition());
                }
                let bundle = trust.serving_anchors.as_ref().map(|bundle| bundle.digest()).unwrap_or_default();
                let paced = Paced::say(before, reached, bundle);
                let told = paced.told();
                self.paced.insert(name.to_owned(), paced);
                Report::Told(told)
            }
            (None, _) | (_, Distribution::Off) => {
                self.links.metrics.trust_missing(name, None);
                Report::Nothing
            }
        }
    }

    /// The condition `TrustPublished`, brought up to date in the same way.
    fn published(&self, name: &str) -> Report {
        let served = self.served.get(name).filter(|served| served.validity.is_ok());
        let is_wanted = served.is_some_and(|served| served.config.borrow().publishes_trust);
        if is_wanted { self.published.borrow().clone() } else { Report::Nothing }
    }

    /// The condition about certificates that another program signed. Each round of the supervisor brings it up to date,
    /// however many there are.
    fn foreign(&self, name: &str) -> Report {
        let Some(served) = self.served.get(name).filter(|served| served.validity.is_ok()) else {
            self.links.metrics.foreign_certificates(name, None);
            return Report::Nothing;
        };
        match self.foreign.borrow().get(served.config.borrow().rules.signer_name.as_str()) {
            Some(foreign) => {
                self.links.metrics.foreign_certificates(name, Some(foreign.count));
                foreign.condition().into()
            }
            None => Report::AsBefore,
        }
    }
}
