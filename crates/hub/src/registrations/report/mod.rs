//! The condition of an AddOnSigner about the registrations of its addons.

mod in_use;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use addon_signer_api::registrations::REASON_TAKEN_AWAY;
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::status::ConditionValue;
use addon_signer_core::conditions::{
    ADDON_NOT_OF_SIGNER, ASKED_BY_ADDON, NAMED_BY_TEMPLATE, REGISTRATION_FAILED, SIGNER_NAME_TOO_LONG,
    TEMPLATE_LACKS_SIGNER, TEMPLATES_UNREAD, WRITTEN,
};
use addon_signer_core::identity::{AddOnKey, AddOnName};
use addon_signer_core::list::few;
use addon_signer_core::templates::Templates;
use in_use::{InUse, in_use, not_served, too_long};

/// The state of the registrations of all addons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RegistrationReport {
    /// Which addons the addon-manager registers.
    pub templates: Templates,
    /// AddOnTemplates that single ManagedClusterAddOns name for their cluster.
    pub overrides: BTreeMap<AddOnName, BTreeSet<String>>,
    /// Addons whose registrations are left to a program that keeps changing them.
    pub left: Arc<BTreeSet<AddOnKey>>,
    /// Addons that cannot be written, each with its last error.
    pub failing: Arc<BTreeMap<AddOnKey, String>>,
}

impl RegistrationReport {
    /// Addons of a signer whose registrations are left to another program.
    pub(crate) fn left_of<'r>(&'r self, config: &'r SignerConfig) -> impl Iterator<Item = &'r AddOnKey> {
        self.left.iter().filter(|key| concerns(key, config))
    }

    /// The condition `Registered` of an AddOnSigner; `None` if nothing is known yet, or if the hub neither writes the
    /// registrations of its addons nor finds templates for them.
    #[must_use]
    pub(crate) fn condition(&self, config: &SignerConfig) -> Option<ConditionValue> {
        let templated = match &self.templates {
            Templates::Read(templated) => templated,
            Templates::Starting => return None,
            Templates::Unread(_) if !config.registers => return None,
            Templates::Unread(cause) => {
                let sentence = format!(
                    "The hub writes no registrations until it knows which addons OCM's addon-manager registers from \
                     AddOnTemplates: {cause}."
                );
                return Some((false, TEMPLATES_UNREAD, sentence));
            }
        };
        let ours: Vec<&AddOnName> = config.rules.addons.iter().filter(|addon| !templated.has(addon)).collect();
        let ours = if config.registers { ours } else { Vec::new() };
        let InUse { named, asking, lacking } = in_use(config, templated, &self.overrides);
        // The first one is the condition's reason.
        let bad: Vec<(&str, String)> = [
            (TEMPLATE_LACKS_SIGNER, lacking),
            (ADDON_NOT_OF_SIGNER, not_served(config, templated, &self.overrides)),
            (SIGNER_NAME_TOO_LONG, too_long(config, templated, &self.overrides, &ours)),
            (REASON_TAKEN_AWAY, self.taken_away(config).into_iter().collect()),
            (REGISTRATION_FAILED, self.failing_of(config).into_iter().collect()),
        ]
        .into_iter()
        .filter(|(_, sentences)| !sentences.is_empty())
        .map(|(reason, sentences)| (reason, sentences.join(" ")))
        .collect();
        if let Some((reason, _)) = bad.first() {
            return Some((false, reason, bad.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" ")));
        }
        let ours = !ours.is_empty();
        let reason = match (ours, named.is_empty(), asking.is_empty()) {
            (true, ..) => WRITTEN,
            (false, false, _) => NAMED_BY_TEMPLATE,
            (false, true, false) => ASKED_BY_ADDON,
            (false, true, true) => return None,
        };
        let good = named.into_iter().chain(asking).chain(ours.then(written));
        Some((true, reason, good.collect::<Vec<_>>().join(" ")))
    }

    fn taken_away(&self, config: &SignerConfig) -> Option<String> {
        let left: Vec<&AddOnKey> = self.left_of(config).collect();
        (!left.is_empty()).then(|| {
            format!(
                "Another program keeps removing this signer from status.registrations of {} ManagedClusterAddOns ({}): \
                 name {} where that program names registrations. The hub tries again from time to time.",
                left.len(),
                few(&left),
                config.rules.signer_name,
            )
        })
    }

    fn failing_of(&self, config: &SignerConfig) -> Option<String> {
        let mut failing = self.failing.iter().filter(|(key, _)| concerns(key, config));
        let (key, error) = failing.next()?;
        let addons = 1 + failing.count();
        Some(format!(
            "The hub cannot write status.registrations of {addons} ManagedClusterAddOns, such as {key}: {error}"
        ))
    }
}

/// Whether the hub writes the registrations of this addon for the signer.
fn concerns(key: &AddOnKey, config: &SignerConfig) -> bool {
    config.registers && config.rules.addons.contains(&key.addon)
}

fn written() -> String {
    "The hub keeps this signer in status.registrations of its addons.".to_owned()
}

#[cfg(test)]
mod tests;
