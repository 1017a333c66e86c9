//! The pauses between writes of one addon, which addons are left to another program, and what the writer reports.
//!
//! A program of addon-framework replaces the whole list whenever the list changes, so writing against it would never
//! end. But a registration that was lost by accident must be restored. Against a program that reverts at once, the hub
//! writes 6 times in the first hour and 12 times in the first day.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{FAILING, RegistrationWriter};
use crate::registrations::report::RegistrationReport;
use crate::tasks::send_news;
use addon_signer_api::registrations::say_left;
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::identity::{AddOnKey, AddOnName};
use addon_signer_core::templates::Templates;
use addon_signer_core::timestamp::Timestamp;

/// The pause after the first write; it doubles with each further one. Registrations that stay this long after a write
/// are not disputed.
pub(super) const SHORTEST: Duration = Duration::from_secs(60);
/// The longest pause. It is long because OCM's agent makes and deletes a Secret at each write.
pub(super) const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// The first pause if the addon's status reports that it is left, and no earlier writes are known, because the hub was
/// restarted or an administrator changed a setting.
const SHORTEST_IF_LEFT: Duration = Duration::from_secs(600);
/// An addon is left if its registrations are reverted within the pause after this or a later write.
const LEFT_AFTER: u32 = 2;

impl RegistrationWriter {
    /// Returns how long to wait before the next write of an addon, and notes whether the addon is left. `differs`:
    /// whether its registrations differ from the desired ones; `says_left`: whether its status reports that it is left.
    pub(super) fn pause_before_write(&mut self, key: &AddOnKey, differs: bool, says_left: bool) -> Duration {
        if says_left && !self.reverts.contains_key(key) {
            self.note_write(key, SHORTEST_IF_LEFT);
        }
        let reverts = self.reverts.get(key);
        let due = reverts.and_then(|reverts| if differs { reverts.due() } else { Some(reverts.last()? + SHORTEST) });
        let pause = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()));
        let is_changed_back = differs && !pause.is_zero();
        if says_left || (is_changed_back && reverts.is_some_and(|reverts| reverts.writes() >= LEFT_AFTER)) {
            self.left.insert(key.clone());
        } else if !differs {
            self.left.remove(key);
        }
        pause
    }

    /// Notes a write of an addon. The pause after the first one is `shortest`.
    pub(super) fn note_write(&mut self, key: &AddOnKey, shortest: Duration) {
        let reverts = self.reverts.entry(key.clone()).or_insert_with(|| RevertBackoff::new(shortest, LONGEST));
        reverts.wrote(Instant::now());
    }
}

/// The `wanted` patch of the status, with the condition that the addon is left.
pub(super) fn saying_left(mut wanted: Value, status: &Value, now: Timestamp) -> Value {
    // A patch replaces the whole list of conditions, and this one may already do so.
    let conditions = if wanted.get("conditions").is_some() { &wanted } else { status };
    let reported = say_left(conditions, true, &now.to_string());
    if let (Value::Object(wanted), Value::Object(reported)) = (&mut wanted, reported) {
        wanted.extend(reported);
    }
    wanted
}

impl RegistrationWriter {
    /// Publishes the report, once all addons were listed, or the reason is known why they cannot be.
    pub(super) fn tell(&mut self) {
        if !self.is_complete && !matches!(self.templates, Templates::Unread(_)) {
            return;
        }
        let now = Instant::now();
        self.reverts.retain(|_, reverts| !reverts.is_calm(now));
        let report = self.report();
        let signers = self.signers.iter().flat_map(|signers| signers.served.iter());
        let left = signers.map(|(name, config)| (name.as_str(), report.left_of(config).count()));
        self.links.metrics.registrations_left(left);
        send_news(&self.inputs.report, Some(report));
    }

    fn report(&self) -> RegistrationReport {
        let mut overrides: BTreeMap<AddOnName, BTreeSet<String>> = BTreeMap::new();
        for (key, name) in &self.overrides {
            overrides.entry(key.addon.clone()).or_default().insert(name.clone());
        }
        let failing = self.failures.iter().filter(|(_, (failures, _))| *failures >= FAILING);
        let failing = failing.filter_map(|(key, (_, why))| Some((key.clone(), why.clone()?)));
        RegistrationReport {
            templates: self.templates.clone(),
            overrides,
            left: Arc::new(self.left.clone()),
            failing: Arc::new(failing.collect()),
        }
    }
}
