//! Requests that must be approved: a rule that is too strict for a real agent causes an outage.

use super::{Case, Fixture, good};
use crate::requests::pkcs10::{
    ADDON_GROUP, CLUSTER_GROUP, CN, DNS_NAME, Key, O, OU, Request, SUBJECT_ALT_NAME, USER, alt_names, dns, extension,
    rdn, text, typed,
};
use crate::requests::tlv::{OCTET_STRING, PRINTABLE_STRING, oid, sequence, tlv};
use test_kit::accounts::GRPC_PROXY;

const OCM_REQUEST: &[u8] = include_bytes!("../../../../certs/requests/good/ocm-agent-v1.3.pem");
const CSR_USER: &str = "open-cluster-management.io/csr-user";

pub(super) fn cases() -> Vec<Case> {
    [agents(), subjects(), extensions(), keys(), surroundings()].concat()
}

fn agents() -> Vec<Case> {
    let older = rdn(&[text(O, ADDON_GROUP), text(O, CLUSTER_GROUP), text(O, "system:authenticated")]);
    let agent_id = USER.replace("agent:telemetry", "agent:x7k2p");
    vec![
        good("ocm-agent-v1.3", "what OCM's registration agent v1.3 sent", OCM_REQUEST.to_vec()),
        good("ocm-agent-v1.2", "three groups and the klusterlet's agent id, as OCM v1.2 asks", {
            Request::subject(&[older, rdn(&[text(CN, &agent_id)])]).pem()
        }),
        good("generated", "the request that every bad one is varied from", Request::good().pem()),
    ]
}

fn subjects() -> Vec<Case> {
    let cn = || rdn(&[text(CN, USER)]);
    let case = |name: &str, comment: &str, rdns: &[Vec<u8>]| good(name, comment, Request::subject(rdns).pem());
    let printable = |kind: &str, value: &str| typed(kind, PRINTABLE_STRING, value.as_bytes());
    let unit = Request::subject_and(text(OU, "edge")).pem();
    vec![
        case(
            "groups-in-separate-rdns",
            "each organization in an RDN of its own",
            &[rdn(&[text(O, CLUSTER_GROUP)]), rdn(&[text(O, ADDON_GROUP)]), cn()],
        ),
        case(
            "all-in-one-rdn",
            "the whole subject in one RDN",
            &[rdn(&[text(O, CLUSTER_GROUP), text(O, ADDON_GROUP), text(CN, USER)])],
        ),
        case("one-group", "one of the convention's groups", &[rdn(&[text(O, CLUSTER_GROUP)]), cn()]),
        case("no-groups", "no organization, as custom signers have by default", &[cn()]),
        case(
            "printable-strings",
            "PrintableString instead of UTF8String",
            &[rdn(&[printable(O, ADDON_GROUP), printable(O, CLUSTER_GROUP)]), rdn(&[printable(CN, USER)])],
        ),
        case(
            "agent-with-dots",
            "an agent's name with every character it may have",
            &[rdn(&[text(CN, &USER.replace("agent:telemetry", "agent:X7-y_z.1"))])],
        ),
        good("configured-unit", "an organizational unit that the configuration names", unit).with(Fixture::UnitEdge),
    ]
}

fn extensions() -> Vec<Case> {
    let case =
        |name: &str, comment: &str, extensions: &[Vec<u8>]| good(name, comment, Request::extensions(extensions).pem());
    let names = || alt_names(&[dns(DNS_NAME)]);
    let purpose = extension("2.5.29.37", &sequence(&[oid("1.3.6.1.5.5.7.3.2")]));
    let value = tlv(OCTET_STRING, &[&sequence(&[dns(DNS_NAME)])]);
    let critical = sequence(&[oid(SUBJECT_ALT_NAME), vec![1, 1, 0xff], value]);
    let not_a_ca = extension("2.5.29.19", &sequence::<Vec<u8>>(&[]));
    vec![
        good("no-attributes", "no attribute at all", Request::attributes(&[]).pem()),
        case("no-names", "an extension request without names", std::slice::from_ref(&purpose)),
        case("client-auth", "clientAuth inside the request", &[names(), purpose]),
        case(
            "key-usage",
            "digitalSignature and keyEncipherment inside",
            &[names(), extension("2.5.29.15", &[3, 2, 5, 0xa0])],
        ),
        case("ca-false", "CA:FALSE", &[names(), not_a_ca]),
        case("critical-names", "the names are critical", &[critical]),
    ]
}

fn keys() -> Vec<Case> {
    macro_rules! made_by_openssl {
        ($($name:literal, $comment:literal;)*) => {
            vec![$(good($name, $comment, include_bytes!(concat!("../openssl/", $name, ".pem")).to_vec())),*]
        };
    }
    let mut keys = made_by_openssl! {
        "rsa-2048", "RSA of 2048 bits, SHA-256, by OpenSSL";
        "rsa-3072", "RSA of 3072 bits, SHA-384, by OpenSSL";
        "rsa-4096", "RSA of 4096 bits, SHA-512, by OpenSSL";
        "p384-sha256", "P-384 with SHA-256, OpenSSL's default";
        "p256-sha384", "P-256 with SHA-384, by OpenSSL";
    };
    keys.push(good("p384", "P-384 with SHA-384", Request::with_key(Key::p384()).pem()));
    keys.push(good("ed25519", "Ed25519", Request::with_key(Key::ed25519()).pem()));
    keys
}

fn surroundings() -> Vec<Case> {
    let case = |name: &str, comment: &str| good(name, comment, Request::good().pem());
    let text = || String::from_utf8(Request::good().pem()).unwrap();
    vec![
        good("crlf", "lines that end in CR LF", text().replace('\n', "\r\n").into_bytes()),
        good("no-final-newline", "no newline after the block", text().trim_end().as_bytes().to_vec()),
        good("blank-lines", "white space before and after the block", format!("\n\n{}\n \n", text()).into_bytes()),
        case("unlabelled", "labels are hints: none is needed").unlabelled(),
        case("client-auth-only", "the one usage that must be there").usages(&["client auth"]),
        case("lifetime-shortest", "ten minutes").expires(600).lives(600),
        case("lifetime-hour", "an hour").expires(3_600).lives(3_600),
        case("lifetime-longest", "exactly maxDuration").expires(604_800).lives(604_800),
        case("lifetime-capped", "as long as the field can say: cut to maxDuration").expires(i32::MAX).lives(604_800),
        case("proxied", "the configured gRPC proxy asks for spoke1's agent")
            .by(GRPC_PROXY, &["system:serviceaccounts"])
            .annotation(CSR_USER, "system:open-cluster-management:spoke1:a1")
            .with(Fixture::GrpcProxy),
        case("addon-asks-for-itself", "the addon's own hub identity")
            .by(USER, &[CLUSTER_GROUP])
            .with(Fixture::AddonRequester),
        case(
            "addon-of-another-agent-name",
            "the hub identity has the klusterlet's agent id, as OCM up to v1.2 gives it",
        )
        .by(&USER.replace(":agent:telemetry", ":agent:x7k2p"), &[CLUSTER_GROUP])
        .with(Fixture::AddonRequester),
        case("cluster-where-addons-may-ask", "the registration agent asks all the same").with(Fixture::AddonRequester),
        case("annotation-means-nothing", "the annotation csr-user on an agent's own request")
            .annotation(CSR_USER, "system:open-cluster-management:spoke2:a1"),
    ]
}
