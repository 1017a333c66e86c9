//! Rule 4: PEM, DER and proof of possession.

use super::{Case, refused};
use crate::requests::pkcs10::{
    ADDON_GROUP, CLUSTER_GROUP, CN, EXTENSION_REQUEST, Key, O, Request, USER, attribute, attributes, name, pem, rdn,
    text, typed,
};
use crate::requests::tlv::{INTEGER, NULL, SET, append, bits, indefinite, list, long_length, oid, sequence, tlv};

pub(super) fn cases() -> Vec<Case> {
    [armour(), blocks(), left_over(), ber(), structure(), versions(), signatures()].concat()
}

fn text_of(pem: Vec<u8>) -> String {
    String::from_utf8(pem).unwrap()
}

fn armour() -> Vec<Case> {
    let case = |name: &str, comment: &str, request: Vec<u8>| {
        refused(&format!("rule4-pem-{name}"), "RequestNotOnePEMBlock", comment, request)
    };
    let good = Request::good();
    let text = text_of(good.pem());
    let labelled = |label: &str| text.replace("CERTIFICATE REQUEST", label).into_bytes();
    let first_line = text.find('\n').unwrap() + 1;
    vec![
        case("missing", "nothing at all", Vec::new()),
        case("not-pem", "text that is not PEM", b"please sign me\n".to_vec()),
        case("der", "DER instead of PEM", good.der()),
        case("without-begin", "no first line", text.as_bytes()[first_line..].to_vec()),
        case("without-end", "no last line", text.replace("-----END CERTIFICATE REQUEST-----\n", "").into_bytes()),
        case("label-new", "the old label NEW CERTIFICATE REQUEST", labelled("NEW CERTIFICATE REQUEST")),
        case("label-certificate", "the label of a certificate", labelled("CERTIFICATE")),
        case("label-key", "the label of a private key", labelled("PRIVATE KEY")),
        case(
            "labels-differ",
            "BEGIN and END differ",
            text.replace("END CERTIFICATE REQUEST", "END CERTIFICATE").into(),
        ),
        case("lower-case", "the label in lower case", labelled("certificate request")),
        case("nul-after", "a NUL after the block", [text.as_bytes(), &[0]].concat()),
        case("not-utf8", "bytes that are not text after the block", [text.as_bytes(), &[0xff, 0xfe]].concat()),
        case("byte-order-mark", "a byte order mark before the block", format!("\u{feff}{text}").into_bytes()),
        case("space-before", "a space before the first line", [b" ", text.as_bytes()].concat()),
        case("utf16", "UTF-16", text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
    ]
}

fn blocks() -> Vec<Case> {
    let one_block = "RequestNotOnePEMBlock";
    let case = |name: &str, reason: &str, comment: &str, request: String| {
        refused(&format!("rule4-pem-{name}"), reason, comment, request.into_bytes())
    };
    let text = text_of(Request::good().pem());
    let another = text_of(Request::common_name(&USER.replace("spoke1", "spoke2")).pem());
    let key = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    let at = text.find('\n').unwrap() + 1;
    let (head, tail) = text.split_at(at);
    vec![
        case("two-blocks", one_block, "two requests", format!("{text}{another}")),
        case("same-block-twice", one_block, "the same request twice", format!("{text}{text}")),
        case("block-before", one_block, "a block of another kind before it", format!("{key}{text}")),
        case("text-before", one_block, "text before the block", format!("Certificate Request:\n{text}")),
        case("text-after", one_block, "text after the block", format!("{text}# spoke1\n")),
        case("headers", "RequestMalformed", "headers of RFC 1421", format!("{head}Proc-Type: 4,ENCRYPTED\n\n{tail}")),
        case("base64", "RequestMalformed", "a character outside base64", format!("{head}!{tail}")),
        case("empty-line", "RequestMalformed", "an empty line in the block", format!("{head}\n{tail}")),
        case("carriage-returns", "RequestMalformed", "lines that end in CR alone", text.replace('\n', "\r")),
        case("spaces", "RequestMalformed", "spaces at the end of lines", text.replace('\n', " \n")),
        case("unpadded", "RequestMalformed", "base64 without its padding", unpadded()),
        case(
            "empty-block",
            "RequestMalformed",
            "a block without content",
            format!("{head}-----END CERTIFICATE REQUEST-----\n"),
        ),
    ]
}

/// A good request whose base64 needs padding, without it.
fn unpadded() -> String {
    let texts = std::iter::repeat_with(|| text_of(Request::good().pem())).take(1000);
    texts.filter(|text| text.contains('=')).map(|text| text.replace('=', "")).next().unwrap()
}

fn malformed(name: &str, comment: &str, der: &[u8]) -> Case {
    refused(&format!("rule4-{name}"), "RequestMalformed", comment, pem(der))
}

fn left_over() -> Vec<Case> {
    let case = |name: &str, comment: &str, der: &[u8]| malformed(&format!("left-over-{name}"), comment, der);
    let good = Request::good();
    let null = [NULL, 0];
    let subject = append(&good.subject, &null);
    let public_key = append(&good.public_key, &null);
    let algorithm = append(&good.algorithm, &[&null[..], &null].concat());
    vec![
        case("after-request", "bytes after the request", &[good.der(), vec![0]].concat()),
        case("second-request", "another request after the first", &[good.der(), good.der()].concat()),
        case("after-signature", "a field after the signature", &append(&good.der(), &null)),
        case("after-attributes", "a field after the attributes", &good.around(append(&good.content(), &null))),
        case("in-subject", "a NULL among the relative names", &Request { subject, ..Request::good() }.der()),
        case(
            "in-algorithm",
            "a third field in the signature's algorithm",
            &Request { algorithm, ..Request::good() }.der(),
        ),
        refused(
            "rule4-left-over-in-public-key",
            "PublicKeyNotAllowed",
            "a third field in SubjectPublicKeyInfo",
            Request { public_key, ..Request::good() }.pem(),
        ),
    ]
}

fn ber() -> Vec<Case> {
    let case = |name: &str, comment: &str, der: &[u8]| malformed(&format!("ber-{name}"), comment, der);
    let good = Request::good();
    let groups = [text(O, ADDON_GROUP), text(O, CLUSTER_GROUP)];
    let unsorted = list(SET, &[groups[1].clone(), groups[0].clone()]);
    let constructed = typed(CN, 0x2c, &tlv(0x0c, &[USER.as_bytes()]));
    let extension_request = good.attributes[2..].to_vec();
    vec![
        case("indefinite-length", "an indefinite length outside", &indefinite(&good.der())),
        case(
            "indefinite-content",
            "an indefinite length in the signed part",
            &good.around(indefinite(&good.content())),
        ),
        case(
            "indefinite-subject",
            "an indefinite length in the subject",
            &Request { subject: indefinite(&good.subject), ..Request::good() }.der(),
        ),
        case(
            "indefinite-attributes",
            "an indefinite length in the attributes",
            &Request { attributes: indefinite(&good.attributes), ..Request::good() }.der(),
        ),
        case("long-length", "a length in more bytes than needed, outside", &long_length(&good.der())),
        case("long-content-length", "the same in the signed part", &good.around(long_length(&good.content()))),
        case(
            "long-attribute-length",
            "the same in an attribute",
            &Request { attributes: attributes(&[long_length(&extension_request)]), ..Request::good() }.der(),
        ),
        case(
            "unsorted-set",
            "organizations of one RDN in the wrong order",
            &Request::subject(&[unsorted, rdn(&[text(CN, USER)])]).der(),
        ),
        case(
            "constructed-string",
            "the common name as a constructed string",
            &Request::subject(&[rdn(&groups), rdn(&[constructed])]).der(),
        ),
        case(
            "padded-version",
            "the version with a leading zero",
            &Request { version: tlv(INTEGER, &[&[0, 0]]), ..Request::good() }.der(),
        ),
    ]
}

fn structure() -> Vec<Case> {
    let case = |name: &str, comment: &str, der: &[u8]| malformed(&format!("structure-{name}"), comment, der);
    let good = Request::good();
    let names = [rdn(&[text(O, ADDON_GROUP), text(O, CLUSTER_GROUP)]), rdn(&[text(CN, USER)])];
    let no_attributes = sequence(&[&good.version, &good.subject, &good.public_key]);
    let three = typed(CN, 0x0c, USER.as_bytes());
    let mut truncated = good.der();
    truncated.pop();
    vec![
        case("empty", "an empty sequence", &sequence::<Vec<u8>>(&[])),
        case("truncated", "the last byte is missing", &truncated),
        case("not-asn1", "bytes that are no ASN.1", &[0xff; 64]),
        case("attributes-missing", "no attributes, not even an empty list", &good.around(no_attributes)),
        case(
            "attribute-without-values",
            "an extension request without a value",
            &Request::attributes(&[attribute(EXTENSION_REQUEST, &[])]).der(),
        ),
        case(
            "attribute-of-another-form",
            "an extension request that is no list",
            &Request::attributes(&[attribute(EXTENSION_REQUEST, &[tlv(INTEGER, &[&[1]])])]).der(),
        ),
        case(
            "extension-without-value",
            "an extension without its value",
            &Request::extensions(&[sequence(&[oid("2.5.29.19")])]).der(),
        ),
        case(
            "empty-relative-name",
            "a relative name without attributes",
            &Request::subject(&[names[0].clone(), list::<Vec<u8>>(SET, &[]), names[1].clone()]).der(),
        ),
        case(
            "subject-is-a-set",
            "the subject is a set",
            &Request { subject: list(SET, &names), ..Request::good() }.der(),
        ),
        case(
            "attribute-of-three",
            "a subject attribute with a third field",
            &Request::subject(&[names[0].clone(), rdn(&[append(&three, &[NULL, 0])])]).der(),
        ),
    ]
}

fn versions() -> Vec<Case> {
    let version = |name: &str, reason: &str, comment: &str, number: &[u8]| {
        let request = Request { version: tlv(INTEGER, &[number]), ..Request::good() };
        refused(&format!("rule4-version-{name}"), reason, comment, request.pem())
    };
    vec![
        version("one", "RequestVersion", "version 1, which does not exist", &[1]),
        version("two", "RequestVersion", "version 2, a certificate's", &[2]),
        version("large", "RequestMalformed", "a version of two bytes", &[1, 0]),
        version("negative", "RequestMalformed", "a negative version", &[0xff]),
    ]
}

fn signatures() -> Vec<Case> {
    let case = |name: &str, reason: &str, comment: &str, der: &[u8]| {
        refused(&format!("rule4-signature-{name}"), reason, comment, pem(der))
    };
    let possession = "PossessionNotProven";
    let good = Request::good();
    let of = |signature: Vec<u8>| good.assembled(good.content(), signature);
    let mut flipped = good.der();
    *flipped.last_mut().unwrap() ^= 1;
    let zero = sequence(&[[INTEGER, 1, 0], [INTEGER, 1, 0]]);
    let null_parameters = sequence(&[oid("1.2.840.10045.4.3.2"), vec![NULL, 0]]);
    let rsa = sequence(&[oid("1.2.840.113549.1.1.11"), vec![NULL, 0]]);
    let subject = name(&[rdn(&[text(O, ADDON_GROUP)]), rdn(&[text(CN, USER)])]);
    let replaced = sequence(&[&good.version, &subject, &good.public_key, &good.attributes]);
    let another_key = sequence(&[&good.version, &good.subject, &Key::p256().public(), &good.attributes]);
    vec![
        case("flipped", possession, "one bit of the signature is flipped", &flipped),
        case("by-another-key", possession, "signed by another key", &good.signed_by(&Key::p256())),
        case("empty", possession, "an empty signature", &of(bits(&[]))),
        case("zero", possession, "r = s = 0 (CVE-2022-21449)", &of(bits(&zero))),
        case("trailing-bytes", possession, "bytes after the two integers", &of(append(&good.signature(), &[0]))),
        case("unused-bits", "RequestMalformed", "a bit string that lacks its last bit", &of(without_last_bit(&good))),
        case(
            "parameters",
            "RequestMalformed",
            "parameters where RFC 5758 has none",
            &Request { algorithm: null_parameters, ..Request::good() }.der(),
        ),
        case(
            "algorithm-of-rsa",
            possession,
            "an RSA algorithm over an EC key",
            &Request { algorithm: rsa, ..Request::good() }.der(),
        ),
        case(
            "subject-replaced",
            possession,
            "the subject was replaced after signing",
            &good.assembled(replaced, good.signature()),
        ),
        case(
            "key-replaced",
            possession,
            "the key of somebody else with a signature of one's own",
            &good.around(another_key),
        ),
    ]
}

/// A valid signature whose last bit is zero and is declared unused.
fn without_last_bit(request: &Request) -> Vec<u8> {
    let even = |signature: &Vec<u8>| signature.last().is_some_and(|byte| byte & 1 == 0);
    let mut signature = std::iter::repeat_with(|| request.signature()).take(1000).find(even).unwrap();
    signature[2] = 1;
    signature
}
