//! Rule 2: the subject, for whom the certificate is.

use super::{Case, Fixture, refused};
use crate::requests::pkcs10::{ADDON_GROUP, CLUSTER_GROUP, CN, O, OU, Request, USER, rdn, text, typed};
use crate::requests::tlv::{BMP_STRING, IA5_STRING, PRINTABLE_STRING, T61_STRING, UTF8_STRING};

pub(super) fn cases() -> Vec<Case> {
    [number(), forms(), types(), clusters(), organizations(), other_attributes()].concat()
}

fn groups() -> Vec<u8> {
    rdn(&[text(O, ADDON_GROUP), text(O, CLUSTER_GROUP)])
}

fn number() -> Vec<Case> {
    let case = |name: &str, comment: &str, rdns: &[Vec<u8>]| {
        refused(&format!("rule2-common-name-{name}"), "CommonNameNotSingle", comment, Request::subject(rdns).pem())
    };
    let another = USER.replace("agent:telemetry", "agent:other");
    vec![
        case("missing", "no common name", &[groups()]),
        case("subject-empty", "an empty subject", &[]),
        case("twice", "two common names in two RDNs", &[groups(), rdn(&[text(CN, USER)]), rdn(&[text(CN, &another)])]),
        case("twice-in-one-rdn", "two in one RDN", &[groups(), rdn(&[text(CN, USER), text(CN, &another)])]),
    ]
}

fn forms() -> Vec<Case> {
    let case = |name: &str, comment: &str, common_name: &str| {
        let request = Request::common_name(common_name).pem();
        refused(&format!("rule2-common-name-{name}"), "CommonNameNotConvention", comment, request)
    };
    let prefix = "system:open-cluster-management:cluster:spoke1:addon:telemetry";
    vec![
        case("empty", "an empty common name", ""),
        case("free-text", "not the convention's form", "telemetry"),
        case("registration-agent", "the registration agent's own name", "system:open-cluster-management:spoke1:a1"),
        case("fleet-wide", "one identity for all clusters", "system:open-cluster-management:addon:telemetry"),
        case("administrator", "a name that other software trusts", "system:admin"),
        case("nul", "a NUL and more behind the right name", &format!("{USER}\0.example.com")),
        case("newline", "a newline at the end", &format!("{USER}\n")),
        case("trailing-space", "a space at the end", &format!("{USER} ")),
        case("leading-space", "a space at the beginning", &format!(" {USER}")),
        case("upper-case", "the cluster in capitals", &USER.replace("spoke1", "SPOKE1")),
        case("homoglyph", "a Cyrillic letter in the cluster's name", &USER.replace("spoke1", "sp\u{43e}ke1")),
        case("agent-empty", "the agent is empty", &format!("{prefix}:agent:")),
        case("agent-missing", "the agent is missing", prefix),
        case("agent-with-colon", "a part too many", &format!("{prefix}:agent:a:b")),
        case("agent-with-slash", "a character that no agent name holds", &format!("{prefix}:agent:a/b")),
        case("cluster-twice", "two clusters in one name", &USER.replace("spoke1", "spoke1:cluster:spoke2")),
    ]
}

fn types() -> Vec<Case> {
    let case = |name: &str, reason: &str, comment: &str, tag: u8, value: &[u8]| {
        let request = Request::subject(&[groups(), rdn(&[typed(CN, tag, value)])]).pem();
        refused(&format!("rule2-common-name-{name}"), reason, comment, request)
    };
    let bmp: Vec<u8> = USER.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let not_utf8 = [USER.as_bytes(), &[0xff]].concat();
    let underscore = USER.replace("agent:telemetry", "agent:tele_metry");
    let not_text = "SubjectNotText";
    vec![
        case("bmp-string", not_text, "the right name as BMPString", BMP_STRING, &bmp),
        case("t61-string", not_text, "the right name as T61String", T61_STRING, USER.as_bytes()),
        case("ia5-string", not_text, "the right name as IA5String", IA5_STRING, USER.as_bytes()),
        case("octet-string", not_text, "the right name as an octet string", 0x04, USER.as_bytes()),
        case("not-utf8", not_text, "a UTF8String that is not UTF-8", UTF8_STRING, &not_utf8),
        case(
            "not-printable",
            not_text,
            "a PrintableString with a character outside its alphabet",
            PRINTABLE_STRING,
            underscore.as_bytes(),
        ),
        case("context-tag", not_text, "the right name tagged [12] instead of UTF8String", 0x8c, USER.as_bytes()),
        case("application-tag", not_text, "the right name tagged [APPLICATION 12]", 0x4c, USER.as_bytes()),
        refused(
            "rule2-organization-t61-string",
            not_text,
            "an organization as T61String",
            Request::subject(&[rdn(&[typed(O, T61_STRING, ADDON_GROUP.as_bytes())]), rdn(&[text(CN, USER)])]).pem(),
        ),
    ]
}

