//! A lineage that is brought through a rotation, step by step, so that a test can do the same in each step.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use test_kit::TestHub;
use test_kit::hub::{RunningHub, certificate, wait_csr};

use super::kit::{OnServer, issue, rotate, signed_by};
use super::rotation::mk_held;
use crate::hub::{mk_csr, submit};

/// The lineage of the signer telemetry, in one step of its first rotation. Nothing is trusted before the test says so.
pub(super) struct Rotating {
    pub(super) hub: TestHub,
    pub(super) admin: Client,
    pub(super) running: RunningHub,
    pub(super) lineage: OnServer,
    /// The states of the authorities; empty before the first step.
    pub(super) states: &'static [&'static str],
    pub(super) ids: Vec<String>,
}

impl Rotating {
    pub(super) async fn start() -> Self {
        let (hub, admin, running) = mk_held().await;
        let lineage = OnServer::client(&admin);
        Self { hub, admin, running, lineage, states: &[], ids: Vec::new() }
    }

    /// Goes on to the next step: one authority signs, another one waits, or that one signs and the first is old.
    /// Returns whether there was one.
    pub(super) async fn step(&mut self) -> bool {
        match self.states {
            [] => {
                self.states = &["Active"];
                self.running.follow_once();
            }
            ["Active"] => {
                self.states = &["Next", "Active"];
                issue(&self.hub, &self.admin).await; // one that has signed nothing does not become Old
                rotate(&self.admin, "r1").await;
            }
            ["Next", "Active"] => {
                self.states = &["Active", "Old"];
                self.lineage.wait_bundle(&self.ids).await;
                self.running.follow_once();
            }
            _ => return false,
        }
        self.ids = self.lineage.wait(self.states).await;
        self.lineage.wait_bundle(&self.ids).await;
        self.lineage.wait_reported(self.states, &self.ids).await;
        println!("{:?}", self.states); // shown when the test fails
        true
    }

    /// Goes on to the step with these states.
    pub(super) async fn reach(&mut self, states: &[&str]) {
        while self.states != states {
            assert!(self.step().await, "there are no states {states:?}");
        }
    }

    /// The authority that signs.
    pub(super) fn active(&self) -> &str {
        let at = self.states.iter().position(|state| *state == "Active").unwrap();
        &self.ids[at]
    }

    /// Makes a CSR; returns its name.
    pub(super) async fn submit(&self) -> String {
        submit(&self.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await
    }

    /// Checks that nobody has answered this CSR.
    pub(super) async fn assert_unanswered(&self, request: &str) {
        let requests: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        let status = requests.get(request).await.unwrap().status.unwrap_or_default();
        assert_eq!((status.certificate, status.conditions), (None, None));
    }

    /// Waits for the certificate of this CSR, and checks that the lineage is as it was and its Active has signed.
    pub(super) async fn assert_goes_on(&self, request: &str) {
        let pem = wait_csr(&self.admin, request, "issued", certificate).await;
        let leaf = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(self.lineage.wait(self.states).await, self.ids);
        let bundle = self.lineage.bundle().await.unwrap();
        assert_eq!(signed_by(&bundle, &leaf, self.running.clock.now()), self.active());
    }
}
