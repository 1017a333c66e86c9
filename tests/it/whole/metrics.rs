//! The program prints the metrics that it describes, each with its kind and its labels.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use serde_json::json;

use super::ours::enrolled;
use super::{get, mk_whole};
use crate::gateway::backend;
use crate::hub::submit;
use test_kit::hub::TIMEOUT;
use test_kit::request::mk_csr;
use test_kit::wait_until;

/// Printed only where ManifestWorks bring the trust bundle (`hub::distribution`).
const ELSEWHERE: &str = "addon_signer_trust_missing";

/// The kinds of the printed metrics, by the names that their samples have.
fn kinds(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kind = |(name, kind): (&str, &str)| {
        let suffix = if kind == "counter" { "_total" } else { "" };
        (format!("{name}{suffix}"), kind.to_owned())
    };
    types.map(kind).collect()
}

/// The labels of the samples of one metric. The bounds of buckets are no labels of ours.
fn labels(text: &str, metric: &str) -> BTreeSet<String> {
    let samples = text.lines().filter_map(|line| line.strip_prefix(metric));
    let names = samples.filter_map(|rest| rest.trim_start_matches("_bucket").strip_prefix('{')?.split_once("} "));
    let names = names.flat_map(|(labels, _)| labels.split(',').filter_map(|label| label.split_once('=')));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "le").collect()
}

const GATEWAYS_OWN: &str = "addon_signer_certificates_valid{signer=\"gateway-serving\"";

#[tokio::test]
async fn every_printed_metric_is_described() {
    let (hub, admin, whole) = mk_whole(backend::start().await).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    pair.call(whole.gateway, Method::POST, "/addons/telemetry/api/v1/receive").await.unwrap();
    submit(&hub, "spoke1", &mk_csr("spoke2", "telemetry")).await;
    // The hub counts certificates every five minutes.
    let text = wait_until(TIMEOUT * 2, "every family to have a sample", async || {
        let (_, text) = get(whole.metrics, "/metrics").await;
        let families = ["csrs_refused_total{", "foreign_certificates{", "certificates_unrenewed{"];
        let gauges = ["registrations_left{", "authority_end_timestamp_seconds{", "certificates_valid{signer=\"tele"];
        let has = |name: &&str| text.contains(&format!("addon_signer_{name}"));
        let own = text.lines().filter(|line| line.starts_with(GATEWAYS_OWN) && line.ends_with("} 1"));
        let counted = own.count() == 1;
        (counted && families.iter().chain(&gauges).all(has)).then_some(text)
    })
    .await;
    let named: Vec<_> = text.lines().filter(|line| line.contains("spoke1") || line.contains("cluster=")).collect();
    assert_eq!(named, [""; 0], "a fleet has thousands of clusters");
    let one = |start: &str| text.lines().filter(|line| line.starts_with(start) && line.ends_with("} 1")).count();
    assert_eq!(one("addon_signer_rotation_phase{signer=\"telemetry\",phase=\"Settled\""), 1, "{text}");
    assert_eq!(one("addon_signer_rotation_phase"), 2, "one step of each line");
    assert_eq!(one("addon_signer_build_info{version=\"0.1.0\",commit=\"\",roles=\"signer,gateway\""), 1);
    let kinds = kinds(&text);
    let described = addon_signer::process::metrics().into_iter().filter(|metric| metric.name != ELSEWHERE);
    let known = described.map(|metric| {
        assert_eq!(labels(&text, &metric.name), metric.labels.iter().map(|label| (*label).to_owned()).collect());
        (metric.name, metric.kind.as_str().to_owned())
    });
    assert_eq!(known.collect::<BTreeMap<_, _>>(), kinds);
    let counted =
        json!(text.lines().filter(|line| line.starts_with("addon_signer_csr_seconds_count")).collect::<Vec<_>>());
    assert_eq!(counted, json!(["addon_signer_csr_seconds_count 2"]), "the agent's and the gateway's own");
    whole.stop().await.unwrap();
}

/// An alert on `increase` would miss the first count of a counter that was not there before.
#[tokio::test]
async fn counters_of_a_served_signer_begin_at_zero() {
    let (_hub, _, whole) = mk_whole(backend::start().await).await;
    let zero = ["certificates_issued", "csrs_rate_limited", "csrs_quarantined", "authorities_forced"]
        .map(|name| format!("addon_signer_{name}_total{{signer=\"telemetry\"}} 0\n"));
    let differs = ["checkpoint", "requests", "authorities"]
        .map(|from| format!("addon_signer_ledger_differs_total{{from=\"{from}\"}} 0\n"));
    wait_until(TIMEOUT, "the counters", async || {
        let (_, text) = get(whole.metrics, "/metrics").await;
        zero.iter().chain(&differs).all(|line| text.contains(line)).then_some(())
    })
    .await;
    whole.stop().await.unwrap();
}
