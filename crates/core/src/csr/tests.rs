//! Tests of reading a CSR. `tests/it/requests` runs the corpus of bad CSRs.

use super::*;
use proptest::prelude::*;

const OCM_REQUEST: &[u8] = include_bytes!("../../../../certs/requests/good/ocm-agent-v1.3.pem");

fn read(pem: &[u8]) -> CertificateRequest {
    CertificateRequest::from_pem(pem).unwrap()
}

fn der() -> Vec<u8> {
    single_block(OCM_REQUEST).unwrap().to_vec()
}

#[test]
fn every_part_of_the_real_agents_request_is_read() {
    let request = read(OCM_REQUEST);
    let expected = Subject {
        common_names: vec!["system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:telemetry".to_owned()],
        organizations: vec![
            "system:open-cluster-management:addon:telemetry".to_owned(),
            "system:open-cluster-management:cluster:spoke1:addon:telemetry".to_owned(),
        ],
        ..Subject::default()
    };
    assert_eq!(*request.subject(), expected);
    let extensions = RequestedExtensions {
        dns_names: vec!["telemetry.addon.open-cluster-management.io".to_owned()],
        ..RequestedExtensions::default()
    };
    assert_eq!(*request.extensions(), extensions);
    assert_eq!(request.key_kind(), KeyKind::EcdsaP256);
}

#[test]
fn subject_and_key_are_kept_byte_for_byte() {
    let request = read(OCM_REQUEST);
    let der = der();
    for part in [request.subject_der(), request.public_key_der()] {
        assert!(der.windows(part.len()).any(|window| window == part));
    }
    assert_eq!(request, CertificateRequest::from_der(&der).unwrap());
}

#[test]
fn every_single_bit_counts() {
    let der = der();
    for index in 0..der.len() {
        for bit in 0..8 {
            let mut changed = der.clone();
            changed[index] ^= 1 << bit;
            assert!(CertificateRequest::from_der(&changed).is_err(), "bit {bit} of byte {index}");
        }
    }
}

#[test]
fn a_request_that_ends_early_is_refused_wherever_it_ends() {
    let der = der();
    for end in 0..der.len() {
        assert!(matches!(CertificateRequest::from_der(&der[..end]), Err(CsrError::Malformed(_))), "{end}");
    }
}

#[test]
fn pem_is_lines_of_padded_base64_and_begins_a_line() {
    let text = std::str::from_utf8(OCM_REQUEST).unwrap();
    let lines = |ending: &str| text.replace('\n', ending);
    let (head, tail) = text.split_at(text.find('\n').unwrap() + 1);
    assert!(text.contains('='));
    for good in [text.to_owned(), lines("\r\n"), format!("\n \n{text}\n"), text.trim_end().to_owned()] {
        assert_eq!(CertificateRequest::from_pem(good.as_bytes()), Ok(read(OCM_REQUEST)), "{good}");
    }
    assert_eq!(CertificateRequest::from_pem(format!(" {text}").as_bytes()), Err(CsrError::NotOnePemBlock));
    for bad in
        [lines("\r"), lines(" \n"), lines("\n "), lines("\n\n"), text.replace('=', ""), format!("{head}\n{tail}")]
    {
        assert!(matches!(CertificateRequest::from_pem(bad.as_bytes()), Err(CsrError::Malformed(_))), "{bad}");
    }
}

#[test]
fn only_text_types_with_their_alphabets_are_text() {
    let read = |bytes: &[u8]| read_text(&AnyRef::from_der(bytes).unwrap()).map(str::to_owned);
    assert_eq!(read(b"\x0c\x03a_\n"), Some("a_\n".to_owned()));
    assert_eq!(read(b"\x13\x03a:b"), Some("a:b".to_owned()));
    for other in [b"\x13\x03a_b", b"\x0c\x03a\xffb", b"\x14\x03a:b", b"\x16\x03a:b", b"\x8c\x03a:b", b"\x4c\x03a:b"] {
        assert_eq!(read(other), None, "{other:x?}");
    }
}

#[test]
fn a_subject_has_no_attribute_with_the_same_text_twice() {
    let groups = |first: &[u8], second: &[u8]| {
        let attribute = |value: &[u8]| [b"\x30\x09\x06\x03\x55\x04\x0a", value].concat();
        let set = [b"\x31\x16", attribute(first).as_slice(), &attribute(second)].concat();
        read_subject(&read_name(&[b"\x30\x18", set.as_slice()].concat())?).map(|subject| subject.organizations)
    };
    let twice = CsrError::DuplicateSubjectAttribute("2.5.4.10".to_owned());
    assert_eq!(groups(b"\x0c\x02ab", b"\x0c\x02ab"), Err(twice.clone()));
    assert_eq!(groups(b"\x0c\x02ab", b"\x13\x02ab"), Err(twice.clone()));
    let rdn = b"\x31\x0b\x30\x09\x06\x03\x55\x04\x0a\x0c\x02ab";
    let apart = [b"\x30\x1a", rdn.as_slice(), rdn].concat();
    assert_eq!(read_subject(&read_name(&apart).unwrap()).err(), Some(twice), "in two relative names");
    assert_eq!(groups(b"\x0c\x02ab", b"\x0c\x02ac"), Ok(vec!["ab".to_owned(), "ac".to_owned()]));
}

proptest! {
    #[test]
    fn no_bytes_are_a_request_by_chance(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(CertificateRequest::from_pem(&bytes).is_err());
        prop_assert!(CertificateRequest::from_der(&bytes).is_err());
    }
}
