//! Writes the PKCS#10 CSRs of the agent and of the gateway.

use std::net::IpAddr;

use der::asn1::{AnyRef, BitStringRef, OctetStringRef, SetOfVec, Utf8StringRef};
use der::{Decode, Encode};
use ring::rand::SecureRandom;

use super::CsrError;
use crate::encoding::asn1::{self, Extension, NameAttribute};
use crate::keys::private::{KeyError, PrivateKey};

/// Why a CSR could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A name cannot be encoded.
    #[error("the CSR could not be encoded: {0}")]
    Encoding(String),
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// [`super::CertificateRequest`] refuses the written CSR.
    #[error("the CSR that was written cannot be read back: {0}")]
    NotReadable(#[from] CsrError),
}

impl From<der::Error> for BuildError {
    fn from(error: der::Error) -> Self {
        Self::Encoding(error.to_string())
    }
}

/// The content of a CSR.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsrParams {
    /// CN.
    pub common_name: String,
    /// O, each in a separate RDN.
    pub organizations: Vec<String>,
    /// DNS names of the SAN.
    pub dns_names: Vec<String>,
    /// Addresses of the SAN.
    pub ip_addresses: Vec<IpAddr>,
}

impl CsrParams {
    /// Signs the CSR with `key`, reads it back, and returns PEM.
    pub fn sign(&self, key: &PrivateKey, rng: &dyn SecureRandom) -> Result<String, BuildError> {
        let der = signed(&self.info(key, self.extensions()?)?, key, rng)?;
        super::CertificateRequest::from_der(&der)?;
        Ok(crate::encoding::pem::encode("CERTIFICATE REQUEST", &der))
    }

    /// Signs a CSR with this subject for the certificate of an authority, with path length 0, and returns PEM.
    pub fn sign_for_authority(&self, key: &PrivateKey, rng: &dyn SecureRandom) -> Result<String, BuildError> {
        let constraints = asn1::BasicConstraints { ca: true, path_length: Some(0) }.to_der()?;
        let usage = BitStringRef::new(1, &[0b0000_0110])?.to_der()?; // keyCertSign, cRLSign (RFC 5280 4.2.1.3)
        let extension =
            |oid, value| Ok::<_, der::Error>(Extension { oid, critical: true, value: OctetStringRef::new(value)? });
        let extensions =
            vec![extension(asn1::BASIC_CONSTRAINTS, &constraints)?, extension(asn1::KEY_USAGE, &usage)?].to_der()?;
        let der = signed(&self.info(key, Some(extensions))?, key, rng)?;
        Ok(crate::encoding::pem::encode("CERTIFICATE REQUEST", &der))
    }

    fn info(&self, key: &PrivateKey, request: Option<Vec<u8>>) -> Result<Vec<u8>, BuildError> {
        let subject = self.subject()?;
        let mut attributes = SetOfVec::new();
        if let Some(extensions) = &request {
            let values = SetOfVec::try_from(vec![AnyRef::from_der(extensions)?])?;
            attributes.insert(asn1::RequestAttribute { oid: asn1::EXTENSION_REQUEST, values })?;
        }
        let info = asn1::RequestInfo {
            version: 0,
            subject: AnyRef::from_der(&subject)?,
            public_key: AnyRef::from_der(key.public_key_der())?,
            attributes,
        };
        Ok(info.to_der()?)
    }

    fn subject(&self) -> Result<Vec<u8>, BuildError> {
        let organizations = self.organizations.iter().map(|group| (asn1::ORGANIZATION, group));
        let all = organizations.chain([(asn1::COMMON_NAME, &self.common_name)]);
        let mut name: asn1::Name<'_> = Vec::new();
        for (oid, text) in all {
            let value = AnyRef::from(Utf8StringRef::new(text)?);
            name.push(SetOfVec::try_from(vec![NameAttribute { oid, value }])?);
        }
        Ok(name.to_der()?)
    }

    fn extensions(&self) -> Result<Option<Vec<u8>>, BuildError> {
        let Some(names) = asn1::general_names(&self.dns_names, &self.ip_addresses)? else { return Ok(None) };
        let value = OctetStringRef::new(&names)?;
        Ok(Some(vec![Extension { oid: asn1::SUBJECT_ALT_NAME, critical: false, value }].to_der()?))
    }
}

fn signed(info: &[u8], key: &PrivateKey, rng: &dyn SecureRandom) -> Result<Vec<u8>, BuildError> {
    let signature = key.sign(info, rng)?;
    let signed = asn1::Signed {
        content: AnyRef::from_der(info)?,
        algorithm: key.algorithm(),
        signature: BitStringRef::from_bytes(&signature)?,
    };
    Ok(signed.to_der()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::CertificateRequest;
    use crate::keys::public::KeyKind;
    use ring::rand::SystemRandom;

    #[test]
    fn what_is_written_is_what_was_wished() {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let wish = CsrParams {
            common_name: "system:x:y".to_owned(),
            organizations: vec!["g1".to_owned(), "g2".to_owned()],
            dns_names: vec!["a.example".to_owned()],
            ip_addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        };
        let request = CertificateRequest::from_pem(wish.sign(&key, &rng).unwrap().as_bytes()).unwrap();
        assert_eq!(request.subject().common_names, ["system:x:y"]);
        assert_eq!(request.subject().organizations, ["g1", "g2"]);
        assert_eq!(request.extensions().dns_names, ["a.example"]);
        assert_eq!(request.extensions().ip_addresses, wish.ip_addresses);
        assert_eq!(request.public_key_der(), key.public_key_der());
        let bare = CsrParams { common_name: "x".to_owned(), ..CsrParams::default() };
        assert!(bare.sign(&key, &rng).is_ok());
    }

    #[test]
    fn a_request_for_an_authority_asks_for_a_ca_without_cas_below() {
        use x509_parser::extensions::ParsedExtension;
        use x509_parser::prelude::{FromDer, X509CertificationRequest};
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP384, &rng).unwrap();
        let wish = CsrParams { common_name: "client CA telemetry 0a1b".to_owned(), ..CsrParams::default() };
        let pem = wish.sign_for_authority(&key, &rng).unwrap();
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let (_, request) = X509CertificationRequest::from_der(&block.contents).unwrap();
        request.verify_signature().unwrap();
        assert_eq!(request.certification_request_info.subject.to_string(), "CN=client CA telemetry 0a1b");
        let [constraints, usage]: [&ParsedExtension<'_>; 2] =
            request.requested_extensions().unwrap().collect::<Vec<_>>().try_into().unwrap();
        assert!(
            matches!(constraints, ParsedExtension::BasicConstraints(it) if it.ca && it.path_len_constraint == Some(0))
        );
        assert!(matches!(usage, ParsedExtension::KeyUsage(it) if it.key_cert_sign() && it.crl_sign()));
    }
}
