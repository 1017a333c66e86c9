//! The condition of an AddOnSigner about the registrations of its addons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::registrations::REASON_TAKEN_AWAY;
use crate::api::rules::SignerConfig;
use crate::api::status::Told;
use addon_signer_core::identity::{AddOnKey, AddOnName};
use addon_signer_core::policy::RequesterKind;
use addon_signer_core::templates::{Naming, TemplatedAddOns, Templates};

/// How many names a sentence has at most, and how many sentences a message has; there may be thousands.
const EXAMPLES: usize = 3;

/// What is known of the registrations of all addons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrationReport {
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
    pub fn left_of<'r>(&'r self, config: &'r SignerConfig) -> impl Iterator<Item = &'r AddOnKey> {
        self.left.iter().filter(|key| concerns(key, config))
    }

    /// The condition `Registered` of an AddOnSigner; `None` if nothing is known yet, or if the hub neither writes the
    /// registrations of its addons nor finds templates for them.
    #[must_use]
    pub fn condition(&self, config: &SignerConfig) -> Option<Told> {
        let templated = match &self.templates {
            Templates::Read(templated) => templated,
            Templates::Starting => return None,
            Templates::Unread(_) if !config.registers => return None,
            Templates::Unread(cause) => {
                let sentence = format!(
                    "The hub writes no registrations until it knows which addons OCM's addon-manager registers from \
                     AddOnTemplates: {cause}."
                );
                return Some((false, "TemplatesUnread", sentence));
            }
        };
        let Said { named, asking, mut bad } = templates_of(config, templated, &self.overrides);
        let mut reason = "TemplateLacksSigner";
        for (why, sentence) in [(REASON_TAKEN_AWAY, self.taken_away(config)), ("WriteFailed", self.failing_of(config))]
        {
            if let Some(sentence) = sentence {
                reason = if bad.is_empty() { why } else { reason };
                bad.push(sentence);
            }
        }
        if !bad.is_empty() {
            return Some((false, reason, bad.join(" ")));
        }
        let ours = config.registers && config.rules.addons.iter().any(|addon| !templated.has(addon));
        let reason = match (ours, named.is_empty(), asking.is_empty()) {
            (true, ..) => "Written",
            (false, false, _) => "NamedByTemplate",
            (false, true, false) => "AskedByAddOn",
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

/// Sentences about addons with templates.
#[derive(Default)]
struct Said {
    /// Their templates name the signer.
    named: Vec<String>,
    /// Their templates do not, and they may ask themselves.
    asking: Vec<String>,
    /// Somebody must do something.
    bad: Vec<String>,
}

/// A sentence for each addon with templates: whether they name the signer, and what to do if not.
fn templates_of(
    config: &SignerConfig,
    templated: &TemplatedAddOns,
    overrides: &BTreeMap<AddOnName, BTreeSet<String>>,
) -> Said {
    let signer_name = &config.rules.signer_name;
    let may_ask = config.rules.requesters.contains(&RequesterKind::AddOn);
    let Said { mut named, mut asking, mut bad } = Said::default();
    let none = BTreeSet::new();
    for addon in &config.rules.addons {
        let overrides = overrides.get(addon).unwrap_or(&none);
        let Some(naming) = templated.naming(addon, signer_name, overrides) else { continue };
        let manager = format!("OCM's addon-manager registers the addon {addon}");
        match naming {
            Naming::Everywhere(names) => {
                named.push(format!("{manager} and names this signer (AddOnTemplate {}).", few(&names)));
            }
            Naming::Missing(names) if may_ask => asking.push(format!(
                "AddOnTemplate {} does not name this signer, so the agents of the addon {addon} ask with its own hub \
                 identity.",
                few(&names)
            )),
            Naming::Missing(names) => bad.push(format!(
                "{manager}, and AddOnTemplate {} does not name this signer: add {{type: CustomSigner, \
                 customSigner: {{signerName: {signer_name}, signingCA: {{name: not-used}}}}}} to its \
                 spec.registration.",
                few(&names)
            )),
            Naming::OwnUser(names) => bad.push(format!(
                "{manager}, and AddOnTemplate {} names this signer with a subject.user, which is the same on every \
                 cluster, so that requests are refused: take `subject` out of its customSigner.",
                few(&names)
            )),
            Naming::NotThere(names) => {
                bad.push(format!("{manager}, and AddOnTemplate {} does not exist.", few(&names)));
            }
            Naming::NoTemplate => bad.push(format!(
                "{manager}, and its ClusterManagementAddOn names no AddOnTemplate: name one that has this signer in \
                 spec.registration."
            )),
        }
    }
    Said { named: at_most(named), asking: at_most(asking), bad: at_most(bad) }
}

/// The first few sentences, and how many more there are.
fn at_most(mut sentences: Vec<String>) -> Vec<String> {
    let more = sentences.len().saturating_sub(EXAMPLES);
    sentences.truncate(EXAMPLES);
    if more > 0 {
        sentences.push(format!("The same is true of {more} more addons."));
    }
    sentences
}

/// The first few names.
fn few<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    let mut names: Vec<String> = names.into_iter().take(EXAMPLES + 1).map(|name| name.to_string()).collect();
    if names.len() > EXAMPLES {
        names.truncate(EXAMPLES);
        names.push("…".to_owned());
    }
    names.join(", ")
}

fn written() -> String {
    "The hub keeps this signer in status.registrations of its addons.".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mk_config(registration: &str, addons: &[&str]) -> SignerConfig {
        let spec = json!({"signerName": "example.com/a", "addOns": addons, "registration": registration});
        SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The addon `telemetry` uses these templates, of which `with` names the signer.
    fn mk_report(in_use: &[&str]) -> RegistrationReport {
        let templated = TemplatedAddOns {
            addons: BTreeMap::from([("telemetry".parse().unwrap(), names(in_use))]),
            templates: BTreeMap::from([
                ("with".to_owned(), BTreeMap::from([("example.com/a".to_owned(), false)])),
                ("own-user".to_owned(), BTreeMap::from([("example.com/a".to_owned(), true)])),
                ("without".to_owned(), BTreeMap::from([("example.com/b".to_owned(), false)])),
            ]),
            ..TemplatedAddOns::default()
        };
        RegistrationReport { templates: Templates::Read(Arc::new(templated)), ..RegistrationReport::default() }
    }

    fn told(report: &RegistrationReport, config: &SignerConfig) -> Option<(bool, &'static str)> {
        report.condition(config).map(|(holds, reason, _)| (holds, reason))
    }

    #[test]
    fn what_an_administrator_must_do_is_said_with_the_templates_name() {
        let (_, _, sentence) = mk_report(&["without"]).condition(&mk_config("Managed", &["telemetry"])).unwrap();
        assert_eq!(
            sentence,
            "OCM's addon-manager registers the addon telemetry, and AddOnTemplate without does not name this signer: \
             add {type: CustomSigner, customSigner: {signerName: example.com/a, signingCA: {name: not-used}}} to its \
             spec.registration."
        );
    }

    #[test]
    fn every_case_has_its_reason() {
        let managed = mk_config("Managed", &["telemetry"]);
        let both = mk_config("Managed", &["telemetry", "logging"]);
        let external = mk_config("External", &["telemetry"]);
        let mut asking = mk_config("External", &["telemetry"]);
        asking.rules.requesters.insert(RequesterKind::AddOn);
        let nobody = RegistrationReport { templates: Templates::Read(Arc::default()), ..RegistrationReport::default() };
        let unread =
            RegistrationReport { templates: Templates::Unread("e".to_owned()), ..RegistrationReport::default() };
        let key = AddOnKey { cluster: "c1".parse().unwrap(), addon: "telemetry".parse().unwrap() };
        let failing = Arc::new(BTreeMap::from([(key, "e".to_owned())]));
        let failing = RegistrationReport { failing, ..nobody.clone() };
        for (report, config, expected) in [
            (RegistrationReport::default(), &managed, None),
            (unread.clone(), &managed, Some((false, "TemplatesUnread"))),
            (unread, &external, None),
            (failing.clone(), &managed, Some((false, "WriteFailed"))),
            (failing.clone(), &mk_config("Managed", &["logging"]), Some((true, "Written"))),
            (failing, &external, None),
            (nobody.clone(), &managed, Some((true, "Written"))),
            (nobody, &external, None),
            (mk_report(&["with"]), &managed, Some((true, "NamedByTemplate"))),
            (mk_report(&["with"]), &both, Some((true, "Written"))),
            (mk_report(&["with"]), &external, Some((true, "NamedByTemplate"))),
            (mk_report(&["with", "without"]), &managed, Some((false, "TemplateLacksSigner"))),
            (mk_report(&["without"]), &external, Some((false, "TemplateLacksSigner"))),
            (mk_report(&["without"]), &asking, Some((true, "AskedByAddOn"))),
            (mk_report(&["gone"]), &asking, Some((false, "TemplateLacksSigner"))),
            (mk_report(&["with", "own-user"]), &managed, Some((false, "TemplateLacksSigner"))),
            (mk_report(&["gone"]), &managed, Some((false, "TemplateLacksSigner"))),
            (mk_report(&[]), &managed, Some((false, "TemplateLacksSigner"))),
        ] {
            assert_eq!(told(&report, config), expected, "{report:?}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_counted_for_its_addon_with_an_example() {
        let key =
            |cluster: &str, addon: &str| AddOnKey { cluster: cluster.parse().unwrap(), addon: addon.parse().unwrap() };
        let failing = [key("c1", "logging"), key("c2", "telemetry"), key("c3", "telemetry")];
        let failing = Arc::new(failing.into_iter().map(|key| (key.clone(), format!("error of {key}"))).collect());
        let report =
            RegistrationReport { templates: Templates::Read(Arc::default()), failing, ..RegistrationReport::default() };
        assert_eq!(
            report.condition(&mk_config("Managed", &["telemetry"])),
            Some((
                false,
                "WriteFailed",
                "The hub cannot write status.registrations of 2 ManagedClusterAddOns, such as c2/telemetry: error of \
                 c2/telemetry"
                    .to_owned()
            ))
        );
    }

    #[test]
    fn a_template_that_one_cluster_names_for_itself_counts() {
        let overrides = BTreeMap::from([("telemetry".parse().unwrap(), names(&["without"]))]);
        let report = RegistrationReport { overrides, ..mk_report(&["with"]) };
        assert_eq!(told(&report, &mk_config("Managed", &["telemetry"])), Some((false, "TemplateLacksSigner")));
    }

    #[test]
    fn what_is_taken_away_is_counted_with_examples() {
        let key = |n: u32| AddOnKey { cluster: format!("c{n}").parse().unwrap(), addon: "telemetry".parse().unwrap() };
        let left: Arc<BTreeSet<AddOnKey>> = Arc::new((1..=4).map(key).collect());
        let both = RegistrationReport { left: Arc::clone(&left), ..mk_report(&["without"]) };
        let (_, reason, sentences) = both.condition(&mk_config("Managed", &["telemetry"])).unwrap();
        assert_eq!(reason, "TemplateLacksSigner");
        assert!(
            sentences.contains("does not name this signer") && sentences.contains("Another program"),
            "{sentences}"
        );
        let report =
            RegistrationReport { templates: Templates::Read(Arc::default()), left, ..RegistrationReport::default() };
        let (holds, reason, sentence) = report.condition(&mk_config("Managed", &["telemetry"])).unwrap();
        assert_eq!((holds, reason), (false, "TakenAway"));
        assert!(
            sentence.contains(
                "of 4 ManagedClusterAddOns (c1/telemetry, c2/telemetry, c3/telemetry, …): name example.com/a"
            )
        );
        assert_eq!(told(&report, &mk_config("Managed", &["logging"])), Some((true, "Written")), "of other addons");
        assert_eq!(told(&report, &mk_config("External", &["telemetry"])), None);
    }

    #[test]
    fn sentences_stay_short_however_much_there_is_to_say() {
        let addons: Vec<String> = (0..64).map(|n| format!("{n}-{}", "a".repeat(60))).collect();
        let names: Vec<&str> = addons.iter().map(String::as_str).collect();
        let templated = TemplatedAddOns {
            addons: addons.iter().map(|name| (name.parse().unwrap(), addons.iter().cloned().collect())).collect(),
            ..TemplatedAddOns::default()
        };
        let report =
            RegistrationReport { templates: Templates::Read(Arc::new(templated)), ..RegistrationReport::default() };
        let (_, _, sentences) = report.condition(&mk_config("Managed", &names)).unwrap();
        assert!(sentences.ends_with("The same is true of 61 more addons.") && sentences.len() < 2_000, "{sentences}");
    }
}
