//! What is checked before the hub runs: the API server answers, and the hub's account has its rights.

use anyhow::Context;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use crate::api::AddOnSigner;
use crate::api::request::BoundedRequest;
use addon_signer_core::lease::LEASE_NAME;

/// The account of this client.
///
/// # Errors
/// An API server that does not answer, or does not say.
pub(crate) async fn account(client: &Client) -> anyhow::Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let review = review
        .context("the API server does not answer; check the kubeconfig, and whether the API server is reachable")?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.context("the API server does not say which account this process has")
}

/// Checks the rights before the watches start, because a watch without the right would retry for ever.
///
/// # Errors
/// The first right or CRD that is missing.
pub(crate) async fn check_rights(client: &Client, account: &str, namespace: &str) -> anyhow::Result<()> {
    let one = ListParams::default().limit(1);
    let requests: Api<BoundedRequest> = Api::all(client.clone());
    requests.list(&one).await.with_context(|| lacks(account, "certificatesigningrequests"))?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    leases.get_opt(LEASE_NAME).await.with_context(|| {
        format!(
            "{account} cannot get the Lease {LEASE_NAME} in the namespace {namespace}; give it the rights of \
                 deploy/rbac.yaml"
        )
    })?;
    // Only the metadata: an AddOnSigner that cannot be decoded is reported later, on that object.
    let signers: Api<kube::core::PartialObjectMeta<AddOnSigner>> = Api::all(client.clone());
    match signers.list_metadata(&one).await {
        Ok(_) => Ok(()),
        // Without the CRD the answer is plain text, whose reason kube cannot read.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            anyhow::bail!("the API server does not know AddOnSigner: apply deploy/ first (`kubectl apply -k deploy/`)")
        }
        Err(error) => Err(error).with_context(|| lacks(account, "addonsigners")),
    }
}

fn lacks(account: &str, resource: &str) -> String {
    format!("{account} cannot list {resource}; give it the rights of deploy/rbac.yaml")
}
