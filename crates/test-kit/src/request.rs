//! Requests as OCM's agent makes them.

use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::ObjectMeta;
use ring::rand::SystemRandom;

/// A request as OCM's agent makes it; a test can change one part of it.
pub fn mk_csr(cluster: &str, addon: &str) -> CertificateSigningRequest {
    let prefix = format!("system:open-cluster-management:cluster:{cluster}:addon:{addon}");
    let wish = CsrParams {
        common_name: format!("{prefix}:agent:{addon}"),
        organizations: vec![prefix.clone(), format!("system:open-cluster-management:addon:{addon}")],
        dns_names: vec![format!("{addon}.addon.open-cluster-management.io")],
        ip_addresses: vec![],
    };
    mk_csr_of(cluster, addon, &wish)
}

pub fn mk_csr_of(cluster: &str, addon: &str, wish: &CsrParams) -> CertificateSigningRequest {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let label = |name: &str, value: &str| (format!("open-cluster-management.io/{name}"), value.to_owned());
    CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("addon-{cluster}-{addon}-")),
            labels: Some([label("cluster-name", cluster), label("addon-name", addon)].into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            signer_name: "example.com/telemetry".to_owned(),
            usages: Some(["digital signature", "key encipherment", "client auth"].map(str::to_owned).to_vec()),
            request: ByteString(wish.sign(&key, &rng).unwrap().into_bytes()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}
