//! The gateway's own serving certificate: rules 1, 2, 3 and 6 of its signer.

use super::{Case, Profile, good, refused};
use crate::requests::fixture::{GATEWAY, GATEWAY_DNS, GATEWAY_IP};
use crate::requests::pkcs10::{
    CN, O, Request, alt_names, attributes, dns, extension, extension_request, ip, name, rdn, text,
};
use crate::requests::tlv::{oid, sequence};

pub(super) const COMMON_NAME: &str = "addon-signer-gateway";
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

pub(super) fn cases() -> Vec<Case> {
    [approved(), requesters(), subjects(), names(), usages()].concat()
}

/// The request of the gateway with these names.
fn request(general_names: &[Vec<u8>]) -> Request {
    Request {
        subject: name(&[rdn(&[text(CN, COMMON_NAME)])]),
        attributes: attributes(&[extension_request(&[alt_names(general_names)])]),
        ..Request::good()
    }
}

fn own_names() -> Vec<Vec<u8>> {
    vec![dns(GATEWAY_DNS), ip(&GATEWAY_IP)]
}

fn own_and(extra: Vec<u8>) -> Vec<Vec<u8>> {
    [own_names(), vec![extra]].concat()
}

fn serving(case: Case) -> Case {
    let case = Case { profile: Profile::Serving, ..case };
    case.by(GATEWAY, &["system:serviceaccounts"]).unlabelled().usages(&USAGES)
}

fn serving_refused(name: &str, reason: &str, comment: &str, request: &Request) -> Case {
    serving(refused(name, reason, comment, request.pem()))
}

fn approved() -> Vec<Case> {
    let purpose = extension("2.5.29.37", &sequence(&[oid("1.3.6.1.5.5.7.3.1")]));
    let explicit =
        Request { attributes: attributes(&[extension_request(&[alt_names(&own_names()), purpose])]), ..request(&[]) };
    vec![
        serving(good("serving-gateway", "the gateway's own certificate", request(&own_names()).pem())),
        serving(good("serving-explicit-purpose", "the same, serverAuth inside the request", explicit.pem())),
        serving(good("serving-short", "the gateway asks for ten minutes", request(&own_names()).pem()))
            .expires(600)
            .lives(600),
        serving(good("serving-capped", "the gateway asks for a year and gets a day", request(&own_names()).pem()))
            .expires(31_536_000),
    ]
}

fn requesters() -> Vec<Case> {
    let by = |name: &str, comment: &str, user: &str| {
        let reason = "RequesterNotTheGateway";
        serving_refused(&format!("rule1-serving-{name}"), reason, comment, &request(&own_names()))
            .by(user, &["system:open-cluster-management:spoke1"])
    };
    vec![
        by("by-cluster", "a cluster asks for the gateway's certificate", "system:open-cluster-management:spoke1:a1"),
        by("by-other-account", "another account of the namespace", "system:serviceaccount:addon-signer:default"),
        by("by-longer-account", "the right account's name is a prefix", &format!("{GATEWAY}2")),
        by("by-administrator", "a person", "kubernetes-admin"),
    ]
}

fn subjects() -> Vec<Case> {
    let case = |name: &str, comment: &str, subject: Vec<u8>| {
        let request = Request { subject, ..request(&own_names()) };
        serving_refused(&format!("rule2-serving-{name}"), "SubjectNotTheGateway", comment, &request)
    };
    let groups = rdn(&[text(O, "system:masters")]);
    vec![
        case("agent-subject", "an agent's subject", Request::good().subject),
        case("organization", "an organization beside the right name", name(&[groups, rdn(&[text(CN, COMMON_NAME)])])),
        case("dns-subject", "the DNS name as common name", name(&[rdn(&[text(CN, GATEWAY_DNS)])])),
        case("empty-subject", "an empty subject", name(&[])),
    ]
}

fn names() -> Vec<Case> {
    let case = |name: &str, reason: &str, comment: &str, names: &[Vec<u8>]| {
        serving_refused(&format!("rule3-serving-{name}"), reason, comment, &request(names))
    };
    vec![
        case(
            "dns-extra",
            "DNSNameNotAllowed",
            "a name that is not configured",
            &own_and(dns("kubernetes.default.svc")),
        ),
        case(
            "wildcard",
            "DNSNameNotAllowed",
            "a wildcard over the right name",
            &own_and(dns("*.addon-signer.example.com")),
        ),
        case("ip-extra", "IPAddressNotAllowed", "an address that is not configured", &own_and(ip(&[192, 0, 2, 11]))),
        case("dns-missing", "GatewayNamesMissing", "the address without the name", &own_names()[1..]),
        case("ip-missing", "GatewayNamesMissing", "the name without the address", &own_names()[..1]),
        serving_refused(
            "rule3-serving-client-auth",
            "ExtendedKeyUsageNotAllowed",
            "clientAuth inside the request",
            &Request {
                attributes: attributes(&[extension_request(&[
                    alt_names(&own_names()),
                    extension("2.5.29.37", &sequence(&[oid("1.3.6.1.5.5.7.3.2")])),
                ])]),
                ..request(&[])
            },
        ),
    ]
}

fn usages() -> Vec<Case> {
    let case = |name: &str, reason: &str, comment: &str, usages: &[&str]| {
        serving_refused(&format!("rule6-serving-{name}"), reason, comment, &request(&own_names())).usages(usages)
    };
    vec![
        case("client-auth", "UsageNotAllowed", "client auth beside server auth", &["server auth", "client auth"]),
        case("server-auth-missing", "UsageMissing", "no server auth", &USAGES[..2]),
        serving_refused("rule6-serving-too-short", "ExpirationTooShort", "five minutes", &request(&own_names()))
            .expires(300),
    ]
}
