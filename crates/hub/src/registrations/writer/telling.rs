//! What the writer reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::{FAILING, RegistrationWriter};
use crate::registrations::report::RegistrationReport;
use addon_signer_core::identity::AddOnName;
use addon_signer_core::templates::Templates;

impl RegistrationWriter {
    /// Publishes the report, once all addons were listed or the cause is known why they cannot be.
    pub(super) fn tell(&mut self) {
        if !self.is_complete && !matches!(self.templates, Templates::Unread(_)) {
            return;
        }
        let now = Instant::now();
        self.reverts.retain(|_, reverts| !reverts.is_calm(now));
        let report = self.report();
        let signers = self.signers.iter().flat_map(|signers| signers.served.iter());
        self.metrics.registrations_left(signers.map(|(name, config)| (name.as_str(), report.left_of(config).count())));
        self.inputs.report.send_if_modified(|known| {
            let differs = known.as_ref() != Some(&report);
            *known = Some(report);
            differs
        });
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
