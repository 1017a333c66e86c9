//! What people bring as a chain of certificates: what is read, and the sentence about each that is not.

use super::*;

const CHAIN: &str = include_str!("../../../testdata/chains/p256-sha384.pem");
const KEY: &str = include_str!("../../../testdata/keys/p256-sec1-with-parameters.pem");

fn sentence(text: &[u8]) -> String {
    certificates(text).unwrap_err().to_string()
}

fn labelled(label: &str) -> String {
    CHAIN.replace(" CERTIFICATE-----", &format!(" {label}-----"))
}

fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

fn utf32(mark: &str, bytes: fn(u32) -> [u8; 4]) -> Vec<u8> {
    mark.chars().chain(CHAIN.chars()).flat_map(|character| bytes(character.into())).collect()
}

#[test]
fn certificates_are_read_whatever_stands_between_them() {
    let expected = certificates(CHAIN.as_bytes()).unwrap();
    assert_eq!(expected.len(), 2);
    let quoting = "The first line -----BEGIN CERTIFICATE----- is quoted; -----END CERTIFICATE----- too.\n";
    let one_line: String =
        CHAIN.split("-----\n").map(|part| part.replace('\n', "")).collect::<Vec<_>>().join("-----\n");
    let unlike = [
        format!("\u{feff}{CHAIN}").into_bytes(),
        format!("\u{feff}{}", CHAIN.replace('\n', "\r\n")).into_bytes(),
        CHAIN.replace('\n', "\r").into_bytes(),
        CHAIN.replace('\n', " \n  ").into_bytes(),
        CHAIN.trim_end().as_bytes().to_vec(),
        format!("{quoting}{CHAIN}{quoting}").into_bytes(),
        [b"Z\xfcrich: subject=CN = root\n", CHAIN.as_bytes()].concat(), // Latin-1
        labelled("X509 CERTIFICATE").into_bytes(),
        one_line.replace("-----BEGIN", "\n-----BEGIN").replace("-----END", "\n-----END").into_bytes(),
    ];
    for text in unlike {
        assert_eq!(certificates(&text), Ok(expected.clone()), "{}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn other_forms_are_named_with_what_to_do() {
    let pkcs7 = include_str!("../../../testdata/containers/pkcs7.pem");
    let keystore: &[u8] = b"\xfe\xed\xfe\xed\0\0\0\x02";
    let (little, big) = (utf16(CHAIN, u16::to_le_bytes), utf16(CHAIN, u16::to_be_bytes));
    let needed = "and certificates in PEM are needed";
    for (brought, expected) in [
        (b" \n".as_slice(), "it is empty".to_owned()),
        (b"hello", "it has no certificate in PEM (-----BEGIN CERTIFICATE-----)".to_owned()),
        (
            include_bytes!("../../../testdata/containers/authority.cer"),
            format!("it is a certificate in DER, {needed}: `openssl x509 -inform DER -in FILE`"),
        ),
        (
            include_bytes!("../../../testdata/containers/chain.p7b"),
            format!("it is PKCS#7 (.p7b), {needed}: `openssl pkcs7 -print_certs"),
        ),
        (
            include_bytes!("../../../testdata/containers/chain.p12"),
            format!("it is PKCS#12 (.p12, .pfx), {needed}: `openssl pkcs12 -nokeys"),
        ),
        (
            include_bytes!("../../../testdata/containers/key.der"),
            format!("it is a private key in DER, {needed}: the certificate"),
        ),
        (keystore, format!("it is a keystore of Java, {needed}: `keytool")),
        (&little, format!("it is text in UTF-16, {needed}: save it as UTF-8")),
        (&big, format!("it is text in UTF-16, {needed}")),
        (&utf16(&format!("\u{feff}{CHAIN}"), u16::to_be_bytes), format!("it is text in UTF-16, {needed}")),
        (&utf32("", u32::to_le_bytes), format!("it is text in UTF-32, {needed}: save it as UTF-8")),
        (&utf32("", u32::to_be_bytes), format!("it is text in UTF-32, {needed}")),
        (&utf32("\u{feff}", u32::to_le_bytes), format!("it is text in UTF-32, {needed}")),
        (&utf32("\u{feff}", u32::to_be_bytes), format!("it is text in UTF-32, {needed}")),
        (pkcs7.as_bytes(), "it has PKCS#7 (.p7b) in line 1: `openssl pkcs7 -print_certs".to_owned()),
        (
            pkcs7.replace("PKCS7", "CERTIFICATE").as_bytes(),
            "the CERTIFICATE block in line 1 contains PKCS#7".to_owned(),
        ),
    ] {
        let reported = sentence(brought);
        assert!(reported.starts_with(&expected), "{reported}");
    }
}

#[test]
fn base64_without_lines_or_twice_is_named() {
    let der = certificates(CHAIN.as_bytes()).unwrap().remove(0);
    let bare = sentence(data_encoding::BASE64.encode(&der).as_bytes());
    assert!(bare.starts_with("it is Base64 without BEGIN and END lines"), "{bare}");
    let twice = sentence(data_encoding::BASE64.encode(CHAIN.as_bytes()).as_bytes());
    assert!(twice.starts_with("it is PEM that is encoded in Base64 once more"), "{twice}");
}

#[test]
fn other_blocks_are_named_by_line() {
    let lines = CHAIN.lines().count();
    let trusted = include_str!("../../../testdata/containers/trusted.pem");
    for (text, expected) in [
        (format!("{CHAIN}{KEY}"), format!("it has a block EC PARAMETERS in line {}: remove it", lines + 1)),
        (
            format!("{CHAIN}{}", encode("PRIVATE KEY", b"y")),
            format!("it has a private key in line {}: remove it", lines + 1),
        ),
        (trusted.to_owned(), "it has a TRUSTED CERTIFICATE of OpenSSL in line 1: `openssl x509 -in FILE`".to_owned()),
        (labelled("NEW CERTIFICATE REQUEST"), "it has a certificate request in line 1: the certificate".to_owned()),
        (labelled(&"\u{7}".repeat(99)), format!("it has a block {} in line 1: remove it", "\\u{7}".repeat(8))),
    ] {
        let reported = sentence(text.as_bytes());
        assert!(reported.starts_with(&expected), "{reported}");
    }
}

#[test]
fn a_block_that_is_not_whole_is_named_by_line() {
    let lines: Vec<&str> = CHAIN.lines().collect();
    let last = lines.len();
    let without = |line: usize| {
        lines.iter().enumerate().filter(|(n, _)| n + 1 != line).map(|(_, it)| *it).collect::<Vec<_>>().join("\n")
    };
    let second = 1 + lines.iter().rposition(|line| line.starts_with("-----BEGIN ")).unwrap();
    assert_eq!(certificates(without(last).as_bytes()), Err(PemError::Boundary(second)), "no end");
    assert_eq!(certificates(without(second - 1).as_bytes()), Err(PemError::Boundary(second - 1)), "two begin");
    assert_eq!(certificates(without(1).as_bytes()), Err(PemError::Boundary(second - 2)), "no beginning");
    let odd = CHAIN.replacen("CERTIFICATE-----", "CERTIFICATE----", 1);
    assert_eq!(certificates(odd.as_bytes()), Err(PemError::Boundary(1)));
    let other_end = CHAIN.replacen("-----END CERTIFICATE", "-----END PUBLIC KEY", 1);
    assert_eq!(certificates(other_end.as_bytes()), Err(PemError::Boundary(second - 1)));
    for damage in ["!", "="] {
        let damaged = CHAIN.replacen("MII", &format!("M{damage}I"), 1);
        assert_eq!(certificates(damaged.as_bytes()), Err(PemError::Damaged(1)));
    }
}
