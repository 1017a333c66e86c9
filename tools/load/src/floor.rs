//! The least that a signer does with a request.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::api::PostParams;
use kube::{Api, ResourceExt};

/// Approves the request and writes a certificate that is there already.
pub async fn approve_and_sign(
    api: Api<CertificateSigningRequest>,
    mut csr: CertificateSigningRequest,
    pem: Arc<Vec<u8>>,
) {
    let name = csr.name_any();
    csr.status.get_or_insert_default().conditions = Some(vec![CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("Floor".to_owned()),
        ..CertificateSigningRequestCondition::default()
    }]);
    let mut csr = api.replace_subresource("approval", &name, &PostParams::default(), &csr).await.unwrap();
    csr.status.get_or_insert_default().certificate = Some(ByteString(pem.to_vec()));
    api.replace_subresource("status", &name, &PostParams::default(), &csr).await.unwrap();
}
