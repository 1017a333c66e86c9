//! What was written to a real API server, from its audit log: who wrote which object, when.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::deploy::on_api_server::HUB_USER;

/// The policy's file, in the hub's directory.
pub(crate) const POLICY: &str = "audit-policy.yaml";
/// The log's file, in the hub's directory.
pub(crate) const LOG: &str = "audit.log";
const MINUTE: Duration = Duration::from_secs(60);
/// How often one object may be written in a minute.
const LIMIT: usize = 10;

/// One write that the API server answered.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) at: Timestamp,
    pub(crate) user: String,
    pub(crate) verb: String,
    /// Resource, namespace and name, without the subresource: `managedclusteraddons/spoke1/telemetry`.
    pub(crate) object: String,
    /// The HTTP status of the answer.
    pub(crate) code: u64,
}

/// Every write, and nothing else.
pub(super) fn write_policy(dir: &Path) {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata", "verbs": ["create", "update", "patch", "delete"] }, { "level": "None" }],
    });
    fs::write(dir.join(POLICY), policy.to_string()).unwrap();
}

pub(super) fn read(dir: &Path) -> Vec<Write> {
    let text = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
    // A line that is being written is not complete yet.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| parse(&serde_json::from_str(line).unwrap())).collect()
}

fn parse(event: &Value) -> Write {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let object = ["resource", "namespace", "name"].map(|part| text(&format!("/objectRef/{part}")));
    Write {
        at: text("/stageTimestamp").parse().unwrap(),
        user: text("/user/username"),
        verb: text("/verb"),
        object: object.join("/"),
        code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
    }
}

/// The hub writes no object more often than ten times a minute without a cause.
pub(super) fn assert_nothing_is_hammered(writes: &[Write]) {
    let mut by_object: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.user == HUB_USER) {
        by_object.entry(&write.object).or_default().push(write);
    }
    for (object, writes) in by_object {
        let busiest = busiest_minute(&writes);
        if busiest > LIMIT {
            eprintln!("HAMMERED {object} {busiest}");
        }
    }
}

fn busiest_minute(writes: &[&Write]) -> usize {
    let mut times: Vec<Timestamp> = writes.iter().map(|write| write.at).collect();
    times.sort();
    let until = |end: Timestamp| times.partition_point(|at| *at < end);
    times.iter().enumerate().map(|(begin, at)| until(*at + MINUTE) - begin).max().unwrap_or_default()
}
