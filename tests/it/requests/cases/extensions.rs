//! Rule 3: alternative names, extensions and attributes of the request.

use super::{Case, refused};
use crate::requests::pkcs10::{
    DNS_NAME, EXTENSION_REQUEST, Request, SUBJECT_ALT_NAME, alt_names, attribute, dns, extension, extension_request, ip,
};
use crate::requests::tlv::{IA5_STRING, INTEGER, OCTET_STRING, UTF8_STRING, append, oid, sequence, tlv};

const KEY_USAGE: &str = "2.5.29.15";
const BASIC_CONSTRAINTS: &str = "2.5.29.19";
const EXTENDED_KEY_USAGE: &str = "2.5.29.37";
const CLIENT_AUTH: &str = "1.3.6.1.5.5.7.3.2";
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";
const TRUE: [u8; 3] = [1, 1, 0xff];

pub(super) fn cases() -> Vec<Case> {
    [dns_names(), other_names(), authorities(), usages(), malformed(), not_der(), unknown(), duplicates(), attributes()]
        .concat()
}

fn dns_names() -> Vec<Case> {
    let case = |name: &str, comment: &str, dns_name: &str| {
        let request = Request::names(&[dns(DNS_NAME), dns(dns_name)]).pem();
        refused(&format!("rule3-dns-{name}"), "DNSNameNotAllowed", comment, request)
    };
    vec![
        case("server", "the name of the API server", "kubernetes.default.svc"),
        case("another-addon", "the name of another addon", "logging.addon.open-cluster-management.io"),
        case("wildcard", "a wildcard", "*.addon.open-cluster-management.io"),
        case("upper-case", "the right name in capitals", &DNS_NAME.to_uppercase()),
        case("trailing-dot", "the right name with a dot", &format!("{DNS_NAME}.")),
        case("nul", "a NUL and more behind the right name", &format!("{DNS_NAME}\0.example.com")),
        case("empty", "an empty name", ""),
        case("longer", "the right name is a suffix of it", &format!("x.{DNS_NAME}")),
        case("address", "an address as a name", "192.0.2.1"),
    ]
}

fn other_names() -> Vec<Case> {
    let case = |name: &str, reason: &str, comment: &str, general_name: Vec<u8>| {
        let request = Request::names(&[dns(DNS_NAME), general_name]).pem();
        refused(&format!("rule3-name-{name}"), reason, comment, request)
    };
    let address = "IPAddressNotAllowed";
    let other = "AlternativeNameNotAllowed";
    let malformed = "ExtensionMalformed";
    let v6 = [[0x20, 1, 0xd, 0xb8].as_slice(), &[0; 12]].concat();
    let upn = tlv(0xa0, &[&oid("1.3.6.1.4.1.311.20.2.3"), &tlv(0xa0, &[&tlv(UTF8_STRING, &[b"root@example.com"])])]);
    vec![
        case("ipv4", address, "an IPv4 address", ip(&[192, 0, 2, 1])),
        case("ipv6", address, "an IPv6 address", ip(&v6)),
        case("ip-loopback", address, "the loopback address", ip(&[127, 0, 0, 1])),
        case("ip-of-five-bytes", malformed, "an address of five bytes", ip(&[192, 0, 2, 1, 1])),
        case("email", other, "an email address", tlv(0x81, &[b"a@example.com"])),
        case("uri", other, "a SPIFFE identity", tlv(0x86, &[b"spiffe://example.com/spoke1"])),
        case("directory", other, "a directory name", tlv(0xa4, &[&sequence::<Vec<u8>>(&[])])),
        case("registered-id", other, "a registered identifier", tlv(0x88, &[&[0x2a, 3]])),
        case("other", other, "a user principal name", upn),
        case("dns-not-ascii", other, "a DNS name that is not ASCII", tlv(0x82, &["spöke".as_bytes()])),
        case(
            "constructed",
            malformed,
            "a DNS name with the tag of a constructed value",
            tlv(0xa2, &[DNS_NAME.as_bytes()]),
        ),
        case("tag-nine", malformed, "a choice that GeneralName does not have", tlv(0x89, &[b"x"])),
        case("universal-tag", malformed, "a string that is not a GeneralName", tlv(IA5_STRING, &[DNS_NAME.as_bytes()])),
    ]
}

