//! Runs hubs as processes of their own, against one API server and on one ledger.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use addon_signer_core::lease::LEASE_NAME;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tempfile::TempDir;

use crate::hub::mk_csr;
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, create_signer, deploy, telemetry};
use test_kit::lease::{change, leases};
use test_kit::process::Process;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

/// Whoever is killed is followed soon.
pub(in crate::hub) const SHORT_LEASE: &str = "--lease-duration=1s";

/// An API server with a signer, and the addon on some clusters. No hub runs yet.
pub(in crate::hub) struct CrashWorld {
    pub(in crate::hub) hub: TestHub,
    pub(in crate::hub) admin: Client,
    home: TempDir,
    kubeconfig: PathBuf,
}

impl CrashWorld {
    pub(in crate::hub) async fn start(clusters: &[&str]) -> Self {
        let hub = TestHub::start().await;
        deploy(&hub).await;
        let admin = hub.admin().await;
        for cluster in clusters {
            accept_cluster(&admin, cluster).await;
            install_addon(&admin, cluster, "telemetry").await;
        }
        create_signer(&admin, "telemetry", telemetry()).await;
        let home = TempDir::new().unwrap();
        let kubeconfig = home.path().join("kubeconfig");
        let text = serde_saphyr::to_string(&hub.kubeconfig(HUB_USER, &HUB_GROUPS)).unwrap();
        fs::write(&kubeconfig, text).unwrap();
        Self { hub, admin, home, kubeconfig }
    }

    /// A directory that exists as long as the world.
    pub(in crate::hub) fn dir(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.admin.clone())
    }

    /// Starts a hub on this ledger.
    pub(in crate::hub) fn start_hub(&self, ledger: &str) -> Child {
        Child::start(self.dir(), &self.kubeconfig, ledger, &["--gateway-listen=127.0.0.1:0", SHORT_LEASE])
    }

    /// Starts one that goes on leading while the API server has much to do.
    pub(in crate::hub) fn start_patient_hub(&self, ledger: &str) -> Child {
        Child::start(self.dir(), &self.kubeconfig, ledger, &["--gateway-listen=127.0.0.1:0"])
    }

    /// Deletes the Lease, because its holder is dead for certain. The next epoch follows from the ledger.
    pub(in crate::hub) async fn delete_lease(&self) {
        delete_lease(&self.admin).await;
    }

    /// Starts a last hub in this process. Its clock is ahead, so that it recovers what the others left open.
    pub(super) async fn last_hub(&self, ledger: &str) -> RunningHub {
        change(&leases(&self.admin), |spec| spec.holder_identity = Some(String::new())).await;
        let clock = Clock::default();
        clock.advance(Duration::from_secs(120));
        let mut options =
            RunningHubOptions { clock, ledger: Some(ledger.parse().unwrap()), ..RunningHubOptions::default() };
        options.gateway.dns_names.clear();
        options.gateway.ip_addresses = BTreeSet::from([IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        RunningHub::start_with(&self.hub, options).await
    }

    /// Makes a CSR with this name; returns its UID.
    pub(super) async fn submit(&self, cluster: &str, name: &str) -> String {
        let mut csr = mk_csr(cluster, "telemetry");
        csr.metadata.generate_name = None;
        csr.metadata.name = Some(name.to_owned());
        let agent = self.hub.as_cluster_agent(cluster, "a1").await;
        let api: Api<CertificateSigningRequest> = Api::all(agent);
        api.create(&PostParams::default(), &csr).await.unwrap().uid().unwrap()
    }
}

/// Deletes the Lease of a holder that is dead for certain.
pub(in crate::hub) async fn delete_lease(admin: &Client) {
    match leases(admin).delete(LEASE_NAME, &Default::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        deleted => drop(deleted.unwrap()),
    }
}

/// A process `addon-signer hub`. Dropping it kills the process by SIGKILL.
pub(in crate::hub) struct Child {
    pub(in crate::hub) process: Process,
    log: PathBuf,
    /// Where its part of the log begins.
    log_from: u64,
}

impl Child {
    /// Starts a hub on this ledger, with these flags besides those of every test; its log is in `dir`.
    pub(in crate::hub) fn start(dir: &Path, kubeconfig: &Path, ledger: &str, flags: &[&str]) -> Self {
        let mut all = vec![
            "hub".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--gateway-name=127.0.0.1".to_owned(),
            "--metrics-listen=127.0.0.1:0".to_owned(),
            format!("--ledger={ledger}"),
            "--rate-burst=100000".to_owned(),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let log = dir.join("addon-signer.log");
        let log_from = fs::metadata(&log).map_or(0, |log| log.len());
        let process = Process::start(Path::new(env!("CARGO_BIN_EXE_addon-signer")), &all, dir);
        Self { process, log, log_from }
    }

    /// Whether its log contains these words.
    pub(in crate::hub) fn has_logged(&self, words: &str) -> bool {
        let log = fs::read(&self.log).unwrap();
        let from = usize::try_from(self.log_from).unwrap();
        String::from_utf8_lossy(&log[from..]).contains(words)
    }

    /// Kills the process by SIGKILL; it must not have ended by itself.
    pub(in crate::hub) fn kill(mut self) {
        self.process.assert_running();
    }
}

/// Waits until no row is open.
pub(super) async fn closes_all(running: &RunningHub) {
    let later = running.clock.now().plus(Duration::from_secs(3_600));
    wait_until(4 * TIMEOUT, "every row to come to an end", async || {
        running.ledger.open_rows(0, later).await.ok().filter(Vec::is_empty)
    })
    .await;
}
