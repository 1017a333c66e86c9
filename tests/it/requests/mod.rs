//! The corpus of certificate requests: every file of `certs/requests` against policy, and how the files are made.
//!
//! [`corpus`] reads the files, [`cases::cases`] is the table that they are written from:
//! `UPDATE_REQUESTS=1 cargo test --test it requests` writes them anew (new keys, so every request changes).

use std::collections::BTreeMap;

use addon_signer_core::policy::{Approved, Refusal, Submission, evaluate, evaluate_serving};
use serde::{Deserialize, Serialize};

mod cases;
mod checks;
mod file;
mod fixture;
mod pkcs10;
mod seeds;
pub(crate) mod tlv;

pub(crate) use file::corpus;
pub(crate) use fixture::{Fixture, GRPC_PROXY};

/// One certificate request, and what must become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    /// The file's name without directory and extension; a refused case's begins with `rule<n>-`.
    pub(crate) name: String,
    /// One line: what is special about it.
    pub(crate) comment: String,
    /// What policy must say.
    pub(crate) verdict: Verdict,
    /// What it is evaluated against.
    pub(crate) fixture: Fixture,
    /// Which signer it is for.
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
        /// For so long.
        lifetime_seconds: u64,
    },
    /// Refused.
    Refused {
        /// The number of the rule (design section 4).
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
}

impl Case {
    /// What policy sees of the CertificateSigningRequest.
    pub(crate) fn submission(&self) -> Submission {
        let label = |name: &str| self.labels.get(&format!("open-cluster-management.io/{name}")).cloned();
        Submission {
            username: self.username.clone(),
            groups: self.groups.clone(),
            csr_user: self.annotations.get("open-cluster-management.io/csr-user").cloned(),
            cluster_label: label("cluster-name"),
            addon_label: label("addon-name"),
            usages: self.usages.clone(),
            expiration_seconds: self.expiration_seconds,
            request: self.request.clone(),
        }
    }

    /// What policy says.
    pub(crate) fn evaluate(&self) -> Result<Approved, Refusal> {
        match self.profile {
            Profile::Client => evaluate(&self.fixture.rules(), &self.submission(), &self.fixture.registry()),
            Profile::Serving => evaluate_serving(&Fixture::serving_rules(), &self.submission()),
        }
    }
}