fn authorities() -> Vec<Case> {
    let case = |name: &str, comment: &str, extensions: &[Vec<u8>]| {
        refused(&format!("rule3-ca-{name}"), "CARequested", comment, Request::extensions(extensions).pem())
    };
    let constraints = |parts: &[&[u8]]| extension(BASIC_CONSTRAINTS, &sequence(parts));
    let path_length = tlv(INTEGER, &[&[3]]);
    vec![
        case("true", "CA:TRUE", &[constraints(&[&TRUE])]),
        case(
            "critical",
            "CA:TRUE, critical",
            &[sequence(&[oid(BASIC_CONSTRAINTS), TRUE.to_vec(), tlv(OCTET_STRING, &[&sequence(&[TRUE])])])],
        ),
        case(
            "signing-certificates",
            "CA:TRUE, path length 3 and keyCertSign",
            &[constraints(&[&TRUE, &path_length]), extension(KEY_USAGE, &[3, 2, 2, 4])],
        ),
        case("path-length-only", "a path length without CA:TRUE", &[constraints(&[&path_length])]),
    ]
}

fn usages() -> Vec<Case> {
    let key = |name: &str, comment: &str, bits: &[u8]| {
        let request = Request::extensions_and(extension(KEY_USAGE, bits)).pem();
        refused(&format!("rule3-key-usage-{name}"), "KeyUsageNotAllowed", comment, request)
    };
    let extended = |name: &str, comment: &str, oids: &[&str]| {
        let oids: Vec<Vec<u8>> = oids.iter().map(|text| oid(text)).collect();
        let request = Request::extensions_and(extension(EXTENDED_KEY_USAGE, &sequence(&oids))).pem();
        refused(&format!("rule3-extended-usage-{name}"), "ExtendedKeyUsageNotAllowed", comment, request)
    };
    vec![
        key("cert-sign", "keyCertSign", &[3, 2, 2, 4]),
        key("crl-sign", "cRLSign", &[3, 2, 1, 2]),
        key("content-commitment", "nonRepudiation beside digitalSignature", &[3, 2, 6, 0xc0]),
        key("decipher-only", "the ninth bit", &[3, 3, 7, 0, 0x80]),
        key("tenth-bit", "a bit that has no name", &[3, 3, 6, 0, 0x40]),
        extended("server-auth", "serverAuth", &[SERVER_AUTH]),
        extended("server-auth-too", "serverAuth beside clientAuth", &[CLIENT_AUTH, SERVER_AUTH]),
        extended("any", "anyExtendedKeyUsage", &["2.5.29.37.0"]),
        extended("code-signing", "codeSigning", &["1.3.6.1.5.5.7.3.3"]),
        extended("ocsp-signing", "OCSPSigning", &["1.3.6.1.5.5.7.3.9"]),
    ]
}

fn malformed() -> Vec<Case> {
    let case = |name: &str, comment: &str, kind: &str, value: &[u8]| {
        let request = Request::extensions(&[extension(kind, value)]).pem();
        refused(&format!("rule3-malformed-{name}"), "ExtensionMalformed", comment, request)
    };
    let empty: Vec<u8> = sequence::<Vec<u8>>(&[]);
    let names = sequence(&[dns(DNS_NAME)]);
    let client_auth = sequence(&[oid(CLIENT_AUTH)]);
    vec![
        case("names-empty", "an empty list of names", SUBJECT_ALT_NAME, &empty),
        case("names-no-list", "names without their list", SUBJECT_ALT_NAME, &dns(DNS_NAME)),
        case("names-trailing-bytes", "bytes after the names", SUBJECT_ALT_NAME, &append(&names, &[0])),
        case("names-left-over", "bytes after the extension's value", SUBJECT_ALT_NAME, &[names, vec![5, 0]].concat()),
        case("key-usage", "key usage that is no bit string", KEY_USAGE, &[4, 1, 0x80]),
        case("key-usage-left-over", "bytes after the key usage", KEY_USAGE, &[3, 2, 7, 0x80, 0]),
        case("extended-usage", "extended key usage that is no list", EXTENDED_KEY_USAGE, &oid(CLIENT_AUTH)),
        case("extended-usage-empty", "an empty list of purposes", EXTENDED_KEY_USAGE, &empty),
        case("extended-usage-left-over", "bytes after it", EXTENDED_KEY_USAGE, &[client_auth, vec![0]].concat()),
        case("basic-constraints", "constraints that are no sequence", BASIC_CONSTRAINTS, &TRUE),
        case("ber-boolean", "TRUE written as 1, as BER allows", BASIC_CONSTRAINTS, &sequence(&[[1, 1, 1]])),
        case(
            "constraints-left-over",
            "a third field in the constraints",
            BASIC_CONSTRAINTS,
            &sequence(&[vec![1, 1, 0xff], vec![2, 1, 0], vec![5, 0]]),
        ),
    ]
}

