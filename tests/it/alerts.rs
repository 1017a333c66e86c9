//! The alerts of the chart: each has a runbook and a test by promtool.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use test_kit::deploy::{checkout, documents};
use test_kit::needed::{Needed, found};

const ALERTS: &str = "deploy/chart/files/alerts.yaml";
const TESTS: &str = "tests/alerts/alerts_test.yaml";

fn alerts() -> BTreeSet<String> {
    let rules = &documents(&checkout().join(ALERTS))[0]["groups"][0]["rules"];
    let names = rules.as_array().unwrap().iter().map(|rule| rule["alert"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn each_alert_has_a_runbook_and_a_test_that_sees_it_fire() {
    let runbooks = std::fs::read_to_string(checkout().join("docs/runbooks/README.md")).unwrap();
    let mut fires = BTreeSet::new();
    for test in documents(&checkout().join(TESTS))[0]["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            let expected = case["exp_alerts"].as_array().map_or(0, Vec::len);
            fires.extend((expected > 0).then(|| case["alertname"].as_str().unwrap().to_owned()));
        }
    }
    let alerts = alerts();
    assert!(alerts.len() >= 13);
    assert_eq!(fires, alerts);
    for alert in alerts {
        let row = runbooks.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{alert}`")));
        assert!(row.is_some(), "docs/runbooks/README.md has no row for the alert {alert}");
    }
}

#[test]
fn promtool_sees_each_alert_fire_when_it_should_and_not_before() {
    for arguments in [["check", "rules", ALERTS], ["test", "rules", TESTS]] {
        let output = Command::new("promtool").args(arguments).current_dir(checkout()).output();
        let Some(output) = found(Needed::Prometheus, output.ok()) else { return };
        let message = [output.stdout, output.stderr].concat();
        let message = String::from_utf8_lossy(&message);
        assert!(output.status.success(), "promtool {arguments:?}: {message}");
    }
}

/// Whatever an alert asks for exists, so that a renamed metric does not silence it.
#[test]
fn alerts_and_dashboard_ask_for_metrics_that_the_reference_has() {
    let reference = std::fs::read_to_string(checkout().join("docs/reference.md")).unwrap();
    let rules = std::fs::read_to_string(checkout().join(ALERTS)).unwrap();
    let dashboard = std::fs::read_to_string(checkout().join("deploy/chart/files/dashboard.json")).unwrap();
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("addon_signer_")).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let asked: BTreeSet<String> = words(&(rules + &dashboard));
    assert!(asked.len() >= 25);
    for name in asked {
        let name = name.strip_suffix("_bucket").unwrap_or(&name);
        assert!(reference.contains(&format!("| `{name}` |")), "docs/reference.md has no metric {name}");
    }
}

/// The dashboard is JSON, which the chart puts into a ConfigMap as it is.
#[test]
fn the_dashboard_has_no_two_panels_of_one_place() {
    let dashboard = &documents(&checkout().join("deploy/chart/files/dashboard.json"))[0];
    let panels = dashboard["panels"].as_array().unwrap();
    let cell = |panel: &Value, name: &str| panel["gridPos"][name].as_u64().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        for x in cell(panel, "x")..cell(panel, "x") + cell(panel, "w") {
            for y in cell(panel, "y")..cell(panel, "y") + cell(panel, "h") {
                assert!(x < 24 && taken.insert((x, y)), "the panel {} covers another", panel["title"]);
            }
        }
    }
}
