//! The certificates of the gateway itself: one for agents, one for backends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::{Approved, CLIENT_AUTH, Profile, Refusal, SERVER_AUTH, Submission};
use crate::csr::{CertificateRequest, Subject};
use crate::identity::SignerName;
use crate::named;

/// The common name in both certificates.
pub const GATEWAY_COMMON_NAME: &str = "addon-signer-gateway";

named! {
    /// A certificate of the gateway.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GatewayCertificate {
        /// The one that it shows to agents.
        Serving = "gateway-serving",
        /// The one that it shows to backends.
        Client = "gateway-client",
    }
    /// The name of its signer in the ledger and in metrics. No AddOnSigner may have it.
    pub fn name(self) -> &'static str;
}

impl GatewayCertificate {
    /// `spec.signerName` of its CSRs. No AddOnSigner may have it.
    #[must_use]
    pub fn signer_name(self) -> SignerName {
        match self {
            Self::Serving => SignerName::gateway_serving(),
            Self::Client => SignerName::gateway_client(),
        }
    }

    /// The entry of `spec.usages` that its CSRs must have.
    #[must_use]
    pub fn usage(self) -> &'static str {
        match self {
            Self::Serving => "server auth",
            Self::Client => "client auth",
        }
    }
}

/// The rules of the gateway's certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayRules {
    /// The gateway's account, the only allowed requester.
    pub account: String,
    /// The DNS names of the serving certificate, exactly these. The client certificate has no names.
    pub dns_names: BTreeSet<String>,
    /// The addresses of the serving certificate, exactly these.
    pub ip_addresses: BTreeSet<IpAddr>,
    /// The lifetime of either certificate.
    pub duration: Duration,
}

/// Decides on a CSR for a certificate of the gateway.
///
/// # Errors
/// The first broken rule.
pub fn evaluate_gateway(
    rules: &GatewayRules,
    certificate: GatewayCertificate,
    submission: &Submission,
) -> Result<Approved, Refusal> {
    if submission.username != rules.account {
        return Err(Refusal::NotTheGateway(submission.username.clone()));
    }
    let request = CertificateRequest::from_pem(&submission.request)?;
    let expected = Subject { common_names: vec![GATEWAY_COMMON_NAME.to_owned()], ..Subject::default() };
    if *request.subject() != expected {
        return Err(Refusal::GatewaySubject);
    }
    let (profile, purpose) = match certificate {
        GatewayCertificate::Serving => (check_serving_names(rules, &request)?, SERVER_AUTH),
        GatewayCertificate::Client => {
            super::check_names(&request, &[], &[])?;
            (Profile::GatewayClient, CLIENT_AUTH)
        }
    };
    super::check_request_usages(&request, purpose)?;
    super::check_usages(submission, certificate.usage())?;
    let lifetime = super::lifetime(submission, rules.duration, rules.duration)?;
    Ok(super::approve(profile, &request, lifetime, None))
}

fn check_serving_names(rules: &GatewayRules, request: &CertificateRequest) -> Result<Profile, Refusal> {
    let dns_names: Vec<String> = rules.dns_names.iter().cloned().collect();
    let ip_addresses: Vec<IpAddr> = rules.ip_addresses.iter().copied().collect();
    super::check_names(request, &dns_names, &ip_addresses)?;
    let asked: BTreeSet<String> = request.extensions().dns_names.iter().cloned().collect();
    let asked_ips: BTreeSet<IpAddr> = request.extensions().ip_addresses.iter().copied().collect();
    if asked != rules.dns_names || asked_ips != rules.ip_addresses {
        return Err(Refusal::GatewayNamesMissing);
    }
    Ok(Profile::Serving { dns_names, ip_addresses })
}