fn not_der() -> Vec<Case> {
    let case = |name: &str, comment: &str, extension: Vec<u8>| {
        let request = Request::extensions(&[extension]).pem();
        refused(&format!("rule3-not-der-{name}"), "ExtensionNotDER", comment, request)
    };
    let false_then = |value: &[u8]| [&[1, 1, 0], value].concat();
    let names = tlv(OCTET_STRING, &[&sequence(&[dns(DNS_NAME)])]);
    let ca_false = tlv(0x30, &[&false_then(&[])]);
    vec![
        case("critical-false", "FALSE spelled out", tlv(0x30, &[&oid(SUBJECT_ALT_NAME), &false_then(&names)])),
        case("ca-false", "CA:FALSE spelled out", extension(BASIC_CONSTRAINTS, &ca_false)),
        case("key-usage-zero-bits", "zero bits at the end of the key usage", extension(KEY_USAGE, &[3, 2, 0, 0xa0])),
        case("key-usage-unused-bits", "a one among the unused bits", extension(KEY_USAGE, &[3, 2, 5, 0xa1])),
    ]
}

fn unknown() -> Vec<Case> {
    let case = |name: &str, comment: &str, extra: Vec<u8>| {
        let request = Request::extensions_and(extra).pem();
        refused(&format!("rule3-extension-{name}"), "ExtensionNotAllowed", comment, request)
    };
    let key_identifier = tlv(OCTET_STRING, &[&[7; 20]]);
    let permitted = sequence(&[tlv(0xa0, &[&sequence(&[dns("example.com")])])]);
    let must_staple = sequence(&[tlv(INTEGER, &[&[5]])]);
    vec![
        case("key-identifier", "subjectKeyIdentifier", extension("2.5.29.14", &key_identifier)),
        case("name-constraints", "nameConstraints", extension("2.5.29.30", &permitted)),
        case("must-staple", "TLS feature", extension("1.3.6.1.5.5.7.1.24", &must_staple)),
        case("issuer-names", "issuerAltName", extension("2.5.29.18", &sequence(&[dns(DNS_NAME)]))),
        case("private", "an extension that nobody knows", extension("1.3.6.1.4.1.99999.1", b"anything")),
        case(
            "critical",
            "a critical one that nobody knows",
            sequence(&[oid("1.3.6.1.4.1.99999.1"), TRUE.to_vec(), tlv(OCTET_STRING, &[b"anything"])]),
        ),
    ]
}

fn duplicates() -> Vec<Case> {
    let names = || alt_names(&[dns(DNS_NAME)]);
    let constraints = extension(BASIC_CONSTRAINTS, &sequence(&[TRUE]));
    let case = |name: &str, reason: &str, comment: &str, list: &[Vec<u8>]| {
        refused(&format!("rule3-duplicate-{name}"), reason, comment, Request::attributes(list).pem())
    };
    vec![
        case(
            "extension",
            "DuplicateExtension",
            "two lists of alternative names",
            &[extension_request(&[names(), alt_names(&[dns("kubernetes.default.svc")])])],
        ),
        case(
            "same-extension",
            "DuplicateExtension",
            "the same extension twice",
            &[extension_request(&[names(), names()])],
        ),
        case(
            "extension-request",
            "DuplicateExtensionRequest",
            "two extension requests, CA:TRUE in the second",
            &[extension_request(&[names()]), extension_request(std::slice::from_ref(&constraints))],
        ),
        case(
            "extension-list",
            "DuplicateExtensionRequest",
            "one extension request with two lists",
            &[attribute(EXTENSION_REQUEST, &[sequence(&[names()]), sequence(&[constraints])])],
        ),
    ]
}

fn attributes() -> Vec<Case> {
    let case = |name: &str, comment: &str, kind: &str, value: Vec<u8>| {
        let list = [extension_request(&[alt_names(&[dns(DNS_NAME)])]), attribute(kind, &[value])];
        refused(&format!("rule3-attribute-{name}"), "AttributeNotAllowed", comment, Request::attributes(&list).pem())
    };
    let names = sequence(&[alt_names(&[dns("kubernetes.default.svc")])]);
    vec![
        case("challenge-password", "challengePassword", "1.2.840.113549.1.9.7", tlv(UTF8_STRING, &[b"secret"])),
        case("unstructured-name", "unstructuredName", "1.2.840.113549.1.9.2", tlv(UTF8_STRING, &[b"name"])),
        case("microsoft-extensions", "Microsoft's extension request", "1.3.6.1.4.1.311.2.1.14", names),
    ]
}
