//! The certificate that the gateway shows to backends: rules 1, 2, 3 and 6 of its signer.

use super::serving::COMMON_NAME;
use super::{Case, Profile, good, refused};
use crate::requests::fixture::{GATEWAY, GATEWAY_DNS};
use crate::requests::pkcs10::{CN, Request, alt_names, attributes, dns, extension, extension_request, name, rdn, text};
use crate::requests::tlv::{oid, sequence};

const USAGES: [&str; 2] = ["digital signature", "client auth"];

pub(super) fn cases() -> Vec<Case> {
    let own = own(attributes(&[]));
    let with = |extension: Vec<u8>| self::own(attributes(&[extension_request(&[extension])]));
    let server_auth = extension("2.5.29.37", &sequence(&[oid("1.3.6.1.5.5.7.3.1")]));
    vec![
        of_gateway(good("gateway-client", "the gateway's certificate for backends", own.pem())),
        of_gateway(refused(
            "rule1-gateway-client-by-cluster",
            "RequesterNotTheGateway",
            "a cluster asks for the gateway's certificate",
            own.pem(),
        ))
        .by("system:open-cluster-management:spoke1:a1", &["system:open-cluster-management:spoke1"]),
        of_gateway(refused(
            "rule2-gateway-client-agent-subject",
            "SubjectNotTheGateway",
            "an agent's subject",
            Request::good().pem(),
        )),
        of_gateway(refused(
            "rule3-gateway-client-dns",
            "DNSNameNotAllowed",
            "the name of the serving certificate",
            with(alt_names(&[dns(GATEWAY_DNS)])).pem(),
        )),
        of_gateway(refused(
            "rule3-gateway-client-server-auth",
            "ExtendedKeyUsageNotAllowed",
            "serverAuth inside the request",
            with(server_auth).pem(),
        )),
        of_gateway(refused("rule6-gateway-client-server-auth", "UsageNotAllowed", "server auth too", own.pem()))
            .usages(&["client auth", "server auth"]),
        of_gateway(refused("rule6-gateway-client-auth-missing", "UsageMissing", "no client auth", own.pem()))
            .usages(&USAGES[..1]),
    ]
}

/// The gateway's request with these attributes.
fn own(attributes: Vec<u8>) -> Request {
    Request { subject: name(&[rdn(&[text(CN, COMMON_NAME)])]), attributes, ..Request::good() }
}

fn of_gateway(case: Case) -> Case {
    let case = Case { profile: Profile::GatewayClient, ..case };
    case.by(GATEWAY, &["system:serviceaccounts"]).unlabelled().usages(&USAGES)
}
