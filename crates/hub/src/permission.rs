//! Checks whether the hub's account may answer the CSRs of a signer. Kubernetes grants that right by signer name.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::conditions::Validity;
use addon_signer_core::conditions::NOT_PERMITTED;
use addon_signer_core::identity::SignerName;

/// Asks the API server about the verb `sign`, and about `approve` if approving is the hub's task, on exactly this
/// signer name (Kubernetes, admission plugins `CertificateApproval` and `CertificateSigning`).
///
/// # Errors
/// The error of the API server; the right is then unknown.
pub(crate) async fn check(client: &Client, signer_name: &SignerName, approves: bool) -> Result<Validity, kube::Error> {
    let may = async |verb, name: &str| may(client, "certificates.k8s.io", "signers", Some(name), &[verb]).await;
    let verbs = if approves { &["sign", "approve"][..] } else { &["sign"] };
    let name = signer_name.as_str();
    let domain = name.split('/').next().unwrap_or_default();
    for verb in verbs {
        // The API server also accepts a right to all signer names of a domain.
        if !may(verb, name).await? && !may(verb, &format!("{domain}/*")).await? {
            let sentence = format!(
                "The hub may not {verb} for {signer_name}: add it to `signers` in the chart's values, with \
                 exactly that name."
            );
            return Ok(Err((NOT_PERMITTED, sentence)));
        }
    }
    Ok(Ok(()))
}

/// Asks the API server about these verbs in all namespaces, on the object of this name or on all objects.
///
/// # Errors
/// The error of the API server; the right is then unknown.
pub(crate) async fn may(
    client: &Client,
    group: &str,
    resource: &str,
    name: Option<&str>,
    verbs: &[&str],
) -> Result<bool, kube::Error> {
    let reviews = Api::all(client.clone());
    for verb in verbs {
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            name: name.map(str::to_owned),
            verb: Some((*verb).to_owned()),
            ..ResourceAttributes::default()
        };
        if !review(&reviews, attributes).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn review(reviews: &Api<SelfSubjectAccessReview>, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
