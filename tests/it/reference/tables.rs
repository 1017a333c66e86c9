//! The tables of names: metrics, conditions, events, labels, headers, problems, exit codes.

use std::path::{Path, PathBuf};

use addon_signer::inventory::{BASE, PATHS};
use addon_signer::process;
use addon_signer_agent::probe::METRICS;
use addon_signer_core::conditions::{OF_ADDONS, OF_CSRS, OF_EVENTS, OF_ROUTES, OF_SIGNERS};
use addon_signer_core::gateway::headers::rules::REQUEST_HEADERS;
use addon_signer_core::names::{GATEWAY_PATHS, LABELS, Named, OBJECTS};
use addon_signer_gateway::PROBLEMS;
use addon_signer_platform::arguments::EXIT_CODES;
use addon_signer_telemetry::audit::EVENTS;

use super::{as_table, code};

pub(super) fn parts() -> [(&'static str, String); 14] {
    [
        ("exit codes", exit_codes()),
        ("metrics of the agent", metrics_of_the_agent()),
        ("metrics", metrics()),
        ("audit events", as_table(["event", "meaning"], EVENTS.iter().map(|row| [code(row.value), meaning(row)]))),
        ("reasons of AddOnSigner", reasons(OF_SIGNERS)),
        ("reasons of AddOnRoute", reasons(OF_ROUTES)),
        ("reasons of ManagedClusterAddOn", reasons(OF_ADDONS)),
        ("reasons of CertificateSigningRequest", reasons(OF_CSRS)),
        ("events", more(["reason", "type", "on", "when"], OF_EVENTS)),
        ("labels and annotations", more(["name", "what", "on", "meaning"], LABELS)),
        ("objects", objects()),
        ("paths", paths()),
        ("headers", headers()),
        ("problems", problems()),
    ]
}

fn meaning<T>(row: &Named<T>) -> String {
    row.meaning.trim().to_owned()
}

fn exit_codes() -> String {
    as_table(["code", "meaning"], EXIT_CODES.iter().map(|row| [code(&row.value.to_string()), meaning(row)]))
}

fn metrics_of_the_agent() -> String {
    let rows = METRICS.iter().map(|(name, kind, help)| {
        let suffix = if *kind == "counter" { "_total" } else { "" };
        [code(&format!("{name}{suffix}")), (*kind).to_owned(), format!("{help}.")]
    });
    as_table(["metric", "kind", "meaning"], rows)
}

fn metrics() -> String {
    let rows = process::metrics().into_iter().map(|metric| {
        let labels = metric.labels.iter().map(|label| code(label)).collect::<Vec<_>>().join(", ");
        [code(&metric.name), metric.kind.as_str().to_owned(), labels, format!("{}.", metric.help)]
    });
    as_table(["metric", "kind", "labels", "meaning"], rows)
}

fn reasons(table: &[Named<&str>]) -> String {
    let rows = table.iter().map(|row| {
        let (status, conditions) = row.more.split_last().unwrap();
        let conditions = conditions.iter().map(|condition| code(condition)).collect::<Vec<_>>().join(", ");
        [conditions, code(status), code(row.value), meaning(row)]
    });
    as_table(["condition", "status", "reason", "meaning"], rows)
}

fn more(columns: [&str; 4], table: &[Named<&str>]) -> String {
    as_table(columns, table.iter().map(|row| [code(row.value), row.more[0].into(), row.more[1].into(), meaning(row)]))
}

fn objects() -> String {
    let object = |row: &Named<&str>| code(&format!("{}/{}", row.more[0], row.value));
    as_table(["object", "where", "content"], OBJECTS.iter().map(|row| [object(row), row.more[1].into(), meaning(row)]))
}

fn paths() -> String {
    let served = [("gateway", "", GATEWAY_PATHS), ("metrics address", "", process::PATHS), ("inventory", BASE, PATHS)];
    let rows = served.iter().flat_map(|(by, base, table)| {
        table.iter().map(move |row| [code(&format!("{base}{}", row.value)), (*by).to_owned(), meaning(row)])
    });
    as_table(["path", "served by", "answer"], rows)
}

/// One row for all headers that are treated alike, for the same reason.
fn headers() -> String {
    let mut rows: Vec<[String; 3]> = Vec::new();
    for rule in REQUEST_HEADERS {
        let treatment = format!("{:?}", rule.treatment).to_lowercase();
        let same = rows.iter_mut().find(|row| (row[1].as_str(), row[2].as_str()) == (treatment.as_str(), rule.why));
        match same {
            Some(row) => row[0] = format!("{} {}", row[0], rule.name),
            None => rows.push([rule.name.to_owned(), treatment, rule.why.to_owned()]),
        }
    }
    as_table(["headers", "what happens", "why"], rows.into_iter().map(|[names, what, why]| [code(&names), what, why]))
}

fn problems() -> String {
    let rows = PROBLEMS.iter().map(|row| {
        let (status, name, _) = row.value;
        [code(name), status.as_u16().to_string(), meaning(row)]
    });
    as_table(["name", "status", "meaning"], rows)
}

/// Words in the hub's code that look like a condition or a reason, but are statuses, kinds, actions or names of tasks.
const NO_REASONS: &str = "Registering Signing Rotating Reading AddOnSigners ManagedClusters ManagedClusterAddOn \
                          ManagedClusterAddOns ClusterManagementAddOn AddOnTemplate AddOnTemplates ManifestWork \
                          ConfigMap Succeeded AddOnRoutes Approved Denied Failed True";

/// The text of a file without its tests.
fn text(file: impl AsRef<Path>) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let paths = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let product = paths.filter(|path| !path.ends_with("tests.rs") && !path.ends_with("tests"));
    product.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn the_hub_has_no_reason_outside_the_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["crates/hub/src", "crates/core/src/gateway/routing"];
    let code: String = folders.iter().flat_map(|folder| sources(&root.join(folder))).map(text).collect();
    let is_reason = |w: &&str| w.len() > 3 && w.starts_with(char::is_uppercase) && w.chars().all(char::is_alphabetic);
    let known: Vec<_> = NO_REASONS.split(' ').collect();
    let others: Vec<_> = code.split('"').filter(is_reason).filter(|word| !known.contains(word)).collect();
    assert_eq!(others, [""; 0], "a reason belongs into a table of the core's conditions");
}

#[test]
fn the_labels_of_the_chart_are_in_the_table() {
    let chart = text("deploy/chart/templates/network-policies.yaml");
    let labels = chart.split("{ addon-signer.io/").skip(1).map(|rest| rest.split(':').next().unwrap());
    let known = |label: &str| LABELS.iter().any(|row| row.value == format!("addon-signer.io/{label}"));
    assert!(labels.clone().count() >= 3 && labels.clone().all(known), "{:?}", labels.collect::<Vec<_>>());
}
