//! Compares `docs/audit.md` and `docs/access-log.md` with the logs of a whole process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use addon_signer::process::HubOptions;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::audit::QUOTA;
use hyper::{Method, Request};
use rustls::pki_types::ServerName;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Whole, get, options, ours, prepare};
use crate::gateway::backend;
use crate::hub::{mk_csr, submit};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::TIMEOUT;
use test_kit::log::{Log, capture_access, capture_audit};
use test_kit::objects::managed_cluster_addons;
use test_kit::{TestHub, wait_until};

/// More connections of one cause than the audit log lists one by one.
const KNOCKS: u32 = QUOTA.first + 5;

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The members of an object in the order of the text, which serde_json's map does not keep.
struct Members(Vec<String>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut names = Vec::new();
        while let Some((name, _)) = map.next_entry::<String, Value>()? {
            names.push(name);
        }
        Ok(Members(names))
    }
}

/// The rows of the table of events: `| `event` | `field` … |`.
fn documented() -> BTreeMap<String, Vec<String>> {
    let text = read("docs/audit.md");
    let rows = text.lines().filter(|line| line.starts_with("| `") && line.contains("`time` `event`"));
    let words = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    rows.map(|row| {
        let mut cells = row.split('|').skip(1);
        let event = words(cells.next().unwrap()).remove(0);
        (event, words(cells.next().unwrap()))
    })
    .collect()
}

async fn wait_for(log: &Log, event: &str) {
    let message = async || log.json().iter().any(|line| line["event"] == event).then_some(());
    wait_until(TIMEOUT, &format!("a line {event}"), message).await;
}

/// Makes every audited event happen at least once.
async fn live(log: &Log) {
    let hub = TestHub::start().await;
    let clock = Clock::default();
    let admin = prepare(&hub, backend::start().await, "24h").await;
    let whole = Whole::start(&hub, clock.clone()).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = ours::enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    submit(&hub, "spoke1", &mk_csr("spoke2", "telemetry")).await;
    wait_for(log, "refused").await;
    pair.call(whole.gateway, Method::GET, "/addons/telemetry/api/v1/receive").await.unwrap();
    knock(whole.gateway).await;
    let tcp = TcpStream::connect(whole.gateway).await.unwrap();
    let name = ServerName::from(whole.gateway.ip());
    let mut idle = TlsConnector::from(Arc::new(pair.config())).connect(name, tcp).await.unwrap();
    wait_until(TIMEOUT, "the idle connection", async || {
        (log.json().iter().filter(|line| line["event"] == "admitted").count() > 1).then_some(())
    })
    .await;
    managed_cluster_addons(&admin, "spoke1").await.delete("telemetry", &Default::default()).await.unwrap();
    // The connection may end with or without an error.
    idle.read_to_end(&mut Vec::new()).await.ok();
    clock.advance(QUOTA.window);
    wait_for(log, "suppressed").await;
    let sums = || log.json().iter().filter(|line| line["event"] == "suppressed").count();
    let before = sums();
    let failed_before = failed_handshakes(whole.metrics).await;
    knock(whole.gateway).await;
    wait_until(TIMEOUT, "the gateway to have counted these connections", async || {
        (failed_handshakes(whole.metrics).await >= failed_before + KNOCKS).then_some(())
    })
    .await;
    whole.stop().await.unwrap();
    assert!(sums() > before, "what is counted at the end is told");
}

/// Opens connections and drops them without a handshake.
async fn knock(gateway: SocketAddr) {
    for _ in 0..KNOCKS {
        drop(TcpStream::connect(gateway).await.unwrap());
    }
}

/// The gateway's count of connections without a handshake.
async fn failed_handshakes(metrics: SocketAddr) -> u32 {
    let (_, text) = get(metrics, "/metrics").await;
    let name = "addon_signer_gateway_handshakes_failed_total{cause=\"closed\"} ";
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn every_line_has_the_fields_that_the_document_lists() {
    let (log, _, _guard) = capture_audit();
    live(&log).await;
    println!("{}", log.text()); // with --nocapture: lines to paste
    let documented = documented();
    let text = read("docs/audit.md");
    let pasted = text.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect();
    for (from, lines) in [("a process", log.text().lines().map(str::to_owned).collect()), ("the document", pasted)] {
        let lines: Vec<String> = lines;
        let mut events = BTreeSet::new();
        for line in lines {
            let Members(members) = serde_json::from_str(&line).unwrap();
            let value: Value = serde_json::from_str(&line).unwrap();
            let event = value["event"].as_str().unwrap();
            assert_eq!(Some(&members), documented.get(event), "{line}");
            let cause = value["cause"].as_str().unwrap_or_default();
            assert!(cause.is_empty() || text.contains(&format!("`{cause}`")), "{cause} is not in the document");
            events.insert(event.to_owned());
        }
        assert_eq!(events, documented.keys().cloned().collect(), "all events, from {from}");
    }
}

#[tokio::test]
async fn every_line_of_the_access_log_has_these_members() {
    let (log, writer, _guard) = capture_access();
    let hub = TestHub::start().await;
    let clock = Clock::default();
    let admin = prepare(&hub, backend::start().await, "24h").await;
    let client = hub.client_at(HUB_USER, &HUB_GROUPS, &clock).await;
    let whole = Whole::start_with(client, HubOptions { access_log: true, ..options() }, clock).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = ours::enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    let traced = Request::post("/addons/telemetry/api/v1/receive").header("host", "gateway.example");
    let traced = traced.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    pair.send(whole.gateway, traced).await.unwrap();
    pair.call(whole.gateway, Method::GET, "/addons/telemetry/other?password=x").await.unwrap();
    whole.stop().await.unwrap();
    writer.finish();
    println!("{}", log.text()); // with --nocapture: lines to paste
    assert!(log.json().iter().any(|line| line["route"] == "default/receive" && line["cluster"] == "spoke1"));
    let text = read("docs/access-log.md");
    let rows = text.lines().take_while(|line| *line != "| `ended` | |").filter(|line| line.starts_with("| `"));
    let documented: Vec<_> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2).map(str::to_owned)).collect();
    let pasted = text.lines().filter(|line| line.starts_with('{'));
    assert!(pasted.clone().count() > 0, "an example");
    for line in log.text().lines().chain(pasted) {
        let Members(members) = serde_json::from_str(line).unwrap();
        assert_eq!(members, documented, "{line}");
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(text.contains(&format!("| `{}` | ", line["ended"].as_str().unwrap())), "{line}");
    }
}
