//! Tests the condition `Registered` on values.

use serde_json::json;

use super::*;
use addon_signer_core::policy::RequesterKind;
use addon_signer_core::templates::{TemplateFacts, TemplatedAddOns};

fn mk_config(registration: &str, addons: &[&str]) -> SignerConfig {
    let spec = json!({"signerName": "example.com/a", "addOns": addons, "registration": registration});
    SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn mk_template(signer: &str, own_user: bool) -> TemplateFacts {
    TemplateFacts { signers: BTreeMap::from([(signer.to_owned(), own_user)]), ..TemplateFacts::default() }
}

/// The addon `telemetry` uses these templates, of which `with` names the signer, and `asking` gives a hub identity.
fn mk_report(in_use: &[&str]) -> RegistrationReport {
    let asking = TemplateFacts { has_hub_identity: true, ..TemplateFacts::default() };
    let templated = TemplatedAddOns {
        addons: BTreeMap::from([("telemetry".parse().unwrap(), names(in_use))]),
        templates: BTreeMap::from([
            ("with".to_owned(), mk_template("example.com/a", false)),
            ("own-user".to_owned(), mk_template("example.com/a", true)),
            ("without".to_owned(), mk_template("example.com/b", false)),
            ("asking".to_owned(), asking),
        ]),
        ..TemplatedAddOns::default()
    };
    RegistrationReport { templates: Templates::Read(Arc::new(templated)), ..RegistrationReport::default() }
}

fn reported(report: &RegistrationReport, config: &SignerConfig) -> Option<(bool, &'static str)> {
    report.condition(config).map(|(holds, reason, _)| (holds, reason))
}

#[test]
fn required_admin_action_is_stated_with_template_name() {
    let (_, _, sentence) = mk_report(&["without"]).condition(&mk_config("Managed", &["telemetry"])).unwrap();
    assert_eq!(
        sentence,
        "OCM's addon-manager registers the addon telemetry, and AddOnTemplate without does not name this signer: \
         add {type: CustomSigner, customSigner: {signerName: example.com/a, signingCA: {name: not-used}}} to its \
         spec.registration; or, if the addon's agents make their own CSRs, as addon-signer-agent does, add AddOn \
         to spec.identity.requesters."
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
    let unread = RegistrationReport { templates: Templates::Unread("e".to_owned()), ..RegistrationReport::default() };
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
        (mk_report(&["asking"]), &external, Some((false, "TemplateLacksSigner"))),
        (mk_report(&["asking"]), &asking, Some((true, "AskedByAddOn"))),
        (mk_report(&["with", "asking"]), &asking, Some((true, "AskedByAddOn"))),
        (mk_report(&["without"]), &asking, Some((false, "TemplateLacksSigner"))),
        (mk_report(&["asking", "without"]), &asking, Some((false, "TemplateLacksSigner"))),
        (mk_report(&["asking", "gone"]), &asking, Some((false, "TemplateLacksSigner"))),
        (mk_report(&["with"]), &mk_config("Managed", &["logging"]), Some((false, "AddOnNotOfSigner"))),
        (mk_report(&["with"]), &mk_config("External", &["logging"]), Some((false, "AddOnNotOfSigner"))),
        (mk_report(&["without"]), &mk_config("Managed", &["logging"]), Some((true, "Written"))),
        (mk_report(&["gone"]), &asking, Some((false, "TemplateLacksSigner"))),
        (mk_report(&["with", "own-user"]), &managed, Some((false, "TemplateLacksSigner"))),
        (mk_report(&["gone"]), &managed, Some((false, "TemplateLacksSigner"))),
        (mk_report(&[]), &managed, Some((false, "TemplateLacksSigner"))),
    ] {
        assert_eq!(reported(&report, config), expected, "{report:?}");
    }
}

#[test]
fn failed_writes_are_counted_per_addon_with_an_example() {
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
    assert_eq!(reported(&report, &mk_config("Managed", &["telemetry"])), Some((false, "TemplateLacksSigner")));
}

#[test]
fn what_is_taken_away_is_counted_with_examples() {
    let key = |n: u32| AddOnKey { cluster: format!("c{n}").parse().unwrap(), addon: "telemetry".parse().unwrap() };
    let left: Arc<BTreeSet<AddOnKey>> = Arc::new((1..=4).map(key).collect());
    let both = RegistrationReport { left: Arc::clone(&left), ..mk_report(&["without"]) };
    let (_, reason, sentences) = both.condition(&mk_config("Managed", &["telemetry"])).unwrap();
    assert_eq!(reason, "TemplateLacksSigner");
    assert!(sentences.contains("does not name this signer"), "{sentences}");
    assert!(sentences.contains("Another program"), "{sentences}");
    let report =
        RegistrationReport { templates: Templates::Read(Arc::default()), left, ..RegistrationReport::default() };
    let (holds, reason, sentence) = report.condition(&mk_config("Managed", &["telemetry"])).unwrap();
    assert_eq!((holds, reason), (false, "TakenAway"));
    assert!(sentence.contains(
        "of 4 ManagedClusterAddOns (c1/telemetry, c2/telemetry, c3/telemetry and 1 more): name example.com/a"
    ));
    assert_eq!(reported(&report, &mk_config("Managed", &["logging"])), Some((true, "Written")), "of other addons");
    assert_eq!(reported(&report, &mk_config("External", &["telemetry"])), None);
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
    assert!(sentences.ends_with("The same is true of 61 more addons."), "{sentences}");
    assert!(sentences.len() < 2_000, "{sentences}");
}

#[test]
fn addon_not_served_by_signer_is_named_with_remedy() {
    let logging = mk_config("External", &["logging"]);
    let (_, _, sentence) = mk_report(&["with", "without"]).condition(&logging).unwrap();
    assert_eq!(
        sentence,
        "AddOnTemplate with names this signer for the addon telemetry, which is not one of its addOns, so every \
         request is denied: add telemetry to spec.addOns, or remove the signer from the template."
    );
    let overrides = BTreeMap::from([("telemetry".parse().unwrap(), names(&["own-user"]))]);
    let of_one_cluster = RegistrationReport { overrides, ..mk_report(&["without"]) };
    let (_, reason, sentence) = of_one_cluster.condition(&logging).unwrap();
    assert_eq!(reason, "AddOnNotOfSigner");
    assert!(sentence.starts_with("AddOnTemplate own-user names this signer"), "{sentence}");
}

#[test]
fn agents_without_any_way_to_ask_are_told_both_ways() {
    let mut config = mk_config("Managed", &["telemetry"]);
    config.rules.requesters.insert(RequesterKind::AddOn);
    let (_, _, sentence) = mk_report(&["asking", "without"]).condition(&config).unwrap();
    assert_eq!(
        sentence,
        "OCM's addon-manager registers the addon telemetry, and AddOnTemplate without neither names this signer nor \
         gives the addon a hub identity to make CSRs with: add {type: CustomSigner, customSigner: {signerName: \
         example.com/a, signingCA: {name: not-used}}} to its spec.registration, or {type: KubeClient} if the agents \
         make their own CSRs."
    );
}

/// The addon `telemetry` with a signer name of this length, whose template names it.
fn mk_long(length: usize, has_pods: bool) -> (RegistrationReport, SignerConfig) {
    let signer = format!("aa.b/{}", "c".repeat(length - 5));
    let mut config = mk_config("Managed", &["telemetry"]);
    config.rules.signer_name = signer.parse().unwrap();
    let template = TemplateFacts { has_pods, ..mk_template(&signer, false) };
    let templated = TemplatedAddOns {
        addons: BTreeMap::from([("telemetry".parse().unwrap(), names(&["t"]))]),
        templates: BTreeMap::from([("t".to_owned(), template)]),
        ..TemplatedAddOns::default()
    };
    (RegistrationReport { templates: Templates::Read(Arc::new(templated)), ..RegistrationReport::default() }, config)
}

#[test]
fn signer_name_is_too_long_if_kubernetes_refuses_derived_name() {
    let longest = 253 - "telemetry--client-cert".len();
    for (length, has_pods, expected) in [
        (58, true, (true, "NamedByTemplate")),
        (59, true, (false, "SignerNameTooLong")),
        (59, false, (true, "NamedByTemplate")),
        (longest, false, (true, "NamedByTemplate")),
        (longest + 1, false, (false, "SignerNameTooLong")),
    ] {
        let (report, config) = mk_long(length, has_pods);
        assert_eq!(reported(&report, &config), Some(expected), "{length}");
        let written =
            RegistrationReport { templates: Templates::Read(Arc::default()), ..RegistrationReport::default() };
        let expected = if length > longest { (false, "SignerNameTooLong") } else { (true, "Written") };
        assert_eq!(reported(&written, &config), Some(expected), "{length}, by the hub");
    }
    let (report, config) = mk_long(59, true);
    let (_, _, sentence) = report.condition(&config).unwrap();
    assert!(sentence.contains("this signerName has 59 characters instead of at most 58"), "{sentence}");
}
