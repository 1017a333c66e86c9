//! A company's CAs above the authorities of a hub: a root, and what is below it.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::CertificateDer;

use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::chain::Roots;
use addon_signer_core::encoding::pem;
use addon_signer_platform::clock::Clock;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A CA with its key.
pub struct CompanyCa {
    params: CertificateParams,
    key: KeyPair,
    pub der: CertificateDer<'static>,
}

/// The public key of somebody else.
struct Point<'p>(&'p [u8]);

impl PublicKeyData for Point<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The parameters of a CA that is valid from yesterday for this long.
pub fn ca_params(name: &str, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let now = time::OffsetDateTime::from_unix_timestamp(Clock::default().now().unix()).unwrap();
    params.not_before = now - Duration::from_secs(86_400);
    params.not_after = now + life;
    params
}

impl CompanyCa {
    /// The root, a P-384 key, for ten years.
    pub fn root() -> Self {
        Self::root_with(KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap())
    }

    /// A root with this key.
    pub fn root_with(key: KeyPair) -> Self {
        let params = ca_params("Example Root CA", YEAR * 10);
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { params, key, der }
    }

    /// A CA below this one.
    pub fn signs(&self, params: CertificateParams) -> Self {
        self.signs_with_key(params, &PKCS_ECDSA_P256_SHA256)
    }

    /// A CA below this one with a key of this kind.
    pub fn signs_with_key(&self, params: CertificateParams, algorithm: &'static SignatureAlgorithm) -> Self {
        self.signs_for(params, KeyPair::generate_for(algorithm).unwrap())
    }

    /// A CA below this one with this key.
    #[expect(clippy::disallowed_methods, reason = "a CA, not a leaf")]
    pub fn signs_for(&self, params: CertificateParams, key: KeyPair) -> Self {
        let der = params.signed_by(&key, &self.issuer()).unwrap().der().clone();
        Self { params, key, der }
    }

    /// A CA below this one with this name, for two years.
    pub fn authority(&self, name: &str) -> Self {
        self.signs(ca_params(name, YEAR * 2))
    }

    /// The certificate of a CA with this P-256 key, of which it knows only the public point.
    #[expect(clippy::disallowed_methods, reason = "a CA, not a leaf")]
    pub fn certifies(&self, point: &[u8], params: &CertificateParams) -> CertificateDer<'static> {
        params.signed_by(&Point(point), &self.issuer()).unwrap().der().clone()
    }

    /// It as the one root that agents may trust.
    pub fn roots(&self) -> Roots {
        Roots::from_pem(chain(&[&self.der]).as_bytes()).unwrap()
    }

    /// The id that the hub gives it as an authority.
    pub fn id(&self) -> String {
        AuthorityId::of(&self.key.subject_public_key_info()).to_string()
    }

    /// Its private key, PKCS#8.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// The issuer of leaves.
    pub fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }
}

/// The certificates as PEM blocks.
pub fn chain(certificates: &[&CertificateDer<'_>]) -> String {
    certificates.iter().map(|der| pem::encode("CERTIFICATE", der)).collect()
}
