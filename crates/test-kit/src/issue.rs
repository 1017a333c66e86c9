//! Issues certificates as the hub does, by the crate's own policy and CA, without a hub.

use std::net::IpAddr;
use std::time::Duration;

use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::identity::{Convention, PeerIdentity};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{self, Approved, GatewayCertificate, GatewayRules, SignerRules, Submission};
use addon_signer_core::timestamp::Timestamp;
use ring::rand::SystemRandom;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::company::CompanyCa;
use super::rules::{mk_registry, mk_rules, mk_submission};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A certificate and its key.
pub struct Leaf {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
    pub serial: Serial,
    pub not_after: Timestamp,
}

/// An authority with its key.
pub struct Ca(Issuer);

impl Ca {
    /// Makes an authority that is valid from a day before `now`, so that it can sign certificates that have expired.
    pub fn new(lineage: &str, now: Timestamp) -> Self {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let day_before = now.minus(Duration::from_secs(86_400));
        Self(Issuer::new(Authority::self_signed(lineage, &key, day_before, YEAR, &rng).unwrap(), key).unwrap())
    }

    /// An authority that a company's CA has certified.
    pub fn of_company(ca: &CompanyCa) -> Self {
        Self::of_pair(&ca.der, ca.key().as_bytes())
    }

    /// An authority whose key, in PEM, somebody has.
    pub fn of_pair(certificate: &CertificateDer<'_>, key: &[u8]) -> Self {
        let (key, _) = PrivateKey::from_pem(key, &SystemRandom::new()).unwrap();
        Self(Issuer::new(Authority::from_der(certificate).unwrap(), key).unwrap())
    }

    pub fn authority(&self) -> &Authority {
        self.0.authority()
    }

    pub fn bundle(&self) -> Bundle {
        Bundle::new(vec![self.authority().clone()]).unwrap()
    }

    /// A client certificate by OCM's convention, with all its groups; the agent has the name of the addon.
    pub fn client(&self, cluster: &str, addon: &str, now: Timestamp, life: Duration) -> Leaf {
        self.client_of(cluster, addon, addon, now, life)
    }

    /// Such a certificate with another name of the agent.
    pub fn client_of(&self, cluster: &str, addon: &str, agent: &str, now: Timestamp, life: Duration) -> Leaf {
        let convention = Convention::default();
        let identity = PeerIdentity {
            cluster: cluster.parse().unwrap(),
            addon: addon.parse().unwrap(),
            agent: agent.parse().unwrap(),
        };
        let wish = CsrParams {
            common_name: convention.user(&identity),
            organizations: convention.groups(&identity.cluster, &identity.addon),
            ..CsrParams::default()
        };
        let (key, request) = sign(&wish);
        self.issue(approve_client(&identity, request, life), key, now)
    }

    /// A server's certificate.
    pub fn server(&self, dns: &[&str], ips: &[IpAddr], now: Timestamp) -> Leaf {
        let wish = CsrParams {
            common_name: policy::GATEWAY_COMMON_NAME.to_owned(),
            dns_names: dns.iter().map(|name| (*name).to_owned()).collect(),
            ip_addresses: ips.to_vec(),
            ..CsrParams::default()
        };
        let (key, request) = sign(&wish);
        let approved = approve_server(&wish, request);
        self.issue(approved, key, now)
    }

    /// Signs the gateway's own request as the hub would.
    pub fn serve(&self, request: Vec<u8>, dns: &[&str], ips: &[IpAddr], now: Timestamp) -> String {
        let wish = CsrParams {
            dns_names: dns.iter().map(|name| (*name).to_owned()).collect(),
            ip_addresses: ips.to_vec(),
            ..CsrParams::default()
        };
        let rng = SystemRandom::new();
        let prepared = self.0.prepare(approve_server(&wish, request), Serial::new(now, &rng).unwrap(), now).unwrap();
        self.0.sign(prepared, &self.bundle(), now, &rng).unwrap().pem()
    }

    /// The certificate that the gateway shows to backends.
    pub fn gateway_client(&self, now: Timestamp) -> Leaf {
        let wish = CsrParams { common_name: policy::GATEWAY_COMMON_NAME.to_owned(), ..CsrParams::default() };
        let (key, request) = sign(&wish);
        self.issue(approve_gateway(GatewayCertificate::Client, &wish, request), key, now)
    }

    fn issue(&self, approved: Approved, key: PrivateKeyDer<'static>, now: Timestamp) -> Leaf {
        let rng = SystemRandom::new();
        let prepared = self.0.prepare(approved, Serial::new(now, &rng).unwrap(), now).unwrap();
        let issued = self.0.sign(prepared, &self.bundle(), now, &rng).unwrap();
        Leaf { certificate: issued.certificate, key, serial: issued.serial, not_after: issued.not_after }
    }
}

fn sign(wish: &CsrParams) -> (PrivateKeyDer<'static>, Vec<u8>) {
    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let request = wish.sign(&key, &rng).unwrap().into_bytes();
    (PrivatePkcs8KeyDer::from(pkcs8.to_vec()).into(), request)
}

fn approve_client(identity: &PeerIdentity, request: Vec<u8>, life: Duration) -> Approved {
    let cluster = &identity.cluster;
    let addon = &identity.addon;
    let rules = mk_rules("example.com/test", [addon.clone()]);
    let rules = SignerRules { duration: life, max_duration: life, ..rules };
    let submission = mk_submission(cluster, addon, &request);
    policy::evaluate(&rules, &submission, &mk_registry(cluster, [addon.clone()])).unwrap()
}

fn approve_server(wish: &CsrParams, request: Vec<u8>) -> Approved {
    approve_gateway(GatewayCertificate::Serving, wish, request)
}

fn approve_gateway(certificate: GatewayCertificate, wish: &CsrParams, request: Vec<u8>) -> Approved {
    let rules = GatewayRules {
        account: "gateway".to_owned(),
        dns_names: wish.dns_names.iter().cloned().collect(),
        ip_addresses: wish.ip_addresses.iter().copied().collect(),
        duration: Duration::from_secs(86_400),
    };
    let submission = Submission {
        username: "gateway".to_owned(),
        usages: vec![certificate.usage().to_owned()],
        request,
        ..Submission::default()
    };
    policy::evaluate_gateway(&rules, certificate, &submission).unwrap()
}

/// Standard base64, as RFC 9440 demands.
pub fn base64(bytes: &[u8]) -> String {
    super::pki::base64(bytes)
}
