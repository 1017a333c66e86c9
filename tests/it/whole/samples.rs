//! The clients of examples/clients, which authors of addons copy: they follow what addon-signer-agent stores without a
//! restart, and print why a request is refused.

use std::env;
use std::path::{Path, PathBuf};

use addon_signer_core::ca::authority::Authority;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::process::Command;

use super::{mk_whole, ours, serving_anchors};
use crate::cli::{run, write};
use crate::gateway::backend;
use test_kit::deploy::checkout;
use test_kit::hub::TIMEOUT;
use test_kit::needed::{Needed, asks};
use test_kit::process::Process;
use test_kit::quick::as_usual;
use test_kit::wait::wait_or_explain;
use test_kit::wait_until;

/// What a client says when it has read its files.
const READ: &str = "read the certificate and the trust bundle";

/// One of the clients.
struct Sample {
    program: PathBuf,
    first: Vec<String>,
    /// How its flag says a fifth of a second.
    every: &'static str,
    dir: TempDir,
}

impl Sample {
    fn in_python() -> Self {
        let script = checkout().join("examples/clients/python/client.py").display().to_string();
        let first = vec!["-B".to_owned(), script];
        Self { program: "python3".into(), first, every: "0.2", dir: tempfile::tempdir().unwrap() }
    }

    /// `None` without Go.
    async fn in_go() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        if !asks(Needed::Peers, env::split_paths(&path).any(|dir| dir.join("go").is_file())) {
            eprintln!("skipped: there is no go on the PATH");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("client");
        let mut build = Command::new("go");
        build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
        build.env("GOWORK", "off").env("CGO_ENABLED", "0").current_dir(checkout().join("examples/clients/go"));
        assert!(build.status().await.unwrap().success());
        Some(Self { program, first: Vec::new(), every: "200ms", dir })
    }

    /// Arguments of requests to the URL with the certificate in `files`.
    fn arguments(&self, files: &Path, url: &str, more: &[&str]) -> Vec<String> {
        let certificates = format!("--certificates={}", files.display());
        let arguments = [&[&*certificates, "--method=POST", "--data=hello"], more, &[url]].concat();
        self.first.iter().cloned().chain(arguments.into_iter().map(str::to_owned)).collect()
    }

    /// Sends one request; returns whether it succeeded, and what the client said.
    async fn once(&self, files: &Path, url: &str) -> (bool, String) {
        let mut command = Command::new(&self.program);
        let output = command.args(self.arguments(files, url, &[])).kill_on_drop(true).output().await.unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    /// Sends requests until it is dropped.
    fn start(&self, files: &Path, url: &str) -> Process {
        let every = format!("--every={}", self.every);
        Process::start(&self.program, &self.arguments(files, url, &[&every]), self.dir.path())
    }

    /// All that it has said since it was started.
    fn message(&self) -> String {
        let name = self.program.file_name().unwrap().to_string_lossy();
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap()
    }

    /// How often it has read the files.
    fn reads(&self) -> usize {
        self.message().matches(READ).count()
    }

    /// Waits until a request has passed after the files were read so many times.
    async fn passes_after(&self, reads: usize) {
        let passed = async || {
            let message = self.message();
            let mut after = message.splitn(reads + 1, READ).skip(reads);
            after.next().is_some_and(|after| after.contains("\n200 ")).then_some(())
        };
        wait_or_explain(TIMEOUT, "a request that passes", passed, || self.message()).await;
    }
}

/// The gateway's authority is replaced: the agent stores a new certificate with both anchors, and one with the new
/// anchor alone once the old authority is gone.
async fn follows_a_rotation_of_the_anchors(sample: &Sample) {
    as_usual();
    let (hub, admin, whole) = mk_whole(backend::start().await).await;
    let dir = tempfile::tempdir().unwrap();
    ours::enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    let files = dir.path().join("spoke1");
    let anchors = async |count: usize| {
        wait_until(TIMEOUT, "the agent to store other anchors", async || {
            let stored = ours::pair(dir.path(), "spoke1")?.anchors;
            (CertificateDer::pem_slice_iter(&stored).count() == count).then_some(())
        })
        .await;
    };
    let old = CertificateDer::from_pem_slice(serving_anchors(&admin).await.as_bytes()).unwrap();
    let old = Authority::from_der(&old).unwrap().id().to_string();
    let kubeconfig = write(dir.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let ca = async |arguments: &[&str]| {
        let message = run(dir.path(), &[&["ca"], arguments, &["--kubeconfig", &kubeconfig]].concat()).await;
        assert_eq!(message.code, 0, "{}", message.stderr);
    };
    let url = format!("https://{}/addons/telemetry/api/v1/receive", whole.gateway);

    let _client = sample.start(&files, &url);
    sample.passes_after(1).await;
    ca(&["rotate", "--serving"]).await;
    anchors(2).await;
    sample.passes_after(2).await;
    let reads = sample.reads();
    ca(&["revoke", "--serving", &old, "--yes"]).await;
    anchors(1).await;
    sample.passes_after(reads + 1).await;
    assert!(!sample.message().contains("failed"), "{}", sample.message());

    let refused = sample.once(&files, &format!("https://{}/addons/telemetry/other", whole.gateway)).await;
    let problem = r#"failed: 404 {"type":"https://addon-signer.io/problems/no-route","title":"The addon has no such"#;
    assert!(!refused.0 && refused.1.contains(problem), "{refused:?}");
    let elsewhere = sample.once(&files, &url.replace("127.0.0.1", "localhost")).await;
    assert!(!elsewhere.0 && elsewhere.1.contains("certificate"), "the name is not in the certificate: {elsewhere:?}");
    whole.stop().await.unwrap();
}

#[tokio::test]
async fn the_client_in_python_follows_its_files() {
    follows_a_rotation_of_the_anchors(&Sample::in_python()).await;
}

#[tokio::test]
async fn the_client_in_go_follows_its_files() {
    let Some(sample) = Sample::in_go().await else { return };
    follows_a_rotation_of_the_anchors(&sample).await;
}
