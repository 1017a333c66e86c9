//! Series of metrics that are recorded while a ledger fails, and the alerts that promtool sees in them.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use test_kit::deploy::checkout;
use test_kit::needed::{Needed, found};

use super::kit::RunningWriter;

/// The samples of each metric. Each stands for a minute.
#[derive(Default)]
pub(super) struct Recorded {
    samples: BTreeMap<String, Vec<String>>,
}

impl Recorded {
    /// Takes a sample.
    pub(super) fn sample(&mut self, running: &RunningWriter) {
        let text = running.metrics();
        for name in ["addon_signer_ledger_up", "addon_signer_ledger_available_bytes"] {
            let value =
                text.lines().find_map(|line| line.strip_prefix(name)?.trim_start_matches("{}").strip_prefix(' '));
            self.samples.entry(name.to_owned()).or_default().push(value.unwrap_or("_").to_owned());
        }
    }

    /// Asserts which of these alerts fires at last, if the last samples go on for two hours.
    pub(super) fn assert_fires(&self, alerts: &[(&str, bool)]) {
        let series = |(name, samples): (&String, &Vec<String>)| {
            let last = samples.last().unwrap();
            let rest = if last == "_" { "_x120".to_owned() } else { format!("{last}x120") };
            json!({ "series": format!("{name}{{instance=\"a\"}}"), "values": format!("{} {rest}", samples.join(" ")) })
        };
        let expected = |name: &str| match name {
            "LedgerAway" => json!({
                "exp_labels": { "severity": "critical" },
                "exp_annotations": {
                    "summary": "Nothing is signed, because the ledger cannot be written or no signer runs."
                },
            }),
            _ => json!({
                "exp_labels": { "severity": "warning", "instance": "a" },
                "exp_annotations": { "summary": "The ledger's disk fills up." },
            }),
        };
        let rules: Vec<Value> = alerts
            .iter()
            .map(|&(name, fires)| {
                let alerts = if fires { vec![expected(name)] } else { Vec::new() };
                json!({ "eval_time": "90m", "alertname": name, "exp_alerts": alerts })
            })
            .collect();
        let series: Vec<Value> = self.samples.iter().map(series).collect();
        let test = json!({ "interval": "1m", "input_series": series, "alert_rule_test": rules });
        let rules = checkout().join("deploy/chart/files/alerts.yaml");
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        serde_json::to_writer(&file, &json!({ "rule_files": [rules], "tests": [test] })).unwrap();
        let output = Command::new("promtool").args(["test", "rules"]).arg(file.path()).output();
        let Some(output) = found(Needed::Prometheus, output.ok()) else { return };
        let message = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{test}: {message}");
    }
}
