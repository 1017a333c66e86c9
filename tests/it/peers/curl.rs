//! curl, with Go's HTTP server as the backend.

use std::fs;
use std::path::Path;
use std::process::Command;

use addon_signer_core::gateway::route::Protocol;
use tempfile::TempDir;
use test_kit::gateway::{GatewayWorld, SOON};
use test_kit::needed::{Needed, has};
use test_kit::process::{Process, command_that_dies_with_us};
use test_kit::wait::wait_or_explain;

use super::{Files, Peers, Server, message};
use crate::gateway::framing::worlds_of_whole_answers;

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
/// curl waits for `100 Continue` for longer than its `--max-time`, so without one it never sends the body.
const ONLY_WHEN_ASKED: [&str; 4] = ["--expect100-timeout", "60", "--header", "Expect: 100-continue"];

/// curl as the agent, with a gateway and a backend.
struct Curl {
    world: GatewayWorld,
    _server: Option<Server>,
    files: Files,
    dir: TempDir,
}

impl Curl {
    #[track_caller]
    fn find() -> Option<Peers> {
        if is_there() { Peers::find() } else { None }
    }

    async fn start(peers: &Peers) -> Self {
        let server = peers.serve(&["http-server"]).await;
        let world = GatewayWorld::start(vec![server.route(Protocol::Http)]).await;
        Self { _server: Some(server), ..Self::of(world) }
    }

    fn of(world: GatewayWorld) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::write(dir.path(), &world);
        Self { world, _server: None, files, dir }
    }

    fn arguments(&self, arguments: &[&str], path: &str) -> Vec<String> {
        let files = [("--cert", &self.files.cert), ("--key", &self.files.key), ("--cacert", &self.files.ca)];
        let files = files.map(|(flag, file)| [flag.to_owned(), file.display().to_string()]);
        let fixed =
            ["--silent", "--show-error", "--max-time", "20"].iter().chain(arguments).map(|text| (*text).to_owned());
        let url = format!("https://{}{path}", self.world.address);
        fixed.chain(files.into_iter().flatten()).chain([url]).collect()
    }

    /// Runs curl, which must succeed; returns its output.
    async fn get(&self, arguments: &[&str], path: &str) -> String {
        let mut command = command_that_dies_with_us(None, Path::new("curl"));
        command.args(self.arguments(arguments, path));
        message(command).await
    }

    /// Posts so many bytes; returns the answer, its status and how many bytes were sent.
    async fn post(&self, arguments: &[&str], bytes: usize, path: &str) -> String {
        let file = self.dir.path().join("body");
        fs::write(&file, vec![b'x'; bytes]).unwrap();
        let body = format!("@{}", file.display());
        let post = ["--data-binary", &body, "--output", "-", "--write-out", "%{http_code}, %{size_upload} sent"];
        self.get(&[arguments, &post].concat(), path).await
    }
}

#[track_caller]
fn is_there() -> bool {
    has(Needed::Curl, Command::new("curl").arg("--version").output().is_ok())
}

/// Its library for HTTP/2 refuses more than RFC 9113 asks for.
#[tokio::test]
async fn curl_takes_every_answer_that_is_made_one() {
    if !is_there() {
        return;
    }
    for version in VERSIONS {
        for (what, world, content) in worlds_of_whole_answers().await {
            let message = Curl::of(world).get(&[version, "--write-out", ", %{http_version}"], "/x").await;
            assert_eq!(message, format!("{content}, {}", version.trim_start_matches("--http")), "{what}");
        }
    }
}

#[tokio::test]
async fn curl_speaks_both_versions_of_http() {
    let Some(peers) = Curl::find() else { return };
    let curl = Curl::start(&peers).await;
    for (version, expected) in VERSIONS.into_iter().zip(["1.1", "2"]) {
        let message = curl.get(&[version, "--write-out", "%{http_version}"], "/addons/telemetry/x?y=1").await;
        assert_eq!(message, format!("HTTP/1.1 /x?y=1\n{expected}"));
        let head = curl.get(&[version, "--head", "--request", "GET"], "/x").await;
        assert!(head.contains("200"), "{head}");
        let counted = [version, "--output", "/dev/null", "--write-out", "%{size_download}"];
        assert_eq!(curl.get(&counted, "/download?bytes=3000000").await, "3000000", "{version}");
    }
}

/// RFC 9110 section 10.1.1.
#[tokio::test]
async fn curl_sends_a_body_when_the_gateway_wants_it() {
    let Some(peers) = Curl::find() else { return };
    let curl = Curl::start(&peers).await;
    for version in VERSIONS {
        let message = curl.post(&[version], 300_000, "/upload").await;
        assert_eq!(message, "300000 bytes\n200, 300000 sent", "{version}");
    }
    let waiting = [&["--http1.1"], &ONLY_WHEN_ASKED[..]].concat();
    let message = curl.post(&waiting, 300_000, "/upload").await;
    assert_eq!(message, "300000 bytes\n200, 300000 sent");
    for (path, expected) in [("/upload", "413, 0 sent"), ("/addons/search/upload", "403, 0 sent")] {
        let message = curl.post(&waiting, 3_000_000, path).await;
        assert!(message.ends_with(expected), "{path}: {message}");
    }
    let message = curl.post(&waiting, 300_000, "/unread").await;
    assert!(message.starts_with("409"), "a backend that reads nothing: {message}");
}

#[tokio::test]
async fn curl_gets_an_event_as_soon_as_it_is_sent() {
    let Some(peers) = Curl::find() else { return };
    let curl = Curl::start(&peers).await;
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let arguments = curl.arguments(&[version, "--no-buffer", "--header", "Accept: text/event-stream"], "/events");
        let mut process = Process::start(Path::new("curl"), &arguments, dir.path());
        let has_event = async || process.tail().contains("data: first").then_some(());
        wait_or_explain(SOON, "the event", has_event, || process.tail()).await;
        process.assert_running();
    }
}
