//! The audit log of a real API server: who wrote which object, and when. If the run collects the rights that are used,
//! it also has what our accounts read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::accounts::{ADDON_GROUP, AGENT_USER, GATEWAY_USER, HUB_USER};
use crate::rights;

/// The file of the audit policy, in the hub's directory.
pub const POLICY: &str = "audit-policy.yaml";
/// The file of the audit log, in the hub's directory.
pub const LOG: &str = "audit.log";
const WRITES: [&str; 4] = ["create", "update", "patch", "delete"];
const MINUTE: Duration = Duration::from_secs(60);
/// How often in a minute the hub may write one object without a cause.
const LIMIT: usize = 10;
/// How many writes of one object one action of people may cause: a rotation has that many steps.
const PER_CAUSE: usize = 5;
/// The only object that is written more often: a leader renews the Lease three times in its duration, so that one
/// renewal may fail. A new holder starts to lead.
pub const LEASE: &str = "leases/addon-signer/addon-signer";
/// The hub's default, in seconds.
const LEASE_DURATION: u64 = 15;

/// One write that the API server answered.
#[derive(Debug, Clone)]
pub struct Write {
    pub at: Timestamp,
    pub user: String,
    /// Resource, namespace and name, without the subresource: `managedclusteraddons/spoke1/telemetry`. `None` for a
    /// create that leaves the name to the API server, because such an object cannot be written repeatedly.
    pub object: Option<String>,
    /// The subresource, or nothing.
    pub subresource: String,
    /// The status code of the answer.
    pub code: u64,
    /// For a Lease: its new holder.
    pub holder: Option<String>,
    /// For a Lease: its duration, in seconds.
    pub duration: Option<u64>,
}

/// Writes an audit policy that logs every write and, if the run collects the rights that are used, what our accounts
/// read.
pub fn write_policy(dir: &Path) {
    let leases = json!({ "group": "coordination.k8s.io", "resources": ["leases"] });
    let reads = |by: &str, whose: &[&str]| json!({ "level": "Metadata", "verbs": ["get", "list", "watch"], by: whose });
    let rules = [
        Some(json!({ "level": "Request", "verbs": WRITES, "resources": [leases] })),
        Some(json!({ "level": "Metadata", "verbs": WRITES })),
        rights::collected().map(|_| reads("users", &[HUB_USER, GATEWAY_USER, AGENT_USER])),
        rights::collected().map(|_| reads("userGroups", &[ADDON_GROUP])),
        Some(json!({ "level": "None" })),
    ];
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": rules.into_iter().flatten().collect::<Vec<_>>(),
    });
    fs::write(dir.join(POLICY), policy.to_string()).unwrap();
}

/// The length of the log in bytes; 0 before there is one.
pub fn length(dir: &Path) -> u64 {
    fs::metadata(dir.join(LOG)).map_or(0, |log| log.len())
}

/// Every call in the log after its first `begin` bytes.
pub fn events(dir: &Path, begin: u64) -> Vec<Value> {
    let mut log = File::open(dir.join(LOG)).expect("the API server writes an audit log");
    log.seek(SeekFrom::Start(begin)).unwrap();
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    // The last line may be incomplete, because the API server is still writing it.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The writes among them.
pub fn writes(dir: &Path, begin: u64) -> Vec<Write> {
    let is_write = |event: &&Value| event["verb"].as_str().is_some_and(|verb| WRITES.contains(&verb));
    events(dir, begin).iter().filter(is_write).map(parse).collect()
}

fn parse(event: &Value) -> Write {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let [resource, namespace, name] = ["resource", "namespace", "name"].map(|part| text(&format!("/objectRef/{part}")));
    Write {
        at: text("/stageTimestamp").parse().unwrap(),
        user: text("/user/username"),
        object: (!name.is_empty()).then(|| format!("{resource}/{namespace}/{name}")),
        subresource: text("/objectRef/subresource"),
        code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        holder: event.pointer("/requestObject/spec/holderIdentity").and_then(Value::as_str).map(str::to_owned),
        duration: event.pointer("/requestObject/spec/leaseDurationSeconds").and_then(Value::as_u64),
    }
}

/// Checks that hub and gateways write no object more than ten times a minute, except after actions of people while they
/// run: they change an AddOnSigner or a Secret of its authorities, and start hubs.
pub fn assert_nothing_is_hammered(writes: &[Write]) {
    let causes = causes(writes);
    let durations = writes.iter().filter_map(|write| write.duration).filter(|duration| *duration > 0);
    let shortest = durations.min().unwrap_or(LEASE_DURATION);
    let renewals = usize::try_from(3 * MINUTE.as_secs() / shortest).unwrap();
    let mut by_object: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for write in writes.iter().filter(|write| [HUB_USER, GATEWAY_USER].contains(&&*write.user)) {
        if let Some(object) = &write.object {
            by_object.entry(object).or_default().push(write.at);
        }
    }
    for (object, mut times) in by_object {
        times.sort();
        for (index, begin) in times.iter().enumerate() {
            let count = times.partition_point(|at| *at < *begin + MINUTE) - index;
            let caused = within(&causes, *begin - MINUTE, *begin + MINUTE) * PER_CAUSE;
            let limit = if object == LEASE { renewals + 2 } else { LIMIT };
            assert!(count <= limit + caused, "{object} was written {count} times in the minute from {begin}");
        }
    }
}

/// The times of the actions of people, in order.
fn causes(writes: &[Write]) -> Vec<Timestamp> {
    let mut holder = None;
    let mut causes = Vec::new();
    // A write from before the hub's first write is no cause of repeated writes.
    for write in writes.iter().skip_while(|write| write.user != HUB_USER) {
        let object = write.object.as_deref().unwrap_or_default();
        let is_watched = object.starts_with("addonsigners/") || object.starts_with("secrets/addon-signer/");
        let is_start = object == LEASE && write.holder.is_some() && write.holder != holder;
        if is_start {
            holder.clone_from(&write.holder);
        }
        if is_start || (is_watched && write.user != HUB_USER) {
            causes.push(write.at);
        }
    }
    causes.sort();
    causes
}

fn within(times: &[Timestamp], from: Timestamp, to: Timestamp) -> usize {
    times.partition_point(|at| *at < to) - times.partition_point(|at| *at < from)
}
