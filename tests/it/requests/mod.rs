//! The corpus of certificate requests: every file of `certs/requests` is judged by policy, and the files are made here.
//!
//! [`corpus`] reads the files. [`cases::cases`] is the table from which `UPDATE_REQUESTS=1 cargo test --test it
//! requests` writes new files, with new keys, so that every request changes.

use std::collections::BTreeMap;

use addon_signer_core::policy::{Approved, GatewayCertificate, Refusal, Submission, evaluate, evaluate_gateway};
use addon_signer_core::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

mod cases;
mod checks;
mod file;
mod fixture;
mod pkcs10;
mod seeds;
pub(crate) mod tlv;

pub(crate) use file::corpus;
pub(crate) use fixture::Fixture;

/// One certificate request, and its expected verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    /// The file's name without directory and extension; the name of a refused case begins with `rule<n>-`.
    pub(crate) name: String,
    /// What is special about the case, in one line.
    pub(crate) comment: String,
    /// What policy must say.
    pub(crate) verdict: Verdict,
    /// The fixture by which it is evaluated.
    pub(crate) fixture: Fixture,
    /// The signer that it is for.
    pub(crate) profile: Profile,
    /// `spec.username`.
    pub(crate) username: String,
    /// `spec.groups`.
    pub(crate) groups: Vec<String>,
    /// `metadata.annotations`.
    pub(crate) annotations: BTreeMap<String, String>,
    /// `metadata.labels`.
    pub(crate) labels: BTreeMap<String, String>,
    /// `spec.usages`.
    pub(crate) usages: Vec<String>,
    /// `spec.expirationSeconds`.
    pub(crate) expiration_seconds: Option<i32>,
    /// `spec.request`.
    pub(crate) request: Vec<u8>,
}

/// What policy must say of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Approved.
    Good {
        /// How long the certificate is valid.
        lifetime_seconds: u64,
    },
    /// Refused.
    Refused {
        /// The number of the rule.
        rule: u8,
        /// [`Refusal::reason`].
        reason: String,
    },
}

/// Which signer a case is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Profile {
    /// An AddOnSigner: example.com/telemetry.
    Client,
    /// addon-signer.io/gateway-serving.
    Serving,
    /// addon-signer.io/gateway-client.
    GatewayClient,
}

impl Case {
    /// The part of the CertificateSigningRequest that policy sees.
    pub(crate) fn submission(&self) -> Submission {
        let label = |name: &str| self.labels.get(&format!("open-cluster-management.io/{name}")).cloned();
        Submission {
            username: self.username.clone(),
            groups: self.groups.clone(),
            csr_user: self.annotations.get("open-cluster-management.io/csr-user").cloned(),
            is_guarded: self.fixture == Fixture::GrpcProxy,
            cluster_label: label("cluster-name"),
            addon_label: label("addon-name"),
            usages: self.usages.clone(),
            expiration_seconds: self.expiration_seconds,
            request: self.request.clone(),
            requested: Timestamp::default(),
        }
    }

    fn evaluate_gateway(&self, certificate: GatewayCertificate) -> Result<Approved, Refusal> {
        evaluate_gateway(&Fixture::gateway_rules(), certificate, &self.submission())
    }

    /// Policy's verdict.
    pub(crate) fn evaluate(&self) -> Result<Approved, Refusal> {
        match self.profile {
            Profile::Client => evaluate(&self.fixture.rules(), &self.submission(), &self.fixture.registry()),
            Profile::Serving => self.evaluate_gateway(GatewayCertificate::Serving),
            Profile::GatewayClient => self.evaluate_gateway(GatewayCertificate::Client),
        }
    }
}