fn clusters() -> Vec<Case> {
    let of = |name: &str, comment: &str, cluster: &str| {
        let request = Request::common_name(&USER.replace("spoke1", cluster)).pem();
        refused(&format!("rule2-cluster-{name}"), "SubjectOfAnotherCluster", comment, request)
    };
    let by = |name: &str, comment: &str, cluster: &str| {
        let case =
            refused(&format!("rule2-requester-of-{name}"), "SubjectOfAnotherCluster", comment, Request::good().pem());
        case.by_cluster(cluster)
    };
    let logging = Request::common_name(&USER.replace("telemetry", "logging")).pem();
    vec![
        of("another", "spoke1 asks for spoke2", "spoke2"),
        of("shorter", "spoke1 asks for spoke, a prefix of its own name", "spoke"),
        of("longer", "spoke1 asks for spoke12, which its own name begins", "spoke12"),
        by("another-cluster", "spoke2 asks for spoke1", "spoke2"),
        by("shorter-cluster", "spoke asks for spoke1", "spoke"),
        by("longer-cluster", "spoke12 asks for spoke1", "spoke12"),
        refused("rule2-addon-of-another-signer", "AddOnNotOfSigner", "an addon that is not in addOns", logging)
            .label("addon-name", "logging"),
    ]
}

fn organizations() -> Vec<Case> {
    let case = |name: &str, comment: &str, group: &str| {
        let request = Request::subject(&[
            rdn(&[text(O, ADDON_GROUP), text(O, CLUSTER_GROUP), text(O, group)]),
            rdn(&[text(CN, USER)]),
        ]);
        refused(&format!("rule2-organization-{name}"), "OrganizationNotAllowed", comment, request.pem())
    };
    vec![
        case("extra", "a third organization", "example"),
        case("masters", "the administrators' group", "system:masters"),
        case("of-another-cluster", "the group of spoke2", &CLUSTER_GROUP.replace("spoke1", "spoke2")),
        case("of-longer-cluster", "the group of spoke12", &CLUSTER_GROUP.replace("spoke1", "spoke12")),
        case("of-another-addon", "the group of logging", &ADDON_GROUP.replace("telemetry", "logging")),
        case("of-managed-clusters", "OCM's group of all clusters", "system:open-cluster-management:managed-clusters"),
        case("empty", "an empty organization", ""),
        case("trailing-space", "a right group with a space", &format!("{ADDON_GROUP} ")),
        refused(
            "rule2-organization-extra-separate",
            "OrganizationNotAllowed",
            "a third organization in an RDN of its own, after the common name",
            Request::subject_and(text(O, "system:masters")).pem(),
        ),
    ]
}

fn other_attributes() -> Vec<Case> {
    let case = |name: &str, comment: &str, attribute: Vec<u8>| {
        let request = Request::subject_and(attribute).pem();
        refused(&format!("rule2-attribute-{name}"), "SubjectAttributeNotAllowed", comment, request)
    };
    let group_twice = |name: &str, comment: &str, second: Vec<u8>| {
        let groups = rdn(&[text(O, ADDON_GROUP), second, text(O, CLUSTER_GROUP)]);
        let request = Request::subject(&[groups, rdn(&[text(CN, USER)])]).pem();
        refused(&format!("rule2-duplicate-{name}"), "DuplicateSubjectAttribute", comment, request)
    };
    let unit = |name: &str, comment: &str, unit: &str| {
        let request = Request::subject_and(text(OU, unit)).pem();
        refused(&format!("rule2-unit-{name}"), "OrganizationalUnitNotAllowed", comment, request)
    };
    let apart = {
        let request =
            Request::subject(&[rdn(&[text(O, ADDON_GROUP)]), rdn(&[text(O, ADDON_GROUP)]), rdn(&[text(CN, USER)])]);
        let (request, comment) = (request.pem(), "the same organization in two RDNs");
        refused("rule2-duplicate-organization-apart", "DuplicateSubjectAttribute", comment, request)
    };
    vec![
        apart,
        group_twice("organization", "the same organization twice in one RDN", text(O, ADDON_GROUP)),
        group_twice(
            "organization-types",
            "the same organization in two types in one RDN",
            typed(O, PRINTABLE_STRING, ADDON_GROUP.as_bytes()),
        ),
        unit("not-configured", "an organizational unit, none is configured", "edge"),
        unit("ca-hash", "the hash of a CA, to force a new request", "8f2b0c"),
        unit("other", "another organizational unit than the configured one", "core").with(Fixture::UnitEdge),
        case("serial-number", "serialNumber", text("2.5.4.5", "1234")),
        case("country", "countryName", typed("2.5.4.6", PRINTABLE_STRING, b"DE")),
        case("title", "title", text("2.5.4.12", "agent")),
        case("domain-component", "domainComponent", typed("0.9.2342.19200300.100.1.25", IA5_STRING, b"example")),
        case("email", "emailAddress", typed("1.2.840.113549.1.9.1", IA5_STRING, b"a@example.com")),
        case("user-id", "userId", text("0.9.2342.19200300.100.1.1", "root")),
    ]
}
